//! What happens over shared memory when the other process is killed, or stopped for a while, in every state that a connection has; and
//! what is left after many connections. On this machine, without an RDMA device; over RDMA: `faults.rs`.

mod support;

use std::thread;
use std::time::{Duration, Instant};

use rustix::process::Signal;
use support::{Ended, Program, Running, Scratch, free_port};

const ADDRESS: &str = "127.0.0.1";

/// Within this time a process has to know that the other one is gone.
const SOON: Duration = Duration::from_secs(1);
/// For what takes its time.
const LIMIT: Duration = Duration::from_secs(60);

fn peer<'a>(scratch: &'a Scratch, name: &str, role: &str, does: &str, port: u16, mebibytes: u32) -> Program<'a> {
    Program::test(scratch, name, "fault_peer", &[role, does, ADDRESS, &port.to_string(), &mebibytes.to_string()]).preloaded()
}

fn serve<'a>(scratch: &'a Scratch, port: u16, count: u32, delay_ms: u32) -> Program<'a> {
    let arguments = ["serve", ADDRESS, &port.to_string(), &count.to_string(), &delay_ms.to_string()];
    Program::test(scratch, "server", "fault_serve", &arguments).preloaded()
}

fn ask<'a>(scratch: &'a Scratch, name: &str, port: u16) -> Program<'a> {
    Program::test(scratch, name, "fault_serve", &["ask", ADDRESS, &port.to_string()]).preloaded()
}

/// A client that connects so many times, and wants to be refused or taken.
fn connects<'a>(scratch: &'a Scratch, how: &str, port: u16) -> Program<'a> {
    Program::test(scratch, "connects", "fault_connect", &[how, ADDRESS, &port.to_string(), "1"]).preloaded()
}

/// Two ends of a connection: the first does the one thing, the second the other.
fn two(scratch: &Scratch, first_listens: bool, first: &str, second: &str, mebibytes: u32) -> [Running; 2] {
    let port = free_port();
    let start = |name: &str, role: &str, does: &str| peer(scratch, name, role, does, port, mebibytes).start();
    let (first, second) = if first_listens {
        let first = start("first", "listen", first);
        first.wait_until_listening(port);
        (first, start("second", "connect", second))
    } else {
        let second = start("second", "listen", second);
        second.wait_until_listening(port);
        (start("first", "connect", first), second)
    };
    first.wait_for_line("ready");
    second.wait_for_line("ready");
    [first, second]
}

/// Waits for the end of one that has just learned that the other is gone.
fn ends_soon(survivor: Running, since: Instant) -> Result<Ended, String> {
    let ended = survivor.wait(SOON.saturating_sub(since.elapsed()));
    if ended.code() == Some(0) { Ok(ended) } else { Err(ended.report()) }
}

/// What one end does, the other one meanwhile, and whether both sleep then.
const STATES: [(&str, &str, bool); 15] = [
    ("recv", "idle", true),
    ("recv", "recv", true),
    ("recv", "poll", true),
    ("recv", "select", true),
    ("recv", "flood", false),
    ("send", "idle", true),
    ("send", "drain", false),
    ("poll", "idle", true),
    ("poll", "flood", false),
    ("select", "idle", true),
    ("select", "flood", false),
    ("pollout", "idle", true),
    ("later", "flood", true),
    ("later", "pollout", true),
    ("later", "closing", true),
];

/// Brings both into their states.
fn settle(ends: &[Running; 2], does: &str, sleeps: bool) {
    if does == "closing" {
        ends[1].wait_for_line("close was quick: yes");
    }
    if sleeps {
        ends.iter().for_each(Running::wait_until_asleep);
    } else {
        thread::sleep(Duration::from_millis(200));
    }
}

/// One that does not read learns of the end by reading.
fn tell(survivor: &Running, waits: &str) {
    if waits == "later" {
        survivor.signal(Signal::USR1);
    }
}

