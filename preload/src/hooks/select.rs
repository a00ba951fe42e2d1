//! select and pselect.

use libc::{c_int, fd_set, sigset_t, timespec, timeval};
use rsocket::capi::boundary::select as boundary;

use super::hooks;
use crate::guard::ours_selected;

hooks! {
    fn select(count: c_int, read: *mut fd_set, write: *mut fd_set, except: *mut fd_set, timeout: *mut timeval) -> c_int
        = ours_selected(count, [read, write, except]) => boundary::select(count, read, write, except, timeout);
    fn __select(count: c_int, read: *mut fd_set, write: *mut fd_set, except: *mut fd_set, timeout: *mut timeval) -> c_int
        = ours_selected(count, [read, write, except]) => boundary::select(count, read, write, except, timeout);
    fn pselect(
        count: c_int, read: *mut fd_set, write: *mut fd_set, except: *mut fd_set, timeout: *const timespec, mask: *const sigset_t
    ) -> c_int
        = ours_selected(count, [read, write, except]) => boundary::pselect(count, read, write, except, timeout, mask);
}
