//! How processes end: whatever way that is, nothing that was sent is lost, nothing hangs, and the exit status is the program's. Each program
//! runs plain and preloaded, over shared memory, and must say the same; and so must netcat and socat, as they are mostly used. (Over RDMA:
//! `faults.rs`.)

mod support;

use std::fs;
use std::time::Duration;

use support::{Program, Scratch, difference, free_port};

const LIMIT: Duration = Duration::from_secs(100);
const ADDRESS: &str = "127.0.0.1";

/// Runs it plain and preloaded; at least so many bytes have gone through shared memory, those of processes that were killed left out.
#[track_caller]
fn same(program: &str, arguments: &[&str], bytes: u64) {
    let arguments = [&[ADDRESS], arguments].concat();
    let run = |name: &str, preloaded: bool| {
        let scratch = Scratch::new();
        let program = Program::test(&scratch, name, program, &arguments);
        if preloaded { program.preloaded().run(LIMIT) } else { program.run(LIMIT) }
    };
    let (plain, preloaded) = (run("plain", false), run("preloaded", true));
    println!("  {program}: plain {:.1} s, preloaded {:.1} s", plain.seconds, preloaded.seconds);
    assert!(!plain.ok().contains("FAILED"), "{}", plain.report());
    let difference = difference(&plain.output, &preloaded.output);
    assert!(difference.is_none(), "{program}: {}\n{}", difference.unwrap_or_default(), preloaded.report());
    assert_eq!((preloaded.code(), preloaded.errors.as_str()), (Some(0), ""), "{}", preloaded.report());
    preloaded.was_over_shm(bytes);
}

#[test]
fn each_way_to_end_is_as_with_the_kernel() {
    same("exit_ways", &[], 28 * 201_000);
}

#[test]
fn eight_mebibytes_and_gone() {
    same("exit_ways", &["8388608"], 28 << 23);
}

#[test]
fn threads_and_open_sockets_do_not_matter() {
    same("exit_threads", &[], 5 * 49 * 4);
}

#[test]
fn nobody_waits_for_a_peer_that_is_stopped() {
    same("exit_stopped", &[], 10 * 50_000);
}

#[test]
fn linger_means_at_the_end_what_it_means_to_the_kernel() {
    same("exit_linger", &[], 8 * 10);
}

#[test]
fn a_signal_handler_may_end_the_process_at_any_moment() {
    same("exit_handler", &["30"], 50_000);
}

#[test]
fn five_thousand_connections_are_whole_and_those_open_at_the_end() {
    same("exit_many", &["5000"], 5100 * 2 * 708);
}

/// `printf … | nc` and the like: (server, client), in which PORT stands for where they meet.
const PIPES: [(&str, &str); 8] = [
    ("nc.openbsd -l 127.0.0.1 PORT", "nc.openbsd -N 127.0.0.1 PORT"),
    ("nc.openbsd -l 127.0.0.1 PORT", "nc.openbsd -q 0 127.0.0.1 PORT"),
    ("nc.openbsd -l 127.0.0.1 PORT", "nc.traditional -q 0 127.0.0.1 PORT"),
    ("nc.traditional -l -s 127.0.0.1 -p PORT", "nc.openbsd -N 127.0.0.1 PORT"),
    ("nc.traditional -l -s 127.0.0.1 -p PORT", "nc.traditional -q 1 127.0.0.1 PORT"),
    ("nc.openbsd -l 127.0.0.1 PORT", "socat -u STDIN TCP:127.0.0.1:PORT"),
    ("socat -u TCP-LISTEN:PORT,bind=127.0.0.1 STDOUT", "nc.openbsd -N 127.0.0.1 PORT"),
    ("socat -u TCP-LISTEN:PORT,bind=127.0.0.1 STDOUT", "socat -u STDIN TCP:127.0.0.1:PORT"),
];

#[test]
fn a_line_through_netcat_arrives() {
    const LINE: &str = "last words\n";
    for (server, client) in PIPES {
        let (scratch, port) = (Scratch::new(), free_port());
        let number = port.to_string();
        let input = scratch.path("input");
        fs::write(&input, LINE).expect("a file");
        let words = |line: &'static str| line.split_whitespace().map(|word| word.replace("PORT", &number)).collect::<Vec<_>>();
        let program = |name: &str, line: &'static str| {
            let words = words(line);
            let words: Vec<&str> = words.iter().map(String::as_str).collect();
            Program::new(&scratch, name, &words).preloaded()
        };
        let listening = program("server", server).start();
        listening.wait_until_listening(port);
        let said = program("client", client).input(&input).run(LIMIT);
        said.ok();
        let heard = listening.wait(LIMIT);
        assert_eq!(heard.ok(), LINE, "{server}, {client}: {}", heard.report());
        let bytes = LINE.len() as u64;
        said.was_over_shm(bytes);
        heard.was_over_shm(bytes);
    }
}