#[test]
fn a_killed_peer_ends_every_wait_within_a_second() {
    let mut failures = Vec::new();
    for (waits, does, sleeps) in STATES {
        for listens in [true, false] {
            let scratch = Scratch::new();
            let ends = two(&scratch, listens, waits, does, 0);
            settle(&ends, does, sleeps);
            let [survivor, victim] = ends;
            victim.signal(Signal::KILL);
            let killed = Instant::now();
            tell(&survivor, waits);
            match ends_soon(survivor, killed) {
                Ok(ended) => {
                    let what = ended.output.lines().last().unwrap_or_default();
                    println!("{waits:8} peer {does:8} listens {listens:5} {:5.0} ms: {what}", killed.elapsed().as_secs_f64() * 1e3);
                    ended.was_over_shm(1);
                }
                Err(report) => failures.push(format!("{waits}, its peer in {does} killed, listens: {listens}: {report}")),
            }
        }
    }
    assert!(failures.is_empty(), "{}", failures.join("\n"));
}

/// A stopped peer costs its peer nothing but waiting: no processor time. When it goes on, and then goes, the wait ends as ever.
#[test]
fn waiting_for_a_stopped_peer_costs_nothing() {
    const WATCHED: Duration = Duration::from_millis(1000);
    const MOST: Duration = Duration::from_millis(50);
    for (waits, does, _) in STATES.into_iter().filter(|(_, does, _)| *does != "closing") {
        let scratch = Scratch::new();
        let [waiting, stopped] = two(&scratch, true, waits, does, 0);
        thread::sleep(Duration::from_millis(200));
        stopped.signal(Signal::STOP);
        waiting.wait_until_asleep();
        let before = waiting.cpu_time();
        thread::sleep(WATCHED);
        let spent = waiting.cpu_time() - before;
        assert!(!waiting.has_ended(), "{waits} ended though its peer, in {does}, was stopped only");
        assert!(spent <= MOST, "{waits} took {spent:?} of processor time while its peer, in {does}, was stopped");
        stopped.signal(Signal::CONT);
        thread::sleep(Duration::from_millis(100));
        assert!(!waiting.has_ended(), "{waits} ended though its peer, in {does}, goes on");
        stopped.signal(Signal::KILL);
        let killed = Instant::now();
        tell(&waiting, waits);
        ends_soon(waiting, killed).unwrap_or_else(|report| panic!("{waits}, its peer in {does}: {report}"));
    }
}

#[test]
fn a_transfer_goes_on_when_a_stopped_end_does() {
    const MEBIBYTES: u32 = 1024;
    for stops_reader in [true, false] {
        let scratch = Scratch::new();
        let [reader, writer] = two(&scratch, true, "sink", "pump", MEBIBYTES);
        let stopped = if stops_reader { &reader } else { &writer };
        for _ in 0..3 {
            thread::sleep(Duration::from_millis(100));
            assert!(!stopped.has_ended(), "{MEBIBYTES} MiB are too few");
            stopped.signal(Signal::STOP);
            thread::sleep(Duration::from_millis(400));
            stopped.signal(Signal::CONT);
        }
        let [reader, writer] = [reader, writer].map(|end| end.wait(LIMIT));
        assert!(reader.ok().contains("sink: whole"), "{}", reader.report());
        assert!(writer.ok().contains("pump ended with end of file"), "{}", writer.report());
        [reader, writer].iter().for_each(|end| end.was_over_shm(u64::from(MEBIBYTES) << 20));
    }
}

/// What it had still to send when it was stopped arrives, at the latest when it goes on, and the end of file behind it.
#[test]
fn a_stopped_end_goes_on_closing() {
    for listens in [true, false] {
        let scratch = Scratch::new();
        let [reads, closes] = two(&scratch, listens, "later", "closing", 0);
        closes.wait_for_line("close was quick: yes");
        closes.signal(Signal::STOP);
        reads.signal(Signal::USR1);
        thread::sleep(Duration::from_millis(300));
        closes.signal(Signal::CONT);
        let ended = reads.wait(LIMIT);
        assert!(ended.ok().contains("later, recv ended with end of file"), "{}", ended.report());
        ended.was_over_shm(1);
    }
}

