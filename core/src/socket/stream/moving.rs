//! Connections that TCP has made and that move to a fabric when both ends use them (PROTOCOL.md 3): made so, they can be handed to a
//! child or another program before.
//!
//! The client listens on the fabrics at its own address, whose port TCP gives to nobody else; the server, when its program first uses the
//! connection, looks for it there. So no byte goes over TCP before both know that the other is this library, and no two servers are in
//! each other's way. The client takes what has come when its own program uses the connection; until then it can be handed over, too.
//!
//! The shipped library knows another way, which costs whoever is not it four bytes: it is tried where the settings say that
//! the peer may be the shipped library. As server it writes four zero bytes to TCP and listens on its port; so the client looks at what
//! comes first. As client it says nothing before it has these bytes, which cannot be told, from another host, from a client that has
//! nothing to say. So they are sent only where both are so: a server that has nothing to say either waits for a client's word, in vain for
//! a while, and the client's host answers over RDMA. Of a client of this host the kernel tells what it is.
//!
//! All this is the service's work, but for the beginning.

mod patience;

use patience::Patience;

use core::{
    net::SocketAddr,
    sync::atomic::{AtomicUsize, Ordering},
    time::Duration,
};
use std::{os::fd::RawFd, sync::Arc};

use rustix::{
    fd::AsRawFd,
    net::{RecvFlags, SendFlags, Shutdown},
};

use super::{Blocking, Engine, Phase, State, Stream};
use crate::{
    config,
    error::{Errno, Result},
    fabric::{ConnectFailure, ConnectTo, Endpoint, FabricKind, ListenOn, Listening, Started},
    log_debug,
    socket::{address, connect},
    sys::{
        clock::{self, Nanos},
        descriptor::OwnFd,
        neighbour,
        ppoll::{PollFd, ppoll},
    },
};

/// How long a connection that both ends want to move may take for it, in nanoseconds.
const MOVE_TIME: Nanos = 10_000_000_000;
/// How long the first nonblocking send waits for an empty buffer, which with TCP it always finds.
const FIRST_SEND: Nanos = 2_000_000;
/// How long a client is silent before it is taken for the shipped library's, in nanoseconds: others have something to say.
const SILENCE: Nanos = 1_000_000_000;
/// How long the port may be another process's, which hands a connection over by it, in nanoseconds; and how often it is asked for.
const PORT_TIME: Nanos = 5_000_000_000;
const PORT_TRIES: Nanos = 2_000_000;
/// When a message of which a part has come is looked at again, in nanoseconds.
const PART_TIME: Nanos = 2_000_000;
/// What the shipped library says to a client.
const INVITATION: [u8; 4] = [0; 4];

/// See the module.
pub(super) struct Moving {
    /// Goes before the descriptor does: the name that a client's end listens under is that of its port, which the next connection may get once it
    /// is free.
    step: Step,
    /// A duplicate of the program's descriptor.
    kernel: OwnFd,
    /// The peer may be the shipped library.
    shipped: bool,
    /// The peer has connected, and not this end.
    accepted: bool,
    /// A part of what may be an invitation has come.
    part: bool,
    /// A nonblocking send has waited.
    sends: bool,
    /// The server's program has something to say first: the shipped library's client takes that for TCP's, as any other.
    speaks: bool,
    /// The peer is this library: what counts of the time that it has.
    patience: Option<Patience>,
    /// Another process is about to have it: it stays with TCP, unless it is used already.
    shared: bool,
}

/// Ends that wait for a server and whose program has not used them.
static UNUSED: AtomicUsize = AtomicUsize::new(0);

/// Whether there are connections that a child may be the one to use.
pub fn is_any_unused() -> bool {
    UNUSED.load(Ordering::Relaxed) != 0
}

enum Step {
    /// Client: waits for the server, from the first use on for a limited time.
    Awaits(Awaits),
    /// Client: the server has invited it, and is connected to.
    Follows,
    /// Server: connects to the client.
    Asks,
    /// Server: the client listens nowhere. What it is, this host may tell.
    Looks,
    /// Server: the client is invited at this time, unless it says something. `known`: it waits for that.
    Hears { until: Nanos, known: bool },
    /// Server: the client is invited.
    Invites { _listening: Box<dyn Listening> },
}

struct Awaits {
    _listening: Box<dyn Listening>,
    asynchronous: bool,
    /// The server is this library, on this host.
    marked: bool,
    /// The program has been told by poll that it is connected.
    told: bool,
    /// The program has used the connection: see [`UNUSED`].
    used: bool,
    /// The server has come before that.
    early: Option<(Box<dyn Endpoint>, Vec<u8>)>,
}

