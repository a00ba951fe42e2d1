//! What the library hangs onto the process: fork and exit.

use core::sync::atomic::{AtomicBool, Ordering};

use crate::{
    calls::descriptor,
    sys::{
        inside,
        once::Once,
        owner::{self, Forked},
    },
};

static REGISTERED: AtomicBool = AtomicBool::new(false);

/// Makes this process the owner of the sockets to come, and its children by fork of their own. Once is enough.
pub fn register() {
    if REGISTERED.swap(true, Ordering::Relaxed) {
        return;
    }
    owner::claim();
    // SAFETY: the handlers are functions of this library, which is never unloaded.
    unsafe { libc::pthread_atfork(None, Some(in_parent), Some(in_child)) };
}

unsafe extern "C" fn in_parent() {
    descriptor::after_fork_in_parent();
}

/// Not run in vfork children, nor in those of posix_spawn and a raw clone: these are told from the owner by their number.
unsafe extern "C" fn in_child() {
    owner::forked();
    descriptor::after_fork_in_child();
    RENEWAL_IS_DUE.store(true, Ordering::Relaxed);
    renew_if_due();
    if RENEWAL_IS_DUE.load(Ordering::Relaxed) {
        // The interrupted call looks at it when it ends; until then calls give EAGAIN.
        descriptor::leave_something();
    }
}

/// This child's locks are its parent's still: it was forked by a signal handler that has interrupted a thread which holds one.
static RENEWAL_IS_DUE: AtomicBool = AtomicBool::new(false);

/// See [`descriptor::renew`].
pub(super) fn renew_if_due() {
    if !inside::is_busy() && RENEWAL_IS_DUE.swap(false, Ordering::Relaxed) {
        // SAFETY: a forked child has one thread: this is it, at fork or at the end of the call that was interrupted. It is not busy, so it holds
        // no leaf lock.
        descriptor::renew(&unsafe { Forked::new() });
    }
}

/// What a call that has forked past pthread_atfork gave: `_Fork`, or a system call.
pub fn forked(child: i64) -> i64 {
    match child {
        // SAFETY: this is the child, which has a copy of the memory.
        0 => unsafe { in_child() },
        1.. => descriptor::after_fork_in_parent(),
        _ => {}
    }
    child
}

/// After main has returned or exit was called, and the program's own exit handlers have run: they may still send.
#[used]
#[unsafe(link_section = ".fini_array")]
static AT_EXIT: extern "C" fn() = at_exit;

/// What is done first at exit.
static FIRST: Once<fn()> = Once::new();

/// Before connections are closed at exit, this is done: what the program has left to its C library to write.
pub fn before_exit(first: fn()) {
    let _ = FIRST.set(Box::new(first));
}

extern "C" fn at_exit() {
    // A vfork child that calls exit leaves its parent's data alone.
    if owner::is_current() && !RENEWAL_IS_DUE.load(Ordering::Relaxed) {
        if let Some(first) = FIRST.get() {
            first();
        }
        descriptor::flush_at_exit();
    }
}
