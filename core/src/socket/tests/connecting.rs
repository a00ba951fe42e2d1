//! How connections are not made, or given up on the way.

use std::io::IoSlice;

use super::{
    BOTH, Over, SIM, Stage, for_seeds,
    plan::{Plan, SIZES, Then},
    stage::{LATE, settings},
};
use crate::{
    error::Errno,
    fabric::ConnectFailure,
    socket::{
        connect,
        stream::{Blocking, Phase},
    },
};

/// The first party is closed, left to the kernel, and the service knows nothing any more.
fn is_left_to_the_kernel(stage: &Stage) {
    assert_eq!(stage.parties[0].1.phase, Phase::Kernel, "{}", stage.status());
    assert!(stage.parties[0].1.is_closed());
    assert_eq!(stage.nodes[0].service.everything().len(), 0);
}

#[test]
fn refused() {
    for_seeds("refused", BOTH, 4000..4006, |over, seed| {
        let mut stage = Stage::new(over, settings(seed));
        match stage.connect(7, SIZES, LATE) {
            Ok(_) => {
                stage.run();
                is_left_to_the_kernel(&stage);
                assert!(stage.now() < 10_000_000);
            }
            Err(failure) => {
                assert_eq!((over, failure), (Over::Shm, ConnectFailure::Refused));
                assert_eq!(stage.nodes[0].service.everything().len(), 0);
            }
        }
        stage.finish();
    });
}

#[test]
fn no_route() {
    for_seeds("no_route", BOTH, 4010..4014, |over, seed| {
        let mut stage = Stage::new(over, settings(seed));
        // RFC 5737: no host has it.
        let elsewhere = "192.0.2.1:7".parse().unwrap();
        if let Some(host) = stage.nodes[0].place.host {
            stage.connect_to(elsewhere, SIZES, LATE).unwrap();
            stage.run();
            is_left_to_the_kernel(&stage);
            stage.sim().without_device(host, true);
            assert_eq!(stage.connect(7, SIZES, LATE), Err(ConnectFailure::NoRoute));
        } else {
            assert_eq!(stage.connect_to(elsewhere, SIZES, LATE), Err(ConnectFailure::NoRoute));
        }
        assert_eq!(stage.nodes[0].service.everything().len(), 0);
        stage.finish();
    });
}

/// Also sending nothing has to wait for a connection.
#[test]
fn nothing_is_sent_before_there_is_a_connection() {
    for_seeds("nothing_is_sent_before_there_is_a_connection", BOTH, 4015..4017, |over, seed| {
        let mut stage = Stage::new(over, settings(seed));
        stage.listen(7, SIZES, 1);
        stage.connect(7, SIZES, LATE).unwrap();
        for from in [&b"x"[..], &b""[..]] {
            assert_eq!(stage.parties[0].1.stream().send(&[IoSlice::new(from)], Blocking::Never), Err(Errno::AGAIN));
        }
        stage.run();
        stage.finish();
    });
}

/// The deadline counts, not the connection manager's patience.
#[test]
fn silent_host() {
    for_seeds("silent_host", SIM, 4020..4030, |over, seed| {
        let mut stage = Stage::new(over, settings(seed));
        stage.listen(7, SIZES, 1);
        stage.sim().silence(stage.nodes[1].place.host.unwrap(), true);
        stage.connect(7, SIZES, 300_000_000).unwrap();
        stage.run();
        is_left_to_the_kernel(&stage);
        assert_eq!(stage.parties[0].1.changed_at, 300_000_000);
        assert!(connect::is_silent("10.0.0.2".parse().unwrap()));
        stage.finish();
    });
}

