//! A stream over a fabric: from connect or accept to the last byte after close.
//!
//! One lock (DESIGN: lock 4), held for short stretches only; waiting happens without it. The service thread drives
//! connecting, closing and whatever cannot be finished within the program's calls.

use core::{
    net::SocketAddr,
    sync::atomic::{AtomicBool, AtomicI32, AtomicU64, Ordering},
    time::Duration,
};
use std::{
    io::{IoSlice, IoSliceMut},
    os::fd::RawFd,
    sync::{Arc, Weak},
};

use rustix::fd::{AsRawFd, OwnedFd};

mod care;

use super::{
    account,
    engine::{Engine, Sizes},
    listener::Listener,
    readiness::Readiness,
    wait::{self, Interest, Sleepers},
};
use crate::{
    config,
    error::{Errno, Result},
    fabric::{ConnectFailure, ConnectTo, Endpoint, Event, FabricKind, Token},
    log_debug, log_trace,
    service::{Care, Handler, Service},
    stats::{self, Counter},
    sys::{
        clock::{self, Nanos},
        cpus,
        lock::{Lock, Reentered},
        ppoll::{PollFd, ppoll},
    },
};

impl From<Reentered> for Errno {
    /// A signal handler came back to a socket that its own thread is working on: it may not wait here.
    fn from(_: Reentered) -> Self {
        Errno::AGAIN
    }
}

/// How long a connection may take to send what was written before close, in nanoseconds, where SO_LINGER does not say.
const CLOSE_TIME: Nanos = 10_000_000_000;

/// How long a peer has on iWARP to send its first message, which every rsockets library does at once, in nanoseconds.
const FIRST_WORD: Nanos = 1_000_000_000;

/// Where a stream stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Phase {
    /// Active side, until the peer has answered.
    Connecting,
    /// Passive side, accepted by the library and not established yet.
    Accepting,
    /// Connected.
    Up,
    /// The kernel's socket makes the connection instead.
    Kernel,
    /// Not connected, and the kernel could not either.
    Failed,
    /// Closed by the program; what was written before is still on its way.
    Closing,
    /// Over, nothing left.
    Closed,
}

/// What the kernel needs to make a connection that no fabric could make.
pub struct Fallback {
    /// A duplicate of the program's descriptor.
    pub socket: OwnedFd,
    /// The peer.
    pub peer: SocketAddr,
}

struct State {
    phase: Phase,
    engine: Option<Engine>,
    /// Of a failed connect, until SO_ERROR has reported it.
    error: Option<Errno>,
    fallback: Option<Fallback>,
    deadline: Option<Nanos>,
    next_keep_alive: Option<Nanos>,
    local: Option<SocketAddr>,
    peer: Option<SocketAddr>,
    /// A nonblocking connect has succeeded and connect was not called again since.
    unreported: bool,
}

/// A connection.
pub struct Stream {
    token: Token,
    service: Arc<Service>,
    sizes: Sizes,
    listener: Weak<Listener>,
    state: Lock<State>,
    sleepers: Sleepers,
    /// The endpoint's event descriptor, -1 while there is none.
    event_fd: AtomicI32,
    /// See [`Stream::is_kernel`].
    kernel: AtomicBool,
    /// SO_KEEPALIVE: nanoseconds between keep-alive messages, 0 for none.
    keep_alive: AtomicU64,
}

/// How a call waits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Blocking {
    /// EAGAIN instead.
    Never,
    /// At most until this time, `None` for ever.
    Until(Option<Nanos>),
}

impl Stream {
    fn new(service: &Arc<Service>, sizes: Sizes, phase: Phase, listener: Weak<Listener>) -> Self {
        Stream {
            token: service.token(),
            service: Arc::clone(service),
            sizes,
            listener,
            state: Lock::new(State {
                phase,
                engine: None,
                error: None,
                fallback: None,
                deadline: None,
                next_keep_alive: None,
                local: None,
                peer: None,
                unreported: false,
            }),
            sleepers: Sleepers::default(),
            event_fd: AtomicI32::new(-1),
            kernel: AtomicBool::new(false),
            keep_alive: AtomicU64::new(0),
        }
    }

