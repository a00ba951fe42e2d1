//! The C side of `calls::option`.

use core::ffi::{c_int, c_void};

use libc::socklen_t;

use super::{attempt, zero};
use crate::{
    calls::{Route, option},
    error::{Errno, Result},
    sys::sockopt,
};

/// getsockopt(2). What the kernel is to answer, it judges the pointers of as well.
///
/// # Safety
/// Unless NULL, `length` must be good for reads and writes, and `value` for writes of `*length` bytes.
pub unsafe fn getsockopt(fd: c_int, level: c_int, name: c_int, value: *mut c_void, length: *mut socklen_t) -> Route<c_int> {
    let answer = match option::getsockopt(fd, level, name) {
        Route::Done(answer) => attempt!(answer),
        Route::Kernel => return Route::Kernel,
    };
    if length.is_null() {
        return Route::err(Errno::FAULT);
    }
    // SAFETY: not NULL, so good for reads (the caller's promise).
    let room = attempt!(size(unsafe { *length }));
    let written = room.min(answer.len());
    // SAFETY: good for writes of that many bytes unless NULL (the caller's promise).
    let out = attempt!(unsafe { super::bytes_mut(value, written) });
    for (to, from) in out.iter_mut().zip(answer) {
        *to = from;
    }
    // SAFETY: not NULL, so good for writes (the caller's promise).
    unsafe { *length = written as socklen_t };
    Route::ok(0)
}

/// setsockopt(2). The kernel's socket takes every option first, by the program's own pointer.
///
/// # Safety
/// Unless NULL, `value` must be good for reads of `length` bytes, as far as the option's type reaches.
pub unsafe fn setsockopt(fd: c_int, level: c_int, name: c_int, value: *const c_void, length: socklen_t) -> Route<c_int> {
    // SAFETY: the kernel reads the program's memory only, and judges the pointer.
    let kernel = || unsafe { sockopt::set_at(fd, level, name, value, length) };
    let read = |most: usize| {
        let length = size(length)?;
        // SAFETY: the caller's promise is the one asked for.
        unsafe { super::bytes(value, length.min(most)) }
    };
    zero(option::setsockopt(fd, level, name, kernel, read))
}

/// A length that is an int in the kernel: "EINVAL optlen invalid".
fn size(length: socklen_t) -> Result<usize> {
    c_int::try_from(length).map(|length| length as usize).map_err(|_| Errno::INVAL)
}
