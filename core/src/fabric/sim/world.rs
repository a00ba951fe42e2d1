//! The state of a simulation: clock, agenda, hosts, and the two sides of each connection. `setup` makes and ends connections,
//! `traffic` moves requests and completions.

use core::net::{IpAddr, SocketAddr};
use std::{
    collections::{BTreeMap, BTreeSet, VecDeque},
    sync::Arc,
};

use rustix::fd::OwnedFd;

use super::{Host, Random, Settings, lent::Lent};
use crate::{
    error::Result,
    fabric::{ConnectFailure, EndpointConfig, EndpointLimits, Region, Token},
    sys::descriptor,
    wire::Sge,
    work::{Completion, ExposedMemory, WorkRequest},
};

const MOST_VIOLATIONS: usize = 100;
const MOST_TRACE: usize = 1000;

/// How long an acceptor on iWARP has to leave the first word to its peer, in nanoseconds: one that says nothing else is not waited for.
pub(super) const FIRST_WORD: u64 = 1_000_000_000;

/// The distance of exposed areas in the simulated address space, in bytes; larger than any area.
pub(super) const ADDRESS_STEP: u64 = 1 << 32;

/// Which side of a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Role {
    Active,
    Passive,
}

/// One end of a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct End {
    pub(super) connection: u64,
    pub(super) role: Role,
}

impl End {
    pub(super) fn other(self) -> End {
        let role = match self.role {
            Role::Active => Role::Passive,
            Role::Passive => Role::Active,
        };
        End { role, ..self }
    }
}

/// The areas of an endpoint, shared by its handle and the world.
pub(super) struct Memory {
    pub(super) receive: Region,
    pub(super) send: Region,
    pub(super) targets: Region,
}

/// How far a side is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Phase {
    /// Active: address and route are being found, or the endpoint waits for its connect.
    Resolving,
    /// Active: the request is under way.
    Connecting,
    /// Passive: waits for accept or reject.
    Incoming,
    /// Passive: the reply is under way.
    Accepting,
    /// Data flows.
    Established,
    /// Disconnecting; what was posted before is still delivered.
    Closing,
    /// Ended or failed.
    Over,
}

/// A request on its way, or the end of the connection behind all requests.
pub(super) enum Flight {
    Work {
        work: WorkRequest,
        /// The bytes, if they were copied when posted.
        inline: Option<Vec<u8>>,
    },
    Disconnect,
}

/// One end's queue pair.
pub(super) struct Side {
    pub(super) host: Host,
    pub(super) token: Token,
    pub(super) phase: Phase,
    /// The handle has been dropped, or its program has died.
    pub(super) gone: bool,
    /// The queue pair is in its error state: everything is flushed.
    pub(super) broken: bool,
    pub(super) memory: Arc<Memory>,
    pub(super) limits: EndpointLimits,
    pub(super) exposed: ExposedMemory,
    pub(super) local: SocketAddr,
    pub(super) peer: SocketAddr,
    /// Receives that wait for a message.
    pub(super) receives: u32,
    /// Received completions that have not been polled.
    pub(super) unpolled: u32,
    /// When it was established.
    pub(super) up_at: u64,
    /// A message has arrived.
    pub(super) heard: bool,
    pub(super) last_id: Option<u64>,
    /// Ids of posted requests that no polled completion covers.
    pub(super) outstanding: VecDeque<u64>,
    /// Requests under way to the other side, with their arrival times.
    pub(super) lane: VecDeque<(u64, Flight)>,
    /// Arrival time of the last one.
    pub(super) lane_last: u64,
    /// The first one has found no receive.
    pub(super) starved: bool,
    /// A retry time-out is under way.
    pub(super) retrying: bool,
    pub(super) completions: VecDeque<Completion>,
    /// Time of the last completion.
    pub(super) completion_last: u64,
    /// Announces the next completion once.
    pub(super) armed: bool,
    /// Where it is announced: see `Settings::descriptors`.
    pub(super) event: Option<Arc<OwnedFd>>,
}

