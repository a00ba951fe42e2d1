//! What happens when something is missing or breaks: a peer without the library, a refusal, a host that does not answer, a peer
//! that is killed or stopped, a link that is cut, ten thousand connections one after the other.
//!
//! One host over soft-RoCE, except where a link is cut or a host is silent: those take two machines.
//! `RSOCKET_TEST_LIBRARY=PATH` tries another library. The long forms are ignored by default: `-- --ignored`.

#[path = "interop/library.rs"]
mod library;
mod support;

use std::time::Duration;

use library::{library, went_over_rdma};
use support::{Counters, Rdma, Topology, Vm, VmSession, assert_over_tcp, build_c_program, difference};

const FUNCTIONS: &str = r#"
# words, not a function: a command in the background is then the program itself
# (a slow machine may take longer than the usual deadline to answer)
over="env LD_PRELOAD=$LIB RSOCKET_CONNECT_DEADLINE=20000"
plain=
"#;

fn session(vm: Vm) -> VmSession {
    let mut vm = vm.env("LIB", library());
    for (variable, program) in [
        ("PEER", "fault_peer"),
        ("CONNECT", "fault_connect"),
        ("SOAK", "soak_connect"),
        ("DUPLEX", "io_duplex"),
        ("STATES", "poll_threads"),
        ("WAYS", "exit_ways"),
        ("LINGER", "exit_linger"),
        ("THREADS", "exit_threads"),
        ("STOPPED", "exit_stopped"),
        ("MANY", "exit_many"),
    ] {
        vm = vm.env(variable, build_c_program(program));
    }
    VmSession::new(vm).prelude(FUNCTIONS)
}

fn one_host() -> VmSession {
    session(Vm::new().cpus(2))
}

fn two_machines() -> VmSession {
    session(Vm::new().topology(Topology::TwoMachines).rdma(Rdma::Rxe))
}

/// The number behind a word at the beginning of a line.
#[track_caller]
fn number(output: &str, name: &str) -> f64 {
    let all = numbers(output, name);
    *all.last().unwrap_or_else(|| panic!("no {name} in\n{output}"))
}

fn numbers(output: &str, name: &str) -> Vec<f64> {
    let lines = output.lines().filter_map(|line| line.strip_prefix(name)?.strip_prefix(' ')?.split(' ').next());
    lines.filter_map(|text| text.parse().ok()).collect()
}

#[test]
fn a_peer_without_the_library_gets_plain_tcp() {
    const FILE: &str = "head -c 300000 /dev/urandom > /run/block; for i in 1 2 3 4 5 6 7 8; do cat /run/block; echo $i; done > /run/source; rm -f /run/copy";
    let transfer = |server: &str, client: &str| {
        format!(
            "{FILE}; counters
             {server} nc -l -s $HOST_A -p 5000 > /run/copy & rwait 5000; {client} nc -N $HOST_A 5000 < /run/source; wait; counters
             cmp /run/source /run/copy || exit 1
             {server} nc -N -l -s $HOST_A -p 5001 < /run/source & rwait 5001; {client} nc -d $HOST_A 5001 > /run/copy; wait
             cmp /run/source /run/copy"
        )
    };
    let web = |server: &str, client: &str| {
        format!(
            "{FILE}; cd /run; counters; {server} /usr/bin/python3 -m http.server --bind $HOST_A 8000 2>/dev/null & rwait 8000
             {client} curl -sS -o /run/copy http://$HOST_A:8000/source && counters && cmp /run/source /run/copy"
        )
    };
    let iperf3 = |server: &str, client: &str| {
        format!("counters; {server} iperf3 -s -1 -B $HOST_A & rwait 5201; {client} iperf3 -c $HOST_A -n 8M && wait && counters")
    };
    let limit = Duration::from_secs(40);
    let outcome = one_host()
        .step_within("nc.plain-client", limit, &transfer("$over", "$plain"))
        .step_within("nc.plain-server", limit, &transfer("$plain", "$over"))
        .step_within("web.plain-client", limit, &web("$over", "$plain"))
        .step_within("web.plain-server", limit, &web("$plain", "$over"))
        .step_within("iperf3.plain-client", limit, &iperf3("$over", "$plain"))
        .step_within("iperf3.plain-server", limit, &iperf3("$plain", "$over"))
        .step_within(
            "both-kinds",
            limit,
            // one listening number, clients of both kinds by turns
            &format!(
                "{FILE}; cd /run; $over /usr/bin/python3 -m http.server --bind $HOST_A 8000 2>/dev/null & rwait 8000
                 for i in 1 2 3; do for kind in \"$plain\" \"$over\"; do
                   $kind curl -sS -o /run/copy http://$HOST_A:8000/source && cmp /run/source /run/copy || exit 1; done; done"
            ),
        )
        .run();
    for step in &outcome.steps {
        let output = step.ok();
        if step.name != "both-kinds" {
            let (before, after) = Counters::first_and_last(output);
            assert_over_tcp(before, after, 8 * 300_000);
        }
    }
}

