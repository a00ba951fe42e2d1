//! The same in real time: services with threads of their own, and programs whose calls wait.

use core::time::Duration;
use std::{
    io::{IoSlice, IoSliceMut},
    net::SocketAddr,
    sync::Arc,
    thread,
};

use super::super::{
    plan::{SIZES, pick, random_sizes},
    rogue::{PORT, Program},
    world::Net,
};
use crate::{
    error::Errno,
    fabric::{ConnectTo, ListenOn, Region, shm::Shm, sim::Random},
    service::Service,
    socket::{
        engine::Sizes,
        listener::Listener,
        stream::{Blocking, Phase, Stream},
        wait::{self, Interest},
    },
    sys::{
        clock,
        ppoll::{PollFd, ppoll},
    },
    work::MessageMode,
};

/// How long a call of a victim waits at most.
const PATIENCE: Duration = Duration::from_millis(3);
/// Calls that a victim waits in vain before it gives up.
const IN_VAIN: u32 = 3;
/// Nothing takes so long that goes on.
const HANG: Duration = Duration::from_secs(4);
/// What a connection carries on which nobody misbehaves.
const BYTES: usize = 20_000;

/// Two programs of this host, over and over again in other company.
pub(super) struct Company {
    client: Arc<Service>,
    server: Arc<Service>,
    net: Net,
}

fn within(time: Duration) -> Blocking {
    Blocking::Until(clock::deadline(clock::now(), Some(time)))
}

impl Company {
    pub(super) fn new() -> Self {
        let service = || {
            let service = Service::new(Shm::open().unwrap()).unwrap();
            service.start().unwrap();
            service
        };
        Company { client: service(), server: service(), net: Net::reserve() }
    }

    fn listen(&self, sizes: Sizes, last: u8) -> (Arc<Listener>, SocketAddr) {
        let listener = Listener::new(&self.server, sizes, 8);
        let addr = SocketAddr::new(self.net.addr(last), 0);
        let on = ListenOn { addr, v6_only: false, backlog: 8, only: None, endpoint: sizes.endpoint() };
        let listening = self.server.fabric().listen(&on, listener.token()).unwrap();
        let addr = listening.local_addr();
        listener.start(listening);
        (listener, addr)
    }

    fn connect(&self, addr: SocketAddr, sizes: Sizes, patience: Duration) -> Option<Arc<Stream>> {
        let to = ConnectTo::new(addr, sizes.endpoint());
        let deadline = clock::deadline(clock::now(), Some(patience)).unwrap();
        let stream = Stream::connecting(&self.client, &to, sizes, deadline, None);
        stream.start(&to).ok()?;
        match stream.wait_connected(within(HANG)) {
            Ok(Phase::Up) => Some(stream),
            Ok(Phase::Kernel) => None,
            other => panic!("{other:?}"),
        }
    }

    /// One run.
    pub(super) fn play(&self, seed: u64) {
        let mut random = Random::new(seed);
        let sizes = random_sizes(&mut random, MessageMode::Immediate);
        let connects = random.chance(500);
        let (good, good_addr) = self.listen(SIZES, 1);
        let (bad, bad_addr) = self.listen(sizes, 2);
        let own = SocketAddr::new(self.net.addr(3), PORT);
        let numbers = Random::new(random.number());
        let mut program = if connects { Program::connecting(bad_addr, own.ip(), numbers) } else { Program::listening(own.ip(), numbers) };
        let others = [random.number(), random.number()];
        thread::scope(|scope| {
            scope.spawn(|| exchange(&accept(&good, HANG).unwrap(), 1));
            scope.spawn(|| exchange(&self.connect(good_addr, SIZES, HANG).unwrap(), 2));
            let victims = others.map(|seed| {
                let bad = &bad;
                scope.spawn(move || {
                    let stream = if connects { accept(bad, 3 * PATIENCE) } else { self.connect(own, sizes, 2 * PATIENCE) };
                    stream.map(|stream| suffer(scope, stream, seed))
                })
            });
            while program.act() {
                if random.chance(300) {
                    thread::sleep(Duration::from_micros(pick(&mut random, &[10, 100, 1000])));
                }
            }
            // Whoever waits without a deadline for one that says nothing any more is woken by the own end.
            let victims = victims.into_iter().filter_map(|victim| victim.join().unwrap());
            victims.for_each(|stream| stream.close(Some(Duration::from_millis(random.number() % 4)), random.chance(500)));
        });
        assert!(!program.is_spoilt(), "somebody has written where nobody may");
        drop(program);
        good.close();
        bad.close();
        for service in [&self.client, &self.server] {
            service.wait_forgotten(clock::deadline(clock::now(), Some(HANG)).unwrap());
            assert_eq!(service.everything().len(), 0, "something is left");
        }
        // What is made ready for the next connection apart.
        let end = clock::deadline(clock::now(), Some(HANG)).unwrap();
        while Region::living() > 2 {
            assert!(clock::now() < end, "{} regions are left", Region::living());
            thread::sleep(Duration::from_micros(100));
        }
    }
}

