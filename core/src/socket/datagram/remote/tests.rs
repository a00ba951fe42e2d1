//! Two sockets over a simulated network, whose datagrams of UDP the test carries.

use core::net::Ipv4Addr;

use super::*;
use crate::{fabric::sim::datagram::Network, socket::datagram::turns::KERNELS_TURN};

const ONE: SocketAddr = SocketAddr::new(IpAddr::V4(Ipv4Addr::new(10, 9, 0, 1)), 1001);
const OTHER: SocketAddr = SocketAddr::new(IpAddr::V4(Ipv4Addr::new(10, 9, 0, 2)), 2002);

struct End {
    remote: Remote,
    own: SocketAddr,
}

impl End {
    fn new(network: &Network, own: SocketAddr) -> Self {
        let mut remote = Remote::default();
        assert!(remote.add(Box::new(network.queue(own.ip()))));
        End { remote, own }
    }

    fn send(&mut self, to: SocketAddr, bytes: &[u8], now: Nanos) -> Sent {
        self.remote.send(self.own, to, &[IoSlice::new(bytes)], bytes.len(), now)
    }

    /// A datagram of UDP: header, or none, and bytes. What the program gets, and the answer.
    fn hear(&mut self, source: SocketAddr, header: Option<UdpHeader>, bytes: &[u8], now: Nanos) -> (Option<Vec<u8>>, Option<UdpHeader>) {
        let mut whole = Vec::new();
        if let Some(header) = header {
            let mut room = [0; UdpHeader::V6_BYTES];
            let len = header.emit(&mut room);
            whole.extend_from_slice(&room[..len]);
        }
        whole.extend_from_slice(bytes);
        let come = self.remote.datagram(Some(self.own.ip()), source, &whole, now);
        (come.deliver_from.map(|from| whole[from..].to_vec()), come.answer)
    }

    fn take(&mut self) -> Option<(SocketAddr, Vec<u8>)> {
        let mut room = [0; 4096];
        let message = self.remote.take(&mut [IoSliceMut::new(&mut room)], false, false, 0)?;
        Some((message.source, room[..message.copied].to_vec()))
    }
}

fn asked(sent: Sent) -> UdpHeader {
    match sent {
        Sent::Asking(header) => header,
        sent => panic!("{sent:?}"),
    }
}

/// Both know each other afterwards.
fn acquaint(network: &Network, one: &mut End, other: &mut End, now: Nanos) {
    let header = asked(one.send(other.own, b"hello", now));
    assert_eq!(header.operation, Operation::Data);
    let (bytes, answer) = other.hear(one.own, Some(header), b"hello", now);
    assert_eq!(bytes.as_deref(), Some(&b"hello"[..]));
    let answer = answer.unwrap();
    assert_eq!((answer.operation, answer.address), (Operation::Control, other.own.ip()));
    assert_eq!(one.hear(other.own, Some(answer), b"", now), (None, None));
    network.turn();
}

fn two() -> (Network, End, End) {
    let network = Network::default();
    let (one, other) = (End::new(&network, ONE), End::new(&network, OTHER));
    (network, one, other)
}

#[test]
fn both_ways_after_one_question() {
    let (network, mut one, mut other) = two();
    acquaint(&network, &mut one, &mut other, 0);
    assert_eq!((one.send(OTHER, b"there", 1), other.send(ONE, b"back", 1)), (Sent::Queue, Sent::Queue));
    assert_eq!(other.take(), Some((ONE, b"there".to_vec())));
    assert_eq!(one.take(), Some((OTHER, b"back".to_vec())));
    assert_eq!((one.take(), other.take()), (None, None));
}

