//! One end of a connection: an RDMA write is a copy into the peer's mapping, a message an entry in its ring.
//!
//! Lives behind the engine lock of its stream (DESIGN: lock 4), as every endpoint.
#![forbid(unsafe_code)]

mod placed;
mod taken;

use core::net::SocketAddr;
use std::{collections::VecDeque, os::fd::RawFd, sync::Arc};

use rustix::fd::{AsFd, AsRawFd};

use super::{
    channel::{self, Bell, Heard},
    event::Shared,
    greeting::{Greeting, Verdict},
    memory::{Entry, Kept, Memory, Own},
    placing::{Owner, Writer},
};
use crate::{
    error::{Errno, Result},
    fabric::{ConnectFailure, Endpoint, EndpointConfig, EndpointLimits, FabricKind, Outcome, Region, Registrar, SleepWord, Token},
    log_debug,
    sys::descriptor::OwnFd,
    work::{Completion, DataWrite, ExposedMemory, MessageMode, Operation, Payload, TransportError, WorkRequest},
};

/// How far the connection is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Stage {
    /// Active side, before the request.
    New,
    /// Active side: the answer is awaited.
    Requested,
    /// Passive side, before the answer.
    Asked,
    /// Passive side, answered, and nobody was told yet.
    Answered,
    /// Data can flow.
    Up,
    /// Ended from this side.
    Ended,
}

/// See the module.
pub(super) struct ShmEndpoint {
    shared: Arc<Shared>,
    channel: Arc<OwnFd>,
    /// Its name at [`Shared`].
    id: u64,
    token: Token,
    stage: Stage,
    /// There may be an answer: [`Endpoint::clear_events`] was called.
    asked: bool,
    passive: bool,
    own: Own,
    peer: Option<Memory>,
    /// Made when something has to wait in it.
    kept: Kept,
    send_bytes: u32,
    limits: EndpointLimits,
    client: SocketAddr,
    server: SocketAddr,
    /// Receives posted in all, and messages taken, modulo 2^32.
    posted: u32,
    taken: u32,
    /// Messages put into the peer's ring, and receives that it has posted as far as is known, modulo 2^32.
    put: u32,
    peer_posted: u32,
    /// Wait for the peer's receives, in order.
    waiting: VecDeque<WorkRequest>,
    /// The latest signaled request that is done and was not reported.
    done: Option<u64>,
    broken: Option<Broken>,
    /// The peer is gone; what it has sent can still be taken.
    hung_up: bool,
    /// Bytes for memory of the programs': what this end sends (and whether the peer is to be told), and what it takes.
    writer: Writer,
    placed: bool,
    owner: Owner,
    /// There may be bytes that have not been taken, for which nobody will ring.
    lags: bool,
    /// Rings that were asked for and did not come, and those that came without having been asked for.
    rings_due: u32,
    needless_rings: u32,
}

/// A connection that is broken, and whether that was reported.
#[derive(Clone, Copy)]
struct Broken {
    error: TransportError,
    reported: bool,
}

/// What an endpoint is made of.
pub(super) struct Parts {
    pub(super) shared: Arc<Shared>,
    pub(super) channel: Arc<OwnFd>,
    pub(super) own: Own,
    /// Passive side: the peer's memory, and it has asked.
    pub(super) peer: Option<Memory>,
    pub(super) kept: Kept,
    pub(super) client: SocketAddr,
    pub(super) server: SocketAddr,
    pub(super) token: Token,
}

impl ShmEndpoint {
    pub(super) fn new(parts: Parts, config: &EndpointConfig) -> Self {
        let passive = parts.peer.is_some();
        let id = parts.shared.id();
        parts.shared.came();
        ShmEndpoint {
            shared: parts.shared,
            channel: parts.channel,
            id,
            token: parts.token,
            stage: if passive { Stage::Asked } else { Stage::New },
            asked: false,
            passive,
            own: parts.own,
            peer: parts.peer,
            kept: parts.kept,
            send_bytes: config.send_bytes,
            limits: EndpointLimits {
                send_queue: config.send_queue,
                receive_queue: config.receive_queue,
                inline: 0,
                mode: MessageMode::Immediate,
            },
            client: parts.client,
            server: parts.server,
            posted: 0,
            taken: 0,
            put: 0,
            peer_posted: 0,
            waiting: VecDeque::new(),
            done: None,
            broken: None,
            hung_up: false,
            writer: Writer::default(),
            owner: Owner::default(),
            placed: false,
            lags: false,
            rings_due: 0,
            needless_rings: 0,
        }
    }

