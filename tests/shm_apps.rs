//! Unmodified programs on this machine, both ends preloaded: iperf and iperf3 in their modes, files through nc, socat and Python in both
//! directions. Their bytes must go through shared memory. With one end preloaded only, they go over TCP.
//!
//! `RSOCKET_TEST_SECONDS` is how long each iperf runs (2).

mod support;

use std::env;
use std::fmt::Write;
use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;

use support::{Ended, Program, Scratch, free_port, own_address, repository};

fn seconds() -> u64 {
    env::var("RSOCKET_TEST_SECONDS").ok().and_then(|text| text.parse().ok()).unwrap_or(2)
}

fn limit() -> Duration {
    Duration::from_secs(seconds() + 30)
}

/// A listening program and the one that connects to it, as command lines in which PORT and AT stand for where they meet.
struct Two<'a> {
    server: &'a str,
    client: &'a str,
    at: &'a str,
    /// What the server reads or writes, and the client.
    files: [Option<File>; 2],
}

/// Standard input or output.
#[derive(Clone)]
enum File {
    Input(PathBuf),
    Output(PathBuf),
}

impl<'a> Two<'a> {
    fn new(server: &'a str, client: &'a str) -> Self {
        Self { server, client, at: "127.0.0.1", files: [None, None] }
    }

    /// Runs them, preloaded or not, to a good end of both: the server's, the client's.
    #[track_caller]
    fn run(&self, preloaded: [bool; 2]) -> [Ended; 2] {
        let (scratch, port) = (Scratch::new(), free_port());
        let number = port.to_string();
        let program = |end: usize, name: &str, line: &str| {
            let words: Vec<&str> = line.split_whitespace().map(|word| if word == "AT" { self.at } else { word }).collect();
            let words: Vec<String> =
                words.iter().map(|word| word.replace("PORT", &number).replace("AT:", &format!("{}:", self.at))).collect();
            let words: Vec<&str> = words.iter().map(String::as_str).collect();
            let mut program = Program::new(&scratch, name, &words);
            program = match &self.files[end] {
                None => program,
                Some(File::Input(path)) => program.input(path),
                Some(File::Output(path)) => program.output(path),
            };
            if preloaded[end] { program.preloaded() } else { program }
        };
        let server = program(0, "server", self.server).start();
        server.wait_until_listening(port);
        let client = program(1, "client", self.client).run(limit());
        client.ok();
        let server = server.wait(limit());
        server.ok();
        [server, client]
    }

    #[track_caller]
    fn over_shm(&self, bytes: impl Fn(&Ended) -> u64) {
        let [server, client] = self.run([true, true]);
        let bytes = bytes(&client);
        println!("{}: {bytes} bytes through shared memory, {:.1} s", self.client, client.seconds);
        assert!(bytes > 1000, "{bytes} bytes only: {}", client.report());
        client.was_over_shm(bytes);
        server.was_over_shm(0);
    }
}

/// The bytes that iperf 2 reports: the eighth field of its lines, one a connection; a line of their sum has the number -1.
fn iperf2_bytes(client: &Ended) -> u64 {
    let fields = client.output.lines().map(|line| line.split(',').collect::<Vec<_>>());
    fields.filter(|fields| fields.get(5) != Some(&"-1")).filter_map(|fields| fields.get(7)?.parse::<u64>().ok()).sum()
}

/// The bytes of `sum_received` in iperf3's JSON.
fn iperf3_bytes(client: &Ended) -> u64 {
    let end = client.output.split("\"sum_received\"").nth(1).and_then(|text| text.split("\"bytes\":").nth(1));
    let number = end.and_then(|text| text.split(',').next()).and_then(|text| text.trim().parse().ok());
    number.unwrap_or_else(|| panic!("no sum_received in {}", client.report()))
}

const MODES: [&str; 4] = ["", "-R", "-P 4", "-l 64"];

#[test]
fn iperf_runs_through_shared_memory() {
    for mode in MODES {
        // it ends after so many connections
        let connections = if mode == "-P 4" { 4 } else { 1 };
        let server = format!("iperf -s -B AT -p PORT -P {connections}");
        let client = format!("iperf -c AT -p PORT -y C -t {} {mode}", seconds());
        Two::new(&server, &client).over_shm(iperf2_bytes);
    }
}

#[test]
fn iperf3_runs_through_shared_memory() {
    for mode in MODES {
        let client = format!("iperf3 -c AT -p PORT -J -t {} {mode}", seconds());
        Two::new("iperf3 -s -1 -B AT -p PORT", &client).over_shm(iperf3_bytes);
    }
}

/// As users start it: on every address, of both families.
#[test]
fn a_server_on_all_addresses_is_reached_at_each_of_them() {
    for at in ["127.0.0.1", "::1", "localhost", &own_address().to_string()] {
        let mut two = Two::new("iperf3 -s -1 -p PORT", "iperf3 -c AT -p PORT -J -n 8M");
        two.at = at;
        two.over_shm(iperf3_bytes);
    }
}