impl Awaits {
    fn new(listening: Box<dyn Listening>, asynchronous: bool, marked: bool) -> Self {
        UNUSED.fetch_add(1, Ordering::Relaxed);
        Awaits { _listening: listening, asynchronous, marked, told: false, used: false, early: None }
    }

    /// The program uses it. False: it has before.
    fn r#use(&mut self) -> bool {
        let first = !core::mem::replace(&mut self.used, true);
        UNUSED.fetch_sub(usize::from(first), Ordering::Relaxed);
        first
    }
}

impl Drop for Awaits {
    fn drop(&mut self) {
        self.r#use();
    }
}

impl State {
    /// The peer has connected over the fabric, and not this end.
    pub(super) fn was_asked(&self) -> bool {
        self.phase == Phase::Accepting || self.moving.as_ref().is_some_and(|moving| moving.accepted)
    }

    /// To the program this is the end that has accepted. Of a connection that moves the ends are those of TCP.
    pub(super) fn has_accepted(&self) -> bool {
        self.moving.as_ref().map_or(self.phase == Phase::Accepting, |moving| !moving.is_client())
    }
}

/// What TCP has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Tcp {
    Nothing,
    /// An end, an error, or what the program is to read.
    Something,
    /// As much of an invitation as there can be.
    Part,
    Invitation,
}

impl Moving {
    fn new(kernel: OwnFd, shipped: bool, step: Step) -> Self {
        Moving { kernel, shipped, step, accepted: false, part: false, sends: false, speaks: false, patience: None, shared: false }
    }

    /// The client's end.
    pub(super) fn is_client(&self) -> bool {
        matches!(self.step, Step::Awaits(_) | Step::Follows)
    }

    /// The client's end, and its program has not used it.
    fn is_unused(&self) -> bool {
        matches!(&self.step, Step::Awaits(awaits) if !awaits.used)
    }

    /// TCP's descriptor, while something may come there that decides.
    pub(super) fn watched(state: &State) -> Option<RawFd> {
        let moving = state.moving.as_ref().filter(|moving| moving.may_stay(state.engine.as_ref()))?;
        (!moving.part && !moving.is_unused()).then(|| moving.kernel.as_raw_fd())
    }

    /// Whether what comes over TCP decides. Over shared memory it is no stranger who answers; over RDMA whoever speaks on TCP meanwhile does
    /// not think of moving.
    fn may_stay(&self, engine: Option<&Engine>) -> bool {
        let neighbour = engine.is_some_and(|engine| engine.kind() == FabricKind::Shm);
        !neighbour && !self.accepted && !matches!(self.step, Step::Follows)
    }

    /// The program has not been told yet that it is connected.
    pub(super) fn is_unreported(&self) -> bool {
        matches!(&self.step, Step::Awaits(Awaits { asynchronous: true, .. }))
    }

    /// Own and the peer's address, as TCP has them.
    pub(super) fn names(&self) -> (Option<SocketAddr>, Option<SocketAddr>) {
        let of_fabric = |name: Option<SocketAddr>| name.map(address::for_fabric);
        (of_fabric(address::local(&self.kernel)), of_fabric(address::peer(&self.kernel)))
    }

    /// The connection has moved: who still has TCP's, as a child of the program, shall not wait there for ever.
    pub(super) fn leave(self) {
        let _ = rustix::net::shutdown(&self.kernel, Shutdown::Both);
    }

    fn tcp(&self) -> Tcp {
        let mut set = [PollFd { fd: self.kernel.as_raw_fd(), events: libc::POLLIN | libc::POLLRDHUP, revents: 0 }];
        let _ = ppoll(&mut set, Some(Duration::ZERO), None);
        match set.map(|entry| entry.revents) {
            [0] => return Tcp::Nothing,
            // An error is the program's to read.
            [events] if events & (libc::POLLERR | libc::POLLHUP) != 0 => return Tcp::Something,
            _ => {}
        }
        let mut bytes = [0xff_u8; INVITATION.len()];
        let flags = RecvFlags::PEEK | RecvFlags::DONTWAIT;
        let Ok((count, _)) = rustix::net::recv(&self.kernel, &mut bytes, flags) else { return Tcp::Something };
        match (self.shipped && self.is_client(), bytes.get(..count)) {
            (true, Some(found)) if found == INVITATION => Tcp::Invitation,
            (true, Some(found)) if !found.is_empty() && INVITATION.starts_with(found) => Tcp::Part,
            _ => Tcp::Something,
        }
    }
}

