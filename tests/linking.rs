//! Programs that are written for the library: in Rust with `rsocket::net`, in C with what `scripts/install` installs.

mod support;

use std::{
    fs,
    io::{ErrorKind, Read, Write},
    net::{Shutdown, SocketAddr},
    os::fd::{AsRawFd, FromRawFd, IntoRawFd},
    process::Command,
    thread,
    time::{Duration, Instant},
};

use rsocket::{
    net::{Events, PollFd, TcpListener, TcpStream, UdpSocket, poll},
    stats::{self, Counter},
};
use support::{Program, Scratch, example, free_port, installed, repository};

const LIMIT: Duration = Duration::from_secs(60);
const BOTH: [&str; 2] = ["127.0.0.1:0", "[::1]:0"];

fn pair(at: &str) -> (TcpStream, TcpStream) {
    let listener = TcpListener::bind(at).unwrap();
    let client = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
    let (server, peer) = listener.accept().unwrap();
    assert_eq!(peer, client.local_addr().unwrap());
    assert_eq!(server.peer_addr().unwrap(), peer);
    assert_eq!(client.peer_addr().unwrap(), server.local_addr().unwrap());
    (client, server)
}

#[test]
fn streams_carry_bytes_over_shared_memory_until_they_are_dropped() {
    const BYTES: usize = 3_000_000;
    for at in BOTH {
        let (client, mut server) = pair(at);
        let before = stats::get(Counter::BytesSentShm);
        let sender = thread::spawn(move || {
            let bytes: Vec<u8> = (0..BYTES).map(|i| (i % 251) as u8).collect();
            (&client).write_all(&bytes).unwrap();
        });
        let mut received = Vec::new();
        server.read_to_end(&mut received).unwrap();
        sender.join().unwrap();
        assert_eq!(received.len(), BYTES);
        assert!(received.iter().enumerate().all(|(i, byte)| *byte == (i % 251) as u8));
        assert!(stats::get(Counter::BytesSentShm) >= before + BYTES as u64, "it was another way");
    }
}

#[test]
fn halves_end_one_by_one_and_clones_are_the_same_socket() {
    let (mut client, server) = pair(BOTH[0]);
    client.write_all(b"question").unwrap();
    client.shutdown(Shutdown::Write).unwrap();
    let mut clone = server.try_clone().unwrap();
    drop(server);
    let mut bytes = [0; 8];
    assert_eq!(clone.peek(&mut bytes).unwrap(), 8);
    let mut text = String::new();
    clone.read_to_string(&mut text).unwrap();
    assert_eq!(text, "question");
    clone.write_all(b"answer").unwrap();
    drop(clone);
    text.clear();
    client.read_to_string(&mut text).unwrap();
    assert_eq!(text, "answer");
    // Nobody reads any more: an error, not a signal.
    let end = Instant::now() + LIMIT;
    let error = loop {
        assert!(Instant::now() < end);
        if let Err(error) = client.write_all(&[0; 1000]) {
            break error;
        }
    };
    assert!(matches!(error.kind(), ErrorKind::BrokenPipe | ErrorKind::ConnectionReset), "{error}");
}

#[test]
fn waits_end_as_they_are_told() {
    let (mut client, mut server) = pair(BOTH[0]);
    let mut byte = [0];
    assert_eq!(server.read_timeout().unwrap(), None);
    for (set, told) in [(1_u64, 1), (1_500_000, 1500)] {
        server.set_read_timeout(Some(Duration::from_micros(set.max(1)))).unwrap();
        assert!(server.read_timeout().unwrap() >= Some(Duration::from_millis(told - 1)) && server.read_timeout().unwrap().is_some());
    }
    assert_eq!(server.set_read_timeout(Some(Duration::ZERO)).unwrap_err().kind(), ErrorKind::InvalidInput);
    server.set_read_timeout(Some(Duration::from_millis(20))).unwrap();
    assert_eq!(server.read(&mut byte).unwrap_err().kind(), ErrorKind::WouldBlock);
    server.set_read_timeout(None).unwrap();
    server.set_nonblocking(true).unwrap();
    assert_eq!(server.read(&mut byte).unwrap_err().kind(), ErrorKind::WouldBlock);
    let mut entries = [PollFd::new(&server, Events::READABLE), PollFd::new(&client, Events::WRITABLE | Events::READABLE)];
    assert_eq!(poll(&mut entries, Some(LIMIT)).unwrap(), 1);
    assert_eq!(entries.map(|entry| entry.found()), [Events::empty(), Events::WRITABLE]);
    let writer = thread::spawn(move || {
        thread::sleep(Duration::from_millis(20));
        client.write_all(b"x").unwrap();
        client
    });
    let mut entries = [PollFd::new(&server, Events::READABLE)];
    assert_eq!(poll(&mut entries, None).unwrap(), 1);
    assert_eq!(server.read(&mut byte).unwrap(), 1);
    drop(writer.join().unwrap());
    assert_eq!(poll(&mut [PollFd::new(&server, Events::READABLE)], Some(LIMIT)).unwrap(), 1);
    assert_eq!(server.read(&mut byte).unwrap(), 0);
    assert_eq!(poll(&mut [], Some(Duration::from_millis(1))).unwrap(), 0);
}

