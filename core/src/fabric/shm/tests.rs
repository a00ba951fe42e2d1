//! The contract over shared memory, and what is special about it.

use core::net::SocketAddr;
use std::{
    os::fd::RawFd,
    sync::Arc,
    time::{Duration, Instant},
};

use rustix::{
    fs::{MemfdFlags, SealFlags},
    pipe::{PipeFlags, pipe_with},
};

pub(crate) mod rogue;

use super::*;
use crate::{
    fabric::{
        Endpoint, EndpointConfig,
        contract::{self, Harness},
    },
    sys::descriptor::OwnFd,
    sys::ppoll::{PollFd, ppoll},
    work::{Completion, Operation, Payload, RemoteAddress, TransportError, WorkRequest},
};

/// Two fabrics of this host; time passes by itself.
struct Two {
    client: Arc<Shm>,
    server: Arc<Shm>,
    started: Instant,
}

impl Two {
    fn new() -> Self {
        Two { client: Shm::open().unwrap(), server: Shm::open().unwrap(), started: Instant::now() }
    }
}

impl Harness for Two {
    fn client(&self) -> &dyn Fabric {
        &*self.client
    }

    fn server(&self) -> &dyn Fabric {
        &*self.server
    }

    fn server_addr(&self) -> SocketAddr {
        SocketAddr::from(([127, 0, 0, 1], 0))
    }

    fn unrouted_addr(&self) -> Option<SocketAddr> {
        Some(SocketAddr::from(([192, 0, 2, 1], 9)))
    }

    fn turn(&mut self) -> bool {
        std::thread::sleep(Duration::from_micros(200));
        self.started.elapsed() < Duration::from_secs(10)
    }

    fn is_readable(&self, fd: RawFd) -> bool {
        let mut set = [PollFd { fd, events: libc::POLLIN, revents: 0 }];
        ppoll(&mut set, Some(Duration::ZERO), None) == Ok(1)
    }
}

#[test]
fn keeps_the_contract() {
    for (name, test) in contract::ALL {
        println!("{name}");
        test(&mut Two::new());
    }
}

const CONFIG: EndpointConfig = EndpointConfig {
    send_queue: 16,
    receive_queue: 16,
    inline: 0,
    receive_bytes: 4096,
    shm_receive_bytes: 4096,
    send_bytes: 4096,
    target_bytes: 32,
    places: false,
};

fn listen(shm: &Shm) -> Box<dyn Listening> {
    let on = ListenOn { addr: SocketAddr::from(([127, 0, 0, 1], 0)), v6_only: false, backlog: 16, only: None, endpoint: CONFIG };
    shm.listen(&on, Token(1)).unwrap()
}

/// Somebody who has connected to a listener, and says nothing.
fn silent_client(addr: SocketAddr) -> OwnFd {
    channel::connect(&name::candidates(addr), 0).unwrap().unwrap()
}

/// Whether the fabric has something to do, once it has done what there is.
fn is_busy(shm: &Shm) -> bool {
    for _ in 0..4 {
        assert!(shm.events(64).is_empty());
    }
    let mut set = [PollFd { fd: shm.event_fds()[0], events: libc::POLLIN, revents: 0 }];
    ppoll(&mut set, Some(Duration::ZERO), None) != Ok(0)
}

#[test]
fn a_listener_that_was_closed_keeps_nobody_busy() {
    let shm = Shm::open().unwrap();
    let listening = listen(&shm);
    let client = silent_client(listening.local_addr());
    assert!(!is_busy(&shm));
    assert_eq!(shm.shared.watched_count(), 2);
    drop(listening);
    assert!(!is_busy(&shm));
    assert_eq!(shm.shared.watched_count(), 0);
    drop(client);
    assert!(!is_busy(&shm));
}

#[test]
fn more_silent_clients_than_are_kept_waiting() {
    let shm = Shm::open().unwrap();
    let listening = listen(&shm);
    let mut clients = Vec::new();
    for _ in 0..8 {
        clients.extend((0..64).map(|_| silent_client(listening.local_addr())));
        assert!(shm.events(64).is_empty());
    }
    while is_busy(&shm) {}
    // All of them and the listener.
    assert_eq!(shm.shared.watched_count(), event::ASKING + 1);
    let mut byte = [0];
    let turned_away = clients.iter().filter(|client| channel::receive(client.as_fd(), &mut byte).is_ok_and(|(len, _)| len == 0)).count();
    assert_eq!(turned_away, clients.len() - event::ASKING);
}

/// Where there is no descriptor at all for a client, not even the one that is kept for that, it stays in the queue, and is there when the next one comes.
#[test]
#[ignore = "a program for the test below"]
fn program_without_descriptors() {
    use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
    let shm = Shm::open().unwrap();
    let listening = listen(&shm);
    let clients: Vec<OwnFd> = (0..3).map(|_| silent_client(listening.local_addr())).collect();
    let many = getrlimit(Resource::Nofile);
    setrlimit(Resource::Nofile, Rlimit { current: Some(2), ..many }).unwrap();
    assert!(!is_busy(&shm));
    assert_eq!(shm.shared.watched_count(), 1);
    setrlimit(Resource::Nofile, many).unwrap();
    let another = silent_client(listening.local_addr());
    assert!(!is_busy(&shm));
    assert_eq!(shm.shared.watched_count(), 1 + clients.len() + 1);
    drop(another);
}

