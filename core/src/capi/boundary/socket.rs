//! The C side of `calls::socket` and `calls::accept`.

use core::ffi::c_int;

use libc::{sockaddr, socklen_t};

use super::{address, attempt, map, zero};
use crate::{
    calls::{Route, accept, socket},
    error::Errno,
};

/// bind(2).
///
/// # Safety
/// Unless NULL, `address` must be good for reads of `length` bytes.
pub unsafe fn bind(fd: c_int, address: *const sockaddr, length: socklen_t) -> Route<c_int> {
    // SAFETY: the caller's promise is the one asked for.
    let address = attempt!(unsafe { address::given(address, length) });
    zero(socket::bind(fd, address))
}

/// listen(2).
pub fn listen(fd: c_int, backlog: c_int) -> Route<c_int> {
    zero(socket::listen(fd, backlog))
}

/// accept(2), accept4(2).
///
/// # Safety
/// Unless NULL, `length` must be good for reads and writes, and `address` for writes of `*length` bytes.
pub unsafe fn accept(fd: c_int, address: *mut sockaddr, length: *mut socklen_t, flags: c_int) -> Route<c_int> {
    if flags & !(libc::SOCK_NONBLOCK | libc::SOCK_CLOEXEC) != 0 {
        return Route::err(Errno::INVAL);
    }
    // SAFETY: the caller's promise is the one asked for.
    let out = attempt!(unsafe { address::Out::wanted(address, length) });
    map(accept::accept(fd, flags), |(accepted, peer)| {
        if let Some(out) = out {
            out.write(&peer);
        }
        accepted
    })
}

/// connect(2).
///
/// # Safety
/// Unless NULL, `address` must be good for reads of `length` bytes.
pub unsafe fn connect(fd: c_int, address: *const sockaddr, length: socklen_t) -> Route<c_int> {
    // SAFETY: the caller's promise is the one asked for.
    let address = attempt!(unsafe { address::given(address, length) });
    zero(socket::connect(fd, address))
}

/// getsockname(2).
///
/// # Safety
/// Unless NULL, `length` must be good for reads and writes, and `address` for writes of `*length` bytes.
pub unsafe fn getsockname(fd: c_int, address: *mut sockaddr, length: *mut socklen_t) -> Route<c_int> {
    // SAFETY: the caller's promise is the one asked for.
    let out = attempt!(unsafe { address::Out::new(address, length) });
    map(socket::getsockname(fd), |name| {
        out.write(&name);
        0
    })
}

/// getpeername(2).
///
/// # Safety
/// Unless NULL, `length` must be good for reads and writes, and `address` for writes of `*length` bytes.
pub unsafe fn getpeername(fd: c_int, address: *mut sockaddr, length: *mut socklen_t) -> Route<c_int> {
    // SAFETY: the caller's promise is the one asked for.
    let out = attempt!(unsafe { address::Out::new(address, length) });
    map(socket::getpeername(fd), |name| {
        out.write(&name);
        0
    })
}
