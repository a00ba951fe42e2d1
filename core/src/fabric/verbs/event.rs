//! Events of the connection manager, and who they are for.
//!
//! An id carries a serial number, never a pointer; [`Entries`] says what is behind it. An event whose serial number is not
//! there any more is acknowledged and dropped. While an event is not acknowledged another thread that destroys its id waits, so
//! the id may be used here; what is to be destroyed here is kept until after the acknowledgement. Lock: `entries`, a leaf that
//! is held for look-ups only.

use core::sync::atomic::{AtomicU64, Ordering};
use std::{
    collections::BTreeMap,
    sync::{Arc, Weak},
};

use rdma_sys::{rdma_cm_event, rdma_cm_event_type as kind, rdma_cm_id};

use super::{
    FAULTS,
    cm::{self, Channel, Handle, Id},
    datagram::Search,
    device::Devices,
    endpoint::{Reads, VerbsEndpoint},
    libs::Libs,
    queues::{self, Queues},
    spare::{Parts, Spares},
};
use crate::{
    error::{Errno, Result},
    fabric::{ConnectFailure, ConnectTo, EndpointConfig, Event, Token, warn_of_limit},
    stats::{self, Counter},
    sys::{
        inside,
        lock::{Leaf, LeafGuard},
    },
};

/// How long the route may take to resolve, in milliseconds.
pub(super) const ROUTE_TIMEOUT: i32 = 2000;

/// How long one try to resolve the address may take, in milliseconds, and how many there are: 2 s in all. Where the neighbour
/// is not known yet, the kernel (6.1) may look for its answer at the end of a try only, so a single long one would take its time.
pub(super) const ADDRESS_TIMEOUT: i32 = 50;
pub(super) const ADDRESS_TRIES: u32 = 40;

/// What stands behind a serial number.
pub(super) enum Entry {
    /// A connection that looks for its device and route.
    Resolving(Box<Resolving>),
    /// A connection that its socket owns.
    Connection {
        /// Whose it is; nobody's until an incoming one has been taken.
        token: Token,
        /// Whether the peer asked for it.
        passive: bool,
        /// The queues, which the endpoint owns.
        queues: Weak<Queues>,
    },
    /// A listener.
    Listener {
        /// Whose it is.
        token: Token,
        /// What incoming connections are made with.
        endpoint: EndpointConfig,
    },
    /// A path for datagrams that is looked for.
    Search(Box<Search>),
}

/// A connection that looks for its device and route. Nobody else owns its id.
pub(super) struct Resolving {
    /// Whose it is.
    pub(super) token: Token,
    /// Where to, and what to make once the device is known.
    pub(super) to: ConnectTo,
    /// Tries to resolve the address that are left.
    pub(super) tries: u32,
    /// What was made.
    pub(super) parts: Option<Parts>,
    /// The id, destroyed last.
    pub(super) id: Id,
}

impl Resolving {
    /// A connection that has just been asked for.
    pub(super) fn new(token: Token, to: &ConnectTo, id: Id) -> Self {
        Resolving { token, to: *to, tries: ADDRESS_TRIES, parts: None, id }
    }

    /// Starts the next try to resolve the address.
    pub(super) fn resolve(&mut self) -> Result<()> {
        self.tries = self.tries.checked_sub(1).ok_or(Errno::TIMEDOUT)?;
        self.id.resolve_addr(self.to.local, self.to.peer, ADDRESS_TIMEOUT)
    }
}

/// All entries by serial number.
#[derive(Default)]
pub(super) struct Entries {
    entries: BTreeMap<u64, Entry>,
    /// The serial numbers of [`Entry::Resolving`], for cancelling.
    resolving: BTreeMap<Token, u64>,
}

impl Entries {
    /// Adds an entry.
    pub(super) fn insert(&mut self, serial: u64, entry: Entry) {
        if let Entry::Resolving(resolving) = &entry {
            self.resolving.insert(resolving.token, serial);
        }
        self.entries.insert(serial, entry);
    }

    /// What connections that come in to a listener from now on are made with.
    pub(super) fn resize(&mut self, serial: u64, config: &EndpointConfig) {
        if let Some(Entry::Listener { endpoint, .. }) = self.entries.get_mut(&serial) {
            *endpoint = *config;
        }
    }

    /// Takes an entry out. To be dropped after the lock, and not before the event at hand is acknowledged.
    pub(super) fn remove(&mut self, serial: u64) -> Option<Entry> {
        let entry = self.entries.remove(&serial);
        if let Some(Entry::Resolving(resolving)) = &entry {
            self.resolving.remove(&resolving.token);
        }
        entry
    }

    /// A path that is looked for.
    pub(super) fn search(&mut self, serial: u64) -> Option<&mut Search> {
        match self.entries.get_mut(&serial) {
            Some(Entry::Search(search)) => Some(search),
            _ => None,
        }
    }

