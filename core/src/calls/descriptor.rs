//! Descriptor numbers: close, dup, fcntl, and what happens behind the library's back.

use std::os::fd::RawFd;

use super::Route;

/// Whether the number belongs to an rsocket: one atomic load, safe anywhere (DESIGN: D5).
#[inline(always)]
pub fn is_ours(_fd: RawFd) -> bool {
    false
}

/// close(2): drops the number and, with the last number of its description, the connection. Also closes the kernel's descriptor.
pub fn close(_fd: RawFd) -> Route<()> {
    Route::Kernel
}

/// The kernel has (or is about to have) something else under this number: forget the rsocket, as after close. Does not touch the kernel's descriptor.
pub fn forget(_fd: RawFd) {}

/// dup(2) and fcntl(F_DUPFD, F_DUPFD_CLOEXEC): the lowest free number from `least`.
pub fn dup_from(_fd: RawFd, _least: i32, _close_on_exec: bool) -> Route<RawFd> {
    Route::Kernel
}

/// dup2(2), dup3(2) where `old` or `new` is ours: `flags` is 0 or O_CLOEXEC. (dup2 of a number to itself and dup3's EINVAL are decided here: `dup3` says which call it was.)
pub fn dup_to(_old: RawFd, _new: RawFd, _flags: i32, _dup3: bool) -> Route<RawFd> {
    Route::Kernel
}

/// fcntl(2) for commands with an int argument or none, other than F_DUPFD*: F_GETFL, F_SETFL, F_GETFD, F_SETFD …
pub fn fcntl(_fd: RawFd, _command: i32, _argument: i32) -> Route<i32> {
    Route::Kernel
}

/// ioctl(FIONBIO).
pub fn set_nonblocking(_fd: RawFd, _on: bool) -> Route<()> {
    Route::Kernel
}

/// Waits, a bounded time, until what was handed to send has reached the peers: for exit.
pub fn flush_at_exit() {}

/// After fork in the child: everything inherited is forgotten (pthread_atfork child handler).
pub fn after_fork_in_child() {}