/// A file of a few MB in which no two parts are the same.
fn source(scratch: &Scratch) -> (PathBuf, u64) {
    let mut text = String::new();
    for line in 0..400_000_u32 {
        writeln!(text, "{line} {:x}", line.wrapping_mul(0x9E37_79B1)).expect("room");
    }
    let path = scratch.path("source");
    fs::write(&path, &text).unwrap_or_else(|e| panic!("{}: {e}", path.display()));
    (path, text.len() as u64)
}

#[track_caller]
fn assert_same(copy: &Path, source: &Path) {
    let read = |path: &Path| fs::read(path).unwrap_or_else(|e| panic!("{}: {e}", path.display()));
    assert!(read(copy) == read(source), "{} differs from {}", copy.display(), source.display());
}

/// Passes a file between the two, either of which may be the end that reads it. `SOURCE` and `COPY` are files by name.
fn pass(server: &str, client: &str, preloaded: [bool; 2]) -> ([Ended; 2], u64) {
    let scratch = Scratch::new();
    let (source, bytes) = source(&scratch);
    let copy = scratch.path("copy");
    let fill = |line: &str| line.replace("SOURCE", &source.display().to_string()).replace("COPY", &copy.display().to_string());
    let part = |line: &str| {
        let (command, file) = line.split_once(['<', '>']).unwrap_or((line, ""));
        let file = match file.trim() {
            "SOURCE" => Some(File::Input(source.clone())),
            "COPY" => Some(File::Output(copy.clone())),
            _ => None,
        };
        (fill(command), file)
    };
    let ((server, of_server), (client, of_client)) = (part(server), part(client));
    let mut two = Two::new(&server, &client);
    two.files = [of_server, of_client];
    let ended = two.run(preloaded);
    assert_same(&copy, &source);
    (ended, bytes)
}

fn passes() -> Vec<(String, String)> {
    let script = repository().join("tests/interop/file_over_socket.py");
    let python = |rest: &str| format!("/usr/bin/python3 {} {rest}", script.display());
    let pair = |server: &str, client: &str| (server.to_owned(), client.to_owned());
    vec![
        pair("nc -l -s AT -p PORT > COPY", "nc -N AT PORT < SOURCE"),
        pair("nc -N -l -s AT -p PORT < SOURCE", "nc -d AT PORT > COPY"),
        pair("socat -u TCP-LISTEN:PORT,bind=127.0.0.1,reuseaddr CREATE:COPY", "socat -u OPEN:SOURCE TCP:AT:PORT"),
        pair("socat -u OPEN:SOURCE TCP-LISTEN:PORT,bind=127.0.0.1,reuseaddr", "socat -u TCP:AT:PORT CREATE:COPY"),
        (python("listen receive AT PORT COPY"), python("connect send AT PORT SOURCE")),
        (python("listen send AT PORT SOURCE"), python("connect receive AT PORT COPY")),
    ]
}

#[test]
fn files_pass_through_shared_memory() {
    for (server, client) in passes() {
        let ([listened, connected], bytes) = pass(&server, &client, [true, true]);
        listened.was_over_shm(bytes);
        connected.was_over_shm(bytes);
    }
}

#[test]
fn with_one_end_preloaded_they_go_over_tcp() {
    for (server, client) in passes() {
        let ([_, connected], _) = pass(&server, &client, [false, true]);
        connected.was_over_the_kernel();
        assert_eq!(connected.counters.get("connected_kernel"), 1, "{}", connected.report());
        let ([listened, _], _) = pass(&server, &client, [true, false]);
        listened.was_over_the_kernel();
        assert_eq!(listened.counters.get("accepted_kernel"), 1, "{}", listened.report());
    }
}

/// bash's redirections put the socket under 1, where its builtins write by stdio.
#[test]
fn bash_talks_through_shared_memory() {
    const SCRIPT: &str =
        "exec 3<>/dev/tcp/$1/$2\necho by echo >&3\nprintf '%s %d\\n' printf 7 >&3\nread -r line <&3\necho \"heard: $line\"\n";
    let scratch = Scratch::new();
    let (script, heard, said) = (scratch.path("script"), scratch.path("heard"), scratch.path("said"));
    fs::write(&script, SCRIPT).expect("the script");
    fs::write(&said, "an answer\n").expect("the answer");
    let client = format!("bash {} AT PORT", script.display());
    let server = format!("socat -t 9 {}!!OPEN:{},creat TCP-LISTEN:PORT,bind=127.0.0.1,reuseaddr", said.display(), heard.display());
    let [server, client] = Two::new(&server, &client).run([true, true]);
    assert_eq!(client.output, "heard: an answer\n", "{}", client.report());
    assert_eq!(fs::read_to_string(&heard).expect("what the server heard"), "by echo\nprintf 7\n");
    client.was_over_shm(10);
    server.was_over_shm(10);
}
