//! The C side of `calls::select`.

use core::{ffi::c_int, time::Duration};
use std::time::Instant;

use libc::{FD_SETSIZE, fd_set, sigset_t, suseconds_t, time_t, timespec, timeval};

use super::{
    attempt, map,
    poll::{duration, signal_mask},
};
use crate::{
    calls::{
        Route,
        poll::SignalMask,
        select::{self, Sets},
    },
    error::{Errno, Result},
    sys::kernel::descriptor_table_size,
};

/// The numbers below which the sets are looked at. The kernel looks at none beyond its descriptor table, and programs rely
/// on it: `select(getdtablesize(), …)` with an `fd_set`, which has room for FD_SETSIZE.
pub fn bound(count: c_int) -> usize {
    match usize::try_from(count) {
        Ok(count) if count <= FD_SETSIZE => count,
        Ok(count) => count.min(descriptor_table_size().unwrap_or(FD_SETSIZE)),
        Err(_) => 0,
    }
}

/// The words of a set.
///
/// # Safety
/// Unless NULL, `set` must have room for numbers below `count`, for `'a`.
#[inline]
pub unsafe fn words<'a>(set: *const fd_set, count: usize) -> &'a [u64] {
    if set.is_null() {
        return &[];
    }
    // SAFETY: not NULL, so good for `count` bits, in words (the caller's promise).
    unsafe { core::slice::from_raw_parts(set.cast(), count.div_ceil(64)) }
}

/// # Safety
/// Unless NULL, `set` must have room for numbers below `count`, for `'a`, and nobody else may use it.
unsafe fn words_mut<'a>(set: *mut fd_set, count: usize) -> Option<&'a mut [u64]> {
    if set.is_null() {
        return None;
    }
    // SAFETY: not NULL, so good for `count` bits, in words (the caller's promise).
    Some(unsafe { core::slice::from_raw_parts_mut(set.cast(), count.div_ceil(64)) })
}

/// select(2): "On Linux, select() modifies timeout to reflect the amount of time not slept", also when it fails.
///
/// # Safety
/// Unless NULL, the sets must have room for numbers below `count` (as [`bound`] cuts it), and `timeout` be good for reads and writes;
/// nobody else may use them.
pub unsafe fn select(count: c_int, read: *mut fd_set, write: *mut fd_set, except: *mut fd_set, timeout: *mut timeval) -> Route<c_int> {
    // SAFETY: NULL or good for reads and writes (the caller's promise).
    let timeout = unsafe { timeout.as_mut() };
    let limit = match &timeout {
        Some(timeout) => Some(attempt!(from_timeval(timeout))),
        None => None,
    };
    let start = limit.map(|limit| (Instant::now(), limit));
    // SAFETY: the caller's promise is the one asked for.
    let route = unsafe { wait(count, [read, write, except], limit, None) };
    let left = match (&route, start) {
        (Route::Done(Ok((_, left))), _) => Some(*left),
        (Route::Done(Err(_)), Some((start, limit))) => Some(limit.saturating_sub(start.elapsed())),
        _ => None,
    };
    if let (Some(timeout), Some(left)) = (timeout, left) {
        *timeout = timeval { tv_sec: left.as_secs() as time_t, tv_usec: suseconds_t::from(left.subsec_micros()) };
    }
    map(route, |(ready, _)| ready)
}

/// pselect(2).
///
/// # Safety
/// As for [`select`], where `timeout` and `mask`, unless NULL, must be good for reads.
pub unsafe fn pselect(
    count: c_int,
    read: *mut fd_set,
    write: *mut fd_set,
    except: *mut fd_set,
    timeout: *const timespec,
    mask: *const sigset_t,
) -> Route<c_int> {
    // SAFETY: NULL or good for reads (the caller's promise).
    let limit = match unsafe { timeout.as_ref() } {
        Some(timeout) => Some(attempt!(duration(timeout))),
        None => None,
    };
    // SAFETY: the caller's promise is the one asked for.
    let mask = unsafe { signal_mask(mask) };
    // SAFETY: the caller's promise is the one asked for.
    let route = unsafe { wait(count, [read, write, except], limit, mask) };
    map(route, |(ready, _)| ready)
}

/// # Safety
/// As for [`select`].
unsafe fn wait(
    count: c_int,
    [read, write, except]: [*mut fd_set; 3],
    timeout: Option<Duration>,
    mask: Option<SignalMask>,
) -> Route<(c_int, Duration)> {
    if count < 0 {
        return Route::err(Errno::INVAL);
    }
    let count = bound(count);
    let mut sets = Sets {
        // SAFETY: the caller's promise is the one asked for.
        read: unsafe { words_mut(read, count) },
        // SAFETY: the caller's promise is the one asked for.
        write: unsafe { words_mut(write, count) },
        // SAFETY: the caller's promise is the one asked for.
        except: unsafe { words_mut(except, count) },
    };
    map(select::select(count, &mut sets, timeout, mask), |(ready, left)| (ready as c_int, left))
}

/// "EINVAL The value contained within timeout is invalid" (negative). A second and more of microseconds is taken.
fn from_timeval(time: &timeval) -> Result<Duration> {
    let seconds = u64::try_from(time.tv_sec).map_err(|_| Errno::INVAL)?;
    let microseconds = u64::try_from(time.tv_usec).map_err(|_| Errno::INVAL)?;
    Ok(Duration::from_secs(seconds).saturating_add(Duration::from_micros(microseconds)))
}

#[cfg(test)]
mod tests {
    use core::mem::zeroed;

    use super::*;

    #[test]
    fn durations() {
        let of = |tv_sec, tv_usec| from_timeval(&timeval { tv_sec, tv_usec });
        assert_eq!(of(1, 1_500_000), Ok(Duration::from_millis(2_500)));
        assert_eq!([of(-1, 0), of(0, -1)], [Err(Errno::INVAL); 2]);
        assert!(of(i64::MAX, i64::MAX).is_ok());
    }

    #[test]
    fn the_sets_are_looked_at_no_further_than_they_reach() {
        assert_eq!((bound(-1), bound(0), bound(1024)), (0, 0, 1024));
        assert!(bound(c_int::MAX) < 1 << 30);
    }

    #[test]
    fn words_hold_the_bits_of_the_macros() {
        // SAFETY: a set of zeros is a valid one.
        let mut set: fd_set = unsafe { zeroed() };
        // SAFETY: the pointer is to a live variable.
        unsafe { libc::FD_SET(65, &mut set) };
        // SAFETY: an fd_set has room for 1024.
        let words = unsafe { words(&set, 66) };
        assert_eq!(words, [0, 2]);
    }

    #[test]
    fn a_negative_count() {
        let none = core::ptr::null_mut();
        // SAFETY: NULL is allowed.
        let route = unsafe { select(-1, none, none, none, core::ptr::null_mut()) };
        assert_eq!(route, Route::err(Errno::INVAL));
    }
}