/// A connection and the request that makes it.
pub(super) struct Connection {
    pub(super) active: Side,
    pub(super) passive: Option<Side>,
}

/// A listener.
pub(super) struct Listener {
    pub(super) id: u64,
    pub(super) host: Host,
    pub(super) addr: SocketAddr,
    pub(super) v6_only: bool,
    pub(super) token: Token,
    pub(super) backlog: usize,
    pub(super) endpoint: EndpointConfig,
    /// Connections that came in; those that wait for an answer count against the backlog.
    pub(super) incoming: Vec<u64>,
}

/// A host and what its program has not taken yet.
#[derive(Default)]
pub(super) struct HostState {
    pub(super) addresses: Vec<IpAddr>,
    pub(super) dead: bool,
    pub(super) silent: bool,
    pub(super) without_device: bool,
    pub(super) last_port: u16,
    pub(super) notices: VecDeque<Notice>,
    /// Readable while there are notices: see `Settings::descriptors`.
    pub(super) event: Option<Arc<OwnedFd>>,
}

/// An event for a program, before it gets its token and its handle.
pub(super) enum Notice {
    Ready(End),
    Incoming { end: End, listener: Token, private_data: Vec<u8> },
    Established { end: End, private_data: Vec<u8> },
    Failed { end: End, reason: ConnectFailure },
    Disconnected(End),
}

impl Notice {
    pub(super) fn end(&self) -> End {
        match self {
            Notice::Ready(end) | Notice::Disconnected(end) => *end,
            Notice::Incoming { end, .. } | Notice::Established { end, .. } | Notice::Failed { end, .. } => *end,
        }
    }

    fn name(&self) -> &'static str {
        match self {
            Notice::Ready(_) => "ready",
            Notice::Incoming { .. } => "incoming",
            Notice::Established { .. } => "established",
            Notice::Failed { .. } => "failed",
            Notice::Disconnected(_) => "disconnected",
        }
    }
}

/// What will happen.
pub(super) enum Action {
    /// The program gets an event.
    Notify(Notice),
    /// Route resolution has ended.
    Resolved(End),
    /// The connect request arrives.
    Request { end: End, private_data: Vec<u8> },
    /// The accept reply arrives.
    Reply { end: End, private_data: Vec<u8> },
    /// The passive side hears that its reply has arrived.
    Confirmed(End),
    /// A connection that got no answer is given up.
    ConnectTimeout(End),
    /// This end hears that the other one has gone.
    PeerGone(End),
    /// This end hears that its disconnect has arrived.
    Finished(End),
    /// Requests of this end may arrive.
    Advance(End),
    /// The retries of this end are over.
    RetryTimeout(End),
    /// A completion becomes visible.
    Complete(End, Completion),
}

/// The whole simulation.
pub(super) struct World {
    pub(super) now: u64,
    pub(super) settings: Settings,
    pub(super) random: Random,
    pub(super) hosts: Vec<HostState>,
    pub(super) connections: BTreeMap<u64, Connection>,
    pub(super) listeners: Vec<Listener>,
    pub(super) violations: Vec<String>,
    pub(super) trace: VecDeque<String>,
    pub(super) digest: u64,
    pub(super) not_ready: u64,
    /// Memory that programs have registered.
    pub(super) lent: Lent,
    /// Handles of endpoints that were not dropped yet.
    pub(super) held: usize,
    cuts: BTreeSet<(Host, Host)>,
    agenda: BTreeMap<(u64, u64), Action>,
    last_id: u64,
}

impl World {
    pub(super) fn new(settings: Settings) -> Self {
        World {
            now: 0,
            random: Random::new(settings.seed),
            settings,
            hosts: Vec::new(),
            connections: BTreeMap::new(),
            listeners: Vec::new(),
            violations: Vec::new(),
            trace: VecDeque::new(),
            digest: 0,
            not_ready: 0,
            lent: Lent::default(),
            held: 0,
            cuts: BTreeSet::new(),
            agenda: BTreeMap::new(),
            last_id: 0,
        }
    }

    pub(super) fn next_at(&self) -> Option<u64> {
        self.agenda.first_key_value().map(|((time, _), _)| *time)
    }

