//! The turns that the service takes for a stream (lock 4): what could not be finished within the program's calls.

use core::sync::atomic::Ordering;

use super::{Engine, Phase, State, Stream};
use crate::{
    service::Care,
    sys::clock::{self, Nanos},
};

/// How long the end of a connection waits for the peer's, where that is needed, in nanoseconds.
const FAREWELL: Nanos = 2_000_000_000;

impl Stream {
    /// A turn for a stream that is being connected. [`Care::Forget`]: that has failed.
    pub(super) fn care_connecting(&self, state: &mut State, now: Nanos) -> Care {
        if let Some(engine) = state.engine.as_mut() {
            engine.clear_events();
        }
        self.take_outcome(state);
        match (state.phase, state.failure, state.deadline) {
            (Phase::Connecting, Some(_), _) => Care::Forget,
            (Phase::Connecting, None, Some(deadline)) if now >= deadline => Care::Forget,
            (Phase::Connecting, None, deadline) => Care::Until(deadline),
            _ => Care::Release,
        }
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
                if !engine.connection().all_sent() {
                    engine.arm();
                    engine.pump();
                }
                let sent = engine.connection().all_sent();
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
        if let Some(engine) = state.engine.as_mut() {
            engine.end();
        }
        self.set_phase(state, Phase::Closed);
        self.event_fd.store(-1, Ordering::Release);
        (Care::Forget, state.engine.take())
    }

    /// A turn for a stream that is connected: control messages that had to wait, and keep-alive.
    pub(super) fn care_up(&self, state: &mut State, now: Nanos) -> Care {
        let every = self.keep_alive.load(Ordering::Relaxed);
        let Some(engine) = state.engine.as_mut() else { return Care::Release };
        let mut next = None;
        if every != 0 && engine.is_open() {
            let due = *state.next_keep_alive.get_or_insert(now.saturating_add(every));
            if now >= due {
                engine.keep_alive();
                state.next_keep_alive = Some(now.saturating_add(every));
            }
            next = state.next_keep_alive;
        }
        let mut changed = engine.pump();
        engine.speak(now);
        if engine.wants_to_send() {
            engine.clear_events();
            engine.arm();
            changed |= engine.pump();
            // Keep-alive of a dead peer, or a queue that is full: looked at again soon even if the announcement went to another thread.
            next = clock::earlier(next, Some(now.saturating_add(20_000_000)));
        }
        if self.sleepers.any() {
            engine.arm();
            changed |= engine.pump();
        }
        self.sleepers.wake(changed);
        if next.is_some() { Care::Until(next) } else { Care::Release }
    }
}