    fn greet(&mut self, verdict: Verdict, private_data: &[u8]) -> Result<()> {
        let memory = self.own.memory();
        let greeting = Greeting {
            verdict,
            key: memory.key(),
            layout: memory.layout(),
            client: self.client,
            server: self.server,
            private_data: private_data.to_vec(),
        };
        let file = if verdict == Verdict::Refused { None } else { self.own.take_file() };
        channel::send(self.channel.as_fd(), &greeting.to_bytes(), file.as_ref().map(AsFd::as_fd))
    }

    /// The connection stands: its end is watched for from now on.
    fn up(&mut self) {
        self.stage = Stage::Up;
        self.shared.watch(&self.channel, self.id, self.token);
    }

    /// The listener's answer, if it has come.
    fn answer(&mut self) -> Option<Outcome> {
        let (greeting, file) = match channel::hear(self.channel.as_fd()) {
            Heard::Silence => return None,
            Heard::End => return Some(Err(ConnectFailure::Refused)),
            Heard::Nonsense => return Some(Err(ConnectFailure::Other(Errno::PROTO))),
            Heard::Greeting(greeting, file) => (greeting, file),
        };
        match greeting.verdict {
            Verdict::Accepted => {}
            Verdict::Refused => return Some(Err(ConnectFailure::Refused)),
            Verdict::Request => return Some(Err(ConnectFailure::Other(Errno::PROTO))),
        }
        self.kept.make_room();
        match Memory::that_came(file, &greeting) {
            Ok(memory) => {
                self.peer = Some(memory);
                self.up();
                Some(Ok(greeting.private_data))
            }
            Err(errno) => {
                log_debug!("{}: the memory that came with the answer is of no use: {errno}", self.server);
                Some(Err(ConnectFailure::Other(errno)))
            }
        }
    }

    #[cold]
    fn fail(&mut self, error: TransportError) {
        if self.broken.is_none() {
            self.broken = Some(Broken { error, reported: false });
            self.waiting.clear();
        }
    }

    /// Carries a request out. False: it has to wait for the peer to post receives.
    fn carry_out(&mut self, request: &WorkRequest, bytes: Option<&[u8]>) -> bool {
        let (to, message) = match request.operation {
            Operation::Write { to } => (to, None),
            Operation::WriteWithImmediate { to, immediate } => (to, Some(immediate)),
            Operation::Send => {
                self.fail(TransportError::Other(0));
                return true;
            }
        };
        if message.is_some() && self.peer_posted == self.put && !self.peer_has_posted() {
            // What is broken waits for nothing.
            return self.broken.is_some();
        }
        let Some(peer) = &self.peer else {
            self.fail(TransportError::Flushed);
            return true;
        };
        if to.key != peer.key() && message.is_none() && !request.payload.is_empty() {
            return self.place(request, to, bytes);
        }
        let written = match (bytes, &request.payload) {
            (Some(bytes), _) => peer.write(to, bytes),
            (None, Payload::Empty) => true,
            (None, Payload::Bytes { bytes, len }) => peer.write(to, bytes.get(..usize::from(*len)).unwrap_or(bytes)),
            (None, Payload::SendArea { offset, len }) => peer.write_from(to, self.send_area(), *offset, *len),
            // It is sent from nowhere but here.
            (None, Payload::Registered { .. }) => false,
        };
        if !written {
            self.fail(TransportError::RemoteAccess);
            return true;
        }
        if let Some(message) = message {
            self.put = self.put.wrapping_add(1);
            peer.ring().put(self.put, message);
        }
        if request.signaled {
            self.done = Some(request.id);
        }
        true
    }

    /// Whether the peer has posted receives for more messages. If not, it will ring when it has.
    #[inline(never)]
    fn peer_has_posted(&mut self) -> bool {
        if !self.look_at_posted() {
            if let Some(peer) = &self.peer {
                peer.starve();
            }
            self.look_at_posted();
        }
        self.peer_posted != self.put
    }

