//! Senders and a receiver in one process; and senders that do what none does who keeps to the rules.

use std::{
    io::IoSliceMut,
    sync::atomic::{AtomicU16, Ordering},
};

use proptest::prelude::*;
use rustix::fd::OwnedFd;

use super::*;
use crate::sys::ppoll::{PollFd, ppoll};

/// Names are of the network namespace: each test has ports of its own, below those that the kernel gives out.
fn addr(ip: &str) -> SocketAddr {
    static NEXT: AtomicU16 = AtomicU16::new(0);
    let port = 20_000 + (std::process::id() % 40) as u16 * 100 + NEXT.fetch_add(1, Ordering::Relaxed);
    SocketAddr::new(ip.parse().unwrap(), port)
}

/// A child of another test's, which has not come to its execve(2) yet, has the socket too, and with it the name.
fn open_again(inbox: &mut Inbox, addr: SocketAddr) {
    let begun = std::time::Instant::now();
    while let Err(errno) = inbox.open(addr, false, None) {
        assert!(errno == Errno::ADDRINUSE && begun.elapsed().as_secs() < 30, "{errno}");
        std::thread::sleep(std::time::Duration::from_millis(1));
    }
}

fn inbox(at: SocketAddr) -> Inbox {
    let mut inbox = Inbox::new(true).unwrap();
    inbox.open(at, false, None).unwrap();
    inbox
}

fn outlet(from: SocketAddr, to: SocketAddr) -> Option<Outlet> {
    Outlet::open(from, to, 0, 0).unwrap()
}

fn send(outlet: &mut Outlet, bytes: &[u8], now: Nanos) -> Sent {
    outlet.send(&[IoSlice::new(bytes)], bytes.len(), now)
}

fn next(inbox: &mut Inbox) -> Option<(Vec<u8>, SocketAddr)> {
    inbox.take_events();
    let mut bytes = vec![0; LONGEST];
    let taken = inbox.take(&mut [IoSliceMut::new(&mut bytes)], false)?;
    assert_eq!(taken.copied, taken.len);
    bytes.truncate(taken.copied);
    Some((bytes, taken.source))
}

fn is_readable(inbox: &Inbox) -> bool {
    let mut set = [PollFd { fd: inbox.event_fd(), events: libc::POLLIN, revents: 0 }];
    ppoll(&mut set, Some(core::time::Duration::ZERO), None).unwrap() == 1
}

#[test]
fn the_first_datagram_is_there_at_once_and_says_who_sent_it() {
    let (from, to) = (addr("127.0.0.1"), addr("127.0.0.1"));
    let mut inbox = inbox(to);
    let mut outlet = outlet(from, to).unwrap();
    assert_eq!(send(&mut outlet, b"hello", 0), Sent::Done);
    assert!(is_readable(&inbox));
    assert_eq!(next(&mut inbox), Some((b"hello".to_vec(), from)));
    assert_eq!(next(&mut inbox), None);
}

#[test]
fn datagrams_of_several_come_in_the_order_of_sending() {
    let to = addr("127.0.0.1");
    let mut inbox = inbox(to);
    let mut outlets: Vec<Outlet> = (0..5).map(|_| outlet(addr("127.0.0.1"), to).unwrap()).collect();
    for number in 0..50_u8 {
        send(&mut outlets[usize::from(number) * 7 % 5], &[number], u64::from(number));
    }
    for number in 0..50_u8 {
        assert_eq!(next(&mut inbox).unwrap().0, [number]);
    }
}

#[test]
fn nobody_or_another_receiver_is_no_outlet() {
    let (from, to, other) = (addr("127.0.0.1"), addr("127.0.0.1"), addr("127.0.0.1"));
    assert!(outlet(from, to).is_none());
    let mut connected = Inbox::new(false).unwrap();
    connected.open(to, false, Some(from)).unwrap();
    assert!(outlet(from, to).is_some() && outlet(other, to).is_none());
    let mut second = Inbox::new(false).unwrap();
    assert_eq!(second.open(to, false, Some(from)), Err(Errno::ADDRINUSE));
}

#[test]
fn a_receiver_that_closes_tells_its_senders_and_keeps_what_it_has() {
    let (from, to) = (addr("127.0.0.1"), addr("127.0.0.1"));
    let mut inbox = inbox(to);
    let mut outlet = outlet(from, to).unwrap();
    send(&mut outlet, b"before", 0);
    inbox.take_events();
    inbox.close();
    assert_eq!(send(&mut outlet, b"after", 0), Sent::Gone);
    assert_eq!(next(&mut inbox), Some((b"before".to_vec(), from)));
    assert_eq!((next(&mut inbox), inbox.descriptors()), (None, 1));
}

#[test]
fn what_a_sender_has_left_behind_is_read() {
    let (from, to) = (addr("127.0.0.1"), addr("127.0.0.1"));
    let mut inbox = inbox(to);
    let mut first = outlet(from, to).unwrap();
    send(&mut first, b"one", 1);
    inbox.take_events();
    let mut second = outlet(from, to).unwrap();
    send(&mut second, b"two", 2);
    drop((first, second));
    assert_eq!(next(&mut inbox).unwrap().0, b"one");
    assert_eq!(next(&mut inbox).unwrap().0, b"two");
    assert_eq!(next(&mut inbox), None);
    assert_eq!(inbox.descriptors(), 2, "the channels are gone");
}