/// A deadline at any moment of the way: either it is connected or it is the kernel's.
#[test]
fn deadline_at_any_time() {
    for_seeds("deadline_at_any_time", BOTH, 4100..4140, |over, seed| {
        let mut stage = Stage::new(over, settings(seed));
        stage.listen(7, SIZES, 1);
        let patience = stage.random.within(&(1..=1_000_000));
        stage.connect(7, SIZES, patience).unwrap();
        stage.run();
        match stage.parties[0].1.phase {
            Phase::Up => stage.assert_complete(),
            Phase::Kernel => assert!(stage.parties[0].1.changed_at >= patience),
            phase => panic!("{phase:?}"),
        }
        stage.finish();
    });
}

#[test]
fn closed_while_connecting() {
    for_seeds("closed_while_connecting", BOTH, 4200..4240, |over, seed| {
        let mut stage = Stage::new(over, settings(seed));
        stage.lag = if seed.is_multiple_of(3) { 800 } else { 0 };
        stage.listen(7, SIZES, 1);
        stage.connect(7, SIZES, LATE).unwrap();
        let time = stage.random.within(&(1..=1_000_000));
        stage.at(time, |stage| stage.parties[0].1.close(None));
        stage.run();
        assert!(stage.parties.iter().all(|(_, party)| party.is_closed()), "{}", stage.status());
        stage.finish();
    });
}

#[test]
fn server_dies_while_connecting() {
    for_seeds("server_dies_while_connecting", BOTH, 4300..4340, |over, seed| {
        let mut stage = Stage::new(over, settings(seed));
        stage.listen(7, SIZES, 1);
        stage.connect(7, SIZES, LATE).unwrap();
        let time = stage.random.within(&(1..=1_000_000));
        stage.at(time, |stage| stage.kill(1));
        stage.run();
        assert!(stage.parties[0].1.is_closed(), "{}", stage.status());
        assert!(stage.now() < 20_000_000_000, "{}", stage.status());
        stage.finish();
    });
}

#[test]
fn client_dies_while_connecting() {
    for_seeds("client_dies_while_connecting", BOTH, 4400..4440, |over, seed| {
        let mut stage = Stage::new(over, settings(seed));
        stage.listen(7, SIZES, 0);
        stage.connect(7, SIZES, LATE).unwrap();
        let time = stage.random.within(&(1..=1_000_000));
        stage.at(time, |stage| stage.kill(0));
        stage.run();
        assert!(stage.parties.iter().all(|(node, party)| *node == 0 || party.is_closed()), "{}", stage.status());
        // The listener alone, and it has room again.
        assert_eq!(stage.nodes[1].service.everything().len(), 1, "{}", stage.status());
        stage.finish();
    });
}

/// The server speaks first, and the client's service is slow to say that the connection stands.
#[test]
fn banner_before_the_client_knows() {
    for_seeds("banner_before_the_client_knows", BOTH, 4500..4530, |over, seed| {
        let mut stage = Stage::new(over, settings(seed));
        stage.plans = Box::new(|_| (Plan::new(10, Then::Shutdown), Plan::new(30, Then::Shutdown)));
        stage.lag = 980;
        stage.listen(7, SIZES, 1);
        let client = stage.connect(7, SIZES, LATE).unwrap();
        // A program that looks all the time.
        for time in (0..1_500_000).step_by(5000) {
            stage.at(time, move |stage| {
                if !stage.parties[client].1.is_closed() {
                    let _ = stage.parties[client].1.stream().readiness();
                }
            });
        }
        stage.run();
        stage.assert_complete();
        stage.finish();
    });
}

/// Devices that grant too little: the kernel's turn, and nothing is asked of them that they have not granted.
#[test]
fn small_devices() {
    for (send_queue, receive_queue, connects) in [(6, 33, true), (5, 33, false), (6, 32, false), (16_384, 1, false)] {
        let mut stage = Stage::new(Over::Sim, crate::fabric::sim::Settings { send_queue, receive_queue, ..settings(0) });
        stage.listen(7, SIZES, 1);
        stage.connect(7, SIZES, LATE).unwrap();
        stage.run();
        assert_eq!(stage.parties[0].1.phase == Phase::Up, connects, "{send_queue} {receive_queue}");
        stage.finish();
    }
}
