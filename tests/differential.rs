//! Each program of `tests/programs` prints a transcript; on kernel TCP and under the preload it has to be the same, and under the preload
//! the bytes have to go through shared memory. On this machine, without an RDMA device; over RDMA: `differential_vm.rs`.
//!
//! `RSOCKET_TEST_PROGRAMS=poll_,io_echo` takes those whose names begin so.

mod support;

use std::sync::Mutex;
use std::thread;
use std::time::Duration;

use support::{DEFERRED, Ended, FORK_SAFE, NO_DATA, ON_LOOPBACK, Program, Scratch, difference, own_address, programs};

const LIMIT: Duration = Duration::from_secs(100);

/// Programs at a time: they mostly wait.
const LANES: usize = 4;

/// At other addresses than the first: these take long, or have nothing to do with the address.
const AT_ONE_ADDRESS: &[&str] = &[
    "exec_",
    "rights_",
    "signal_",
    "option_time",
    "option_user_timeout",
    "socket_exit",
    "socket_connect_time",
    "socket_shutdown_wakes",
    "socket_written_to_closed",
    "io_nonblocking",
    "descriptor_threads",
    "deferred_again",
    "deferred_first",
    "deferred_options",
    "deferred_stall",
    "deferred_threads",
];

/// Runs the check for each of the programs, several at a time, and gives back the complaints.
fn complaints(programs: &[String], check: impl Fn(&String) -> Option<String> + Sync) -> Vec<String> {
    let queue = Mutex::new(programs.iter());
    let next = || queue.lock().expect("the queue").next();
    let lane = || std::iter::from_fn(next).filter_map(&check).collect::<Vec<_>>();
    thread::scope(|scope| {
        let lanes: Vec<_> = (0..LANES).map(|_| scope.spawn(lane)).collect();
        lanes.into_iter().flat_map(|lane| lane.join().expect("a lane")).collect()
    })
}

fn plain(scratch: &Scratch, program: &str, address: &str) -> Ended {
    Program::test(scratch, "plain", program, &[address]).run(LIMIT)
}

#[test]
fn plain_output_is_deterministic() {
    let once = |program: &String| {
        let runs = [0; 2].map(|_| plain(&Scratch::new(), program, "127.0.0.1"));
        match (runs[0].code(), difference(&runs[0].output, &runs[1].output)) {
            (Some(0), None) => None,
            (Some(0), Some(difference)) => Some(format!("{program}: two runs differ, {difference}")),
            _ => Some(format!("{program}: {}", runs[0].report())),
        }
    };
    // An overloaded machine may be slower than a program's patience: what does so once is looked at again.
    let failures = complaints(&programs(), |program| once(program).and_then(|_| once(program)));
    assert!(failures.is_empty(), "{}", failures.join("\n"));
}

/// So many connections at least of each that forks have to move: half of those that do on an idle machine, as the time for it is short.
const MOVED: &[(&str, u64)] = &[
    ("deferred_again", 1),
    ("deferred_client", 7),
    ("deferred_echo", 16),
    ("deferred_emptied", 1),
    ("deferred_ends", 300),
    ("deferred_exec", 9),
    ("deferred_first", 84),
    ("deferred_flags", 15),
    ("deferred_options", 12),
    ("deferred_prefork", 140),
    ("deferred_spawn", 1),
    ("deferred_stall", 5),
    ("deferred_threads", 45),
];

/// Of these some connections are the kernel's: after a refusal or by a full queue, on a listener that was shut down or that others serve, or near the limit
/// of descriptors.
const KERNEL_TOO: &[&str] = &[
    "descriptor_limit",
    "descriptor_plugin_deep",
    "descriptor_reserve",
    "epoll_fork",
    "socket_connect_time",
    "socket_dissolve",
    "socket_refused",
    "socket_shared_listener",
];

/// What is wrong with a program's run under the preload, beside the plain one.
fn judge(program: &str, address: &str) -> Option<String> {
    let scratch = Scratch::new();
    let plain = plain(&scratch, program, address);
    let mut preloaded = Program::test(&scratch, "preloaded", program, &[address]).preloaded();
    if program.starts_with(DEFERRED) {
        // Some wait for a peer that does nothing until then.
        preloaded = preloaded.env(FORK_SAFE.0, FORK_SAFE.1).env("RSOCKET_CONNECT_DEADLINE", "300");
    }
    let preloaded = preloaded.run(LIMIT);
    println!("  {program} at {address}: plain {:.1} s, preloaded {:.1} s", plain.seconds, preloaded.seconds);
    if plain.code() != Some(0) {
        return Some(format!("{program} at {address}: {}", plain.report()));
    }
    if let Some(difference) = difference(&plain.output, &preloaded.output) {
        return Some(format!("{program} at {address}: {difference}\n{}", preloaded.report()));
    }
    let of = |name| preloaded.counters.get(name);
    let silent = of("bytes_sent_shm") == 0 && !NO_DATA.contains(&program);
    let elsewhere = if program.starts_with(DEFERRED) {
        let least = MOVED.iter().find(|(name, _)| *name == program).map_or(u64::MAX, |(_, least)| *least);
        of("accepted_shm").min(of("connected_shm")) < least
    } else {
        of("bytes_sent_verbs") > 0 || (of("accepted_kernel") > 0 && !KERNEL_TOO.contains(&program))
    };
    let wrong = silent || elsewhere || preloaded.code() != Some(0) || !preloaded.errors.is_empty();
    wrong.then(|| format!("{program} at {address}: not as it should be over shared memory: {}", preloaded.report()))
}

fn compare(programs: &[String], address: &str) {
    let check = |program: &String| {
        judge(program, address).and_then(|first| {
            println!("tried again: {first}");
            judge(program, address)
        })
    };
    let failures = complaints(programs, check);
    assert!(failures.is_empty(), "{}", failures.join("\n"));
}

#[test]
fn preloaded_output_is_that_of_the_kernel() {
    compare(&programs(), "127.0.0.1");
}

#[test]
fn and_at_other_addresses_of_this_machine() {
    let all_over =
        |program: &String| !ON_LOOPBACK.contains(&program.as_str()) && !AT_ONE_ADDRESS.iter().any(|name| program.starts_with(name));
    let programs: Vec<String> = programs().into_iter().filter(all_over).collect();
    for address in ["::1", "::ffff:127.0.0.1", "127.9.9.9", &own_address().to_string()] {
        compare(&programs, address);
    }
}