#[test]
fn nobody_waits_for_an_answer() {
    let (network, mut one, mut other) = two();
    let header = asked(one.send(OTHER, b"1", 0));
    assert_eq!(one.send(OTHER, b"2", 0), Sent::Plain);
    let (_, answer) = other.hear(ONE, Some(header), b"1", 0);
    one.hear(OTHER, answer, b"", 0);
    // Nor for the path.
    assert_eq!((one.send(OTHER, b"3", 0), other.send(ONE, b"4", 0)), (Sent::Plain, Sent::Plain));
    network.turn();
    assert_eq!((one.send(OTHER, b"5", 0), other.send(ONE, b"6", 0)), (Sent::Queue, Sent::Queue));
}

#[test]
fn plain_peers_stay_plain() {
    let (_network, mut one, _) = two();
    asked(one.send(OTHER, b"1", 0));
    assert_eq!(one.hear(OTHER, None, b"plain answer", 0), (Some(b"plain answer".to_vec()), None));
    for now in [1, ANSWER_TIME, SILENCE * 300] {
        assert_eq!(one.send(OTHER, b"2", now), Sent::Plain);
    }
}

/// What it sends while its path is looked for is plain, too.
#[test]
fn who_was_asked_is_asked_again_after_a_refusal() {
    let (network, mut one, mut other) = two();
    one.remote.settle(Some(OTHER));
    acquaint(&network, &mut one, &mut other, 0);
    one.remote.plain(OTHER);
    one.remote.refused();
    assert!(one.remote.is_to_be_asked(OTHER));
}

#[test]
fn who_begins_without_asking_is_not_asked() {
    let mut remote = Remote::default();
    assert!(remote.is_to_be_asked(ONE));
    remote.plain(ONE);
    for port in 1..1000 {
        remote.plain(SocketAddr::new(ONE.ip(), port));
        assert!(!remote.is_to_be_asked(ONE));
    }
    for port in 2000..6000 {
        remote.plain(SocketAddr::new(ONE.ip(), port));
    }
    assert!(remote.is_to_be_asked(ONE) && remote.plain.iter().all(|some| some.len() <= MOST_PLAIN));
}

#[test]
fn without_a_path_it_stays_plain() {
    let (network, mut one, mut other) = two();
    network.cut(OTHER.ip());
    acquaint(&network, &mut one, &mut other, 0);
    assert_eq!((one.send(OTHER, b"1", 1), other.send(ONE, b"2", 1)), (Sent::Plain, Sent::Queue));
    assert_eq!(one.take(), Some((OTHER, b"2".to_vec())));
}

#[test]
fn what_is_too_long_goes_by_udp() {
    let (network, mut one, mut other) = two();
    acquaint(&network, &mut one, &mut other, 0);
    let largest = 1024 - UdHeader::V4_BYTES;
    assert_eq!(one.send(OTHER, &vec![7; largest], 1), Sent::Queue);
    assert_eq!(one.send(OTHER, &vec![7; largest + 1], 1), Sent::Plain);
    assert_eq!(other.take(), Some((ONE, vec![7; largest])));
}

#[test]
fn a_full_queue_drops() {
    let (network, mut one, mut other) = two();
    acquaint(&network, &mut one, &mut other, 0);
    let sent: Vec<Sent> = (0..20).map(|_| one.send(OTHER, b"x", 1)).collect();
    assert!(sent.contains(&Sent::Queue) && sent.ends_with(&[Sent::Dropped]), "{sent:?}");
    network.turn();
    assert_eq!(one.send(OTHER, b"x", 2), Sent::Queue);
}

#[test]
fn a_silent_one_is_asked_again() {
    let (network, mut one, mut other) = two();
    acquaint(&network, &mut one, &mut other, 0);
    assert_eq!(one.send(OTHER, b"known", 0), Sent::Queue);
    let again = asked(one.send(OTHER, b"again", SILENCE));
    assert_eq!(one.send(OTHER, b"meanwhile", SILENCE + 1), Sent::Queue);
    let (bytes, answer) = other.hear(ONE, Some(again), b"again", SILENCE + 2);
    assert_eq!(bytes.as_deref(), Some(&b"again"[..]));
    one.hear(OTHER, answer, b"", SILENCE + 3);
    assert_eq!(one.send(OTHER, b"on", SILENCE + ANSWER_TIME + 4), Sent::Queue);
    asked(one.send(OTHER, b"and again", 3 * SILENCE));
    asked(one.send(OTHER, b"once more", 3 * SILENCE + ANSWER_TIME));
    assert_eq!(one.send(OTHER, b"gone", 3 * SILENCE + ANSWER_TIME + 1), Sent::Plain);
}

