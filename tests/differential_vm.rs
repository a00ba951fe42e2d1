//! The same as `differential.rs` over RDMA: each program of `tests/programs` prints a transcript, which has to be the same on kernel TCP
//! and under the preload, where the bytes have to go over soft-RoCE. One boot runs them all, each plain and preloaded, in the same VM, a few at a time.
//!
//! `RSOCKET_TEST_PROGRAMS=poll_,io_echo` takes those whose names begin so. `RSOCKET_TEST_LIBRARY=PATH` tries another preload
//! library (the one a distribution ships, say), without what only ours can tell.

#[path = "interop/library.rs"]
mod library;
mod support;

use std::collections::BTreeMap;
use std::time::Duration;

use support::{DEFERRED, NO_DATA, ON_LOOPBACK, Outcome, Vm, VmSession, build_c_program, difference, programs};

/// Arguments behind the address, where the VM takes less than the default.
const VM_ARGUMENTS: [(&str, &str); 5] =
    [("io_echo", "8"), ("io_duplex", "8 4096"), ("socket_half_close", "2000000"), ("socket_many", "24"), ("signal_storm", "40")];

/// Not run here, and why; all of them are run natively.
const NATIVE_ALONE: [(&str, &str); 10] = [
    ("socket_written_to_closed", "how much of a large write after the peer's end is taken depends on the credit that is left"),
    (
        "descriptor_close_all",
        "a child that has closed all it had finds librdmacm's descriptors closed, and goes on over TCP, with a warning",
    ),
    ("descriptor_syscalls", "RWF_NOWAIT on a socket: the guest's kernel (6.1) has another errno than newer ones, whose the library gives"),
    ("io_every", "the same"),
    ("io_every_64", "the same"),
    ("io_bad_memory", "writev of SSIZE_MAX: the same"),
    ("option_inherit_all", "SO_PASSCRED of accepted sockets: the same"),
    ("socket_family", "connect to another family on a connected socket: the same"),
    ("socket_over", "over RDMA the end of a connection is seen a moment after it came"),
    ("option_info", "tcpi_bytes_acked comes late over RDMA, where not every write asks for a completion"),
];

/// Families that are about processes, whatever way their connections take: they are run natively alone.
const OF_PROCESSES: [&str; 2] = ["exec_", "rights_"];

/// Nor these, whose subject has nothing to do with the way of a connection's bytes: a boot costs a second or more for each program.
const NO_FABRIC: [(&str, &[&str]); 4] = [
    (
        "the table of descriptors, the kernel's numbers and flags",
        &[
            "descriptor_flags",
            "descriptor_limit",
            "descriptor_low",
            "descriptor_numbers",
            "descriptor_plugin",
            "descriptor_plugin_deep",
            "descriptor_stale",
            "descriptor_stat",
            "descriptor_states",
        ],
    ),
    ("arguments, and sockets without a connection", &["epoll_errors", "poll_limits", "select_limits", "poll_mask_zero", "socket_names"]),
    ("values of options, which the kernel's socket keeps", &["option_lengths", "option_states", "option_time_values"]),
    ("other names of the same functions", &["io_fortified", "io_fortified_3", "io_old_names"]),
];

const LIMIT: Duration = Duration::from_secs(60);
/// Programs at a time: they mostly wait.
const LANES: usize = 4;
const STATISTICS: &str = "@@statistics\n";

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
fn run_in_vm(programs: &[String], ours: bool, lanes: usize) -> Outcome {
    // another library is expected to hang here and there
    let limit = if ours { LIMIT } else { LIMIT / 3 };
    // On an emulated processor the connection manager needs longer than TCP waits for it by default.
    let vm = Vm::new().cpus(2).env("LIB", library::library()).env("RSOCKET_CONNECT_DEADLINE", "10000");
    let mut session = VmSession::new(vm).lanes(lanes);
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
    // On the loopback there is no RDMA.
    let elsewhere = |program: &String| {
        let of = |(_, programs): &(&str, &[&str])| programs.contains(&program.as_str());
        ON_LOOPBACK.contains(&program.as_str())
            || NATIVE_ALONE.iter().any(|(name, _)| name == program)
            || NO_FABRIC.iter().any(of)
            || OF_PROCESSES.iter().any(|family| program.starts_with(family))
            // On one host connections that move take shared memory.
            || program.starts_with(DEFERRED)
    };
    let (native, programs): (Vec<String>, Vec<String>) = programs().into_iter().partition(elsewhere);
    println!("not here: {native:?}, {NATIVE_ALONE:?}, {NO_FABRIC:?}");
    if programs.is_empty() {
        return;
    }
    let outcome = run_in_vm(&programs, ours, LANES);
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
    // An emulated, overloaded machine may be slower than a program's patience: what differs once is looked at again, by itself.
    println!("tried again: {}", first.concat().join("\n"));
    let outcome = run_in_vm(&suspects, ours, 1);
    let failures: Vec<String> = suspects.iter().flat_map(|program| complaints(&outcome, program)).collect();
    assert!(failures.is_empty(), "{}", failures.join("\n"));
}
