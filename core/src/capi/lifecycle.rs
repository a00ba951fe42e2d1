//! What the library hangs onto the process: fork and exit.

use core::{
    ffi::{c_int, c_void},
    ptr::null_mut,
    sync::atomic::{AtomicBool, Ordering},
};

use crate::{
    calls::{descriptor, exit},
    sys::{
        inside,
        once::Once,
        owner::{self, Forked},
        threads,
    },
};

static REGISTERED: AtomicBool = AtomicBool::new(false);

/// Makes this process the owner of the sockets to come, and its children by fork of their own. Once is enough.
pub fn register() {
    if REGISTERED.swap(true, Ordering::Relaxed) {
        return;
    }
    owner::claim();
    threads::prepare();
    // SAFETY: the handlers are functions of this library, which is never unloaded.
    unsafe { libc::pthread_atfork(Some(before), Some(after_in_parent), Some(after_in_child)) };
    // SAFETY: the handler is a function of this library, which is never unloaded, and belongs to no library.
    unsafe { __cxa_at_quick_exit(at_quick_exit, null_mut()) };
}

/// fork holds the allocator's locks from here on, and a signal may come: what its handler calls must not wait for these.
unsafe extern "C" fn before() {
    descriptor::before_fork();
    inside::set_busy(true);
}

unsafe extern "C" fn after_in_parent() {
    inside::set_busy(false);
    descriptor::after_fork_in_parent();
}

/// Not run in vfork children, nor in those of posix_spawn and a raw clone: these are told from the owner by their number.
unsafe extern "C" fn after_in_child() {
    inside::set_busy(false);
    in_child();
}

fn in_child() {
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
        0 => in_child(),
        1.. => descriptor::after_fork_in_parent(),
        _ => {}
    }
    child
}

/// What is done first at exit.
static FIRST: Once<fn()> = Once::new();
/// The end comes behind all exit handlers and destructors.
static LAST: AtomicBool = AtomicBool::new(false);

/// Before connections are closed at exit, this is done: what the program has left to its C library to write.
pub fn before_exit(first: fn()) {
    let _ = FIRST.set(Box::new(first));
}

/// Exit handlers run in the reverse order of their registration (exit(3)), and the destructors of libraries are one of them, which is
/// registered when the program starts. So what is registered before that is the last: others may still send. To be called by constructors
/// of a library that is there from the start.
pub fn end_last() {
    // SAFETY: the handler is a function of this library, which is never unloaded; it needs no argument, and belongs to no library.
    let registered = unsafe { __cxa_atexit(at_exit_last, null_mut(), null_mut()) };
    LAST.store(registered == 0, Ordering::Relaxed);
}

/// After main has returned or exit was called, and the program's own exit handlers have run.
#[used]
#[unsafe(link_section = ".fini_array")]
static AT_EXIT: extern "C" fn() = at_exit;

extern "C" fn at_exit() {
    if !LAST.load(Ordering::Relaxed) {
        end_of_process();
    }
}

unsafe extern "C" fn at_exit_last(_: *mut c_void) {
    end_of_process();
}

/// quick_exit(3), after the program's own handlers.
unsafe extern "C" fn at_quick_exit(_: *mut c_void) {
    exit::end();
}

fn end_of_process() {
    // A vfork child that calls exit leaves its parent's data alone.
    if owner::is_current() && !RENEWAL_IS_DUE.load(Ordering::Relaxed) {
        if let Some(first) = FIRST.get() {
            first();
        }
        exit::end();
    }
}

unsafe extern "C" {
    fn __cxa_atexit(handler: unsafe extern "C" fn(*mut c_void), argument: *mut c_void, library: *mut c_void) -> c_int;
    fn __cxa_at_quick_exit(handler: unsafe extern "C" fn(*mut c_void), library: *mut c_void) -> c_int;
}
