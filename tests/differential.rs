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
const NO_DATA: [&str; 6] = ["descriptor_stat", "option_inherit", "socket_abort", "socket_errors", "socket_names", "socket_refused"];

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
    let once = |program: &String| {
        let (first, second) = (run_native(program), run_native(program));
        match (first.0, difference(&first.1, &second.1)) {
            (Some(0), None) => None,
            (Some(0), Some(difference)) => Some(format!("{program}: two runs differ, {difference}")),
            (status, _) => Some(format!("{program}: exit status {status:?}\n{}", first.1)),
        }
    };
    // An overloaded machine may be slower than a program's patience: what does so once is looked at again.
    let check = |program: &String| once(program).and_then(|_| once(program));
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

/// Runs the programs plain and preloaded in one VM.
fn run_in_vm(programs: &[String], ours: bool) -> Outcome {
    // another library is expected to hang here and there
    let limit = if ours { LIMIT } else { LIMIT / 3 };
    // On an emulated processor the connection manager needs longer than TCP waits for it by default.
    let vm = Vm::new().cpus(2).env("LIB", library::library()).env("RSOCKET_CONNECT_DEADLINE", "10000");
    let mut session = VmSession::new(vm);
    for program in programs {
        let arguments = VM_ARGUMENTS.iter().find(|(name, _)| name == program).map_or("", |(_, arguments)| arguments);
        let command = format!("{} $HOST_A {arguments}", build_c_program(program).display());
        session = session.step_within(&format!("{program}.plain"), LIMIT, &command);
        let command = format!(
            "RSOCKET_STATS=/run/stats.$$.%p LD_PRELOAD=$LIB {command}
             status=$?; echo -n '{STATISTICS}'; cat /run/stats.$$.* 2>/dev/null; exit $status"
        );
        session = session.step_within(&format!("{program}.preloaded"), limit, &command);
    }
    session.run()
}

#[test]
fn preloaded_output_is_that_of_the_kernel() {
    let ours = library::other().is_none();
    let programs = programs();
    let outcome = run_in_vm(&programs, ours);
    for program in &programs {
        let (plain, preloaded) = (outcome.step(&format!("{program}.plain")), outcome.step(&format!("{program}.preloaded")));
        println!("  {program}: plain {:.1} s, preloaded {:.1} s", plain.seconds, preloaded.seconds);
    }
    let complaints = |outcome: &Outcome, program: &String| judge(outcome, program, ours);
    let (suspects, first): (Vec<String>, Vec<Vec<String>>) =
        programs.iter().map(|program| (program.clone(), complaints(&outcome, program))).filter(|(_, said)| !said.is_empty()).unzip();
    println!("{} programs, {} suspects, {:.0} s", programs.len(), suspects.len(), outcome.seconds);
    if suspects.is_empty() {
        return;
    }
    // An emulated, overloaded machine may be slower than a program's patience: what differs once is looked at again.
    println!("tried again: {}", first.concat().join("\n"));
    let outcome = run_in_vm(&suspects, ours);
    let failures: Vec<String> = suspects.iter().flat_map(|program| complaints(&outcome, program)).collect();
    assert!(failures.is_empty(), "{}", failures.join("\n"));
}
