//! Monotonic time as plain nanoseconds, so that the simulation can pass its own.

use core::time::Duration;

use rustix::time::{ClockId, clock_gettime};

/// Nanoseconds of CLOCK_MONOTONIC.
pub type Nanos = u64;

/// Now.
pub fn now() -> Nanos {
    let time = clock_gettime(ClockId::Monotonic);
    let seconds = u64::try_from(time.tv_sec).unwrap_or(0);
    seconds.saturating_mul(1_000_000_000).saturating_add(u64::try_from(time.tv_nsec).unwrap_or(0))
}

/// Lets this time pass, or less where a signal comes.
pub fn sleep(time: Duration) {
    let time = rustix::time::Timespec { tv_sec: i64::try_from(time.as_secs()).unwrap_or(i64::MAX), tv_nsec: time.subsec_nanos().into() };
    let _ = rustix::thread::nanosleep(&time);
}

/// A point in time `after` from `now`; `None` stays "never".
pub fn deadline(now: Nanos, after: Option<Duration>) -> Option<Nanos> {
    after.map(|after| now.saturating_add(u64::try_from(after.as_nanos()).unwrap_or(u64::MAX)))
}

/// What is left until a deadline; zero if it has passed, `None` for never.
pub fn left(now: Nanos, deadline: Option<Nanos>) -> Option<Duration> {
    deadline.map(|deadline| Duration::from_nanos(deadline.saturating_sub(now)))
}

/// The earlier of two deadlines where `None` is never.
pub fn earlier(one: Option<Nanos>, other: Option<Nanos>) -> Option<Nanos> {
    match (one, other) {
        (Some(one), Some(other)) => Some(one.min(other)),
        (one, other) => one.or(other),
    }
}