#[test]
fn a_receiver_that_is_gone_is_noticed() {
    let (from, to) = (addr("127.0.0.1"), addr("127.0.0.1"));
    let inbox = inbox(to);
    let mut outlet = outlet(from, to).unwrap();
    drop(inbox);
    assert_eq!(send(&mut outlet, b"x", LOOK_EVERY), Sent::Gone);
}

#[test]
fn the_bell_rings_for_one_that_sleeps_and_for_no_other() {
    let (from, to) = (addr("127.0.0.1"), addr("127.0.0.1"));
    let mut inbox = inbox(to);
    let mut outlet = outlet(from, to).unwrap();
    assert_eq!(next(&mut inbox), None);
    send(&mut outlet, b"awake", 0);
    assert!(!is_readable(&inbox));
    inbox.arm();
    send(&mut outlet, b"asleep", 0);
    assert!(is_readable(&inbox));
    inbox.take_events();
    assert!(!is_readable(&inbox));
    assert_eq!(next(&mut inbox).unwrap().0, b"awake");
}

#[test]
fn arrivals_change_with_each_datagram() {
    let (from, to) = (addr("127.0.0.1"), addr("127.0.0.1"));
    let mut inbox = inbox(to);
    let mut outlet = outlet(from, to).unwrap();
    let mut seen = vec![inbox.arrivals()];
    for _ in 0..3 {
        send(&mut outlet, b"", 0);
        inbox.take_events();
        seen.push(inbox.arrivals());
    }
    drop(outlet);
    while next(&mut inbox).is_some() {}
    assert!(seen.windows(2).all(|two| two[0] != two[1]));
    assert_eq!(Some(&inbox.arrivals()), seen.last(), "also when the channel is gone");
}

#[test]
fn a_full_queue_drops() {
    let (from, to) = (addr("127.0.0.1"), addr("127.0.0.1"));
    let mut inbox = inbox(to);
    let mut outlet = outlet(from, to).unwrap();
    let large = vec![1; 60_000];
    let sent = (0..10).map(|_| send(&mut outlet, &large, 0)).filter(|sent| *sent == Sent::Done).count();
    assert_eq!(sent, 4);
    assert_eq!(send(&mut outlet, &large, 0), Sent::Dropped);
    let mut got = 0;
    while let Some((bytes, _)) = next(&mut inbox) {
        assert_eq!(bytes, large);
        got += 1;
    }
    assert_eq!(got, 4);
}

#[test]
fn the_number_of_channels_is_bounded() {
    let to = addr("127.0.0.1");
    let mut inbox = inbox(to);
    let source = |number: u16| SocketAddr::from(([127, 0, 0, 1], 1000 + number));
    let mut outlets: Vec<Outlet> = Vec::new();
    for number in 0..400 {
        outlets.push(outlet(source(number), to).unwrap());
        inbox.take_events();
    }
    assert_eq!(inbox.descriptors(), 2 + 256);
    let sent = outlets.iter_mut().map(|outlet| send(outlet, b"x", 0)).filter(|sent| *sent == Sent::Done).count();
    assert_eq!(sent, 256, "the others know that they have no place");
    // All have something to say: nobody else is let in.
    let mut late = outlet(source(999), to).unwrap();
    inbox.take_events();
    assert_eq!(send(&mut late, b"x", LOOK_EVERY), Sent::Gone);
}

#[test]
fn addresses_that_are_not_one_hosts_are_nobodys() {
    for text in ["255.255.255.255:9", "224.0.0.1:9", "127.255.255.255:9", "[ff02::1]:9"] {
        assert_eq!(source(text.parse().unwrap(), None), None, "{text}");
    }
    let home = "127.0.0.1".parse().unwrap();
    assert_eq!(source("127.0.0.9:9".parse().unwrap(), None), Some(home));
    let bound = "127.0.0.3".parse().unwrap();
    assert_eq!(source("127.0.0.9:9".parse().unwrap(), Some(bound)), Some(bound));
}

/// Anybody of the same user may come to the door.
fn intruder(to: SocketAddr) -> OwnFd {
    channel::connect(&name::candidates(addr("127.0.0.1"), to), 0).unwrap().unwrap()
}

