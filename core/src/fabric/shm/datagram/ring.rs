//! The memory of a channel: a sealed memory file that the sender has made, mapped by both ends.
//!
//! | offset | what | written by |
//! |---|---|---|
//! | 0 | `armed`: the receiver wants the bell to be rung at the next datagram | receiver, taken back by the sender |
//! | 4 | `closed`: the receiver takes no more | receiver |
//! | 64 | `written`: bytes that were put in, in all | sender |
//! | 128 | `read`: bytes that were taken out, in all | receiver |
//! | 4096 | the ring: of each datagram a head of 16 bytes (length, four of nothing, time), and its bytes, up to the next multiple of 8 | sender |
//!
//! Each end can write anything anywhere at any time: neither reads back what it has written itself, and what the other says is checked
//! before it is believed. A datagram that does not fit is dropped.
#![forbid(unsafe_code)]

use core::sync::atomic::{AtomicU32, AtomicU64, Ordering, fence};
use std::io::{IoSlice, IoSliceMut};

use rustix::fd::{AsFd, BorrowedFd, OwnedFd};

use super::super::memory::{map_sealed, sealed_file};
use crate::{error::Result, fabric::Region};

const ARMED: usize = 0;
const CLOSED: usize = 4;
const WRITTEN: usize = 64;
const READ: usize = 128;
const RING: usize = 4096;

/// Bytes of the ring, a power of two: as much as a UDP socket holds by default, and four of the largest datagrams.
pub(super) const BYTES: usize = 1 << 18;
/// Bytes of the file.
const FILE: usize = RING + BYTES;
/// Bytes before each datagram.
const HEAD: usize = 16;
const TIME: usize = 8;
/// Longest datagram of UDP over IPv6; over IPv4 it is less, and the kernel says so.
pub(in crate::fabric) const LONGEST: usize = 65_527;

static NOWHERE: AtomicU32 = AtomicU32::new(0);
static NOTHING: AtomicU64 = AtomicU64::new(0);

/// What both ends do.
struct Memory(Region);

impl Memory {
    #[inline(always)]
    fn word(&self, at: usize) -> &AtomicU32 {
        // Within the file, which has its length for ever.
        self.0.word(at).unwrap_or(&NOWHERE)
    }

    #[inline(always)]
    fn long(&self, at: usize) -> &AtomicU64 {
        self.0.long(at).unwrap_or(&NOTHING)
    }

    /// Copies to the ring, from `at` on, round its end.
    fn put(&self, at: u64, from: &[u8]) {
        let place = at as usize & (BYTES - 1);
        let (first, second) = from.split_at(from.len().min(BYTES - place));
        let _ = self.0.write(RING + place, first);
        let _ = self.0.write(RING, second);
    }

    fn get(&self, at: u64, into: &mut [u8]) {
        let place = at as usize & (BYTES - 1);
        let (first, second) = into.split_at_mut(into.len().min(BYTES - place));
        let _ = self.0.read(RING + place, first);
        let _ = self.0.read(RING, second);
    }
}

/// Bytes that a datagram takes.
fn space(len: usize) -> u64 {
    (HEAD + len.next_multiple_of(8)) as u64
}

/// What became of a datagram.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Put {
    /// It is in the ring; true: the bell is to be rung.
    Done(bool),
    /// There is no room for it.
    Full,
    /// The receiver takes no more, or says what makes no sense.
    Closed,
}

/// The sender's end.
pub(super) struct Writer {
    memory: Memory,
    written: u64,
}

impl Writer {
    /// Makes the memory, and its file, to be handed over.
    pub(super) fn new() -> Result<(Self, OwnedFd)> {
        let file = sealed_file(FILE)?;
        let memory = Memory(Region::shared(file.as_fd(), FILE)?);
        Ok((Writer { memory, written: 0 }, file))
    }

