//! Datagram sockets that were asked for (`RSOCKET_DGRAM`, `preload_config`, the r* functions): the programs `datagram_*` must behave as on
//! the kernel, peers of one host must meet in shared memory, plain peers must see nothing of it; and without being asked the library leaves
//! datagrams alone.

mod support;

use std::{fs, path::PathBuf, time::Duration};

use support::{Ended, Program, Scratch, artefact, build_c_program, difference, free_port, repository};

const LIMIT: Duration = Duration::from_secs(100);

/// The programs, and how many datagrams at least must have gone through shared memory. What they send to nobody, or to sockets that the kernel
/// alone can find, goes by the kernel.
const PROGRAMS: &[(&str, u64)] =
    &[("datagram_calls", 3150), ("datagram_connect", 15), ("datagram_odd", 10), ("datagram_states", 4), ("datagram_wait", 410)];

const ASKED: (&str, &str) = ("RSOCKET_DGRAM", "1");

fn of(ended: &Ended, name: &str) -> u64 {
    ended.counters.get(name)
}

#[track_caller]
fn compare(program: &str, address: &str, prepare: impl for<'a> Fn(Program<'a>) -> Program<'a>) -> Ended {
    let scratch = Scratch::new();
    let plain = Program::test(&scratch, "plain", program, &[address]).run(LIMIT);
    let preloaded = prepare(Program::test(&scratch, "preloaded", program, &[address]).preloaded()).run(LIMIT);
    plain.ok();
    preloaded.ok();
    assert!(preloaded.errors.is_empty(), "{}", preloaded.report());
    let difference = difference(&plain.output, &preloaded.output);
    assert_eq!(difference, None, "{program} at {address}: {}", preloaded.report());
    preloaded
}

#[test]
fn programs_behave_as_on_the_kernel() {
    for address in ["127.0.0.1", "::1"] {
        for (program, least) in PROGRAMS {
            let ended = compare(program, address, |program| program.env(ASKED.0, ASKED.1));
            let sent = of(&ended, "datagrams_sent_shm");
            assert!(sent >= *least, "{program} at {address}: {sent} of {least}: {}", ended.report());
            assert!(of(&ended, "datagrams_received_shm") <= sent, "{}", ended.report());
            assert_eq!(of(&ended, "datagrams_dropped"), 0, "{}", ended.report());
        }
    }
}

fn config(scratch: &Scratch, text: &str) -> PathBuf {
    let folder = scratch.path("config");
    fs::create_dir_all(&folder).unwrap();
    fs::write(folder.join("preload_config"), text).unwrap();
    folder
}

#[track_caller]
fn taken_with(text: &str, asked: bool) -> bool {
    let scratch = Scratch::new();
    let folder = config(&scratch, text);
    let ended = compare("datagram_connect", "127.0.0.1", |program| {
        let program = program.env("RSOCKET_CONFIG_DIR", &folder);
        if asked { program.env(ASKED.0, ASKED.1) } else { program }
    });
    let counted = of(&ended, "datagrams_sent_shm") + of(&ended, "datagrams_sent_kernel");
    counted > 0
}

#[test]
fn datagrams_are_the_kernels_unless_they_are_asked_for() {
    let asked = [("datagram INET DGRAM UDP\ndatagram INET6 DGRAM UDP\n", false), ("* * SOCK_DGRAM *\n", false), ("* * * UDP\n", false)];
    for (text, variable) in asked.into_iter().chain([("", true), ("* * * *\n", true)]) {
        assert!(taken_with(text, variable), "{text:?}");
    }
    for (text, variable) in [("", false), ("* * * *\n", false), ("* INET STREAM TCP\n", true), ("other INET DGRAM UDP\n", true)] {
        assert!(!taken_with(text, variable), "{text:?}");
    }
}

#[test]
fn shared_memory_that_is_not_wanted_is_not_used() {
    let ended = compare("datagram_connect", "127.0.0.1", |program| program.env(ASKED.0, ASKED.1).env("RSOCKET_FABRIC", "kernel"));
    assert_eq!(of(&ended, "datagrams_sent_shm"), 0, "{}", ended.report());
}

