//! Unmodified programs, both ends preloaded, on soft-RoCE in one VM: what is not among the rows of `matrix_vm`: iperf and iperf3 for a
//! time, backwards and with small messages, files through Python in both directions. The device's packet counters must grow by the bytes
//! moved, TCP's must not.
//!
//! `RSOCKET_TEST_SECONDS` is how long each iperf runs (3; 10 for the record). `RSOCKET_TEST_LIBRARY=PATH` tries another library.

#[path = "interop/library.rs"]
mod library;
mod support;

use std::env;
use std::time::Duration;

use library::{library, went_over_rdma};
use support::{Outcome, Vm, VmSession, repository};

fn seconds() -> u64 {
    env::var("RSOCKET_TEST_SECONDS").ok().and_then(|text| text.parse().ok()).unwrap_or(3)
}

const FUNCTIONS: &str = r#"
# words, not a function: a command in the background is then the program itself
over="env LD_PRELOAD=$LIB"
# iperf2 ARGUMENT...: comma-separated lines; iperf3 ARGUMENT...: JSON
iperf2() {
  counters
  $over iperf -s -B $HOST_A > /run/server & server=$!
  rwait 5001 && $over iperf -c $HOST_A -y C "$@"; status=$?
  sleep 0.3; kill $server; counters; return $status
}
iperf3_() {
  counters
  $over iperf3 -s -1 -B $HOST_A > /run/server & server=$!
  rwait 5201 && $over iperf3 -c $HOST_A -J "$@"; status=$?
  wait $server; served=$?
  counters
  [ $status = 0 ] && [ $served = 0 ]
}
# file_through "LISTENING END" "CONNECTING END": whichever reads source and writes copy
file_through() {
  head -c 300000 /dev/urandom > /run/block; rm -f /run/copy
  for i in 1 2 3 4 5 6 7 8 9 10 11 12 13 14; do cat /run/block; echo $i; done > /run/source
  counters
  $over bash -c "exec $1" & listening=$!
  rwait 5000 && $over bash -c "exec $2"; status=$?
  wait $listening; listened=$?
  counters
  cmp /run/source /run/copy && [ $status = 0 ] && [ $listened = 0 ] || { echo "status: $status, $listened"; return 1; }
}
"#;

/// The bytes that iperf 2 reports: the eighth field of its lines, one a connection; a line of their sum has the number -1.
fn iperf2_bytes(output: &str) -> u64 {
    let fields = output.lines().map(|line| line.split(',').collect::<Vec<_>>());
    fields.filter(|fields| fields.get(5) != Some(&"-1")).filter_map(|fields| fields.get(7)?.parse::<u64>().ok()).sum()
}

/// The bytes of `sum_received` in iperf3's JSON.
fn iperf3_bytes(output: &str) -> u64 {
    let end = output.split("\"sum_received\"").nth(1).and_then(|text| text.split("\"bytes\":").nth(1));
    let number = end.and_then(|text| text.split(',').next()).and_then(|text| text.trim().parse().ok());
    number.unwrap_or_else(|| panic!("no sum_received in\n{output}"))
}

#[track_caller]
fn over_rdma(outcome: &Outcome, step: &str, bytes: u64) {
    let output = outcome.step(step).ok();
    assert!(bytes > 1000, "{step} moved {bytes} bytes only");
    went_over_rdma(step, output, bytes);
}

#[test]
fn iperf_and_iperf3_run_over_rdma() {
    const MODES: [(&str, &str); 2] = [("reverse", "-R"), ("small", "-l 64")];
    let time = seconds();
    let limit = Duration::from_secs(time + 30);
    let mut session = VmSession::new(Vm::new().cpus(2).env("LIB", library()).env("RSOCKET_CONNECT_DEADLINE", "20000")).prelude(FUNCTIONS);
    for (mode, options) in MODES {
        session = session.step_within(&format!("iperf.{mode}"), limit, &format!("iperf2 -t {time} {options}"));
        session = session.step_within(&format!("iperf3.{mode}"), limit, &format!("iperf3_ -t {time} {options}"));
    }
    let outcome = session.run();
    for (mode, _) in MODES {
        let step = format!("iperf3.{mode}");
        over_rdma(&outcome, &step, iperf3_bytes(outcome.step(&step).ok()));
        let step = format!("iperf.{mode}");
        over_rdma(&outcome, &step, iperf2_bytes(outcome.step(&step).ok()));
    }
}

#[test]
fn files_pass_through_python() {
    let script = repository().join("tests/interop/file_over_socket.py");
    let python = |rest: &str| format!("/usr/bin/python3 {} {rest}", script.display());
    // through nc and socat: the matrix
    let passes = [
        ("python.up", python("listen receive $HOST_A 5000 /run/copy"), python("connect send $HOST_A 5000 /run/source")),
        ("python.down", python("listen send $HOST_A 5000 /run/source"), python("connect receive $HOST_A 5000 /run/copy")),
    ];
    let mut session = VmSession::new(Vm::new().cpus(2).env("LIB", library()).env("RSOCKET_CONNECT_DEADLINE", "20000")).prelude(FUNCTIONS);
    for (name, listening, connecting) in &passes {
        session = session.step_within(name, Duration::from_secs(40), &format!("file_through '{listening}' '{connecting}'"));
    }
    let outcome = session.run();
    for (name, _, _) in &passes {
        over_rdma(&outcome, name, 14 * 300_000);
    }
}
