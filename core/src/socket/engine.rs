//! A connection's protocol machine and its endpoint, side by side: the only place where the two meet.
//!
//! Lives behind the engine lock of its stream (DESIGN: lock 4): every method is short and none blocks.

mod data;
mod ending;
mod maps;
mod progress;

use std::os::fd::RawFd;

pub use maps::{Ended, Placement};
use smallvec::SmallVec;

use maps::{Maps, Written};

use super::wait::Interest;
use crate::{
    error::{Errno, Result},
    fabric::{Endpoint, EndpointConfig, FabricKind},
    log_debug, log_info,
    protocol::stream::{self, Connection, PeerFault, RECEIVE_SLACK, State, TARGET_RECORDS, Taken, control_reserve},
    stats::{self, Counter},
    sys::clock::Nanos,
    wire::{IomapRecord, Sge, decode_iomap_size, encode_iomap_size},
    work::{Completion, MessageMode, TransportError, WorkRequest},
};

/// Completions taken in one go.
const POLL_BATCH: usize = 16;
/// Fewer completions than this are little for one look at a stream of messages.
const LITTLE: usize = 8;
/// Batches of completions taken in one pump; more wait for the next.
const POLL_BATCHES: usize = 64;
/// Pumps that take all completions of the largest queues.
const PUMPS_AT_END: usize = (2 * u16::MAX as usize).div_ceil(POLL_BATCH * POLL_BATCHES) + 1;
/// Work requests posted with one doorbell.
const POST_BATCH: usize = 16;

/// What a stream's socket options ask of a connection, in bytes and entries.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Sizes {
    /// SO_RCVBUF.
    pub receive_bytes: u32,
    /// The same over shared memory: more, unless the program has said how much it wants.
    pub shm_receive_bytes: u32,
    /// SO_SNDBUF.
    pub send_bytes: u32,
    /// RDMA_SQSIZE.
    pub send_queue: u32,
    /// RDMA_RQSIZE.
    pub receive_queue: u32,
    /// RDMA_INLINE.
    pub inline: u32,
    /// RDMA_IOMAPSIZE.
    pub iomap_entries: u32,
}

impl Sizes {
    /// The endpoint that a stream of these sizes needs.
    pub fn endpoint(&self) -> EndpointConfig {
        EndpointConfig {
            send_queue: self.send_queue,
            receive_queue: self.receive_queue.saturating_add(RECEIVE_SLACK),
            inline: self.inline,
            receive_bytes: self.receive_bytes,
            shm_receive_bytes: self.shm_receive_bytes,
            send_bytes: self.send_bytes,
            target_bytes: target_bytes(self.iomap_entries),
            places: self.iomap_entries > 0,
        }
    }
}

/// Size of the target list and the iomap table behind it, in bytes (PROTOCOL.md 1.3).
fn target_bytes(iomap_entries: u32) -> u32 {
    (TARGET_RECORDS * Sge::BYTES as u32).saturating_add(iomap_entries.saturating_mul(IomapRecord::BYTES as u32))
}

/// So many entries as were wanted, or as there is memory for: an endpoint may have been made just before more were wanted.
fn entries(bytes: u32, wanted: u32) -> u16 {
    let fit = bytes.saturating_sub(target_bytes(0)) / IomapRecord::BYTES as u32;
    // Not all numbers survive the connect record.
    let most = u16::try_from(fit.min(wanted)).unwrap_or(u16::MAX);
    decode_iomap_size(encode_iomap_size(most))
}

/// Protocol and endpoint of one connection.
pub struct Engine {
    // They go before what they are registered with.
    maps: Maps,
    connection: Connection,
    endpoint: Box<dyn Endpoint>,
    kind: FabricKind,
    /// What went wrong and was not reported yet (SO_ERROR).
    error: Option<Errno>,
    /// The completion queue will announce the next completion.
    armed: bool,
    /// Until when the peer has the first word: see [`Engine::accepted`].
    listens_until: Option<Nanos>,
    /// The connection manager's connection has been ended from this side.
    disconnected: bool,
    /// shutdown(SHUT_RD) was called.
    read_shut: bool,
    /// What the latest poll has put out; kept, as filling it in anew costs more than an empty poll.
    completions: [Completion; POLL_BATCH],
    /// Something was written after the peer had closed.
    reset: bool,
    /// shutdown(SHUT_WR) was called.
    write_shut: bool,
    /// Writes that found no room for all, modulo 2^32.
    blocked: u32,
    /// Bytes that the program has handed over, and taken.
    moved: (u64, u64),
    /// Looks in a row that have found something, but little.
    scant: u32,
    /// Messages that had arrived when the program last sent something, modulo 2^32.
    answered: u32,
    /// Requests that are known to be done.
    done: u64,
    /// Somebody looks whether the peer acknowledges: each request is to say that it is done.
    watched: bool,
    /// The program has more to send than there was room for.
    lacks_room: bool,
}

