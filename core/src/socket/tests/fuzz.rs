//! Programs that misbehave over shared memory, thousands of them (`rogue`). Whatever one does: this side neither crashes nor hangs, the
//! connection ends or is as silent as a silent peer's, one beside it goes on, and in the end nothing is left of it.
//!
//! The runs are those of a program of their own, which is watched: the seed of a run that kills or stops it is known. `scripts/fuzz` has
//! many of them, and has them with the address sanitizer, too. `RSOCKET_RUNS=N` says how many, `RSOCKET_SEED=N` or `N..M` which.

use core::ops::Range;
use std::{
    fs::File,
    os::unix::fs::FileExt,
    process::{Command, Stdio},
    sync::{Arc, Mutex},
    time::{Duration, Instant},
};

mod threads;

use super::{
    Stage, for_seeds,
    plan::{Plan, SIZES, Then, random_sizes},
    rogue::{PORT, Program},
    stage::{LATE, settings},
    wanted,
    world::Over,
};
use crate::{
    error::Errno,
    fabric::{Region, sim::Random},
    socket::{stream::Phase, wait},
    work::MessageMode,
};

/// Runs where nobody says how many.
const RUNS: u64 = 300;
/// A run takes a few milliseconds. One that takes so long does not come to an end.
const HANG: Duration = Duration::from_secs(5);
/// Virtual time that a run has at most, in nanoseconds: who waits for a silent peer does so for ever.
const TIME: u64 = 400_000_000;
/// Ports of clients that keep to the rules.
const GOOD: Range<u64> = 1025..1040;
/// Where the program that plays says which run it plays.
const PROGRESS: &str = "RSOCKET_PROGRESS";

/// What a victim of a rogue does.
fn victim(random: &mut Random, send: u64) -> Plan {
    let then = [Then::Read, Then::Shutdown, Then::Close][(random.number() % 3) as usize];
    Plan { trusts: false, keeps: random.chance(500), waits: 20, pause: 1000..=100_000, ..Plan::random(random, send, then) }
}

/// One run.
fn play(seed: u64) {
    let mut stage = Stage::new(Over::Shm, settings(seed));
    let mut random = Random::new(seed);
    let connects = random.chance(500);
    let (place, _) = stage.world.enter(3);
    let sizes = random_sizes(&mut random, MessageMode::Immediate);
    let good = random.within(&(0..=3000));
    let sent = random.within(&(0..=60_000));
    let (of_client, of_server) = (victim(&mut random, sent), victim(&mut random, sent));
    let (client_plan, server_plan) = (of_client.clone(), Plan::new(good, Then::Shutdown));
    stage.plans =
        Box::new(
            move |key| {
                if GOOD.contains(&key) { (server_plan.clone(), server_plan.clone()) } else { (client_plan.clone(), of_server.clone()) }
            },
        );
    stage.listen(7, if connects { sizes } else { SIZES }, 8);
    let server = stage.world.listener(stage.nodes[1].place, 7);
    let own = Random::new(random.number());
    let program = if connects { Program::connecting(server, place.addr, own) } else { Program::listening(place.addr, own) };
    let program = Arc::new(Mutex::new(program));
    let acts = Arc::clone(&program);
    stage.others.push(Box::new(move || acts.lock().unwrap().act()));
    if !connects {
        for _ in 0..random.within(&(1..=2)) {
            if let Ok(party) = stage.connect_to((place.addr, PORT).into(), sizes, random.within(&(100_000..=LATE))) {
                stage.parties[party].1.plan = Some(of_client.clone());
            }
        }
    }
    stage.connect(7, SIZES, LATE).unwrap();
    stage.run_for(TIME);
    program.lock().unwrap().end();
    stage.run_for(TIME);
    // Whoever comes later is served, too.
    let later = random.chance(200);
    if later {
        stage.connect(7, SIZES, LATE).unwrap();
        stage.run_for(TIME);
    }
    judge(&stage, &program.lock().unwrap(), later);
    stage.finish();
}

fn judge(stage: &Stage, program: &Program, later: bool) {
    assert!(!program.is_spoilt(), "somebody has written where nobody may: {}", stage.status());
    let (victims, others): (Vec<_>, Vec<_>) =
        stage.parties.iter().map(|(_, party)| party).partition(|party| party.plan.as_ref().is_none_or(|plan| !plan.trusts));
    assert_eq!(others.len(), if later { 4 } else { 2 }, "{}", stage.status());
    for party in others {
        let Some(peer) = stage.peer_of(party) else { panic!("no peer: {}", party.status()) };
        let complete = party.is_closed() && party.errors.is_empty() && party.end_of_file && party.received == peer.sent;
        assert!(complete, "{}; {}", party.status(), peer.status());
    }
    for party in victims {
        assert!(party.errors.iter().all(|errno| matches!(*errno, Errno::CONNRESET | Errno::PIPE)), "{}", party.status());
        assert!(matches!(party.phase, Phase::Up | Phase::Kernel | Phase::Connecting), "{:?}", party.phase);
        // The end of a program is never missed.
        assert!(party.is_closed() || party.end_of_file || program.stalls(), "is not told: {}", party.status());
    }
}

