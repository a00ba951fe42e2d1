//! Where peers of this host find a receiver: at the name that the kernel's socket has, if no other socket may have it.

use core::net::SocketAddr;

use rustix::{fd::BorrowedFd, net::sockopt};

use super::outbox;
use crate::socket::address;

/// Where a receiver is found.
pub(super) struct Place {
    pub(super) addr: SocketAddr,
    pub(super) v6_only: bool,
    pub(super) peer: Option<SocketAddr>,
}

/// `None`: nobody of this host finds it but through the kernel, which alone knows which of several sockets of an address a datagram is for.
pub(super) fn place_of(kernel: BorrowedFd<'_>, shared: bool) -> Option<Place> {
    let addr = address::local(kernel).map(address::for_fabric).filter(|addr| addr.port() != 0)?;
    if let Some(peer) = address::peer(kernel) {
        let peer = address::for_fabric(peer);
        outbox::source(peer, Some(addr.ip()))?;
        return Some(Place { addr, v6_only: false, peer: Some(peer) });
    }
    let shared = shared || sockopt::socket_reuseaddr(kernel).unwrap_or(true) || sockopt::socket_reuseport(kernel).unwrap_or(true);
    let single = !addr.ip().is_multicast();
    let v6_only = addr.is_ipv6() && sockopt::ipv6_v6only(kernel).unwrap_or(false);
    (single && !shared).then_some(Place { addr, v6_only, peer: None })
}