#[test]
fn a_refused_connect_costs_no_wait() {
    let outcome = one_host()
        .step("plain", "$plain $CONNECT refused $HOST_A 7999 30")
        .step("preloaded", "$over $CONNECT refused $HOST_A 7999 30")
        .step(
            "taken",
            "nc -lk -s $HOST_A -p 7998 >/dev/null & rwait 7998; $plain $CONNECT taken $HOST_A 7998 10; $over $CONNECT taken $HOST_A 7998 10",
        )
        .run();
    let (plain, preloaded) = (outcome.step("plain").ok(), outcome.step("preloaded").ok());
    println!("plain:\n{plain}preloaded:\n{preloaded}taken, plain and preloaded:\n{}", outcome.step("taken").ok());
    // Far from the deadline: a message there and back, and the first time the set-up of a device. (On an idle machine 1 ms and 0.1 s.)
    let quick =
        |output: &str| numbers(output, "median").iter().all(|us| *us < 200_000.0) && numbers(output, "first").iter().all(|us| *us < 5e6);
    assert!(number(plain, "median") > 0.0 && number(preloaded, "median") > 0.0);
    assert!(quick(preloaded), "a refusal took {preloaded}");
    let taken = outcome.step("taken").ok();
    assert!(numbers(taken, "median").len() == 2 && quick(taken), "a plain peer took {taken}");
}

#[test]
fn a_host_that_does_not_answer_costs_the_deadline_once() {
    // machine B has no RDMA device: what the client asks there over RDMA is lost, TCP works
    let server = "rdma link del rxe0; nc -lk -p 7998 >/dev/null & rwait 7998; tell up; await done 60; true";
    let client = "await up; $plain $CONNECT taken $HOST_B 7998 5; echo preloaded; LD_PRELOAD=$LIB $CONNECT taken $HOST_B 7998 5; rc=$?; tell done; exit $rc";
    let outcome = two_machines().step_both("silent", Duration::from_secs(70), client, server).run();
    let output = outcome.step("silent").ok();
    println!("{output}");
    let (first, median) = (number(output, "first"), number(output, "median"));
    assert!(first < 1_000_000.0, "the first connect took {first} us: the deadline is 300 ms");
    assert!(median < 100_000.0, "a connect to a host known to be silent took {median} us");
}

/// Who waits how, and what the end that is killed does meanwhile.
const DEATHS: [(&str, &str); 9] = [
    ("recv", "idle"),
    ("recv", "flood"),
    ("send", "idle"),
    ("send", "drain"),
    ("poll", "idle"),
    ("poll", "flood"),
    ("select", "idle"),
    ("select", "flood"),
    ("pollout", "idle"),
];

#[test]
fn a_killed_peer_ends_every_wait_within_five_seconds() {
    let mut session = one_host();
    for (waits, does) in DEATHS {
        for (survivor, victim) in [("listen", "connect"), ("connect", "listen")] {
            let text = format!(
                "begin() {{ $over $PEER $1 $2 $HOST_A 6000 > /run/$3 & pid=$!; }}
                 if [ {survivor} = listen ]; then begin listen {waits} survivor; s=$pid; else begin listen {does} victim; v=$pid; fi
                 rwait 6000
                 if [ {survivor} = listen ]; then begin connect {does} victim; v=$pid; else begin connect {waits} survivor; s=$pid; fi
                 for i in $(seq 100); do grep -q ready /run/survivor && grep -q ready /run/victim && break; sleep 0.1; done
                 sleep 1; kill -0 $s $v || exit 3
                 kill -KILL $v; killed=${{EPOCHREALTIME/[.,]/}}
                 (sleep 5; kill -ALRM $s) 2>/dev/null & wait $s; status=$?
                 echo after_ms $(((${{EPOCHREALTIME/[.,]/}} - killed) / 1000)); cat /run/survivor; exit $status"
            );
            session = session.step_within(&format!("{survivor}s.{waits}.peer-{victim}s.{does}"), Duration::from_secs(40), &text);
        }
    }
    let outcome = session.run();
    let mut failed = String::new();
    for step in &outcome.steps {
        println!("{:40} {} {}", step.name, step.status, step.output.replace('\n', " "));
        if step.status != 0 {
            failed.push_str(&format!("{}: exit status {}: {}\n", step.name, step.status, step.output));
        }
    }
    assert!(failed.is_empty(), "{failed}");
    assert_eq!(outcome.steps.len(), DEATHS.len() * 2, "{}", outcome.report());
}

