//! Blocking calls of many threads, in real time, over a simulated fabric with event descriptors, and over shared memory: who is not woken
//! hangs.

mod placing;

use core::{
    sync::atomic::{AtomicBool, AtomicUsize, Ordering},
    time::Duration,
};
use std::{
    io::{IoSlice, IoSliceMut},
    net::{IpAddr, SocketAddr},
    panic::{AssertUnwindSafe, catch_unwind, resume_unwind},
    sync::{Arc, Mutex, mpsc},
    thread,
};

use super::{
    plan::SIZES,
    world::{BOTH, Over},
};
use crate::{
    error::Errno,
    fabric::{
        ConnectTo, Fabric, ListenOn,
        shm::Shm,
        sim::{Random, Settings, Sim},
    },
    service::Service,
    socket::{
        engine::Sizes,
        listener::Listener,
        readiness::Readiness,
        stream::{Blocking, Phase, Stream},
        wait::{self, Interest},
    },
    sys::{
        clock,
        ppoll::{PollFd, ppoll},
    },
    work::MessageMode,
};

const CONNECTIONS: usize = 4;
/// Runs of each test: the threads meet differently each time.
const ROUNDS: u64 = 5;
const BYTES: usize = 60_000;
/// Nothing takes so long: it is a hang.
const HANG: Duration = Duration::from_secs(30);

/// How a call waits. Over shared memory a thread with a deadline sleeps on descriptors, one without on words of memory.
#[derive(Clone, Copy, Debug)]
enum Patience {
    Endless,
    Bounded,
    Either,
}

impl Patience {
    fn blocking(self) -> Blocking {
        static CALLS: AtomicUsize = AtomicUsize::new(0);
        let endless = match self {
            Patience::Endless => true,
            Patience::Bounded => false,
            Patience::Either => CALLS.fetch_add(1, Ordering::Relaxed).is_multiple_of(2),
        };
        Blocking::Until(if endless { None } else { clock::deadline(clock::now(), Some(HANG)) })
    }
}

fn patience() -> Blocking {
    Patience::Either.blocking()
}

fn byte(at: usize) -> u8 {
    (at.wrapping_mul(0x9e37_79b1) >> 13) as u8
}

fn send_all(stream: &Stream, random: &mut Random) {
    let mut at = 0;
    while at < BYTES {
        let len = usize::try_from(random.within(&(1..=5000))).unwrap().min(BYTES - at);
        let bytes: Vec<u8> = (at..at + len).map(byte).collect();
        assert_eq!(stream.send(&[IoSlice::new(&bytes)], patience()), Ok(len), "after {at}");
        at += len;
    }
    stream.shutdown(false, true).unwrap();
}

fn receive_all(stream: &Stream, random: &mut Random) {
    let mut at = 0;
    loop {
        let mut bytes = vec![0; usize::try_from(random.within(&(1..=5000))).unwrap()];
        let all = random.chance(300);
        let count =
            stream.receive(&mut [IoSliceMut::new(&mut bytes)], false, all, patience()).unwrap_or_else(|errno| panic!("{errno} after {at}"));
        assert!(bytes[..count].iter().zip(at..).all(|(got, at)| *got == byte(at)));
        at += count;
        if count == 0 {
            break;
        }
    }
    assert_eq!(at, BYTES);
}

/// One thread sends while another one receives.
fn duplex(stream: &Arc<Stream>, seed: u64) {
    thread::scope(|scope| {
        scope.spawn(|| send_all(stream, &mut Random::new(seed)));
        receive_all(stream, &mut Random::new(seed + 1));
    });
    stream.close(None, false);
}

fn accept(listener: &Listener) -> Arc<Stream> {
    let waiter = wait::waiter();
    loop {
        listener.sleepers().add(&waiter, Interest::READ);
        let mut set = [PollFd { fd: waiter.event_fd(), events: libc::POLLIN, revents: 0 }];
        let there = listener.has_connection() || ppoll(&mut set, Some(HANG), None).unwrap() > 0;
        listener.sleepers().remove(&waiter);
        waiter.reset(false);
        assert!(there, "no connection comes");
        if let Some(stream) = listener.pop() {
            return stream;
        }
    }
}

