//! The turns that the service takes for a stream (lock 4): what could not be finished within the program's calls.

use core::{sync::atomic::Ordering, time::Duration};

use super::{CLOSE_TIME, Engine, Phase, State, Stream};
use crate::{
    error::Errno,
    log_debug,
    service::{Care, Ending},
    socket::wait::Interest,
    sys::clock::{self, Nanos},
};

/// How long the end of a connection waits for the peer's, where that is needed, in nanoseconds.
const FAREWELL: Nanos = 2_000_000_000;

/// TCP_USER_TIMEOUT: how often in its time a look is taken at what the peer has acknowledged.
const LOOKS: Nanos = 4;

/// What waits for the peer.
#[derive(Clone, Copy, Debug)]
pub(super) struct Stall {
    /// Nothing has moved since.
    since: Nanos,
    /// What had been moved then, see [`Engine::progress`].
    mark: (u64, u64),
}

/// How long a peer may be silent that has something to acknowledge.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Patience {
    /// SO_KEEPALIVE: the time between keep-alive messages.
    pub keep_alive: Option<Duration>,
    /// How long one of these may go without an answer: TCP_KEEPINTVL times TCP_KEEPCNT.
    pub probes: Duration,
    /// TCP_USER_TIMEOUT.
    pub user: Option<Duration>,
}

fn nanos(time: Duration) -> Nanos {
    u64::try_from(time.as_nanos()).unwrap_or(u64::MAX)
}

impl Stream {
    /// What the options say of a peer that does not answer.
    pub fn set_patience(&self, patience: Patience) {
        let user = patience.user.map_or(0, nanos);
        let every = patience.keep_alive.map_or(0, |every| nanos(every).max(1));
        self.keep_alive.store(every, Ordering::Relaxed);
        self.probes.store(patience.user.map_or(nanos(patience.probes), nanos), Ordering::Relaxed);
        self.user_timeout.store(user, Ordering::Relaxed);
        // The service may have made a plan with what was said before.
        if let Ok(mut state) = self.state.lock() {
            (state.next_keep_alive, state.probe_until, state.stall) = (None, None, None);
            if let Some(engine) = state.engine.as_mut() {
                engine.watch(user != 0);
            }
        }
        if every != 0 || user != 0 {
            self.service.take_care(self.token);
        }
    }

    /// Something waits for the peer, for which there is a time limit, and the service does not know of it.
    #[cold]
    pub(super) fn is_unwatched(&self, state: &State) -> bool {
        state.stall.is_none() && state.engine.as_ref().is_some_and(|engine| engine.is_open() && engine.waits_for_peer())
    }

    /// tcp(7), TCP_USER_TIMEOUT: "the maximum amount of time in milliseconds that transmitted data may remain unacknowledged, or buffered
    /// data may remain untransmitted (due to zero window size) before TCP will forcibly close the corresponding connection and return
    /// ETIMEDOUT". Gives the time of the next look.
    fn watch_peer(&self, state: &mut State, now: Nanos) -> Option<Nanos> {
        let limit = self.user_timeout.load(Ordering::Relaxed);
        let engine = state.engine.as_mut()?;
        if limit == 0 || !engine.is_open() || !engine.waits_for_peer() {
            state.stall = None;
            return None;
        }
        let mark = engine.progress();
        let since = state.stall.filter(|stall| stall.mark == mark).map_or(now, |stall| stall.since);
        state.stall = Some(Stall { since, mark });
        let until = since.saturating_add(limit);
        if now < until {
            return Some(until.min(now.saturating_add((limit / LOOKS).max(1))));
        }
        self.give_up(state);
        None
    }

    /// The peer does not answer.
    fn give_up(&self, state: &mut State) {
        log_debug!("connection {}: no answer within the time that the program gives", self.token.0);
        if let Some(engine) = state.engine.as_mut() {
            engine.reset(Errno::TIMEDOUT);
        }
        self.sleepers.wake(Interest::all());
    }

    /// Keep-alive: sends a message when it is time, and gives up where none was answered. Gives the time of the next look.
    fn keep_alive(&self, state: &mut State, now: Nanos) -> Option<Nanos> {
        let every = self.keep_alive.load(Ordering::Relaxed);
        let engine = state.engine.as_mut()?;
        if every == 0 || !engine.is_open() {
            return None;
        }
        if !engine.connection().is_probing() {
            state.probe_until = None;
        }
        if state.probe_until.is_some_and(|until| now >= until) {
            self.give_up(state);
            return None;
        }
        let due = *state.next_keep_alive.get_or_insert(now.saturating_add(every));
        if now >= due {
            engine.keep_alive();
            state.next_keep_alive = Some(now.saturating_add(every));
            state.probe_until.get_or_insert(now.saturating_add(self.probes.load(Ordering::Relaxed)));
        }
        clock::earlier(state.next_keep_alive, state.probe_until)
    }

