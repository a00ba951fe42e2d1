//! getsockopt and setsockopt.

use libc::{c_int, c_void, socklen_t};
use rsocket::capi::boundary::option;

use super::hooks;
use crate::guard::ours;

hooks! {
    fn getsockopt(fd: c_int, level: c_int, name: c_int, value: *mut c_void, length: *mut socklen_t) -> c_int
        = ours(fd) => option::getsockopt(fd, level, name, value, length);
    fn setsockopt(fd: c_int, level: c_int, name: c_int, value: *const c_void, length: socklen_t) -> c_int
        = ours(fd) => option::setsockopt(fd, level, name, value, length);
}
