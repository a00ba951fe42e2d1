//! Queues for datagrams.

use core::net::SocketAddr;
use std::io::IoSlice;

use super::DatagramHarness;
use crate::{
    error::Errno,
    fabric::datagram::{Found, Handle, Posted, Queue},
};

/// Any port will do: paths lead to hosts.
const PORT: u16 = 4791;

/// Waits for the end of a search.
fn search(harness: &mut dyn DatagramHarness, queue: &mut dyn Queue, request: u64, peer: SocketAddr) -> Option<Handle> {
    queue.find(request, peer).unwrap();
    loop {
        if let Some(found) = queue.found() {
            assert_eq!(found.request, request);
            return found.handle;
        }
        assert!(harness.turn(), "the search does not end");
    }
}

/// The path to an address of this host, which is the queue's.
fn path(harness: &mut dyn DatagramHarness, queue: &mut dyn Queue) -> Handle {
    let own = SocketAddr::new(queue.local(), PORT);
    search(harness, queue, 1, own).expect("no path to the own address")
}

/// Takes the next message, if there is one now.
fn take(queue: &mut dyn Queue) -> Option<Vec<u8>> {
    let mut message = vec![0; queue.next_len()?];
    queue.read(0, &mut message).unwrap();
    queue.take();
    Some(message)
}

/// Waits for the next message.
fn receive(harness: &mut dyn DatagramHarness, queue: &mut dyn Queue) -> Vec<u8> {
    loop {
        if let Some(message) = take(queue) {
            return message;
        }
        assert!(harness.turn(), "the message does not come");
    }
}

fn send(queue: &mut dyn Queue, path: Handle, number: u32, header: &[u8], bytes: &[&[u8]]) -> Posted {
    let slices: Vec<IoSlice<'_>> = bytes.iter().map(|bytes| IoSlice::new(bytes)).collect();
    queue.send(path, number, header, &slices).unwrap()
}

/// Sends it as soon as there is room.
fn put(harness: &mut dyn DatagramHarness, queue: &mut dyn Queue, path: Handle, number: u32, bytes: &[&[u8]]) {
    while send(queue, path, number, b"", bytes) != Posted::Done {
        assert!(harness.turn(), "it stays full");
    }
}

fn two(harness: &mut dyn DatagramHarness) -> (Box<dyn Queue>, Box<dyn Queue>) {
    (harness.queue(), harness.queue())
}

pub(super) fn a_message_arrives_as_it_was_sent(harness: &mut dyn DatagramHarness) {
    let (mut one, mut other) = two(harness);
    let path = path(harness, &mut *one);
    assert_eq!(other.next_len(), None);
    assert_eq!(send(&mut *one, path, other.number(), b"head", &[b"some ", b"", b"bytes"]), Posted::Done);
    while other.next_len().is_none() {
        assert!(harness.turn(), "the message does not come");
    }
    // It stays until it is taken, and may be read in parts.
    assert_eq!((other.next_len(), other.next_len()), (Some(14), Some(14)));
    assert_eq!((other.arrivals(), one.arrivals()), (1, 0));
    let mut part = [0; 4];
    other.read(10, &mut part).unwrap();
    assert_eq!(&part, b"ytes");
    assert_eq!((other.read(11, &mut part), other.read(usize::MAX, &mut part)), (Err(Errno::FAULT), Err(Errno::FAULT)));
    assert_eq!(take(&mut *other).as_deref(), Some(&b"headsome bytes"[..]));
    assert_eq!((other.next_len(), other.read(0, &mut part), one.next_len()), (None, Err(Errno::FAULT), None));
    // Nothing to take.
    other.take();
    assert_eq!(send(&mut *one, path, other.number(), b"", &[b"next"]), Posted::Done);
    assert_eq!(receive(harness, &mut *other), b"next");
    assert_eq!(other.arrivals(), 2);
}

