//! socket, bind, listen, accept, connect, shutdown, and the names of the two ends.

use libc::{c_int, sockaddr, socklen_t};
use rsocket::{
    calls,
    capi::boundary::{answer, descriptor, socket as boundary},
};

use super::{hooks, real};
use crate::guard::{free, fresh, given, ours};

hooks! {
    fn bind(fd: c_int, address: *const sockaddr, length: socklen_t) -> c_int
        = ours(fd) => boundary::bind(fd, address, length);
    fn listen(fd: c_int, backlog: c_int) -> c_int
        = ours(fd) => boundary::listen(fd, backlog);
    fn connect(fd: c_int, address: *const sockaddr, length: socklen_t) -> c_int
        = ours(fd) => boundary::connect(fd, address, length);
    fn __connect(fd: c_int, address: *const sockaddr, length: socklen_t) -> c_int
        = ours(fd) => boundary::connect(fd, address, length);
    fn shutdown(fd: c_int, how: c_int) -> c_int
        = ours(fd) => descriptor::shutdown(fd, how);
    fn getsockname(fd: c_int, address: *mut sockaddr, length: *mut socklen_t) -> c_int
        = ours(fd) => boundary::getsockname(fd, address, length);
    fn getpeername(fd: c_int, address: *mut sockaddr, length: *mut socklen_t) -> c_int
        = ours(fd) => boundary::getpeername(fd, address, length);
}

/// Families that can be rsockets. Others go to the kernel without a look at the library: a socket may be made anywhere.
pub(crate) fn possible(domain: c_int) -> bool {
    matches!(domain, libc::AF_INET | libc::AF_INET6) && free()
}

#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn socket(domain: c_int, kind: c_int, protocol: c_int) -> c_int {
    let made = || answer(|| calls::socket::socket(domain, kind, protocol));
    match possible(domain).then(made).flatten() {
        Some(fd) => given(fd),
        None => fresh(real!(socket(domain: c_int, kind: c_int, protocol: c_int) -> c_int)),
    }
}

#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn accept(fd: c_int, address: *mut sockaddr, length: *mut socklen_t) -> c_int {
    match accepted(fd, address, length, 0) {
        Some(fd) => given(fd),
        None => fresh(real!(accept(fd: c_int, address: *mut sockaddr, length: *mut socklen_t) -> c_int)),
    }
}

#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn accept4(fd: c_int, address: *mut sockaddr, length: *mut socklen_t, flags: c_int) -> c_int {
    match accepted(fd, address, length, flags) {
        Some(fd) => given(fd),
        None => fresh(real!(accept4(fd: c_int, address: *mut sockaddr, length: *mut socklen_t, flags: c_int) -> c_int)),
    }
}

fn accepted(fd: c_int, address: *mut sockaddr, length: *mut socklen_t, flags: c_int) -> Option<c_int> {
    // SAFETY: the program's promises are those of accept(2), which are the ones asked for.
    ours(fd).then(|| answer(|| unsafe { boundary::accept(fd, address, length, flags) })).flatten()
}
