//! What the service thread does with a stream: connecting, the end, and what a call could not finish.

use core::{sync::atomic::Ordering, time::Duration};
use std::{os::fd::RawFd, sync::Arc};

use super::{Moving, Phase, State, Stream};
use crate::{
    error::{Errno, Result},
    fabric::{ConnectFailure, Endpoint, Event, FabricKind},
    log_info, log_trace,
    service::{Care, Ending, Handler},
    socket::{account, connect, engine::Engine, wait::Interest},
    sys::{clock::Nanos, inside, lock::Reentered},
};

/// How long a peer has on iWARP to send its first message, which every rsockets library does at once, in nanoseconds.
const FIRST_WORD: Nanos = 1_000_000_000;

impl Stream {
    /// No fabric has made the connection: it has failed, or the time is over.
    fn not_connected(self: &Arc<Self>) {
        let (failure, peer, moving) = match self.state.lock() {
            Ok(mut state) => {
                let stopped = state.engine.as_ref().is_some_and(|engine| engine.kind() == FabricKind::Shm);
                let failure = state.failure.take();
                let moving = failure.is_none() && self.gives_up(&state);
                // That a program of this host is stopped says nothing of others there; nor does one that leaves its end alone.
                (failure, state.peer.filter(|_| !stopped && !moving), moving)
            }
            Err(_) => (None, None, false),
        };
        if failure.is_none() {
            log_trace!("connection {}: nobody answers", self.token.0);
            if let Some(peer) = peer {
                connect::remember_silent(peer.ip());
            }
            self.service.fabric().cancel(self.token);
        }
        self.connect_failed(failure.unwrap_or(if moving { ConnectFailure::Plain } else { ConnectFailure::TimedOut }));
    }

    pub(super) fn connect_failed(self: &Arc<Self>, failure: ConnectFailure) {
        let engine = {
            let Ok(mut state) = self.state.lock() else { return };
            if state.phase != Phase::Connecting {
                return;
            }
            if self.hears_on(&mut state, failure) {
                let engine = state.engine.take();
                drop(state);
                drop(engine);
                return self.service.take_care(self.token);
            }
            account::fallback(failure);
            if let Some(moving) = &state.moving {
                account::stayed(moving.is_client());
            }
            if let Some(peer) = state.peer {
                log_info!("{peer}: left to TCP: {failure}");
            }
            let (phase, error) = match state.fallback.take() {
                None => (Phase::Kernel, None),
                Some(fallback) => connect::kernel(&fallback),
            };
            state.error = error;
            state.deadline = None;
            // Before anybody can see the phase: a set that has the program's descriptor from then on would go on reporting it after the
            // program's close, by what is open of it here.
            drop(state.moving.take());
            self.set_phase(&mut state, phase);
            self.event_fd.store(-1, Ordering::Release);
            state.engine.take()
        };
        self.sleepers.wake(Interest::all());
        drop(engine);
        drop(self.service.forget(self.token));
    }