impl Engine {
    /// Puts an endpoint and a new protocol machine together and posts the receives.
    pub fn new(mut endpoint: Box<dyn Endpoint>, sizes: &Sizes) -> Result<Self> {
        let limits = endpoint.limits();
        let wanted = sizes.receive_queue.min(limits.receive_queue.saturating_sub(RECEIVE_SLACK)).max(1);
        if limits.send_queue < control_reserve(limits.mode) + 2 || limits.receive_queue <= RECEIVE_SLACK {
            return Err(Errno::NOBUFS);
        }
        let connection = Connection::new(&stream::Config {
            send_queue: limits.send_queue,
            receive_queue: u16::try_from(wanted).unwrap_or(u16::MAX - 1),
            send_bytes: sizes.send_bytes,
            receive_bytes: endpoint.exposed().receive.length,
            inline: limits.inline,
            iomap_entries: entries(endpoint.exposed().targets.length, sizes.iomap_entries),
            mode: limits.mode,
            exposed: endpoint.exposed(),
            max_write: stream::DEFAULT_MAX_WRITE,
            host_is_big_endian: cfg!(target_endian = "big"),
        });
        endpoint.post_receives(connection.receives_initial())?;
        Ok(Engine {
            maps: Maps::default(),
            connection,
            kind: endpoint.kind(),
            endpoint,
            error: None,
            armed: false,
            listens_until: None,
            disconnected: false,
            read_shut: false,
            completions: [Completion::Sent { id: 0 }; POLL_BATCH],
            reset: false,
            write_shut: false,
            blocked: 0,
            moved: (0, 0),
            answered: 0,
            scant: 0,
            done: 0,
            watched: false,
            lacks_room: false,
        })
    }

    /// The protocol machine.
    pub fn connection(&self) -> &Connection {
        &self.connection
    }

    /// The endpoint.
    pub fn endpoint(&mut self) -> &mut dyn Endpoint {
        &mut *self.endpoint
    }

    /// The kind of its fabric.
    pub fn kind(&self) -> FabricKind {
        self.kind
    }

    /// Starts the connection (active side).
    pub fn connect(&mut self) -> Result<()> {
        let record = self.connection.connect_record();
        self.endpoint.connect(&record)
    }

    /// Accepts the connection (passive side) whose peer sent `private_data`.
    pub fn accept(&mut self, private_data: &[u8]) -> Result<()> {
        if let Err(fault) = self.connection.establish(private_data) {
            self.note_fault(fault);
            self.endpoint.reject();
            return Err(Errno::PROTO);
        }
        let record = self.connection.connect_record();
        self.endpoint.accept(&record)
    }

    /// The passive side's answer has come (active side).
    pub fn establish(&mut self, private_data: &[u8]) -> Result<()> {
        match self.connection.establish(private_data) {
            Ok(()) => {
                self.transmit();
                Ok(())
            }
            Err(fault) => {
                self.note_fault(fault);
                Err(Errno::PROTO)
            }
        }
    }

    /// The connection stands (passive side). On iWARP the peer has the first word (RFC 5044, 7.1.2): soft-iWARP gives up a connection
    /// when something comes together with the answer to its request. So what there is to send waits for the peer's first message,
    /// but no longer than until `until`: a peer may have nothing to say.
    pub fn accepted(&mut self, until: Nanos) {
        self.listens_until = (self.endpoint.limits().mode == MessageMode::Send).then_some(until);
        self.transmit();
    }

    /// Until when the peer has the first word, while that is so.
    #[inline(always)]
    pub fn listens_until(&self) -> Option<Nanos> {
        self.listens_until.filter(|_| !self.is_broken())
    }

    /// Sends what waited in vain for the peer's first message.
    pub fn speak(&mut self, now: Nanos) {
        if self.listens_until.is_some_and(|until| now >= until) {
            self.listens_until = None;
            self.transmit();
        }
    }

    /// Whether something waits that cannot be sent within the program's calls.
    #[inline(always)]
    pub fn wants_to_send(&self) -> bool {
        let due = self.connection.may_have_work() && (self.connection.wants_to_send_control() || self.connection.has_due_iomaps());
        due || self.is_waiting()
    }