#[test]
fn close_and_exit_do_not_wait_for_a_stopped_peer() {
    let outcome = one_host()
        .step_within(
            "stopped",
            Duration::from_secs(40),
            "$over $PEER listen idle $HOST_A 6000 > /run/peer & peer=$!; rwait 6000
             $over $PEER connect close $HOST_A 6000 > /run/closer & closer=$!
             for i in $(seq 100); do grep -q full /run/closer && break; sleep 0.1; done
             kill -STOP $peer; (sleep 10; kill -ALRM $closer) 2>/dev/null & wait $closer; status=$?
             cat /run/closer; kill -KILL $peer; exit $status",
        )
        .run();
    assert!(outcome.step("stopped").ok().contains("close was quick: yes"), "{}", outcome.report());
}

/// What runs plain and over RDMA, and says the same, and the bytes that go from and to one host: those of `tests/exits.rs`, smaller. Without
/// processes that are killed, and handlers that end one amid a call: what their device has not sent by then is lost, and their peers see a
/// reset (docs/COMPATIBILITY.md).
const ENDS: [(&str, &str, u64); 5] = [
    ("ways", "$WAYS $HOST_A 300000 0", 21 * 300_000),
    ("linger", "$LINGER $HOST_A", 0),
    ("threads", "$THREADS $HOST_A 4", 0),
    ("stopped", "$STOPPED $HOST_A 0", 0),
    ("many", "$MANY $HOST_A 20", 120 * 700),
];

#[test]
fn what_was_sent_before_the_end_of_a_process_arrives() {
    let mut session = one_host();
    let limit = Duration::from_secs(150);
    for (name, command, _) in ENDS {
        session = session.step_within(&format!("{name}.plain"), limit, &format!("$plain {command}"));
        session = session.step_within(name, limit, &format!("counters; $over {command}; status=$?; counters; exit $status"));
    }
    let outcome = session.step_within("killed", limit, "$over $WAYS $HOST_A 1000").run();
    let mut failed = String::new();
    for (name, _, bytes) in ENDS {
        let (plain, over) = (outcome.step(&format!("{name}.plain")).ok(), outcome.step(name));
        println!("{name}: {:.1} s, plain {:.1} s", over.seconds, outcome.step(&format!("{name}.plain")).seconds);
        let said =
            |text: &str| text.lines().filter(|line| Counters::parse(line).is_none()).map(|line| format!("{line}\n")).collect::<String>();
        match difference(plain, &said(&over.output)) {
            Some(difference) => failed.push_str(&format!("{name}: {difference}\n{}\n", over.output)),
            None if over.status != 0 => failed.push_str(&format!("{name}: exit status {}\n", over.status)),
            None => went_over_rdma(name, &over.output, bytes),
        }
    }
    println!("{}", outcome.step("killed").output);
    assert!(failed.is_empty(), "{failed}");
}

/// What `soak_connect` prints after a tenth of its rounds and at the end, and the device's own resources around it.
fn soak(rounds: u32, limit: Duration) {
    let outcome = one_host()
        .step_within(
            "soak",
            limit,
            &format!(
                "echo \"before: $(rdma resource show | head -1)\"; $over $SOAK $HOST_A {rounds} || exit 1; sleep 1
                 echo \"after: $(rdma resource show | head -1)\""
            ),
        )
        .run();
    let output = outcome.step("soak").ok();
    println!("{output}{:.0} s", outcome.step("soak").seconds);
    assert!(output.contains(&format!("rounds {rounds} whole")), "{output}");
    for (name, slack) in [("descriptors", 2.0), ("rss", 2048.0), ("locked", 512.0), ("threads", 0.0)] {
        let seen = numbers(output, name);
        assert!(seen.len() == 2 && seen[1] <= seen[0] + slack, "{name} grew: {seen:?}");
    }
    let line = |mark: &str| output.lines().find_map(|line| line.strip_prefix(mark)).unwrap_or("").to_owned();
    assert_eq!(line("before: "), line("after: "), "the device's resources");
}

#[test]
fn five_hundred_connections_leave_nothing() {
    soak(500, Duration::from_secs(120));
}

#[test]
#[ignore = "up to 10 minutes"]
fn ten_thousand_connections_leave_nothing() {
    soak(10_000, Duration::from_secs(900));
}

