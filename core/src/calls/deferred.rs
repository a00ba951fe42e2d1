//! Connections that begin on TCP and move to a fabric when they are first used (`socket/stream/moving`): what the calls have to do with
//! them.

#![forbid(unsafe_code)]

use core::net::SocketAddr;
use std::{os::fd::RawFd, sync::Arc};

use rustix::{
    fd::BorrowedFd,
    io::Errno,
    net::{RecvFlags, sockopt},
};

use super::{Route, accept::take_from_kernel, known, ours, ours_awaited, socket::lending_port};
use crate::{
    config::{self, Deferral},
    error::Result,
    fabric::{ConnectTo, FabricKind, Kernel, ListenOn},
    fd::{self, Held},
    log_debug,
    service::Service,
    socket::{
        Origin, Role, Socket, account, address, connect, runtime,
        stream::{Stream, moving},
    },
    sys::{clock, descriptor},
};

/// Whether connections of this socket begin on TCP.
pub(super) fn is_wanted(socket: &Socket) -> bool {
    socket.origin == Origin::Preload && config::deferral().is_on()
}

/// Own and the peer's address, as fabrics know them.
pub(super) fn names(kernel: BorrowedFd<'_>) -> Option<(SocketAddr, SocketAddr)> {
    Some((address::for_fabric(address::local(kernel)?), address::for_fabric(address::peer(kernel)?)))
}

/// listen(2): the kernel listens, and clients of this host are told what becomes of their connections.
pub(super) fn listen(socket: &Socket, kernel: BorrowedFd<'_>, backlog: i32) -> Route<()> {
    if let Err(errno) = rustix::net::listen(kernel, backlog) {
        return Route::err(errno);
    }
    socket.become_kernel_listener();
    mark(socket, kernel);
    Route::ok(())
}

/// Clients of this host are told. Who has the listener from another process does that when it first waits for clients.
fn mark(socket: &Socket, kernel: BorrowedFd<'_>) {
    socket.mark(|| {
        let addr = address::local(kernel)?;
        let v6_only = sockopt::ipv6_v6only(kernel).unwrap_or(false);
        let endpoint = socket.options.sizes().endpoint();
        let on = ListenOn { addr: address::for_fabric(addr), v6_only, backlog: 0, only: None, endpoint };
        runtime::service()?.fabric().mark(&on)
    });
}

/// accept4(2) of such a listener.
pub(super) fn accept(kernel: BorrowedFd<'_>, held: &Held, flags: i32) -> Result<(RawFd, SocketAddr)> {
    mark(&held.socket, kernel);
    let (number, peer) = take_from_kernel(kernel, flags)?;
    let (options, _) = held.socket.options.inherit();
    fd::open(number, Socket::deferred(held.socket.domain, options), flags & libc::SOCK_NONBLOCK != 0);
    Ok((number, peer))
}

/// The client's end, before the kernel connects. False: the connection is TCP's for good.
pub(super) fn connect(fd: RawFd, held: &Held, service: &Arc<Service>, to: SocketAddr, begun: Option<&Arc<Stream>>) -> bool {
    let awaits = || {
        let shipped = config::deferral() == Deferral::Shipped && service.fabric().reaches_others();
        let only = if service.fabric().is_marked(to) {
            Some(FabricKind::Shm)
        } else if connect::is_plain(to) || !shipped && !service.fabric().reaches_others() {
            // No peer of this host has such a mark, and there is no way to other hosts.
            return None;
        } else {
            None
        };
        let port = own_port(fd, held.socket.domain)?;
        let sizes = held.socket.options.sizes();
        let mut addr = address::anywhere(to);
        addr.set_port(port);
        let on = ListenOn { addr, v6_only: to.is_ipv6(), backlog: 1, only, endpoint: sizes.endpoint() };
        let stream = match begun {
            Some(stream) => Arc::clone(stream),
            None => Stream::connecting(service, &ConnectTo::new(to, sizes.endpoint()), sizes, u64::MAX, None),
        };
        let kernel = descriptor::duplicate(fd).ok()?;
        // The port is that of a socket which does not listen: soft-iWARP gets it, too, where it is lent.
        let waits = lending_port(descriptor::borrow(fd)?, || stream.await_server(kernel, &on, shipped, held.is_nonblocking()));
        let waits = waits.and_then(|()| service.run_in_background());
        if let Err(errno) = waits {
            log_debug!("{to}: not waited for: {errno}");
            stream.not_started();
            return None;
        }
        stream.adopt(&held.socket.options);
        if begun.is_none() {
            held.socket.become_stream(stream);
        } else {
            held.socket.stream_begun();
        }
        Some(())
    };
    awaits().is_some()
}

