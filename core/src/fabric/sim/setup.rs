//! How simulated connections are made and ended.

use core::net::{IpAddr, SocketAddr};

use super::{
    Host,
    world::{Action, Connection, End, Flight, Listener, Notice, Phase, Role, World},
};
use crate::{
    error::{Errno, Result},
    fabric::{ConnectFailure, ConnectTo, ListenOn, Token},
    work::TransportError,
};

/// Private data in a request has this many bytes left in the TCP port space; shorter data is padded, longer refused.
const REQUEST_DATA: usize = 56;

/// The same for a reply.
const REPLY_DATA: usize = 196;

fn padded(data: &[u8], len: usize) -> Result<Vec<u8>> {
    let mut padded = data.to_vec();
    if padded.len() > len {
        return Err(Errno::INVAL);
    }
    padded.resize(len, 0);
    Ok(padded)
}

impl World {
    pub(super) fn connect(&mut self, host: Host, to: &ConnectTo, token: Token) -> core::result::Result<(), ConnectFailure> {
        let state = self.hosts.get_mut(host.0).filter(|state| !state.dead && !state.without_device).ok_or(ConnectFailure::NoRoute)?;
        let bound = to.local.filter(|local| !local.ip().is_unspecified());
        let usual = state.addresses.iter().copied().find(|address| address.is_ipv4() == to.peer.ip().to_canonical().is_ipv4());
        let address = bound.map(|local| local.ip()).or(usual).ok_or(ConnectFailure::NoRoute)?;
        let port = match to.local.map_or(0, |local| local.port()) {
            0 => {
                state.last_port = state.last_port.checked_add(1).unwrap_or(32_768);
                state.last_port
            }
            port => port,
        };
        let side = self.new_side(host, &to.endpoint, SocketAddr::new(address, port), to.peer);
        let mut active = side.map_err(ConnectFailure::Limit)?;
        active.token = token;
        let connection = self.fresh_id();
        self.connections.insert(connection, Connection { active, passive: None });
        let end = End { connection, role: Role::Active };
        self.note(format_args!("{end:?} connect {}", to.peer));
        self.manage(Action::Resolved(end));
        Ok(())
    }

    pub(super) fn resolved(&mut self, end: End) {
        let Some(peer) = self.side(end).filter(|side| !side.gone).map(|side| side.peer) else { return };
        if self.host_of(peer.ip()).is_none_or(|host| self.hosts.get(host.0).is_none_or(|state| state.without_device)) {
            return self.fail(end, ConnectFailure::NoRoute);
        }
        self.manage(Action::Notify(Notice::Ready(end)));
    }

    pub(super) fn cancel(&mut self, host: Host, token: Token) {
        let unready = |side: &super::world::Side| side.host == host && side.token == token && side.phase == Phase::Resolving;
        self.connections.retain(|_, connection| !unready(&connection.active));
    }

    /// The active program sends its request.
    pub(super) fn request(&mut self, end: End, private_data: &[u8]) -> Result<()> {
        let private_data = padded(private_data, REQUEST_DATA)?;
        self.leave_phase(end, Phase::Resolving, Phase::Connecting)?;
        self.manage(Action::Request { end, private_data });
        Ok(())
    }

    /// The passive program sends its reply.
    pub(super) fn accept(&mut self, end: End, private_data: &[u8]) -> Result<()> {
        let private_data = padded(private_data, REPLY_DATA)?;
        self.leave_phase(end, Phase::Incoming, Phase::Accepting)?;
        self.manage(Action::Reply { end: end.other(), private_data });
        Ok(())
    }

    /// Fails with EINVAL if the side is in another phase. An end that is over already fails by an event, as the program cannot know.
    fn leave_phase(&mut self, end: End, from: Phase, to: Phase) -> Result<()> {
        let side = self.side(end).filter(|side| !side.gone).ok_or(Errno::NODEV)?;
        let (phase, receives) = (side.phase, side.receives);
        if phase == Phase::Over {
            self.manage(Action::Notify(Notice::Failed { end, reason: ConnectFailure::Other(Errno::CONNRESET) }));
            return Ok(());
        }
        if phase != from {
            self.violation(end, format_args!("{to:?} asked for in {phase:?}"));
            return Err(Errno::INVAL);
        }
        if receives == 0 {
            self.violation(end, format_args!("no receives posted before {to:?}"));
        }
        self.set_phase(end, to);
        Ok(())
    }

    fn set_phase(&mut self, end: End, phase: Phase) {
        let now = self.now;
        let Some(side) = self.side(end) else { return };
        let old = core::mem::replace(&mut side.phase, phase);
        if phase == Phase::Established {
            side.up_at = now;
        }
        self.note(format_args!("{end:?} {old:?} -> {phase:?}"));
    }