    fn look_at_posted(&mut self) -> bool {
        let Some(peer) = &self.peer else { return false };
        let (posted, entries) = (peer.posted(), peer.layout().entries());
        if posted.wrapping_sub(self.put) > entries {
            // It has taken back what it had said.
            self.fail(TransportError::Other(0));
            return false;
        }
        self.peer_posted = posted;
        posted != self.put
    }

    /// Wakes the peer if it sleeps.
    #[inline(always)]
    fn ring(&mut self) {
        let mut wanted = self.peer.as_ref().is_some_and(Memory::wake);
        if self.placed {
            self.placed = false;
            wanted |= self.own.memory().placing().is_some_and(Writer::owner_sleeps);
        }
        if wanted {
            self.ring_now();
        }
    }

    #[inline(never)]
    fn ring_now(&mut self) {
        if channel::ring(self.channel.as_fd()).is_err() {
            self.hung_up = true;
        }
    }

    /// Carries out what has waited, as far as that is possible now.
    #[cold]
    fn go_on(&mut self) {
        let mut some = false;
        while let Some(request) = self.waiting.front().copied() {
            if !self.carry_out(&request, None) {
                break;
            }
            some = true;
            self.waiting.pop_front();
        }
        if some {
            self.ring();
        }
    }

    /// After the end nothing is carried out: whoever posts learns it from a completion.
    #[cold]
    fn post_in_vain(&mut self) {
        if let Some(broken) = &mut self.broken {
            // Each request is flushed; one completion says it for all that were posted since the last.
            *broken = Broken { error: if broken.reported { TransportError::Flushed } else { broken.error }, reported: false };
        } else {
            self.fail(TransportError::Flushed);
        }
    }

    fn end(&mut self, orderly: bool) {
        if self.stage != Stage::Ended {
            self.stage = Stage::Ended;
            if let Some(peer) = &self.peer {
                peer.end(orderly);
            }
            channel::end(&*self.channel);
        }
    }

    #[inline]
    fn is_up(&self) -> bool {
        matches!(self.stage, Stage::Answered | Stage::Up) && self.broken.is_none()
    }
}

impl Endpoint for ShmEndpoint {
    fn kind(&self) -> FabricKind {
        FabricKind::Shm
    }

    fn limits(&self) -> EndpointLimits {
        self.limits
    }

    fn set_token(&mut self, token: Token) {
        self.token = token;
        self.shared.rename(self.id, token);
    }

    fn connect(&mut self, private_data: &[u8]) -> Result<()> {
        if self.stage != Stage::New {
            return Err(Errno::INVAL);
        }
        self.greet(Verdict::Request, private_data)?;
        self.stage = Stage::Requested;
        // While the peer makes its memory there is time to make some for the next connection.
        self.shared.refill(self.own.memory().layout());
        Ok(())
    }

    fn accept(&mut self, private_data: &[u8]) -> Result<()> {
        if self.stage != Stage::Asked {
            return Err(Errno::INVAL);
        }
        self.greet(Verdict::Accepted, private_data)?;
        if let Some(peer) = &self.peer {
            peer.answer();
        }
        self.up();
        self.stage = Stage::Answered;
        self.shared.refill(self.own.memory().layout());
        Ok(())
    }

    fn reject(&mut self) {
        if self.stage == Stage::Asked {
            let _ = self.greet(Verdict::Refused, &[]);
        }
        self.disconnect();
    }

    fn outcome(&mut self) -> Option<Outcome> {
        match self.stage {
            Stage::Requested if self.asked || self.own.memory().is_answered() => {
                self.asked = false;
                self.answer()
            }
            Stage::Answered => {
                self.stage = Stage::Up;
                Some(Ok(Vec::new()))
            }
            Stage::New | Stage::Requested | Stage::Asked | Stage::Up | Stage::Ended => None,
        }
    }

    fn disconnect(&mut self) {
        self.end(self.has_delivered());
    }

    fn reset(&mut self) {
        self.end(false);
    }

    fn peer_has_closed(&self) -> bool {
        // What a process that was killed has sent is here, all of it.
        !self.own.memory().is_reset()
    }

    fn has_delivered(&self) -> bool {
        !self.waiting.iter().any(|request| matches!(request.payload, Payload::SendArea { .. }))
    }

    fn post_sends(&mut self, work: &[WorkRequest]) -> Result<()> {
        for request in work {
            if !self.is_up() {
                self.post_in_vain();
            } else if !self.waiting.is_empty() || !self.carry_out(request, None) {
                self.waiting.push_back(*request);
            }
        }
        self.ring();
        Ok(())
    }

