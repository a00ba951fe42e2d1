//! Peers that do not answer: TCP_USER_TIMEOUT, keep-alive, and SO_RCVLOWAT's waits.

use core::{cell::RefCell, time::Duration};
use std::{
    io::{IoSlice, IoSliceMut},
    rc::Rc,
    sync::Arc,
};

use super::{
    BOTH, Over, SIM, Stage, for_seeds,
    plan::{Plan, SIZES, Then},
    stage::{LATE, settings},
};
use crate::{
    error::Errno,
    socket::{
        readiness::Readiness,
        stream::{Blocking, Stream, care::Patience},
    },
};

const SECOND: u64 = 1_000_000_000;
/// How much later than its time limit an end may be noticed.
const LOOK: u64 = SECOND / 3;

fn stage(over: Over, seed: u64, plans: (Plan, Plan)) -> Stage {
    let mut stage = Stage::new(over, settings(seed));
    stage.plans = Box::new(move |_| plans.clone());
    stage.listen(7, SIZES, 1);
    stage.connect(7, SIZES, LATE).unwrap();
    stage
}

fn set(stage: &Stage, patience: Patience) {
    stage.parties[0].1.stream().set_patience(patience);
}

const fn user(seconds: u64) -> Patience {
    Patience { keep_alive: None, probes: Duration::ZERO, user: Some(Duration::from_secs(seconds)) }
}

/// What is sent over a link that is cut is given up when the program's time is over, which is before the device's.
#[test]
fn a_user_timeout_finds_a_dead_link() {
    for_seeds("a_user_timeout_finds_a_dead_link", SIM, 4300..4310, |over, seed| {
        let mut stage = stage(over, seed, (Plan::new(0, Then::Read), Plan::new(0, Then::Read)));
        stage.at(SECOND, |stage| set(stage, user(1)));
        stage.at(2 * SECOND, |stage| {
            stage.cut();
            let sent = stage.parties[0].1.stream().send(&[IoSlice::new(b"into the dark")], Blocking::Never);
            assert_eq!(sent, Ok(13));
            // A turn that began before, and comes to this connection now only.
            stage.nodes[0].service.turn(2 * SECOND - SECOND / 2);
        });
        stage.run();
        let party = &stage.parties[0].1;
        assert_eq!(party.errors, [Errno::TIMEDOUT], "{}", stage.status());
        assert!((3 * SECOND..3 * SECOND + LOOK).contains(&party.changed_at), "{}", stage.status());
        stage.finish();
    });
}

/// A link that comes back in time does no harm, nor does a connection on which nothing is under way.
#[test]
fn a_user_timeout_leaves_the_living_alone() {
    for_seeds("a_user_timeout_leaves_the_living_alone", SIM, 4320..4330, |over, seed| {
        let mut stage = stage(over, seed, (Plan { keeps: true, ..Plan::new(50_000, Then::Read) }, Plan::new(20_000, Then::Shutdown)));
        stage.at(1, |stage| set(stage, user(2)));
        stage.at(1_200_000, |stage| stage.cut());
        stage.at(SECOND, |stage| stage.heal());
        stage.at(20 * SECOND, |stage| stage.parties[0].1.close(None));
        stage.run();
        stage.assert_complete();
        assert!(stage.parties.iter().all(|(_, party)| party.errors.is_empty()), "{}", stage.status());
        stage.finish();
    });
}

/// A peer that does not read ends a connection on which more is to be sent, over every fabric: TCP's zero window.
#[test]
fn a_user_timeout_ends_a_standstill() {
    for_seeds("a_user_timeout_ends_a_standstill", BOTH, 4340..4350, |over, seed| {
        let idle = Plan { pauses: 1000, pause: 60 * SECOND..=60 * SECOND, ..Plan::new(0, Then::Read) };
        let mut stage = stage(over, seed, (Plan::new(200_000, Then::Read), idle));
        stage.at(1, |stage| set(stage, user(1)));
        stage.run();
        let party = &stage.parties[0].1;
        assert_eq!(party.errors, [Errno::TIMEDOUT], "{}", stage.status());
        assert!((SECOND..2 * SECOND).contains(&party.changed_at), "{}", stage.status());
        stage.finish();
    });
}

