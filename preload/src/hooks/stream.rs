//! C's streams on rsockets. stdio calls the kernel past the hooks: a stream on a socket whose data moves through the
//! library gets functions of its own.

use core::ffi::{c_char, c_int, c_void};

use libc::{FILE, size_t, ssize_t};
use rsocket::capi::boundary::{self, descriptor};

use super::{descriptor::close, io, real};
use crate::guard::ours;

/// `cookie_io_functions_t`.
#[repr(C)]
struct Functions {
    read: unsafe extern "C" fn(*mut c_void, *mut c_char, size_t) -> ssize_t,
    write: unsafe extern "C" fn(*mut c_void, *const c_char, size_t) -> ssize_t,
    seek: Option<unsafe extern "C" fn(*mut c_void, *mut i64, c_int) -> c_int>,
    close: unsafe extern "C" fn(*mut c_void) -> c_int,
}

unsafe extern "C" {
    fn fopencookie(cookie: *mut c_void, mode: *const c_char, functions: Functions) -> *mut FILE;
}

/// fdopen(3). fileno(3) of such a stream is an error: it is none of the kernel's.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn fdopen(fd: c_int, mode: *const c_char) -> *mut FILE {
    if ours(fd) && descriptor::carries_data(fd) {
        let functions = Functions { read, write, seek: None, close: closed };
        // SAFETY: `mode` is the caller's; the functions take the number for a cookie.
        return unsafe { fopencookie(cookie(fd), mode, functions) };
    }
    real!(fdopen(fd: c_int, mode: *const c_char) -> *mut FILE)
}

/// fclose(3) of a stream that the kernel reads and writes: it closes the number past the hooks.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn fclose(stream: *mut FILE) -> c_int {
    if !stream.is_null() {
        let errno = boundary::errno();
        // SAFETY: not NULL, so an open stream (the caller's promise).
        let fd = unsafe { libc::fileno(stream) };
        boundary::set_errno(errno);
        if ours(fd) {
            descriptor::forget_stale(fd);
        }
    }
    real!(fclose(stream: *mut FILE) -> c_int)
}

fn cookie(fd: c_int) -> *mut c_void {
    core::ptr::without_provenance_mut(fd as u32 as usize)
}

fn number(cookie: *mut c_void) -> c_int {
    cookie.addr() as u32 as c_int
}

unsafe extern "C" fn read(cookie: *mut c_void, buffer: *mut c_char, length: size_t) -> ssize_t {
    // SAFETY: stdio's buffer is good for writes of `length` bytes.
    unsafe { io::read(number(cookie), buffer.cast(), length) }
}

/// "The write function should return the number of bytes copied from buf, or 0 on error" (fopencookie(3)).
unsafe extern "C" fn write(cookie: *mut c_void, buffer: *const c_char, length: size_t) -> ssize_t {
    // SAFETY: stdio's buffer is good for reads of `length` bytes.
    unsafe { io::write(number(cookie), buffer.cast(), length) }.max(0)
}

unsafe extern "C" fn closed(cookie: *mut c_void) -> c_int {
    // SAFETY: the stream owns the number.
    unsafe { close(number(cookie)) }
}
