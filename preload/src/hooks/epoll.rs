//! epoll sets. Under the program's number is the kernel's, which waits for the kernel's members, and for the library's.

use core::ffi::c_int;

use libc::{epoll_event, sigset_t, timespec};
use rsocket::{
    calls::Route,
    capi::boundary::{answer, epoll as boundary},
};

use super::{hooks, real};
use crate::guard::{fresh, ours};

hooks! {
    fn epoll_ctl(set: c_int, operation: c_int, fd: c_int, event: *mut epoll_event) -> c_int
        = ours(set) || ours(fd) => boundary::control(set, operation, fd, event);
}

#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn epoll_create(size: c_int) -> c_int {
    made(real!(epoll_create(size: c_int) -> c_int))
}

#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn epoll_create1(flags: c_int) -> c_int {
    made(real!(epoll_create1(flags: c_int) -> c_int))
}

pub(super) fn made(set: c_int) -> c_int {
    boundary::created(fresh(set));
    set
}

#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn epoll_wait(set: c_int, events: *mut epoll_event, most: c_int, timeout: c_int) -> c_int {
    waited(
        set,
        events,
        // SAFETY: the program's promises are those of the function's man page, which are the ones asked for.
        || unsafe { boundary::wait(set, events, most, timeout) },
        || real!(epoll_wait(set: c_int, events: *mut epoll_event, most: c_int, timeout: c_int) -> c_int),
    )
}

#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn epoll_pwait(
    set: c_int,
    events: *mut epoll_event,
    most: c_int,
    timeout: c_int,
    mask: *const sigset_t,
) -> c_int {
    waited(
        set,
        events,
        // SAFETY: the program's promises are those of the function's man page, which are the ones asked for.
        || unsafe { boundary::pwait(set, events, most, timeout, mask) },
        || real!(epoll_pwait(set: c_int, events: *mut epoll_event, most: c_int, timeout: c_int, mask: *const sigset_t) -> c_int),
    )
}

#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn epoll_pwait2(
    set: c_int,
    events: *mut epoll_event,
    most: c_int,
    timeout: *const timespec,
    mask: *const sigset_t,
) -> c_int {
    waited(
        set,
        events,
        // SAFETY: the program's promises are those of the function's man page, which are the ones asked for.
        || unsafe { boundary::pwait2(set, events, most, timeout, mask) },
        || real!(epoll_pwait2(set: c_int, events: *mut epoll_event, most: c_int, timeout: *const timespec, mask: *const sigset_t) -> c_int),
    )
}

/// A wait in a set: the library's if it has members there, else the kernel's. While the kernel waits, an rsocket may come into the set.
/// Nothing here has a destructor: the kernel's wait is a cancellation point.
#[inline]
fn waited(set: c_int, events: *mut epoll_event, wait: impl Fn() -> Route<c_int>, kernel: impl Fn() -> c_int) -> c_int {
    loop {
        if !ours(set) {
            let found = kernel();
            // SAFETY: so many events were written there.
            match unsafe { boundary::sift_unknown(events, found) } {
                Some(found) => return found,
                None => continue,
            }
        }
        if let Some(found) = answer(&wait) {
            return found;
        }
        let found = kernel();
        // SAFETY: so many events were written there.
        if let Some(found) = unsafe { boundary::sift(set, events, found) } {
            return found;
        }
        // It ended for the library alone, when the first rsocket came into the set: the program's wait begins again.
    }
}
