//! Interoperation with the library that distributions ship: each case with ours at one end, the other, and both, over soft-RoCE
//! (one host) and soft-iWARP (two hosts). Under rstream and rcopy ours takes the place of the shipped r* functions.
//!
//! The quick table is for every run. `cargo test --test interop -- --ignored` runs rstream's own tables and the large copy:
//! several minutes a pair. `RSOCKET_TEST_PAIRS=shipped/shipped` (server/client) runs other pairs than the three of ours,
//! `RSOCKET_TEST_CASES=rcopy,iperf` only the cases whose names begin so.

mod support;

use std::env;
use std::time::Duration;

use support::{Counters, Outcome, Rdma, Scratch, Topology, Vm, VmSession, artefact, assert_over_rdma, build_c_program, example, installed};

const SHIPPED: &str = "/usr/lib/x86_64-linux-gnu/rsocket/librspreload.so";
const FUNCTIONS: &str = include_str!("interop/pair.sh");

/// One line of the matrix: a call of `interop/pair.sh`, and the bytes that it moves at least.
struct Case {
    name: &'static str,
    call: &'static str,
    bytes: u64,
    seconds: u64,
}

const fn case(name: &'static str, call: &'static str, bytes: u64, seconds: u64) -> Case {
    Case { name, call, bytes, seconds }
}

/// rstream's default table with fewer rounds, and each of its modes.
const QUICK: [Case; 22] = [
    case("latency-1", "run_rstream -S 1 -I 300 -C 1", 600, 30),
    case("latency-64", "run_rstream -S 64 -I 300 -C 1", 38_400, 30),
    case("latency-4k", "run_rstream -S 4096 -I 100 -C 1", 819_200, 30),
    case("latency-64k", "run_rstream -S 65536 -I 20 -C 1", 2_621_440, 30),
    case("latency-1m", "run_rstream -S 1048576 -I 3 -C 1", 6_291_456, 40),
    case("bandwidth-64", "run_rstream -S 64 -I 1 -C 2000", 256_000, 30),
    case("bandwidth-4k", "run_rstream -S 4096 -I 1 -C 500", 4_096_000, 30),
    case("bandwidth-64k", "run_rstream -S 65536 -I 1 -C 50", 6_553_600, 30),
    case("bandwidth-1m", "run_rstream -S 1048576 -I 1 -C 5", 10_485_760, 40),
    case("verify-odd", "run_rstream -S 777 -I 5 -C 100 -T v", 777_000, 30),
    case("verify-4k", "run_rstream -S 4096 -I 5 -C 50 -T v", 2_048_000, 30),
    case("verify-200k", "run_rstream -S 200001 -I 3 -C 5 -T v", 6_000_030, 40),
    case("async", "run_async -S 4096 -I 20 -C 20 -T v", 3_276_800, 30),
    case("blocking", "run_rstream -S 4096 -I 20 -C 20 -T b -T v", 3_276_800, 30),
    case("nonblocking", "run_rstream -S 4096 -I 20 -C 20 -T n -T v", 3_276_800, 30),
    case("resolve", "run_rstream -S 4096 -I 20 -C 20 -T r -T v", 3_276_800, 30),
    case("buffer-4k", "run_rstream -S 10000 -I 3 -C 30 -B 4096 -T v", 1_800_000, 40),
    case("buffer-1m", "run_rstream -S 100000 -I 3 -C 10 -B 1048576 -T v", 6_000_000, 40),
    case("inline-0", "run_rstream -S 64 -I 20 -C 20 -i 0 -T v", 51_200, 30),
    case("keepalive", "run_rstream -S 4096 -I 20 -C 20 -k 1", 3_276_800, 30),
    case("rcopy-16m", "run_rcopy 16", 16 << 20, 60),
    case("iperf", "run_iperf -t 2 -l 16K", 1 << 20, 40),
];

const LONG: [Case; 10] = [
    case("plain", "run_rstream", 500 << 20, 600),
    case("all-verify", "run_all_sizes -T v", 2250 << 20, 900),
    case("default-async", "run_async", 500 << 20, 900),
    case("default-blocking", "run_rstream -T b", 500 << 20, 900),
    case("default-nonblocking", "run_rstream -T n", 500 << 20, 900),
    case("default-buffer-4k", "run_rstream -B 4096", 500 << 20, 900),
    case("default-buffer-1m", "run_rstream -B 1048576", 500 << 20, 900),
    case("default-inline-0", "run_rstream -i 0", 500 << 20, 900),
    case("rcopy-256m", "run_rcopy 256", 256 << 20, 120),
    case("iperf", "run_iperf -t 10", 1 << 20, 60),
];

