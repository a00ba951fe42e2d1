//! rrecv, rrecvfrom, rrecvmsg, rread, rreadv, rsend, rsendto, rsendmsg, rwrite, rwritev.

use libc::{c_int, c_void, iovec, msghdr, size_t, sockaddr, socklen_t, ssize_t};

use super::{boundary::io, serve};
use crate::sys::kernel::call;

/// No address: recv is recvfrom without one.
const NONE: usize = 0;

/// recv(2).
///
/// # Safety
/// `buf` must be good for writes of `len` bytes.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rrecv(socket: c_int, buf: *mut c_void, len: size_t, flags: c_int) -> ssize_t {
    serve!(io::recv(socket, buf, len, flags), call!(libc::SYS_recvfrom, socket, buf, len, flags, NONE, NONE))
}

/// recvfrom(2).
///
/// # Safety
/// `buf` must be good for writes of `len` bytes; unless NULL, `addrlen` must be good for reads and writes, and `src_addr` for
/// writes of `*addrlen` bytes.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rrecvfrom(
    socket: c_int,
    buf: *mut c_void,
    len: size_t,
    flags: c_int,
    src_addr: *mut sockaddr,
    addrlen: *mut socklen_t,
) -> ssize_t {
    serve!(io::recvfrom(socket, buf, len, flags, src_addr, addrlen), call!(libc::SYS_recvfrom, socket, buf, len, flags, src_addr, addrlen))
}

/// recvmsg(2).
///
/// # Safety
/// `msg` must be good for reads and writes, and what it points to for writes.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rrecvmsg(socket: c_int, msg: *mut msghdr, flags: c_int) -> ssize_t {
    serve!(io::recvmsg(socket, msg, flags), call!(libc::SYS_recvmsg, socket, msg, flags))
}

/// send(2).
///
/// # Safety
/// `buf` must be good for reads of `len` bytes.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rsend(socket: c_int, buf: *const c_void, len: size_t, flags: c_int) -> ssize_t {
    serve!(io::send(socket, buf, len, flags), call!(libc::SYS_sendto, socket, buf, len, flags, NONE, NONE))
}

/// sendto(2).
///
/// # Safety
/// `buf` must be good for reads of `len` bytes, and `dest_addr` of `addrlen`, unless NULL.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rsendto(
    socket: c_int,
    buf: *const c_void,
    len: size_t,
    flags: c_int,
    dest_addr: *const sockaddr,
    addrlen: socklen_t,
) -> ssize_t {
    serve!(io::sendto(socket, buf, len, flags, dest_addr, addrlen), call!(libc::SYS_sendto, socket, buf, len, flags, dest_addr, addrlen))
}

/// sendmsg(2).
///
/// # Safety
/// `msg` must be good for reads, and what it points to as well.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rsendmsg(socket: c_int, msg: *const msghdr, flags: c_int) -> ssize_t {
    serve!(io::sendmsg(socket, msg, flags), call!(libc::SYS_sendmsg, socket, msg, flags))
}

/// read(2).
///
/// # Safety
/// `buf` must be good for writes of `count` bytes.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rread(socket: c_int, buf: *mut c_void, count: size_t) -> ssize_t {
    serve!(io::read(socket, buf, count), call!(libc::SYS_read, socket, buf, count))
}

/// readv(2).
///
/// # Safety
/// `iov` must be an array of `iovcnt` that names memory good for writes.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rreadv(socket: c_int, iov: *const iovec, iovcnt: c_int) -> ssize_t {
    serve!(io::readv(socket, iov, iovcnt, 0), call!(libc::SYS_readv, socket, iov, iovcnt))
}

/// write(2).
///
/// # Safety
/// `buf` must be good for reads of `count` bytes.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rwrite(socket: c_int, buf: *const c_void, count: size_t) -> ssize_t {
    serve!(io::write(socket, buf, count), call!(libc::SYS_write, socket, buf, count))
}

/// writev(2).
///
/// # Safety
/// `iov` must be an array of `iovcnt` that names memory good for reads.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rwritev(socket: c_int, iov: *const iovec, iovcnt: c_int) -> ssize_t {
    serve!(io::writev(socket, iov, iovcnt, 0), call!(libc::SYS_writev, socket, iov, iovcnt))
}