/// Bytes in both directions at the same time in small pieces, and ten waiting threads, with the path's proof.
fn full_duplex(mebibytes: u32, limit: Duration) {
    let seconds = limit.as_secs();
    let outcome = one_host()
        .step_within("duplex", limit, &format!("counters; $over $DUPLEX $HOST_A {mebibytes} 4096 {seconds} && counters"))
        .step_within("pollers", Duration::from_secs(40), "$over $STATES $HOST_A")
        .run();
    let output = outcome.step("duplex").ok();
    assert_eq!(output.matches(": equal").count(), 2, "{output}");
    went_over_rdma("duplex", output, u64::from(mebibytes) << 21);
    println!("{:.1} s", outcome.step("duplex").seconds);
    assert!(outcome.step("pollers").ok().contains("one socket, after: 10"), "{}", outcome.report());
}

#[test]
fn full_duplex_of_sixty_four_mebibytes_does_not_stall() {
    full_duplex(64, Duration::from_secs(120));
}

#[test]
#[ignore = "several minutes"]
fn full_duplex_of_a_gibibyte_does_not_stall() {
    full_duplex(1024, Duration::from_secs(900));
}

/// Seconds until a party that waits for an answer over a dead link is told: seven attempts of 0.54 s, and devices may take four times as
/// long (docs/COMPATIBILITY.md).
const DEAD_LINK: u64 = 16;
/// The time after which keep-alive asks (`fault_peer keep`), in seconds.
const KEEP_IDLE: u64 = 1;

/// Cuts of two seconds, until a transfer has lived through one. A busy machine may take longer to undo them, ...
const CUT_ATTEMPTS: [&str; 3] = ["two-seconds.1", "two-seconds.2", "two-seconds.3"];
/// ... and what is longer than this, in milliseconds, says nothing.
const LONGEST_CUT: f64 = 3000.0;

#[test]
fn a_cut_link_is_survived_or_reported() {
    let end = |role: &str, does: &str, port: u32| format!("$over $PEER {role} {does} $HOST_B {port} 48");
    let waits = "wait $!; status=$?; echo after_s $((SECONDS - cut))";
    // the link is cut for good while the client does this, and the server waits for data with keep-alive
    let cut = |name: &str, client: &str, port: u32| {
        let (client, server) = (end("connect", client, port), end("listen", "keep", port));
        (
            format!(
                "await {name} 60; {client} & sleep 2; netcut hole; tell cut.{name}; cut=$SECONDS; {waits}; await told.{name} 30; netcut open; exit $status"
            ),
            format!("{server} & rwait {port}; tell {name}; await cut.{name} 60; cut=$SECONDS; {waits}; tell told.{name}; exit $status"),
        )
    };
    let (floods, keeps) = (cut("floods", "flood", 6001), cut("keeps", "keep", 6002));
    let limit = Duration::from_secs(DEAD_LINK + KEEP_IDLE + 60); // two VMs on a busy machine are slow
    let mut session = two_machines();
    for attempt in CUT_ATTEMPTS {
        let (client, server) = (end("connect", "pump", 6000), end("listen", "sink", 6000));
        session = session.step_both(
            attempt,
            Duration::from_secs(180),
            // the first cut takes its time to set up
            &format!(
                "await whole 0 2>/dev/null && exit; netcut delay 0; netcut open; await {attempt} 60; {client} & pump=$!
                 sleep 1; start=${{EPOCHREALTIME/[.,]/}}; netcut hole; sleep 2; netcut open
                 echo cut_ms $(((${{EPOCHREALTIME/[.,]/}} - start) / 1000)); wait $pump"
            ),
            &format!("await whole 0 2>/dev/null && exit; {server} & rwait 6000; tell {attempt}; wait $! && tell whole"),
        );
    }
    let outcome = session.step_both("floods", limit, &floods.0, &floods.1).step_both("keeps", limit, &keeps.0, &keeps.1).run();
    let mut lived = false;
    for attempt in CUT_ATTEMPTS {
        let (client, server) = (&outcome.step(attempt).output, &outcome.b().step(attempt).output);
        println!("{attempt}: {client:?} {server:?}");
        lived |= server.contains("sink: whole");
        let was_short = numbers(client, "cut_ms").first().is_some_and(|ms| *ms < LONGEST_CUT);
        assert!(lived || !was_short, "{client}{server}");
    }
    assert!(lived, "{}", outcome.report());
    let sides = |step: &str| [outcome.step(step).ok().to_owned(), outcome.b().step(step).ok().to_owned()];
    let (floods, keeps) = (sides("floods"), sides("keeps"));
    println!("{floods:?} {keeps:?}");
    let told = |output: &str, does: &str, within: u64| {
        assert!(output.contains(&format!("{does} ended with ETIMEDOUT")), "{output}");
        assert!(number(output, "after_s") <= within as f64, "{output}");
    };
    told(&floods[0], "flood", DEAD_LINK);
    for waits in [&floods[1], &keeps[0], &keeps[1]] {
        told(waits, "keep", DEAD_LINK + KEEP_IDLE);
    }
}