    pub(super) fn request_arrives(&mut self, end: End, private_data: Vec<u8>) {
        let waiting = self.side(end).filter(|side| side.phase == Phase::Connecting && !side.gone);
        let Some((from, peer, local)) = waiting.map(|side| (side.host, side.peer, side.local)) else { return };
        let Some(host) = self.host_of(peer.ip()) else { return self.fail(end, ConnectFailure::NoRoute) };
        if !self.answers(from, host) {
            return self.schedule(self.now + self.settings.timing.connect, Action::ConnectTimeout(end));
        }
        let Some(listener) = self.listener_for(host, peer) else { return self.fail(end, ConnectFailure::Refused) };
        let (id, token, config, mapped) = (listener.id, listener.token, listener.endpoint, listener.addr.is_ipv6() && peer.is_ipv4());
        let as_seen = |addr: SocketAddr| match addr.ip() {
            IpAddr::V4(v4) if mapped => SocketAddr::new(IpAddr::V6(v4.to_ipv6_mapped()), addr.port()),
            _ => addr,
        };
        let Ok(mut passive) = self.new_side(host, &config, as_seen(peer), as_seen(local)) else {
            return self.fail(end, ConnectFailure::Refused);
        };
        passive.phase = Phase::Incoming;
        if let Some(listener) = self.listeners.iter_mut().find(|listener| listener.id == id) {
            listener.incoming.push(end.connection);
        }
        if let Some(connection) = self.connections.get_mut(&end.connection) {
            connection.passive = Some(passive);
        }
        self.manage(Action::Notify(Notice::Incoming { end: end.other(), listener: token, private_data }));
    }

    /// The listener for a destination, if its backlog has room.
    fn listener_for(&self, host: Host, to: SocketAddr) -> Option<&Listener> {
        let takes = |listener: &&Listener| {
            let wildcard =
                listener.addr.ip().is_unspecified() && (listener.addr.is_ipv4() == to.is_ipv4() || (to.is_ipv4() && !listener.v6_only));
            listener.host == host && listener.addr.port() == to.port() && (listener.addr.ip() == to.ip() || wildcard)
        };
        let waits = |connection: &&u64| {
            let passive = self.connections.get(connection).and_then(|connection| connection.passive.as_ref());
            passive.is_some_and(|side| side.phase == Phase::Incoming && !side.gone)
        };
        let room = |listener: &&Listener| listener.incoming.iter().filter(waits).count() < listener.backlog.max(1);
        self.listeners.iter().find(takes).filter(room)
    }

    pub(super) fn reply_arrives(&mut self, end: End, private_data: Vec<u8>) {
        let passive = end.other();
        if !self.linked(end) {
            let time = self.now + self.settings.timing.connect;
            self.schedule(time, Action::ConnectTimeout(end));
            return self.schedule(time, Action::ConnectTimeout(passive));
        }
        if self.side(end).is_none_or(|side| side.gone || side.phase != Phase::Connecting) {
            return self.fail(passive, ConnectFailure::Other(Errno::CONNRESET));
        }
        if self.side(passive).is_none_or(|side| side.gone) {
            return;
        }
        self.set_phase(end, Phase::Established);
        self.schedule(self.now, Action::Notify(Notice::Established { end, private_data }));
        self.manage(Action::Confirmed(passive));
    }

    pub(super) fn confirmed(&mut self, end: End) {
        if self.side(end).is_some_and(|side| side.phase == Phase::Accepting) {
            self.set_phase(end, Phase::Established);
            self.schedule(self.now, Action::Notify(Notice::Established { end, private_data: Vec::new() }));
        }
    }

    /// A connection that is not made.
    pub(super) fn fail(&mut self, end: End, reason: ConnectFailure) {
        let making = [Phase::Resolving, Phase::Connecting, Phase::Accepting];
        if self.side(end).is_some_and(|side| making.contains(&side.phase)) {
            self.set_phase(end, Phase::Over);
            self.manage(Action::Notify(Notice::Failed { end, reason }));
        }
    }

    pub(super) fn reject(&mut self, end: End) {
        if self.side(end).is_some_and(|side| side.phase == Phase::Incoming) {
            self.set_phase(end, Phase::Over);
            self.manage(Action::PeerGone(end.other()));
        }
    }

    pub(super) fn disconnect(&mut self, end: End) {
        let Some(phase) = self.side(end).filter(|side| !side.gone).map(|side| side.phase) else { return };
        match phase {
            Phase::Established | Phase::Accepting => {
                self.set_phase(end, Phase::Closing);
                self.send(end, Flight::Disconnect);
            }
            Phase::Resolving | Phase::Connecting | Phase::Incoming => {
                self.set_phase(end, Phase::Over);
                self.manage(Action::PeerGone(end.other()));
            }
            Phase::Closing | Phase::Over => {}
        }
    }

