//! What a forked child does with its parent's sockets (`fd::inherited`).
//!
//! A connection over a fabric is lost in the child, and each call that moves data, or wants to know the peer, says so by the same error, for
//! ever, and without a signal: ECONNRESET, which every program that uses a network is prepared for, and which makes clients connect anew, as
//! the child may. The parent's connection goes on. A child that does so, or that takes connections from an inherited listener, tells its parent,
//! whose listeners are left to the kernel from then on: what comes over a fabric is the parent's alone.

use std::os::fd::RawFd;

use super::Route;
pub(super) use crate::fd::inherited::quiet;
use crate::{
    error::Errno,
    fd::{
        self,
        inherited::{self, Inherited},
    },
    log,
    poll::ALWAYS,
    service,
    sys::descriptor,
};

const WARNING: &str = "a forked child uses a connection of its parent that goes over RDMA or shared memory, which only the parent can: it gets \
                       ECONNRESET. RSOCKET_DEFER=1 is for programs that do so (with peers of the distribution's library RDMAV_FORK_SAFE=1, at \
                       both ends); RSOCKET_FABRIC=kernel leaves a program to TCP";

/// poll's events of a connection that is lost.
const LOST: i16 = libc::POLLIN | libc::POLLRDNORM | libc::POLLOUT | libc::POLLWRNORM | libc::POLLERR | libc::POLLHUP | libc::POLLRDHUP;

/// Whether the number is an ancestor's connection, which is lost here.
#[cold]
pub(super) fn is_lost(fd: RawFd) -> bool {
    if !inherited::get(fd).is_some_and(Inherited::is_connection) {
        return false;
    }
    // It was being made at fork, and the kernel has made it.
    let kernels = descriptor::borrow(fd).is_some_and(|fd| rustix::net::getpeername(fd).is_ok());
    if kernels {
        fd::forget(fd);
    }
    !kernels
}

/// A call that moves data on a number that has no socket.
#[cold]
pub(super) fn transfer<T>(fd: RawFd) -> Route<T> {
    if !is_lost(fd) {
        return Route::Kernel;
    }
    used();
    Route::err(Errno::CONNRESET)
}

/// poll's events, 0 where the number is no lost connection.
pub(super) fn events(fd: RawFd) -> i16 {
    if fd::is_ours(fd) && is_lost(fd) { LOST } else { 0 }
}

/// What a lost connection reports in an ancestor's epoll set that asks for these events. `None`: it is none, or reports nothing.
pub(super) fn event_of_member(fd: RawFd, flags: u32) -> Option<u32> {
    let bits = |events: i16| u32::from(events.cast_unsigned());
    (inherited::get(fd) == Some(Inherited::Connection)).then(|| bits(LOST) & (flags | bits(ALWAYS)))
}

/// getpeername(2): ENOTCONN. "The socket is not connected."
#[cold]
pub(super) fn peer<T>(fd: RawFd) -> Route<T> {
    if !is_lost(fd) {
        return Route::Kernel;
    }
    used();
    Route::err(Errno::NOTCONN)
}

/// A duplicate of the number stands for the same. (Onto standard input or output it is for a program that the child becomes.)
pub(super) fn duplicated(what: Inherited, to: RawFd) {
    inherited::note(to, what);
    if what.is_connection() && to <= libc::STDERR_FILENO {
        used();
    }
}

/// The child uses a connection of an ancestor's.
#[cold]
fn used() {
    log::warn_once("fork", WARNING);
    service::tell_parent();
}

/// The child takes, or waits for, connections from a listener of an ancestor's.
#[cold]
pub(super) fn listens(fd: RawFd) {
    if inherited::get(fd) == Some(Inherited::Listener) {
        service::tell_parent();
        fd::forget(fd);
    }
}
