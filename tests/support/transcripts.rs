//! The programs of `tests/programs` that print a transcript, which is to be the same on kernel TCP and under the preload.
//!
//! `RSOCKET_TEST_PROGRAMS=poll_,io_echo` takes those whose names begin so.

use std::env;
use std::fs;

use super::programs::repository;

const FAMILIES: [&str; 11] =
    ["exec_", "rights_", "epoll_", "socket_", "io_", "poll_", "select_", "option_", "descriptor_", "signal_", DEFERRED];

/// Those that begin so have servers and clients that fork: they run with [`FORK_SAFE`].
pub const DEFERRED: &str = "deferred_";

/// What lets connections move to a fabric in the process that uses them.
pub const FORK_SAFE: (&str, &str) = ("RDMAV_FORK_SAFE", "1");

/// Of these families, but not to be compared: `exec.rs` runs them.
const ALONE: &[&str] = &["exec_server", "exec_kept", "exec_many", "rights_connected"];

/// Those that make no connection over a fabric which lives, or end without a byte of data.
pub const NO_DATA: &[&str] = &[
    "descriptor_stat",
    "descriptor_states",
    "option_inherit",
    "option_lengths",
    "option_states",
    "select_all_states",
    "socket_abort",
    "socket_connect_time",
    "socket_errors",
    "socket_family",
    "socket_names",
    "socket_refused",
    "socket_shared_listener",
];

/// Those that choose their addresses themselves, on the loopback.
pub const ON_LOOPBACK: &[&str] = &["socket_mapped", "socket_two_families"];

/// The programs that `RSOCKET_TEST_PROGRAMS` takes; all of them without it.
pub fn programs() -> Vec<String> {
    let chosen = env::var("RSOCKET_TEST_PROGRAMS").unwrap_or_default();
    let chosen: Vec<&str> = chosen.split(',').filter(|part| !part.is_empty()).collect();
    let entries = fs::read_dir(repository().join("tests/programs")).expect("tests/programs").flatten();
    let names = entries.filter_map(|entry| entry.file_name().to_str()?.strip_suffix(".c").map(str::to_owned));
    let mut programs: Vec<String> = names
        .filter(|name| !ALONE.contains(&name.as_str()))
        .filter(|name| FAMILIES.iter().any(|family| name.starts_with(family)))
        .filter(|name| chosen.is_empty() || chosen.iter().any(|part| name.starts_with(part)))
        .collect();
    programs.sort();
    assert!(!programs.is_empty(), "no programs");
    programs
}

/// The first line in which two transcripts differ, with what stands before it; `None` when they are equal.
pub fn difference(plain: &str, other: &str) -> Option<String> {
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