    pub(super) fn ready(self: &Arc<Self>, endpoint: Box<dyn Endpoint>) {
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
                    let neighbour = engine.kind() == FabricKind::Shm;
                    state.engine = Some(engine);
                    if neighbour {
                        self.has_patience(&mut state, self.service.now());
                    }
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

    pub(super) fn established(self: &Arc<Self>, private_data: &[u8]) {
        let (outcome, accepted) = {
            let Ok(mut state) = self.state.lock() else { return };
            let phase = state.phase;
            if !matches!(phase, Phase::Connecting | Phase::Accepting) {
                return;
            }
            (self.establish(&mut state, private_data), phase == Phase::Accepting)
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

    /// The connection stands, unless the peer's private data makes no sense.
    fn establish(&self, state: &mut State, private_data: &[u8]) -> Result<()> {
        let (was_asked, accepted) = (state.was_asked(), state.has_accepted());
        let Some(engine) = state.engine.as_mut() else { return Err(Errno::CONNRESET) };
        if was_asked {
            engine.accepted(self.service.now().saturating_add(FIRST_WORD));
        } else if let Err(errno) = engine.establish(private_data) {
            engine.end();
            return Err(errno);
        }
        let kind = engine.kind();
        engine.watch(self.user_timeout.load(Ordering::Relaxed) != 0);
        self.note_handshake();
        account::connected(kind, accepted);
        self.note_endpoint_again(state);
        if let Some(peer) = state.peer {
            log_info!("{peer}: {} over {kind}", if accepted { "accepted" } else { "connected" });
        }
        if state.moving.is_some() {
            self.service.take_care(self.token);
        }
        self.wakes_by_word.store(kind == FabricKind::Shm, Ordering::Relaxed);
        state.deadline = None;
        state.unreported = match &state.moving {
            Some(moving) => moving.is_unreported(),
            None => !accepted && state.fallback.take().is_some(),
        };
        self.set_phase(state, Phase::Up);
        self.hand_over(state);
        Ok(())
    }

    /// What has become of the connect, on a fabric whose answer comes to whoever asks first.
    #[cold]
    pub(super) fn take_outcome(&self, state: &mut State) {
        let Some(outcome) = state.engine.as_mut().and_then(|engine| engine.endpoint().outcome()) else { return };
        let failure = match outcome {
            Ok(private_data) => self.establish(state, &private_data).err().map(ConnectFailure::Other),
            Err(failure) => Some(failure),
        };
        if failure.is_some() {
            // What follows wants no lock: the service does it.
            state.failure = failure;
            self.service.take_care(self.token);
        } else {
            self.sleepers.wake(Interest::all());
        }
    }

    /// Whether the answer comes to the thread that waits for it, without the service; that is told then.
    pub(super) fn waits_for_itself(&self) -> bool {
        self.state.lock().is_ok_and(|mut state| {
            state.unattended = state.phase == Phase::Connecting;
            state.unattended
        })
    }

    /// Waits for accept from now on. Without its listener nobody will ever take it.
    pub(super) fn join_queue(self: &Arc<Self>) {
        match self.listener.upgrade() {
            Some(listener) => listener.established(self),
            None => self.close(None, false),
        }
    }

    /// The port of the own end may be known only now.
    pub(super) fn note_endpoint_again(&self, state: &mut State) {
        if let Some(engine) = state.engine.as_mut() {
            let endpoint = engine.endpoint();
            let (local, peer) = (endpoint.local_addr(), endpoint.peer_addr());
            state.local = Some(local);
            state.peer = Some(peer);
        }
        if let Some(moving) = &state.moving {
            (state.local, state.peer) = moving.names();
        }
    }

    pub(super) fn disconnected(self: &Arc<Self>) {
        let (phase, was_up) = {
            let Ok(mut state) = self.state.lock() else { return };
            if let Some(engine) = state.engine.as_mut() {
                engine.peer_gone();
            }
            let phase = state.phase;
            // The end of a short connection overtakes the word that it stood: the program gets what it has brought, as with TCP.
            let was_up = state.was_asked() && phase != Phase::Up && state.engine.as_ref().is_some_and(Engine::has_arrived);
            if was_up {
                self.note_endpoint_again(&mut state);
                if let Some(engine) = &state.engine {
                    account::connected(engine.kind(), state.has_accepted());
                }
                self.set_phase(&mut state, Phase::Up);
                self.hand_over(&state);
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
            Phase::Connecting if !was_up => self.connect_failed(ConnectFailure::Refused),
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
            Event::Incoming { endpoint, private_data, .. } => self.taken(endpoint, private_data),
            Event::Declined { .. } => self.declined(),
        }
    }

    fn care(self: Arc<Self>, now: Nanos) -> Care {
        if let Some(time) = self.given_up.swap(0, Ordering::AcqRel).checked_sub(1) {
            self.close(Some(Duration::from_nanos(time)), false);
        }
        self.move_on(now);
        let (care, engine, moved) = {
            let Ok(mut state) = self.state.lock() else { return Care::Until(Some(now.saturating_add(1_000_000))) };
            let moved = if state.phase == Phase::Up { state.moving.take() } else { None };
            let (care, engine) = match state.phase {
                Phase::Closing => self.care_closing(&mut state, now),
                Phase::Up => (self.care_up(&mut state), None),
                Phase::Connecting => (self.care_connecting(&mut state, now), None),
                Phase::Accepting | Phase::Kernel | Phase::Failed => (Care::Release, None),
                Phase::Closed => (Care::Forget, state.engine.take()),
            };
            (care, engine, moved)
        };
        drop(engine);
        if let Some(moved) = moved {
            moved.leave();
        }
        if matches!(care, Care::Forget) {
            if self.phase() == Phase::Connecting {
                self.not_connected();
            }
            // It may have been the end of a first attempt only.
            if self.phase() == Phase::Connecting {
                return Care::Until(Some(now));
            }
            self.sleepers.wake(Interest::all());
        }
        care
    }

    fn event_fd(&self) -> Option<RawFd> {
        let fd = self.event_fd.load(Ordering::Acquire);
        let state = self.state.lock().ok()?;
        let watched = match state.phase {
            Phase::Connecting => return Moving::watched(&state).or((fd >= 0).then_some(fd)),
            Phase::Closing => true,
            _ => state.engine.as_ref().is_some_and(|engine| engine.wants_to_send() || engine.is_exposed()),
        };
        (fd >= 0 && watched).then_some(fd)
    }

    fn before_fork(self: Arc<Self>) {
        self.stay();
    }

    fn end(&self, now: Nanos) -> Ending {
        // Waits for no lock: see `sys::lock`.
        let _hurry = inside::hurry();
        match self.state.lock() {
            Ok(mut state) => self.end_now(&mut state, now),
            Err(Reentered) => Ending::Held,
        }
    }
}