    /// A turn for a stream that is being connected. [`Care::Forget`]: that has failed.
    pub(super) fn care_connecting(&self, state: &mut State, now: Nanos) -> Care {
        if let Some(engine) = state.engine.as_mut() {
            engine.clear_events();
        }
        self.take_outcome(state);
        self.count_time(state, now);
        match (state.phase, state.failure, state.deadline) {
            (Phase::Connecting, Some(_), _) => Care::Forget,
            (Phase::Connecting, None, Some(deadline)) if now >= deadline => Care::Forget,
            (Phase::Connecting, None, deadline) => Care::Until(clock::earlier(deadline, self.moving_until(state, now))),
            _ => Care::Release,
        }
    }

    /// The process ends: as close does it, and the kernel for TCP, whose only option that counts then is a linger time of 0. Everything
    /// stays where it is, since to give memory back may not be possible here.
    pub(super) fn end_now(&self, state: &mut State, now: Nanos) -> Ending {
        if state.phase == Phase::Up {
            state.deadline = Some(now.saturating_add(CLOSE_TIME));
            match state.engine.as_mut() {
                Some(engine) if !self.resets.load(Ordering::Relaxed) => engine.disconnect(),
                _ => state.deadline = Some(now),
            }
            self.set_phase(state, Phase::Closing);
        }
        if state.phase == Phase::Closing
            && let (Care::Forget, engine) = self.care_closing(state, now)
        {
            state.engine = engine;
        }
        if state.phase == Phase::Closing { Ending::Waits } else { Ending::Over }
    }

    /// A turn of the service for a stream that is being closed.
    pub(super) fn care_closing(&self, state: &mut State, now: Nanos) -> (Care, Option<Engine>) {
        let deadline = state.deadline.unwrap_or(now);
        let finished = match state.engine.as_mut() {
            None => true,
            Some(engine) => {
                engine.clear_events();
                engine.pump();
                engine.speak(now);
                if !engine.is_delivered() {
                    engine.arm();
                    engine.pump();
                }
                let sent = engine.is_delivered();
                if sent && engine.needs_farewell() {
                    state.farewell.get_or_insert(now.saturating_add(FAREWELL));
                    engine.arm();
                    engine.pump();
                }
                (sent && (!engine.needs_farewell() || state.farewell.is_some_and(|until| now >= until))) || now >= deadline
            }
        };
        if !finished {
            let first_word = state.engine.as_ref().and_then(Engine::listens_until);
            return (Care::Until(clock::earlier(clock::earlier(Some(deadline), first_word), state.farewell)), None);
        }
        match state.engine.as_mut() {
            // Nobody has asked for an orderly end.
            Some(engine) if engine.is_open() => engine.end_in_disorder(),
            Some(engine) => engine.end(),
            None => {}
        }
        self.set_phase(state, Phase::Closed);
        self.event_fd.store(-1, Ordering::Release);
        (Care::Forget, state.engine.take())
    }

    /// A turn for a stream that is connected: control messages that had to wait, and keep-alive.
    pub(super) fn care_up(&self, state: &mut State) -> Care {
        let Some(engine) = state.engine.as_mut() else { return Care::Release };
        // The turn may have begun before the program's last call, whose time limits must not end early.
        let now = self.service.now();
        let mut changed = engine.pump();
        let watched = self.user_timeout.load(Ordering::Relaxed) != 0 || state.probe_until.is_some();
        let mut next = clock::earlier(self.keep_alive(state, now), self.watch_peer(state, now));
        let Some(engine) = state.engine.as_mut() else { return Care::Release };
        if watched {
            changed |= engine.pump();
        }
        engine.speak(now);
        if engine.wants_to_send() {
            engine.clear_events();
            engine.arm();
            changed |= engine.pump();
            // Keep-alive of a dead peer, or a queue that is full: looked at again soon even if the announcement went to another thread.
            next = clock::earlier(next, Some(now.saturating_add(20_000_000)));
        } else if engine.is_exposed() {
            engine.clear_events();
            changed |= engine.pump();
        }
        let exposed = engine.is_exposed();
        if engine.lags() {
            next = Some(now);
        }
        if self.sleepers.any() {
            engine.arm();
            changed |= engine.pump();
        }
        self.sleepers.wake(changed);
        if next.is_some() || exposed { Care::Until(next) } else { Care::Release }
    }
}
