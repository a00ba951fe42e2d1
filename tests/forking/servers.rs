//! Small servers that have a process for each connection: socat, Python's socketserver, an inetd of Python's.

use std::path::PathBuf;
use std::thread;
use std::time::Duration;

use rustix::process::Signal;

use crate::stage::{Mode, Stage};
use crate::support::{Ended, Running, free_port, repository};
use crate::{assert_children_served, assert_moved, by_form};

/// A file in which no two parts are the same.
pub fn data(stage: &Stage, name: &str, mib: u32) -> PathBuf {
    let path = stage.scratch.path(name);
    if !path.exists() {
        let bytes: Vec<u8> = (0..mib << 18).flat_map(|number| number.wrapping_mul(0x9E37_79B1).to_le_bytes()).collect();
        stage.write(name, bytes);
    }
    path
}

#[track_caller]
pub fn read(path: &PathBuf) -> Vec<u8> {
    std::fs::read(path).unwrap_or_else(|e| panic!("{}: {e}", path.display()))
}

/// Ends a server whose clients have gone, but whose children may not have noticed yet.
#[track_caller]
pub fn stop(stage: &Stage, server: Running, signal: Signal, statuses: &[i32]) -> Ended {
    thread::sleep(Duration::from_millis(300));
    stage.stop(server, signal, statuses)
}

/// Files there and back, one client after the other and three at once.
#[track_caller]
fn files(stage: &Stage, name: &str, line: &str, signal: Signal, statuses: &[i32]) {
    let (port, mib) = (free_port(), by_form(4, 64));
    let source = data(stage, "source", mib);
    let server = stage.serve(name, &line.replace("PORT", &port.to_string()), port);
    let client = |number: usize| {
        let copy = stage.scratch.path(&format!("{name} copy {number}"));
        let line = format!("socat -t 20 - TCP:127.0.0.1:{port}");
        (stage.program(&format!("{name} client {number}"), &line).input(&source).output(&copy).start(), copy)
    };
    let mut clients = Vec::new();
    let mut finish = |(running, copy): (Running, PathBuf)| {
        let ended = running.wait(Duration::from_secs(60));
        ended.ok();
        assert!(read(&copy) == read(&source), "{name}: {} bytes came back", read(&copy).len());
        clients.push(ended);
    };
    for number in 0..2 {
        finish(client(number));
    }
    let together: Vec<_> = (2..5).map(client).collect();
    together.into_iter().for_each(&mut finish);
    let server = stop(stage, server, signal, statuses);
    assert_moved(stage, &clients.iter().collect::<Vec<_>>());
    if !line.contains("python3") {
        assert_children_served(stage, &server, 5, (u64::from(mib) * 5) << 21);
    }
}

/// A child that talks itself, and one that starts a program with a pipe or a socket pair.
#[test]
fn socat() {
    let stage = Stage::new().forking();
    files(&stage, "socat pipe", "socat TCP-LISTEN:PORT,bind=127.0.0.1,fork,reuseaddr PIPE", Signal::TERM, &[143]);
    files(&stage, "socat exec", "socat TCP-LISTEN:PORT,bind=127.0.0.1,fork,reuseaddr EXEC:cat", Signal::TERM, &[143]);
}

/// The accepted socket becomes 0 and 1 of another program, before anybody has used it: it talks where that has the library.
#[test]
fn programs_that_get_the_socket() {
    let stage = Stage::new().forking();
    files(&stage, "socat nofork", "socat TCP-LISTEN:PORT,bind=127.0.0.1,fork,reuseaddr EXEC:cat,nofork", Signal::TERM, &[143]);
}

/// `socketserver.ForkingTCPServer`: its children end by `_exit`, so that they count nothing.
#[test]
fn python_socketserver() {
    let stage = Stage::new().forking();
    let script = repository().join("tests/forking/socketserver_echo.py");
    files(&stage, "socketserver", &format!("/usr/bin/python3 {} PORT", script.display()), Signal::TERM, &[0]);
}

/// CPython's own tests of servers that fork, and ours of connections that other programs get, which without the setting are among the listed
/// differences (`cpython/differences.txt`).
#[test]
fn cpythons_tests() {
    let stage = Stage::new().forking();
    let own = repository().join("tests/cpython");
    let suites = [
        "-u network -m *Forking* test_socketserver".to_owned(),
        format!("--testdir {} -m *orking* -m *.Passed.* test_servers", own.display()),
    ];
    for (number, suite) in suites.iter().enumerate() {
        let ended = stage.run(&format!("python {number}"), &format!("/usr/bin/python3 -m test {suite}"));
        assert!(ended.output.contains("Result: SUCCESS") || ended.output.contains("result: SUCCESS"), "{}", ended.report());
        if stage.mode == Mode::Default {
            assert!(ended.counters.get("connected_shm") >= 3, "{}", ended.report());
        }
    }
}

/// What the setting costs where nobody answers: a client of a plain server.
#[test]
fn a_plain_server_is_not_noticed() {
    let stage = Stage::new().forking();
    let (port, source) = (free_port(), data(&stage, "source", 1));
    let plain = crate::support::Program::new(
        &stage.scratch,
        "plain",
        &["socat", &format!("TCP-LISTEN:{port},bind=127.0.0.1,fork,reuseaddr"), "PIPE"],
    )
    .start();
    plain.wait_until_listening(port);
    for number in 0..3 {
        let copy = stage.scratch.path("copy");
        let line = format!("socat -t 20 - TCP:127.0.0.1:{port}");
        let ended = stage.program(&format!("client {number}"), &line).input(&source).output(&copy).run(Duration::from_secs(30));
        ended.ok();
        assert!(read(&copy) == read(&source), "{} bytes came back", read(&copy).len());
        if stage.mode == Mode::Default {
            ended.was_over_the_kernel();
        }
    }
}
