//! How long an end waits for one that is known to be this library: the time in which this process is kept from looking does not count. On a
//! machine with too much to do, or one that stood still, the peer was kept from answering as well.

use core::time::Duration;

use crate::sys::clock::Nanos;

/// Between looks, in nanoseconds.
const TICK: Nanos = 30_000_000;
/// A look that comes later than this does not count, in nanoseconds.
const LATE: Nanos = 2_000_000;
/// How many times the time may pass in all.
const MOST: u64 = 4;

/// See the module.
pub(super) struct Patience {
    /// Looks that count and are to come.
    looks: u64,
    next: Nanos,
    end: Nanos,
}

impl Patience {
    pub(super) fn new(now: Nanos, time: Duration) -> Self {
        let time = Nanos::try_from(time.as_nanos()).unwrap_or(Nanos::MAX);
        let looks = time.div_ceil(TICK).max(1);
        Patience { looks, next: now.saturating_add(time.min(TICK)), end: now.saturating_add(time.saturating_mul(MOST)) }
    }

    /// When to look again.
    pub(super) fn next(&self) -> Nanos {
        self.next
    }

    /// A look. False: the time is over.
    pub(super) fn lasts(&mut self, now: Nanos) -> bool {
        let Some(late) = now.checked_sub(self.next) else { return true };
        self.looks -= u64::from(late <= LATE);
        self.next = now.saturating_add(TICK);
        self.looks > 0 && now < self.end
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const TIME: Duration = Duration::from_millis(300);

    /// How long it lasts where each look comes so much too late.
    fn lasts(late: impl Fn(u64) -> Nanos) -> Nanos {
        let start = 7_000_000_000;
        let mut patience = Patience::new(start, TIME);
        for look in 0.. {
            let now = patience.next() + late(look);
            assert!(patience.lasts(now - late(look) - 1), "it is not time");
            if !patience.lasts(now) {
                return now - start;
            }
        }
        0
    }

    #[test]
    fn in_time_it_is_the_time() {
        assert_eq!(lasts(|_| 0), 300_000_000);
        assert_eq!(lasts(|_| 1_000_000), 310_000_000);
    }

    #[test]
    fn what_comes_late_does_not_count() {
        let half = 500_000_000;
        assert_eq!(lasts(|look| if look == 3 { half } else { 0 }), 330_000_000 + half);
        assert_eq!(lasts(|look| if look % 2 == 0 { 20_000_000 } else { 0 }), 20 * 30_000_000 + 10 * 20_000_000);
    }

    #[test]
    fn it_ends() {
        assert_eq!(lasts(|_| 70_000_000), 1_200_000_000);
        assert!(lasts(|_| 40_000_000_000) < 41_000_000_000);
    }

    #[test]
    fn no_time_is_over_at_the_first_look() {
        assert!(!Patience::new(5, Duration::ZERO).lasts(5));
        assert!(Patience::new(5, Duration::MAX).lasts(6));
    }
}