/// The next connection, as accept(2) waits for one; `None`: none has come for so long.
fn accept(listener: &Arc<Listener>, patience: Duration) -> Option<Arc<Stream>> {
    let end = clock::deadline(clock::now(), Some(patience));
    let waiter = wait::waiter();
    loop {
        listener.sleepers().add(&waiter, Interest::READ);
        listener.attend(true);
        let mut set = [waiter.event_fd(), listener.peers_fd()].map(|fd| PollFd { fd, events: libc::POLLIN, revents: 0 });
        let slept = if listener.has_connection() { Ok(1) } else { ppoll(&mut set, clock::left(clock::now(), end), None) };
        listener.sleepers().remove(&waiter);
        if set[1].revents != 0 {
            listener.take_peers(true).unwrap();
        }
        listener.attend(false);
        waiter.reset(set[0].revents != 0);
        let stream = listener.pop();
        if stream.is_some() || slept == Ok(0) {
            return stream;
        }
    }
}

fn byte(at: usize, end: u8) -> u8 {
    (at.wrapping_mul(0x9e37_79b1) >> 13) as u8 ^ end
}

/// Sends and receives, and neither waits for ever nor misses a byte.
fn exchange(stream: &Arc<Stream>, end: u8) {
    thread::scope(|scope| {
        scope.spawn(|| {
            let bytes: Vec<u8> = (0..BYTES).map(|at| byte(at, end)).collect();
            assert_eq!(stream.send(&[IoSlice::new(&bytes)], within(HANG)), Ok(BYTES));
            stream.shutdown(false, true).unwrap();
        });
        let mut bytes = vec![0; BYTES + 1];
        assert_eq!(stream.receive(&mut [IoSliceMut::new(&mut bytes)], false, true, within(HANG)), Ok(BYTES));
        assert!(bytes[..BYTES].iter().enumerate().all(|(at, got)| *got == byte(at, 3 - end)));
    });
    stream.close(None, false);
}

/// What a program does that has a rogue for a peer: two threads send and receive until there is nothing to be had any more. Some have
/// more patience than others. Gives the stream when one of them has come to its end, or has waited for long.
fn suffer<'scope>(scope: &'scope thread::Scope<'scope, '_>, stream: Arc<Stream>, seed: u64) -> Arc<Stream> {
    let blocking = move || if seed.is_multiple_of(2) { within(PATIENCE) } else { Blocking::Until(None) };
    let (sends, receives) = (Arc::clone(&stream), Arc::clone(&stream));
    let sends = scope.spawn(move || calls(seed, |bytes| sends.send(&[IoSlice::new(bytes)], blocking())));
    let all = seed.is_multiple_of(3);
    scope.spawn(move || calls(seed + 1, |bytes| receives.receive(&mut [IoSliceMut::new(bytes)], false, all, blocking())));
    for _ in 0..2 * PATIENCE.as_millis() {
        if sends.is_finished() {
            break;
        }
        thread::sleep(Duration::from_millis(1));
    }
    stream
}

fn calls(seed: u64, mut call: impl FnMut(&mut [u8]) -> Result<usize, Errno>) {
    let mut random = Random::new(seed);
    let (mut in_vain, mut bytes) = (0, vec![0; 5000]);
    for _ in 0..random.within(&(1..=200)) {
        let len = usize::try_from(pick(&mut random, &[1, 10, 700, 5000])).unwrap();
        match call(&mut bytes[..len]) {
            Ok(0) => return,
            Ok(_) => {}
            Err(Errno::AGAIN) => in_vain += 1,
            Err(errno) => {
                // EBADF: closed meanwhile.
                assert!(matches!(errno, Errno::CONNRESET | Errno::PIPE | Errno::BADF), "{errno}");
                return;
            }
        }
        if in_vain > IN_VAIN {
            return;
        }
    }
}
