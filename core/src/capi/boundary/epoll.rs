//! The C side of `calls::epoll`.

use core::{ffi::c_int, time::Duration};

use libc::{epoll_event, sigset_t, timespec};

use super::{
    attempt, errno, is_bad, map,
    poll::{duration, signal_mask},
    set_errno,
};
use crate::{
    calls::{Route, epoll},
    capi::lifecycle,
    error::Errno,
    sys::inside,
};

/// epoll_wait(2): "EINVAL … maxevents is less than or equal to zero", or more than the kernel can count bytes of.
const MOST: c_int = c_int::MAX / size_of::<epoll_event>() as c_int;

/// epoll_create(2) has given this number, or an error.
pub fn created(number: c_int) {
    if number >= 0 && !inside::is_set() && !inside::is_busy() {
        // What is called here may come back by a malloc that makes a set itself.
        let _busy = inside::busy();
        lifecycle::register();
        epoll::created(number);
    }
}

/// epoll_ctl(2).
///
/// # Safety
/// Unless NULL, `event` must be good for reads, where `operation` wants one.
pub unsafe fn control(set: c_int, operation: c_int, fd: c_int, event: *const epoll_event) -> Route<c_int> {
    let wanted = matches!(operation, libc::EPOLL_CTL_ADD | libc::EPOLL_CTL_MOD) && !event.is_null();
    // SAFETY: not NULL, so good for reads (the caller's promise), be it aligned or not.
    let event = wanted.then(|| unsafe { event.read_unaligned() });
    epoll::control(set, operation, fd, event)
}

/// epoll_wait(2): "a timeout of -1 causes epoll_wait() to block indefinitely"; the kernel takes all that is negative so.
///
/// # Safety
/// Unless NULL, `events` must be an array of `most`, used by nobody else.
pub unsafe fn wait(set: c_int, events: *mut epoll_event, most: c_int, timeout: c_int) -> Route<c_int> {
    // SAFETY: the caller's promises; NULL is allowed for the mask.
    unsafe { pwait(set, events, most, timeout, core::ptr::null()) }
}

/// epoll_pwait(2).
///
/// # Safety
/// As for [`wait`]; unless NULL, `mask` must be good for reads.
pub unsafe fn pwait(set: c_int, events: *mut epoll_event, most: c_int, timeout: c_int, mask: *const sigset_t) -> Route<c_int> {
    let timeout = u64::try_from(timeout).ok().map(Duration::from_millis);
    // SAFETY: the caller's promises are those asked for.
    unsafe { wait_for(set, events, most, timeout, mask) }
}

/// epoll_pwait2(2).
///
/// # Safety
/// As for [`pwait`]; unless NULL, `timeout` must be good for reads.
pub unsafe fn pwait2(set: c_int, events: *mut epoll_event, most: c_int, timeout: *const timespec, mask: *const sigset_t) -> Route<c_int> {
    // SAFETY: NULL or good for reads (the caller's promise).
    let timeout = match unsafe { timeout.as_ref() } {
        Some(timeout) => Some(attempt!(duration(timeout))),
        None => None,
    };
    // SAFETY: the caller's promises are those asked for.
    unsafe { wait_for(set, events, most, timeout, mask) }
}

/// # Safety
/// As for [`pwait`].
unsafe fn wait_for(set: c_int, events: *mut epoll_event, most: c_int, timeout: Option<Duration>, mask: *const sigset_t) -> Route<c_int> {
    // The kernel says what is wrong with the number of the set first.
    if !(1..=MOST).contains(&most) {
        return Route::err(Errno::INVAL);
    }
    if is_bad(events.cast(), most as usize * size_of::<epoll_event>()) {
        return Route::err(Errno::FAULT);
    }
    // SAFETY: the caller's promise is the one asked for.
    let mask = unsafe { signal_mask(mask) };
    // SAFETY: not NULL, so an array of `most` (the caller's promise).
    let events = unsafe { core::slice::from_raw_parts_mut(events, most as usize) };
    map(epoll::wait(set, events, timeout, mask), |found| found as c_int)
}

/// What the kernel has found in a wait that was left to it, or its error: the program's result. `None`: the wait is to be made again, since
/// it ended for the library alone.
///
/// # Safety
/// `events` must be an array of `found`, used by nobody else.
pub unsafe fn sift(set: c_int, events: *mut epoll_event, found: c_int) -> Option<c_int> {
    // SAFETY: the caller's promise is the one asked for.
    unsafe { sifted(events, found, |events, count| epoll::sift(set, events, count)) }
}

/// The same for a wait that began where the number was not one of the sets that are known: another thread may have put one there.
///
/// # Safety
/// As for [`sift`].
pub unsafe fn sift_unknown(events: *mut epoll_event, found: c_int) -> Option<c_int> {
    // SAFETY: the caller's promise is the one asked for.
    unsafe { sifted(events, found, epoll::sift_unknown) }
}

/// # Safety
/// As for [`sift`].
unsafe fn sifted(events: *mut epoll_event, found: c_int, sift: impl FnOnce(&mut [epoll_event], usize) -> usize) -> Option<c_int> {
    let errno = errno();
    let count = usize::try_from(found).unwrap_or(0);
    let events = if count == 0 { core::ptr::dangling_mut() } else { events };
    // SAFETY: the caller's promise is the one asked for.
    let events = unsafe { core::slice::from_raw_parts_mut(events, count) };
    let left = sift(events, count);
    set_errno(errno);
    match (found, left) {
        (..=0, _) => Some(found),
        (_, 0) => None,
        (_, left) => Some(left as c_int),
    }
}
