//! getsockopt and setsockopt.

use std::os::fd::RawFd;

use super::Route;

/// getsockopt(2): writes the value into `out` (cut to its length) and gives the length written, in bytes.
pub fn getsockopt(_fd: RawFd, _level: i32, _name: i32, _out: &mut [u8]) -> Route<usize> {
    Route::Kernel
}

/// setsockopt(2).
pub fn setsockopt(_fd: RawFd, _level: i32, _name: i32, _value: &[u8]) -> Route<()> {
    Route::Kernel
}
