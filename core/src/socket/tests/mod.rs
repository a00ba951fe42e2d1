//! The whole stack on virtual time: hosts with a service each over the simulated fabric, and programs that use streams and
//! listeners by their nonblocking calls, all in one thread.
//!
//! A failing seed is printed; `RSOCKET_SEED=N cargo test -p rsocket --lib NAME` runs it alone and shows the last events;
//! `RSOCKET_SEED=N..M` runs others than the usual ones.

mod connecting;
mod endings;
mod faults;
mod hostile;
mod listening;
mod party;
mod plan;
mod stage;
mod threads;
mod transfers;

use core::ops::Range;
use std::panic::{AssertUnwindSafe, catch_unwind};

use stage::Stage;

/// Runs a scenario with each seed.
fn for_seeds(name: &str, seeds: Range<u64>, scenario: impl Fn(u64)) {
    let wanted = std::env::var("RSOCKET_SEED").ok();
    for seed in wanted.map_or(seeds, |wanted| range(&wanted).expect("RSOCKET_SEED is a number or a range")) {
        let outcome = catch_unwind(AssertUnwindSafe(|| scenario(seed)));
        assert!(outcome.is_ok(), "again with: RSOCKET_SEED={seed} cargo test -p rsocket --lib {name}");
    }
}

fn range(wanted: &str) -> Option<Range<u64>> {
    let (first, end) = match wanted.split_once("..") {
        Some((first, end)) => (first.parse().ok()?, end.parse().ok()?),
        None => (wanted.parse().ok()?, wanted.parse::<u64>().ok()?.checked_add(1)?),
    };
    Some(first..end)
}
