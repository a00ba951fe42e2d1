//! Shared memory, for a peer in the same network namespace: no device, no daemon, nothing left behind.
//!
//! A listener also listens on an abstract Unix socket (`name`). Who finds it there sends a request and gets an answer (`greeting`); with
//! each goes a sealed memory file that the other end may write (`memory`). The socket stays: it wakes a sleeping peer and tells of its
//! end (`channel`). Bytes for memory of the program's go by way of the writer's file (`placing`). `endpoint` is one end of a connection, `event` what they share.
//!
//! Nothing here blocks. A client connects within its own call, so that its [`Fabric::connect`] gives an endpoint at once and the answer
//! comes as [`Endpoint::outcome`](super::Endpoint::outcome).

use core::{
    net::{IpAddr, Ipv4Addr, SocketAddr},
    sync::atomic::{AtomicBool, AtomicU32},
    time::Duration,
};
use std::{os::fd::RawFd, sync::Arc};

use rustix::{
    fd::{AsFd, AsRawFd},
    net::{AddressFamily, SocketFlags, SocketType, getsockname},
};

use crate::{
    config,
    error::{Errno, Result},
    fabric::{ConnectFailure, ConnectTo, EndpointConfig, Event, EventFds, Fabric, ListenOn, Listening, Started, Token},
    log_debug,
    sys::{descriptor::OwnFd, lock::Leaf},
};

mod channel;
pub mod datagram;
mod endpoint;
mod event;
mod greeting;
mod memory;
mod name;
mod placing;
#[cfg(test)]
pub(crate) mod tests;

use endpoint::{Parts, ShmEndpoint};
use event::{Rendezvous, Shared};
use memory::{Kept, Layout};

/// Ports that a client is given where the kernel has none for it: its default range (ip(7), ip_local_port_range).
const PORTS: core::ops::RangeInclusive<u16> = 32_768..=60_999;
/// How long a thread that waits for clients waits for the request of one that has connected. It follows the connect within some
/// microseconds: taken at once it needs no other thread.
const PATIENCE: Duration = Duration::from_micros(100);
/// Names that are tried for a listener that has no port.
const PORT_TRIES: usize = 100;

/// The fabric of shared memory.
pub struct Shm {
    shared: Arc<Shared>,
}

impl Shm {
    /// Makes it; EMFILE and the like where that is not possible.
    pub fn open() -> Result<Arc<Shm>> {
        Ok(Arc::new(Shm { shared: Arc::new(Shared::new(config::get().shm_any_uid)?) }))
    }

    /// Whether there is neither a listener nor a connection.
    #[cfg(test)]
    pub(crate) fn is_unused(&self) -> bool {
        Arc::strong_count(&self.shared) == 1 && self.shared.watched_count() == 0
    }

    /// No connection is young any more.
    #[cfg(test)]
    pub(crate) fn grow_up(&self) {
        self.shared.grow_up();
    }

    fn port(&self) -> u16 {
        let many = PORTS.end() - PORTS.start() + 1;
        // A multiplicative hash of a counter: far apart, and only after a long time the same.
        PORTS.start() + (self.shared.key().wrapping_mul(0x9e37_79b1) >> 16) as u16 % many
    }

    /// The client's address. Where it has no port yet, the kernel's socket is bound: so nobody else gets that port.
    fn client_addr(&self, to: &ConnectTo, source: IpAddr) -> SocketAddr {
        let bound = to.local.filter(|local| local.port() != 0);
        let ip = to.local.map(|local| local.ip()).filter(|ip| !ip.is_unspecified()).unwrap_or(source);
        let port = bound.map(|bound| bound.port()).or_else(|| to.kernel?.reserve()).unwrap_or_else(|| self.port());
        let mut addr = to.peer;
        addr.set_ip(ip);
        addr.set_port(port);
        addr
    }
}

/// The address that the kernel connects from, if `peer` is an address of this host. (A packet to oneself comes from where it goes.)
fn source_on_this_host(peer: SocketAddr) -> Option<IpAddr> {
    match peer.ip() {
        IpAddr::V4(ip) if ip.is_loopback() => return Some(Ipv4Addr::LOCALHOST.into()),
        ip if ip.is_loopback() => return Some(ip),
        _ => {}
    }
    let family = if peer.is_ipv4() { AddressFamily::INET } else { AddressFamily::INET6 };
    let probe = rustix::net::socket_with(family, SocketType::DGRAM, SocketFlags::CLOEXEC, None).ok()?;
    // udp(7): connecting sends nothing, but chooses the source address.
    rustix::net::connect(&probe, &peer).ok()?;
    let source = SocketAddr::try_from(getsockname(&probe).ok()?).ok()?;
    (source.ip() == peer.ip()).then_some(peer.ip())
}