#[test]
fn a_client_without_a_descriptor_keeps_nobody_busy() {
    let mut command = std::process::Command::new(std::env::current_exe().unwrap());
    command.args(["--exact", "--ignored", "--nocapture", "fabric::shm::tests::program_without_descriptors"]);
    let output = command.output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
}

/// A client that says it comes from `client` is let in.
fn is_taken_from(client: &str) -> bool {
    use super::{greeting::Greeting, memory::Own};
    let shm = Shm::open().unwrap();
    let listening = listen(&shm);
    let channel = silent_client(listening.local_addr());
    let mut own = Own::new(Layout::of(&CONFIG).unwrap(), 1).unwrap();
    let (client, server) = (client.parse().unwrap(), listening.local_addr());
    let (verdict, layout) = (super::greeting::Verdict::Request, own.memory().layout());
    let request = Greeting { verdict, key: 1, layout, client, server, private_data: Vec::new() };
    let file = own.take_file().unwrap();
    channel::send(channel.as_fd(), &request.to_bytes(), Some(file.as_fd())).unwrap();
    shm.events(8).iter().any(|event| matches!(event, Event::Incoming { .. }))
}

#[test]
fn clients_come_from_where_tcp_lets_them() {
    assert!(is_taken_from("127.0.0.1:40000") && is_taken_from("127.3.4.5:1024"));
    // Somebody else's host, no port, and a port of root's, which the tests may be.
    assert!(!is_taken_from("192.0.2.1:40000") && !is_taken_from("127.0.0.1:0"));
    assert_eq!(is_taken_from("127.0.0.1:80"), rustix::process::geteuid().is_root());
}

/// The two ends of a connection that stands, connecting end first.
fn connected(shm: &Shm) -> [Box<dyn Endpoint>; 2] {
    let listening = listen(shm);
    let to = ConnectTo::new(listening.local_addr(), CONFIG);
    let Ok(Started::Ready(mut client)) = shm.connect(&to, Token(2)) else { panic!("not connected at once") };
    client.connect(&[]).unwrap();
    let mut server = None;
    let until = Instant::now() + Duration::from_secs(10);
    while server.is_none() && Instant::now() < until {
        for event in shm.events(64) {
            if let Event::Incoming { endpoint, .. } = event {
                server = Some(endpoint);
            }
        }
    }
    let mut server = server.expect("a request");
    server.accept(&[]).unwrap();
    assert!(matches!(client.outcome(), Some(Ok(_))));
    [client, server]
}

#[test]
fn both_ends_tell_where_they_wait() {
    let shm = Shm::open().unwrap();
    let [client, server] = connected(&shm);
    let on = |cpus: &rustix::thread::CpuSet| rustix::thread::sched_setaffinity(None, cpus).unwrap();
    let all = rustix::thread::sched_getaffinity(None).unwrap();
    let mut allowed = (0..rustix::thread::CpuSet::MAX_CPU).filter(|cpu| all.is_set(*cpu)).map(|cpu| {
        let mut one = rustix::thread::CpuSet::new();
        one.set(cpu);
        one
    });
    on(&allowed.next().unwrap());
    assert_eq!(client.waits_beside_peer(), None);
    assert_eq!(server.waits_beside_peer(), Some(true));
    assert_eq!(client.waits_beside_peer(), Some(true));
    // With one processor both are always on the same.
    if let Some(other) = allowed.next() {
        on(&other);
        assert_eq!(server.waits_beside_peer(), Some(false));
        on(&all);
    }
}

/// A child of the program may hold a listener's descriptor, too.
#[test]
fn a_listener_that_others_hold_keeps_nobody_busy() {
    let shm = Shm::open().unwrap();
    let addr = listen(&shm).local_addr();
    let socket = channel::listen(name::of_listener(addr, false)).unwrap();
    let held = rustix::io::fcntl_dupfd_cloexec(&socket, 0).unwrap();
    let (id, quiet) = (shm.shared.id(), AtomicBool::new(false));
    let user = core::sync::atomic::AtomicU32::new(event::user_now());
    let rendezvous = Rendezvous { id, socket, quiet, token: Token(1), addr, v6_only: false, user, endpoint: Leaf::new(CONFIG) };
    let rendezvous = Arc::new(rendezvous);
    shm.shared.listen(&rendezvous).unwrap();
    drop(Listener { rendezvous, shared: Arc::clone(&shm.shared) });
    assert!(!is_busy(&shm));
    drop(held);
}