#[test]
fn errors_are_those_of_the_standard_library() {
    let gone = SocketAddr::from(([127, 0, 0, 1], free_port()));
    for refused in [TcpStream::connect(gone), TcpStream::connect_timeout(&gone, LIMIT)] {
        assert_eq!(refused.unwrap_err().kind(), ErrorKind::ConnectionRefused);
    }
    assert_eq!(TcpStream::connect_timeout(&gone, Duration::ZERO).unwrap_err().kind(), ErrorKind::InvalidInput);
    assert_eq!(TcpStream::connect(&[][..]).unwrap_err().kind(), ErrorKind::InvalidInput);
    let listener = TcpListener::bind(BOTH[0]).unwrap();
    let taken = listener.local_addr().unwrap();
    assert_eq!(TcpListener::bind(taken).unwrap_err().kind(), ErrorKind::AddrInUse);
    // The first one is taken, the second one is not.
    assert!(TcpListener::bind(&[taken, SocketAddr::from(([127, 0, 0, 1], 0))][..]).is_ok());
    assert!(TcpStream::connect_timeout(&taken, LIMIT).is_ok());
    assert!(listener.accept().is_ok());
    listener.set_nonblocking(true).unwrap();
    assert_eq!(listener.accept().unwrap_err().kind(), ErrorKind::WouldBlock);
    assert!(listener.take_error().unwrap().is_none());
    let stream = TcpStream::connect(taken).unwrap();
    stream.set_nodelay(true).unwrap();
    assert!(stream.nodelay().unwrap());
    stream.set_ttl(33).unwrap();
    assert_eq!(stream.ttl().unwrap(), 33);
}

#[test]
fn a_number_given_away_stays_open_until_it_is_taken() {
    let (client, mut server) = pair(BOTH[0]);
    let number = client.into_raw_fd();
    // SAFETY: given away above.
    let mut client = unsafe { TcpStream::from_raw_fd(number) };
    assert_eq!(client.as_raw_fd(), number);
    client.write_all(b"still there").unwrap();
    drop(client);
    let mut text = String::new();
    server.read_to_string(&mut text).unwrap();
    assert_eq!(text, "still there");
}

#[test]
fn datagrams_go_to_and_come_from_whom_they_say() {
    for at in BOTH {
        let [one, two] = [at; 2].map(|at| UdpSocket::bind(at).unwrap());
        let [from, to] = [&one, &two].map(|socket| socket.local_addr().unwrap());
        two.set_read_timeout(Some(LIMIT)).unwrap();
        one.set_read_timeout(Some(LIMIT)).unwrap();
        assert_eq!(one.send_to(b"a datagram", to).unwrap(), 10);
        let mut bytes = [0; 100];
        assert_eq!(two.peek_from(&mut bytes).unwrap(), (10, from));
        assert_eq!(two.recv_from(&mut bytes[..4]).unwrap(), (4, from), "what has no room is lost");
        two.connect(from).unwrap();
        assert_eq!(two.peer_addr().unwrap(), from);
        assert_eq!(two.send(b"answer").unwrap(), 6);
        assert_eq!(one.recv(&mut bytes).unwrap(), 6);
        assert_eq!(&bytes[..6], b"answer");
        one.set_broadcast(true).unwrap();
        assert!(one.broadcast().unwrap() && !two.broadcast().unwrap());
        two.set_nonblocking(true).unwrap();
        assert_eq!(two.recv(&mut bytes).unwrap_err().kind(), ErrorKind::WouldBlock);
    }
}

#[test]
fn the_examples_talk_to_each_other_over_shared_memory() {
    let scratch = Scratch::new();
    let (sent, copy) = (scratch.path("sent"), scratch.path("copy"));
    let text: String = (0..500_000).map(|line| format!("{line}\n")).collect();
    fs::write(&sent, &text).unwrap();
    let port = free_port();
    let address = format!("127.0.0.1:{port}");
    let server = Program::new(&scratch, "server", &[&example("tcp_listener"), &address]).start();
    server.wait_until_listening(port);
    let client = Program::new(&scratch, "client", &[&example("tcp_stream"), &address]);
    let client = client.env("RSOCKET_STATS", scratch.path("client.stats")).input(&sent).output(&copy).run(LIMIT);
    client.ok();
    assert!(fs::read_to_string(&copy).unwrap() == text);
    let counters = fs::read_to_string(scratch.path("client.stats")).unwrap();
    assert!(counters.contains("connected_shm 1") && counters.contains(&format!("bytes_sent_shm {}", text.len())), "{counters}");
    server.wait_for_line(&format!("  bytes_received_shm {}", text.len()));

    let words = [&example("udp_socket"), "serve", &address];
    let server = Program::new(&scratch, "answers", &words).start();
    server.wait_for_line(&format!("serving at {address}"));
    let asked = Program::new(&scratch, "asks", &[words[0], "ask", &address, "hello"]).run(LIMIT);
    assert_eq!(asked.ok(), "olleh\n");
}

