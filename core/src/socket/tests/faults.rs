//! Endpoints that fail: posting is refused, the transport breaks, completions come late.

use super::{
    BOTH, Over, SIM, Stage, for_seeds,
    plan::{Plan, Then, pick, random_sizes, random_total},
    stage::{LATE, settings},
};
use crate::{fabric::faulty::Faults, socket::stream::Phase};

/// Two connections that are used in both directions, with these faults at each endpoint.
fn played(over: Over, seed: u64, faults: Faults) -> Stage {
    let settings = settings(seed);
    let mode = settings.mode;
    let mut stage = Stage::with_faults(over, settings, faults);
    let mut random = stage.random.clone();
    stage.lag = u32::try_from(pick(&mut random, &[0, 500])).unwrap();
    let sizes = [random_sizes(&mut random, mode), random_sizes(&mut random, mode)];
    let totals = [(); 2].map(|()| random_total(&mut random, [&sizes[0], &sizes[1]]).min(20_000));
    let then = if seed.is_multiple_of(3) { Then::Close } else { Then::Shutdown };
    let plans = (Plan::random(&mut random, totals[0], Then::Shutdown), Plan::random(&mut random, totals[1], then));
    stage.plans = Box::new(move |_| plans.clone());
    stage.listen(7, sizes[1], 4);
    for number in 0..2 {
        stage.at(number * 300_000, move |stage| {
            stage.connect(7, sizes[0], LATE).unwrap();
        });
    }
    stage.run();
    stage
}

/// Late completions change nothing. (Over shared memory there are none.)
#[test]
fn late_completions() {
    for_seeds("late_completions", SIM, 6000..6040, |over, seed| {
        // Nobody closes early.
        let seed = 3 * seed + 1;
        let stage = played(over, seed, Faults { late: 400, ..Faults::default() });
        assert_eq!(stage.parties.len(), 4);
        stage.assert_complete();
        stage.finish();
    });
}

/// Whatever fails: what arrives is right (each party looks), everybody comes to an end, and nothing is left.
fn comes_to_an_end(stage: Stage) {
    for (_, party) in &stage.parties {
        assert!(party.is_closed(), "{}", stage.status());
        let Some(peer) = stage.peer_of(party).filter(|_| party.phase == Phase::Up) else { continue };
        assert!(party.received <= peer.sent, "{}", stage.status());
    }
    stage.finish();
}

#[test]
fn posting_fails() {
    for_seeds("posting_fails", BOTH, 6100..6140, |over, seed| {
        let faults = Faults { post: if seed.is_multiple_of(2) { 30 } else { 300 }, ..Faults::default() };
        comes_to_an_end(played(over, seed, faults));
    });
}

#[test]
fn the_transport_breaks() {
    for_seeds("the_transport_breaks", BOTH, 6200..6240, |over, seed| {
        let faults = Faults { transport: if seed.is_multiple_of(2) { 5 } else { 100 }, ..Faults::default() };
        comes_to_an_end(played(over, seed, faults));
    });
}

#[test]
fn everything_fails_now_and_then() {
    for_seeds("everything_fails_now_and_then", BOTH, 6300..6340, |over, seed| {
        comes_to_an_end(played(over, seed, Faults { post: 5, transport: 5, late: 200 }));
    });
}
