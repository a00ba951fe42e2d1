//! What happens to one destination, step by step.

use super::*;

const PEER: &str = "10.0.0.2:7";
const PLAIN: Arrival = Arrival { deliver_from: Some(0), answer: false, resolve: None };

fn answered(queue_pair: u32) -> Destinations<u32> {
    let mut known = Destinations::new(4);
    assert_eq!(known.send(addr(PEER), 10, 2048, 0), Way::Asking);
    let arrival = known.datagram(addr(PEER), &tagged(Operation::Control, queue_pair, addr(PEER), b""), 1);
    let resolve = Resolve { destination: addr(PEER), queue_pair };
    assert_eq!(arrival, Arrival { deliver_from: None, answer: false, resolve: Some(resolve) });
    assert_eq!(known.send(addr(PEER), 10, 2048, 2), Way::Plain, "its path is not known yet");
    known.resolved(resolve, Some(1000 + queue_pair), 3);
    known
}

#[test]
fn a_destination_that_answers_gets_messages() {
    let mut known = answered(5);
    assert_eq!(known.send(addr(PEER), 10, 2048, 4), Way::Queue(1005, 5));
    assert_eq!(known.faults(), Faults::default());
}

#[test]
fn a_destination_that_never_answers_gets_one_header() {
    let mut known = Destinations::<u32>::new(4);
    assert!(known.is_new(addr(PEER)));
    assert_eq!(known.send(addr(PEER), 10, 2048, 0), Way::Asking);
    assert!(!known.is_new(addr(PEER)));
    for hour in 0..100 {
        assert_eq!(known.send(addr(PEER), 10, 2048, hour * 3600 * SECOND), Way::Plain);
    }
}

#[test]
fn who_asks_is_answered_and_known_at_once() {
    let mut known = Destinations::new(4);
    let arrival = known.datagram(addr(PEER), &tagged(Operation::Data, 9, addr(PEER), b"hello"), 0);
    let resolve = Resolve { destination: addr(PEER), queue_pair: 9 };
    assert_eq!(arrival, Arrival { deliver_from: Some(16), answer: true, resolve: Some(resolve) });
    let again = known.datagram(addr(PEER), &tagged(Operation::Data, 9, addr(PEER), b""), 1);
    assert_eq!(again, Arrival { deliver_from: Some(16), answer: true, resolve: None }, "one path is enough");
    known.resolved(resolve, Some(1), 2);
    assert_eq!(known.send(addr(PEER), 10, 2048, 3), Way::Queue(1, 9), "it need not be asked");
}

#[test]
fn what_has_no_header_is_delivered_as_it_is() {
    let mut known = Destinations::<u32>::new(4);
    for bytes in [&b""[..], b"U", b"UUUU", b"UUUU\x04\x01\x10\0\0\0\0\x01\x0a\0\0\x02"] {
        assert_eq!(known.datagram(addr(PEER), bytes, 0), PLAIN, "{bytes:?}");
    }
    assert!(known.is_empty());
}

#[test]
fn what_does_not_fit_a_message_goes_by_the_socket() {
    let mut known = answered(5);
    for (len, largest, queue) in [(2040, 2048, true), (2041, 2048, false), (1016, 1024, true), (1017, 1024, false), (2041, 4096, false)] {
        let way = known.send(addr(PEER), len, largest, 4);
        assert_eq!(way == Way::Queue(1005, 5), queue, "{len} of {largest}");
        assert!(queue || way == Way::Plain);
    }
    assert_eq!(known.send(addr(PEER), usize::MAX, 2048, 4), Way::Plain);
}

#[test]
fn a_path_that_is_not_found_leaves_it_to_the_socket() {
    let mut known = Destinations::<u32>::new(4);
    known.send(addr(PEER), 1, 2048, 0);
    let resolve = known.datagram(addr(PEER), &tagged(Operation::Control, 3, addr(PEER), b""), 1).resolve.unwrap();
    known.resolved(resolve, None, 2);
    assert_eq!(known.send(addr(PEER), 1, 2048, 3), Way::Plain);
    assert_eq!(known.faults().unresolved, 1);
}

#[test]
fn a_path_that_comes_too_late_is_given_back() {
    let mut known = answered(5);
    known.resolved(Resolve { destination: addr(PEER), queue_pair: 4 }, Some(77), 4);
    known.resolved(Resolve { destination: addr("10.0.0.9:1"), queue_pair: 4 }, Some(78), 4);
    assert_eq!((known.released(), known.released(), known.released()), (Some(78), Some(77), None));
    assert_eq!(known.send(addr(PEER), 10, 2048, 4), Way::Queue(1005, 5));
}

