//! How a thread waits for a stream (DESIGN: D6): spin, register, arm, look, sleep.

use core::{sync::atomic::Ordering, time::Duration};
use std::sync::Arc;

use super::{Blocking, Phase, State, Stream};
use crate::{
    config,
    error::{Errno, Result},
    fabric::SleepWord,
    socket::{
        readiness::Readiness,
        spin::Turns,
        wait::{self, Borrowed, Interest},
    },
    stats::{self, Counter},
    sys::{
        clock::{self, Nanos},
        futex,
        owner::Process,
        ppoll::{PollFd, ppoll},
        signals,
    },
};

/// How long a thread that connects waits by itself for an answer, before the service sees to the deadline, in nanoseconds. It comes
/// within a fraction of that, or late.
const PATIENCE: Nanos = 10_000_000;

/// How long it spins before it sleeps: the listener has to be woken first, and two wake-ups take longer than the usual polling time.
const ANSWER_TIME: Duration = Duration::from_micros(100);

/// A word that is armed, and what it holds until it is woken.
type ArmedWord = Option<(Arc<dyn SleepWord>, u32)>;

/// How a watcher looks at a stream.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum See {
    /// As it is.
    Now,
    /// The next change shall be announced on the event descriptor.
    Arm,
    /// The event descriptor was readable: the announcement is taken off.
    Announced,
}

/// What a watcher has seen of a socket.
#[derive(Clone, Copy, Debug)]
pub struct Seen {
    /// poll's events.
    pub readiness: Readiness,
    /// What has arrived in all, modulo 2^32: another number says that something new is there.
    pub arrivals: u32,
    /// How often a write has found no room for all, modulo 2^32.
    pub blocked: u32,
    /// Nothing will be announced any more, though the event descriptor stays readable.
    pub over: bool,
}

/// Sleeps until the peer wakes the word or somebody of this process the waiter. Only a signal is an error, one whose handler does not
/// restart calls.
fn sleep_on_word(waiter: &Borrowed, memory: &dyn SleepWord, holds: u32) -> Result<bool> {
    let Some(own) = waiter.word() else { return Ok(false) };
    let deadline = config::get().wake_up_interval.and_then(|most| clock::deadline(clock::now(), Some(most)));
    match futex::wait(futex::Word { word: memory.word(), holds }, own, deadline) {
        Err(Errno::INTR) => Err(Errno::INTR),
        _ => Ok(false),
    }
}

impl Stream {
    /// Waits until `ready`, in the order of DESIGN D6: spin, register, arm, look, sleep.
    ///
    /// A signal ends the wait, unless `restart` is set and its handler restarts calls: a call that has transferred something is never
    /// restarted, but returns how much.
    pub(super) fn wait(&self, interest: Interest, blocking: Blocking, restart: bool, ready: impl Fn(&State) -> bool) -> Result<()> {
        let Blocking::Until(deadline) = blocking else { return Err(Errno::AGAIN) };
        let process = Process::this();
        if self.spin_until(&ready)? {
            return Ok(());
        }
        stats::add(Counter::WaitsSlept, 1);
        let waiter = wait::waiter();
        loop {
            // The kernel restarts the sleep on a word where signal(7) says so; where it must not, there are the descriptors.
            let on_word = restart && deadline.is_none() && self.wakes_by_word.load(Ordering::Relaxed) && futex::is_available();
            waiter.sleep_on_word(on_word);
            self.sleepers.add(&waiter, interest | Interest::STATE);
            let slept = match self.look_before_sleep(&waiter, on_word, &ready) {
                Ok((true, _)) => Ok(true),
                Ok((false, Some((memory, holds)))) => sleep_on_word(&waiter, &*memory, holds),
                Ok((false, None)) if on_word => Ok(false),
                Ok((false, None)) => self.sleep(&waiter, deadline, restart),
                Err(errno) => Err(errno),
            };
            if process.has_forked() {
                return Err(Errno::INTR);
            }
            self.sleepers.remove(&waiter);
            // Nobody wakes it any more: each does so under the lock that was just held.
            waiter.reset(false);
            match slept {
                Ok(true) => return Ok(()),
                Ok(false) => {}
                Err(errno) => return Err(errno),
            }
            let ready = if on_word { self.look_after_word(&ready)? } else { self.look_again(&ready)? };
            if ready {
                return Ok(());
            }
            if deadline.is_some_and(|deadline| clock::now() >= deadline) {
                return Err(Errno::AGAIN);
            }
        }
    }

    fn spin_until(&self, ready: &impl Fn(&State) -> bool) -> Result<bool> {
        // Nothing has changed since the caller looked: only time can help.
        let Some(turns) = self.spin_turns() else { return Ok(false) };
        if self.state.lock()?.engine.as_ref().is_some_and(|engine| engine.is_streamed_to()) {
            turns.hold_back();
        }
        let found = self.spin_for(turns.time, turns, ready);
        self.spin.spun(found == Ok(true));
        found
    }

    /// How a wait for this stream spins, here and now. `None`: not at all.
    pub fn spin_turns(&self) -> Option<Turns> {
        self.spin.turns(|| self.waits_beside_peer())
    }

    fn spin_for(&self, time: Duration, turns: Turns, ready: &impl Fn(&State) -> bool) -> Result<bool> {
        let process = Process::this();
        let until = clock::now().saturating_add(u64::try_from(time.as_nanos()).unwrap_or(0));
        loop {
            if process.has_forked() {
                return Err(Errno::INTR);
            }
            {
                let mut state = self.state.lock()?;
                self.pump(&mut state);
                if ready(&state) {
                    return Ok(true);
                }
            }
            if clock::now() >= until {
                return Ok(false);
            }
            turns.pause();
        }
    }