    /// Takes out the connection of `token` that is not ready yet.
    pub(super) fn cancel(&mut self, token: Token) -> Option<Entry> {
        let serial = *self.resolving.get(&token)?;
        self.remove(serial)
    }

    /// Gives a connection to a socket.
    pub(super) fn set_token(&mut self, serial: u64, to: Token) {
        if let Some(Entry::Connection { token, .. }) = self.entries.get_mut(&serial) {
            *token = to;
        }
    }
}

/// What endpoints, listeners and the fabric share.
pub(super) struct Shared {
    spares: Spares,
    channel: Arc<Channel>,
    devices: Devices,
    entries: Leaf<Entries>,
    next_serial: AtomicU64,
}

/// What an event amounts to, and an id that is to be destroyed once the event is acknowledged.
struct Outcome {
    event: Option<Event>,
    leftover: Option<Id>,
}

impl Outcome {
    const NOTHING: Outcome = Outcome { event: None, leftover: None };

    fn event(event: Event) -> Self {
        Outcome { event: Some(event), leftover: None }
    }

    fn failed(id: Id, token: Token, reason: ConnectFailure) -> Self {
        Outcome { event: Some(Event::Failed { token, reason }), leftover: Some(id) }
    }
}

/// The parts of an event that are used, copied out.
struct Report {
    what: kind::Type,
    status: i32,
    id: *mut rdma_cm_id,
    listen_id: *mut rdma_cm_id,
    private_data: Vec<u8>,
    reads: Reads,
}

impl Shared {
    pub(super) fn new(libs: &'static Libs, channel: Channel) -> Self {
        Shared {
            spares: Spares::default(),
            channel: Arc::new(channel),
            devices: Devices::new(libs),
            entries: Leaf::new(Entries::default()),
            next_serial: AtomicU64::new(1),
        }
    }

    pub(super) fn channel(&self) -> &Arc<Channel> {
        &self.channel
    }

    pub(super) fn spares(&self) -> &Spares {
        &self.spares
    }

    pub(super) fn devices(&self) -> &Devices {
        &self.devices
    }

