//! Datagram sockets: what of their calls is not the kernel's. `bind` and `connect` are the kernel's, after which peers of this host find
//! the socket where the kernel would; data goes through shared memory where the peer is of this host.

use std::{
    io::{IoSlice, IoSliceMut},
    os::fd::RawFd,
};

use rustix::{
    fd::IntoRawFd,
    net::{AddressFamily, SocketType},
};

use super::{Route, io, known, socket::socket_flags};
use crate::{
    config,
    fd::{self, Held},
    log,
    socket::{
        Origin, Socket, address,
        datagram::{self, Datagram, Received, Sending},
    },
    stats,
    sys::{allocator, descriptor},
};

/// socket(2) of anything but a stream. An unmodified program's datagrams are the kernel's unless that was asked for.
pub(super) fn socket(domain: i32, kind: i32, protocol: i32, origin: Origin) -> Route<RawFd> {
    let flags = kind & (libc::SOCK_NONBLOCK | libc::SOCK_CLOEXEC);
    let is_one =
        matches!(domain, libc::AF_INET | libc::AF_INET6) && kind & !flags == libc::SOCK_DGRAM && matches!(protocol, 0 | libc::IPPROTO_UDP);
    if !is_one || origin == Origin::Preload && !is_asked_for(domain) || !config::get().fabrics.any() || allocator::is_exhausted() {
        return Route::Kernel;
    }
    log::prepare();
    stats::prepare();
    let family = if domain == libc::AF_INET6 { AddressFamily::INET6 } else { AddressFamily::INET };
    let made = rustix::net::socket_with(family, SocketType::DGRAM, socket_flags(flags), None);
    made.map(|socket| {
        let number = socket.into_raw_fd();
        fd::open(number, Socket::datagrams(domain, origin), flags & libc::SOCK_NONBLOCK != 0);
        number
    })
    .into()
}

/// Whether a socket of datagrams that others have made is to be looked at: a peer that asks puts a header in front.
pub(super) fn is_to_be_adopted(domain: i32) -> bool {
    config::get().fabrics.verbs() && (datagram::is_any() || is_asked_for(domain))
}

fn is_asked_for(domain: i32) -> bool {
    let (policy, program) = (config::preload(), config::program());
    policy.asks_for_datagrams(program, domain)
        || config::get().datagrams && policy.allows(program, domain, libc::SOCK_DGRAM, libc::IPPROTO_UDP)
}

/// Whether the number is such a socket.
#[inline]
pub fn is_datagram(fd: RawFd) -> bool {
    datagram::is_any() && known(fd).is_some_and(|held| held.socket.datagram().is_some())
}

/// The kernel has done something to the socket that changes where it is found.
fn settle(fd: RawFd, held: &Held) {
    if let Some(datagram) = held.socket.datagram() {
        let _ = datagram.settle(fd);
    }
}

/// bind(2): the kernel's, and peers of this host find it there.
pub(super) fn bind(fd: RawFd, held: &Held, addr: &[u8]) -> Route<()> {
    // The rest of the addresses that the kernel takes names no place where it could be found.
    let (Some(kernel), Some(addr)) = (descriptor::borrow(fd), address::parse(addr)) else { return Route::Kernel };
    let bound = rustix::net::bind(kernel, &addr);
    if bound.is_ok() {
        settle(fd, held);
    }
    bound.into()
}

/// connect(2): the kernel's; from then on only that peer finds it. AF_UNSPEC: "Connectionless sockets may dissolve the association".
pub(super) fn connect(fd: RawFd, held: &Held, addr: &[u8]) -> Route<()> {
    let Some(kernel) = descriptor::borrow(fd) else { return Route::Kernel };
    let dissolves = addr.first_chunk().is_some_and(|family| i32::from(u16::from_ne_bytes(*family)) == libc::AF_UNSPEC);
    let connected = match address::parse(addr) {
        Some(peer) => rustix::net::connect(kernel, &peer),
        None if dissolves => rustix::net::connect_unspec(kernel),
        None => return Route::Kernel,
    };
    if connected.is_ok() {
        settle(fd, held);
    }
    connected.into()
}

/// shutdown(2): what it does to datagrams, only the kernel knows.
pub(super) fn shutdown(held: &Held, how: i32) {
    if let Some(datagram) = held.socket.datagram() {
        if how != libc::SHUT_WR {
            let _ = datagram.leave_for_good();
        }
        leave(&held.socket, datagram);
    }
}

/// The kernel alone has it, at once or when what has come was read.
fn leave(socket: &Socket, datagram: &Datagram) {
    if datagram.leave().is_ok() && datagram.has_left().unwrap_or(false) {
        socket.become_kernel();
    }
}

/// The kernel has taken this setting. Those that add something to datagrams, take some away, or change the way they go are the kernel's alone.
pub(super) fn set(fd: RawFd, held: &Held, level: i32, name: i32, value: &[u8]) {
    let Some(datagram) = held.socket.datagram() else { return };
    match (level, name) {
        (libc::SOL_SOCKET, libc::SO_REUSEADDR | libc::SO_REUSEPORT) => {
            if value.iter().any(|byte| *byte != 0) {
                datagram.note_shared_name();
            }
            settle(fd, held);
        }
        // (Of a filter there is no value here.)
        _ if is_harmless(level, name) || !value.is_empty() && value.iter().all(|byte| *byte == 0) => {}
        _ => leave(&held.socket, datagram),
    }
}