    /// Arms the completion queue and looks once more. The caller has registered as a sleeper.
    fn look_before_sleep(&self, waiter: &Borrowed, on_word: bool, ready: &impl Fn(&State) -> bool) -> Result<(bool, ArmedWord)> {
        let mut state = self.state.lock()?;
        let mut word = None;
        if let Some(engine) = state.engine.as_mut() {
            if on_word {
                word = engine.endpoint().arm_word();
            } else {
                engine.arm();
            }
        }
        self.pump_before_sleep(&mut state, waiter);
        Ok((ready(&state), word))
    }

    /// After a sleep on a word: it has been taken off by whoever has woken, and who else sleeps was woken too.
    fn look_after_word(&self, ready: &impl Fn(&State) -> bool) -> Result<bool> {
        let mut state = self.state.lock()?;
        self.pump(&mut state);
        Ok(ready(&state))
    }

    /// Sleeps until an event, a wake-up or the deadline; a signal is an error unless its handler restarts calls.
    pub(super) fn sleep(&self, waiter: &Borrowed, deadline: Option<Nanos>, restart: bool) -> Result<bool> {
        let mut set = [
            PollFd { fd: waiter.event_fd(), events: libc::POLLIN, revents: 0 },
            PollFd { fd: self.event_fd.load(Ordering::Acquire), events: libc::POLLIN, revents: 0 },
        ];
        let mut left = clock::left(clock::now(), deadline);
        if let Some(most) = config::get().wake_up_interval {
            left = Some(left.map_or(most, |left| left.min(most)));
        }
        // signal(7): the socket interfaces are never restarted when a time-out is set on the socket.
        let restart = restart && deadline.is_none();
        let time = waiter.sleep_time(left);
        let slept = if restart { signals::sleep(&mut set, time) } else { ppoll(&mut set, time, None) };
        slept.map(|_| false)
    }

    /// After a poller's sleep: takes the announcement off. The poller, which is still registered, looks for itself.
    pub fn look_after_sleep(&self, waiter: &Borrowed) -> Result<()> {
        let mut state = self.state.lock()?;
        if let Some(engine) = state.engine.as_mut() {
            engine.clear_events();
            // The poller arms the queue itself, if it goes on sleeping.
            if self.sleepers.any_others() {
                engine.arm();
            }
        }
        self.pump_before_sleep(&mut state, waiter);
        Ok(())
    }

    /// Takes the announcement off and, where others still sleep, arms the queue for them. Gives what `ready` says then.
    pub(super) fn look_again(&self, ready: &impl Fn(&State) -> bool) -> Result<bool> {
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
        Ok(ready(&state))
    }

    /// Waits for the outcome of a connect: the phase that is not [`Phase::Connecting`].
    pub fn wait_connected(&self, blocking: Blocking) -> Result<Phase> {
        let decided = |state: &State| state.phase != Phase::Connecting;
        let process = Process::this();
        let unattended = core::mem::take(&mut self.state.lock()?.unattended);
        if let (true, Blocking::Until(deadline)) = (unattended, blocking) {
            if let Some(turns) = self.spin.turns(|| None)
                && self.spin_for(ANSWER_TIME, turns, &decided)?
            {
                return Ok(self.phase());
            }
            let patience = clock::now().saturating_add(PATIENCE);
            let answered = self.wait(Interest::STATE, Blocking::Until(clock::earlier(deadline, Some(patience))), true, decided);
            if process.has_forked() {
                return Err(Errno::INTR);
            }
            if answered.is_err() {
                self.service.take_care(self.token);
            }
            match answered {
                Err(Errno::AGAIN) => {}
                // The time was the library's, not one that is set on the socket.
                Err(Errno::INTR) if deadline.is_none() && signals::restarts() => {}
                other => return other.map(|()| self.phase()),
            }
        }
        self.wait(Interest::STATE, blocking, true, decided)?;
        Ok(self.phase())
    }

    /// poll's events of this stream.
    pub fn readiness(&self) -> Result<Readiness> {
        let mut state = self.state.lock()?;
        self.pump(&mut state);
        self.hand_over(&state);
        Ok(state.readiness(self.receive_low()))
    }

    /// What a watcher sees (see [`Watcher`](crate::socket::wait::Watcher)).
    pub fn see(&self, how: See) -> Result<Seen> {
        let mut state = self.state.lock()?;
        if let Some(engine) = state.engine.as_mut() {
            if how == See::Announced {
                engine.clear_events();
            }
            if how == See::Arm || how == See::Announced && self.sleepers.any_others() {
                engine.arm();
            }
        }
        self.pump(&mut state);
        self.hand_over(&state);
        let over = how == See::Announced && state.engine.as_ref().is_some_and(|engine| engine.event_fd().is_none());
        let (arrivals, blocked) = state.engine.as_ref().map_or((0, 0), |engine| (engine.connection().arrivals(), engine.blocked()));
        Ok(Seen { readiness: state.readiness(self.receive_low()), arrivals, blocked, over })
    }

    /// Whether the peer waits on the caller's processor, if that is known; the peer learns where the caller does.
    pub fn waits_beside_peer(&self) -> Option<bool> {
        self.state.lock().ok()?.engine.as_ref()?.waits_beside_peer()
    }

    /// For a poller that has registered as a sleeper: arms, looks, and gives its events.
    pub fn arm_and_look(&self, waiter: &Borrowed) -> Result<Readiness> {
        let mut state = self.state.lock()?;
        if let Some(engine) = state.engine.as_mut() {
            engine.arm();
        }
        self.pump_before_sleep(&mut state, waiter);
        Ok(state.readiness(self.receive_low()))
    }
}