fn connect(service: &Arc<Service>, server: SocketAddr, sizes: Sizes) -> Arc<Stream> {
    let to = ConnectTo::new(server, sizes.endpoint());
    let deadline = clock::deadline(clock::now(), Some(HANG)).unwrap();
    let stream = Stream::connecting(service, &to, sizes, deadline, None);
    stream.start(&to).unwrap();
    assert_eq!(stream.wait_connected(patience()), Ok(Phase::Up));
    stream
}

/// A client, a server with a listener, and what carries them.
struct Two {
    client: Arc<Service>,
    server: Arc<Service>,
    listener: Arc<Listener>,
    addr: SocketAddr,
    sizes: Sizes,
    sim: Option<Sim>,
    shm: Vec<Arc<Shm>>,
}

impl Two {
    fn new(over: Over, mode: MessageMode, sizes: Sizes, seed: u64) -> Self {
        let (sim, shm, addr) = match over {
            Over::Sim => {
                let sim = Sim::new(Settings { mode, descriptors: true, ..Settings::new(seed) });
                (Some(sim), Vec::new(), SocketAddr::from(([10, 0, 0, 2], 7)))
            }
            Over::Shm => (None, vec![Shm::open().unwrap(), Shm::open().unwrap()], SocketAddr::from(([127, 0, 0, 1], 0))),
        };
        let service = |last: u8| {
            let fabric: Arc<dyn Fabric> = match &sim {
                Some(sim) => Arc::new(sim.fabric(sim.host(&[IpAddr::from([10, 0, 0, last])]))),
                None => Arc::clone(&shm[usize::from(last) - 1]) as Arc<dyn Fabric>,
            };
            let service = Service::new(fabric).unwrap();
            service.start().unwrap();
            service
        };
        let (client, server) = (service(1), service(2));
        let listener = Listener::new(&server, sizes, 64);
        let on = ListenOn { addr, v6_only: false, backlog: 64, only: None, endpoint: sizes.endpoint() };
        let listening = server.fabric().listen(&on, listener.token()).unwrap();
        let addr = listening.local_addr();
        listener.start(listening);
        Two { client, server, listener, addr, sizes, sim, shm }
    }

    /// The two ends of a new connection.
    fn pair(&self) -> [Arc<Stream>; 2] {
        let client = connect(&self.client, self.addr, self.sizes);
        [client, accept(&self.listener)]
    }

    /// Runs `what` while time passes; then nothing may be left.
    fn run(self, what: impl FnOnce(&Two)) {
        let done = AtomicBool::new(false);
        let failure = thread::scope(|scope| {
            if let Some(sim) = &self.sim {
                scope.spawn(|| {
                    while !done.load(Ordering::Acquire) {
                        if !sim.step() {
                            thread::sleep(Duration::from_micros(20));
                        }
                    }
                });
            }
            let outcome = catch_unwind(AssertUnwindSafe(|| what(&self)));
            self.listener.close();
            for service in [&self.client, &self.server] {
                service.wait_forgotten(clock::deadline(clock::now(), Some(HANG)).unwrap());
            }
            done.store(true, Ordering::Release);
            outcome.err()
        });
        if let Some(failure) = failure {
            resume_unwind(failure);
        }
        assert_eq!((self.client.everything().len(), self.server.everything().len()), (0, 0));
        if let Some(sim) = &self.sim {
            assert_eq!((sim.endpoint_count(), sim.registration_count()), (0, 0));
            assert_eq!(sim.violations(), Vec::<String>::new());
        }
        assert!(self.shm.iter().all(|shm| shm.is_unused()));
    }
}