fn is_harmless(level: i32, name: i32) -> bool {
    match level {
        libc::SOL_SOCKET => matches!(
            name,
            libc::SO_RCVBUF
                | libc::SO_SNDBUF
                | libc::SO_RCVBUFFORCE
                | libc::SO_SNDBUFFORCE
                | libc::SO_RCVTIMEO
                | libc::SO_SNDTIMEO
                | libc::SO_RCVLOWAT
                | libc::SO_BROADCAST
                | libc::SO_PRIORITY
                | libc::SO_LINGER
                | libc::SO_KEEPALIVE
                | libc::SO_OOBINLINE
                | libc::SO_BUSY_POLL
        ),
        libc::IPPROTO_IP => matches!(
            name,
            libc::IP_TOS
                | libc::IP_TTL
                | libc::IP_MTU_DISCOVER
                | libc::IP_MULTICAST_TTL
                | libc::IP_MULTICAST_LOOP
                | libc::IP_MULTICAST_IF
                | libc::IP_ADD_MEMBERSHIP
                | libc::IP_DROP_MEMBERSHIP
        ),
        libc::IPPROTO_IPV6 => matches!(
            name,
            libc::IPV6_V6ONLY
                | libc::IPV6_UNICAST_HOPS
                | libc::IPV6_TCLASS
                | libc::IPV6_MTU_DISCOVER
                | libc::IPV6_MULTICAST_HOPS
                | libc::IPV6_MULTICAST_LOOP
                | libc::IPV6_MULTICAST_IF
                | libc::IPV6_ADD_MEMBERSHIP
                | libc::IPV6_DROP_MEMBERSHIP
        ),
        _ => false,
    }
}

/// Flags of send(2) that say nothing to shared memory.
const SEND_FLAGS: i32 = libc::MSG_DONTWAIT | libc::MSG_NOSIGNAL | libc::MSG_CONFIRM | libc::MSG_EOR;
/// Flags of recv(2) that ask for something else than datagrams, without waiting. Others mean nothing to a datagram.
const KERNELS_FLAGS: i32 = libc::MSG_ERRQUEUE;

/// Sends a datagram: `to` is the `struct sockaddr` that was given, `None` for none.
pub fn send(fd: RawFd, from: &[IoSlice<'_>], to: Option<&[u8]>, flags: i32) -> Route<usize> {
    let Some(held) = known(fd) else { return Route::Kernel };
    let Some(datagram) = held.socket.datagram() else { return Route::Kernel };
    let to = match to.map(address::parse) {
        None => None,
        // udp(7): an address of another family, or port 0, is the kernel's to refuse.
        Some(Some(to)) if to.port() != 0 && to.is_ipv6() == (held.socket.domain == libc::AF_INET6) => Some(to),
        Some(_) => return left_to_kernel(),
    };
    if flags & !SEND_FLAGS != 0 || datagram.is_corked() {
        datagram.cork(flags & libc::MSG_MORE != 0);
        return left_to_kernel();
    }
    match datagram.send(fd, from, to) {
        Ok(Sending::Done(len)) => Route::ok(len),
        Ok(Sending::Kernel) => left_to_kernel(),
        Err(errno) => Route::err(errno),
    }
}

/// The kernel sends what is given with control data.
pub fn sent_by_kernel<T>(fd: RawFd, flags: i32) -> Route<T> {
    if let Some(held) = known(fd)
        && let Some(datagram) = held.socket.datagram()
    {
        datagram.cork(flags & libc::MSG_MORE != 0);
    }
    left_to_kernel()
}

/// The kernel sends it.
pub fn left_to_kernel<T>() -> Route<T> {
    datagram::count_kernels();
    Route::Kernel
}

/// Receives a datagram.
pub fn receive(fd: RawFd, into: &mut [IoSliceMut<'_>], control: &mut [u8], flags: i32) -> Route<Received> {
    let Some(held) = known(fd) else { return Route::Kernel };
    let Some(datagram) = held.socket.datagram() else { return Route::Kernel };
    if flags & KERNELS_FLAGS != 0 {
        return Route::Kernel;
    }
    let blocking = io::blocking(&held, flags, || held.socket.options.receive_timeout());
    match datagram.receive(fd, into, control, flags, blocking) {
        Ok(Some(received)) => Route::ok(received),
        Ok(None) => {
            held.socket.become_kernel();
            Route::Kernel
        }
        Err(errno) => Route::err(errno),
    }
}

/// FIONREAD: udp(7).
pub(super) fn readable_bytes(fd: RawFd, held: &Held) -> Route<i32> {
    let next = held.socket.datagram().and_then(|datagram| datagram.next_len(fd));
    next.map_or(Route::Kernel, |len| Route::ok(i32::try_from(len).unwrap_or(i32::MAX)))
}

/// The last number is about to be closed.
pub(super) fn closes(fd: RawFd, held: &Held) {
    if let Some(datagram) = held.socket.datagram() {
        datagram.bid_farewell(fd);
    }
}

/// After fork in the parent.
pub(super) fn forked() {
    if datagram::is_any() {
        fd::each(|_, held| held.socket.datagram().into_iter().for_each(|datagram| datagram.share()));
    }
}
