//! accept: from a fabric's queue or from the kernel's.

use core::{net::SocketAddr, time::Duration};
use std::sync::Arc;

use rustix::fd::{BorrowedFd, IntoRawFd, RawFd};

use super::{
    Route, deferred, inherited, ours_awaited,
    socket::{placeholder, socket_flags},
};
use crate::{
    error::{Errno, Result},
    fd::{self, Held},
    socket::{
        Role, Socket, address,
        listener::Listener,
        options::Setting,
        stream::Stream,
        wait::{self, Interest},
    },
    stats::{self, Counter},
    sys::{clock, descriptor, owner::Process, ppoll, signals},
};

/// accept4(2): `flags` are SOCK_NONBLOCK and SOCK_CLOEXEC. Gives the new descriptor and the peer's address.
pub fn accept(fd: RawFd, flags: i32) -> Route<(RawFd, SocketAddr)> {
    let Some(held) = ours_awaited(fd) else {
        inherited::listens(fd);
        return Route::Kernel;
    };
    if let (Role::KernelListener, Some(kernel)) = (held.socket.role(), descriptor::borrow(fd)) {
        return deferred::accept(kernel, &held, flags).into();
    }
    let Some(listener) = held.socket.listener() else { return Route::Kernel };
    if flags & !(libc::SOCK_NONBLOCK | libc::SOCK_CLOEXEC) != 0 {
        return Route::err(Errno::INVAL);
    }
    accept_either(fd, &held, listener, flags).into()
}

/// Takes a connection from the fabric's queue or the kernel's, whichever has one.
fn accept_either(fd: RawFd, held: &Held, listener: &Arc<Listener>, flags: i32) -> Result<(RawFd, SocketAddr)> {
    let timeout = held.socket.options.receive_timeout();
    let deadline = clock::deadline(clock::now(), timeout);
    loop {
        if let Some(stream) = listener.pop() {
            return hand_out(held, listener, stream, flags);
        }
        if let Some(accepted) = accept_kernel(fd, held, listener, flags)? {
            return Ok(accepted);
        }
        if held.is_nonblocking() {
            return Err(Errno::AGAIN);
        }
        wait_for_connection(fd, listener, deadline)?;
        if listener.is_closed() {
            return Err(Errno::INVAL);
        }
        if deadline.is_some_and(|deadline| clock::now() >= deadline) && !listener.has_connection() {
            return Err(Errno::AGAIN);
        }
    }
}

fn hand_out(held: &Held, listener: &Arc<Listener>, stream: Arc<Stream>, flags: i32) -> Result<(RawFd, SocketAddr)> {
    let domain = held.socket.domain;
    let number = match placeholder(domain, flags) {
        Ok(socket) => socket.into_raw_fd(),
        Err(errno) => {
            listener.put_back(stream);
            return Err(errno);
        }
    };
    let peer = stream.addresses().ok().and_then(|(_, peer)| peer);
    let (options, settings) = held.socket.options.inherit();
    for setting in &settings {
        repeat(number, setting);
    }
    stream.adopt(&options);
    // accept(2): "on Linux, the new socket returned by accept() does not inherit file status flags".
    fd::open(number, Socket::accepted(domain, held.socket.origin, options, stream), flags & libc::SOCK_NONBLOCK != 0);
    let peer = peer.unwrap_or_else(|| SocketAddr::from(([0, 0, 0, 0], 0)));
    Ok((number, address::as_domain(peer, domain)))
}

/// Repeats a setting of the listener on the accepted socket's kernel socket, so that getsockopt shows it.
fn repeat(fd: RawFd, setting: &Setting) {
    let _ = crate::sys::sockopt::set(fd, setting.level, setting.name, &setting.value);
}

fn accept_kernel(fd: RawFd, held: &Held, listener: &Arc<Listener>, flags: i32) -> Result<Option<(RawFd, SocketAddr)>> {
    let kernel = descriptor::borrow(fd).ok_or(Errno::BADF)?;
    if !listener.kernel_listens() {
        return if listener.is_closed() { Err(Errno::INVAL) } else { Ok(None) };
    }
    let Ok(_turn) = listener.kernel_turn.try_lock() else { return Ok(None) };
    if !held.is_nonblocking() {
        let mut set = [ppoll::PollFd { fd, events: libc::POLLIN, revents: 0 }];
        // A signal that comes during this look ends no wait: there is none.
        if !matches!(ppoll::ppoll(&mut set, Some(Duration::ZERO), None), Ok(1..)) {
            return Ok(None);
        }
    }
    // Another process that has the listener may be faster, and this thread sleep in the kernel.
    let entered = if held.is_nonblocking() { Some(None) } else { listener.enter_kernel() };
    let Some(_entered) = entered else {
        // Soon it is known what becomes of a peer that arrives over a fabric.
        let _ = ppoll::ppoll(&mut [], Some(Duration::from_millis(1)), None);
        return Ok(None);
    };
    match take_from_kernel(kernel, flags) {
        Ok((number, peer)) => {
            stats::add(Counter::AcceptedKernel, 1);
            fd::forget(number);
            Ok(Some((number, peer)))
        }
        Err(Errno::AGAIN) => Ok(None),
        Err(errno) => Err(errno),
    }
}

/// Takes a connection from the kernel's queue.
pub(super) fn take_from_kernel(kernel: BorrowedFd<'_>, flags: i32) -> Result<(RawFd, SocketAddr)> {
    let (accepted, peer) = rustix::net::acceptfrom_with(kernel, socket_flags(flags))?;
    let peer = peer.and_then(address::from_kernel).unwrap_or_else(|| SocketAddr::from(([0, 0, 0, 0], 0)));
    Ok((accepted.into_raw_fd(), peer))
}

fn wait_for_connection(fd: RawFd, listener: &Arc<Listener>, deadline: Option<u64>) -> Result<()> {
    let (process, waiter) = (Process::this(), wait::waiter());
    listener.sleepers().add(&waiter, Interest::READ | Interest::STATE);
    listener.attend(true);
    let queue = if listener.kernel_listens() { fd } else { -1 };
    let mut set = [waiter.event_fd(), queue, listener.peers_fd()].map(|fd| ppoll::PollFd { fd, events: libc::POLLIN, revents: 0 });
    let slept = if listener.has_connection() || listener.is_closed() {
        Ok(0)
    } else {
        let time = waiter.sleep_time(clock::left(clock::now(), deadline));
        // signal(7): with a time-out on the socket it is EINTR whatever the handler.
        if deadline.is_none() { signals::sleep(&mut set, time) } else { ppoll::ppoll(&mut set, time, None) }
    };
    if process.has_forked() {
        // By a signal handler, and this is the child.
        return Err(Errno::INTR);
    }
    listener.sleepers().remove(&waiter);
    let asked = set.last().is_some_and(|peers| peers.revents != 0);
    let taken = if asked { listener.take_peers(true) } else { Ok(()) };
    if process.has_forked() {
        return Err(Errno::INTR);
    }
    listener.attend(false);
    slept.map(drop).and(taken)
}
