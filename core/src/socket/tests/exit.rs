//! The end of a process: the thread that ends it gives everything that is known a turn, again and again, and then the process is gone.

use super::{
    BOTH, Over, SIM, Stage, for_seeds,
    plan::{Plan, SIZES, Then, pick},
    stage::{LATE, settings},
};
use crate::{service::Ending, sys::clock::Nanos};

/// As `calls::exit` has it.
const EXIT_TIME: Nanos = 3_000_000_000;
/// Between two turns.
const INTERVAL: Nanos = 100_000;

/// The program of this node ends at this time. (The service's thread may be late for all of it, or never come.)
fn ends(stage: &mut Stage, node: usize, time: Nanos) {
    stage.at(time, move |stage| {
        stage.parties.iter_mut().filter(|(of, _)| *of == node).for_each(|(_, party)| party.die());
        turn(stage, node, time + EXIT_TIME);
    });
}

fn turn(stage: &mut Stage, node: usize, until: Nanos) {
    let now = stage.now();
    let ended = stage.nodes[node].service.end_all(now) == Ending::Over;
    if ended || now >= until {
        stage.kill(node);
    } else {
        stage.at(now + INTERVAL, move |stage| turn(stage, node, until));
    }
}

/// Two programs, of which one has its plan and ends at some time, and the other one only reads.
fn played(over: Over, seed: u64, interfere: impl FnOnce(&mut Stage, Nanos)) -> (Stage, usize, Nanos) {
    let mut stage = Stage::new(over, settings(seed));
    let mut random = stage.random.clone();
    let node = usize::try_from(seed % 3 / 2).unwrap();
    let total = pick(&mut random, &[1, 700, 30_000, 3_000_000]);
    let sends = Plan { write: 1..=pick(&mut random, &[20, 4096]), ..Plan::new(total, Then::Read) };
    let reads = Plan { pauses: 20, pause: 1000..=1_000_000, ..Plan::new(0, Then::Read) };
    stage.plans = Box::new(move |_| if node == 0 { (sends.clone(), reads.clone()) } else { (reads.clone(), sends.clone()) });
    stage.lag = u32::try_from(pick(&mut random, &[0, 950, 1000])).unwrap();
    stage.listen(7, SIZES, 1);
    stage.connect(7, SIZES, LATE).unwrap();
    let time = random.within(&(3_000_000..=6_000_000));
    interfere(&mut stage, time);
    ends(&mut stage, node, time);
    stage.run();
    (stage, node, time)
}

#[test]
fn what_was_sent_before_the_end_of_the_process_arrives() {
    for_seeds("what_was_sent_before_the_end_of_the_process_arrives", BOTH, 3900..3990, |over, seed| {
        let (stage, node, time) = played(over, seed, |_, _| ());
        let (ended, left) = match &stage.parties[..] {
            [(0, client), (1, server)] => [(client, server), (server, client)][node],
            _ => panic!("{}", stage.status()),
        };
        assert!(ended.sent > 0 && left.received == ended.sent && left.end_of_file && left.errors.is_empty(), "{}", stage.status());
        // Not by the time that is over.
        assert!(left.changed_at < time + EXIT_TIME / 2, "{}", stage.status());
        stage.finish();
    });
}

/// A dead link: the end of the process waits as long as it may.
#[test]
fn the_end_does_not_wait_for_a_dead_link() {
    for_seeds("the_end_does_not_wait_for_a_dead_link", SIM, 3990..4000, |over, seed| {
        let (stage, node, time) = played(over, seed, |stage, time| stage.at(time - 1_000_000, |stage| stage.cut()));
        assert!(stage.nodes[node].is_dead(), "{}", stage.status());
        assert!(stage.now() <= time + 4 * EXIT_TIME, "{}", stage.status());
        stage.finish();
    });
}