/// What the service does next, without the lock.
enum Task {
    Take(Box<dyn Endpoint>, Vec<u8>),
    Follow(ConnectTo),
    Look(SocketAddr, SocketAddr),
    Invite(ListenOn),
    Fail(ConnectFailure),
}

impl Stream {
    /// The client's end of a connection that TCP makes or has made: waits for the server at `on`, from the first use on for no longer than
    /// the usual time of a connect. `asynchronous`: the program does not wait for the kernel's connect.
    pub fn await_server(&self, kernel: OwnFd, on: &ListenOn, shipped: bool, asynchronous: bool) -> Result<()> {
        let listening = self.service.fabric().listen(on, self.token)?;
        let mut state = self.state.lock()?;
        state.deadline = None;
        // The kernel connects it now, on the caller's behalf: nobody does so later.
        state.fallback = None;
        state.moving =
            Some(Moving::new(kernel, shipped, Step::Awaits(Awaits::new(listening, asynchronous, on.only == Some(FabricKind::Shm)))));
        Ok(())
    }

    /// The server's end, which is about to look for its client.
    pub fn ask_client(&self, kernel: OwnFd, shipped: bool) -> Result<()> {
        self.state.lock()?.moving = Some(Moving::new(kernel, shipped, Step::Asks));
        Ok(())
    }

    /// The service sees to it, whoever waits for it.
    pub fn attend(&self) {
        self.service.take_care(self.token);
    }

    /// TCP has made it, and which way it goes is not known yet.
    pub fn is_moving(&self) -> bool {
        self.state.lock().is_ok_and(|state| state.phase == Phase::Connecting && state.moving.is_some())
    }

    /// The program asks by connect how it stands: true where the kernel answers. What that says once, is said then.
    pub fn kernel_answers(&self) -> bool {
        let Ok(mut state) = self.state.lock() else { return false };
        if state.phase != Phase::Connecting {
            return false;
        }
        if let Some(Moving { kernel, step: Step::Awaits(awaits), .. }) = &mut state.moving
            && address::peer(kernel).is_some()
        {
            awaits.asynchronous = false;
        }
        state.moving.is_some()
    }

    /// Another process is about to have it: what the program has not used yet may be the child's to use, by TCP.
    pub fn stay(self: &Arc<Self>) {
        let unused = self.state.lock().is_ok_and(|state| state.moving.as_ref().is_some_and(Moving::is_unused));
        if unused {
            self.connect_failed(ConnectFailure::Plain);
        }
    }

    /// As [`Stream::stay`], by the service's thread: for a process that has the memory in common with this one, and nothing else. False: there
    /// is nothing to wait for.
    pub fn stay_soon(&self) -> bool {
        let Ok(mut state) = self.state.lock() else { return false };
        let Some(moving) = state.moving.as_mut().filter(|moving| moving.is_unused()) else { return false };
        moving.shared = true;
        self.service.take_care(self.token);
        true
    }

    /// A poll for nothing but the outcome of a nonblocking connect, which is no use of it: true where the kernel's own poll answers.
    pub fn outcome_is_asked(&self) -> bool {
        let Ok(mut state) = self.state.lock() else { return false };
        let Some(Moving { kernel, step: Step::Awaits(awaits), .. }) = &mut state.moving else { return false };
        let asked = awaits.asynchronous && !awaits.used && !awaits.told;
        awaits.told |= asked && address::peer(&*kernel).is_some();
        asked
    }

    /// The program uses it: data, or a wait.
    pub(super) fn first_use(&self, state: &mut State) {
        if let Some(Moving { step: Step::Awaits(awaits), .. }) = &mut state.moving
            && awaits.r#use()
        {
            let (now, marked) = (self.service.now(), awaits.marked);
            state.deadline = clock::deadline(now, Some(config::get().connect_deadline));
            if marked {
                self.has_patience(state, now);
            }
            self.service.take_care(self.token);
        }
    }

    /// The peer is this library: see [`Patience`].
    pub(super) fn has_patience(&self, state: &mut State, now: Nanos) {
        if let Some(moving) = &mut state.moving {
            let patience = moving.patience.insert(Patience::new(now, config::get().connect_deadline));
            state.deadline = Some(patience.next());
        }
    }

    /// A turn before the deadline is looked at.
    pub(super) fn count_time(&self, state: &mut State, now: Nanos) {
        if let Some(patience) = state.moving.as_mut().and_then(|moving| moving.patience.as_mut())
            && patience.lasts(now)
        {
            state.deadline = Some(patience.next());
        }
    }

