//! Blocking calls of many threads, in real time, over a simulated fabric with event descriptors: who is not woken hangs.

use core::{
    sync::atomic::{AtomicBool, Ordering},
    time::Duration,
};
use std::{
    io::{IoSlice, IoSliceMut},
    net::{IpAddr, SocketAddr},
    sync::Arc,
    thread,
};

use super::plan::SIZES;
use crate::{
    fabric::{
        ConnectTo, ListenOn,
        sim::{Random, Settings, Sim},
    },
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

const CONNECTIONS: usize = 4;
/// Runs of each test: the threads meet differently each time.
const ROUNDS: u64 = 5;
const BYTES: usize = 60_000;
/// Nothing takes so long: it is a hang.
const HANG: Duration = Duration::from_secs(30);

fn patience() -> Blocking {
    Blocking::Until(clock::deadline(clock::now(), Some(HANG)))
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

fn connect(service: &Arc<Service>, sizes: Sizes) -> Arc<Stream> {
    let to = ConnectTo::new(SocketAddr::from(([10, 0, 0, 2], 7)), sizes.endpoint());
    let deadline = clock::deadline(clock::now(), Some(HANG)).unwrap();
    let stream = Stream::connect(service, &to, sizes, deadline, None).unwrap();
    assert_eq!(stream.wait_connected(patience()), Ok(Phase::Up));
    stream
}

fn everybody_at_once(mode: MessageMode, sizes: Sizes, seed: u64) {
    let sim = Sim::new(Settings { mode, descriptors: true, ..Settings::new(seed) });
    let service = |last: u8| {
        let host = sim.host(&[IpAddr::from([10, 0, 0, last])]);
        let service = Service::new(Arc::new(sim.fabric(host))).unwrap();
        service.start().unwrap();
        service
    };
    let (client, server) = (service(1), service(2));
    let listener = Listener::new(&server, sizes, 64);
    let on = ListenOn { addr: SocketAddr::from(([0, 0, 0, 0], 7)), v6_only: false, backlog: 64, endpoint: sizes.endpoint() };
    listener.start(server.fabric().listen(&on, listener.token()).unwrap());
    let done = AtomicBool::new(false);
    thread::scope(|scope| {
        scope.spawn(|| {
            while !done.load(Ordering::Acquire) {
                if !sim.step() {
                    thread::sleep(Duration::from_micros(20));
                }
            }
        });
        let (client, listener) = (&client, &listener);
        let numbers = 0..CONNECTIONS as u64;
        let servers = numbers.clone().map(|number| scope.spawn(move || duplex(&accept(listener), 100 + number))).collect::<Vec<_>>();
        let clients = numbers.map(|number| scope.spawn(move || duplex(&connect(client, sizes), 200 + number))).collect::<Vec<_>>();
        let failed = servers.into_iter().chain(clients).map(thread::ScopedJoinHandle::join).filter(Result::is_err).count();
        listener.close();
        for service in [client, &server] {
            service.wait_forgotten(clock::deadline(clock::now(), Some(HANG)).unwrap(), |_| true);
        }
        done.store(true, Ordering::Release);
        assert_eq!(failed, 0);
    });
    assert_eq!((client.everything().len(), server.everything().len()), (0, 0));
    assert_eq!(sim.endpoint_count(), 0);
    assert_eq!(sim.violations(), Vec::<String>::new());
}

#[test]
fn everybody_at_once_with_immediates() {
    let sizes = Sizes { receive_bytes: 4096, shm_receive_bytes: 4096, send_bytes: 4096, receive_queue: 16, ..SIZES };
    (0..ROUNDS).for_each(|seed| everybody_at_once(MessageMode::Immediate, sizes, seed));
}

#[test]
fn everybody_at_once_with_sends() {
    let sizes = Sizes { receive_bytes: 1024, shm_receive_bytes: 1024, send_bytes: 16_384, send_queue: 16, ..SIZES };
    (0..ROUNDS).for_each(|seed| everybody_at_once(MessageMode::Send, sizes, seed));
}