pub(super) fn queues_have_numbers_of_their_own(harness: &mut dyn DatagramHarness) {
    let (mut one, mut other) = two(harness);
    let third = harness.queue();
    let numbers = [one.number(), other.number(), third.number()];
    assert!(numbers.iter().all(|number| *number != 0 && *number < 1 << 24), "{numbers:?}");
    assert!(numbers[0] != numbers[1] && numbers[1] != numbers[2] && numbers[0] != numbers[2], "{numbers:?}");
    let path = path(harness, &mut *one);
    for (number, text) in numbers.iter().zip([b"1", b"2", b"3"]) {
        assert_eq!(send(&mut *one, path, *number, b"", &[text]), Posted::Done);
    }
    assert_eq!((receive(harness, &mut *one), receive(harness, &mut *other)), (b"1".to_vec(), b"2".to_vec()));
    assert_eq!((take(&mut *one), take(&mut *other)), (None, None));
}

pub(super) fn a_queue_reaches_itself(harness: &mut dyn DatagramHarness) {
    let mut queue = harness.queue();
    let path = path(harness, &mut *queue);
    let number = queue.number();
    assert_eq!(send(&mut *queue, path, number, b"to ", &[b"myself"]), Posted::Done);
    assert_eq!(receive(harness, &mut *queue), b"to myself");
}

pub(super) fn messages_of_every_length(harness: &mut dyn DatagramHarness) {
    let (mut one, mut other) = two(harness);
    let path = path(harness, &mut *one);
    let largest = one.largest();
    assert!((256..=2048).contains(&largest), "{largest}");
    for len in [1, 2, 63, 64, 65, 127, 128, 129, 255, largest - 1, largest] {
        let bytes: Vec<u8> = (0..len).map(|at| (at * 7 + len) as u8).collect();
        let (header, rest) = bytes.split_at(len.min(8));
        while send(&mut *one, path, other.number(), header, &[rest]) != Posted::Done {
            assert!(harness.turn(), "it stays full");
        }
        assert_eq!(receive(harness, &mut *other), bytes, "{len}");
    }
    assert_eq!(send(&mut *one, path, other.number(), b"12345678", &[&vec![0; largest - 7]]), Posted::TooLong);
    put(harness, &mut *one, path, other.number(), &[b"behind"]);
    assert_eq!(receive(harness, &mut *other), b"behind");
}

pub(super) fn what_is_given_may_be_changed(harness: &mut dyn DatagramHarness) {
    let (mut one, mut other) = two(harness);
    let path = path(harness, &mut *one);
    for len in [10, 200] {
        let mut bytes = vec![b'a'; len];
        assert_eq!(send(&mut *one, path, other.number(), b"", &[&bytes]), Posted::Done);
        bytes.fill(b'b');
        assert_eq!(send(&mut *one, path, other.number(), b"", &[&bytes]), Posted::Done);
        bytes.fill(b'c');
        assert_eq!(receive(harness, &mut *other), vec![b'a'; len]);
        assert_eq!(receive(harness, &mut *other), vec![b'b'; len]);
    }
}

/// The sender never waits; when there is time, there is room again.
pub(super) fn a_full_queue_drops_and_goes_on(harness: &mut dyn DatagramHarness) {
    let (mut one, mut other) = two(harness);
    let path = path(harness, &mut *one);
    let mut done = 0_u32;
    for _ in 0..2000 {
        match send(&mut *one, path, other.number(), b"", &[&[1; 200]]) {
            Posted::Done => done += 1,
            Posted::Full => {}
            Posted::TooLong => panic!("it fits"),
        }
        let _ = take(&mut *other);
    }
    assert!(done > 0);
    for round in 0..100_u8 {
        put(harness, &mut *one, path, other.number(), &[&[2, round]]);
        while receive(harness, &mut *other) != [2, round] {}
    }
}

