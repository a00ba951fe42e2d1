//! Listeners: backlog, queues, and listeners that are closed.

use std::sync::Arc;

use super::{
    BOTH, Stage, for_seeds,
    plan::{Plan, SIZES, Then},
    stage::{LATE, settings},
};
use crate::{service::Handler, socket::stream::Phase};

/// listen(2): one more than the backlog waits, the others are refused; whoever waits is served later.
#[test]
fn full_backlog() {
    for_seeds("full_backlog", BOTH, 5000..5020, |over, seed| {
        let mut stage = Stage::new(over, settings(seed));
        let backlog = u32::try_from(seed % 4).unwrap();
        let door = stage.listen(7, SIZES, backlog);
        stage.accepts(door, false);
        for number in 0..10 {
            stage.at(number * 2_000_000, |stage| {
                stage.connect(7, SIZES, LATE).unwrap();
            });
        }
        stage.run();
        let phases: Vec<Phase> = stage.parties.iter().map(|(_, party)| party.phase).collect();
        let up = phases.iter().filter(|phase| **phase == Phase::Up).count();
        assert_eq!(up, usize::try_from(backlog).unwrap() + 1, "{phases:?}");
        assert_eq!(phases.iter().filter(|phase| **phase == Phase::Kernel).count(), 10 - up, "{phases:?}");
        stage.accepts(door, true);
        stage.run();
        stage.parties.retain(|(_, party)| party.phase == Phase::Up);
        assert_eq!(stage.parties.len(), 2 * up);
        stage.assert_complete();
        stage.connect(7, SIZES, LATE).unwrap();
        stage.run();
        stage.assert_complete();
        stage.finish();
    });
}

/// Connections that nobody has taken end when their listener is closed, those that were taken go on.
#[test]
fn closed_with_connections_in_the_queue() {
    for_seeds("closed_with_connections_in_the_queue", BOTH, 5100..5120, |over, seed| {
        let mut stage = Stage::new(over, settings(seed));
        stage.plans = Box::new(|_| (Plan::new(2000, Then::Shutdown), Plan::new(2000, Then::Shutdown)));
        let door = stage.listen(7, SIZES, 8);
        for number in 0..4 {
            stage.at(number * 500_000, |stage| {
                stage.connect(7, SIZES, LATE).unwrap();
            });
        }
        let (stop, close) = (stage.random.within(&(0..=2_000_000)), stage.random.within(&(2_000_000..=3_000_000)));
        stage.at(stop, move |stage| stage.accepts(door, false));
        stage.at(close, move |stage| stage.close_listener(door));
        stage.run();
        for (_, party) in &stage.parties {
            assert!(party.is_closed(), "{}", stage.status());
            match stage.peer_of(party) {
                Some(peer) if party.phase == Phase::Up => assert_eq!(party.received, peer.sent, "{}", stage.status()),
                _ => assert_eq!(party.received, 0),
            }
        }
        stage.finish();
    });
}

/// A listener that is closed and forgotten at any time of somebody's connecting.
#[test]
fn closed_while_somebody_connects() {
    for_seeds("closed_while_somebody_connects", BOTH, 5200..5260, |over, seed| {
        let mut stage = Stage::new(over, settings(seed));
        stage.lag = if seed.is_multiple_of(3) { 900 } else { 0 };
        stage.plans = Box::new(|_| (Plan::new(100, Then::Shutdown), Plan::new(0, Then::Shutdown)));
        let door = stage.listen(7, SIZES, 8);
        stage.connect(7, SIZES, LATE).unwrap();
        let close = stage.random.within(&(0..=1_200_000));
        stage.at(close, move |stage| stage.close_listener(door));
        stage.run();
        assert!(stage.parties.iter().all(|(_, party)| party.is_closed()), "{}", stage.status());
        assert_eq!(stage.nodes[1].service.everything().len(), 0, "{}", stage.status());
        stage.finish();
    });
}

/// accept(2) without a free descriptor puts a connection back; the listener may have been closed meanwhile.
#[test]
fn put_back() {
    for (over, close_before) in BOTH.iter().flat_map(|over| [(*over, false), (*over, true)]) {
        let mut stage = Stage::new(over, settings(0));
        let door = stage.listen(7, SIZES, 8);
        stage.accepts(door, false);
        stage.connect(7, SIZES, LATE).unwrap();
        stage.run();
        let listener = Arc::clone(stage.listener(door));
        let stream = listener.pop().unwrap();
        if close_before {
            stage.close_listener(door);
        }
        listener.put_back(stream);
        assert_eq!(listener.has_connection(), !close_before);
        drop(listener);
        if !close_before {
            stage.accepts(door, true);
        }
        stage.run();
        assert!(stage.parties.iter().all(|(_, party)| party.is_closed()), "{}", stage.status());
        stage.finish();
    }
}

/// fork of a process that serves its listener itself (`service::forks`): who comes afterwards waits until the program looks at the listener. If
/// it leaves the fabrics, since a child serves, they try the kernel.
#[test]
fn held_after_fork() {
    for_seeds("held_after_fork", BOTH, 5300..5320, |over, seed| {
        let mut stage = Stage::new(over, settings(seed));
        let door = stage.listen(7, SIZES, 8);
        let listener = Arc::clone(stage.listener(door));
        stage.connect(7, SIZES, LATE).unwrap();
        stage.run();
        stage.assert_complete();
        stage.accepts(door, false);
        listener.pause(false);
        stage.connect(7, SIZES, LATE).unwrap();
        let child_serves = seed.is_multiple_of(2);
        let later = stage.now() + 5_000_000;
        stage.at(later, move |stage| {
            assert!(!stage.listener(door).has_connection(), "{}", stage.status());
            if child_serves {
                stage.listener(door).after_fork(true);
            } else {
                assert_eq!(stage.listener(door).events(), 0);
                stage.accepts(door, true);
            }
        });
        stage.run();
        let last = stage.parties.iter().rev().find(|(node, _)| *node == 0).map(|(_, party)| party.phase);
        assert_eq!(last, Some(if child_serves { Phase::Kernel } else { Phase::Up }), "{}", stage.status());
        drop(listener);
        stage.finish();
    });
}

/// While a thread may be asleep in the kernel's accept, peers of the fabric are left to the kernel, and it does not go there while one waits.
#[test]
fn a_thread_in_the_kernels_accept() {
    for over in BOTH {
        let mut stage = Stage::new(*over, settings(0));
        let door = stage.listen(7, SIZES, 8);
        stage.accepts(door, false);
        let listener = Arc::clone(stage.listener(door));
        assert!(listener.enter_kernel().is_some_and(|entered| entered.is_none()), "nobody else has it");
        listener.share_kernel();
        let entered = listener.enter_kernel().unwrap();
        assert!(entered.is_some());
        stage.connect(7, SIZES, LATE).unwrap();
        stage.run();
        assert!(stage.parties.iter().all(|(_, party)| party.phase == Phase::Kernel), "{}", stage.status());
        drop(entered);
        stage.parties.clear();
        stage.connect(7, SIZES, LATE).unwrap();
        stage.run();
        assert!(listener.has_connection() && listener.enter_kernel().is_none());
        drop(listener);
        stage.accepts(door, true);
        stage.run();
        stage.assert_complete();
        stage.finish();
    }
}