    pub(super) fn step(&mut self) -> bool {
        let Some(((time, _), action)) = self.agenda.pop_first() else { return false };
        self.now = self.now.max(time);
        match action {
            Action::Notify(notice) => self.notify(notice),
            Action::Resolved(end) => self.resolved(end),
            Action::Request { end, private_data } => self.request_arrives(end, private_data),
            Action::Reply { end, private_data } => self.reply_arrives(end, private_data),
            Action::Confirmed(end) => self.confirmed(end),
            Action::ConnectTimeout(end) => self.fail(end, ConnectFailure::TimedOut),
            Action::PeerGone(end) => self.peer_gone(end),
            Action::Finished(end) => self.finished(end),
            Action::Advance(end) => self.advance(end),
            Action::RetryTimeout(end) => self.retry_timeout(end),
            Action::Complete(end, completion) => self.completed(end, completion),
        }
        true
    }

    /// A number that nothing else has.
    pub(super) fn fresh_id(&mut self) -> u64 {
        self.last_id += 1;
        self.last_id
    }

    pub(super) fn schedule(&mut self, time: u64, action: Action) {
        let id = self.fresh_id();
        self.agenda.insert((time.max(self.now), id), action);
    }

    /// Schedules a step of the connection manager.
    pub(super) fn manage(&mut self, action: Action) {
        let time = self.now + self.random.within(&self.settings.timing.manager.clone());
        self.schedule(time, action);
    }

    fn notify(&mut self, notice: Notice) {
        let end = notice.end();
        self.note(format_args!("{end:?} {}", notice.name()));
        let host = self.side(end).filter(|side| !side.gone).map(|side| side.host);
        if let Some(state) = host.and_then(|host| self.hosts.get_mut(host.0)) {
            state.notices.push_back(notice);
            if let Some(event) = &state.event {
                descriptor::signal(&**event);
            }
        }
    }

    pub(super) fn next_notice(&mut self, host: Host) -> Option<Notice> {
        self.hosts.get_mut(host.0)?.notices.pop_front()
    }

    pub(super) fn side(&mut self, end: End) -> Option<&mut Side> {
        let connection = self.connections.get_mut(&end.connection)?;
        match end.role {
            Role::Active => Some(&mut connection.active),
            Role::Passive => connection.passive.as_mut(),
        }
    }

    pub(super) fn set_token(&mut self, end: End, token: Token) {
        if let Some(side) = self.side(end) {
            side.token = token;
        }
    }

    pub(super) fn arm(&mut self, end: End, armed: bool) {
        if let Some(side) = self.side(end) {
            side.armed = armed;
        }
    }

    /// Notes an event in trace and digest.
    pub(super) fn note(&mut self, text: core::fmt::Arguments<'_>) {
        let line = format!("{:>12} {text}", self.now);
        for byte in line.bytes() {
            self.digest = (self.digest ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3).rotate_left(7);
        }
        if self.trace.len() == MOST_TRACE {
            self.trace.pop_front();
        }
        self.trace.push_back(line);
    }

    /// Notes something that the contract forbids.
    pub(super) fn violation(&mut self, end: End, text: core::fmt::Arguments<'_>) {
        self.note(format_args!("{end:?} VIOLATION {text}"));
        if self.violations.len() < MOST_VIOLATIONS {
            let line = format!("{} {end:?} {text}", self.now);
            self.violations.push(line);
        }
    }

    pub(super) fn add_host(&mut self, addresses: &[IpAddr]) -> Host {
        self.hosts.push(HostState { addresses: addresses.to_vec(), last_port: 32_767, ..HostState::default() });
        Host(self.hosts.len() - 1)
    }

    pub(super) fn host_of(&self, address: IpAddr) -> Option<Host> {
        self.hosts.iter().position(|host| host.addresses.contains(&address.to_canonical())).map(Host)
    }

    pub(super) fn has_notices(&self, host: Host) -> bool {
        self.hosts.get(host.0).is_some_and(|state| !state.notices.is_empty())
    }