    /// The same, where the protocol has nothing to send.
    #[inline(always)]
    pub fn is_waiting(&self) -> bool {
        // Nobody but this end carries out what waits over shared memory.
        self.kind == FabricKind::Shm && self.endpoint.is_waiting() || self.listens_until().is_some()
    }

    /// Whether what was sent may be lost when the connection is ended now. On iWARP a completion says only that TCP has the data, and
    /// soft-iWARP answers a message that comes after the end (a grant for what was just read) by a reset, which takes with it what the
    /// peer's kernel has not handed over yet. So the peer ends first, or is given time.
    pub fn needs_farewell(&self) -> bool {
        self.endpoint.limits().mode == MessageMode::Send && !self.connection.peer_disconnected()
    }

    /// Whether anything can still be sent or received.
    pub fn is_open(&self) -> bool {
        !matches!(self.connection.state(), State::Disconnected(_) | State::Broken)
    }

    /// Whether the connection ended in disorder.
    pub fn is_broken(&self) -> bool {
        self.connection.state() == State::Broken
    }

    /// The error that was not reported yet; it is reported once (socket(7): SO_ERROR).
    pub fn take_error(&mut self) -> Option<Errno> {
        self.error.take()
    }

    /// Whether there is an error to report.
    pub fn has_error(&self) -> bool {
        self.error.is_some()
    }

    /// Takes what has completed, answers it, and says what has changed for sleepers.
    pub fn pump(&mut self) -> Interest {
        let changed = self.take_in();
        if !changed.is_empty() {
            self.transmit();
        }
        changed
    }

    /// As [`Engine::pump`], for a caller that will [`Engine::transmit`].
    #[inline(always)]
    pub fn take_in(&mut self) -> Interest {
        let changed = self.take_completions();
        if !changed.is_empty() {
            self.repost();
        }
        changed
    }

    #[inline(always)]
    fn take_completions(&mut self) -> Interest {
        let mut changed = Interest::empty();
        // The peer may be sending before the connection manager has told us that it accepted: its messages wait for its record.
        if self.connection.state() == State::Connecting {
            return changed;
        }
        for _ in 0..POLL_BATCHES {
            let count = self.endpoint.poll(&mut self.completions);
            self.scant = if (1..LITTLE).contains(&count) { self.scant.saturating_add(1) } else { 0 };
            for index in 0..count {
                changed |= match self.completions.get(index) {
                    Some(Completion::Received { message }) => self.received(*message),
                    Some(other) => self.complete(&{ *other }),
                    None => break,
                };
            }
            if count < POLL_BATCH {
                break;
            }
        }
        changed
    }

    #[inline(never)]
    fn complete(&mut self, completion: &Completion) -> Interest {
        match completion {
            Completion::Sent { id } => {
                self.connection.sent(*id);
                self.done = self.done.wrapping_add(1);
                Interest::WRITE
            }
            Completion::Received { message } => self.received_other(*message),
            // As with messages, nothing that comes after the end matters.
            Completion::ReceivedMalformed { .. } if self.connection.peer_disconnected() => Interest::empty(),
            Completion::ReceivedMalformed { len } => {
                let fault = self.connection.received_malformed(*len);
                self.fault(fault)
            }
            Completion::Failed(error) => self.failed(*error),
        }
    }

    #[inline(always)]
    fn received(&mut self, message: u32) -> Interest {
        match self.connection.received_data(message) {
            Some(Ok(())) => Interest::READ | Interest::WRITE,
            Some(Err(fault)) => self.fault(fault),
            None => self.received_other(message),
        }
    }

    #[inline(never)]
    fn received_other(&mut self, message: u32) -> Interest {
        self.listens_until = None;
        let endpoint = &self.endpoint;
        match self.connection.received(message, &Written(endpoint.target_area())) {
            Ok(taken) => {
                if !taken.is_empty() {
                    self.clear_records(taken);
                }
                Interest::READ | Interest::WRITE
            }
            Err(fault) => self.fault(fault),
        }
    }

    #[inline(never)]
    fn clear_records(&self, taken: Taken) {
        let target_area = self.endpoint.target_area();
        for index in (0..TARGET_RECORDS).filter(|index| taken.contains(*index)) {
            let _ = target_area.write(Taken::offset_of(index) as usize, &[0; Sge::BYTES]);
        }
    }

    fn note_fault(&self, fault: PeerFault) {
        stats::add(Counter::PeerFaults, 1);
        log_info!("peer {} breaks the protocol: {}", self.endpoint.peer_addr(), fault.name());
    }