/// Runs all of these at once. Those that fail are told. Whoever waits for ever ends everything: a thread cannot be left behind.
fn together<'a>(threads: impl IntoIterator<Item = Box<dyn FnOnce() + Send + 'a>>) {
    let (done, waits) = mpsc::channel::<()>();
    thread::scope(|scope| {
        scope.spawn(move || {
            if waits.recv_timeout(2 * HANG) == Err(mpsc::RecvTimeoutError::Timeout) {
                eprintln!("a thread is never woken");
                std::process::abort();
            }
        });
        let threads: Vec<_> = threads.into_iter().map(|thread| scope.spawn(thread)).collect();
        let failed = threads.into_iter().map(thread::ScopedJoinHandle::join).filter(Result::is_err).count();
        drop(done);
        assert_eq!(failed, 0);
    });
}

fn everybody_at_once(over: Over, mode: MessageMode, sizes: Sizes, seed: u64) {
    Two::new(over, mode, sizes, seed).run(|two| {
        let server = |number: u64| Box::new(move || duplex(&accept(&two.listener), 100 + number)) as Box<dyn FnOnce() + Send>;
        let client =
            |number: u64| Box::new(move || duplex(&connect(&two.client, two.addr, sizes), 200 + number)) as Box<dyn FnOnce() + Send>;
        let numbers = 0..CONNECTIONS as u64;
        together(numbers.clone().map(server).chain(numbers.map(client)));
    });
}

#[test]
fn everybody_at_once_with_immediates() {
    let sizes = Sizes { receive_bytes: 4096, shm_receive_bytes: 4096, send_bytes: 4096, receive_queue: 16, ..SIZES };
    (0..ROUNDS).for_each(|seed| everybody_at_once(Over::Sim, MessageMode::Immediate, sizes, seed));
}

#[test]
fn everybody_at_once_with_sends() {
    let sizes = Sizes { receive_bytes: 1024, shm_receive_bytes: 1024, send_bytes: 16_384, send_queue: 16, ..SIZES };
    (0..ROUNDS).for_each(|seed| everybody_at_once(Over::Sim, MessageMode::Send, sizes, seed));
}

#[test]
fn everybody_at_once_over_shared_memory() {
    for seed in 0..4 * ROUNDS {
        let bytes = [64, 1024, 4096, 131_072][usize::try_from(seed % 4).unwrap()];
        let sizes = Sizes { receive_bytes: bytes, shm_receive_bytes: bytes, send_bytes: bytes, receive_queue: 16, ..SIZES };
        everybody_at_once(Over::Shm, MessageMode::Immediate, sizes, seed);
    }
}

/// Bytes that each of several threads sends over one stream: all of one value, so that it is seen whose are missing.
const SHARE: usize = 30_000;
const SHARERS: usize = 4;

/// Some threads send, some receive, at both ends of one connection. Each byte arrives once.
#[test]
fn a_stream_of_many_threads() {
    for (over, seed) in BOTH.iter().flat_map(|over| (0..ROUNDS).map(|seed| (*over, seed))) {
        let sizes = Sizes { receive_bytes: 4096, shm_receive_bytes: 4096, send_bytes: 4096, receive_queue: 16, ..SIZES };
        Two::new(over, MessageMode::Immediate, sizes, seed).run(|two| {
            let ends = two.pair();
            let counts: [[AtomicUsize; SHARERS]; 2] = Default::default();
            let sending = [const { AtomicUsize::new(SHARERS) }; 2];
            let (ends, counts, sending) = (&ends, &counts, &sending);
            let sends = |end: usize, number: usize| {
                Box::new(move || {
                    let mut random = Random::new(seed + number as u64);
                    let (bytes, mut left) = ([number as u8; 3000], SHARE);
                    while left > 0 {
                        let len = usize::try_from(random.within(&(1..=3000))).unwrap().min(left);
                        assert_eq!(ends[end].send(&[IoSlice::new(&bytes[..len])], patience()), Ok(len));
                        left -= len;
                    }
                    if sending[end].fetch_sub(1, Ordering::AcqRel) == 1 {
                        ends[end].shutdown(false, true).unwrap();
                    }
                }) as Box<dyn FnOnce() + Send>
            };
            let receives = |end: usize, number: usize| {
                Box::new(move || {
                    let mut random = Random::new(seed + 100 + number as u64);
                    loop {
                        let mut bytes = vec![0; usize::try_from(random.within(&(1..=3000))).unwrap()];
                        let count = ends[end].receive(&mut [IoSliceMut::new(&mut bytes)], false, false, patience()).unwrap();
                        if count == 0 {
                            break;
                        }
                        for of in &bytes[..count] {
                            counts[end][usize::from(*of)].fetch_add(1, Ordering::Relaxed);
                        }
                    }
                }) as Box<dyn FnOnce() + Send>
            };
            let all = (0..2).flat_map(|end| (0..SHARERS).flat_map(move |number| [sends(end, number), receives(end, number)]));
            together(all.collect::<Vec<_>>());
            assert!(counts.iter().flatten().all(|count| count.load(Ordering::Relaxed) == SHARE), "{counts:?}");
            ends.iter().for_each(|end| end.close(None, false));
        });
    }
}