#[test]
fn looks_take_place_now_and_then() {
    let (_network, mut one, _) = two();
    assert!(one.remote.is_look_due(1) && !one.remote.is_look_due(LOOK_EVERY));
    assert!(one.remote.is_look_due(1 + LOOK_EVERY) && !one.remote.is_look_due(2 + LOOK_EVERY));
}

/// What a sender asks with was sent before the message that is there.
#[test]
fn a_question_may_have_been_overtaken() {
    let (network, mut one, mut other) = two();
    acquaint(&network, &mut one, &mut other, 0);
    other.remote.kernel_is_empty();
    let mut room = [0; 16];
    let mut take = |other: &mut End, at_once, now| other.remote.take(&mut [IoSliceMut::new(&mut room)], false, at_once, now).is_some();
    assert_eq!(one.send(OTHER, b"1", 1), Sent::Queue);
    assert!(!take(&mut other, true, 1), "of a new sender");
    other.remote.kernel_is_empty();
    assert!(take(&mut other, true, SILENCE - 1));
    network.turn();
    assert_eq!(one.send(OTHER, b"2", 2), Sent::Queue);
    assert!(!take(&mut other, true, SILENCE) && take(&mut other, false, SILENCE));
}

#[test]
fn who_ends_says_so() {
    let (network, mut one, mut other) = two();
    acquaint(&network, &mut one, &mut other, 0);
    assert_eq!(other.remote.farewells(SILENCE), []);
    let [(peer, header)] = other.remote.farewells(1)[..] else { panic!("one peer") };
    assert_eq!((peer, header.queue_pair, header.address), (ONE, 0, OTHER.ip()));
    assert_eq!(one.hear(OTHER, Some(header), b"", 1), (None, None));
    asked(one.send(OTHER, b"anew", 2));
}

#[test]
fn nobody_is_believed_after_a_refusal() {
    let (network, mut one, mut other) = two();
    acquaint(&network, &mut one, &mut other, 0);
    one.remote.refused();
    assert_eq!(one.send(OTHER, b"not connected", 1), Sent::Queue);
    one.remote.settle(Some(OTHER));
    one.remote.refused();
    asked(one.send(OTHER, b"2", 2));
}

#[test]
fn messages_can_be_looked_at_and_cut() {
    let (network, mut one, mut other) = two();
    acquaint(&network, &mut one, &mut other, 0);
    for bytes in [&b"abcdef"[..], b"", b"gh"] {
        assert_eq!(one.send(OTHER, bytes, 1), Sent::Queue);
    }
    let (mut small, mut rest) = ([0; 2], [0; 3]);
    for stays in [true, false] {
        assert_eq!(other.remote.next_len(0), Some(6));
        let mut into = [IoSliceMut::new(&mut small), IoSliceMut::new(&mut rest)];
        let message = other.remote.take(&mut into, stays, false, 0);
        assert_eq!(message, Some(Message { copied: 5, len: 6, source: ONE }));
        assert_eq!((&small, &rest, other.remote.is_peeked()), (b"ab", b"cde", stays));
    }
    assert_eq!(other.remote.next_len(0), Some(0));
    assert_eq!((other.take(), other.take(), other.take()), (Some((ONE, vec![])), Some((ONE, b"gh".to_vec())), None));
}

