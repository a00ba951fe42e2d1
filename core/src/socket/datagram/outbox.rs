//! Where a socket's datagrams go.

use core::net::SocketAddr;
use std::{collections::HashMap, io::IoSlice, os::fd::RawFd};

use rustix::{fd::BorrowedFd, net::sockopt};

pub(super) use crate::fabric::shm::datagram::source;
use crate::{
    error::{Errno, Result},
    fabric::shm::datagram::{LONGEST, Outlet, Sent},
    log_debug,
    socket::address,
    sys::{
        allocator,
        clock::{self, Nanos},
        descriptor,
    },
};

/// Destinations that are remembered. One more takes the place of the one that was used longest ago.
const MOST: usize = 256;
/// How long nobody is looked for at a destination of this host where there was nobody, and whether an address is of this host, in nanoseconds.
const NEAR_AGAIN: Nanos = 10_000_000;
const FAR_AGAIN: Nanos = 1_000_000_000;
/// "EMSGSIZE": the most that a datagram over IPv4 has.
const LONGEST_V4: usize = 65_507;

/// Which way a datagram went.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Way {
    Memory,
    /// Nowhere: the receiver's queue was full.
    Dropped,
    /// It is the kernel's to send.
    Kernel,
}

enum Road {
    Channel(Outlet),
    /// Until then nobody is looked for.
    Kernel(Nanos),
}

struct Destination {
    road: Road,
    used: u64,
}

/// See the module.
#[derive(Default)]
pub(super) struct Outbox {
    peer: Option<SocketAddr>,
    destinations: HashMap<SocketAddr, Destination>,
    sent: u64,
}

impl Outbox {
    /// Whom the socket is connected to.
    pub(super) fn peer(&self) -> Option<SocketAddr> {
        self.peer
    }

    /// The socket has another address or peer: receivers are to hear of it, by new channels.
    pub(super) fn settle(&mut self, peer: Option<SocketAddr>) {
        self.peer = peer;
        self.destinations.clear();
    }

    /// Sends `len` bytes to `to`. `bound`: the kernel's socket has got an address.
    pub(super) fn send(&mut self, fd: RawFd, from: &[IoSlice<'_>], len: usize, to: SocketAddr, bound: impl Fn() -> Result<()>) -> Way {
        let now = clock::now();
        let destination = address::destination(to);
        if len > LONGEST || destination.is_ipv4() && len > LONGEST_V4 {
            return Way::Kernel;
        }
        self.sent += 1;
        let used = self.sent;
        if let Some(known) = self.destinations.get_mut(&to) {
            known.used = used;
            match &mut known.road {
                Road::Kernel(again) if *again > now => return Way::Kernel,
                Road::Kernel(_) => {}
                Road::Channel(outlet) => match outlet.send(from, len, now) {
                    Sent::Done => return Way::Memory,
                    Sent::Dropped => return Way::Dropped,
                    // It may be there again, under another name.
                    Sent::Gone => {}
                },
            }
        } else if self.destinations.len() >= MOST {
            self.forget_oldest();
        }
        let mut road = open(fd, destination, now, self.destinations.len(), &bound);
        let way = match &mut road {
            Road::Kernel(_) => Way::Kernel,
            Road::Channel(outlet) => match outlet.send(from, len, now) {
                Sent::Done => Way::Memory,
                Sent::Dropped => Way::Dropped,
                Sent::Gone => {
                    road = Road::Kernel(now.saturating_add(NEAR_AGAIN));
                    Way::Kernel
                }
            },
        };
        self.destinations.insert(to, Destination { road, used });
        way
    }

    fn forget_oldest(&mut self) {
        let oldest = self.destinations.iter().min_by_key(|(_, known)| known.used).map(|(to, _)| *to);
        if let Some(oldest) = oldest {
            self.destinations.remove(&oldest);
        }
    }
}

/// The way to a destination, as it is now.
fn open(fd: RawFd, destination: SocketAddr, now: Nanos, own: usize, bound: impl Fn() -> Result<()>) -> Road {
    let far = Road::Kernel(now.saturating_add(FAR_AGAIN));
    let near = Road::Kernel(now.saturating_add(NEAR_AGAIN));
    let Some(kernel) = descriptor::borrow(fd).filter(|_| !allocator::is_exhausted()) else { return far };
    let local = address::local(kernel).map(address::for_fabric);
    let specific = local.map(|local| local.ip()).filter(|ip| !ip.is_unspecified());
    if specific.is_some_and(|ip| ip.is_ipv4() != destination.is_ipv4()) {
        // The kernel's to refuse.
        return far;
    }
    let Some(from) = source(destination, specific) else { return far };
    if !may_reach(kernel, local, destination) {
        return far;
    }
    let port = match local.map(|local| local.port()) {
        Some(port) if port != 0 => port,
        // udp(7): "the socket will be assigned [a] free local port" when it sends. So an answer finds it.
        _ => match bind(kernel).filter(|_| bound().is_ok()) {
            Some(port) => port,
            None => return far,
        },
    };
    let mut sender = destination;
    sender.set_ip(from);
    sender.set_port(port);
    match Outlet::open(sender, destination, own, now) {
        Ok(Some(outlet)) => Road::Channel(outlet),
        Ok(None) => near,
        Err(errno) => {
            log_debug!("datagrams to {destination}: left to the kernel: {errno}");
            // Another user stays that for longer.
            if errno == Errno::PERM { far } else { near }
        }
    }
}

/// An IPv4 peer of an IPv6 socket that takes none is the kernel's to refuse.
pub(super) fn may_reach(kernel: BorrowedFd<'_>, local: Option<SocketAddr>, destination: SocketAddr) -> bool {
    match local {
        Some(SocketAddr::V6(_)) if destination.is_ipv4() => !sockopt::ipv6_v6only(kernel).unwrap_or(true),
        Some(SocketAddr::V4(_)) => destination.is_ipv4(),
        _ => true,
    }
}

/// Gives the socket a port, as the kernel does when it sends; an address that it has stays.
fn bind(kernel: BorrowedFd<'_>) -> Option<u16> {
    rustix::net::bind(kernel, &address::local(kernel)?).ok()?;
    address::local(kernel).map(|local| local.port())
}
