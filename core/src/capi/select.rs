//! rselect.

use core::ptr::{from_mut, null_mut};

use libc::{c_int, c_void, fd_set, suseconds_t, timespec, timeval};

use super::{boundary::select, serve};
use crate::{error::Result, sys::kernel::call};

/// select(2), over rsockets and any other descriptors.
///
/// # Safety
/// Unless NULL, the sets must have room for `nfds` numbers, and `timeout` be good for reads and writes.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rselect(
    nfds: c_int,
    readfds: *mut fd_set,
    writefds: *mut fd_set,
    exceptfds: *mut fd_set,
    timeout: *mut timeval,
) -> c_int {
    serve!(select::select(nfds, readfds, writefds, exceptfds, timeout), kernel(nfds, [readfds, writefds, exceptfds], timeout))
}

/// # Safety
/// As for [`rselect`].
unsafe fn kernel(nfds: c_int, [read, write, except]: [*mut fd_set; 3], timeout: *mut timeval) -> Result<usize> {
    // SAFETY: NULL or good for reads and writes (the caller's promise).
    let timeout = unsafe { timeout.as_mut() };
    // The system call has nanoseconds, refuses a second and more of them, and writes back what was left.
    let mut time = timeout
        .as_ref()
        .map(|time| timespec { tv_sec: time.tv_sec.saturating_add(time.tv_usec / 1_000_000), tv_nsec: time.tv_usec % 1_000_000 * 1000 });
    let left = time.as_mut().map_or(null_mut(), from_mut);
    // SAFETY: the sets are the caller's promise; `left` is NULL or a live variable.
    let result = unsafe { call!(libc::SYS_pselect6, nfds, read, write, except, left, null_mut::<c_void>()) };
    if let (Some(timeout), Some(time)) = (timeout, time) {
        *timeout = timeval { tv_sec: time.tv_sec, tv_usec: (time.tv_nsec / 1000) as suseconds_t };
    }
    result
}
