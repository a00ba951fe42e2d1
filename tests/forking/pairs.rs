//! A server and a client, of which each may have the library, with the setting or without it: whatever the other has, nothing but the
//! program's bytes arrives, in order, and nobody waits for long for what does not come.

use std::thread;
use std::time::Duration;

use crate::by_form;
use crate::support::{Ended, FORK_SAFE, Program, Scratch, free_port};

const LIMIT: Duration = Duration::from_secs(60);
/// What one step of a conversation may take, on a machine with much else to do. What waits for a peer that never comes takes longer.
const STALL_MS: f64 = 1500.0;

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum End {
    /// Without the library.
    Plain,
    /// With the library, without the setting.
    Off,
    /// With both.
    On,
}

const ENDS: [End; 3] = [End::Plain, End::Off, End::On];

impl End {
    fn of(self, program: Program<'_>) -> Program<'_> {
        match self {
            End::Plain => program,
            End::Off => program.preloaded(),
            End::On => program.preloaded().env(FORK_SAFE.0, FORK_SAFE.1),
        }
    }
}

/// A conversation: who has the accepted socket, how its loop waits, who speaks first.
#[derive(Clone, Copy, Debug)]
struct Talk {
    style: &'static str,
    way: &'static str,
    server_first: bool,
    silence_ms: u32,
    connections: u64,
}

const OWN: &str = "0";
const FORKING: &str = "1";
const PREFORK: &str = "2";
const BLOCKING: &str = "0";
const POLL: &str = "1";
const EPOLL: &str = "3";

/// Connections of one conversation, unless it is a slow one.
const MANY: u64 = 4;
/// What the client of each sends, and gets back.
const BYTES: u64 = 1 << 20;

/// Runs the two to their good end.
#[track_caller]
fn talk(server: End, client: End, talk: Talk, address: &str) -> [Ended; 2] {
    let (scratch, port) = (Scratch::new(), free_port().to_string());
    let first = if talk.server_first { "1" } else { "0" };
    let (many, silence) = (talk.connections.to_string(), talk.silence_ms.to_string());
    let words = [address, "server", &port, talk.style, talk.way, first, &many];
    let serving = server.of(Program::test(&scratch, "server", "forking_talk", &words)).start();
    serving.wait_until_listening(port.parse().expect("a port"));
    let words = [address, "client", &port, first, &many, &silence];
    let asking = client.of(Program::test(&scratch, "client", "forking_talk", &words)).run(LIMIT);
    let what = format!("server {server:?}, client {client:?}, {talk:?}");
    assert_eq!(asking.code(), Some(0), "{what}: {}", asking.report());
    let served = serving.wait(LIMIT);
    assert_eq!(served.code(), Some(0), "{what}: {}", served.report());
    assert!(asking.output.contains(&format!("right {many}\n")), "{what}: {}", asking.report());
    println!("{what}: {:.2} s, {:.2} s, slowest {}", served.seconds, asking.seconds, asking.number("slowest_ms"));
    let slowest = asking.number("slowest_ms");
    assert!(slowest < STALL_MS, "{what}: one step took {slowest} ms: {}", asking.report());
    [served, asking]
}

/// Which way the bytes of this pair go, as both ends' counters say.
#[track_caller]
fn assert_way(server: End, client: End, talk: Talk, ended: &[Ended; 2]) {
    let what = format!("server {server:?}, client {client:?}, {talk:?}");
    let moved = |ended: &Ended| ["bytes_sent_shm", "bytes_received_shm"].map(|name| ended.counters.get(name));
    let expected = match (server, client) {
        // clients of this host need no setting
        (End::On, End::On | End::Off) => true,
        // as it was without the setting
        (End::Off, End::Off) => talk.style == OWN,
        (End::Plain, _) | (_, End::Plain) => false,
        // TCP or better
        (End::Off, End::On) => return,
    };
    for (which, ended) in ["server", "client"].iter().zip(ended) {
        let (moved, enough) = (moved(ended), talk.connections * BYTES);
        let good = if expected { moved.iter().all(|bytes| *bytes >= enough) } else { moved == [0, 0] };
        assert!(good, "{what}: {which}: moved through shared memory: {moved:?} {:?}", ended.report());
    }
}

fn all_pairs(style: &'static str, way: &'static str) {
    for server in ENDS {
        for client in ENDS {
            // What the setting is for: a child cannot use what its parent has accepted over a fabric.
            if style == FORKING && [server, client] == [End::Off; 2] {
                continue;
            }
            for server_first in [false, true] {
                let conversation = Talk { style, way, server_first, silence_ms: 0, connections: MANY };
                let ended = talk(server, client, conversation, "127.0.0.1");
                assert_way(server, client, conversation, &ended);
            }
        }
    }
}

#[test]
fn every_pair_with_a_server_that_forks() {
    all_pairs(FORKING, BLOCKING);
}

#[test]
fn every_pair_with_a_server_that_forks_and_does_not_block() {
    all_pairs(FORKING, EPOLL);
}

#[test]
fn every_pair_with_workers() {
    all_pairs(PREFORK, POLL);
}

#[test]
fn every_pair_with_a_server_of_one_process() {
    all_pairs(OWN, by_form(EPOLL, BLOCKING));
}

#[test]
fn at_other_addresses() {
    for address in ["::1", "::ffff:127.0.0.1", "127.9.9.9"] {
        for style in [OWN, FORKING, PREFORK] {
            let conversation = Talk { style, way: POLL, server_first: false, silence_ms: 0, connections: MANY };
            let ended = talk(End::On, End::On, conversation, address);
            assert_way(End::On, End::On, conversation, &ended);
        }
    }
}

/// A client that says nothing for two seconds gets nothing but what the server's program sends.
#[test]
fn a_silent_client_gets_no_byte_too_many() {
    let silent = |client: End, server_first: bool, style: &'static str, way: &'static str| {
        let conversation = Talk { style, way, server_first, silence_ms: by_form(2000, 5000), connections: 2 };
        let ended = talk(End::On, client, conversation, "127.0.0.1");
        if client == End::Plain {
            assert_way(End::On, client, conversation, &ended);
        }
    };
    thread::scope(|scope| {
        for client in ENDS {
            for server_first in [false, true] {
                for (style, way) in [(FORKING, BLOCKING), (PREFORK, EPOLL)] {
                    scope.spawn(move || silent(client, server_first, style, way));
                }
            }
        }
    });
}

/// A client with the setting gives a connection that it has used to another program, and its server listens on the fabrics.
#[test]
fn what_a_client_gives_away_is_no_new_connection() {
    for server in [End::Plain, End::Off] {
        let (scratch, port) = (Scratch::new(), free_port().to_string());
        let words = |role| ["127.0.0.1", role, &port];
        let serving = server.of(Program::test(&scratch, "server", "forking_given", &words("server"))).start();
        serving.wait_until_listening(port.parse().expect("a port"));
        let asking = End::On.of(Program::test(&scratch, "client", "forking_given", &words("client"))).run(LIMIT);
        let served = serving.wait(LIMIT);
        let each = "over a Unix socket: 0\nby exec: 0\n";
        assert_eq!(asking.ok(), [each; 2].concat(), "server {server:?}: {}", asking.report());
        assert_eq!(served.ok(), "connections: 4, answered: 4\n", "server {server:?}: {}", served.report());
        assert_eq!(asking.counters.get("connected_shm"), 0, "{}", asking.report());
    }
}