#[test]
fn silence_is_asked_about_and_ends_the_messages() {
    let mut known = answered(5);
    let later = 4 + SILENCE;
    assert_eq!(known.send(addr(PEER), 10, 2048, later), Way::Asking);
    assert_eq!(known.send(addr(PEER), 10, 2048, later + ANSWER_TIME - 1), Way::Queue(1005, 5), "until it is clear");
    let mut asked = later;
    for question in 1..QUESTIONS {
        let again = asked + (ANSWER_TIME << (question - 1));
        assert!(question == 1 || known.send(addr(PEER), 10, 2048, again - 1) == Way::Plain);
        assert_eq!(known.send(addr(PEER), 10, 2048, again), Way::Asking, "{question}");
        assert_eq!(known.send(addr(PEER), 10, 2048, again + 1), Way::Plain);
        asked = again;
    }
    assert_eq!(known.released(), None, "it may be needed again");
    let end = asked + (ANSWER_TIME << (QUESTIONS - 1));
    assert_eq!(known.send(addr(PEER), 10, 2048, end), Way::Plain);
    assert_eq!(known.released(), Some(1005));
    assert_eq!(known.send(addr(PEER), 10, 2048, end + 1000 * SECOND), Way::Plain);
    // A late answer is one.
    let late = known.datagram(addr(PEER), &tagged(Operation::Control, 5, addr(PEER), b""), end + 1001 * SECOND);
    assert!(late.resolve.is_some());
}

#[test]
fn an_answer_in_doubt_brings_the_messages_back() {
    let mut known = answered(5);
    let later = 4 + SILENCE;
    assert_eq!(known.send(addr(PEER), 10, 2048, later), Way::Asking);
    assert_eq!(known.send(addr(PEER), 10, 2048, later + ANSWER_TIME), Way::Asking);
    assert_eq!(known.send(addr(PEER), 10, 2048, later + ANSWER_TIME + 1), Way::Plain);
    known.datagram(addr(PEER), &tagged(Operation::Control, 5, addr(PEER), b""), later + ANSWER_TIME + 2);
    assert_eq!(known.send(addr(PEER), 10, 2048, later + ANSWER_TIME + 3), Way::Queue(1005, 5));
    // Begun anew meanwhile.
    let later = later + ANSWER_TIME + 2 + SILENCE;
    assert_eq!(known.send(addr(PEER), 10, 2048, later), Way::Asking);
    let resolve = known.datagram(addr(PEER), &tagged(Operation::Control, 8, addr(PEER), b""), later + 1).resolve.unwrap();
    known.resolved(resolve, Some(1008), later + 2);
    assert_eq!(known.send(addr(PEER), 10, 2048, later + 3), Way::Queue(1008, 8));
}

#[test]
fn a_refusal_is_the_end_of_what_is_known() {
    let mut known = answered(5);
    known.refused(addr(PEER));
    assert!(known.is_new(addr(PEER)));
    assert_eq!(known.released(), Some(1005));
    // What was said before does not count; who is there by now is asked.
    assert_eq!(known.datagram(addr(PEER), &tagged(Operation::Control, 5, addr(PEER), b""), 5).resolve, None);
    assert_eq!(known.send(addr(PEER), 10, 2048, 6), Way::Asking);
    known.refused(addr(PEER));
    assert_eq!(known.send(addr(PEER), 10, 2048, 7), Way::Asking);
    assert!(known.datagram(addr(PEER), &tagged(Operation::Control, 6, addr(PEER), b""), 8).resolve.is_some());
    known.refused(addr(PEER));
    known.resolved(Resolve { destination: addr(PEER), queue_pair: 6 }, Some(1006), 9);
    assert_eq!((known.released(), known.send(addr(PEER), 10, 2048, 10)), (Some(1006), Way::Asking));
    known.refused(addr("10.0.0.99:9"));
}

#[test]
fn an_answer_or_a_message_is_no_silence() {
    let mut known = answered(5);
    assert_eq!(known.message(&message(addr(PEER), b"hi"), SILENCE), Some((addr(PEER), 8)));
    assert_eq!(known.send(addr(PEER), 10, 2048, SILENCE + 5), Way::Queue(1005, 5));
    assert_eq!(known.send(addr(PEER), 10, 2048, 2 * SILENCE), Way::Asking);
    known.datagram(addr(PEER), &tagged(Operation::Control, 5, addr(PEER), b""), 2 * SILENCE + 1);
    assert_eq!(known.send(addr(PEER), 10, 2048, 3 * SILENCE), Way::Queue(1005, 5));
}

