//! Data in and out.

use libc::{c_int, c_void, iovec, off_t, off64_t, size_t, sockaddr, socklen_t, ssize_t};
use rsocket::{
    calls::{Route, descriptor::is_ours},
    capi::boundary::{answer, io as boundary, splice},
    sys::inside,
};

use super::{hooks, real};
use crate::guard::ours;

/// write(2). A provider that writes to its device does so with locks held and Rust code below it on the stack: no place to be cancelled at
/// (pthreads(7): write() is a cancellation point), so the library's own writes are system calls. With a provider in software each message is
/// one, so that they come first.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn write(fd: c_int, buffer: *const c_void, length: size_t) -> ssize_t {
    if inside::is_set() {
        // SAFETY: the caller's promises are those of the function's man page, which are the ones asked for.
        return unsafe { boundary::write_kernel(fd, buffer, length) };
    }
    if is_ours(fd) {
        // SAFETY: as above.
        return unsafe { written(fd, buffer, length) };
    }
    real!(write(fd: c_int, buffer: *const c_void, length: size_t) -> ssize_t)
}

#[inline(never)]
unsafe fn written(fd: c_int, buffer: *const c_void, length: size_t) -> ssize_t {
    // SAFETY: the caller's promises are those of the function's man page, which are the ones asked for.
    match answer(|| unsafe { boundary::write(fd, buffer, length) }) {
        Some(answer) => answer,
        None => real!(write(fd: c_int, buffer: *const c_void, length: size_t) -> ssize_t),
    }
}

hooks! {
    fn read(fd: c_int, buffer: *mut c_void, length: size_t) -> ssize_t
        = ours(fd) => boundary::read(fd, buffer, length);
    fn readv(fd: c_int, vectors: *const iovec, count: c_int) -> ssize_t
        = ours(fd) => boundary::readv(fd, vectors, count, 0);
    fn recv(fd: c_int, buffer: *mut c_void, length: size_t, flags: c_int) -> ssize_t
        = ours(fd) => boundary::recv(fd, buffer, length, flags);
    fn recvfrom(fd: c_int, buffer: *mut c_void, length: size_t, flags: c_int, address: *mut sockaddr, room: *mut socklen_t) -> ssize_t
        = ours(fd) => boundary::recvfrom(fd, buffer, length, flags, address, room);

    fn writev(fd: c_int, vectors: *const iovec, count: c_int) -> ssize_t
        = ours(fd) => boundary::writev(fd, vectors, count, 0);
    fn send(fd: c_int, buffer: *const c_void, length: size_t, flags: c_int) -> ssize_t
        = ours(fd) => boundary::send(fd, buffer, length, flags);
    fn sendto(fd: c_int, buffer: *const c_void, length: size_t, flags: c_int, address: *const sockaddr, room: socklen_t) -> ssize_t
        = ours(fd) => boundary::sendto(fd, buffer, length, flags, address, room);
    fn sendfile(to: c_int, from: c_int, offset: *mut off_t, count: size_t) -> ssize_t
        = ours(to) || ours(from) => file_sent(to, from, offset, count);
    fn sendfile64(to: c_int, from: c_int, offset: *mut off64_t, count: size_t) -> ssize_t
        = ours(to) || ours(from) => file_sent(to, from, offset, count);

    // Fortified: a length beyond the buffer's is the real function's to abort on.
    fn __read_chk(fd: c_int, buffer: *mut c_void, length: size_t, room: size_t) -> ssize_t
        = ours(fd) && length <= room => boundary::read(fd, buffer, length);
    fn __recv_chk(fd: c_int, buffer: *mut c_void, length: size_t, room: size_t, flags: c_int) -> ssize_t
        = ours(fd) && length <= room => boundary::recv(fd, buffer, length, flags);
    fn __recvfrom_chk(
        fd: c_int, buffer: *mut c_void, length: size_t, room: size_t, flags: c_int, address: *mut sockaddr, address_room: *mut socklen_t
    ) -> ssize_t
        = ours(fd) && length <= room => boundary::recvfrom(fd, buffer, length, flags, address, address_room);

    // At offset -1 these are readv and writev with flags.
    // As programs import them that were linked with parts of older C libraries.
    fn __read(fd: c_int, buffer: *mut c_void, length: size_t) -> ssize_t
        = ours(fd) => boundary::read(fd, buffer, length);
    fn __write(fd: c_int, buffer: *const c_void, length: size_t) -> ssize_t
        = ours(fd) => boundary::write(fd, buffer, length);
    fn __send(fd: c_int, buffer: *const c_void, length: size_t, flags: c_int) -> ssize_t
        = ours(fd) => boundary::send(fd, buffer, length, flags);

    fn preadv2(fd: c_int, vectors: *const iovec, count: c_int, offset: off_t, flags: c_int) -> ssize_t
        = ours(fd) && offset == -1 => with_flags(flags, |flags| boundary::readv(fd, vectors, count, flags));
    fn preadv64v2(fd: c_int, vectors: *const iovec, count: c_int, offset: off64_t, flags: c_int) -> ssize_t
        = ours(fd) && offset == -1 => with_flags(flags, |flags| boundary::readv(fd, vectors, count, flags));
    fn pwritev2(fd: c_int, vectors: *const iovec, count: c_int, offset: off_t, flags: c_int) -> ssize_t
        = ours(fd) && offset == -1 => with_flags(flags, |flags| boundary::writev(fd, vectors, count, flags));
    fn pwritev64v2(fd: c_int, vectors: *const iovec, count: c_int, offset: off64_t, flags: c_int) -> ssize_t
        = ours(fd) && offset == -1 => with_flags(flags, |flags| boundary::writev(fd, vectors, count, flags));
}

/// # Safety
/// Unless NULL, `offset` must be good for reads and writes.
unsafe fn file_sent(to: c_int, from: c_int, offset: *mut off64_t, count: size_t) -> Route<ssize_t> {
    if is_ours(from) {
        return splice::sendfile(to, from, offset, count);
    }
    // SAFETY: the caller's promise is the one asked for.
    unsafe { boundary::sendfile(to, from, offset, count) }
}

/// Of the flags of preadv2(2), RWF_HIPRI, RWF_DSYNC and RWF_SYNC mean nothing to a socket; others than these are EOPNOTSUPP.
fn with_flags(flags: c_int, call: impl FnOnce(c_int) -> Route<ssize_t>) -> Route<ssize_t> {
    match flags & !(libc::RWF_HIPRI | libc::RWF_DSYNC | libc::RWF_SYNC) {
        0 => call(0),
        libc::RWF_NOWAIT => call(libc::MSG_DONTWAIT),
        _ => Route::err(rsocket::error::Errno::OPNOTSUPP),
    }
}