    /// The peer breaks the protocol: the connection is reset.
    #[cold]
    fn fault(&mut self, fault: PeerFault) -> Interest {
        self.note_fault(fault);
        // Not by `reset`: for the protocol machine the connection is over already.
        self.error.get_or_insert(Errno::CONNRESET);
        self.end_in_disorder();
        Interest::all()
    }

    fn failed(&mut self, error: TransportError) -> Interest {
        if self.is_open() {
            log_debug!("transport error {error:?} on the connection with {}", self.endpoint.peer_addr());
        }
        let errno = match error {
            // The queue pair was emptied because the connection manager has ended the connection. (After a failure of the transport
            // that failure comes first.)
            TransportError::Flushed => {
                self.gone();
                return Interest::all();
            }
            // The host does not acknowledge: what tcp(7) calls ETIMEDOUT.
            TransportError::RetryExceeded => Errno::TIMEDOUT,
            TransportError::RemoteAccess | TransportError::Other(_) => Errno::CONNRESET,
        };
        if self.is_open() {
            stats::add(Counter::TransportErrors, 1);
        }
        self.reset(errno);
        Interest::all()
    }

    #[inline]
    fn repost(&mut self) {
        let due = self.connection.receives_due();
        if due > 0 {
            self.post_receives(due);
        }
    }

    #[inline(never)]
    fn post_receives(&mut self, due: u32) {
        match self.endpoint.post_receives(due) {
            Ok(()) => self.connection.receives_posted(due),
            Err(_) => self.reset(Errno::CONNRESET),
        }
    }

    /// Posts what the protocol has to send now.
    #[inline(always)]
    pub fn transmit(&mut self) {
        if self.connection.may_have_work() && self.connection.has_work() && self.listens_until.is_none() {
            self.post_work();
        }
    }

    #[inline(never)]
    fn post_work(&mut self) {
        while self.connection.has_work() {
            let mut batch: SmallVec<[WorkRequest; POST_BATCH]> = SmallVec::new();
            while let Some(work) = self.connection.poll_work() {
                batch.push(work);
                if batch.len() == POST_BATCH || !self.connection.has_work() {
                    break;
                }
            }
            if batch.is_empty() {
                return;
            }
            if !self.post(&batch) {
                return;
            }
        }
    }

    /// False: the connection is over.
    #[inline]
    fn post(&mut self, work: &[WorkRequest]) -> bool {
        match self.endpoint.post_sends(work) {
            Ok(()) => true,
            Err(errno) => {
                self.post_failed(errno);
                false
            }
        }
    }

    #[cold]
    fn post_failed(&mut self, errno: Errno) {
        log_info!("posting to {} failed: {errno}", self.endpoint.peer_addr());
        self.reset(Errno::CONNRESET);
    }

    /// A write has found no room for all that it had.
    #[cold]
    pub fn note_blocked(&mut self) {
        self.blocked = self.blocked.wrapping_add(1);
    }

    /// How often a write has found no room for all that it had, modulo 2^32: room that comes after that is news.
    pub fn blocked(&self) -> u32 {
        self.blocked
    }

    /// Whether a read finds the end of file once the queued bytes are taken.
    pub fn at_end(&self) -> bool {
        self.read_shut || self.connection.end_of_file() || !self.connection.can_read()
    }

    /// Whether nothing more will come from the peer (queued bytes apart), or this side does not want it.
    pub fn at_end_of_stream(&self) -> bool {
        self.read_shut || !self.connection.state().peer_may_send()
    }

    /// Whether this side has ended its writing half.
    pub fn write_shut(&self) -> bool {
        self.write_shut
    }

    /// Sends a keep-alive message.
    pub fn keep_alive(&mut self) {
        if self.connection.keep_alive() {
            self.transmit();
        }
    }

    /// See [`Endpoint::waits_beside_peer`].
    pub fn waits_beside_peer(&self) -> Option<bool> {
        self.endpoint.waits_beside_peer()
    }

    /// Asks for an announcement of the next completion. Look once more afterwards.
    pub fn arm(&mut self) {
        if !self.armed && self.endpoint.arm().is_ok() {
            self.armed = true;
        }
    }

    /// The event descriptor, while something may be announced.
    pub fn event_fd(&self) -> Option<RawFd> {
        self.endpoint.event_fd()
    }

    /// The event descriptor was readable: takes the announcement off.
    pub fn clear_events(&mut self) {
        self.endpoint.clear_events();
        self.armed = false;
    }
}