/// Both directions at once, through buffers that are filled many thousand times.
#[test]
fn much_through_small_buffers() {
    const TOTAL: usize = 256 << 20;
    /// A prime, so that no buffer's size hides what comes twice, or not at all.
    const PERIOD: usize = 65_521;
    let sizes = Sizes { receive_bytes: 4096, shm_receive_bytes: 4096, send_bytes: 4096, ..SIZES };
    let pattern: Vec<u8> = (0..PERIOD).map(byte).collect::<Vec<_>>().repeat(2);
    Two::new(Over::Shm, MessageMode::Immediate, sizes, 0).run(|two| {
        let ends = two.pair();
        let (ends, pattern) = (&ends, &pattern);
        let sends = |end: usize| {
            Box::new(move || {
                let mut at = 0;
                while at < TOTAL {
                    let from = &pattern[at % PERIOD..][..PERIOD.min(TOTAL - at)];
                    at += ends[end].send(&[IoSlice::new(from)], patience()).unwrap_or_else(|errno| panic!("{errno} after {at}"));
                }
                ends[end].shutdown(false, true).unwrap();
            }) as Box<dyn FnOnce() + Send>
        };
        let receives = |end: usize| {
            Box::new(move || {
                let (mut at, mut bytes) = (0, vec![0; PERIOD]);
                loop {
                    let into = &mut [IoSliceMut::new(&mut bytes)];
                    let count = ends[end].receive(into, false, false, patience()).unwrap_or_else(|errno| panic!("{errno} after {at}"));
                    if count == 0 {
                        break;
                    }
                    assert!(bytes[..count] == pattern[at % PERIOD..][..count], "after {at}");
                    at += count;
                }
                assert_eq!(at, TOTAL);
            }) as Box<dyn FnOnce() + Send>
        };
        together((0..2).flat_map(|end| [sends(end), receives(end)]));
        ends.iter().for_each(|end| end.close(None, false));
    });
}

/// How a connection ends under threads that wait for it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Ending {
    PeerCloses,
    PeerResets,
    PeerDies,
    OwnShutdown,
    OwnClose,
}

