//! rpoll.

use core::ptr::{from_mut, null_mut};

use libc::{c_int, c_void, nfds_t, pollfd, timespec};

use super::{boundary, serve};
use crate::sys::kernel::call;

/// poll(2), over rsockets and any other descriptors.
///
/// # Safety
/// `fds` must be an array of `nfds`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rpoll(fds: *mut pollfd, nfds: nfds_t, timeout: c_int) -> c_int {
    let milliseconds = i64::from(timeout.max(0));
    let mut time = timespec { tv_sec: milliseconds / 1000, tv_nsec: milliseconds % 1000 * 1_000_000 };
    let time = if timeout < 0 { null_mut() } else { from_mut(&mut time) };
    serve!(boundary::poll::poll(fds, nfds, timeout), call!(libc::SYS_ppoll, fds, nfds as usize, time, null_mut::<c_void>(), 8usize))
}