#[test]
fn close_and_exit_do_not_wait_for_a_stopped_or_dead_peer() {
    for signal in [Signal::STOP, Signal::KILL] {
        let scratch = Scratch::new();
        let [closes, other] = two(&scratch, false, "close", "idle", 0);
        closes.wait_for_line("full"); // a second before it closes
        other.signal(signal);
        let ended = closes.wait(Duration::from_secs(6)); // exit waits 3 seconds at most
        assert!(ended.ok().contains("close was quick: yes"), "{}", ended.report());
        assert!(ended.output.contains("close: 0"), "{}", ended.report());
        ended.was_over_shm(1);
    }
}

/// The kernel's queue of the listener takes what its process does not answer.
#[test]
fn a_stopped_listener_costs_the_deadline_and_gets_a_tcp_connection() {
    let (scratch, port) = (Scratch::new(), free_port());
    let server = serve(&scratch, port, 1, 0).start();
    server.wait_until_listening(port);
    server.signal(Signal::STOP);
    const DEFAULT: (&str, &str) = ("RSOCKET_CONNECT_DEADLINE", "300");
    let client = ask(&scratch, "client", port).env(DEFAULT.0, DEFAULT.1).start();
    client.wait_until_asleep();
    let timed = connects(&scratch, "taken", port).env(DEFAULT.0, DEFAULT.1).run(LIMIT);
    timed.ok();
    assert!(timed.number("first") < 1_000_000.0, "the deadline is 300 ms: {}", timed.report());
    timed.was_over_the_kernel();
    assert!(!client.has_ended());
    server.signal(Signal::CONT);
    let [client, server] = [client, server].map(|end| end.wait(LIMIT));
    client.ok();
    client.was_over_the_kernel();
    assert_eq!(client.counters.get("fallback_timed_out"), 1, "{}", client.report());
    server.ok();
    server.was_over_the_kernel();
}

/// The answer comes while the client is stopped; it takes it when it goes on.
#[test]
fn a_client_is_stopped_while_it_connects() {
    let (scratch, port) = (Scratch::new(), free_port());
    let server = serve(&scratch, port, 1, 0).start();
    server.wait_until_listening(port);
    server.signal(Signal::STOP);
    let client = ask(&scratch, "client", port).env("RSOCKET_CONNECT_DEADLINE", "30000").start();
    client.wait_until_asleep();
    client.signal(Signal::STOP);
    server.signal(Signal::CONT);
    thread::sleep(Duration::from_millis(300));
    client.signal(Signal::CONT);
    for ended in [client, server].map(|end| end.wait(LIMIT)) {
        ended.ok();
        ended.was_over_shm(300_000);
    }
}

/// A connect that waits for an answer: its own process is killed, or the listener's.
#[test]
fn either_end_is_killed_while_one_connects() {
    const PATIENCE: (&str, &str) = ("RSOCKET_CONNECT_DEADLINE", "30000");
    let (scratch, port) = (Scratch::new(), free_port());
    let server = serve(&scratch, port, 1, 0).start();
    server.wait_until_listening(port);
    server.signal(Signal::STOP);
    let client = ask(&scratch, "killed", port).env(PATIENCE.0, PATIENCE.1).start();
    client.wait_until_asleep();
    client.signal(Signal::KILL);
    server.signal(Signal::CONT);
    let next = ask(&scratch, "next", port).run(LIMIT);
    next.ok();
    next.was_over_shm(300_000);
    server.wait(LIMIT).ok();

    let (scratch, port) = (Scratch::new(), free_port());
    let server = serve(&scratch, port, 1, 0).start();
    server.wait_until_listening(port);
    server.signal(Signal::STOP);
    // A process dies piece by piece: the kernel's listener may outlive the other one by a moment, and take the client.
    let client = connects(&scratch, "either", port).env(PATIENCE.0, PATIENCE.1).start();
    client.wait_until_asleep();
    server.signal(Signal::KILL);
    ends_soon(client, Instant::now()).unwrap_or_else(|report| panic!("{report}"));
}

