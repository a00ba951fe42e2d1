//! The C side of `calls::poll`.

use core::{
    ffi::{c_int, c_void},
    time::Duration,
};

use libc::{nfds_t, pollfd, sigset_t, timespec};

use super::{attempt, map};
use crate::{
    calls::{
        Route,
        poll::{self, PollFd, SignalMask},
    },
    error::{Errno, Result},
};

/// More entries than any limit on open files allows: the kernel's EINVAL.
const MOST: nfds_t = 1 << 24;

/// The entries of a poll call; none for what the kernel shall judge (NULL, more than can be).
///
/// # Safety
/// Unless NULL, `fds` must be an array of `count`, for `'a`.
#[inline]
pub unsafe fn entries<'a>(fds: *const pollfd, count: nfds_t) -> &'a [PollFd] {
    if fds.is_null() || count > MOST {
        return &[];
    }
    // SAFETY: not NULL, so an array of `count` (the caller's promise); PollFd has the layout of pollfd.
    unsafe { core::slice::from_raw_parts(fds.cast(), count as usize) }
}

/// poll(2): "a negative value in timeout means an infinite timeout".
///
/// # Safety
/// Unless NULL, `fds` must be an array of `count`, used by nobody else.
pub unsafe fn poll(fds: *mut pollfd, count: nfds_t, timeout: c_int) -> Route<c_int> {
    let timeout = u64::try_from(timeout).ok().map(Duration::from_millis);
    // SAFETY: the caller's promise is the one asked for.
    unsafe { wait(fds, count, timeout, None) }
}

/// ppoll(2).
///
/// # Safety
/// As for [`poll`]; unless NULL, `timeout` and `mask` must be good for reads.
pub unsafe fn ppoll(fds: *mut pollfd, count: nfds_t, timeout: *const timespec, mask: *const sigset_t) -> Route<c_int> {
    // SAFETY: NULL or good for reads (the caller's promise).
    let timeout = match unsafe { timeout.as_ref() } {
        Some(timeout) => Some(attempt!(duration(timeout))),
        None => None,
    };
    // SAFETY: the caller's promise is the one asked for.
    let mask = unsafe { signal_mask(mask) };
    // SAFETY: the caller's promise is the one asked for.
    unsafe { wait(fds, count, timeout, mask) }
}

/// # Safety
/// As for [`poll`].
unsafe fn wait(fds: *mut pollfd, count: nfds_t, timeout: Option<Duration>, mask: Option<SignalMask>) -> Route<c_int> {
    if fds.is_null() || count > MOST {
        return Route::Kernel;
    }
    // SAFETY: not NULL, so an array of `count` (the caller's promise); PollFd has the layout of pollfd.
    let fds = unsafe { core::slice::from_raw_parts_mut(fds.cast(), count as usize) };
    map(poll::poll(fds, timeout, mask), |ready| ready as c_int)
}

/// The kernel's part of a signal set: its first 64 signals.
///
/// # Safety
/// Unless NULL, `mask` must be good for reads.
pub(super) unsafe fn signal_mask(mask: *const sigset_t) -> Option<SignalMask> {
    let mask: *const c_void = mask.cast();
    // SAFETY: NULL or good for reads; a sigset_t is an array of longs, at least one.
    unsafe { mask.cast::<SignalMask>().as_ref() }.copied()
}

/// "EINVAL … the timeout value expressed in *ip is invalid (negative)", and nanoseconds are less than a second.
pub(super) fn duration(time: &timespec) -> Result<Duration> {
    let seconds = u64::try_from(time.tv_sec).map_err(|_| Errno::INVAL)?;
    let nanoseconds = u32::try_from(time.tv_nsec).ok().filter(|nanoseconds| *nanoseconds < 1_000_000_000).ok_or(Errno::INVAL)?;
    Ok(Duration::new(seconds, nanoseconds))
}

#[cfg(test)]
mod tests {
    use core::mem::{align_of, offset_of, size_of, zeroed};

    use super::*;

    #[test]
    fn an_entry_has_the_layout_of_a_pollfd() {
        assert_eq!((size_of::<PollFd>(), align_of::<PollFd>()), (size_of::<pollfd>(), align_of::<pollfd>()));
        assert_eq!(offset_of!(PollFd, events), offset_of!(pollfd, events));
        assert_eq!(offset_of!(PollFd, revents), offset_of!(pollfd, revents));
    }

    #[test]
    fn durations() {
        let of = |tv_sec, tv_nsec| duration(&timespec { tv_sec, tv_nsec });
        assert_eq!(of(1, 5), Ok(Duration::new(1, 5)));
        assert_eq!([of(-1, 0), of(0, -1), of(0, 1_000_000_000)], [Err(Errno::INVAL); 3]);
        assert!(of(i64::MAX, 0).is_ok());
    }

    #[test]
    fn masks() {
        // SAFETY: a signal set of zeros is a valid one.
        let mut set: sigset_t = unsafe { zeroed() };
        // SAFETY: the pointer is to a live variable.
        unsafe { libc::sigaddset(&mut set, libc::SIGUSR1) };
        // SAFETY: the pointer is to a live variable.
        assert_eq!(unsafe { signal_mask(&set) }, Some(1 << (libc::SIGUSR1 - 1)));
        // SAFETY: NULL is allowed.
        assert_eq!(unsafe { signal_mask(core::ptr::null()) }, None);
    }
}