#[test]
fn a_queue_pair_is_taken_only_for_whom_it_came_from() {
    let mut known = answered(5);
    let (victim, forger) = (addr(PEER), addr("10.0.0.66:7"));
    // In the name of the victim's address, from elsewhere.
    let arrival = known.datagram(forger, &tagged(Operation::Data, 66, victim, b"x"), 4);
    assert_eq!(arrival, Arrival { deliver_from: Some(16), answer: true, resolve: None });
    // From another port of the victim's host: that is another destination.
    known.datagram(addr("10.0.0.2:8"), &tagged(Operation::Control, 66, victim, b""), 4);
    assert_eq!(known.send(victim, 10, 2048, 4), Way::Queue(1005, 5));
    // Unasked, and from a forged source: it is asked about, and the owner's answer counts.
    for operation in [Operation::Control, Operation::Data] {
        assert_eq!(known.datagram(victim, &tagged(operation, 66, victim, b""), 5).resolve, None);
    }
    assert_eq!(known.send(victim, 10, 2048, 6), Way::Asking);
    assert_eq!(known.send(victim, 10, 2048, 7), Way::Queue(1005, 5));
    known.datagram(victim, &tagged(Operation::Control, 5, victim, b""), 8);
    assert_eq!(known.send(victim, 10, 2048, 9), Way::Queue(1005, 5));
    assert_eq!(known.faults().not_believed, 3, "the forger, and twice the victim's name");
    assert_eq!(known.datagram(addr("10.0.0.3:1"), &tagged(Operation::Data, 0, addr("10.0.0.3:1"), b""), 9).resolve, None);
}

#[test]
fn a_peer_that_has_begun_anew_is_found_again() {
    let mut known = answered(5);
    known.datagram(addr(PEER), &tagged(Operation::Data, 8, addr(PEER), b"anew"), 4);
    assert_eq!(known.send(addr(PEER), 10, 2048, 5), Way::Asking);
    let resolve = known.datagram(addr(PEER), &tagged(Operation::Control, 8, addr(PEER), b""), 6).resolve.unwrap();
    known.resolved(resolve, Some(1008), 7);
    assert_eq!(known.send(addr(PEER), 10, 2048, 8), Way::Queue(1008, 8));
    assert_eq!((known.released(), known.released()), (Some(1005), None));
}

#[test]
fn a_mapped_address_is_that_address() {
    let mut known = Destinations::<u32>::new(4);
    let mapped = addr("[::ffff:10.0.0.2]:7");
    let arrival = known.datagram(mapped, &tagged(Operation::Data, 9, addr(PEER), b""), 0);
    assert_eq!(arrival.resolve, Some(Resolve { destination: mapped, queue_pair: 9 }));
}

#[test]
fn scopes_are_destinations_of_their_own_and_flows_are_not() {
    let mut known = Destinations::<u32>::new(4);
    assert_eq!(known.send(addr("[fe80::1%1]:7"), 1, 2048, 0), Way::Asking);
    assert_eq!(known.send(addr("[fe80::1%2]:7"), 1, 2048, 0), Way::Asking);
    let flow = core::net::SocketAddrV6::new("fe80::1".parse().unwrap(), 7, 5, 1).into();
    assert_eq!(known.send(flow, 1, 2048, 0), Way::Plain);
    assert_eq!(known.len(), 2);
}

#[test]
fn a_full_table_forgets_others_first_and_then_the_oldest() {
    let mut known = Destinations::<u32>::new(3);
    let host = |number: u32| addr(&format!("10.0.1.{number}:7"));
    known.send(host(1), 1, 2048, 1);
    for number in 2..100 {
        known.datagram(host(number), &tagged(Operation::Data, number, host(number), b""), u64::from(number));
    }
    assert_eq!((known.len(), known.faults().no_room), (3, 96));
    known.send(host(101), 1, 2048, 200);
    known.send(host(102), 1, 2048, 201);
    assert_eq!(known.send(host(1), 1, 2048, 202), Way::Plain, "it is still known");
    known.send(host(103), 1, 2048, 203);
    assert_eq!(known.send(host(101), 1, 2048, 204), Way::Asking, "it was the oldest");
    assert_eq!((known.len(), known.faults().forgotten), (3, 4));
}

#[test]
fn a_message_that_cannot_be_sent_is_asked_about() {
    let mut known = answered(5);
    known.refused(addr(PEER));
    assert_eq!(known.released(), Some(1005));
    assert_eq!(known.send(addr(PEER), 1, 2048, 4), Way::Asking);
    known.refused(addr("10.0.0.77:1"));
}

#[test]
fn messages_without_a_sender_are_dropped() {
    let mut known = Destinations::<u32>::new(4);
    for bytes in [&b""[..], b"\x04\x08\0\0\x0a\0\0\x02", b"\x04\x18\0\x07\x0a\0\0\x02", b"\x06\x18\0\x07\x0a\0\0\x02"] {
        assert_eq!(known.message(bytes, 0), None, "{bytes:?}");
    }
    assert_eq!(known.faults().malformed, 4);
}

#[test]
fn closing_gives_back_all() {
    let mut known = answered(5);
    known.close();
    assert_eq!((known.released(), known.released()), (Some(1005), None));
    assert!(known.is_empty());
}