/// Whoever waits, to read, to write or for any event, is woken.
#[test]
fn who_waits_is_woken_by_the_end() {
    use Ending::{OwnClose, OwnShutdown, PeerCloses, PeerDies, PeerResets};
    for over in BOTH {
        let kinds = [Patience::Endless, Patience::Bounded, Patience::Either];
        for (ending, patience) in
            [PeerCloses, PeerResets, PeerDies, OwnShutdown, OwnClose].into_iter().flat_map(|one| kinds.map(|kind| (one, kind)))
        {
            // To die is to leave nothing behind; the simulation wants to be told.
            if (*over, ending) == (Over::Sim, PeerDies) {
                continue;
            }
            let sizes = Sizes { receive_bytes: 1024, shm_receive_bytes: 1024, send_bytes: 1024, ..SIZES };
            Two::new(*over, MessageMode::Immediate, sizes, 1).run(|two| {
                let [own, peer] = two.pair();
                let (own, peer) = (&own, Mutex::new(Some(peer)));
                let waiting = || Box::new(|| wait_for_the_end(own)) as Box<dyn FnOnce() + Send>;
                let reading = || Box::new(|| read_to_the_end(own, patience)) as Box<dyn FnOnce() + Send>;
                let writing = || Box::new(|| write_to_the_end(own, patience)) as Box<dyn FnOnce() + Send>;
                let ends = Box::new(|| {
                    thread::sleep(Duration::from_millis(20));
                    let mut peer = peer.lock().unwrap();
                    match (ending, peer.as_ref()) {
                        (PeerCloses, Some(peer)) => peer.close(None, false),
                        (PeerResets, Some(peer)) => peer.close(Some(Duration::ZERO), false),
                        (PeerDies, _) => {
                            two.server.abandon();
                            *peer = None;
                        }
                        (OwnShutdown, _) => own.shutdown(true, true).unwrap(),
                        (OwnClose, _) => own.close(None, false),
                        (PeerCloses | PeerResets, None) => unreachable!(),
                    }
                });
                match patience {
                    // Alone, nobody is woken by the way.
                    Patience::Endless | Patience::Bounded => together([reading(), writing(), ends]),
                    Patience::Either => together([reading(), reading(), writing(), writing(), waiting(), waiting(), ends]),
                }
                own.close(None, false);
                if let Some(peer) = peer.into_inner().unwrap() {
                    peer.close(None, false);
                }
            });
        }
    }
}

/// What is written after the peer has closed ends the other direction as well: pollers see that, too.
#[test]
fn a_write_that_nobody_takes_wakes_pollers() {
    for over in BOTH {
        Two::new(*over, MessageMode::Immediate, SIZES, 1).run(|two| {
            let [own, peer] = two.pair();
            let own = &own;
            let waits = Box::new(|| wait_for_the_end(own)) as Box<dyn FnOnce() + Send>;
            let writes = Box::new(|| {
                peer.close(None, false);
                read_to_the_end(own, Patience::Bounded);
                // It is asleep by now; and if it is not, it finds what it waits for.
                thread::sleep(Duration::from_millis(50));
                assert_eq!(own.send(&[IoSlice::new(b"x")], Blocking::Never), Ok(1));
            });
            together([waits, writes]);
            own.close(None, false);
        });
    }
}

fn read_to_the_end(stream: &Stream, patience: Patience) {
    loop {
        match stream.receive(&mut [IoSliceMut::new(&mut [0; 100])], false, false, patience.blocking()) {
            Ok(1..) => {}
            Err(Errno::AGAIN) => panic!("nobody has woken this one"),
            Ok(0) | Err(_) => return,
        }
    }
}

fn write_to_the_end(stream: &Stream, patience: Patience) {
    loop {
        match stream.send(&[IoSlice::new(&[0; 100])], patience.blocking()) {
            Ok(_) => {}
            Err(Errno::AGAIN) => panic!("nobody has woken this one"),
            Err(_) => return,
        }
    }
}

/// As poll(2) for the end of both directions.
fn wait_for_the_end(stream: &Stream) {
    let waiter = wait::waiter();
    loop {
        stream.sleepers().add(&waiter, Interest::all());
        let look = stream.arm_and_look(&waiter).unwrap();
        let over = match look {
            Readiness::Events(events) => events & (libc::POLLHUP | libc::POLLERR | libc::POLLNVAL) != 0,
            Readiness::Kernel => true,
        };
        let mut set = [waiter.event_fd(), stream.event_fd()].map(|fd| PollFd { fd, events: libc::POLLIN, revents: 0 });
        let woken = over || ppoll(&mut set, Some(HANG), None).unwrap() > 0;
        if set[1].revents != 0 {
            stream.look_after_sleep(&waiter).unwrap();
        }
        stream.sleepers().remove(&waiter);
        waiter.reset(set[0].revents != 0);
        assert!(woken, "nobody has woken this one");
        if over {
            return;
        }
    }
}
