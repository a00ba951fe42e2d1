//! A stream over a fabric: from connect or accept to the last byte after close.
//!
//! One lock (DESIGN: lock 4), held for short stretches only; waiting happens without it. The service thread drives
//! connecting, closing and whatever cannot be finished within the program's calls.

pub mod care;
mod fate;
pub mod info;
pub mod moving;
mod placing;
mod transfer;
mod waiting;

use moving::Moving;
pub use waiting::{See, Seen};

use core::{
    net::SocketAddr,
    sync::atomic::{AtomicBool, AtomicI32, AtomicU32, AtomicU64, Ordering},
    time::Duration,
};
use std::{
    os::fd::RawFd,
    sync::{Arc, Weak},
};

use rustix::fd::AsRawFd;

use super::{
    engine::{Engine, Sizes},
    listener::Listener,
    options::Options,
    readiness::Readiness,
    spin::Spin,
    wait::{Borrowed, Interest, Sleepers},
};
use crate::{
    error::{Errno, Result},
    fabric::{ConnectFailure, ConnectTo, Endpoint, FabricKind, Started, Token},
    log_debug, log_trace,
    service::{Care, Handler, Service},
    sys::{
        clock::Nanos,
        descriptor::OwnFd,
        lock::{Lock, Reentered},
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
    pub socket: OwnFd,
    /// The peer.
    pub peer: SocketAddr,
}

struct State {
    phase: Phase,
    engine: Option<Engine>,
    /// Closing: until when the peer has time to end the connection.
    farewell: Option<Nanos>,
    /// Of a failed connect, until SO_ERROR has reported it.
    error: Option<Errno>,
    fallback: Option<Fallback>,
    /// TCP has made the connection.
    moving: Option<Moving>,
    deadline: Option<Nanos>,
    /// No fabric makes the connection, for this reason, and the service has not dealt with that yet.
    failure: Option<ConnectFailure>,
    /// The service does not know of the deadline: the thread that connects waits for the answer itself.
    unattended: bool,
    next_keep_alive: Option<Nanos>,
    /// Until when a keep-alive message that was sent may go without an answer.
    probe_until: Option<Nanos>,
    /// TCP_USER_TIMEOUT: what waits for the peer, as the service knows it.
    stall: Option<care::Stall>,
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
    /// The program has read from it.
    was_read: AtomicBool,
    /// Whether waits spin.
    spin: Spin,
    /// Its completions can be slept for on a word of memory.
    wakes_by_word: AtomicBool,
    /// SO_KEEPALIVE: nanoseconds between keep-alive messages, 0 for none.
    keep_alive: AtomicU64,
    /// How long one of them may go without an answer, in nanoseconds.
    probes: AtomicU64,
    /// TCP_USER_TIMEOUT in nanoseconds, 0 for none.
    user_timeout: AtomicU64,
    /// SO_RCVLOWAT.
    receive_low: AtomicU32,
    /// When the request to connect went out, then how long the answer took, in nanoseconds.
    handshake: AtomicU64,
    /// SO_LINGER with a time of 0: the end of the process resets the connection.
    resets: AtomicBool,
    /// Closed where that could not be done: 1 more than the nanoseconds that it may take, 0 if it was not.
    given_up: AtomicU64,
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
                moving: None,
                deadline: None,
                failure: None,
                unattended: false,
                next_keep_alive: None,
                probe_until: None,
                stall: None,
                farewell: None,
                local: None,
                peer: None,
                unreported: false,
            }),
            sleepers: Sleepers::default(),
            event_fd: AtomicI32::new(-1),
            kernel: AtomicBool::new(false),
            was_read: AtomicBool::new(false),
            spin: Spin::default(),
            wakes_by_word: AtomicBool::new(false),
            keep_alive: AtomicU64::new(0),
            probes: AtomicU64::new(0),
            user_timeout: AtomicU64::new(0),
            receive_low: AtomicU32::new(1),
            handshake: AtomicU64::new(service.now()),
            // As TCP: who was never accepted is reset.
            resets: AtomicBool::new(phase == Phase::Accepting),
            given_up: AtomicU64::new(0),
        }
    }

    /// What is to be connected by [`Stream::start`]. After `deadline`, or when nobody answers, the connection is the kernel's:
    /// made by the service if there is a `fallback`, else left to the caller ([`Phase::Kernel`]).
    pub fn connecting(service: &Arc<Service>, to: &ConnectTo, sizes: Sizes, deadline: Nanos, fallback: Option<Fallback>) -> Arc<Self> {
        let stream = Arc::new(Stream::new(service, sizes, Phase::Connecting, Weak::new()));
        if let Ok(mut state) = stream.state.lock() {
            state.deadline = Some(deadline);
            state.fallback = fallback;
            state.peer = Some(to.peer);
        }
        service.register(stream.token, Arc::clone(&stream) as Arc<dyn Handler>);
        stream
    }

    /// Starts to connect over the service's fabric. Where that fails the stream is the kernel's.
    pub fn start(self: &Arc<Self>, to: &ConnectTo) -> core::result::Result<(), ConnectFailure> {
        let blocking = self.state.lock().is_ok_and(|state| state.fallback.is_none());
        match self.service.fabric().connect(to, self.token) {
            Err(failure) if self.state.lock().is_ok_and(|mut state| self.hears_on(&mut state, failure)) => {}
            // The caller makes another beginning.
            Err(ConnectFailure::Deferred) => return Err(ConnectFailure::Deferred),
            Err(failure) => {
                self.not_started();
                return Err(failure);
            }
            Ok(Started::Ready(endpoint)) => {
                self.ready(endpoint);
                if blocking && self.waits_for_itself() {
                    return Ok(());
                }
            }
            Ok(Started::Later) => {}
        }
        self.service.take_care(self.token);
        Ok(())
    }

    /// It is the kernel's before it began. Other threads may wait for it already.
    pub fn not_started(&self) {
        drop(self.service.forget(self.token));
        if let Ok(mut state) = self.state.lock()
            && state.phase == Phase::Connecting
        {
            state.fallback = None;
            self.set_phase(&mut state, Phase::Kernel);
        }
        self.sleepers.wake(Interest::all());
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
        let established = {
            let mut state = stream.state.lock()?;
            stream.note_endpoint(&mut state, &mut engine);
            engine.accept(private_data)?;
            let established = matches!(engine.endpoint().outcome(), Some(Ok(_)));
            state.engine = Some(engine);
            service.register(stream.token, Arc::clone(&stream) as Arc<dyn Handler>);
            established
        };
        if established {
            stream.established(&[]);
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

    /// The program has read something.
    #[inline(always)]
    fn note_read(&self) {
        if !self.was_read.load(Ordering::Relaxed) {
            self.note_first_read();
        }
    }

    #[cold]
    fn note_first_read(&self) {
        self.was_read.store(true, Ordering::Relaxed);
        if let Some(listener) = self.listener.upgrade() {
            listener.note_served();
        }
    }

    /// Takes completions and wakes whom they concern.
    fn pump(&self, state: &mut State) {
        let changed = self.take_in(state);
        self.sleepers.wake(changed);
    }

    /// As [`Stream::pump`], for a thread that is registered as a sleeper and looks for itself.
    fn pump_before_sleep(&self, state: &mut State, own: &Borrowed) {
        let changed = self.take_in(state);
        self.sleepers.wake_others(own, changed);
    }

    fn take_in(&self, state: &mut State) -> Interest {
        if state.phase == Phase::Connecting {
            self.first_use(state);
            self.take_outcome(state);
        }
        let Some(engine) = state.engine.as_mut() else { return Interest::empty() };
        let changed = engine.pump();
        if engine.lags() {
            self.service.take_care(self.token);
        }
        changed
    }

    /// Work that the protocol could not post within the program's call is finished by the service.
    fn hand_over(&self, state: &State) {
        let wants_to_send = state.engine.as_ref().is_some_and(|engine| engine.wants_to_send());
        self.hand_over_if(wants_to_send, state);
    }

    #[inline(always)]
    fn hand_over_if(&self, wants_to_send: bool, state: &State) {
        if wants_to_send || self.user_timeout.load(Ordering::Relaxed) != 0 && self.is_unwatched(state) {
            self.service.take_care(self.token);
        }
    }

    /// A blocking connect was interrupted: the kernel socket takes over from here if no fabric answers.
    pub fn set_fallback(&self, fallback: Fallback) -> Result<()> {
        self.state.lock()?.fallback = Some(fallback);
        Ok(())
    }

    /// Who sleeps here.
    pub fn sleepers(&self) -> &Sleepers {
        &self.sleepers
    }

    /// Whether waits for this stream spin.
    pub fn spin(&self) -> &Spin {
        &self.spin
    }

    /// The descriptor that an armed completion queue signals, -1 for none.
    pub fn event_fd(&self) -> RawFd {
        self.event_fd.load(Ordering::Acquire)
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
        if engine.is_over() || (engine.connection().peer_disconnected() && engine.write_shut()) {
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

    /// Takes over what the options say, before the program has the stream.
    pub fn adopt(&self, options: &Options) {
        self.set_receive_low(options.receive_low());
        self.set_resets(options.linger());
        let patience = options.patience();
        if patience.keep_alive.is_some() || patience.user.is_some() {
            self.set_patience(patience);
        }
    }

    /// SO_LINGER, for the end of the process.
    pub fn set_resets(&self, linger: Option<Duration>) {
        self.resets.store(linger.is_some_and(|linger| linger.is_zero()), Ordering::Relaxed);
    }

    /// SO_RCVLOWAT: how many bytes a read waits for, and poll tells of.
    pub fn set_receive_low(&self, bytes: u32) {
        self.receive_low.store(bytes, Ordering::Relaxed);
        // Who waits for more than there is may have enough now.
        self.sleepers.wake(Interest::READ);
    }

    #[inline]
    fn receive_low(&self) -> u32 {
        self.receive_low.load(Ordering::Relaxed)
    }

    /// close(2) of the last descriptor: what was written before is sent by the service, within `linger` or [`CLOSE_TIME`].
    /// A linger time of zero resets the connection (socket(7)). With a positive one the call waits for the end.
    pub fn close(self: &Arc<Self>, linger: Option<Duration>, blocking: bool) {
        let now = self.service.now();
        let time = linger.map_or(CLOSE_TIME, |linger| u64::try_from(linger.as_nanos()).unwrap_or(CLOSE_TIME));
        let ended;
        {
            let Ok(mut state) = self.state.lock() else {
                // Closed by a signal handler while its own thread works on it: the service does it.
                self.given_up.store(time.saturating_add(1), Ordering::Release);
                self.service.take_care(self.token);
                return;
            };
            if matches!(state.phase, Phase::Closing | Phase::Closed) {
                return;
            }
            state.deadline = Some(now.saturating_add(time));
            state.fallback = None;
            if state.phase == Phase::Connecting {
                self.service.fabric().cancel(self.token);
            }
            // When close returns, the peer writes to the program's memory no more.
            ended = state.engine.as_mut().map(Engine::unmap_all);
            let orderly = state.phase == Phase::Up && time > 0;
            match state.engine.as_mut() {
                Some(engine) if orderly => engine.disconnect(),
                _ => state.deadline = Some(now),
            }
            self.set_phase(&mut state, Phase::Closing);
            // Over shared memory what was sent is with the peer: nothing is left to wait for, and ending it blocks nobody.
            if state.engine.as_ref().is_some_and(|engine| engine.kind() == FabricKind::Shm)
                && let (Care::Forget, engine) = self.care_closing(&mut state, now)
            {
                drop(state);
                self.sleepers.wake(Interest::all());
                drop(self.service.forget(self.token));
                drop((ended, engine));
                return;
            }
        }
        drop(ended);
        self.sleepers.wake(Interest::all());
        self.service.take_care(self.token);
        if blocking && linger.is_some_and(|linger| !linger.is_zero()) {
            let until = Blocking::Until(Some(now.saturating_add(time)));
            let _ = self.wait(Interest::STATE, until, true, |state| state.phase == Phase::Closed);
        }
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
    #[inline(always)]
    fn may_transfer(&mut self) -> Result<bool> {
        if self.phase == Phase::Up { Ok(true) } else { self.may_transfer_later() }
    }

    #[cold]
    fn may_transfer_later(&mut self) -> Result<bool> {
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
        engine.has_error() || connection.readable() as usize >= need || engine.at_end_of_stream()
    }

    fn can_send(&self) -> bool {
        if self.phase != Phase::Up {
            return self.phase != Phase::Connecting;
        }
        let Some(engine) = &self.engine else { return true };
        let connection = engine.connection();
        engine.has_error() || connection.writable() > 0 || !connection.can_write()
    }

    fn readiness(&self, receive_low: u32) -> Readiness {
        match (self.phase, &self.engine) {
            (Phase::Kernel, _) => Readiness::Kernel,
            (Phase::Connecting | Phase::Accepting, _) => Readiness::Events(0),
            (Phase::Up, Some(engine)) => Readiness::Events(super::readiness::stream(engine, receive_low)),
            (Phase::Failed, _) => Readiness::Events(super::readiness::failed(self.error.is_some())),
            (Phase::Closing | Phase::Closed | Phase::Up, _) => Readiness::Events(libc::POLLNVAL),
        }
    }
}

impl Drop for Fallback {
    fn drop(&mut self) {
        log_trace!("fallback descriptor {} closed", self.socket.as_raw_fd());
    }
}
