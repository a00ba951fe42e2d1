//! The whole stack on virtual time: hosts with a service each over the simulated fabric, or programs of this host with a service each
//! over shared memory, that use streams and listeners by their nonblocking calls, all in one thread.
//!
//! A failing seed is printed; `RSOCKET_SEED=N cargo test -p rsocket --lib NAME` runs it alone and shows the last events;
//! `RSOCKET_SEED=N..M` runs others than the usual ones.

mod connecting;
mod endings;
mod exit;
mod faults;
mod fuzz;
mod hostile;
mod listening;
mod party;
mod patience;
mod plan;
mod rogue;
mod stage;
mod threads;
mod transfers;
mod world;

use core::ops::Range;
use std::panic::{AssertUnwindSafe, catch_unwind};

use stage::Stage;
use world::{BOTH, Over, SIM};

/// Runs a scenario with each seed, over each of these fabrics.
fn for_seeds(name: &str, over: &[Over], seeds: Range<u64>, scenario: impl Fn(Over, u64)) {
    let seeds = wanted().unwrap_or(seeds);
    for over in over {
        for seed in seeds.clone() {
            let outcome = catch_unwind(AssertUnwindSafe(|| scenario(*over, seed)));
            assert!(outcome.is_ok(), "over {over:?}, again with: RSOCKET_SEED={seed} cargo test -p rsocket --lib {name}");
        }
    }
}

/// The seeds that are asked for.
fn wanted() -> Option<Range<u64>> {
    let wanted = std::env::var("RSOCKET_SEED").ok()?;
    Some(range(&wanted).expect("RSOCKET_SEED is a number or a range"))
}

fn range(wanted: &str) -> Option<Range<u64>> {
    let (first, end) = match wanted.split_once("..") {
        Some((first, end)) => (first.parse().ok()?, end.parse().ok()?),
        None => (wanted.parse().ok()?, wanted.parse::<u64>().ok()?.checked_add(1)?),
    };
    Some(first..end)
}