    /// Starts to connect over the service's fabric. After `deadline`, or when nobody answers, the connection is the kernel's:
    /// made by the service if there is a `fallback`, else left to the caller ([`Phase::Kernel`]).
    pub fn connect(
        service: &Arc<Service>,
        to: &ConnectTo,
        sizes: Sizes,
        deadline: Nanos,
        fallback: Option<Fallback>,
    ) -> core::result::Result<Arc<Self>, ConnectFailure> {
        let stream = Arc::new(Stream::new(service, sizes, Phase::Connecting, Weak::new()));
        if let Ok(mut state) = stream.state.lock() {
            state.deadline = Some(deadline);
            state.fallback = fallback;
            state.peer = Some(to.peer);
        }
        service.register(stream.token, Arc::clone(&stream) as Arc<dyn Handler>);
        if let Err(failure) = service.fabric().connect(to, stream.token) {
            drop(service.forget(stream.token));
            return Err(failure);
        }
        service.take_care(stream.token);
        Ok(stream)
    }

    /// Takes an incoming connection for `listener`; it joins the listener's queue once it is established.
    pub fn accept(
        service: &Arc<Service>,
        mut endpoint: Box<dyn Endpoint>,
        sizes: Sizes,
        private_data: &[u8],
        listener: &Arc<Listener>,
    ) -> Result<()> {
        let stream = Arc::new(Stream::new(service, sizes, Phase::Accepting, Arc::downgrade(listener)));
        endpoint.set_token(stream.token);
        let mut engine = Engine::new(endpoint, &sizes)?;
        {
            let mut state = stream.state.lock()?;
            stream.note_endpoint(&mut state, &mut engine);
            engine.accept(private_data)?;
            state.engine = Some(engine);
            service.register(stream.token, Arc::clone(&stream) as Arc<dyn Handler>);
        }
        Ok(())
    }

    fn note_endpoint(&self, state: &mut State, engine: &mut Engine) {
        let endpoint = engine.endpoint();
        state.local = Some(endpoint.local_addr());
        state.peer = Some(endpoint.peer_addr());
        self.event_fd.store(endpoint.event_fd().unwrap_or(-1), Ordering::Release);
    }

    fn set_phase(&self, state: &mut State, phase: Phase) {
        log_debug!("connection {}: {:?} -> {:?}", self.token.0, state.phase, phase);
        state.phase = phase;
        self.kernel.store(phase == Phase::Kernel, Ordering::Release);
    }

    /// Whether the kernel has taken over: [`Phase::Kernel`], without the lock.
    #[inline]
    pub fn is_kernel(&self) -> bool {
        self.kernel.load(Ordering::Acquire)
    }

    /// Where it stands.
    pub fn phase(&self) -> Phase {
        self.state.lock().map_or(Phase::Up, |state| state.phase)
    }

    /// Own and the peer's address, once known.
    pub fn addresses(&self) -> Result<(Option<SocketAddr>, Option<SocketAddr>)> {
        let state = self.state.lock()?;
        Ok((state.local, state.peer))
    }

    /// connect once more after a nonblocking connect has succeeded: true the first time.
    pub fn first_report(&self) -> bool {
        self.state.lock().is_ok_and(|mut state| core::mem::take(&mut state.unreported))
    }

    /// SO_ERROR: the pending error, once.
    pub fn take_error(&self) -> Result<Option<Errno>> {
        let mut state = self.state.lock()?;
        self.pump(&mut state);
        if let Some(error) = state.error.take() {
            return Ok(Some(error));
        }
        Ok(state.engine.as_mut().and_then(Engine::take_error))
    }