#[test]
fn a_c_program_that_is_linked_with_it_runs_over_shared_memory() {
    let scratch = Scratch::new();
    let program = installed(&scratch, "native_talk").display().to_string();
    let stats = scratch.path("stats");
    for address in ["127.0.0.1", "::1"] {
        let ended = Program::new(&scratch, "talk", &[&program, address]).env("RSOCKET_STATS", &stats).run(LIMIT);
        assert_eq!(ended.ok(), "0 bytes of path\nall arrived\n");
        let counters = fs::read_to_string(&stats).unwrap();
        assert!(counters.contains("accepted_shm 1") && counters.contains("bytes_received_shm 4000000"), "{counters}");
        fs::remove_file(&stats).unwrap();
    }
    // The command finds the library that is installed with it.
    let command = scratch.path("prefix/bin/rsocket").display().to_string();
    let shown = Program::new(&scratch, "command", &[&command, "run", "env"]).run(LIMIT);
    assert!(shown.ok().contains("prefix/lib/rsocket/librspreload.so"), "{}", shown.report());
    let man = scratch.path("prefix/share/man");
    assert!(man.join("man1/rsocket.1").exists() && man.join("man7/rsocket.7").exists());
}

/// What becomes of values; then of each state what reading and setting give. A listener's table may change.
const OPTIONS: &str = "\
RDMA_SQSIZE: ok 16 ok 100 ok 65534 EINVAL 65534 short: EINVAL 2 bytes
RDMA_RQSIZE: ok 16 ok 100 ok 65534 EINVAL 65534 short: EINVAL 2 bytes
RDMA_INLINE: ok 1 ok 100 ok 4096 EINVAL 4096 short: EINVAL 2 bytes
RDMA_IOMAPSIZE: ok 1 ok 100 ok 32512 EINVAL 32512 short: EINVAL 2 bytes
fresh: ok ok ok ok ok ok ok ok ENOPROTOOPT ENOPROTOOPT
bound: ok ok ok ok ok ok ok ok ENOPROTOOPT ENOPROTOOPT
listening: ok EINVAL ok EINVAL ok EINVAL ok ok ENOPROTOOPT ENOPROTOOPT
connected: ok EINVAL ok EINVAL ok EINVAL ok EINVAL ENOPROTOOPT ENOPROTOOPT
accepted: ok EINVAL ok EINVAL ok EINVAL ok EINVAL ENOPROTOOPT ENOPROTOOPT
an accepted socket has the listener's 44
half shut: ok EINVAL ok EINVAL ok EINVAL ok EINVAL ENOPROTOOPT ENOPROTOOPT
shut: ok EINVAL ok EINVAL ok EINVAL ok EINVAL ENOPROTOOPT ENOPROTOOPT
over: ok EINVAL ok EINVAL ok EINVAL ok EINVAL ENOPROTOOPT ENOPROTOOPT
closed: EBADF EBADF EBADF EBADF EBADF EBADF EBADF EBADF EBADF EBADF
";

#[test]
fn its_own_options_are_as_the_manual_says_in_every_state() {
    let scratch = Scratch::new();
    let program = installed(&scratch, "native_options").display().to_string();
    let ended = Program::new(&scratch, "options", &[&program]).run(LIMIT);
    assert_eq!(ended.ok(), OPTIONS);
}

#[test]
fn install_says_what_is_wrong() {
    let install = repository().join("scripts/install");
    for (arguments, code) in [(&["--prefix"][..], 2), (&["--prefix", "here"], 2), (&["now"], 2), (&["--help"], 0)] {
        let ended = Command::new(&install).args(arguments).output().unwrap();
        assert_eq!(ended.status.code(), Some(code), "{arguments:?}");
        assert!(code == 0 || String::from_utf8_lossy(&ended.stderr).starts_with("install: "), "{arguments:?}");
    }
    let nothing = Command::new(&install).env("CARGO_TARGET_DIR", "/nonexistent").output().unwrap();
    assert_eq!(nothing.status.code(), Some(1));
}
