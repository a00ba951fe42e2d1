//! socket, bind, listen, accept, connect, shutdown, and the names of the two ends.

use core::net::SocketAddr;
use std::os::fd::RawFd;

use super::Route;

/// socket(2): domain, type (with SOCK_NONBLOCK and SOCK_CLOEXEC) and protocol as there.
pub fn socket(_domain: i32, _kind: i32, _protocol: i32) -> Route<RawFd> {
    Route::Kernel
}

/// bind(2). The kernel binds; rsockets notes it.
pub fn bind(_fd: RawFd, _addr: &[u8]) -> Route<()> {
    Route::Kernel
}

/// listen(2).
pub fn listen(_fd: RawFd, _backlog: i32) -> Route<()> {
    Route::Kernel
}

/// accept4(2): `flags` are SOCK_NONBLOCK and SOCK_CLOEXEC. Gives the new descriptor and the peer's address.
pub fn accept(_fd: RawFd, _flags: i32) -> Route<(RawFd, SocketAddr)> {
    Route::Kernel
}

/// connect(2), with the bytes of a `struct sockaddr`.
pub fn connect(_fd: RawFd, _addr: &[u8]) -> Route<()> {
    Route::Kernel
}

/// shutdown(2).
pub fn shutdown(_fd: RawFd, _how: i32) -> Route<()> {
    Route::Kernel
}

/// getsockname(2), as it goes into a `struct sockaddr` of the socket's family.
pub fn getsockname(_fd: RawFd) -> Route<SocketAddr> {
    Route::Kernel
}

/// getpeername(2).
pub fn getpeername(_fd: RawFd) -> Route<SocketAddr> {
    Route::Kernel
}