impl Fabric for Shm {
    fn connect(&self, to: &ConnectTo, token: Token) -> core::result::Result<Started, ConnectFailure> {
        let source = source_on_this_host(to.peer).ok_or(ConnectFailure::NoRoute)?;
        let channel = match channel::connect(&name::candidates(to.peer), self.shared.endpoints()) {
            Ok(Some(channel)) => channel,
            Ok(None) if self.is_marked(to.peer) => return Err(ConnectFailure::Deferred),
            Ok(None) => return Err(ConnectFailure::Refused),
            Err(errno @ (Errno::MFILE | Errno::NFILE | Errno::NOMEM)) => return Err(ConnectFailure::Limit(errno)),
            Err(errno) => return Err(ConnectFailure::Other(errno)),
        };
        let uid = channel::peer_uid(channel.as_fd());
        if !self.shared.lets_in(uid) {
            log_debug!("{}: left to others: the listener is of {}", to.peer, channel::user(uid));
            return Err(ConnectFailure::Refused);
        }
        let layout = Layout::of(&to.endpoint).map_err(ConnectFailure::Limit)?;
        let own = self.shared.memory(layout).map_err(ConnectFailure::Limit)?;
        // A server that has accepted keeps its connection: what this end cannot map later would be one that nobody uses.
        let kept = Kept::new(to.endpoint.send_bytes, Some(layout)).map_err(ConnectFailure::Limit)?;
        let client = self.client_addr(to, source);
        let channel = Arc::new(channel);
        let parts = Parts { shared: Arc::clone(&self.shared), channel, own, peer: None, kept, client, server: to.peer, token };
        Ok(Started::Ready(Box::new(ShmEndpoint::new(parts, &to.endpoint))))
    }

    fn cancel(&self, _token: Token) {
        // Whoever has the endpoint drops it.
    }

    fn listen(&self, on: &ListenOn, token: Token) -> Result<Box<dyn Listening>> {
        let mut addr = on.addr;
        let mut socket = Err(Errno::ADDRINUSE);
        for _ in 0..PORT_TRIES {
            if on.addr.port() == 0 {
                addr.set_port(self.port());
            }
            socket = channel::listen(name::of_listener(addr, on.v6_only));
            if on.addr.port() != 0 || !matches!(socket, Err(Errno::ADDRINUSE)) {
                break;
            }
        }
        let (id, quiet, user) = (self.shared.id(), AtomicBool::new(false), AtomicU32::new(event::user_now()));
        let rendezvous =
            Rendezvous { id, socket: socket?, quiet, token, addr, v6_only: on.v6_only, user, endpoint: Leaf::new(on.endpoint) };
        let rendezvous = Arc::new(rendezvous);
        self.shared.listen(&rendezvous)?;
        Ok(Box::new(Listener { rendezvous, shared: Arc::clone(&self.shared) }))
    }

    fn mark(&self, on: &ListenOn) -> Option<OwnFd> {
        channel::mark(&name::of_mark(&name::of_listener(on.addr, on.v6_only))).ok()
    }

    fn is_marked(&self, peer: SocketAddr) -> bool {
        source_on_this_host(peer).is_some() && channel::is_marked(&name::candidates(peer).map(|name| name::of_mark(&name)))
    }

    fn decline(&self, peer: SocketAddr) {
        if source_on_this_host(peer).is_some() {
            // What comes and goes without a request has no use for the listener.
            let _ = channel::connect(&name::candidates(peer), self.shared.endpoints());
        }
    }

    fn reaches_others(&self) -> bool {
        false
    }

    fn event_fds(&self) -> EventFds {
        EventFds::from_slice(&[self.shared.event_fd()])
    }

    fn events(&self, most: usize) -> Vec<Event> {
        self.shared.take_events(most)
    }
}

/// A listening socket, until it is dropped.
struct Listener {
    rendezvous: Arc<Rendezvous>,
    shared: Arc<Shared>,
}

impl Listening for Listener {
    fn local_addr(&self) -> SocketAddr {
        self.rendezvous.addr
    }

    fn peers_fd(&self) -> Option<RawFd> {
        Some(self.rendezvous.socket.as_raw_fd())
    }

    fn pause(&self) {
        channel::end(&self.rendezvous.socket);
    }

    fn attend(&self, attended: bool) {
        self.shared.attend(&self.rendezvous, attended);
    }

    fn resize(&self, endpoint: &EndpointConfig) {
        self.rendezvous.resize(endpoint);
    }

    fn take(&self, patient: bool) -> Result<Option<Event>> {
        if patient { self.shared.await_client(&self.rendezvous, PATIENCE) } else { Ok(self.shared.take_client(&self.rendezvous)) }
    }
}

impl Drop for Listener {
    fn drop(&mut self) {
        self.shared.unlisten(&self.rendezvous);
        // Children of the program may hold the descriptor too: nobody shall come to a listener that nobody serves.
        channel::end(&self.rendezvous.socket);
    }
}