/// A server and a client of `datagram_peer.py`, each preloaded or not.
#[track_caller]
fn python(server: &str, client: &str, count: u64, preloaded: [bool; 2]) -> [Ended; 2] {
    let scratch = Scratch::new();
    let script = repository().join("tests/programs/datagram_peer.py");
    let (script, port, count) = (script.to_str().unwrap(), free_port().to_string(), count.to_string());
    let program = |name: &str, role: &str, preload: bool| {
        let program = Program::new(&scratch, name, &["python3", script, role, &port, &count]);
        if preload { program.preloaded().env(ASKED.0, ASKED.1) } else { program }
    };
    let serving = program("server", server, preloaded[0]).start();
    serving.wait_for_line("ready");
    let client = program("client", client, preloaded[1]).run(LIMIT);
    let server = serving.wait(LIMIT);
    server.ok();
    client.ok();
    [server, client]
}

/// Of the wire protocol, which this host has no device for, nothing is seen.
#[test]
fn headers_and_control_messages_are_not_the_programs() {
    let scratch = Scratch::new();
    let script = repository().join("tests/programs/datagram_headers.py");
    let program = Program::new(&scratch, "program", &["python3", script.to_str().unwrap()]);
    let ended = program.preloaded().env(ASKED.0, ASKED.1).run(LIMIT);
    assert!(ended.ok().ends_with("all right\n"), "{}", ended.report());
    assert!(of(&ended, "datagrams_received_kernel") > 600, "{}", ended.report());
}

const EXCHANGES: u64 = 200;

#[test]
fn two_processes_meet_in_shared_memory() {
    for (server, client) in [("server", "client"), ("asyncio-server", "asyncio-client"), ("server", "asyncio-client")] {
        let [server, client] = python(server, client, EXCHANGES, [true, true]);
        assert_eq!(server.number("answered"), EXCHANGES as f64);
        assert_eq!(client.number("right"), EXCHANGES as f64);
        for (ended, sent) in [(&server, EXCHANGES), (&client, EXCHANGES + 1)] {
            assert_eq!(of(ended, "datagrams_sent_shm"), sent, "{}", ended.report());
            assert_eq!(of(ended, "datagrams_sent_kernel"), 0, "{}", ended.report());
        }
    }
}

#[test]
fn plain_peers_see_plain_datagrams() {
    for (server, client) in [("server", "client"), ("asyncio-server", "asyncio-client")] {
        for preloaded in [[true, false], [false, true]] {
            let both = python(server, client, 30, preloaded);
            for (ended, preloaded) in both.iter().zip(preloaded) {
                let kernels = if preloaded { 30 } else { 0 };
                assert_eq!(of(ended, "datagrams_sent_shm"), 0, "{}", ended.report());
                assert!(of(ended, "datagrams_sent_kernel") >= kernels, "{}", ended.report());
            }
        }
    }
}

#[test]
fn a_server_that_is_killed_is_missed_and_found_again() {
    let scratch = Scratch::new();
    let script = repository().join("tests/programs/datagram_peer.py");
    let (script, port) = (script.to_str().unwrap(), free_port().to_string());
    let program =
        |name: &str, role: &str| Program::new(&scratch, name, &["python3", script, role, &port]).preloaded().env(ASKED.0, ASKED.1);
    let first = program("first", "server").start();
    first.wait_for_line("ready");
    let patient = program("patient", "patient").start();
    patient.wait_for_line("served");
    first.signal(rustix::process::Signal::KILL);
    patient.wait_for_line("refused");
    let second = program("second", "server").start();
    second.wait_for_line("ready");
    let served_twice = |patient: &support::Running| patient.output().lines().filter(|line| *line == "served").count() == 2;
    patient.wait_until("is served again", served_twice);
    drop((first, patient, second));
}