    /// Puts in a datagram of `len` bytes, sent at `time`.
    pub(super) fn put(&mut self, from: &[IoSlice<'_>], len: usize, time: u64) -> Put {
        let used = self.written.wrapping_sub(self.memory.long(READ).load(Ordering::Acquire));
        if self.memory.word(CLOSED).load(Ordering::Acquire) != 0 || used > BYTES as u64 || len > LONGEST {
            return Put::Closed;
        }
        if used + space(len) > BYTES as u64 {
            return Put::Full;
        }
        let mut head = [0; HEAD];
        for (to, from) in head.iter_mut().zip((len as u32).to_ne_bytes().into_iter().chain([0; 4]).chain(time.to_ne_bytes())) {
            *to = from;
        }
        self.memory.put(self.written, &head);
        let mut at = self.written + HEAD as u64;
        for slice in from {
            self.memory.put(at, slice);
            at += slice.len() as u64;
        }
        self.written += space(len);
        self.memory.long(WRITTEN).store(self.written, Ordering::Release);
        // The receiver arms, and then looks.
        fence(Ordering::SeqCst);
        let armed = self.memory.word(ARMED);
        Put::Done(armed.load(Ordering::Relaxed) != 0 && armed.swap(0, Ordering::Relaxed) != 0)
    }
}

/// A datagram that waits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Front {
    pub(super) len: usize,
    pub(super) time: u64,
}

/// What a look at the ring finds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Look {
    Empty,
    Front(Front),
    /// What no sender says that keeps to the rules.
    Nonsense,
}

/// The receiver's end.
pub(super) struct Reader {
    memory: Memory,
    read: u64,
    /// The next datagram, once its head was read: what the sender writes there afterwards is not looked at.
    front: Option<Front>,
}

impl Reader {
    /// Of a file that came. Fails where it is none that a [`Writer`] has made.
    pub(super) fn new(file: BorrowedFd<'_>) -> Result<Self> {
        Ok(Reader { memory: Memory(map_sealed(file, FILE)?), read: 0, front: None })
    }

    /// Wants the bell to be rung. A look must follow.
    pub(super) fn arm(&self) {
        self.memory.word(ARMED).store(1, Ordering::Relaxed);
        fence(Ordering::SeqCst);
    }

    /// Takes no more.
    pub(super) fn close(&self) {
        self.memory.word(CLOSED).store(1, Ordering::Release);
    }

    /// Bytes that were ever put in, as the sender says: another number is another datagram.
    pub(super) fn written(&self) -> u64 {
        self.memory.long(WRITTEN).load(Ordering::Acquire)
    }

    /// The next datagram.
    #[inline]
    pub(super) fn look(&mut self) -> Look {
        if let Some(front) = self.front {
            return Look::Front(front);
        }
        let there = self.written().wrapping_sub(self.read);
        if there == 0 {
            return Look::Empty;
        }
        if there > BYTES as u64 || !there.is_multiple_of(8) {
            return Look::Nonsense;
        }
        let mut head = [0; HEAD];
        self.memory.get(self.read, &mut head);
        let len = head.first_chunk().map_or(0, |len| u32::from_ne_bytes(*len)) as usize;
        let time = head.get(TIME..).and_then(|rest| rest.first_chunk()).map_or(0, |time| u64::from_ne_bytes(*time));
        if len > LONGEST || space(len) > there {
            return Look::Nonsense;
        }
        let front = Front { len, time };
        self.front = Some(front);
        Look::Front(front)
    }