    pub(super) fn entries(&self) -> LeafGuard<'_, Entries> {
        self.entries.lock()
    }

    /// A serial number that was never used.
    pub(super) fn serial(&self) -> u64 {
        self.next_serial.fetch_add(1, Ordering::Relaxed)
    }

    /// Takes the events that are there, at most `most`.
    pub(super) fn take_events(self: &Arc<Self>, most: usize) -> Vec<Event> {
        let _inside = inside::enter_uncancelled();
        let mut events = Vec::new();
        for _ in 0..most {
            let Some(raw) = self.channel.next() else { break };
            // SAFETY: the event came just now and is not acknowledged yet.
            let report = unsafe { read(raw) };
            let Outcome { event, leftover } = self.handle(&report);
            self.channel.acknowledge(raw);
            // Only now may ids be destroyed.
            drop(leftover);
            events.extend(event);
        }
        events
    }

    fn handle(self: &Arc<Self>, report: &Report) -> Outcome {
        // SAFETY: the id of an event that is not acknowledged is valid.
        let serial = cm::from_context(unsafe { (*report.id).context });
        // SAFETY: used within this function only, before the acknowledgement.
        let id = unsafe { Handle::of_event(&self.channel, report.id) };
        if let Some(leftover) = self.searched(serial, report.what, report.status) {
            return Outcome { event: None, leftover };
        }
        match report.what {
            kind::RDMA_CM_EVENT_ADDR_RESOLVED => self.address_resolved(serial, &id),
            kind::RDMA_CM_EVENT_ROUTE_RESOLVED => self.route_resolved(serial),
            kind::RDMA_CM_EVENT_CONNECT_REQUEST => self.requested(report),
            kind::RDMA_CM_EVENT_CONNECT_RESPONSE => self.answered(serial, &id, report),
            kind::RDMA_CM_EVENT_ESTABLISHED => self.established(serial, report),
            kind::RDMA_CM_EVENT_DISCONNECTED | kind::RDMA_CM_EVENT_DEVICE_REMOVAL => self.disconnected(serial, &id),
            kind::RDMA_CM_EVENT_ADDR_ERROR => self.address_failed(serial, report.status),
            kind::RDMA_CM_EVENT_ROUTE_ERROR | kind::RDMA_CM_EVENT_UNREACHABLE => self.failed(serial, unreachable(report.status)),
            kind::RDMA_CM_EVENT_REJECTED => self.failed(serial, ConnectFailure::Refused),
            kind::RDMA_CM_EVENT_CONNECT_ERROR => {
                self.failed(serial, ConnectFailure::Other(cm::status_errno(report.status).unwrap_or(Errno::CONNABORTED)))
            }
            _ => Outcome::NOTHING,
        }
    }

    /// Queues and memory for a connection on the id's device, the queue pair in INIT.
    fn parts(&self, id: &Handle, config: &EndpointConfig) -> Result<Parts> {
        let device = self.devices.get(id.verbs())?;
        if !queues::may_make_more() {
            return Err(Errno::MFILE);
        }
        let parts = self.spares.parts(&device, config)?;
        parts.queues.initialise(id)?;
        Ok(parts)
    }

    /// The device is known: ask for the route and make queues and memory meanwhile.
    fn address_resolved(self: &Arc<Self>, serial: u64, id: &Handle) -> Outcome {
        let to = match self.entries().entries.get(&serial) {
            Some(Entry::Resolving(resolving)) => resolving.to,
            _ => return Outcome::NOTHING,
        };
        let routed = to.path.map_or_else(|| id.resolve_route(ROUTE_TIMEOUT), |path| id.set_path(&path));
        let made = match routed {
            Ok(()) => self.parts(id, &to.endpoint).map_err(limit),
            Err(errno) => Err(start_failure(errno)),
        };
        match made {
            Ok(parts) => match self.entries().entries.get_mut(&serial) {
                Some(Entry::Resolving(resolving)) => resolving.parts = Some(parts),
                // Cancelled meanwhile.
                _ => return Outcome::NOTHING,
            },
            Err(reason) => return self.failed(serial, reason),
        }
        Outcome::NOTHING
    }

    fn address_failed(self: &Arc<Self>, serial: u64, status: i32) -> Outcome {
        let reason = unreachable(status);
        if reason == ConnectFailure::TimedOut
            && let Some(Entry::Resolving(resolving)) = self.entries().entries.get_mut(&serial)
            && resolving.resolve().is_ok()
        {
            return Outcome::NOTHING;
        }
        self.failed(serial, reason)
    }

    fn route_resolved(self: &Arc<Self>, serial: u64) -> Outcome {
        let mut entries = self.entries();
        let entry = match entries.remove(serial) {
            Some(Entry::Resolving(resolving)) => *resolving,
            Some(other) => {
                entries.insert(serial, other);
                return Outcome::NOTHING;
            }
            None => return Outcome::NOTHING,
        };
        let Resolving { token, parts, id, .. } = entry;
        let Some(parts) = parts else {
            return Outcome::failed(id, token, ConnectFailure::Other(Errno::IO));
        };
        entries.insert(serial, Entry::Connection { token, passive: false, queues: Arc::downgrade(&parts.queues) });
        drop(entries);
        let endpoint = Box::new(VerbsEndpoint::new(self, id, serial, parts, Reads::default()));
        Outcome::event(Event::Ready { token, endpoint })
    }

    /// A peer wants to connect.
    fn requested(self: &Arc<Self>, report: &Report) -> Outcome {
        // SAFETY: a connect request names a valid listener until it is acknowledged.
        let listener = cm::from_context(unsafe { (*report.listen_id).context });
        let serial = self.serial();
        // SAFETY: the id came with this request, which is handled once.
        let id = unsafe { Id::adopt(&self.channel, report.id, serial) };
        let (listener, config) = match self.entries().entries.get(&listener) {
            Some(Entry::Listener { token, endpoint }) => (*token, *endpoint),
            _ => {
                id.reject();
                return Outcome { event: None, leftover: Some(id) };
            }
        };
        let parts = match self.parts(&id, &config) {
            Ok(parts) => parts,
            Err(errno) => {
                FAULTS.incoming_failed.fetch_add(1, Ordering::Relaxed);
                FAULTS.last_errno.store(errno.raw_os_error(), Ordering::Relaxed);
                // The peer learns only that it is refused, and comes back over TCP.
                stats::add(Counter::FallbackLimit, 1);
                warn_of_limit(errno);
                id.reject();
                return Outcome { event: None, leftover: Some(id) };
            }
        };
        let queues = Arc::downgrade(&parts.queues);
        self.entries().insert(serial, Entry::Connection { token: Token::default(), passive: true, queues });
        let endpoint = Box::new(VerbsEndpoint::new(self, id, serial, parts, report.reads));
        Outcome::event(Event::Incoming { listener, endpoint, private_data: report.private_data.clone() })
    }

    /// The peer has accepted: bring the queue pair up and tell it so.
    fn answered(self: &Arc<Self>, serial: u64, id: &Handle, report: &Report) -> Outcome {
        let Some((token, _, Some(queues))) = self.connection(serial) else { return Outcome::NOTHING };
        match queues.ready(id).and_then(|()| id.establish()) {
            Ok(()) => Outcome::event(Event::Established { token, private_data: report.private_data.clone() }),
            Err(errno) => Outcome::event(Event::Failed { token, reason: limit(errno) }),
        }
    }

    fn established(self: &Arc<Self>, serial: u64, report: &Report) -> Outcome {
        match self.connection(serial) {
            Some((token, passive, _)) => {
                let private_data = if passive { Vec::new() } else { report.private_data.clone() };
                Outcome::event(Event::Established { token, private_data })
            }
            None => Outcome::NOTHING,
        }
    }

    /// Ends the queue pair, so that whoever waits for a completion wakes up, and answers the peer.
    fn disconnected(self: &Arc<Self>, serial: u64, id: &Handle) -> Outcome {
        let Some((token, _, queues)) = self.connection(serial) else { return Outcome::NOTHING };
        if queues.as_ref().is_none_or(|queues| queues.begin_end()) {
            if let Some(queues) = queues {
                queues.flush();
            }
            id.disconnect();
        }
        Outcome::event(Event::Disconnected { token })
    }

    /// A connection was not made. One that still resolves is taken out; the socket drops any other.
    fn failed(self: &Arc<Self>, serial: u64, reason: ConnectFailure) -> Outcome {
        if let Some((token, _, _)) = self.connection(serial) {
            return Outcome::event(Event::Failed { token, reason });
        }
        let mut entries = self.entries();
        match entries.remove(serial) {
            Some(Entry::Resolving(resolving)) => {
                let Resolving { token, id, .. } = *resolving;
                Outcome::failed(id, token, reason)
            }
            Some(other) => {
                entries.insert(serial, other);
                Outcome::NOTHING
            }
            None => Outcome::NOTHING,
        }
    }

    /// A connection that a socket owns: its token, whether it is passive, its queues.
    fn connection(&self, serial: u64) -> Option<(Token, bool, Option<Arc<Queues>>)> {
        match self.entries().entries.get(&serial) {
            Some(Entry::Connection { token, passive, queues }) if *token != Token::default() => Some((*token, *passive, queues.upgrade())),
            _ => None,
        }
    }
}