fn tools(server: &str, client: &str, preloaded: [bool; 2]) -> [Ended; 2] {
    let scratch = Scratch::new();
    let port = free_port();
    let program = |name: &str, line: &str, preload: bool| {
        let line = line.replace("PORT", &port.to_string());
        let words: Vec<&str> = line.split_whitespace().collect();
        let program = Program::new(&scratch, name, &words);
        if preload { program.preloaded().env(ASKED.0, ASKED.1) } else { program }
    };
    let serving = program("server", server, preloaded[0]).start();
    if server.starts_with("iperf3") || server.starts_with("dnsmasq") {
        serving.wait_until_listening(port);
    } else {
        serving.wait_until("its address", |running| running.output().contains("[ 0] IP"));
    }
    let client = program("client", client, preloaded[1]).run(LIMIT);
    if !server.starts_with("iperf3") {
        serving.signal(rustix::process::Signal::INT);
    }
    [serving.wait(LIMIT), client]
}

#[test]
fn iperf3_with_datagrams() {
    let client = "iperf3 -u -b 200M -t 1 -c 127.0.0.1 -p PORT";
    let [server, sender] = tools("iperf3 -s -1 -p PORT", client, [true, true]);
    sender.ok();
    // The server's socket is connected only when the first one has come, and found from then on.
    assert!(of(&server, "datagrams_received_shm") > 100, "{}", server.report());
    assert!(of(&sender, "datagrams_sent_shm") > 100, "{}", sender.report());
    for preloaded in [[true, false], [false, true]] {
        let both = tools("iperf3 -s -1 -p PORT", client, preloaded);
        both[1].ok();
        assert!(both.iter().all(|ended| of(ended, "datagrams_sent_shm") == 0), "{}", both[1].report());
    }
}

#[test]
fn sockperf_with_datagrams() {
    for (preloaded, shm) in [([true, true], true), ([true, false], false), ([false, true], false)] {
        let [server, client] = tools("sockperf sr -i 127.0.0.1 -p PORT", "sockperf pp -i 127.0.0.1 -p PORT -t 1", preloaded);
        assert!(client.ok().contains("Summary: Latency"), "{}", client.report());
        assert_eq!(of(&client, "datagrams_sent_shm") > 100, shm, "{}", client.report());
        assert_eq!(of(&server, "datagrams_received_shm") > 100, shm, "{}", server.report());
    }
}

/// A name server, and a client, which uses a connected socket.
#[test]
fn dig_asks_dnsmasq() {
    let server = "dnsmasq --no-daemon --conf-file=/dev/null --pid-file= --user=root --no-resolv --no-hosts --bind-interfaces \
                  --listen-address=127.0.0.1 --port=PORT --address=/test.example/192.0.2.7";
    for preloaded in [[true, false], [false, true], [true, true]] {
        let [server, client] = tools(server, "dig @127.0.0.1 -p PORT +short +tries=3 +time=5 test.example", preloaded);
        assert_eq!(client.ok().trim(), "192.0.2.7", "{}", client.report());
        let [asked, answered] = [&client, &server].map(|ended| of(ended, "datagrams_sent_kernel") + of(ended, "datagrams_sent_shm"));
        assert_eq!([answered > 0, asked > 0], preloaded, "{} {}", server.report(), client.report());
    }
}

#[test]
fn r_functions_take_datagrams() {
    let scratch = Scratch::new();
    let ended = Program::new(&scratch, "native", &[build_c_program("native_datagram").to_str().unwrap()])
        .env("LD_PRELOAD", artefact("librsocket.so"))
        .env("RSOCKET_STATS", scratch.path("native.stats.%p"))
        .run(LIMIT);
    assert_eq!(ended.ok().trim(), "rsendto: 5\nrrecvfrom: 5 hello\nrsend: 3\nrpoll: 1\nrrecvmsg: 3\nrread: 3");
    assert_eq!((of(&ended, "datagrams_sent_shm"), of(&ended, "datagrams_received_shm")), (3, 3), "{}", ended.report());
}

#[test]
fn processes_that_are_killed_do_no_harm() {
    let scratch = Scratch::new();
    let storm = Program::test(&scratch, "storm", "datagram_storm", &["127.0.0.1", "3", "1"]);
    let ended = storm.preloaded().env(ASKED.0, ASKED.1).run(LIMIT);
    assert_eq!(ended.ok(), "wrong: 0\nreceived any: yes\n", "{}", ended.report());
    assert!(of(&ended, "datagrams_received_shm") > 1000, "{}", ended.report());
}