/// A receiver that does not look loses what it has no room for, and nothing else.
pub(super) fn a_flood_is_dropped_and_the_rest_comes(harness: &mut dyn DatagramHarness) {
    let (mut one, mut other) = two(harness);
    let path = path(harness, &mut *one);
    for _ in 0..600 {
        put(harness, &mut *one, path, other.number(), &[b"flood"]);
    }
    harness.turn();
    let mut come = 0;
    while let Some(message) = take(&mut *other) {
        assert_eq!(message, b"flood");
        come += 1;
    }
    assert!((1..=600).contains(&come), "{come}");
    put(harness, &mut *one, path, other.number(), &[b"after"]);
    while receive(harness, &mut *other) != b"after" {}
}

pub(super) fn no_path_is_reported(harness: &mut dyn DatagramHarness) {
    let mut queue = harness.queue();
    let nowhere = SocketAddr::new(harness.unreachable(), PORT);
    assert_eq!(search(harness, &mut *queue, 5, nowhere), None);
    // That is no reason not to find others.
    path(harness, &mut *queue);
    assert_eq!(queue.found(), None);
}

pub(super) fn many_searches_end(harness: &mut dyn DatagramHarness) {
    let mut queue = harness.queue();
    let own = SocketAddr::new(queue.local(), PORT);
    let mut wanted = std::collections::BTreeSet::new();
    for request in 0..200 {
        match queue.find(request, own) {
            Ok(()) => assert!(wanted.insert(request)),
            Err(errno) => assert_eq!(errno, Errno::AGAIN),
        }
    }
    assert!(wanted.len() >= 16, "{}", wanted.len());
    let number = queue.number();
    while !wanted.is_empty() {
        let Some(Found { request, handle }) = queue.found() else {
            assert!(harness.turn(), "{} do not end", wanted.len());
            continue;
        };
        assert!(wanted.remove(&request), "{request} was not asked for");
        let handle = handle.expect("no path to the own address");
        put(harness, &mut *queue, handle, number, &[b"x"]);
        assert_eq!(receive(harness, &mut *queue), b"x");
    }
    queue.find(1000, own).unwrap();
}

/// Also where messages are on their way by it.
pub(super) fn a_path_that_is_released_is_gone(harness: &mut dyn DatagramHarness) {
    let (mut one, mut other) = two(harness);
    for round in 0..40_u8 {
        let path = path(harness, &mut *one);
        put(harness, &mut *one, path, other.number(), &[&[round; 150]]);
        one.release(path);
        one.release(path);
        assert_eq!(one.send(path, other.number(), b"", &[IoSlice::new(b"x")]), Err(Errno::INVAL));
        assert_eq!(receive(harness, &mut *other), [round; 150]);
    }
}

pub(super) fn a_search_may_outlive_its_queue(harness: &mut dyn DatagramHarness) {
    let mut queue = harness.queue();
    let own = SocketAddr::new(queue.local(), PORT);
    for request in 0..8 {
        queue.find(request, own).unwrap();
    }
    let unused = path_of(harness, &mut *queue);
    drop(queue);
    // Other queues neither hear of it nor have its paths.
    let mut queue = harness.queue();
    assert_eq!(search(harness, &mut *queue, 77, own).is_some(), unused.is_some());
    assert_eq!(queue.found(), None);
}

/// The outcome of any of several searches.
fn path_of(harness: &mut dyn DatagramHarness, queue: &mut dyn Queue) -> Option<Handle> {
    loop {
        if let Some(found) = queue.found() {
            return found.handle;
        }
        assert!(harness.turn(), "no search ends");
    }
}

pub(super) fn an_armed_queue_is_announced(harness: &mut dyn DatagramHarness) {
    let (mut one, mut other) = two(harness);
    let path = path(harness, &mut *one);
    let Some(fd) = other.event_fd() else { return };
    for _ in 0..5 {
        other.arm().unwrap();
        assert_eq!(other.next_len(), None);
        assert!(!harness.is_readable(fd));
        assert_eq!(send(&mut *one, path, other.number(), b"", &[b"bell"]), Posted::Done);
        while !harness.is_readable(fd) {
            assert!(harness.turn(), "it is not announced");
        }
        assert!(other.clear_events() && !harness.is_readable(fd) && !other.clear_events());
        assert_eq!(receive(harness, &mut *other), b"bell");
    }
}
