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
#[allow(dead_code)] // the matrix uses more of it
#[path = "matrix/stage.rs"]
mod stage;
#[path = "forking/stores.rs"]
mod stores;
#[path = "forking/web.rs"]
mod web;

use stage::{Mode, Stage};
use support::{Ended, Statistics};

/// The first in the short form, the other one in the long form.
fn by_form<T>(short: T, long: T) -> T {
    if std::env::var("RSOCKET_FORKING").is_ok_and(|form| form == "long") { long } else { short }
}

/// Fails unless so many processes at least, which the server has begun, have moved bytes through shared memory, so many together, and the
/// server itself none. (What a client opens and closes unused counts as the kernel's at the server, and as nothing at the client.)
#[track_caller]
fn assert_children_served(stage: &Stage, server: &Ended, processes: usize, bytes: u64) {
    if stage.mode != Mode::Default {
        return;
    }
    let moved = |counters: &Statistics| counters.get("bytes_sent_shm") + counters.get("bytes_received_shm");
    let own = server.each.get(&server.pid).map_or(0, moved);
    assert_eq!(own, 0, "the first process has moved bytes: {} {:?}", server.report(), server.each);
    let children: Vec<u64> = server.each.values().map(moved).filter(|bytes| *bytes > 0).collect();
    assert!(children.len() >= processes, "{} processes, not {processes}: {} {:?}", children.len(), server.report(), server.each);
    assert!(children.iter().sum::<u64>() >= bytes, "{children:?} bytes: {}", server.report());
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