    /// Copies what fits of the next datagram, and takes it out unless it is to stay. How much was copied.
    pub(super) fn take(&mut self, into: &mut [IoSliceMut<'_>], stays: bool) -> usize {
        let Look::Front(front) = self.look() else { return 0 };
        let (mut at, mut left) = (self.read + HEAD as u64, front.len);
        for slice in into {
            let part = left.min(slice.len());
            self.memory.get(at, slice.get_mut(..part).unwrap_or_default());
            at += part as u64;
            left -= part;
        }
        if !stays {
            self.front = None;
            self.read = self.read.wrapping_add(space(front.len));
            self.memory.long(READ).store(self.read, Ordering::Release);
        }
        front.len - left
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn pair() -> (Writer, Reader) {
        let (writer, file) = Writer::new().unwrap();
        (writer, Reader::new(file.as_fd()).unwrap())
    }

    fn put(writer: &mut Writer, bytes: &[u8], time: u64) -> Put {
        writer.put(&[IoSlice::new(bytes)], bytes.len(), time)
    }

    fn take(reader: &mut Reader, room: usize, stays: bool) -> Vec<u8> {
        let mut bytes = vec![0; room];
        let copied = reader.take(&mut [IoSliceMut::new(&mut bytes)], stays);
        bytes.truncate(copied);
        bytes
    }

    #[test]
    fn datagrams_come_out_as_they_went_in() {
        let (mut writer, mut reader) = pair();
        assert_eq!(reader.look(), Look::Empty);
        assert_eq!(put(&mut writer, b"one", 5), Put::Done(false));
        assert_eq!(put(&mut writer, b"", 6), Put::Done(false));
        assert_eq!(reader.look(), Look::Front(Front { len: 3, time: 5 }));
        assert_eq!(take(&mut reader, 9, true), b"one");
        assert_eq!(take(&mut reader, 2, false), b"on", "the rest is lost");
        assert_eq!(reader.look(), Look::Front(Front { len: 0, time: 6 }));
        assert_eq!(take(&mut reader, 9, false), b"");
        assert_eq!(reader.look(), Look::Empty);
    }

    #[test]
    fn the_bell_is_asked_for_once() {
        let (mut writer, reader) = pair();
        reader.arm();
        assert_eq!(put(&mut writer, b"a", 0), Put::Done(true));
        assert_eq!(put(&mut writer, b"b", 0), Put::Done(false));
    }

    #[test]
    fn a_full_ring_takes_no_more_until_there_is_room() {
        let (mut writer, mut reader) = pair();
        let large = vec![7; 65_507];
        for _ in 0..4 {
            assert_eq!(put(&mut writer, &large, 0), Put::Done(false));
        }
        assert_eq!(put(&mut writer, &large, 0), Put::Full);
        assert_eq!(take(&mut reader, 70_000, false), large);
        assert_eq!(put(&mut writer, &large, 0), Put::Done(false));
    }

    #[test]
    fn a_closed_ring_says_so() {
        let (mut writer, reader) = pair();
        reader.close();
        assert_eq!(put(&mut writer, b"a", 0), Put::Closed);
    }

    #[test]
    fn a_file_of_another_kind_is_refused() {
        let small = sealed_file(4096).unwrap();
        assert!(Reader::new(small.as_fd()).is_err());
        let open = rustix::fs::memfd_create("open", rustix::fs::MemfdFlags::ALLOW_SEALING).unwrap();
        rustix::fs::ftruncate(&open, FILE as u64).unwrap();
        assert!(Reader::new(open.as_fd()).is_err(), "its length can change");
    }

    proptest! {
        #![proptest_config(ProptestConfig { cases: 200, failure_persistence: None, ..ProptestConfig::default() })]

        #[test]
        fn what_goes_in_comes_out_in_order(steps in prop::collection::vec((any::<bool>(), 0_usize..70_000, any::<u8>()), 1..100)) {
            let (mut writer, mut reader) = pair();
            let mut queue = std::collections::VecDeque::new();
            for (puts, len, value) in steps {
                if puts {
                    let bytes: Vec<u8> = (0..len).map(|at| value.wrapping_add(at as u8)).collect();
                    let (first, second) = bytes.split_at(len / 3);
                    match writer.put(&[IoSlice::new(first), IoSlice::new(second)], len, 1) {
                        Put::Done(_) => queue.push_back(bytes),
                        Put::Full => prop_assert!(!queue.is_empty()),
                        Put::Closed => prop_assert!(len > LONGEST),
                    }
                } else {
                    match queue.pop_front() {
                        Some(bytes) => prop_assert_eq!(take(&mut reader, 70_000, false), bytes),
                        None => prop_assert_eq!(reader.look(), Look::Empty),
                    }
                }
            }
        }

        #[test]
        fn a_hostile_sender_only_spoils_its_own_ring(written: u64, small in 0_u64..600_000, choose: bool, heads: Vec<u8>, len in 0_usize..70_000) {
            let (writer, mut reader) = pair();
            let written = if choose { written } else { small };
            for at in (0..BYTES).step_by(heads.len().max(1) * 8).take(100) {
                writer.memory.put(at as u64, &heads);
            }
            writer.memory.long(WRITTEN).store(written, Ordering::Relaxed);
            for _ in 0..1000 {
                match reader.look() {
                    Look::Front(front) => {
                        // Whatever is written after the head was seen.
                        writer.memory.put(reader.read, &[0xff; HEAD]);
                        let got = take(&mut reader, len, false).len();
                        prop_assert!(front.len <= LONGEST && got <= front.len);
                    }
                    Look::Empty | Look::Nonsense => break,
                }
            }
        }

        #[test]
        fn a_hostile_receiver_only_spoils_its_own_ring(read: u64, back in 0_u64..600_000, near: bool, len in 0_usize..70_000) {
            let (mut writer, reader) = pair();
            let bytes = vec![1; len];
            for _ in 0..10 {
                let read = if near { writer.written.wrapping_sub(back) } else { read };
                reader.memory.long(READ).store(read, Ordering::Relaxed);
                put(&mut writer, &bytes, 0);
            }
        }
    }
}
