//! Each program of `tests/programs` prints a transcript; on kernel TCP and under the preload it has to be the same, and under
//! the preload the bytes have to go over RDMA. One boot runs them all, each plain and preloaded, in the same VM.
//!
//! `RSOCKET_TEST_PROGRAMS=poll_,io_echo` takes those whose names begin so. `RSOCKET_TEST_LIBRARY=PATH` tries another preload
//! library (the one a distribution ships, say), without what only ours can tell.

#[path = "interop/library.rs"]
mod library;
mod support;

use std::collections::BTreeMap;
use std::env;
use std::fs;
use std::process::{Command, Stdio};
use std::thread;
use std::time::Duration;

use support::{Outcome, Vm, VmSession, build_c_program, repository};

const FAMILIES: [&str; 7] = ["socket_", "io_", "poll_", "select_", "option_", "descriptor_", "signal_"];

/// Arguments behind the address, where the VM takes less than the default.
const VM_ARGUMENTS: [(&str, &str); 5] =
    [("io_echo", "8"), ("io_duplex", "8 4096"), ("socket_half_close", "2000000"), ("socket_many", "24"), ("signal_storm", "40")];

/// Those that make no connection which lives, or end without a byte of data.
const NO_DATA: [&str; 5] = ["descriptor_stat", "option_inherit", "socket_errors", "socket_names", "socket_refused"];

const LIMIT: Duration = Duration::from_secs(40);
const STATISTICS: &str = "@@statistics\n";

fn programs() -> Vec<String> {
    let chosen = env::var("RSOCKET_TEST_PROGRAMS").unwrap_or_default();
    let chosen: Vec<&str> = chosen.split(',').filter(|part| !part.is_empty()).collect();
    let entries = fs::read_dir(repository().join("tests/programs")).expect("tests/programs").flatten();
    let names = entries.filter_map(|entry| entry.file_name().to_str()?.strip_suffix(".c").map(str::to_owned));
    let mut programs: Vec<String> = names
        .filter(|name| FAMILIES.iter().any(|family| name.starts_with(family)))
        .filter(|name| chosen.is_empty() || chosen.iter().any(|part| name.starts_with(part)))
        .collect();
    programs.sort();
    assert!(!programs.is_empty(), "no programs");
    programs
}

/// The first line in which two transcripts differ, with what stands before it; `None` when they are equal.
fn difference(plain: &str, other: &str) -> Option<String> {
    if plain == other {
        return None;
    }
    let (plain, other): (Vec<_>, Vec<_>) = (plain.lines().collect(), other.lines().collect());
    let at = plain.iter().zip(&other).take_while(|(a, b)| a == b).count();
    let context = plain.iter().take(at).skip(at.saturating_sub(3)).map(|line| format!("      {line}\n"));
    let show = |lines: &[&str]| lines.get(at).map_or("(nothing)".to_owned(), |line| (*line).to_owned());
    let more = plain.iter().zip(&other).skip(at).filter(|(a, b)| a != b).count();
    let context: String = context.collect();
    Some(format!("line {}:\n{context}  plain {}\n  other {}\n  ({more} lines differ)", at + 1, show(&plain), show(&other)))
}

fn run_native(program: &str) -> (Option<i32>, String) {
    let output = Command::new("timeout")
        .args(["100".as_ref(), build_c_program(program).as_os_str()])
        .stdin(Stdio::null())
        .output()
        .unwrap_or_else(|e| panic!("{program}: {e}"));
    (output.status.code(), String::from_utf8_lossy(&output.stdout).into_owned())
}

#[test]
fn plain_output_is_deterministic() {
    let programs = programs();
    let check = |program: &String| {
        let (first, second) = (run_native(program), run_native(program));
        match (first.0, difference(&first.1, &second.1)) {
            (Some(0), None) => None,
            (Some(0), Some(difference)) => Some(format!("{program}: two runs differ, {difference}")),
            (status, _) => Some(format!("{program}: exit status {status:?}\n{}", first.1)),
        }
    };
    let failures: Vec<String> = thread::scope(|scope| {
        let parts: Vec<_> = programs.chunks(programs.len().div_ceil(4)).collect();
        let threads: Vec<_> =
            parts.into_iter().map(|part| scope.spawn(move || part.iter().filter_map(check).collect::<Vec<_>>())).collect();
        threads.into_iter().flat_map(|thread| thread.join().expect("a thread")).collect()
    });
    assert!(failures.is_empty(), "{}", failures.join("\n"));
}

/// The lines `name value` behind the mark, added up over all processes.
fn statistics(text: &str) -> BTreeMap<String, u64> {
    let mut sums = BTreeMap::new();
    for (name, value) in text.lines().filter_map(|line| line.split_once(' ')) {
        if let Ok(value) = value.trim().parse::<u64>() {
            *sums.entry(name.to_owned()).or_default() += value;
        }
    }
    sums
}

fn judge(outcome: &Outcome, program: &str, ours: bool) -> Vec<String> {
    let (plain, preloaded) = (outcome.step(&format!("{program}.plain")), outcome.step(&format!("{program}.preloaded")));
    let (text, counters) = preloaded.output.split_once(STATISTICS).unwrap_or((&preloaded.output, ""));
    let mut failures = Vec::new();
    if plain.status != 0 {
        failures.push(format!("{program}: plain: exit status {}\n{}", plain.status, plain.output));
    } else if let Some(difference) = difference(&plain.output, text) {
        failures.push(format!("{program}: preloaded, exit status {}: {difference}", preloaded.status));
    } else if preloaded.status != 0 {
        failures.push(format!("{program}: preloaded: exit status {}", preloaded.status));
    }
    let sums = statistics(counters);
    let moves_data = ours && !NO_DATA.contains(&program);
    if moves_data && sums.get("bytes_sent_verbs").is_none_or(|bytes| *bytes == 0) {
        failures.push(format!("{program}: no byte was sent over RDMA: {sums:?}"));
    }
    failures
}

#[test]
fn preloaded_output_is_that_of_the_kernel() {
    let ours = library::other().is_none();
    let programs = programs();
    // another library is expected to hang here and there
    let limit = if ours { LIMIT } else { LIMIT / 3 };
    let mut session = VmSession::new(Vm::new().cpus(2).env("LIB", library::library()));
    for program in &programs {
        let arguments = VM_ARGUMENTS.iter().find(|(name, _)| name == program).map_or("", |(_, arguments)| arguments);
        let command = format!("{} $HOST_A {arguments}", build_c_program(program).display());
        session = session.step_within(&format!("{program}.plain"), LIMIT, &command);
        let command = format!(
            "RSOCKET_STATS=/run/stats.$$.%p LD_PRELOAD=$LIB {command}
             status=$?; echo -n '{STATISTICS}'; cat /run/stats.$$.* 2>/dev/null; exit $status"
        );
        session = session.step_within(&format!("{program}.preloaded"), limit, &command);
    }
    let outcome = session.run();
    let failures: Vec<String> = programs.iter().flat_map(|program| judge(&outcome, program, ours)).collect();
    println!("{} programs, {} complaints, {:.0} s", programs.len(), failures.len(), outcome.seconds);
    for program in &programs {
        let (plain, preloaded) = (outcome.step(&format!("{program}.plain")), outcome.step(&format!("{program}.preloaded")));
        println!("  {program}: plain {:.1} s, preloaded {:.1} s", plain.seconds, preloaded.seconds);
    }
    assert!(failures.is_empty(), "{}", failures.join("\n"));
}
