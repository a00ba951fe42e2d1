//! The contract of datagrams over a device.
//!
//!     verbs_datagrams ADDRESS UNREACHABLE             all tests; ADDRESS is a device's of this host, and no path leads to UNREACHABLE
//!     verbs_datagrams serve ADDRESS                   says its queue pair, and sends back what comes
//!     verbs_datagrams ping ADDRESS PEER NUMBER COUNT  round trips to the queue pair of this number at PEER
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::indexing_slicing)]

use std::{
    io::IoSlice,
    net::{IpAddr, SocketAddr},
    os::fd::RawFd,
    sync::Arc,
    time::{Duration, Instant},
};

use rsocket::{
    fabric::{
        Fabric,
        contract::{DATAGRAMS, DatagramHarness},
        datagram::{Handle, Posted, Queue},
        verbs::Verbs,
    },
    sys::ppoll::{PollFd, ppoll},
};

/// How long a test may wait, in all.
const PATIENCE: Duration = Duration::from_secs(20);

struct Device {
    verbs: Arc<Verbs>,
    address: IpAddr,
    unreachable: IpAddr,
    until: Instant,
}

fn is_readable(fd: RawFd, within: Duration) -> bool {
    ppoll(&mut [PollFd { fd, events: libc::POLLIN, revents: 0 }], Some(within), None).unwrap() > 0
}

impl DatagramHarness for Device {
    fn queue(&mut self) -> Box<dyn Queue> {
        self.verbs.datagrams(self.address).unwrap()
    }

    fn unreachable(&self) -> IpAddr {
        self.unreachable
    }

    fn turn(&mut self) -> bool {
        is_readable(self.verbs.event_fds()[0], Duration::from_millis(1));
        assert!(self.verbs.events(64).is_empty(), "an event of nobody's");
        Instant::now() < self.until
    }

    fn is_readable(&self, fd: RawFd) -> bool {
        is_readable(fd, Duration::ZERO)
    }
}

/// The path to an address.
fn path(verbs: &Verbs, queue: &mut dyn Queue, to: IpAddr) -> Handle {
    queue.find(0, SocketAddr::new(to, 1)).unwrap();
    loop {
        if let Some(found) = queue.found() {
            return found.handle.expect("no path");
        }
        is_readable(verbs.event_fds()[0], PATIENCE);
        verbs.events(64);
    }
}

/// The next message.
fn receive(queue: &mut dyn Queue) -> Option<Vec<u8>> {
    let until = Instant::now() + PATIENCE;
    loop {
        queue.arm().unwrap();
        if let Some(len) = queue.next_len() {
            let mut message = vec![0; len];
            queue.read(0, &mut message).unwrap();
            queue.take();
            return Some(message);
        }
        let left = until.checked_duration_since(Instant::now())?;
        is_readable(queue.event_fd().unwrap(), left);
        queue.clear_events();
    }
}

/// A message begins with the sender's address, as text, and its queue pair.
fn serve(verbs: &Verbs, address: IpAddr) {
    let mut queue = verbs.datagrams(address).unwrap();
    println!("{}", queue.number());
    let mut peer = None;
    while let Some(message) = receive(&mut *queue) {
        let text = String::from_utf8_lossy(&message);
        let mut words = text.split(' ');
        let (from, number) = (words.next().unwrap().parse().unwrap(), words.next().unwrap().parse().unwrap());
        let to = *peer.get_or_insert_with(|| path(verbs, &mut *queue, from));
        assert_eq!(queue.send(to, number, b"", &[IoSlice::new(&message)]), Ok(Posted::Done));
    }
}

fn ping(verbs: &Verbs, address: IpAddr, peer: IpAddr, number: u32, count: u32) {
    let mut queue = verbs.datagrams(address).unwrap();
    let to = path(verbs, &mut *queue, peer);
    let header = format!("{address} {} ", queue.number());
    let begun = Instant::now();
    for turn in 0..count {
        let rest = vec![turn as u8; turn as usize % (queue.largest() - header.len())];
        assert_eq!(queue.send(to, number, header.as_bytes(), &[IoSlice::new(&rest)]), Ok(Posted::Done));
        let message = receive(&mut *queue).expect("no answer");
        assert_eq!(message, [header.as_bytes(), &rest].concat());
    }
    println!("{count} round trips, {:.1} us each", begun.elapsed().as_secs_f64() * 1e6 / f64::from(count.max(1)));
}

fn main() {
    let words: Vec<String> = std::env::args().skip(1).collect();
    let words: Vec<&str> = words.iter().map(String::as_str).collect();
    let verbs = Verbs::open().unwrap();
    let address = |word: &str| word.parse::<IpAddr>().unwrap();
    match words[..] {
        ["serve", own] => serve(&verbs, address(own)),
        ["ping", own, peer, number, count] => {
            ping(&verbs, address(own), address(peer), number.parse().unwrap(), count.parse().unwrap());
        }
        [own, unreachable] => {
            for (name, test) in DATAGRAMS {
                println!("{name}");
                let (address, unreachable) = (address(own), address(unreachable));
                let until = Instant::now() + PATIENCE;
                test(&mut Device { verbs: Verbs::open().unwrap(), address, unreachable, until });
            }
            println!("all {} tests are passed", DATAGRAMS.len());
        }
        _ => panic!("see the head of the source"),
    }
}