/// Server and client: which library each uses.
fn pairs() -> Vec<(String, String)> {
    let chosen = env::var("RSOCKET_TEST_PAIRS").unwrap_or_else(|_| "ours/shipped,shipped/ours,ours/ours".to_owned());
    let pairs = chosen.split(',').map(|pair| pair.split_once('/').unwrap_or_else(|| panic!("not SERVER/CLIENT: {pair}")));
    pairs.map(|(server, client)| (server.to_owned(), client.to_owned())).collect()
}

/// With our library at both ends, which is what all other tests have, one case of each kind.
const OURS_ALONE: [&str; 7] = ["latency-64", "latency-64k", "bandwidth-4k", "verify-200k", "async", "rcopy", "iperf"];

/// The cases that a pair runs: all, unless it is there by default and both ends are ours.
fn cases_of<'a>(server: &str, client: &str, cases: &[&'a Case]) -> Vec<&'a Case> {
    let few = env::var_os("RSOCKET_TEST_PAIRS").is_none() && server == client;
    let long = |case: &Case| LONG.iter().any(|other| other.call == case.call);
    let names = |case: &&&Case| !few || long(case) || OURS_ALONE.iter().any(|name| case.name.starts_with(name));
    cases.iter().filter(names).copied().collect()
}

fn run(topology: Topology, rdma: Rdma, pairs: &[(String, String)], cases: &[&Case]) -> Outcome {
    let mut vm =
        Vm::new().topology(topology).rdma(rdma).cpus(2).memory(2048).env("RSOCKET_CONNECT_DEADLINE", "20000").env("SHIPPED", SHIPPED);
    if pairs.iter().any(|(server, client)| server == "ours" || client == "ours") {
        vm = vm.env("OURS", artefact("librspreload.so"));
    }
    let hosts = if topology == Topology::Two { "ON_SERVER=B ON_CLIENT=A" } else { "ON_SERVER= ON_CLIENT=" };
    let mut session = VmSession::new(vm).prelude(&format!("{hosts} AT=$HOST_B\n{FUNCTIONS}"));
    for (server, client) in pairs {
        for case in cases_of(server, client, cases) {
            let text = format!("export SERVER={server} CLIENT={client}; {}", case.call);
            session = session.step_within(&step(server, client, case), Duration::from_secs(case.seconds), &text);
        }
    }
    session.run()
}

fn step(server: &str, client: &str, case: &Case) -> String {
    format!("{server}.{client}.{}", case.name)
}

/// All failures together: a matrix is read as a whole.
fn judge(outcome: &Outcome, pairs: &[(String, String)], cases: &[&Case]) {
    let mut failed = String::new();
    for (server, client) in pairs {
        for case in cases_of(server, client, cases) {
            let step = outcome.step(&step(server, client, case));
            println!("{:44} {:>6.1} s  {}", step.name, step.seconds, if step.status == 0 { "ok" } else { "FAILED" });
            step.output.lines().filter(|line| line.starts_with("note: ")).for_each(|line| println!("    {line}"));
            if step.status != 0 {
                failed.push_str(&format!("{}: exit status {}\n{}\n", step.name, step.status, step.output));
            }
        }
    }
    assert!(failed.is_empty(), "{failed}");
    for (server, client) in pairs {
        for case in cases_of(server, client, cases) {
            let (before, after) = Counters::first_and_last(&outcome.step(&step(server, client, case)).output);
            assert_over_rdma(before, after, case.bytes);
        }
    }
}

fn matrix(topology: Topology, rdma: Rdma, cases: &[&Case]) {
    let pairs = pairs();
    let chosen = env::var("RSOCKET_TEST_CASES").unwrap_or_default();
    let cases: Vec<&Case> = cases.iter().copied().filter(|case| chosen.split(',').any(|name| case.name.starts_with(name))).collect();
    assert!(!cases.is_empty(), "no case begins with any of {chosen}");
    let outcome = run(topology, rdma, &pairs, &cases);
    judge(&outcome, &pairs, &cases);
}

fn all(cases: &[Case]) -> Vec<&Case> {
    cases.iter().collect()
}