    /// Lets a dead host's program start again. Gives the descriptor for its notices.
    pub(super) fn revive(&mut self, host: Host) -> Option<Arc<OwnedFd>> {
        let with_event = self.settings.descriptors;
        let state = self.hosts.get_mut(host.0)?;
        if core::mem::take(&mut state.dead) {
            state.notices.clear();
            state.event = None;
        }
        if with_event && state.event.is_none() {
            state.event = descriptor::event().ok().map(Arc::new);
        }
        state.event.clone()
    }

    pub(super) fn without_device(&mut self, host: Host, without: bool) {
        if let Some(state) = self.hosts.get_mut(host.0) {
            state.without_device = without;
        }
    }

    pub(super) fn silence(&mut self, host: Host, silent: bool) {
        self.note(format_args!("{host:?} silent {silent}"));
        if let Some(state) = self.hosts.get_mut(host.0) {
            state.silent = silent;
        }
        if !silent {
            self.resume_all();
        }
    }

    pub(super) fn cut(&mut self, one: Host, other: Host) {
        self.note(format_args!("{one:?} {other:?} cut"));
        self.cuts.insert((one.min(other), one.max(other)));
    }

    pub(super) fn heal(&mut self, one: Host, other: Host) {
        self.note(format_args!("{one:?} {other:?} healed"));
        self.cuts.remove(&(one.min(other), one.max(other)));
        self.resume_all();
    }

    fn resume_all(&mut self) {
        let waiting: Vec<u64> = self.connections.keys().copied().collect();
        for connection in waiting {
            for role in [Role::Active, Role::Passive] {
                self.schedule(self.now, Action::Advance(End { connection, role }));
            }
        }
    }

    pub(super) fn answers(&self, one: Host, other: Host) -> bool {
        let silent = |host: Host| self.hosts.get(host.0).is_none_or(|state| state.silent);
        !silent(one) && !silent(other) && !self.cuts.contains(&(one.min(other), one.max(other)))
    }

    /// Whether the two ends of a connection reach each other.
    pub(super) fn linked(&self, end: End) -> bool {
        let Some(connection) = self.connections.get(&end.connection) else { return false };
        connection.passive.as_ref().is_some_and(|passive| self.answers(connection.active.host, passive.host))
    }

    /// Makes a queue pair. Fails with ENOMEM where its memory cannot be mapped.
    pub(super) fn new_side(&mut self, host: Host, config: &EndpointConfig, local: SocketAddr, peer: SocketAddr) -> Result<Side> {
        let area = |bytes: u32| Region::new(usize::try_from(bytes).unwrap_or(usize::MAX));
        let memory = Memory { receive: area(config.receive_bytes)?, send: area(config.send_bytes)?, targets: area(config.target_bytes)? };
        let exposed = ExposedMemory { receive: self.expose(config.receive_bytes), targets: self.expose(config.target_bytes) };
        let limits = EndpointLimits {
            send_queue: config.send_queue.min(self.settings.send_queue),
            receive_queue: config.receive_queue.min(self.settings.receive_queue),
            inline: config.inline.min(self.settings.inline),
            mode: self.settings.mode,
        };
        Ok(Side {
            host,
            token: Token::default(),
            phase: Phase::Resolving,
            gone: false,
            broken: false,
            memory: Arc::new(memory),
            limits,
            exposed,
            local,
            peer,
            receives: 0,
            unpolled: 0,
            up_at: 0,
            heard: false,
            last_id: None,
            outstanding: VecDeque::new(),
            lane: VecDeque::new(),
            lane_last: 0,
            starved: false,
            retrying: false,
            completions: VecDeque::new(),
            completion_last: 0,
            armed: false,
            event: self.settings.descriptors.then(descriptor::event).transpose()?.map(Arc::new),
        })
    }

    /// A piece of the simulated address space. Real addresses would make runs differ.
    fn expose(&mut self, length: u32) -> Sge {
        let id = self.fresh_id();
        let key = u32::try_from(self.random.number() >> 32).unwrap_or_default();
        Sge { addr: id * ADDRESS_STEP, key, length }
    }
}
