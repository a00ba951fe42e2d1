//! How many processors this process may use.

use core::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use super::{
    cgroup,
    clock::{self, Nanos},
};
use crate::error::Errno;

/// How long what was found is believed, in nanoseconds: masks and limits change while programs run (taskset(1), containers).
const BELIEVED: Nanos = 1_000_000_000;

/// What is known, and until when it is believed. Shared by all threads, each of which may be the one that looks.
struct Known {
    spin: AtomicBool,
    until: AtomicU64,
}

impl Known {
    const fn new() -> Self {
        Known { spin: AtomicBool::new(false), until: AtomicU64::new(0) }
    }

    /// The answer at `now`; `look` finds a new one where the old one is too old. One thread looks, the others take the old answer
    /// meanwhile, which is "no" at first.
    fn get(&self, now: Nanos, look: impl FnOnce() -> bool) -> bool {
        let until = self.until.load(Ordering::Relaxed);
        if now >= until && self.until.compare_exchange(until, now.saturating_add(BELIEVED), Ordering::Relaxed, Ordering::Relaxed).is_ok() {
            self.spin.store(look(), Ordering::Relaxed);
        }
        self.spin.load(Ordering::Relaxed)
    }
}

/// Whether spinning can help: the one that is waited for needs a processor of its own. Where a control group limits the time on
/// processors to less than two, what a spinner uses up is missing later.
///
/// Looks at most once a second, without the heap. For waits of rsockets: it reads files, and is never called for other descriptors.
pub fn may_spin() -> bool {
    static KNOWN: Known = Known::new();
    KNOWN.get(clock::now(), || several_in_mask() && cgroup::processors().is_none_or(|processors| processors > 1))
}

/// As [`may_spin`], where it is known on which processor the one runs that is waited for: the mask does not matter.
pub fn quota_allows_spinning() -> bool {
    static KNOWN: Known = Known::new();
    KNOWN.get(clock::now(), || cgroup::processors().is_none_or(|processors| processors > 1))
}

/// Whether the calling thread may run on more than one processor.
fn several_in_mask() -> bool {
    match rustix::thread::sched_getaffinity(None) {
        Ok(set) => set.count() > 1,
        // The machine has more processors than the set has room for.
        Err(Errno::INVAL) => true,
        Err(_) => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_answer_is_believed_for_a_second() {
        let known = Known::new();
        assert!(known.get(5, || true));
        assert!(known.get(5 + BELIEVED - 1, || unreachable!()));
        assert!(!known.get(5 + BELIEVED, || false));
        assert!(!known.get(5 + BELIEVED + 1, || unreachable!()));
        assert!(known.get(5 + 2 * BELIEVED, || true));
    }

    #[test]
    fn while_one_looks_others_take_the_old_answer() {
        let known = Known::new();
        assert!(known.get(1, || !known.get(1, || unreachable!())));
        assert!(!known.get(1 + BELIEVED, || !known.get(1 + BELIEVED, || unreachable!())));
    }

    #[test]
    fn a_thread_with_one_processor_does_not_spin() {
        std::thread::spawn(|| {
            let all = rustix::thread::sched_getaffinity(None).unwrap();
            let mut one = rustix::thread::CpuSet::new();
            one.set((0..rustix::thread::CpuSet::MAX_CPU).find(|cpu| all.is_set(*cpu)).unwrap());
            assert_eq!(several_in_mask(), all.count() > 1);
            rustix::thread::sched_setaffinity(None, &one).unwrap();
            assert!(!several_in_mask());
        })
        .join()
        .unwrap();
    }
}