    /// Data is asked for, or is to be sent, before it is known which way it goes.
    #[cold]
    pub(super) fn undecided(&self, state: &mut State, speaks: bool) {
        self.first_use(state);
        if let Some(moving) = state.moving.as_mut().filter(|_| speaks)
            && !core::mem::replace(&mut moving.speaks, true)
            && matches!(moving.step, Step::Hears { .. })
        {
            self.service.take_care(self.token);
        }
    }

    /// See [`FIRST_SEND`]: how long this call may wait, which does not want to.
    #[cold]
    pub(super) fn first_send(&self) -> Blocking {
        let Ok(mut state) = self.state.lock() else { return Blocking::Never };
        let moving = if state.phase == Phase::Connecting { state.moving.as_mut() } else { None };
        let first = moving.is_some_and(|moving| !core::mem::replace(&mut moving.sends, true));
        if first { Blocking::Until(Some(clock::now().saturating_add(FIRST_SEND))) } else { Blocking::Never }
    }

    /// A peer has come to where this end listens.
    pub(super) fn taken(self: &Arc<Self>, mut endpoint: Box<dyn Endpoint>, private_data: Vec<u8>) {
        let fits = {
            let Ok(mut state) = self.state.lock() else { return endpoint.reject() };
            let idle = state.phase == Phase::Connecting && state.engine.is_none();
            match &mut state.moving {
                Some(moving) if idle && moving.names().1.is_some_and(|peer| peer.ip() == endpoint.peer_addr().ip()) => {
                    match &mut moving.step {
                        Step::Awaits(awaits) if awaits.early.is_some() => false,
                        Step::Awaits(awaits) if !awaits.used => {
                            endpoint.set_token(self.token);
                            awaits.early = Some((endpoint, private_data));
                            return;
                        }
                        Step::Awaits(_) | Step::Invites { .. } => true,
                        Step::Follows | Step::Asks | Step::Looks | Step::Hears { .. } => false,
                    }
                }
                _ => false,
            }
        };
        if !fits {
            return endpoint.reject();
        }
        endpoint.set_token(self.token);
        self.take(endpoint, &private_data);
    }

    fn take(self: &Arc<Self>, endpoint: Box<dyn Endpoint>, private_data: &[u8]) {
        let taken = (|| {
            let mut engine = Engine::new(endpoint, &self.sizes)?;
            let mut state = self.state.lock()?;
            self.note_endpoint(&mut state, &mut engine);
            engine.accept(private_data)?;
            let established = matches!(engine.endpoint().outcome(), Some(Ok(_)));
            state.engine = Some(engine);
            state.deadline = Some(self.service.now().saturating_add(MOVE_TIME));
            if let Some(moving) = &mut state.moving {
                moving.accepted = true;
                moving.patience = None;
            }
            Ok::<bool, Errno>(established)
        })();
        match taken {
            Ok(true) => self.established(&[]),
            Ok(false) => {}
            Err(errno) => self.connect_failed(ConnectFailure::Other(errno)),
        }
    }

    /// The server stays with TCP.
    pub(super) fn declined(self: &Arc<Self>) {
        if self.state.lock().is_ok_and(|state| state.engine.is_none()) {
            self.connect_failed(ConnectFailure::Plain);
        }
    }

    /// A failure that is not the end: the client may be the shipped library's.
    pub(super) fn hears_on(&self, state: &mut State, failure: ConnectFailure) -> bool {
        let now = self.service.now();
        let invitable = |moving: &Moving| moving.shipped && matches!(moving.step, Step::Asks);
        match &mut state.moving {
            Some(moving) if invitable(moving) && failure == ConnectFailure::Refused => {
                moving.step = Step::Looks;
                moving.patience = None;
                state.deadline = Some(now.saturating_add(PORT_TIME));
                self.event_fd.store(-1, Ordering::Release);
                true
            }
            _ => false,
        }
    }

    /// A turn of the service while it is not known which way the connection goes.
    pub(super) fn move_on(self: &Arc<Self>, now: Nanos) {
        let task = match self.state.lock() {
            Ok(mut state) if state.phase == Phase::Connecting => self.next_task(&mut state, now),
            _ => None,
        };
        match task {
            None => {}
            Some(Task::Take(endpoint, private_data)) => self.take(endpoint, &private_data),
            Some(Task::Follow(to)) => self.follow(&to),
            Some(Task::Look(local, peer)) => {
                // Known to be the shipped library's: at once. Not known: in a while.
                match neighbour::expects_invitation(local, peer) {
                    Some(false) => self.connect_failed(ConnectFailure::Plain),
                    Some(true) => self.hear_until(now, true),
                    None => self.hear_until(now.saturating_add(SILENCE), false),
                }
            }
            Some(Task::Invite(on)) => self.invite(&on, now),
            Some(Task::Fail(failure)) => {
                self.service.fabric().cancel(self.token);
                self.connect_failed(failure);
            }
        }
    }

