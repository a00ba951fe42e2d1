//! rsocket, rbind, rlisten, raccept, rconnect, rshutdown, rgetpeername, rgetsockname.

use libc::{c_int, sockaddr, socklen_t};

use super::{boundary, lifecycle, serve};
use crate::{calls, sys::kernel::call};

/// socket(2) for rsockets: streams and datagrams of PF_INET and PF_INET6.
///
/// # Safety
/// None; the signature is C's.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rsocket(domain: c_int, r#type: c_int, protocol: c_int) -> c_int {
    lifecycle::register();
    serve!(calls::socket::rsocket(domain, r#type, protocol), {
        let made = call!(libc::SYS_socket, domain, r#type, protocol);
        // A program that has closed an rsocket by close(2) may be given its number.
        if let Ok(number) = made {
            boundary::descriptor::forget_stale(number as c_int);
        }
        made
    })
}

/// bind(2).
///
/// # Safety
/// `addr` must be good for reads of `addrlen` bytes.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rbind(socket: c_int, addr: *const sockaddr, addrlen: socklen_t) -> c_int {
    serve!(boundary::socket::bind(socket, addr, addrlen), call!(libc::SYS_bind, socket, addr, addrlen))
}

/// listen(2).
///
/// # Safety
/// None; the signature is C's.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rlisten(socket: c_int, backlog: c_int) -> c_int {
    serve!(boundary::socket::listen(socket, backlog), call!(libc::SYS_listen, socket, backlog))
}

/// accept(2).
///
/// # Safety
/// Unless NULL, `addrlen` must be good for reads and writes, and `addr` for writes of `*addrlen` bytes.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn raccept(socket: c_int, addr: *mut sockaddr, addrlen: *mut socklen_t) -> c_int {
    serve!(boundary::socket::accept(socket, addr, addrlen, 0), call!(libc::SYS_accept4, socket, addr, addrlen, 0))
}

/// connect(2).
///
/// # Safety
/// `addr` must be good for reads of `addrlen` bytes.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rconnect(socket: c_int, addr: *const sockaddr, addrlen: socklen_t) -> c_int {
    serve!(boundary::socket::connect(socket, addr, addrlen), call!(libc::SYS_connect, socket, addr, addrlen))
}

/// shutdown(2).
///
/// # Safety
/// None; the signature is C's.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rshutdown(socket: c_int, how: c_int) -> c_int {
    serve!(boundary::descriptor::shutdown(socket, how), call!(libc::SYS_shutdown, socket, how))
}

/// getpeername(2).
///
/// # Safety
/// `addrlen` must be good for reads and writes, and `addr` for writes of `*addrlen` bytes.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rgetpeername(socket: c_int, addr: *mut sockaddr, addrlen: *mut socklen_t) -> c_int {
    serve!(boundary::socket::getpeername(socket, addr, addrlen), call!(libc::SYS_getpeername, socket, addr, addrlen))
}

/// getsockname(2).
///
/// # Safety
/// `addrlen` must be good for reads and writes, and `addr` for writes of `*addrlen` bytes.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rgetsockname(socket: c_int, addr: *mut sockaddr, addrlen: *mut socklen_t) -> c_int {
    serve!(boundary::socket::getsockname(socket, addr, addrlen), call!(libc::SYS_getsockname, socket, addr, addrlen))
}
