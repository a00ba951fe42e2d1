//! What a socket cannot do: read or write at an offset.

use libc::{c_int, c_void, iovec, off_t, off64_t, size_t, ssize_t};
use rsocket::{calls::Route, capi::boundary::io::seeking};

use super::hooks;
use crate::guard::ours;

hooks! {
    fn lseek(fd: c_int, offset: off_t, whence: c_int) -> off_t = ours(fd) => seeking(fd);
    fn __lseek(fd: c_int, offset: off_t, whence: c_int) -> off_t = ours(fd) => seeking(fd);
    fn lseek64(fd: c_int, offset: off64_t, whence: c_int) -> off64_t = ours(fd) => seeking(fd);
    fn pread(fd: c_int, buffer: *mut c_void, length: size_t, offset: off_t) -> ssize_t = ours(fd) => transfer(fd);
    fn pread64(fd: c_int, buffer: *mut c_void, length: size_t, offset: off64_t) -> ssize_t = ours(fd) => transfer(fd);
    fn __pread64(fd: c_int, buffer: *mut c_void, length: size_t, offset: off64_t) -> ssize_t = ours(fd) => transfer(fd);
    fn __pwrite64(fd: c_int, buffer: *const c_void, length: size_t, offset: off64_t) -> ssize_t = ours(fd) => transfer(fd);
    fn __pread_chk(fd: c_int, buffer: *mut c_void, length: size_t, offset: off_t, room: size_t) -> ssize_t
        = ours(fd) && length <= room => transfer(fd);
    fn __pread64_chk(fd: c_int, buffer: *mut c_void, length: size_t, offset: off64_t, room: size_t) -> ssize_t
        = ours(fd) && length <= room => transfer(fd);
    fn preadv(fd: c_int, vectors: *const iovec, count: c_int, offset: off_t) -> ssize_t = ours(fd) => transfer(fd);
    fn preadv64(fd: c_int, vectors: *const iovec, count: c_int, offset: off64_t) -> ssize_t = ours(fd) => transfer(fd);
    fn pwrite(fd: c_int, buffer: *const c_void, length: size_t, offset: off_t) -> ssize_t = ours(fd) => transfer(fd);
    fn pwrite64(fd: c_int, buffer: *const c_void, length: size_t, offset: off64_t) -> ssize_t = ours(fd) => transfer(fd);
    fn pwritev(fd: c_int, vectors: *const iovec, count: c_int, offset: off_t) -> ssize_t = ours(fd) => transfer(fd);
    fn pwritev64(fd: c_int, vectors: *const iovec, count: c_int, offset: off64_t) -> ssize_t = ours(fd) => transfer(fd);
}

fn transfer(fd: c_int) -> Route<ssize_t> {
    match seeking(fd) {
        Route::Kernel => Route::Kernel,
        Route::Done(result) => Route::Done(result.map(|length| length as ssize_t)),
    }
}