    fn next_task(&self, state: &mut State, now: Nanos) -> Option<Task> {
        let moving = state.moving.as_mut()?;
        if moving.shared && moving.is_unused() {
            return Some(Task::Fail(ConnectFailure::Plain));
        }
        if !moving.may_stay(state.engine.as_ref()) {
            return None;
        }
        if let Step::Awaits(awaits) = &mut moving.step {
            if !awaits.used {
                return None;
            }
            if let Some((endpoint, private_data)) = awaits.early.take() {
                return Some(Task::Take(endpoint, private_data));
            }
        }
        if matches!(moving.step, Step::Looks) {
            moving.step = Step::Hears { until: now, known: false };
            let (local, peer) = moving.names();
            return local.zip(peer).map(|(local, peer)| Task::Look(local, peer));
        }
        let tcp = moving.tcp();
        moving.part = tcp == Tcp::Part;
        match (tcp, &moving.step) {
            (Tcp::Something, _) => Some(Task::Fail(ConnectFailure::Plain)),
            (_, Step::Hears { known: false, .. }) if moving.speaks => Some(Task::Fail(ConnectFailure::Plain)),
            (Tcp::Invitation, _) => {
                let (_, peer) = moving.names();
                moving.step = Step::Follows;
                moving.patience = None;
                state.deadline = Some(now.saturating_add(MOVE_TIME));
                peer.map(|peer| Task::Follow(ConnectTo::new(peer, self.sizes.endpoint())))
            }
            (Tcp::Nothing, Step::Hears { until, .. }) if now >= *until => {
                let (local, _) = moving.names();
                let addr = address::anywhere(local?);
                let only = Some(FabricKind::Verbs);
                Some(Task::Invite(ListenOn { addr, v6_only: false, backlog: 1, only, endpoint: self.sizes.endpoint() }))
            }
            _ => None,
        }
    }

    /// The shipped library's server listens for this client.
    fn follow(self: &Arc<Self>, to: &ConnectTo) {
        log_debug!("connection {}: invited to {}", self.token.0, to.peer);
        match self.service.fabric().connect(to, self.token) {
            Ok(Started::Ready(endpoint)) => self.ready(endpoint),
            Ok(Started::Later) => {}
            // Four zero bytes that mean nothing are the program's.
            Err(failure) => self.connect_failed(failure),
        }
    }

    /// The client is invited then; `now_known`: it is known now that it waits for that.
    fn hear_until(&self, then: Nanos, now_known: bool) {
        if let Ok(mut state) = self.state.lock()
            && let Some(Moving { step: Step::Hears { until, known }, .. }) = &mut state.moving
        {
            *until = then;
            *known |= now_known;
        }
    }

    fn invite(self: &Arc<Self>, on: &ListenOn, now: Nanos) {
        match self.service.fabric().listen(on, self.token) {
            Ok(listening) => {
                let Ok(mut state) = self.state.lock() else { return };
                let Some(moving) = &mut state.moving else { return };
                let sent = rustix::net::send(&moving.kernel, &INVITATION, SendFlags::DONTWAIT | SendFlags::NOSIGNAL);
                log_debug!("connection {}: a silent client is invited: {sent:?}", self.token.0);
                moving.step = Step::Invites { _listening: listening };
                state.deadline = Some(now.saturating_add(MOVE_TIME));
            }
            // Another process hands a connection over.
            Err(Errno::ADDRINUSE) => self.hear_until(now.saturating_add(PORT_TRIES), false),
            Err(errno) => {
                log_debug!("connection {}: no listener on {}: {errno}", self.token.0, on.addr);
                self.connect_failed(ConnectFailure::Plain);
            }
        }
    }

    /// When a turn is due.
    pub(super) fn moving_until(&self, state: &State, now: Nanos) -> Option<Nanos> {
        match &state.moving {
            Some(Moving { part: true, .. }) => Some(now.saturating_add(PART_TIME)),
            Some(Moving { step: Step::Looks, .. }) => Some(now),
            Some(Moving { step: Step::Hears { until, .. }, .. }) => Some(*until),
            _ => None,
        }
    }

    /// The time is over: whom to remember as one that uses TCP.
    pub(super) fn gives_up(&self, state: &State) -> bool {
        let Some(moving) = &state.moving else { return false };
        if let (Step::Awaits(_), Some(server)) = (&moving.step, moving.names().1) {
            connect::remember_plain(server);
        }
        true
    }
}