#[test]
fn intruders_are_shown_out_and_harm_nobody() {
    let (from, to) = (addr("127.0.0.1"), addr("127.0.0.1"));
    let mut inbox = inbox(to);
    let mut good = outlet(from, to).unwrap();
    let greeting = greeting::address_bytes(from);
    let mut portless = from;
    portless.set_port(0);
    let file = |len: u64| -> OwnedFd {
        let file = rustix::fs::memfd_create("any", rustix::fs::MemfdFlags::ALLOW_SEALING).unwrap();
        rustix::fs::ftruncate(&file, len).unwrap();
        file
    };
    let (silent, nothing, unsealed) = (intruder(to), intruder(to), intruder(to));
    channel::send(nothing.as_fd(), &greeting, None).unwrap();
    channel::send(unsealed.as_fd(), &greeting, Some(file(1 << 20).as_fd())).unwrap();
    let (long, short, nobody) = (intruder(to), intruder(to), intruder(to));
    channel::send(long.as_fd(), &[7; 100], None).unwrap();
    channel::send(short.as_fd(), &[7], None).unwrap();
    channel::send(nobody.as_fd(), &greeting::address_bytes(portless), Some(file(9).as_fd())).unwrap();
    send(&mut good, b"good", 1);
    assert_eq!(next(&mut inbox), Some((b"good".to_vec(), from)));
    assert_eq!(inbox.descriptors(), 2 + 2, "the good one, and the one that has said nothing yet");
    for shown_out in [nothing, unsealed, long, short, nobody] {
        assert_eq!(channel::take_ring(shown_out.as_fd()), Bell::End);
    }
    drop(silent);
    assert_eq!(next(&mut inbox), None);
    assert_eq!(inbox.descriptors(), 2 + 1);
}

#[test]
fn an_ipv4_socket_has_no_ipv6_senders() {
    let to = addr("127.0.0.1");
    let mut inbox = Inbox::new(false).unwrap();
    inbox.open(to, false, None).unwrap();
    let stranger = intruder(to);
    let (_writer, file) = Writer::new().unwrap();
    channel::send(stranger.as_fd(), &greeting::address_bytes("[::1]:9".parse().unwrap()), Some(file.as_fd())).unwrap();
    assert_eq!(next(&mut inbox), None);
    assert_eq!(channel::take_ring(stranger.as_fd()), Bell::End);
}

#[derive(Clone, Debug)]
enum Step {
    Open,
    Send(u8, u16),
    Close(u8),
    Bell(u8),
    Take(bool),
    Reopen,
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        2 => Just(Step::Open),
        8 => (any::<u8>(), prop_oneof![0..50_u16, any::<u16>()]).prop_map(|(of, len)| Step::Send(of, len)),
        1 => any::<u8>().prop_map(Step::Close),
        1 => any::<u8>().prop_map(Step::Bell),
        6 => any::<bool>().prop_map(Step::Take),
        1 => Just(Step::Reopen),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 100, failure_persistence: None, ..ProptestConfig::default() })]

    /// Whatever senders and the receiver do, each sender's datagrams come in its order, each once, and whole; what was taken for sent is lost
    /// only where the receiver turned its back.
    #[test]
    fn channels_keep_order_and_bounds(steps in prop::collection::vec(step(), 1..120)) {
        let to = addr("127.0.0.1");
        let mut inbox = inbox(to);
        let mut outlets: Vec<(SocketAddr, Outlet, u32)> = Vec::new();
        let mut last: std::collections::HashMap<SocketAddr, u32> = std::collections::HashMap::new();
        let (mut sent, mut got, mut lossless, mut sources) = (0, 0, true, 0);
        for (now, step) in steps.into_iter().enumerate() {
            let many = outlets.len();
            match step {
                Step::Open if many < 6 => {
                    sources += 1;
                    let source = SocketAddr::from(([127, 0, 0, 2], 1000 + sources));
                    outlets.extend(outlet(source, to).map(|outlet| (source, outlet, 0)));
                }
                Step::Send(of, len) if many > 0 => {
                    let (_, outlet, number) = &mut outlets[usize::from(of) % many];
                    *number += 1;
                    let mut bytes = number.to_ne_bytes().to_vec();
                    bytes.resize(4 + usize::from(len).min(LONGEST - 4), 7);
                    sent += usize::from(send(outlet, &bytes, now as u64) == Sent::Done);
                }
                Step::Close(of) if many > 0 => drop(outlets.swap_remove(usize::from(of) % many)),
                Step::Bell(of) if many > 0 => {
                    let _ = channel::ring(outlets[usize::from(of) % many].1.socket.as_fd());
                }
                Step::Take(arms) => {
                    if arms {
                        inbox.arm();
                    }
                    if let Some((bytes, source)) = next(&mut inbox) {
                        let number = u32::from_ne_bytes(*bytes.first_chunk().unwrap());
                        prop_assert!(bytes[4..].iter().all(|byte| *byte == 7));
                        prop_assert!(last.insert(source, number).is_none_or(|before| before < number));
                        got += 1;
                    }
                }
                Step::Reopen => {
                    lossless = false;
                    inbox.close();
                    open_again(&mut inbox, to);
                    outlets.clear();
                }
                Step::Open | Step::Send(..) | Step::Close(_) | Step::Bell(_) => {}
            }
        }
        while next(&mut inbox).is_some() {
            got += 1;
        }
        prop_assert!(got <= sent && (!lossless || got == sent), "{} of {}", got, sent);
        outlets.clear();
        // One ring is taken at a time. (See `open_again` on children.)
        let begun = std::time::Instant::now();
        while inbox.descriptors() > 2 && begun.elapsed().as_secs() < 30 {
            drop(next(&mut inbox));
        }
        prop_assert_eq!(inbox.descriptors(), 2, "nothing is left of those that are gone");
    }
}
