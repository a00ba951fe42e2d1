//! What the library hangs onto the process: fork and exit.

use core::sync::atomic::{AtomicBool, Ordering};
use std::sync::OnceLock;

use crate::{calls::descriptor, sys::owner};

static REGISTERED: AtomicBool = AtomicBool::new(false);

/// Makes this process the owner of the sockets to come, and its children by fork of their own. Once is enough.
pub fn register() {
    if REGISTERED.swap(true, Ordering::Relaxed) {
        return;
    }
    owner::claim();
    // SAFETY: the handlers are functions of this library, which is never unloaded.
    unsafe { libc::pthread_atfork(Some(before), Some(in_parent), Some(in_child)) };
}

unsafe extern "C" fn before() {
    descriptor::before_fork();
}

unsafe extern "C" fn in_parent() {
    descriptor::after_fork_in_parent();
}

/// Not run in vfork children, nor in those of `_Fork`, posix_spawn and a raw clone: these are told from the owner by their number.
unsafe extern "C" fn in_child() {
    owner::claim();
    descriptor::after_fork_in_child();
}

/// The program may have been started with sockets.
pub fn expect_inherited() {
    descriptor::expect_inherited();
}

/// After main has returned or exit was called, and the program's own exit handlers have run: they may still send.
#[used]
#[unsafe(link_section = ".fini_array")]
static AT_EXIT: extern "C" fn() = at_exit;

/// What is done first at exit.
static FIRST: OnceLock<fn()> = OnceLock::new();

/// Before connections are closed at exit, this is done: what the program has left to its C library to write.
pub fn before_exit(first: fn()) {
    let _ = FIRST.set(first);
}

extern "C" fn at_exit() {
    // A vfork child that calls exit leaves its parent's data alone.
    if owner::is_current() {
        if let Some(first) = FIRST.get() {
            first();
        }
        descriptor::flush_at_exit();
    }
}
