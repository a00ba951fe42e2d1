//! The whole stack on virtual time: hosts with a service each over the simulated fabric, and programs that use streams and
//! listeners by their nonblocking calls, all in one thread.
//!
//! A failing seed is printed; `RSOCKET_SEED=N cargo test -p rsocket --lib NAME` runs it alone and shows the last events.

mod connecting;
mod endings;
mod faults;
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
    let only = std::env::var("RSOCKET_SEED").ok().map(|seed| seed.parse().expect("RSOCKET_SEED is a number"));
    let seeds = only.map_or(seeds, |seed| seed..seed + 1);
    for seed in seeds {
        let outcome = catch_unwind(AssertUnwindSafe(|| scenario(seed)));
        assert!(outcome.is_ok(), "again with: RSOCKET_SEED={seed} cargo test -p rsocket --lib {name}");
    }
}