    fn post_data(&mut self, data: &DataWrite, bytes: &[u8]) -> Result<()> {
        let free = self.is_up() && self.waiting.is_empty() && self.peer_posted != self.put;
        if let Some(peer) = self.peer.as_ref().filter(|_| free)
            && peer.write(data.to, bytes)
        {
            self.put = self.put.wrapping_add(1);
            peer.ring().put(self.put, data.immediate);
            if data.signaled {
                self.done = Some(data.id);
            }
            self.ring();
            return Ok(());
        }
        // What it cannot be written to, is found there.
        self.post_bytes(&data.request(), bytes)
    }

    fn post_bytes(&mut self, request: &WorkRequest, bytes: &[u8]) -> Result<()> {
        if self.is_up() && self.waiting.is_empty() && self.carry_out(request, Some(bytes)) {
            self.ring();
            return Ok(());
        }
        if let Payload::SendArea { offset, .. } = request.payload {
            self.send_area().write(offset as usize, bytes)?;
        }
        self.post_sends(core::slice::from_ref(request))
    }

    fn is_waiting(&self) -> bool {
        !self.waiting.is_empty()
    }

    fn lags(&self) -> bool {
        self.lags && self.broken.is_none()
    }

    fn is_exposed(&self) -> bool {
        self.owner.exposes() && !self.hung_up && self.broken.is_none()
    }

    fn registrar(&self) -> Option<Arc<dyn Registrar>> {
        Some(self.owner.registrar(self.own.memory().key()))
    }

    fn waits_beside_peer(&self) -> Option<bool> {
        let here = u32::try_from(rustix::thread::sched_getcpu()).ok()?;
        self.own.memory().wait_on(here);
        self.peer.as_ref()?.waited_on().map(|there| there == here)
    }

    fn post_receives(&mut self, count: u32) -> Result<()> {
        self.posted = self.posted.wrapping_add(count);
        if self.own.memory().post(self.posted) {
            self.ring();
        }
        Ok(())
    }

    fn poll(&mut self, out: &mut [Completion]) -> usize {
        if !self.waiting.is_empty() {
            self.go_on();
        }
        let count = self.messages(out);
        // Nearly always there is nothing else.
        let ended = self.hung_up || self.own.memory().has_ended();
        if count < out.len() && ended || self.done.is_some() || self.broken.is_some() || self.peer_places() {
            return self.poll_rest(out, count);
        }
        count
    }

    fn arm(&mut self) -> Result<()> {
        self.rings_due = self.rings_due.saturating_add(1);
        self.own.memory().arm();
        Ok(())
    }

    fn arm_word(&mut self) -> Option<(Arc<dyn SleepWord>, u32)> {
        let memory = Arc::clone(self.own.memory());
        let holds = memory.arm_word();
        Some((memory, holds))
    }

    fn event_fd(&self) -> Option<RawFd> {
        (!self.hung_up).then(|| self.channel.as_raw_fd())
    }

    fn clear_events(&mut self) {
        // Before it stands, what comes is the answer.
        self.asked = true;
        if matches!(self.stage, Stage::Answered | Stage::Up | Stage::Ended) {
            match channel::take_ring(self.channel.as_fd()) {
                Bell::Rung => self.count_ring(),
                Bell::Silent => {}
                Bell::End => self.hung_up = true,
            }
        }
    }

    fn exposed(&self) -> ExposedMemory {
        self.own.memory().layout().exposed(self.own.memory().key())
    }

    fn receive_area(&self) -> &Region {
        self.own.receive()
    }

    fn send_area(&self) -> &Region {
        // Where there is no memory for it, the empty region refuses what is written.
        self.kept.send.get_or_init(|| Region::new(self.send_bytes as usize).unwrap_or_default())
    }

    fn target_area(&self) -> &Region {
        self.own.targets()
    }

    fn local_addr(&self) -> SocketAddr {
        if self.passive { self.server } else { self.client }
    }

    fn peer_addr(&self) -> SocketAddr {
        if self.passive { self.client } else { self.server }
    }
}

impl Drop for ShmEndpoint {
    fn drop(&mut self) {
        self.shared.unwatch(self.id);
        self.shared.went();
        // Children of the program may hold the descriptor too.
        self.disconnect();
    }
}