fn starting_with<'a>(cases: &'a [Case], names: &[&str]) -> Vec<&'a Case> {
    cases.iter().filter(|case| names.iter().any(|name| case.name.starts_with(name))).collect()
}

#[test]
fn quick_table_over_soft_roce() {
    matrix(Topology::One, Rdma::Rxe, &all(&QUICK));
}

#[test]
fn quick_table_over_soft_iwarp_between_two_hosts() {
    // no rcopy: its server listens on any address, which the shipped library cannot over two soft-iWARP devices of one kernel
    matrix(Topology::Two, Rdma::Siw, &starting_with(&QUICK, &["latency", "bandwidth", "verify", "iperf"]));
}

/// The program's listener has not set SO_REUSEADDR, and soft-iWARP needs the port for itself.
#[test]
fn listeners_of_the_r_functions_take_rdma_peers() {
    for rdma in [Rdma::Rxe, Rdma::Siw] {
        let vm = Vm::new()
            .rdma(rdma)
            .env("RSOCKET_CONNECT_DEADLINE", "20000")
            .env("OURS", artefact("librspreload.so"))
            .env("PROGRAM", build_c_program("native_listener"));
        let text = "RSOCKET_STATS=- LD_PRELOAD=$OURS $PROGRAM $HOST_B 7000";
        let outcome = VmSession::new(vm).step_within("listener", Duration::from_secs(30), text).run();
        let output = outcome.step("listener").ok();
        assert!(output.contains("accepted_verbs 2"), "{output}");
    }
}

/// A program in C that is linked with the installed library, and the examples in Rust.
#[test]
fn programs_that_are_linked_with_it_go_over_rdma() {
    let scratch = Scratch::new();
    let vm = Vm::new()
        .rdma(Rdma::Rxe)
        .env("RSOCKET_CONNECT_DEADLINE", "20000")
        .env("PROGRAM", installed(&scratch, "native_talk"))
        .env("LISTENER", example("tcp_listener"))
        .env("STREAM", example("tcp_stream"));
    let rust = "head -c 400000 /dev/urandom >sent; $LISTENER $HOST_B:7000 >said & server=$!; rwait 7000
        RSOCKET_STATS=- $STREAM $HOST_B:7000 <sent >copy; cmp sent copy; kill $server";
    let outcome = VmSession::new(vm)
        .step_within("c", Duration::from_secs(60), "RSOCKET_STATS=- $PROGRAM $HOST_B")
        .step_within("rust", Duration::from_secs(60), rust)
        .run();
    let c = outcome.step("c").ok();
    assert!(c.contains("72 bytes of path\nby the path\n") && c.contains("all arrived") && c.contains("accepted_verbs 2"), "{c}");
    let rust = outcome.step("rust").ok();
    assert!(rust.contains("connected_verbs 1") && rust.contains("bytes_received_verbs 400000"), "{rust}");
}

/// Our server closes at once, and the client, the shipped library's, still gets all.
#[test]
fn what_is_sent_before_close_arrives_over_soft_iwarp() {
    let vm = Vm::new()
        .topology(Topology::Two)
        .rdma(Rdma::Siw)
        .cpus(2)
        .env("RSOCKET_CONNECT_DEADLINE", "20000")
        .env("OURS", artefact("librspreload.so"))
        .env("PROGRAM", build_c_program("last_bytes"));
    let text = "B env RSOCKET_STATS=- LD_PRELOAD=$OURS $PROGRAM $HOST_B 7000 15 serve & server=$!
        rwait 7000; A timeout 150 $PROGRAM $HOST_B 7000 15 ask; asked=$?
        [ $asked = 0 ] || kill $server; wait $server && [ $asked = 0 ]";
    let outcome = VmSession::new(vm).step_within("rounds", Duration::from_secs(170), text).run();
    let output = outcome.step("rounds").ok();
    assert!(output.contains("accepted_verbs 15"), "{output}");
}

#[test]
#[ignore = "about 15 minutes a pair"]
fn rstreams_own_tables_over_soft_roce() {
    matrix(Topology::One, Rdma::Rxe, &all(&LONG));
}

#[test]
#[ignore = "a minute a pair on a quiet host, much more on a busy one"]
fn rstreams_default_sizes_over_soft_iwarp_between_two_hosts() {
    matrix(Topology::Two, Rdma::Siw, &[&case("default-sizes", "run_default_sizes", 50 << 20, 600)]);
}