/// Killed in accept: the next client is refused. Killed while a connection waits to be accepted: its other end is told.
#[test]
fn either_end_is_killed_before_accept() {
    let (scratch, port) = (Scratch::new(), free_port());
    let server = serve(&scratch, port, 1, 0).start();
    server.wait_until_listening(port);
    server.wait_until_asleep();
    server.signal(Signal::KILL);
    drop(server);
    let refused = connects(&scratch, "refused", port).run(LIMIT);
    refused.ok();
    assert!(refused.number("first") < 300_000.0, "{}", refused.report());

    let (scratch, port) = (Scratch::new(), free_port());
    let server = serve(&scratch, port, 0, 0).start();
    server.wait_until_listening(port);
    let client = peer(&scratch, "client", "connect", "idle", port, 0).start();
    client.wait_until_asleep();
    assert!(!client.has_ended());
    server.signal(Signal::KILL);
    let client = client.wait(SOON);
    let told = ["FAILED first byte", "FAILED recv: ECONNRESET"].iter().any(|words| client.output.contains(words));
    assert!(client.code() == Some(1) && told, "{}", client.report());
    assert_eq!(client.counters.get("connected_shm"), 1, "{}", client.report());

    let (scratch, port) = (Scratch::new(), free_port());
    let server = serve(&scratch, port, 1, 1500).start();
    server.wait_until_listening(port);
    let client = peer(&scratch, "client", "connect", "idle", port, 0).start();
    client.wait_until_asleep();
    client.signal(Signal::KILL);
    let next = ask(&scratch, "next", port).run(LIMIT);
    next.ok();
    next.was_over_shm(300_000);
    server.wait(LIMIT).ok();
}

/// What a program that measures itself holds the first time and afterwards. The heap, and the table of descriptions, may have grown for
/// what was open at once.
#[track_caller]
fn holds_no_more(ended: &Ended, times: usize, rss_slack: f64, maps_slack: f64) {
    for (name, slack) in [("descriptors", 0.0), ("maps", maps_slack), ("rss", rss_slack), ("locked", 0.0), ("threads", 0.0)] {
        let lines = ended.output.lines().filter_map(|line| line.strip_prefix(name)?.strip_prefix(' ')?.parse::<f64>().ok());
        let seen: Vec<f64> = lines.collect();
        println!("{name}: {seen:?}");
        assert_eq!(seen.len(), times, "{name}: {}", ended.report());
        assert!(seen.iter().all(|value| *value <= seen[0] + slack), "{name} grew: {seen:?}: {}", ended.report());
    }
}

#[test]
fn twenty_thousand_connections_leave_nothing() {
    const ROUNDS: u64 = 20_000;
    let scratch = Scratch::new();
    let ended = Program::test(&scratch, "soak", "soak_connect", &[ADDRESS, &ROUNDS.to_string()]).preloaded().run(Duration::from_secs(300));
    assert!(ended.ok().contains(&format!("rounds {ROUNDS} whole")), "{}", ended.report());
    println!("{:.0} s", ended.seconds);
    holds_no_more(&ended, 2, 1024.0, 0.0);
    ended.was_over_shm(ROUNDS * 20_000);
    assert_eq!(ended.counters.get("connected_shm"), ROUNDS, "{}", ended.report());
}

#[test]
fn two_thousand_at_once_leave_nothing() {
    const COUNT: u64 = 2000;
    // a pair is two numbers of the program's and two of the library's
    let numbers = format!("--nofile={}", 4 * COUNT + 1000);
    let scratch = Scratch::new();
    let program = Program::test(&scratch, "many", "soak_many", &[ADDRESS, &COUNT.to_string()]).preloaded();
    let ended = program.within(&["prlimit", &numbers]).run(Duration::from_secs(110));
    assert_eq!(ended.ok().matches(&format!("right {COUNT}")).count(), 2, "{}", ended.report());
    holds_no_more(&ended, 3, 10_240.0, 8.0);
    ended.was_over_shm(COUNT * 2 * 12_000);
    assert_eq!(ended.counters.get("connected_shm"), 2 * COUNT + 16, "{}", ended.report());
}
