//! Sockets that the process has from its parent, or from the program that was before it: what the kernel tells of them.

use std::os::fd::RawFd;

use rustix::{
    fs::{OFlags, fcntl_getfl},
    net::{SocketType, sockopt},
};

use super::{Origin, Socket, options::Options};
use crate::sys::descriptor;

/// What is one socket under all its numbers, as long as the host runs (socket(7), SO_COOKIE). `None`: no TCP socket.
pub fn identity(fd: RawFd) -> Option<u64> {
    let kernel = descriptor::borrow(fd)?;
    domain(fd)?;
    sockopt::socket_cookie(kernel).ok()
}

fn domain(fd: RawFd) -> Option<i32> {
    let kernel = descriptor::borrow(fd)?;
    let domain = i32::from(sockopt::socket_domain(kernel).ok()?.as_raw());
    let stream = sockopt::socket_type(kernel).ok()? == SocketType::STREAM;
    (stream && matches!(domain, libc::AF_INET | libc::AF_INET6)).then_some(domain)
}

/// The socket under a number, and whether it is O_NONBLOCK. `None`: the kernel's alone.
pub fn inherited(fd: RawFd) -> Option<(Socket, bool)> {
    let (kernel, domain) = (descriptor::borrow(fd)?, domain(fd)?);
    let nonblocking = fcntl_getfl(kernel).ok()?.contains(OFlags::NONBLOCK);
    let options = Options::of_kernel(fd);
    let socket = if sockopt::socket_acceptconn(kernel).ok()? {
        let socket = Socket::new(domain, Origin::Preload, options);
        socket.become_kernel_listener(None);
        socket
    } else if rustix::net::getpeername(kernel).is_ok() {
        Socket::deferred(domain, options)
    } else {
        Socket::new(domain, Origin::Preload, options)
    };
    Some((socket, nonblocking))
}
