//! poll and ppoll.

use libc::{c_int, nfds_t, pollfd, sigset_t, size_t, timespec};
use rsocket::capi::boundary::poll as boundary;

use super::hooks;
use crate::guard::ours_polled;

hooks! {
    fn poll(fds: *mut pollfd, count: nfds_t, timeout: c_int) -> c_int
        = ours_polled(fds, count) => boundary::poll(fds, count, timeout);
    fn __poll(fds: *mut pollfd, count: nfds_t, timeout: c_int) -> c_int
        = ours_polled(fds, count) => boundary::poll(fds, count, timeout);
    fn ppoll(fds: *mut pollfd, count: nfds_t, timeout: *const timespec, mask: *const sigset_t) -> c_int
        = ours_polled(fds, count) => boundary::ppoll(fds, count, timeout, mask);

    // Fortified: more entries than the array has is the real function's to abort on.
    fn __poll_chk(fds: *mut pollfd, count: nfds_t, timeout: c_int, size: size_t) -> c_int
        = holds(count, size) && ours_polled(fds, count) => boundary::poll(fds, count, timeout);
    fn __ppoll_chk(fds: *mut pollfd, count: nfds_t, timeout: *const timespec, mask: *const sigset_t, size: size_t) -> c_int
        = holds(count, size) && ours_polled(fds, count) => boundary::ppoll(fds, count, timeout, mask);
}

fn holds(count: nfds_t, size: size_t) -> bool {
    count as usize <= size / size_of::<pollfd>()
}
