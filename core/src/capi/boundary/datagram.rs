//! The C side of `calls::datagram`: what a datagram has and a stream has not, its address and its end.
//!
//! Pointers that are bad, and whatever else is wrong with a call that sends, are the kernel's to judge. A call that receives is not: the kernel
//! may have nothing, and would wait.

use core::{
    ffi::{c_int, c_void},
    net::SocketAddr,
};
use std::io::{IoSlice, IoSliceMut};

use libc::{msghdr, sockaddr, socklen_t, ssize_t};

use super::{
    address, bytes, bytes_mut, fault,
    io::{message_count, size},
    is_bad, map, vector,
};
use crate::{
    calls::{
        Route,
        datagram::{self, is_datagram},
    },
    error::Result,
    socket::datagram::Received,
    sys::kernel::call,
};

/// `?` for what is the kernel's to judge where it fails.
macro_rules! or_kernels {
    ($result:expr) => {
        match $result {
            Ok(value) => value,
            Err(_) => return Route::Kernel,
        }
    };
}

/// recvfrom(2).
///
/// # Safety
/// Unless NULL, `buffer` must be good for writes of `length` bytes, `room` for reads and writes, and `address` for writes of `*room` bytes.
pub(super) unsafe fn recvfrom(
    fd: c_int,
    buffer: *mut c_void,
    length: usize,
    flags: c_int,
    address: *mut sockaddr,
    room: *mut socklen_t,
) -> Route<ssize_t> {
    // SAFETY: the caller's promise is the one asked for.
    let out = unsafe { address::Out::wanted(address, room) };
    // SAFETY: the caller's promise is the one asked for.
    let Ok(into) = (unsafe { bytes_mut(buffer, length) }) else { return size(fault::nowhere(fd, flags)) };
    named(datagram::receive(fd, &mut [IoSliceMut::new(into)], &mut [], flags), out, |received| received.len as ssize_t)
}

/// Says whom a datagram is from. The kernel takes it before it looks where that is to go.
fn named<T>(route: Route<Received>, out: Result<Option<address::Out>>, then: impl FnOnce(Received) -> T) -> Route<T> {
    match (route, out) {
        (Route::Done(Ok(received)), Ok(out)) => {
            if let Some(out) = out {
                write(out, received.source);
            }
            Route::ok(then(received))
        }
        (Route::Done(Ok(_)), Err(errno)) | (Route::Done(Err(errno)), _) => Route::err(errno),
        (Route::Kernel, _) => Route::Kernel,
    }
}

fn write(out: address::Out, source: Option<SocketAddr>) {
    match source {
        Some(source) => out.write(&source),
        None => out.write_none(),
    }
}

/// sendto(2) with an address.
///
/// # Safety
/// Unless NULL, `buffer` must be good for reads of `length` bytes, and `address` of `address_length`.
pub(super) unsafe fn sendto(
    fd: c_int,
    buffer: *const c_void,
    length: usize,
    flags: c_int,
    address: *const sockaddr,
    address_length: socklen_t,
) -> Route<ssize_t> {
    // SAFETY: the caller's promise is the one asked for.
    let to = or_kernels!(unsafe { address::given(address, address_length) });
    // SAFETY: the caller's promise is the one asked for.
    let from = or_kernels!(unsafe { bytes(buffer, length) });
    size(datagram::send(fd, &[IoSlice::new(from)], Some(to), flags))
}

/// recvmsg(2): msg_flags say whether the datagram was cut. What control data there is, is the kernel's.
///
/// # Safety
/// Unless NULL, `message` must be good for reads and writes, and what it points to good for writes.
pub(super) unsafe fn recvmsg(fd: c_int, message: *mut msghdr, flags: c_int) -> Route<ssize_t> {
    if is_bad(message.cast(), size_of::<msghdr>()) {
        return Route::Kernel;
    }
    // SAFETY: not bad, so good for reads and writes (the caller's promise).
    let Some(message) = (unsafe { message.as_mut() }) else { return Route::Kernel };
    let count = or_kernels!(message_count(message));
    // SAFETY: the caller's promise is the one asked for.
    let out = unsafe { address::Out::wanted(message.msg_name.cast(), &raw mut message.msg_namelen) };
    // Nobody has missed it where there is no control data.
    // SAFETY: the caller's promise is the one asked for.
    let control = unsafe { bytes_mut(message.msg_control, message.msg_controllen) }.unwrap_or_default();
    let receive = |into: &mut [IoSliceMut<'_>]| datagram::receive(fd, into, control, flags);
    // SAFETY: the caller's promise is the one asked for.
    let route: Route<Received> =
        unsafe { vector::with(message.msg_iov, count, receive, || map(fault::nowhere(fd, flags), |_| Received::default())) };
    named(route, out, |received| {
        message.msg_controllen = received.control as _;
        message.msg_flags = flags & libc::MSG_CMSG_CLOEXEC | received.flags | if received.truncated { libc::MSG_TRUNC } else { 0 };
        received.len as ssize_t
    })
}

/// sendmsg(2). Control data says what only the kernel can do.
///
/// # Safety
/// Unless NULL, `message` must be good for reads, and what it points to as well.
pub(super) unsafe fn sendmsg(fd: c_int, message: *const msghdr, flags: c_int) -> Route<ssize_t> {
    if is_bad(message.cast(), size_of::<msghdr>()) {
        return Route::Kernel;
    }
    // SAFETY: not bad, so good for reads (the caller's promise).
    let Some(message) = (unsafe { message.as_ref() }) else { return Route::Kernel };
    let count = or_kernels!(message_count(message));
    if message.msg_controllen != 0 {
        return datagram::sent_by_kernel(fd, flags);
    }
    let to = if message.msg_name.is_null() {
        None
    } else {
        // SAFETY: the caller's promise is the one asked for.
        Some(or_kernels!(unsafe { address::given(message.msg_name.cast(), message.msg_namelen) }))
    };
    let send = |from: &mut [IoSlice<'_>]| datagram::send(fd, from, to, flags);
    // SAFETY: the caller's promise is the one asked for.
    size(unsafe { vector::with(message.msg_iov, count, send, || Route::Kernel) })
}

/// One of several messages: where it is the kernel's, and the socket one of datagrams, the kernel gets it alone, as the others may not be its.
///
/// # Safety
/// Unless NULL, `message` must be good as the system call asks for.
pub(super) unsafe fn or_kernel(
    route: Route<ssize_t>,
    number: libc::c_long,
    fd: c_int,
    message: *mut msghdr,
    flags: c_int,
) -> Route<ssize_t> {
    match route {
        // SAFETY: the caller's promise is that of the system call.
        Route::Kernel if is_datagram(fd) => size(unsafe { call!(number, fd, message, flags) }.into()),
        route => route,
    }
}
