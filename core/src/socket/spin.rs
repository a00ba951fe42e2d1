//! How long a wait spins before it sleeps (`polling_time`), and whether that is worth while.
//!
//! What comes within the polling time comes without a sleep and a wake-up, which cost more. Where it comes later the time is lost, for
//! others too if they have no processor of their own: after waits that spun in vain some sleep at once, the more the longer that goes on.
//! Where the peer shares the processor (over shared memory both ends tell on which one they wait), a spinner gives it away between its
//! looks: that switches to the peer, at once and without a system call of the peer's.

use core::{
    sync::atomic::{AtomicU32, Ordering},
    time::Duration,
};

use crate::{
    config,
    sys::{
        clock::{self, Nanos},
        cpus,
    },
};

/// So often the number of waits that do not spin doubles.
const DOUBLINGS: u32 = 5;

/// How long a receiver holds back, in nanoseconds: some messages' time for who sends small ones, and little for who waits.
const HOLD_BACK: Nanos = 600;

/// How a wait spins.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Turns {
    /// For how long.
    pub time: Duration,
    /// The processor is offered to others after each look: the one that is waited for needs it.
    yields: bool,
}

impl Turns {
    /// Before the first look, where messages come one after the other and wait for no answer: each look takes the cache line that the next
    /// one is written to away from who writes it. What has come together meanwhile is taken by one look.
    pub fn hold_back(self) {
        if !self.yields {
            hold_back_now();
        }
    }

    /// Between two looks.
    pub fn pause(self) {
        if self.yields {
            rustix::thread::sched_yield();
        } else {
            core::hint::spin_loop();
        }
    }
}

fn may_spin(beside: Option<bool>) -> bool {
    match beside {
        // A caller that is bound to one processor may spin while the peer has another.
        Some(_) => cpus::quota_allows_spinning(),
        None => cpus::may_spin(),
    }
}

/// As [`Turns::hold_back`], where no wait is needed to find something, but too little. `beside`: as for [`Spin::turns`].
#[inline(never)]
pub fn hold_back(beside: Option<bool>) {
    if beside != Some(true) && !config::get().polling_time.is_zero() && may_spin(beside) {
        hold_back_now();
    }
}

fn hold_back_now() {
    let until = clock::now().saturating_add(HOLD_BACK);
    while clock::now() < until {
        core::hint::spin_loop();
    }
}

/// What the waits of a socket have taught. Two threads may overwrite each other's lesson: it costs a spin.
#[derive(Default)]
pub struct Spin {
    in_vain: AtomicU32,
    skip: AtomicU32,
}

impl Spin {
    /// How the next wait spins; `None`: not at all. `beside`: whether the peer shares the caller's processor, if that is known; asked
    /// also where this wait does not spin after all, as the peer learns by it where the caller waits.
    pub fn turns(&self, beside: impl FnOnce() -> Option<bool>) -> Option<Turns> {
        let polling = config::get().polling_time;
        if polling.is_zero() {
            return None;
        }
        let beside = beside();
        let skip = self.skip.load(Ordering::Relaxed);
        if skip > 0 {
            self.skip.store(skip - 1, Ordering::Relaxed);
            return None;
        }
        may_spin(beside).then_some(Turns { time: polling, yields: beside == Some(true) })
    }

    /// A wait has spun, and found what it waited for or not.
    pub fn spun(&self, found: bool) {
        let in_vain = if found { 0 } else { self.in_vain.load(Ordering::Relaxed) + 1 };
        self.in_vain.store(in_vain.min(DOUBLINGS), Ordering::Relaxed);
        // The first time may be chance.
        self.skip.store((1 << in_vain.min(DOUBLINGS)) / 2, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// How many waits sleep at once after one that has spun in vain.
    fn sleeps(spin: &Spin) -> u32 {
        spin.spun(false);
        let skipped = spin.skip.load(Ordering::Relaxed);
        for _ in 0..skipped {
            assert_eq!(spin.turns(|| None), None);
        }
        assert_eq!(spin.skip.load(Ordering::Relaxed), 0);
        skipped
    }

    #[test]
    fn yields_to_a_peer_on_the_same_processor() {
        let spin = Spin::default();
        let yields = |beside| spin.turns(|| beside).map(|turns| turns.yields);
        let expected = |yields| (!config::get().polling_time.is_zero() && cpus::quota_allows_spinning()).then_some(yields);
        assert_eq!(yields(Some(true)), expected(true));
        assert_eq!(yields(Some(false)), expected(false));
        assert_ne!(yields(None), Some(true));
    }

    #[test]
    fn spins_less_and_less_where_it_does_not_help() {
        let spin = Spin::default();
        assert_eq!([0; 7].map(|_| sleeps(&spin)), [1, 2, 4, 8, 16, 16, 16]);
        spin.spun(true);
        assert_eq!(spin.skip.load(Ordering::Relaxed), 0);
        assert_eq!(sleeps(&spin), 1);
    }
}
