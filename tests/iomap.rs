//! Direct placement (riomap, riounmap, riowrite) over shared memory, on this machine: programs of the r* functions under the preload library.
//! Over RDMA, and with the shipped library at the other end: `interop`.

mod support;

use std::time::Duration;

use support::{Ended, Program, Scratch, free_port};

const LIMIT: Duration = Duration::from_secs(100);
const ADDRESS: &str = "127.0.0.1";

#[track_caller]
fn run(program: &str, arguments: &[&str]) -> Ended {
    let port = free_port().to_string();
    let words: Vec<&str> = [ADDRESS, &port].iter().chain(arguments).copied().collect();
    Program::test(&Scratch::new(), program, program, &words).preloaded().run(LIMIT)
}

/// Of the bytes that `iomap_rounds` moves in a thousand rounds each end writes about half.
const AT_LEAST: u64 = 20 << 20;

#[test]
fn a_thousand_rounds() {
    let (scratch, port) = (Scratch::new(), free_port());
    let number = port.to_string();
    let start = |end| Program::test(&scratch, end, "iomap_rounds", &[ADDRESS, &number, "1000", end]).preloaded().start();
    let server = start("serve");
    server.wait_until_listening(port);
    let client = start("ask");
    for (end, name) in [(server.wait(LIMIT), "server"), (client.wait(LIMIT), "client")] {
        assert_eq!(end.ok(), format!("{name}: 1000 rounds\n"), "{}", end.report());
        end.was_over_shm(AT_LEAST);
    }
}

#[test]
fn edges_and_errors() {
    let ended = run("iomap_errors", &[]);
    assert_eq!(ended.ok(), include_str!("iomap/errors.txt"), "{}", ended.report());
    ended.was_over_shm(8 << 20);
}

#[test]
fn nothing_is_written_after_riounmap() {
    let ended = run("iomap_churn", &["3"]);
    assert_eq!(ended.ok(), "rounds: yes\nmemory was written: yes\nafter riounmap: 0\n", "{}", ended.report());
    ended.was_over_shm(1 << 20);
}