/// What went by UDP before the first message is older.
#[test]
fn the_kernels_queue_has_its_turn() {
    let (network, mut one, mut other) = two();
    acquaint(&network, &mut one, &mut other, 0);
    assert_eq!(one.send(OTHER, b"1", 1), Sent::Queue);
    let mut room = [0; 16];
    let take = |other: &mut End, room: &mut [u8], at_once| other.remote.take(&mut [IoSliceMut::new(room)], false, at_once, 0).is_some();
    assert!(!take(&mut other, &mut room, true));
    other.remote.kernel_is_empty();
    assert!(take(&mut other, &mut room, true));
    for _ in 1..KERNELS_TURN {
        network.turn();
        assert_eq!(one.send(OTHER, b"2", 1), Sent::Queue);
        assert!(take(&mut other, &mut room, true));
    }
    network.turn();
    assert_eq!(one.send(OTHER, b"3", 1), Sent::Queue);
    assert!(!take(&mut other, &mut room, true));
    assert!(take(&mut other, &mut room, true));
}

#[test]
fn a_connected_one_hears_its_peer_alone() {
    let (network, mut one, mut other) = two();
    acquaint(&network, &mut one, &mut other, 0);
    let mut third = End::new(&network, SocketAddr::new(ONE.ip(), 3003));
    acquaint(&network, &mut third, &mut other, 0);
    other.remote.settle(Some(ONE));
    assert_eq!((third.send(OTHER, b"no", 1), one.send(OTHER, b"yes", 1)), (Sent::Queue, Sent::Queue));
    assert_eq!((other.take(), other.take()), (Some((ONE, b"yes".to_vec())), None));
}

#[test]
fn nonsense_is_dropped() {
    let (network, mut one, mut other) = two();
    acquaint(&network, &mut one, &mut other, 0);
    let number = other.remote.queues[0].number();
    let mut rogue = network.queue(ONE.ip());
    rogue.find(1, OTHER).unwrap();
    network.turn();
    let path = rogue.found().unwrap().handle.unwrap();
    for message in [&b""[..], b"x", &[4, 24, 1, 1, 10, 9, 0, 1], &[4, 8, 0, 0, 10, 9, 0, 1], &[6; 40]] {
        rogue.send(path, number, message, &[]).unwrap();
    }
    let mut ipv6 = [0; UdHeader::V6_BYTES];
    UdHeader { source: "[fd09::1]:7".parse().unwrap() }.emit(&mut ipv6);
    rogue.send(path, number, &ipv6, &[]).unwrap();
    assert_eq!(one.send(OTHER, b"sense", 1), Sent::Queue);
    assert_eq!((other.take(), other.take()), (Some((ONE, b"sense".to_vec())), None));
}

/// The socket was bound anew: what begins at the old address is given up.
#[test]
fn another_address_asks_anew() {
    let (network, mut one, mut other) = two();
    acquaint(&network, &mut one, &mut other, 0);
    one.own.set_ip(IpAddr::V4(Ipv4Addr::new(10, 9, 0, 7)));
    assert_eq!(one.send(OTHER, b"no queue", 1), Sent::Plain);
    assert!(one.remote.add(Box::new(network.queue(one.own.ip()))));
    assert!(!one.remote.add(Box::new(network.queue(one.own.ip()))));
    assert_eq!(one.send(OTHER, b"another queue", 2), Sent::Plain);
    assert_eq!(asked(one.send(OTHER, b"?", 3)).address, one.own.ip());
}

/// Peers that know the queue go on to use it.
#[test]
fn a_socket_that_is_left_to_the_kernel_lingers() {
    let (network, mut one, mut other) = two();
    assert!(Remote::default().retire(0));
    acquaint(&network, &mut one, &mut other, 0);
    assert!(!other.remote.retire(5));
    assert_eq!(one.send(OTHER, b"late", 6), Sent::Queue);
    assert!(!other.remote.retire(5 + LINGER));
    assert_eq!(other.take(), Some((ONE, b"late".to_vec())));
    assert!(!other.remote.retire(4 + LINGER));
    assert!(other.remote.retire(5 + LINGER));
    const { assert!(LINGER > SILENCE + ANSWER_TIME) };
}
