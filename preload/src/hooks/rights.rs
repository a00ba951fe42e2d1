//! Messages that may carry descriptors to or from other processes: unix(7), SCM_RIGHTS.

use libc::{c_int, c_long, c_uint, mmsghdr, msghdr, ssize_t, timespec};
use rsocket::{
    calls::adopt,
    capi::boundary::{answer, io as boundary, rights},
    sys::inside,
};

use super::{hooks, real};
use crate::guard::{fresh, ours};

hooks! {
    fn sendmsg(fd: c_int, message: *const msghdr, flags: c_int) -> ssize_t
        = ours(fd) || carries(message) => if ours(fd) { boundary::sendmsg(fd, message, flags) } else { rights::sendmsg(message) };
    fn sendmmsg(fd: c_int, messages: *mut mmsghdr, count: c_uint, flags: c_int) -> c_int
        = ours(fd) || carry(messages, count)
            => if ours(fd) { boundary::sendmmsg(fd, messages, count, flags) } else { rights::sendmmsg(messages, count as usize) };
}

#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn recvmsg(fd: c_int, message: *mut msghdr, flags: c_int) -> ssize_t {
    // SAFETY: the program's promises are those of the function's man page, which are the ones asked for.
    let done = ours(fd).then(|| answer(|| unsafe { boundary::recvmsg(fd, message, flags) })).flatten();
    done.unwrap_or_else(|| {
        let received = real!(recvmsg(fd: c_int, message: *mut msghdr, flags: c_int) -> ssize_t);
        came(message, received);
        received
    })
}

#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn recvmmsg(fd: c_int, messages: *mut mmsghdr, count: c_uint, flags: c_int, timeout: *mut timespec) -> c_int {
    // SAFETY: the program's promises are those of the function's man page, which are the ones asked for.
    let done = ours(fd).then(|| answer(|| unsafe { boundary::recvmmsg(fd, messages, count, flags, timeout) })).flatten();
    done.unwrap_or_else(|| {
        let received = real!(recvmmsg(fd: c_int, messages: *mut mmsghdr, count: c_uint, flags: c_int, timeout: *mut timespec) -> c_int);
        all_came(messages, received);
        received
    })
}

/// A message may carry descriptors.
///
/// # Safety
/// Unless NULL, `message` must be good for reads.
#[inline(always)]
pub(crate) unsafe fn carries(message: *const msghdr) -> bool {
    // SAFETY: the caller's promise is the one asked for.
    unsafe { rights::has_control(message) && !inside::is_set() }
}

/// One of these messages may.
///
/// # Safety
/// Unless NULL, `messages` must be an array of `count`.
#[inline(always)]
pub(crate) unsafe fn carry(messages: *const mmsghdr, count: c_uint) -> bool {
    // SAFETY: the caller's promise is the one asked for.
    unsafe { rights::have_control(messages, count as usize) && !inside::is_set() }
}

/// recvmsg has given this result.
#[inline(always)]
fn came(message: *const msghdr, received: ssize_t) {
    // SAFETY: the kernel has filled the message, unless it was an error.
    if received >= 0 && unsafe { carries(message) } {
        let one = |fd| {
            take(fd);
            Ok(())
        };
        // SAFETY: as above.
        let _ = unsafe { rights::each(message, one) };
    }
}

#[inline(always)]
fn all_came(messages: *const mmsghdr, received: c_int) {
    let count = c_uint::try_from(received).unwrap_or(0);
    // SAFETY: the kernel has filled so many messages.
    if count > 0 && unsafe { carry(messages, count) } {
        // SAFETY: as above.
        unsafe { rights::each_of(messages, count as usize, take) };
    }
}

/// A descriptor came: whatever was known of the number is no more, and it may be a socket to adopt.
#[cold]
pub(super) fn take(fd: c_int) {
    if fd >= 0 {
        fresh(fd);
        adopt::note(fd);
    }
}

/// The same, as system calls.
#[inline]
pub(super) fn came_by(number: c_long, messages: usize, result: c_long) {
    match number {
        libc::SYS_recvmsg => came(messages as *const msghdr, result as ssize_t),
        libc::SYS_recvmmsg => all_came(messages as *const mmsghdr, result as c_int),
        libc::SYS_pidfd_getfd => take(result as c_int),
        _ => {}
    }
}
