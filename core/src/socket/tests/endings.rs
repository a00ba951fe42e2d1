//! How connections end: half-close, close with data on its way, a peer that dies, a link that is cut.

use core::time::Duration;
use std::io::IoSlice;

use super::{
    BOTH, Over, SIM, Stage, for_seeds,
    party::Party,
    plan::{Plan, SIZES, Then, pick, random_sizes, random_total},
    stage::{LATE, settings},
};
use crate::{
    error::Errno,
    fabric::sim::{Settings, Timing},
    socket::{
        readiness::Readiness,
        stream::{Blocking, care::Patience},
    },
};

/// Longer than retries and the time that a close may take.
const BOUND: u64 = 12_000_000_000;

/// Two programs with these plans, until they have come to rest.
fn played(over: Over, seed: u64, plans: impl Fn(&mut Stage) -> (Plan, Plan)) -> Stage {
    let settings = settings(seed);
    let mode = settings.mode;
    let mut stage = Stage::new(over, settings);
    let plans = plans(&mut stage);
    stage.plans = Box::new(move |_| plans.clone());
    let mut random = stage.random.clone();
    stage.lag = u32::try_from(pick(&mut random, &[0, 500, 950])).unwrap();
    let sizes = [random_sizes(&mut random, mode), random_sizes(&mut random, mode)];
    stage.listen(7, sizes[1], 1);
    stage.connect(7, sizes[0], LATE).unwrap();
    stage.run();
    assert_eq!(stage.parties.len(), 2, "{}", stage.status());
    stage
}

#[test]
fn half_close_in_either_order() {
    for_seeds("half_close_in_either_order", BOTH, 3000..3060, |over, seed| {
        let stage = played(over, seed, |stage| {
            let totals = [(); 2].map(|()| stage.random.within(&(0..=400)));
            let first = Plan::random(&mut stage.random, totals[0], Then::Shutdown);
            let then = if seed.is_multiple_of(3) { Then::Close } else { Then::Shutdown };
            let second = Plan { answers: true, ..Plan::random(&mut stage.random, totals[1], then) };
            if seed.is_multiple_of(2) { (first, second) } else { (second, first) }
        });
        for (_, party) in &stage.parties {
            let peer = stage.peer_of(party).unwrap();
            assert!(party.is_closed() && party.errors.is_empty() && party.received == peer.sent, "{}", stage.status());
        }
        stage.finish();
    });
}

#[test]
fn what_was_sent_before_close_arrives() {
    for_seeds("what_was_sent_before_close_arrives", BOTH, 3100..3180, |over, seed| {
        let stage = played(over, seed, |stage| {
            let total = random_total(&mut stage.random, [&SIZES, &SIZES]).min(2000);
            let closes = Plan::random(&mut stage.random, total, Then::Close);
            let reads = Plan::random(&mut stage.random, 0, Then::Read);
            if seed.is_multiple_of(3) { (reads, closes) } else { (closes, reads) }
        });
        stage.assert_received(0);
        stage.assert_received(1);
        stage.finish();
    });
}

/// The one that closes never reads; the other one sends all the time.
#[test]
fn close_while_the_peer_sends() {
    for_seeds("close_while_the_peer_sends", BOTH, 3200..3240, |over, seed| {
        let stage = played(over, seed, |stage| {
            let total = stage.random.within(&(0..=300));
            let closes = Plan { pauses: 1000, pause: 1..=1000, ..Plan::random(&mut stage.random, total, Then::Close) };
            let sends = Plan { write: 1..=50, ..Plan::new(100_000, Then::Close) };
            if seed.is_multiple_of(2) { (closes, sends) } else { (sends, closes) }
        });
        for (_, party) in &stage.parties {
            let peer = stage.peer_of(party).unwrap();
            assert!(party.is_closed(), "{}", stage.status());
            // What the first one had sent before is there although nobody takes what this one sends.
            let reads_all = party.sent > 300 || party.errors.iter().all(|errno| *errno == Errno::PIPE);
            assert!(reads_all, "{}", stage.status());
            assert!(party.received <= peer.sent);
        }
        stage.finish();
    });
}

/// Interrupts two busy programs and gives both parties, client first, with the time when it happened.
fn interrupted(over: Over, seed: u64, interrupt: impl FnOnce(&mut Stage) + 'static) -> (Stage, u64) {
    let settings = settings(seed);
    let mode = settings.mode;
    let mut stage = Stage::new(over, settings);
    let mut random = stage.random.clone();
    stage.plans = Box::new(move |_| {
        let plan = || Plan { write: 1..=500, read: 1..=500, ..Plan::new(u64::MAX / 2, Then::Close) };
        (plan(), plan())
    });
    stage.lag = u32::try_from(pick(&mut random, &[0, 500])).unwrap();
    let sizes = [random_sizes(&mut random, mode), random_sizes(&mut random, mode)];
    stage.listen(7, sizes[1], 1);
    stage.connect(7, sizes[0], LATE).unwrap();
    let time = random.within(&(1_000_000..=2_000_000));
    stage.at(time, interrupt);
    stage.run();
    assert_eq!(stage.parties.len(), 2, "{}", stage.status());
    (stage, time)
}

fn is_told(party: &Party, time: u64, within: u64) {
    let told = party.is_closed() && party.changed_at >= time && party.changed_at <= time + within;
    assert!(told, "{} at {} after {time}", party.status(), party.changed_at);
}

