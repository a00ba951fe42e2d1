//! Programs that fork with connections, or hand them to others by exec, on this machine, with `RDMAV_FORK_SAFE=1`: their connections begin
//! on TCP and move to shared memory in the process that uses them. The counters of that process have to say so. And pairs of a server and a
//! client, of which each may have the setting, or the library, or nothing.
//!
//! | variable | |
//! | --- | --- |
//! | `RSOCKET_FORKING=long` | more data, more reloads, more pairs |
//! | `RSOCKET_MATRIX_MODE` | `plain`: without the library; `kernel`: with it, everything left to TCP |

mod support;

#[path = "forking/pairs.rs"]
mod pairs;
#[path = "forking/servers.rs"]
mod servers;
#[path = "forking/shell.rs"]
mod shell;
#[path = "matrix/stage.rs"]
mod stage;
#[path = "forking/stores.rs"]
mod stores;
#[path = "forking/web.rs"]
mod web;

use stage::{Mode, Stage};
use support::Ended;

/// The first in the short form, the other one in the long form.
fn by_form<T>(short: T, long: T) -> T {
    if std::env::var("RSOCKET_FORKING").is_ok_and(|form| form == "long") { long } else { short }
}

/// The numbers of bytes that a process other than the first has moved through shared memory, one for each such process.
fn moved_by_children(server: &Ended) -> Vec<u64> {
    let children = server.each.iter().filter(|(pid, _)| **pid != server.pid);
    let moved = children.map(|(_, counters)| counters.get("bytes_sent_shm") + counters.get("bytes_received_shm"));
    moved.filter(|bytes| *bytes > 0).collect()
}

/// Fails unless so many processes at least, which the server has begun, have moved so many bytes together through shared memory, the
/// server itself none, and nobody any over TCP.
#[track_caller]
fn assert_children_served(stage: &Stage, server: &Ended, processes: usize, bytes: u64) {
    if stage.mode != Mode::Default {
        return;
    }
    server.was_over_shm(bytes);
    let moved = moved_by_children(server);
    assert!(moved.len() >= processes, "{} processes, not {processes}: {} {:?}", moved.len(), server.report(), server.each);
    assert!(moved.iter().sum::<u64>() >= bytes, "{moved:?}: {}", server.report());
    let own = server.each.get(&server.pid).map_or(0, |counters| counters.get("bytes_sent_shm"));
    assert_eq!(own, 0, "the first process has moved bytes: {} {:?}", server.report(), server.each);
}

/// Fails unless all connections of these clients were over shared memory.
#[track_caller]
fn assert_moved(stage: &Stage, clients: &[&Ended]) {
    if stage.mode == Mode::Default {
        for client in clients {
            client.was_over_shm(1);
        }
    }
}
