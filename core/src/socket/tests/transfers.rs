//! Data in both directions at once.

use super::{
    BOTH, Stage, for_seeds,
    plan::{Plan, Then, pick, random_sizes, random_total},
    stage::{LATE, settings},
};
use crate::fabric::sim::{Random, Settings, Sim, Timing};

/// Random delays, queues, buffers, chunks and pauses; the settings that go with a seed.
fn random_settings(seed: u64) -> Settings {
    let mut random = Random::new(seed);
    let mut settings = settings(seed);
    let most = pick(&mut random, &[100, 20_000, 2_000_000]);
    settings.timing = Timing { wire: 50..=most, completion: 50..=pick(&mut random, &[100, 5_000, 500_000]), ..Timing::default() };
    settings.send_queue = u32::try_from(pick(&mut random, &[16, 64, 16_384])).unwrap();
    settings.receive_queue = u32::try_from(pick(&mut random, &[33, 48, 16_384])).unwrap();
    settings.inline = u32::try_from(pick(&mut random, &[0, 64, 220])).unwrap();
    settings
}

#[test]
fn both_ways_at_once() {
    for_seeds("both_ways_at_once", BOTH, 0..160, |over, seed| {
        let settings = random_settings(seed);
        let mode = settings.mode;
        let mut stage = Stage::new(over, settings);
        let mut random = stage.random.clone();
        stage.lag = u32::try_from(pick(&mut random, &[0, 0, 500, 950])).unwrap();
        let sizes = [random_sizes(&mut random, mode), random_sizes(&mut random, mode)];
        let totals = [(); 2].map(|()| random_total(&mut random, [&sizes[0], &sizes[1]]));
        let plan = |random: &mut Random, total| Plan::random(random, total, Then::Shutdown);
        let plans = (plan(&mut random, totals[0]), plan(&mut random, totals[1]));
        stage.plans = Box::new(move |_| plans.clone());
        stage.listen(7, sizes[1], 1);
        stage.connect(7, sizes[0], LATE).unwrap();
        stage.run();
        assert_eq!(stage.parties.len(), 2, "{}", stage.status());
        let sent = stage.parties.iter().map(|(_, party)| party.sent).sum::<u64>();
        assert_eq!(sent, totals[0] + totals[1], "{}", stage.status());
        stage.assert_complete();
        // Credits see to it that no message finds the receive queue empty; with iWARP that would be the end of the connection.
        assert_eq!(stage.world.sim().map_or(0, Sim::not_ready_count), 0);
        stage.finish();
    });
}

#[test]
fn many_connections() {
    for_seeds("many_connections", BOTH, 1000..1006, |over, seed| {
        let settings = settings(seed);
        let mode = settings.mode;
        let mut stage = Stage::new(over, settings);
        let mut random = stage.random.clone();
        stage.plans = Box::new(move |key| {
            let mut random = Random::new(seed ^ key);
            let totals = [random.within(&(0..=1500)), random.within(&(0..=1500))];
            (Plan::random(&mut random, totals[0], Then::Shutdown), Plan::random(&mut random, totals[1], Then::Shutdown))
        });
        let server = random_sizes(&mut random, mode);
        let server = crate::socket::engine::Sizes { receive_bytes: 1024, shm_receive_bytes: 1024, send_bytes: 1024, ..server };
        stage.listen(7, server, 64);
        for _ in 0..10 {
            let sizes = random_sizes(&mut random, mode);
            let sizes = crate::socket::engine::Sizes { receive_bytes: sizes.receive_bytes.max(64), ..sizes };
            let time = random.within(&(0..=2_000_000));
            stage.at(time, move |stage| {
                stage.connect(7, sizes, LATE).unwrap();
            });
        }
        stage.run();
        assert_eq!(stage.parties.len(), 20, "{}", stage.status());
        stage.assert_complete();
        stage.finish();
    });
}

/// A queue of receives that holds more messages than are taken in one go, and a peer that has closed before anything is read.
#[test]
fn many_messages_before_the_first_read() {
    for_seeds("many_messages_before_the_first_read", BOTH, 2000..2002, |over, seed| {
        let mut stage = Stage::new(over, settings(seed));
        let sizes = crate::socket::engine::Sizes { receive_queue: 4000, receive_bytes: 65_536, send_queue: 64, ..super::plan::SIZES };
        let client = Plan { write: 1..=1, ..Plan::new(3000, Then::Close) };
        let server = Plan { pauses: 1000, pause: 100_000_000..=100_000_000, ..Plan::new(0, Then::Read) };
        stage.plans = Box::new(move |_| (client.clone(), server.clone()));
        let door = stage.listen(7, sizes, 1);
        stage.accepts(door, false);
        stage.connect(7, sizes, LATE).unwrap();
        stage.run();
        assert!(stage.parties[0].1.is_closed(), "{}", stage.status());
        stage.accepts(door, true);
        stage.run();
        assert_eq!(stage.parties[1].1.received, 3000, "{}", stage.status());
        assert_eq!(stage.parties[1].1.errors, []);
        stage.finish();
    });
}