/// Copies out of an event what is used.
///
/// # Safety
/// The event must come from the channel and not be acknowledged yet.
unsafe fn read(raw: *mut rdma_cm_event) -> Report {
    // SAFETY: the caller's promise.
    let event = unsafe { &*raw };
    // SAFETY: connection parameters are plain numbers, and zeroed where the event has none, as all have that ids for datagrams get here.
    let conn = unsafe { event.param.conn };
    let private_data = if conn.private_data.is_null() || !carries_data(event.event) {
        Vec::new()
    } else {
        // SAFETY: the library says that so many bytes are there until the acknowledgement.
        unsafe { core::slice::from_raw_parts(conn.private_data.cast::<u8>(), usize::from(conn.private_data_len)) }.to_vec()
    };
    Report {
        what: event.event,
        status: event.status,
        id: event.id,
        listen_id: event.listen_id,
        private_data,
        reads: Reads { responder_resources: conn.responder_resources, initiator_depth: conn.initiator_depth },
    }
}

/// The events whose private data is used.
fn carries_data(what: kind::Type) -> bool {
    matches!(what, kind::RDMA_CM_EVENT_CONNECT_REQUEST | kind::RDMA_CM_EVENT_CONNECT_RESPONSE | kind::RDMA_CM_EVENT_ESTABLISHED)
}

/// Why the peer cannot be reached.
pub(super) fn unreachable(status: i32) -> ConnectFailure {
    match cm::status_errno(status) {
        Some(Errno::TIMEDOUT) => ConnectFailure::TimedOut,
        Some(errno) => start_failure(errno),
        None => ConnectFailure::NoRoute,
    }
}

/// Why a connection could not be started, from the errno of a call.
pub(super) fn start_failure(errno: Errno) -> ConnectFailure {
    match errno {
        Errno::NODEV | Errno::HOSTUNREACH | Errno::NETUNREACH | Errno::ADDRNOTAVAIL | Errno::NETDOWN => ConnectFailure::NoRoute,
        Errno::NOMEM | Errno::MFILE | Errno::NFILE | Errno::PERM | Errno::ACCESS | Errno::AGAIN | Errno::NOSPC => limit(errno),
        other => ConnectFailure::Other(other),
    }
}

/// A local limit.
fn limit(errno: Errno) -> ConnectFailure {
    ConnectFailure::Limit(errno)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn failures_are_sorted() {
        assert_eq!(unreachable(-110), ConnectFailure::TimedOut);
        assert_eq!(unreachable(-113), ConnectFailure::NoRoute);
        assert_eq!(unreachable(5), ConnectFailure::NoRoute);
        assert_eq!(start_failure(Errno::NODEV), ConnectFailure::NoRoute);
        assert_eq!(start_failure(Errno::NOMEM), ConnectFailure::Limit(Errno::NOMEM));
        assert_eq!(start_failure(Errno::ADDRINUSE), ConnectFailure::Other(Errno::ADDRINUSE));
    }
}