/// One that reads slowly does not.
#[test]
fn a_user_timeout_lets_slow_readers_read() {
    for_seeds("a_user_timeout_lets_slow_readers_read", BOTH, 4360..4366, |over, seed| {
        let slow = Plan { pauses: 1000, pause: SECOND / 2..=SECOND / 2, read: 4096..=4096, ..Plan::new(0, Then::Read) };
        let mut stage = stage(over, seed, (Plan::new(60_000, Then::Shutdown), slow));
        stage.at(1, |stage| set(stage, user(4)));
        stage.run();
        stage.assert_complete();
        assert!(stage.now() > 5 * SECOND, "it was no slow reader");
        stage.finish();
    });
}

/// A keep-alive message that is not answered within TCP_KEEPINTVL times TCP_KEEPCNT ends the connection before the device does.
#[test]
fn unanswered_probes_end_a_connection() {
    for_seeds("unanswered_probes_end_a_connection", SIM, 4380..4386, |over, seed| {
        let mut stage = stage(over, seed, (Plan::new(0, Then::Read), Plan::new(0, Then::Read)));
        let second = Duration::from_secs(1);
        stage.at(SECOND, move |stage| set(stage, Patience { keep_alive: Some(3 * second), probes: second, user: None }));
        stage.at(SECOND + 1, |stage| stage.cut());
        stage.run();
        let party = &stage.parties[0].1;
        assert_eq!(party.errors, [Errno::TIMEDOUT], "{}", stage.status());
        assert!((5 * SECOND..5 * SECOND + LOOK).contains(&party.changed_at), "{}", stage.status());
        stage.finish();
    });
}

fn is_readable(stream: &Stream) -> bool {
    let Ok(Readiness::Events(events)) = stream.readiness() else { panic!("the kernel's") };
    events & libc::POLLIN != 0
}

/// SO_RCVLOWAT holds readiness back, but not where there is no room for so much.
#[test]
fn a_low_mark_holds_readiness_back() {
    for_seeds("a_low_mark_holds_readiness_back", BOTH, 4400..4410, |over, seed| {
        let mut stage = Stage::new(over, settings(seed));
        stage.plans = Box::new(|_| (Plan::new(0, Then::Read), Plan::new(0, Then::Read)));
        let door = stage.listen(7, SIZES, 1);
        stage.accepts(door, false);
        stage.connect(7, SIZES, LATE).unwrap();
        // Nobody plays the server: its end is held here.
        let server: Rc<RefCell<Option<Arc<Stream>>>> = Rc::default();
        let end = |of: &Rc<RefCell<Option<Arc<Stream>>>>| Arc::clone(of.borrow().as_ref().unwrap());
        let send = |stage: &Stage, bytes: &[u8]| stage.parties[0].1.stream().send(&[IoSlice::new(bytes)], Blocking::Never);
        let held = Rc::clone(&server);
        stage.at(SECOND, move |stage| {
            let stream = stage.listener(door).pop().expect("a connection");
            stream.set_receive_low(100);
            *held.borrow_mut() = Some(stream);
            assert_eq!(send(stage, &[1; 99]), Ok(99));
        });
        let held = Rc::clone(&server);
        stage.at(2 * SECOND, move |stage| {
            assert!(!is_readable(&end(&held)), "99 of 100");
            assert_eq!(send(stage, &[1; 1]), Ok(1));
        });
        let held = Rc::clone(&server);
        stage.at(3 * SECOND, move |_| {
            let (stream, mut room) = (end(&held), [0; 200]);
            assert!(is_readable(&stream), "100 of 100");
            assert_eq!(stream.receive(&mut [IoSliceMut::new(&mut room)], false, false, Blocking::Never), Ok(100));
            stream.set_receive_low(u32::MAX);
        });
        for step in 0..200 {
            let held = Rc::clone(&server);
            stage.at(4 * SECOND + step * 1_000_000, move |stage| {
                let _ = send(stage, &[1; 4096]);
                // Who looks makes room known that the peer does not know of yet.
                let _ = is_readable(&end(&held));
            });
        }
        stage.at(5 * SECOND, move |stage| {
            assert!(is_readable(&end(&server)), "a full buffer");
            end(&server).close(Some(Duration::ZERO), false);
            stage.parties[0].1.close(Some(Duration::ZERO));
        });
        stage.run();
        stage.finish();
    });
}