/// What this process has: descriptors, regions, and mappings of memory files.
fn possessions() -> (Vec<String>, usize, usize) {
    wait::close_idle();
    let of = |entry: std::io::Result<std::fs::DirEntry>| {
        let entry = entry.ok()?;
        Some(format!("{:?} {:?}", entry.file_name(), std::fs::read_link(entry.path()).ok()?))
    };
    // The directory itself is one of them.
    let mut descriptors: Vec<String> =
        std::fs::read_dir("/proc/self/fd").unwrap().filter_map(of).filter(|one| !one.contains("/proc/")).collect();
    descriptors.sort();
    let maps = std::fs::read_to_string("/proc/self/maps").unwrap();
    (descriptors, Region::living(), maps.lines().filter(|line| line.contains("memfd:")).count())
}

/// Notes which run is played.
fn noted(seed: u64) {
    if let Ok(path) = std::env::var(PROGRESS) {
        File::options().write(true).open(path).unwrap().write_all_at(&seed.to_ne_bytes(), 0).unwrap();
    }
}

#[test]
#[ignore = "a program for a test below"]
fn program_plays() {
    let before = possessions();
    for_seeds("rogues", &[Over::Shm], 0..RUNS, |_, seed| {
        noted(seed);
        play(seed);
        assert_eq!(possessions(), before, "something is left");
    });
}

#[test]
fn rogues() {
    watched("rogues", "program_plays", runs(RUNS));
}

#[test]
#[ignore = "a program for a test below"]
fn program_plays_in_real_time() {
    let company = threads::Company::new();
    let before = possessions().0.len();
    for_seeds("rogues_in_real_time", &[Over::Shm], 0..RUNS, |_, seed| {
        noted(seed);
        company.play(seed);
        // What is made ready for the next connections apart, and what the services' threads are about to close.
        let since = Instant::now();
        while possessions().0.len() > before + 2 {
            assert!(since.elapsed() < HANG / 2, "descriptors are left: {:?}", possessions().0);
            std::thread::sleep(Duration::from_millis(1));
        }
    });
}

#[test]
fn rogues_in_real_time() {
    watched("rogues_in_real_time", "program_plays_in_real_time", runs(RUNS) / 10);
}

fn runs(usual: u64) -> u64 {
    std::env::var("RSOCKET_RUNS").map_or(usual, |runs| runs.parse().expect("RSOCKET_RUNS is a number"))
}

/// Runs the ignored test `program` of this binary as a program of its own, that plays so many runs, for the test `name`.
fn watched(name: &str, program: &str, runs: u64) {
    let seeds = wanted().unwrap_or(0..runs);
    let path = std::env::temp_dir().join(format!("rsocket-{name}-{}", std::process::id()));
    std::fs::write(&path, u64::MAX.to_ne_bytes()).unwrap();
    let progress = File::open(&path).unwrap();
    let latest = || {
        let mut bytes = [0; 8];
        progress.read_exact_at(&mut bytes, 0).unwrap();
        u64::from_ne_bytes(bytes)
    };
    let mut command = Command::new(std::env::current_exe().unwrap());
    command.args(["--exact", "--ignored", "--nocapture", &format!("socket::tests::fuzz::{program}")]).stdout(Stdio::null());
    let mut program = command.env(PROGRESS, &path).env("RSOCKET_SEED", format!("{}..{}", seeds.start, seeds.end)).spawn().unwrap();
    let (mut seed, mut since) = (u64::MAX, Instant::now());
    let ended = loop {
        if let Some(status) = program.try_wait().unwrap() {
            break Some(status);
        }
        if latest() != seed {
            (seed, since) = (latest(), Instant::now());
        }
        if since.elapsed() > HANG {
            program.kill().unwrap();
            program.wait().unwrap();
            break None;
        }
        std::thread::sleep(Duration::from_millis(10));
    };
    std::fs::remove_file(path).unwrap();
    let again = format!("again with: RSOCKET_SEED={} cargo test -p rsocket --lib {name}", latest());
    let status = ended.unwrap_or_else(|| panic!("hangs; {again}"));
    assert!(status.success(), "{status}; {again}");
}