    /// A disconnect has arrived at the other end.
    pub(super) fn disconnect_arrives(&mut self, end: End) {
        self.end_orderly(end.other());
        self.manage(Action::Finished(end));
    }

    pub(super) fn finished(&mut self, end: End) {
        self.end_orderly(end);
    }

    /// Everything posted is flushed, and the program is told, once.
    fn end_orderly(&mut self, end: End) {
        if self.side(end).is_none_or(|side| side.gone || side.phase == Phase::Over) {
            return;
        }
        self.break_off(end, None);
        self.set_phase(end, Phase::Over);
        let after = self.side(end).map_or(0, |side| side.completion_last);
        let time = after.max(self.now + self.random.within(&self.settings.timing.manager.clone()));
        self.schedule(time, Action::Notify(Notice::Disconnected(end)));
    }

    pub(super) fn peer_gone(&mut self, end: End) {
        let Some(phase) = self.side(end).filter(|side| !side.gone).map(|side| side.phase) else { return };
        let linked = self.linked(end);
        match phase {
            // Whoever does not answer any more is noticed when something is sent to it.
            Phase::Established | Phase::Closing if !linked => {}
            Phase::Established | Phase::Closing => self.end_orderly(end),
            Phase::Connecting if !linked => self.schedule(self.now + self.settings.timing.connect, Action::ConnectTimeout(end)),
            Phase::Connecting => self.fail(end, ConnectFailure::Refused),
            Phase::Accepting => self.fail(end, ConnectFailure::Other(Errno::CONNRESET)),
            Phase::Incoming => self.set_phase(end, Phase::Over),
            Phase::Resolving | Phase::Over => {}
        }
    }

    /// The handle of this end is dropped, or its program dies.
    pub(super) fn leave(&mut self, end: End) {
        let Some(side) = self.side(end).filter(|side| !side.gone) else { return };
        side.gone = true;
        side.lane.clear();
        side.receives = 0;
        self.note(format_args!("{end:?} gone"));
        let other_gone = self.side(end.other()).is_none_or(|side| side.gone);
        if other_gone {
            self.connections.remove(&end.connection);
        } else {
            self.manage(Action::PeerGone(end.other()));
        }
    }

    pub(super) fn retry_timeout(&mut self, end: End) {
        let linked = self.linked(end) && self.side(end.other()).is_some_and(|side| !side.gone);
        let Some(side) = self.side(end) else { return };
        side.retrying = false;
        if linked || side.gone || side.lane.is_empty() {
            return;
        }
        let closing = side.phase == Phase::Closing;
        self.break_off(end, Some(TransportError::RetryExceeded));
        if closing {
            self.end_orderly(end);
        }
    }

    pub(super) fn kill(&mut self, host: Host) {
        self.note(format_args!("{host:?} killed"));
        if let Some(state) = self.hosts.get_mut(host.0) {
            state.dead = true;
            state.notices.clear();
        }
        self.listeners.retain(|listener| listener.host != host);
        let ids: Vec<u64> = self.connections.keys().copied().collect();
        for connection in ids {
            for role in [Role::Active, Role::Passive] {
                let end = End { connection, role };
                if self.side(end).is_some_and(|side| side.host == host) {
                    self.leave(end);
                }
            }
        }
    }

    /// Fails with EADDRNOTAVAIL for a foreign address, EADDRINUSE for a port that has a listener, ENODEV without a device.
    pub(super) fn listen(&mut self, host: Host, on: &ListenOn, token: Token) -> Result<(u64, SocketAddr)> {
        let id = self.fresh_id();
        let state = self.hosts.get_mut(host.0).filter(|state| !state.dead && !state.without_device).ok_or(Errno::NODEV)?;
        let mut addr = on.addr;
        if !addr.ip().is_unspecified() && !state.addresses.contains(&addr.ip().to_canonical()) {
            return Err(Errno::ADDRNOTAVAIL);
        }
        if addr.port() == 0 {
            state.last_port = state.last_port.checked_add(1).unwrap_or(32_768);
            addr.set_port(state.last_port);
        }
        let overlaps = |other: &Listener| {
            let same = other.addr.ip() == addr.ip() || other.addr.ip().is_unspecified() || addr.ip().is_unspecified();
            other.host == host && other.addr.port() == addr.port() && other.addr.is_ipv4() == addr.is_ipv4() && same
        };
        if self.listeners.iter().any(overlaps) {
            return Err(Errno::ADDRINUSE);
        }
        let backlog = usize::try_from(on.backlog).unwrap_or(usize::MAX);
        let listener = Listener { id, host, addr, v6_only: on.v6_only, token, backlog, endpoint: on.endpoint, incoming: Vec::new() };
        self.listeners.push(listener);
        Ok((id, addr))
    }

    pub(super) fn stop_listening(&mut self, id: u64) {
        self.listeners.retain(|listener| listener.id != id);
    }
}