    /// Takes completions and wakes whom they concern.
    fn pump(&self, state: &mut State) -> Interest {
        let changed = state.engine.as_mut().map_or(Interest::empty(), Engine::pump);
        self.sleepers.wake(changed);
        changed
    }

    /// Work that the protocol could not post within the program's call is finished by the service.
    fn hand_over(&self, state: &State) {
        if state.engine.as_ref().is_some_and(|engine| engine.wants_to_send()) {
            self.service.take_care(self.token);
        }
    }

    /// recv(2) with the flags MSG_PEEK and MSG_WAITALL.
    pub fn receive(&self, into: &mut [IoSliceMut<'_>], peek: bool, wait_all: bool, blocking: Blocking) -> Result<usize> {
        let wanted: usize = into.iter().map(|slice| slice.len()).sum();
        let mut done = 0;
        loop {
            match self.receive_now(into, done, wanted, peek) {
                Ok(Some(more)) => done += more,
                Ok(None) => return Ok(done),
                Err(_) if done > 0 => return Ok(done),
                Err(errno) => return Err(errno),
            }
            let enough = if wait_all && !peek { done == wanted } else { done > 0 };
            if enough || (wait_all && peek && done == wanted) {
                return Ok(done);
            }
            if peek {
                done = 0;
            }
            // A length of zero waits for data, and takes none.
            if wanted == 0 && self.state.lock()?.can_receive(1) {
                return Ok(0);
            }
            let need = if wait_all && peek { wanted } else { 1 };
            match self.wait(Interest::READ, blocking, done == 0, |state| state.can_receive(need)) {
                Ok(()) => {}
                Err(_) if done > 0 => return Ok(done),
                Err(errno) => return Err(errno),
            }
        }
    }

    /// What is there: `None` at the end of file, `Some(0)` when there is nothing yet.
    fn receive_now(&self, into: &mut [IoSliceMut<'_>], done: usize, wanted: usize, peek: bool) -> Result<Option<usize>> {
        let mut guard = self.state.lock()?;
        let state = &mut *guard;
        if !state.may_transfer()? {
            return Ok(Some(0));
        }
        // After a failed connect there is nothing to read: end of file, as with TCP.
        let Some(engine) = state.engine.as_mut() else { return Ok(None) };
        if (engine.connection().readable() as usize) < wanted - done {
            let changed = engine.pump();
            self.sleepers.wake(changed);
        }
        let count = engine.read(into, done, !peek)?;
        if count > 0 {
            if !peek {
                engine.transmit();
                account::received(engine.endpoint().kind(), count);
            }
            self.hand_over(state);
            return Ok(Some(count));
        }
        if wanted == done {
            return Ok(Some(0));
        }
        // An error that comes after a part was taken is left for the next call, as with TCP.
        if done == 0
            && let Some(error) = engine.take_error()
        {
            return Err(error);
        }
        Ok(if engine.has_error() || engine.at_end() { None } else { Some(0) })
    }

    /// send(2). Gives what was taken; an error only if that is nothing.
    pub fn send(&self, from: &[IoSlice<'_>], blocking: Blocking) -> Result<usize> {
        let wanted: usize = from.iter().map(|slice| slice.len()).sum();
        let mut done = 0;
        loop {
            match self.send_now(from, done, wanted) {
                Ok(more) => done += more,
                Err(_) if done > 0 => return Ok(done),
                Err(errno) => return Err(errno),
            }
            if done == wanted {
                return Ok(done);
            }
            match self.wait(Interest::WRITE, blocking, done == 0, State::can_send) {
                Ok(()) => {}
                Err(_) if done > 0 => return Ok(done),
                Err(errno) => return Err(errno),
            }
        }
    }

    fn send_now(&self, from: &[IoSlice<'_>], done: usize, wanted: usize) -> Result<usize> {
        let mut guard = self.state.lock()?;
        let state = &mut *guard;
        if !state.may_transfer()? {
            return Ok(0);
        }
        let Some(engine) = state.engine.as_mut() else { return Err(Errno::PIPE) };
        let mut count = 0;
        // A second round with what the completions have freed.
        for round in 0..2 {
            if engine.has_error() || !engine.connection().can_write() {
                if count > 0 {
                    break;
                }
                // As in receive_now: a call that has taken a part reports that, and the next one the error.
                let error = if done == 0 { engine.take_error() } else { None };
                return match error {
                    Some(error) => Err(error),
                    None if done == 0 && engine.swallow() => Ok(wanted),
                    None => Err(Errno::PIPE),
                };
            }
            let more = engine.write(from, done + count)?;
            count += more;
            if more > 0 && round > 0 || done + count == wanted {
                break;
            }
            let changed = engine.pump();
            self.sleepers.wake(changed);
        }
        if count > 0 {
            account::sent(engine.endpoint().kind(), count);
        }
        self.hand_over(state);
        Ok(count)
    }

    /// Waits until `ready`, in the order of DESIGN D6: spin, register, arm, look, sleep.
    ///
    /// A signal ends the wait, unless `restart` is set and its handler restarts calls: a call that has transferred something is never
    /// restarted, but returns how much.
    fn wait(&self, interest: Interest, blocking: Blocking, restart: bool, ready: impl Fn(&State) -> bool) -> Result<()> {
        let Blocking::Until(deadline) = blocking else { return Err(Errno::AGAIN) };
        if self.spin(&ready)? {
            return Ok(());
        }
        stats::add(Counter::WaitsSlept, 1);
        let waiter = wait::waiter()?;
        let Some(event) = waiter.get().map(|waiter| waiter.event_fd()) else { return Err(Errno::NOMEM) };
        loop {
            self.sleepers.add(&waiter, interest | Interest::STATE);
            let looked = self.look_before_sleep(&ready);
            let slept = match looked {
                Ok(false) => self.sleep(event, deadline, restart),
                other => other,
            };
            self.sleepers.remove(&waiter);
            // Nobody wakes it any more: each does so under the lock that was just held.
            waiter.reset(false);
            match slept {
                Ok(true) => return Ok(()),
                Ok(false) => {}
                Err(errno) => return Err(errno),
            }
            self.look_after_sleep()?;
            if ready(&*self.state.lock()?) {
                return Ok(());
            }
            if deadline.is_some_and(|deadline| clock::now() >= deadline) {
                return Err(Errno::AGAIN);
            }
        }
    }

    fn spin(&self, ready: &impl Fn(&State) -> bool) -> Result<bool> {
        let polling = config::get().polling_time;
        let until = if cpus::may_spin() { clock::now().saturating_add(u64::try_from(polling.as_nanos()).unwrap_or(0)) } else { 0 };
        loop {
            {
                let mut state = self.state.lock()?;
                self.pump(&mut state);
                if ready(&state) {
                    return Ok(true);
                }
            }
            if until == 0 || clock::now() >= until {
                return Ok(false);
            }
            core::hint::spin_loop();
        }
    }

    /// Arms the completion queue and looks once more. The caller has registered as a sleeper.
    fn look_before_sleep(&self, ready: &impl Fn(&State) -> bool) -> Result<bool> {
        let mut state = self.state.lock()?;
        if let Some(engine) = state.engine.as_mut() {
            engine.arm();
        }
        self.pump(&mut state);
        Ok(ready(&state))
    }

    /// Sleeps until an event, a wake-up or the deadline; a signal is an error unless its handler restarts calls.
    fn sleep(&self, event: RawFd, deadline: Option<Nanos>, restart: bool) -> Result<bool> {
        let mut set = [
            PollFd { fd: event, events: libc::POLLIN, revents: 0 },
            PollFd { fd: self.event_fd.load(Ordering::Acquire), events: libc::POLLIN, revents: 0 },
        ];
        let mut left = clock::left(clock::now(), deadline);
        if let Some(most) = config::get().wake_up_interval {
            left = Some(left.map_or(most, |left| left.min(most)));
        }
        match ppoll(&mut set, left, None) {
            // signal(7): the socket interfaces are never restarted when a time-out is set on the socket.
            Err(Errno::INTR) if restart && deadline.is_none() && crate::sys::signals::restarts() => Ok(false),
            Err(errno) => Err(errno),
            Ok(_) => Ok(false),
        }
    }

    /// Takes the announcement off and, where others still sleep, arms the queue for them.
    pub fn look_after_sleep(&self) -> Result<()> {
        let mut state = self.state.lock()?;
        if let Some(engine) = state.engine.as_mut() {
            engine.clear_events();
        }
        self.pump(&mut state);
        if self.sleepers.any() {
            if let Some(engine) = state.engine.as_mut() {
                engine.arm();
            }
            self.pump(&mut state);
        }
        Ok(())
    }

    /// Waits for the outcome of a connect: the phase that is not [`Phase::Connecting`].
    pub fn wait_connected(&self, blocking: Blocking) -> Result<Phase> {
        self.wait(Interest::STATE, blocking, true, |state| state.phase != Phase::Connecting)?;
        Ok(self.phase())
    }

    /// A blocking connect was interrupted: the kernel socket takes over from here if no fabric answers.
    pub fn set_fallback(&self, fallback: Fallback) -> Result<()> {
        self.state.lock()?.fallback = Some(fallback);
        Ok(())
    }

    /// poll's events of this stream.
    pub fn readiness(&self) -> Result<Readiness> {
        let mut state = self.state.lock()?;
        self.pump(&mut state);
        self.hand_over(&state);
        Ok(state.readiness())
    }

    /// For a poller that has registered as a sleeper: arms, looks, and gives its events.
    pub fn arm_and_look(&self) -> Result<Readiness> {
        let mut state = self.state.lock()?;
        if let Some(engine) = state.engine.as_mut() {
            engine.arm();
        }
        self.pump(&mut state);
        Ok(state.readiness())
    }

    /// Who sleeps here.
    pub fn sleepers(&self) -> &Sleepers {
        &self.sleepers
    }

    /// The descriptor that an armed completion queue signals, -1 for none.
    pub fn event_fd(&self) -> RawFd {
        self.event_fd.load(Ordering::Acquire)
    }

    /// The state that TCP_INFO shows (the numbers of <netinet/tcp.h>).
    pub fn tcp_state(&self) -> u8 {
        const ESTABLISHED: u8 = 1;
        const SYN_SENT: u8 = 2;
        const FIN_WAIT2: u8 = 5;
        const CLOSE: u8 = 7;
        const CLOSE_WAIT: u8 = 8;
        let Ok(state) = self.state.lock() else { return ESTABLISHED };
        match (state.phase, &state.engine) {
            (Phase::Connecting, _) => SYN_SENT,
            (Phase::Up, Some(engine)) if engine.is_over() => CLOSE,
            (Phase::Up, Some(engine)) if engine.at_end_of_stream() => CLOSE_WAIT,
            (Phase::Up, Some(engine)) if engine.write_shut() => FIN_WAIT2,
            (Phase::Up, _) => ESTABLISHED,
            _ => CLOSE,
        }
    }

    /// FIONREAD.
    pub fn readable(&self) -> Result<u32> {
        let mut state = self.state.lock()?;
        self.pump(&mut state);
        Ok(state.engine.as_ref().map_or(0, |engine| engine.connection().readable()))
    }

    /// SIOCOUTQ: bytes not known to have arrived.
    pub fn unsent(&self) -> Result<u32> {
        let mut state = self.state.lock()?;
        self.pump(&mut state);
        Ok(state.engine.as_ref().map_or(0, |engine| engine.connection().unacknowledged()))
    }

    /// shutdown(2) for writing, reading or both.
    pub fn shutdown(&self, read: bool, write: bool) -> Result<()> {
        let mut state = self.state.lock()?;
        state.connected()?;
        self.pump(&mut state);
        let Some(engine) = state.engine.as_mut() else { return Err(Errno::NOTCONN) };
        // TCP: shutdown is possible until both directions are over; after the peer's close this one may still be ended.
        if engine.is_over() || (!engine.is_open() && engine.write_shut()) {
            return Err(Errno::NOTCONN);
        }
        if read {
            engine.shutdown_read();
        }
        if write {
            engine.shutdown_write();
        }
        self.hand_over(&state);
        drop(state);
        self.sleepers.wake(Interest::all());
        Ok(())
    }

    /// SO_KEEPALIVE: a keep-alive message each `every`, `None` for none.
    pub fn set_keep_alive(&self, every: Option<Duration>) {
        let nanos = every.map_or(0, |every| u64::try_from(every.as_nanos()).unwrap_or(u64::MAX).max(1));
        self.keep_alive.store(nanos, Ordering::Relaxed);
        // The service may have made a plan with what was said before.
        if let Ok(mut state) = self.state.lock() {
            state.next_keep_alive = None;
        }
        if nanos != 0 {
            self.service.take_care(self.token);
        }
    }

    /// close(2) of the last descriptor: what was written before is sent by the service, within `linger` or [`CLOSE_TIME`].
    /// A linger time of zero resets the connection (socket(7)). With a positive one the call waits for the end.
    pub fn close(self: &Arc<Self>, linger: Option<Duration>, blocking: bool) {
        let now = self.service.now();
        let time = linger.map_or(CLOSE_TIME, |linger| u64::try_from(linger.as_nanos()).unwrap_or(CLOSE_TIME));
        {
            let Ok(mut state) = self.state.lock() else { return };
            state.deadline = Some(now.saturating_add(time));
            state.fallback = None;
            if state.phase == Phase::Connecting {
                self.service.fabric().cancel(self.token);
            }
            let orderly = state.phase == Phase::Up && time > 0;
            match state.engine.as_mut() {
                Some(engine) if orderly => engine.disconnect(),
                _ => state.deadline = Some(now),
            }
            self.set_phase(&mut state, Phase::Closing);
        }
        self.sleepers.wake(Interest::all());
        self.service.take_care(self.token);
        if blocking && linger.is_some_and(|linger| !linger.is_zero()) {
            let until = Blocking::Until(Some(now.saturating_add(time)));
            let _ = self.wait(Interest::STATE, until, true, |state| state.phase == Phase::Closed);
        }
    }

    /// The peer's host is left to the kernel for a while.
    fn remember_silent(&self) {
        if let Ok((_, Some(peer))) = self.addresses() {
            super::connect::remember_silent(peer.ip());
        }
    }

    fn connect_failed(self: &Arc<Self>, failure: ConnectFailure) {
        account::fallback(failure);
        let engine = {
            let Ok(mut state) = self.state.lock() else { return };
            if state.phase != Phase::Connecting {
                return;
            }
            let (phase, error) = match state.fallback.take() {
                None => (Phase::Kernel, None),
                Some(fallback) => super::connect::kernel(&fallback),
            };
            state.error = error;
            state.deadline = None;
            self.set_phase(&mut state, phase);
            self.event_fd.store(-1, Ordering::Release);
            state.engine.take()
        };
        self.sleepers.wake(Interest::all());
        drop(engine);
        drop(self.service.forget(self.token));
    }

    fn ready(self: &Arc<Self>, endpoint: Box<dyn Endpoint>) {
        let failure = {
            let Ok(mut state) = self.state.lock() else { return };
            if state.phase != Phase::Connecting {
                return;
            }
            match Engine::new(endpoint, &self.sizes) {
                Err(errno) => Some(ConnectFailure::Limit(errno)),
                Ok(mut engine) => {
                    self.note_endpoint(&mut state, &mut engine);
                    let connected = engine.connect();
                    state.engine = Some(engine);
                    // iWARP connects within the call, so that a refusal is its error.
                    connected
                        .err()
                        .map(|errno| if errno == Errno::CONNREFUSED { ConnectFailure::Refused } else { ConnectFailure::Other(errno) })
                }
            }
        };
        if let Some(failure) = failure {
            self.connect_failed(failure);
        }
    }

    fn established(self: &Arc<Self>, private_data: &[u8]) {
        let (outcome, accepted) = {
            let Ok(mut state) = self.state.lock() else { return };
            let phase = state.phase;
            let Some(engine) = state.engine.as_mut() else { return };
            let outcome = match phase {
                Phase::Connecting => engine.establish(private_data),
                Phase::Accepting => {
                    engine.accepted(self.service.now().saturating_add(FIRST_WORD));
                    Ok(())
                }
                _ => return,
            };
            if outcome.is_ok() {
                account::connected(engine.endpoint().kind(), phase == Phase::Accepting);
                self.note_endpoint_again(&mut state);
                state.deadline = None;
                state.unreported = phase == Phase::Connecting && state.fallback.take().is_some();
                self.set_phase(&mut state, Phase::Up);
                self.hand_over(&state);
            } else {
                engine.end();
            }
            (outcome, phase == Phase::Accepting)
        };
        match outcome {
            Ok(()) => {
                self.sleepers.wake(Interest::all());
                if accepted {
                    self.join_queue();
                }
            }
            Err(errno) => self.connect_failed(ConnectFailure::Other(errno)),
        }
    }

    /// Waits for accept from now on. Without its listener nobody will ever take it.
    fn join_queue(self: &Arc<Self>) {
        match self.listener.upgrade() {
            Some(listener) => listener.established(self),
            None => self.close(None, false),
        }
    }

    /// The port of the own end may be known only now.
    fn note_endpoint_again(&self, state: &mut State) {
        if let Some(engine) = state.engine.as_mut() {
            let endpoint = engine.endpoint();
            let (local, peer) = (endpoint.local_addr(), endpoint.peer_addr());
            state.local = Some(local);
            state.peer = Some(peer);
        }
    }

    fn disconnected(self: &Arc<Self>) {
        let (phase, was_up) = {
            let Ok(mut state) = self.state.lock() else { return };
            if let Some(engine) = state.engine.as_mut() {
                engine.peer_gone();
            }
            let phase = state.phase;
            // The end of a short connection overtakes the word that it stood: the program gets what it has brought, as with TCP.
            let was_up = phase == Phase::Accepting && state.engine.as_ref().is_some_and(Engine::has_arrived);
            if was_up {
                self.note_endpoint_again(&mut state);
                self.set_phase(&mut state, Phase::Up);
            }
            (phase, was_up)
        };
        self.sleepers.wake(Interest::all());
        match phase {
            Phase::Accepting if was_up => self.join_queue(),
            Phase::Accepting => {
                if let Some(listener) = self.listener.upgrade() {
                    listener.lost();
                }
                drop(self.service.forget(self.token));
            }
            Phase::Connecting => self.connect_failed(ConnectFailure::Refused),
            _ => {}
        }
    }
}

impl Handler for Stream {
    fn event(self: Arc<Self>, event: Event, _now: Nanos) {
        match event {
            Event::Ready { endpoint, .. } => self.ready(endpoint),
            Event::Established { private_data, .. } => self.established(&private_data),
            Event::Failed { reason, .. } => {
                if self.phase() == Phase::Accepting {
                    self.disconnected();
                } else {
                    self.connect_failed(reason);
                }
            }
            Event::Disconnected { .. } => self.disconnected(),
            Event::Incoming { mut endpoint, .. } => endpoint.reject(),
        }
    }

    fn care(self: Arc<Self>, now: Nanos) -> Care {
        let (care, engine) = {
            let Ok(mut state) = self.state.lock() else { return Care::Until(Some(now.saturating_add(1_000_000))) };
            match state.phase {
                Phase::Closing => self.care_closing(&mut state, now),
                Phase::Up => (self.care_up(&mut state, now), None),
                Phase::Connecting => match state.deadline {
                    Some(deadline) if now >= deadline => (Care::Forget, None),
                    deadline => (Care::Until(deadline), None),
                },
                Phase::Accepting | Phase::Kernel | Phase::Failed => (Care::Release, None),
                Phase::Closed => (Care::Forget, state.engine.take()),
            }
        };
        drop(engine);
        if matches!(care, Care::Forget) {
            if self.phase() == Phase::Connecting {
                log_trace!("connection {}: nobody answers", self.token.0);
                self.remember_silent();
                self.service.fabric().cancel(self.token);
                self.connect_failed(ConnectFailure::TimedOut);
            }
            self.sleepers.wake(Interest::all());
        }
        care
    }

    fn event_fd(&self) -> Option<RawFd> {
        let fd = self.event_fd.load(Ordering::Acquire);
        let watched = self
            .state
            .lock()
            .is_ok_and(|state| state.phase == Phase::Closing || state.engine.as_ref().is_some_and(|engine| engine.wants_to_send()));
        (fd >= 0 && watched).then_some(fd)
    }

    fn finish(self: Arc<Self>) {
        if self.phase() == Phase::Up {
            self.close(None, false);
        }
    }

    fn is_finishing(&self) -> bool {
        self.phase() == Phase::Closing
    }
}

impl State {
    /// ENOTCONN unless data can flow, or could.
    fn connected(&self) -> Result<()> {
        match self.phase {
            Phase::Up => Ok(()),
            Phase::Closing | Phase::Closed => Err(Errno::BADF),
            Phase::Connecting | Phase::Accepting | Phase::Kernel | Phase::Failed => Err(Errno::NOTCONN),
        }
    }

    /// Data calls on a socket that is being connected wait, as with TCP; after a failure they report it once.
    fn may_transfer(&mut self) -> Result<bool> {
        match self.phase {
            Phase::Connecting => Ok(false),
            Phase::Failed => self.error.take().map_or(Ok(true), Err),
            _ => self.connected().map(|()| true),
        }
    }

    fn can_receive(&self, need: usize) -> bool {
        if self.phase != Phase::Up {
            return self.phase != Phase::Connecting;
        }
        let Some(engine) = &self.engine else { return true };
        let connection = engine.connection();
        engine.has_error() || connection.readable() as usize >= need || engine.at_end()
    }

    fn can_send(&self) -> bool {
        if self.phase != Phase::Up {
            return self.phase != Phase::Connecting;
        }
        let Some(engine) = &self.engine else { return true };
        let connection = engine.connection();
        engine.has_error() || connection.writable() > 0 || !connection.can_write()
    }

    fn readiness(&self) -> Readiness {
        match (self.phase, &self.engine) {
            (Phase::Kernel, _) => Readiness::Kernel,
            (Phase::Connecting | Phase::Accepting, _) => Readiness::Events(0),
            (Phase::Up, Some(engine)) => Readiness::Events(super::readiness::stream(engine)),
            (Phase::Failed, _) => Readiness::Events(super::readiness::failed(self.error.is_some())),
            (Phase::Closing | Phase::Closed | Phase::Up, _) => Readiness::Events(libc::POLLNVAL),
        }
    }
}

/// Which fabric's counters a connection adds to.
pub fn kind(stream: &Stream) -> Option<FabricKind> {
    stream.state.lock().ok()?.engine.as_mut().map(|engine| engine.endpoint().kind())
}

impl Drop for Fallback {
    fn drop(&mut self) {
        log_trace!("fallback descriptor {} closed", self.socket.as_raw_fd());
    }
}
