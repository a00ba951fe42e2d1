//! The C side of `calls::option`.

use core::ffi::{c_int, c_void};

use libc::socklen_t;

use super::{attempt, map, zero};
use crate::{
    calls::{Route, option},
    error::{Errno, Result},
};

/// getsockopt(2).
///
/// # Safety
/// Unless NULL, `length` must be good for reads and writes, and `value` for writes of `*length` bytes.
pub unsafe fn getsockopt(fd: c_int, level: c_int, name: c_int, value: *mut c_void, length: *mut socklen_t) -> Route<c_int> {
    if length.is_null() {
        return Route::err(Errno::FAULT);
    }
    // SAFETY: not NULL, so good for reads (the caller's promise).
    let room = attempt!(size(unsafe { *length }));
    // SAFETY: good for writes of that many bytes unless NULL (the caller's promise).
    let out = attempt!(unsafe { super::bytes_mut(value, room) });
    map(option::getsockopt(fd, level, name, out), |written| {
        // SAFETY: not NULL, so good for writes (the caller's promise).
        unsafe { *length = written as socklen_t };
        0
    })
}

/// setsockopt(2).
///
/// # Safety
/// Unless NULL, `value` must be good for reads of `length` bytes.
pub unsafe fn setsockopt(fd: c_int, level: c_int, name: c_int, value: *const c_void, length: socklen_t) -> Route<c_int> {
    let length = attempt!(size(length));
    // SAFETY: the caller's promise is the one asked for.
    let value = attempt!(unsafe { super::bytes(value, length) });
    zero(option::setsockopt(fd, level, name, value))
}

/// A length that is an int in the kernel: "EINVAL optlen invalid".
fn size(length: socklen_t) -> Result<usize> {
    c_int::try_from(length).map(|length| length as usize).map_err(|_| Errno::INVAL)
}