/// The port that the client's end is to be found by. Where it has none yet, it gets one, as by connect(2).
fn own_port(fd: RawFd, domain: i32) -> Option<u16> {
    let bound = address::local(descriptor::borrow(fd)?).map(|local| local.port()).filter(|port| *port != 0);
    bound.or_else(|| Kernel { fd, is_ipv6: domain == libc::AF_INET6 }.reserve())
}

/// The first use of a connection that TCP has accepted, by data or a wait: from now on it is a stream, or the kernel's.
#[cold]
pub(super) fn begin(fd: RawFd, held: &Held) {
    let socket = &held.socket;
    let Ok(_turn) = socket.connect_turn() else { return };
    if socket.role() == Role::Deferred && ask(fd, held).is_none() {
        account::stayed(false);
        socket.become_kernel();
    }
}

/// Looks for the client. `None`: the connection stays with TCP.
fn ask(fd: RawFd, held: &Held) -> Option<()> {
    let socket = &held.socket;
    let kernel = descriptor::borrow(fd)?;
    let (local, peer) = names(kernel)?;
    // Who speaks does not wait to be asked.
    let silent = matches!(rustix::net::recv(kernel, &mut [0_u8; 1], RecvFlags::PEEK | RecvFlags::DONTWAIT), Err(Errno::AGAIN));
    let service = runtime::service().filter(|_| silent)?;
    let sizes = socket.options.sizes();
    let request = ConnectTo {
        // The port is the listener's.
        local: Some(SocketAddr::new(local.ip(), 0)),
        silent: connect::is_silent(peer.ip()),
        tos: socket.options.tos(),
        path: socket.options.path(),
        ..ConnectTo::new(peer, sizes.endpoint())
    };
    let shipped = config::deferral() == Deferral::Shipped && service.fabric().reaches_others();
    let deadline = clock::deadline(clock::now(), Some(config::get().connect_deadline)).unwrap_or(u64::MAX);
    let stream = Stream::connecting(&service, &request, sizes, deadline, None);
    let begun = descriptor::duplicate(fd).and_then(|kernel| stream.ask_client(kernel, shipped)).and_then(|()| service.run_in_background());
    if begun.is_err() {
        stream.not_started();
        service.fabric().decline(peer);
        return None;
    }
    stream.adopt(&socket.options);
    socket.begin_stream(Arc::clone(&stream));
    if let Err(failure) = stream.start(&request) {
        log_debug!("{peer}: left to TCP: {failure}");
        service.fabric().decline(peer);
        return None;
    }
    stream.attend();
    socket.stream_begun();
    Some(())
}

/// Whether a poll of this number alone asks for nothing but the outcome of a nonblocking connect that TCP makes: no use of it yet, so that a
/// child may be the one to use it. The kernel's poll answers.
#[inline]
pub(super) fn outcome_is_asked(fd: RawFd, events: i16) -> bool {
    const OUTCOME: i16 = libc::POLLOUT | libc::POLLWRNORM | libc::POLLWRBAND | libc::POLLERR | libc::POLLHUP | libc::POLLPRI;
    moving::is_any_unused() && events & !OUTCOME == 0 && is_outcome(fd)
}

#[cold]
fn is_outcome(fd: RawFd) -> bool {
    known(fd).is_some_and(|held| held.socket.stream().is_some_and(|stream| stream.outcome_is_asked()))
}

/// The description of a number that is about to be used: data, or a wait.
pub(super) fn used(fd: RawFd) -> Option<Held> {
    let held = ours_awaited(fd)?;
    match (held.socket.role(), descriptor::borrow(fd)) {
        (Role::Deferred, _) => {
            begin(fd, &held);
            drop(held);
            ours(fd)
        }
        (Role::KernelListener, Some(kernel)) => {
            mark(&held.socket, kernel);
            Some(held)
        }
        _ => Some(held),
    }
}