/// What a peer may hand over: memory whose length stays as it is, and whose pages are there.
#[test]
fn memory_that_is_taken() {
    const HUGE: u32 = 2 << 20;
    let layout = Layout::new(1, 32, HUGE - 4096).unwrap();
    assert_eq!(layout.len(), HUGE as usize);
    let both = SealFlags::SHRINK | SealFlags::GROW;
    let memory = |len: u32, seals| rogue::memory(len as usize, seals, MemfdFlags::empty());
    let cases = [
        ("as it should be", memory(HUGE, both), Ok(())),
        ("nothing can be sealed any more", memory(HUGE, both | SealFlags::SEAL), Ok(())),
        ("not sealed", memory(HUGE, SealFlags::empty()), Err(Errno::PERM)),
        ("may become shorter", memory(HUGE, SealFlags::GROW), Err(Errno::PERM)),
        ("may become longer", memory(HUGE, SealFlags::SHRINK), Err(Errno::PERM)),
        ("cannot be written", memory(HUGE, both | SealFlags::WRITE), Err(Errno::PERM)),
        ("can be written by the peer only", memory(HUGE, both | SealFlags::FUTURE_WRITE), Err(Errno::PERM)),
        ("huge pages", rogue::memory(HUGE as usize, both, MemfdFlags::HUGETLB | MemfdFlags::HUGE_2MB), Err(Errno::PERM)),
        ("too short", memory(HUGE - 1, both), Err(Errno::INVAL)),
        ("too long", memory(HUGE + 1, both), Err(Errno::INVAL)),
        ("empty", memory(0, both), Err(Errno::INVAL)),
        ("a pipe", pipe_with(PipeFlags::CLOEXEC).unwrap().0, Err(Errno::INVAL)),
    ];
    for (name, file, expected) in cases {
        assert_eq!(memory::Memory::of_peer(file.as_fd(), layout, 1).map(drop), expected, "{name}");
    }
}

/// A rogue that has connected, and the endpoint that it is connected with.
fn met_by(shm: &Shm) -> (OwnFd, rogue::Handed, Box<dyn Endpoint>) {
    let listening = listen(shm);
    let channel = rogue::connect(listening.local_addr()).unwrap();
    let own = rogue::Handed::good(16, 32, 4096, 5);
    let client = SocketAddr::from(([127, 0, 0, 1], 40_001));
    rogue::say(&channel, &own.greeting(true, client, listening.local_addr(), &[]), &[own.file.as_fd()]);
    let Some(Event::Incoming { mut endpoint, .. }) = shm.events(1).pop() else { panic!("nobody has come") };
    endpoint.post_receives(16).unwrap();
    endpoint.accept(&[]).unwrap();
    assert!(endpoint.outcome().is_some_and(|outcome| outcome.is_ok()));
    (channel, own, endpoint)
}

fn completion(endpoint: &mut dyn Endpoint) -> Option<Completion> {
    let mut completion = [Completion::Sent { id: 0 }];
    (endpoint.poll(&mut completion) == 1).then_some(completion[0])
}

fn message(id: u64) -> WorkRequest {
    let operation = Operation::WriteWithImmediate { to: RemoteAddress::default(), immediate: 7 };
    WorkRequest { id, operation, payload: Payload::Empty, signaled: false }
}

/// Nothing waits for a peer that takes back what it has posted, and nobody goes on to look whether it may go on.
#[test]
fn receives_that_are_taken_back() {
    for back in [1, 2, 1 << 31] {
        let shm = Shm::open().unwrap();
        let (_channel, own, mut endpoint) = met_by(&shm);
        let mapped = own.mapped.as_ref().unwrap();
        mapped.set(rogue::POSTED, 2);
        endpoint.post_sends(&[message(1), message(2)]).unwrap();
        assert!(!endpoint.is_waiting());
        if back > 1 {
            endpoint.post_sends(&[message(3)]).unwrap();
            assert!(endpoint.is_waiting());
        }
        mapped.set(rogue::POSTED, 2_u32.wrapping_sub(back));
        if back == 1 {
            endpoint.post_sends(&[message(3)]).unwrap();
        }
        assert_eq!(completion(&mut *endpoint), Some(Completion::Failed(TransportError::Other(0))), "{back}");
        assert!(!endpoint.is_waiting(), "{back}");
    }
}

/// The thread that watches channels need not have run.
#[test]
fn an_end_is_seen_behind_all_that_was_sent() {
    let shm = Shm::open().unwrap();
    let (channel, _own, mut endpoint) = met_by(&shm);
    let other = rogue::hear(&channel).unwrap();
    assert_eq!(completion(&mut *endpoint), None);
    for number in 1..=3 {
        other.mapped.put(other.mapped.entry(number), number, 7);
    }
    other.mapped.set(rogue::ENDED, 1);
    let mut completions = [Completion::Sent { id: 0 }; 16];
    assert_eq!(endpoint.poll(&mut completions), 4);
    assert_eq!(completions[..3], [Completion::Received { message: 7 }; 3]);
    assert_eq!(completions[3], Completion::Failed(TransportError::Flushed));
    assert_eq!(completion(&mut *endpoint), None);
}

#[test]
fn rings_without_end() {
    let shm = Shm::open().unwrap();
    let (channel, _own, mut endpoint) = met_by(&shm);
    for _ in 0..100 {
        rogue::say(&channel, &[1], &[]);
        endpoint.clear_events();
        if completion(&mut *endpoint).is_some() {
            return;
        }
    }
    panic!("may ring for ever");
}