#[test]
fn lost_peer() {
    for_seeds("lost_peer", BOTH, 3300..3330, |over, seed| {
        let lost = usize::try_from(seed % 2).unwrap();
        let (stage, time) = interrupted(over, seed, move |stage| stage.kill(lost));
        let left = &stage.parties.iter().find(|(node, _)| *node != lost).unwrap().1;
        is_told(left, time, BOUND);
        assert!(left.errors.iter().all(|errno| matches!(*errno, Errno::CONNRESET | Errno::PIPE)), "{}", left.status());
        stage.finish();
    });
}

#[test]
fn cut_link() {
    for_seeds("cut_link", SIM, 3400..3430, |over, seed| {
        let (stage, time) = interrupted(over, seed, |stage| stage.cut());
        for (_, party) in &stage.parties {
            // Who only waits for the other one has no way to know, as with TCP.
            if party.is_closed() {
                is_told(party, time, BOUND);
            }
        }
        let errors = stage.parties.iter().flat_map(|(_, party)| party.errors.clone()).collect::<Vec<_>>();
        assert!(errors.contains(&Errno::TIMEDOUT), "{}", stage.status());
        stage.finish();
    });
}

#[test]
fn link_that_heals_in_time() {
    for_seeds("link_that_heals_in_time", SIM, 3500..3520, |over, seed| {
        let timing = Timing { wire: 50_000..=500_000, ..Timing::default() };
        let mut stage = Stage::new(over, Settings { timing, ..settings(seed) });
        stage.plans = Box::new(|_| (Plan::new(100_000, Then::Shutdown), Plan::new(100_000, Then::Shutdown)));
        stage.listen(7, SIZES, 1);
        stage.connect(7, SIZES, LATE).unwrap();
        stage.at(1_200_000, |stage| stage.cut());
        stage.at(3_000_000_000, |stage| stage.heal());
        stage.run();
        stage.assert_complete();
        assert!(stage.parties.iter().all(|(_, party)| party.changed_at > 3_000_000_000), "{}", stage.status());
        stage.finish();
    });
}

/// Close while the link is cut does not wait for ever, and what is left goes away.
#[test]
fn close_over_a_cut_link() {
    for_seeds("close_over_a_cut_link", SIM, 3600..3610, |over, seed| {
        let mut stage = Stage::new(over, settings(seed));
        stage.plans = Box::new(|_| (Plan::new(5000, Then::Read), Plan::new(0, Then::Read)));
        stage.listen(7, SIZES, 1);
        stage.connect(7, SIZES, LATE).unwrap();
        stage.at(5_000_000, |stage| {
            stage.cut();
            stage.parties[0].1.close(None);
        });
        stage.run();
        assert!(stage.now() < 5_000_000 + BOUND, "{}", stage.status());
        stage.finish();
    });
}

#[test]
fn linger_of_zero_resets() {
    for_seeds("linger_of_zero_resets", BOTH, 3700..3710, |over, seed| {
        let mut stage = Stage::new(over, settings(seed));
        stage.plans = Box::new(|_| (Plan::new(5000, Then::Read), Plan::new(0, Then::Read)));
        stage.listen(7, SIZES, 1);
        stage.connect(7, SIZES, LATE).unwrap();
        stage.at(5_000_000, |stage| stage.parties[0].1.close(Some(Duration::ZERO)));
        stage.run();
        assert_eq!(stage.parties[1].1.errors, [Errno::CONNRESET], "{}", stage.status());
        stage.finish();
    });
}

/// Keep-alive finds out that the peer has gone while nobody sends anything.
#[test]
fn keep_alive_finds_a_dead_link() {
    for_seeds("keep_alive_finds_a_dead_link", SIM, 3800..3806, |over, seed| {
        let mut stage = Stage::new(over, settings(seed));
        stage.plans = Box::new(|_| (Plan::new(0, Then::Read), Plan::new(0, Then::Read)));
        stage.listen(7, SIZES, 1);
        stage.connect(7, SIZES, LATE).unwrap();
        // SO_KEEPALIVE, and some time later TCP_KEEPIDLE.
        let every = |seconds| Patience { keep_alive: Some(Duration::from_secs(seconds)), probes: Duration::from_secs(675), user: None };
        stage.at(5_000_000, move |stage| stage.parties[0].1.stream().set_patience(every(7200)));
        stage.at(6_000_000, move |stage| stage.parties[0].1.stream().set_patience(every(1)));
        stage.at(7_500_000_000, |stage| {
            assert!(!stage.parties[0].1.is_closed(), "{}", stage.status());
            stage.cut();
        });
        stage.run();
        assert_eq!(stage.parties[0].1.errors, [Errno::TIMEDOUT], "{}", stage.status());
        assert!(stage.parties[0].1.changed_at < 7_500_000_000 + BOUND);
        stage.finish();
    });
}

/// TCP: EPIPE, and nothing else; the other direction goes on.
#[test]
fn a_write_after_the_own_end_changes_nothing() {
    for_seeds("a_write_after_the_own_end_changes_nothing", BOTH, 3900..3904, |over, seed| {
        let mut stage = Stage::new(over, settings(seed));
        stage.plans = Box::new(|_| (Plan::new(0, Then::Read), Plan::new(0, Then::Read)));
        stage.listen(7, SIZES, 1);
        stage.connect(7, SIZES, LATE).unwrap();
        stage.at(5_000_000, |stage| {
            let stream = stage.parties[0].1.stream();
            stream.shutdown(false, true).unwrap();
            for text in [&b"late"[..], &b""[..]] {
                assert_eq!(stream.send(&[IoSlice::new(text)], Blocking::Never), Err(Errno::PIPE));
            }
            let Ok(Readiness::Events(events)) = stream.readiness() else { panic!("the kernel's") };
            assert_eq!(events & libc::POLLHUP, 0);
            stream.shutdown(false, true).unwrap();
        });
        stage.run();
        stage.finish();
    });
}
