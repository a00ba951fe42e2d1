//! Bytes for memory of the program's that its owner has registered: the writer cannot reach it, so that the owner copies.
//!
//! The writer's own memory file has an area for them if the writer may ever do that: records that say where what belongs, and a ring
//! of bytes. The owner maps the file anyway, and reads the bytes out of it by pread(2): so the kernel finds out whether the
//! program still has memory there.
//!
//! | offset | what | written by |
//! |---|---|---|
//! | 0 | `put`: records that were put there, modulo 2^32 | writer |
//! | 4 | `starved`: the writer waits for records to be taken | writer, taken back by the owner |
//! | 64 | `taken`: records that are done with | owner |
//! | 68 | `armed`: the owner wants the bell to be rung at the next record | owner, taken back by the writer |
//! | 128 | records, 32 bytes each: address (8), key (4), length (4), offset in the ring (4) | writer |
//! | | ring of bytes | writer |
//!
//! A record is put before any later message, and the owner looks for records after it has looked for messages: so who sees a message
//! finds the bytes that were sent before it in place. Each side believes nothing that the other has written, and keeps to itself what it
//! has written itself.
#![forbid(unsafe_code)]

use core::sync::atomic::{AtomicU32, Ordering, fence};
use std::{collections::VecDeque, sync::Arc};

use super::memory::Memory;
use crate::{
    error::Result,
    fabric::{Region, Registered, Registrar},
    sys::{lock::Leaf, program::Span},
    work::RemoteAddress,
};

const PUT: usize = 0;
const STARVED: usize = 4;
const TAKEN: usize = 64;
const ARMED: usize = 68;
const RECORDS_AT: usize = 128;
/// Bytes of a record.
const RECORD: usize = 32;
const RECORDS: u32 = 128;
const RING_AT: usize = RECORDS_AT + RECORD * RECORDS as usize;
const RING: u32 = 256 << 10;

/// Bytes of the area.
pub(super) const BYTES: u32 = RING_AT as u32 + RING;

/// Looks at a writer that puts records there as fast as they are taken, in one go.
const ROUNDS: u32 = 16;

/// Most bytes of a record: half of the ring, so that the next ones can be put there while these are taken.
const PIECE: u32 = RING / 2;

/// The area within a memory file.
#[derive(Clone, Copy)]
pub(super) struct Area<'a> {
    region: &'a Region,
    at: usize,
}

impl<'a> Area<'a> {
    /// At this offset of a mapping.
    pub(super) fn new(region: &'a Region, at: usize) -> Self {
        Area { region, at }
    }

    fn word(self, offset: usize) -> &'a AtomicU32 {
        static NOWHERE: AtomicU32 = AtomicU32::new(0);
        self.region.word(self.at + offset).unwrap_or(&NOWHERE)
    }

    fn record(self, number: u32) -> usize {
        self.at + RECORDS_AT + RECORD * (number % RECORDS) as usize
    }
}

/// What a look at an area found.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Look {
    /// Nothing new.
    Nothing,
    /// Bytes are in place that were not. `starved`: the writer waits for that. `more`: there may be others, for which no bell will ring.
    Placed { starved: bool, more: bool },
    /// What a writer that keeps to the rules does not do.
    Breach,
}

/// Where a writer is.
#[derive(Debug, Default)]
pub(super) struct Writer {
    put: u32,
    /// As far as is known.
    taken: u32,
    /// Bytes of the ring that belong to each record which is not known to be taken.
    sizes: VecDeque<u32>,
    used: u32,
    write_at: u32,
}

impl Writer {
    /// Puts `len` bytes there, which `copy` writes to an offset of the region. False: there is no room now; the owner rings when it has
    /// taken something. `None`: more than ever fits, or the owner has broken the rules.
    pub(super) fn put(
        &mut self,
        area: Area<'_>,
        to: RemoteAddress,
        len: u32,
        copy: impl FnOnce(&Region, usize) -> Result<()>,
    ) -> Option<bool> {
        if len > PIECE {
            return None;
        }
        let Some(at) = self.room(len) else {
            area.word(STARVED).store(1, Ordering::Relaxed);
            fence(Ordering::SeqCst);
            self.look(area)?;
            return if self.room(len).is_some() { self.put(area, to, len, copy) } else { Some(false) };
        };
        let offset = area.at + RING_AT + at as usize;
        copy(area.region, offset).ok()?;
        let mut record = [0; RECORD];
        let fields = to.addr.to_ne_bytes().into_iter().chain(to.key.to_ne_bytes()).chain(len.to_ne_bytes()).chain(at.to_ne_bytes());
        record.iter_mut().zip(fields).for_each(|(byte, field)| *byte = field);
        area.region.write(area.record(self.put), &record).ok()?;
        let skipped = if at == self.write_at { 0 } else { RING - self.write_at };
        self.sizes.push_back(skipped + len);
        self.used += skipped + len;
        self.write_at = at + len;
        self.put = self.put.wrapping_add(1);
        area.word(PUT).store(self.put, Ordering::Release);
        Some(true)
    }

    /// Where so many bytes fit that lie together.
    fn room(&self, len: u32) -> Option<u32> {
        let free = RING - self.used;
        if self.sizes.len() as u32 >= RECORDS {
            None
        } else if self.write_at + len <= RING {
            (len <= free).then_some(self.write_at)
        } else {
            (RING - self.write_at + len <= free).then_some(0)
        }
    }

    /// Learns what the owner has taken. `None`: more than there was, or it has taken that back.
    fn look(&mut self, area: Area<'_>) -> Option<()> {
        let taken = area.word(TAKEN).load(Ordering::Acquire);
        if taken.wrapping_sub(self.taken) as usize > self.sizes.len() {
            return None;
        }
        while self.taken != taken {
            self.taken = self.taken.wrapping_add(1);
            self.used -= self.sizes.pop_front()?;
        }
        Some(())
    }

    /// Whether the owner wants the bell to be rung for what was put there. Once.
    pub(super) fn owner_sleeps(area: Area<'_>) -> bool {
        fence(Ordering::SeqCst);
        area.word(ARMED).load(Ordering::Relaxed) != 0 && area.word(ARMED).swap(0, Ordering::Relaxed) != 0
    }
}

/// Where an owner is, and what it has registered.
#[derive(Default)]
pub(super) struct Owner {
    taken: u32,
    exposures: Arc<Exposures>,
}

impl Owner {
    pub(super) fn registrar(&self, base: u32) -> Arc<dyn Registrar> {
        Arc::new(Book { exposures: Arc::clone(&self.exposures), base })
    }

    /// Whether anything is registered that the peer may write to.
    pub(super) fn exposes(&self) -> bool {
        self.exposures.living.load(Ordering::Relaxed) != 0
    }

    /// Takes what was put there, and asks for the bell while anything is registered (`asked` counts that). `base`: the key of the own
    /// memory file.
    pub(super) fn take(&mut self, peer: &Memory, base: u32, asked: &mut u32) -> Look {
        let Some(area) = peer.placing() else { return Look::Nothing };
        let (mut records, mut bytes) = (0_u32, 0_u32);
        for _ in 0..ROUNDS {
            let put = area.word(PUT).load(Ordering::Acquire);
            if put.wrapping_sub(self.taken) > RECORDS {
                return Look::Breach;
            }
            while self.taken != put {
                let Some(len) = self.place(peer, area, base) else { return Look::Breach };
                self.taken = self.taken.wrapping_add(1);
                area.word(TAKEN).store(self.taken, Ordering::Release);
                (records, bytes) = (records + 1, bytes.saturating_add(len));
                // The writer goes on while the rest is taken.
                if bytes >= RING / 4 && is_starved(area) {
                    return Look::Placed { starved: true, more: true };
                }
            }
            if area.word(ARMED).load(Ordering::Relaxed) != 0 || !self.exposes() {
                return if records == 0 { Look::Nothing } else { Look::Placed { starved: is_starved(area), more: false } };
            }
            *asked = asked.saturating_add(1);
            area.word(ARMED).store(1, Ordering::Relaxed);
            fence(Ordering::SeqCst);
        }
        Look::Placed { starved: is_starved(area), more: true }
    }

    /// Carries out the next record, and gives its length. `None`: it is none.
    fn place(&self, peer: &Memory, area: Area<'_>, base: u32) -> Option<u32> {
        let mut record = [0; RECORD];
        area.region.read(area.record(self.taken), &mut record).ok()?;
        let number = |at: usize| record.get(at..).and_then(|rest| rest.first_chunk()).map_or(0, |four| u32::from_ne_bytes(*four));
        let addr = record.first_chunk().map_or(0, |eight| u64::from_ne_bytes(*eight));
        let (key, len, at) = (number(8), number(12), number(16));
        if len > PIECE || at > RING - len {
            return None;
        }
        let Some(span) = self.exposures.find(key) else {
            // What comes for memory that is no longer registered is lost, as the peer may not know that yet.
            let given = key != base && key.wrapping_sub(base) <= self.exposures.keys.load(Ordering::Relaxed);
            return given.then_some(len);
        };
        span.part(addr, len)?.fill_from(peer.file()?, (area.at + RING_AT) as u64 + u64::from(at));
        Some(len)
    }
}

/// Whether the writer waits for records to be taken. Once.
fn is_starved(area: Area<'_>) -> bool {
    fence(Ordering::SeqCst);
    area.word(STARVED).load(Ordering::Relaxed) != 0 && area.word(STARVED).swap(0, Ordering::Relaxed) != 0
}

/// Memory of the program's that the peer may write to, by key. Entries go under the engine lock, so that nobody writes there any more.
struct Exposures {
    spans: Leaf<Vec<(u32, Span)>>,
    /// How many there are.
    living: AtomicU32,
    /// Keys that were given out.
    keys: AtomicU32,
}

impl Default for Exposures {
    fn default() -> Self {
        Exposures { spans: Leaf::new(Vec::new()), living: AtomicU32::new(0), keys: AtomicU32::new(0) }
    }
}

impl Exposures {
    fn find(&self, key: u32) -> Option<Span> {
        self.spans.lock().iter().find(|(name, _)| *name == key).map(|(_, span)| *span)
    }

    fn change(&self, change: impl FnOnce(&mut Vec<(u32, Span)>)) {
        let mut spans = self.spans.lock();
        change(&mut spans);
        self.living.store(spans.len() as u32, Ordering::Relaxed);
    }
}

/// Registers memory for one end.
struct Book {
    exposures: Arc<Exposures>,
    base: u32,
}

impl Registrar for Book {
    fn register(&self, memory: Span, remote: bool) -> Result<Box<dyn Registered>> {
        memory.populate(remote)?;
        let exposed = remote.then(|| self.base.wrapping_add(1 + self.exposures.keys.fetch_add(1, Ordering::Relaxed)));
        if let Some(key) = exposed {
            self.exposures.change(|spans| spans.push((key, memory)));
        }
        Ok(Box::new(Entry { exposures: Arc::clone(&self.exposures), key: exposed }))
    }
}

/// Memory that is registered until it is dropped.
struct Entry {
    exposures: Arc<Exposures>,
    key: Option<u32>,
}

impl Registered for Entry {
    /// Addresses are offsets, as those of the memory file: nobody learns where anything is.
    fn remote(&self) -> RemoteAddress {
        RemoteAddress { addr: 0, key: self.key.unwrap_or(0) }
    }

    fn local_key(&self) -> Option<u32> {
        None
    }

    fn revoke(&self) {
        if let Some(key) = self.key {
            self.exposures.change(|spans| spans.retain(|(name, _)| *name != key));
        }
    }
}

impl Drop for Entry {
    fn drop(&mut self) {
        self.revoke();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        error::Errno,
        fabric::shm::{
            greeting::{Greeting, Verdict},
            memory::{Layout, Own},
        },
    };

    const BASE: u32 = 40;

    /// A writer with its memory file, and the owner of memory that it writes to.
    struct Both {
        own: Own,
        writer: Writer,
        peer: Memory,
        owner: Owner,
        asked: u32,
    }

    impl Both {
        fn new() -> Self {
            let layout = Layout::new(16, 32, 4096).unwrap().with_placing(true);
            let mut own = Own::new(layout, 7).unwrap();
            let file = rustix::io::fcntl_dupfd_cloexec(own.take_file().unwrap(), 0).unwrap();
            let [client, server] = ["127.0.0.1:1", "127.0.0.1:2"].map(|addr| addr.parse().unwrap());
            let greeting = Greeting { verdict: Verdict::Request, key: 7, layout, client, server, private_data: Vec::new() };
            let peer = Memory::that_came(Some(file), &greeting).unwrap();
            Both { own, writer: Writer::default(), peer, owner: Owner::default(), asked: 0 }
        }

        fn area(&self) -> Area<'_> {
            self.own.memory().placing().unwrap()
        }

        fn put(&mut self, key: u32, addr: u64, bytes: &[u8]) -> Option<bool> {
            let area = self.own.memory().placing().unwrap();
            self.writer.put(area, RemoteAddress { addr, key }, bytes.len() as u32, |region, at| region.write(at, bytes))
        }

        fn take(&mut self) -> Look {
            self.owner.take(&self.peer, BASE, &mut self.asked)
        }

        fn take_all(&mut self) {
            while let Look::Placed { more: true, .. } = self.take() {}
        }

        /// Registers memory that the test never looks at but by [`Lent::bytes`].
        fn lend(&self, len: usize) -> Lent {
            let region = Region::new(len).unwrap();
            let span = Span::unused(region.addr().expose_provenance(), len);
            let registered = self.owner.registrar(BASE).register(span, true).unwrap();
            Lent { key: registered.remote().key, registered, region }
        }
    }

    struct Lent {
        registered: Box<dyn Registered>,
        key: u32,
        region: Region,
    }

    impl Lent {
        fn bytes(&self) -> Vec<u8> {
            let mut bytes = vec![0; self.region.len()];
            self.region.read(0, &mut bytes).unwrap();
            bytes
        }
    }

    #[test]
    fn bytes_get_to_their_place() {
        const LEN: usize = 200_000;
        let mut both = Both::new();
        let lent = both.lend(LEN);
        let mut expected = vec![0; LEN];
        let (mut seed, mut full) = (1_u32, 0);
        for round in 0..2_000 {
            seed = seed.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
            let len = if round % 9 == 0 { PIECE as usize } else { 1 + (seed >> 8) as usize % 5000 };
            let at = (seed >> 3) as usize % (LEN - len);
            let bytes = vec![round as u8; len];
            while both.put(lent.key, at as u64, &bytes) == Some(false) {
                full += 1;
                assert!(matches!(both.take(), Look::Placed { starved: true, .. }));
                both.take_all();
                assert!(lent.bytes() == expected, "round {round}");
            }
            expected[at..at + len].copy_from_slice(&bytes);
        }
        both.take_all();
        assert!(full > 20 && lent.bytes() == expected && both.take() == Look::Nothing);
    }

    #[test]
    fn what_is_not_registered_is_not_written() {
        for (key, addr, len, look) in [
            (BASE + 1, 0, 100, Look::Placed { starved: false, more: false }),
            (BASE + 1, 99, 1, Look::Placed { starved: false, more: false }),
            (BASE + 1, 100, 0, Look::Placed { starved: false, more: false }),
            (BASE + 1, 1, 100, Look::Breach),
            (BASE + 1, 100, 1, Look::Breach),
            (BASE + 1, u64::MAX, 1, Look::Breach),
            (BASE, 0, 1, Look::Breach),
            (BASE + 2, 0, 1, Look::Breach),
            (BASE - 1, 0, 1, Look::Breach),
            (0, 0, 1, Look::Breach),
        ] {
            let mut both = Both::new();
            let lent = both.lend(100);
            assert_eq!(lent.key, BASE + 1);
            assert_eq!(both.put(key, addr, &vec![9; len]), Some(true));
            assert_eq!(both.take(), look, "{key} {addr} {len}");
            let written = if look == Look::Breach { 0 } else { len };
            assert_eq!(lent.bytes().iter().filter(|byte| **byte == 9).count(), written);
        }
    }

    #[test]
    fn what_comes_late_is_lost() {
        let mut both = Both::new();
        let (gone, other) = (both.lend(100), both.lend(100));
        assert_eq!(both.put(gone.key, 0, &[9; 50]), Some(true));
        gone.registered.revoke();
        assert_eq!(both.put(other.key, 0, &[9; 50]), Some(true));
        assert_eq!(both.take(), Look::Placed { starved: false, more: false });
        assert_eq!((gone.bytes()[0], other.bytes()[0]), (0, 9));
        drop((gone, other));
        assert!(!both.owner.exposes());
        assert!(both.owner.registrar(BASE).register(Span::unused(8, 1), true).err() == Some(Errno::FAULT));
    }

    #[test]
    fn the_bell_is_asked_for_while_something_is_registered() {
        let mut both = Both::new();
        assert_eq!((both.take(), Writer::owner_sleeps(both.area()), both.asked), (Look::Nothing, false, 0));
        let lent = both.lend(100);
        assert_eq!((both.take(), both.asked), (Look::Nothing, 1));
        assert_eq!(both.put(lent.key, 0, &[1]), Some(true));
        assert!(Writer::owner_sleeps(both.area()) && !Writer::owner_sleeps(both.area()));
        assert_eq!((both.take(), both.asked), (Look::Placed { starved: false, more: false }, 2));
        drop(lent);
        assert!(Writer::owner_sleeps(both.area()));
        assert_eq!((both.take(), both.asked, Writer::owner_sleeps(both.area())), (Look::Nothing, 2, false));
    }

    #[test]
    fn a_writer_that_writes_nonsense() {
        let words = |addr: u64, numbers: [u32; 3]| {
            let mut record = [0; RECORD];
            let bytes = addr.to_ne_bytes().into_iter().chain(numbers.into_iter().flat_map(u32::to_ne_bytes));
            record.iter_mut().zip(bytes).for_each(|(to, from)| *to = from);
            record
        };
        let good = BASE + 1;
        for (put, record) in [
            (RECORDS + 1, words(0, [good, 1, 0])),
            (u32::MAX, words(0, [good, 1, 0])),
            (1, words(0, [good, PIECE + 1, 0])),
            (1, words(0, [good, u32::MAX, 0])),
            (1, words(0, [good, 1, RING])),
            (1, words(0, [good, 2, RING - 1])),
            (1, words(0, [good, 1, u32::MAX])),
            (2, words(0, [good, 1, 0])),
        ] {
            let mut both = Both::new();
            let _lent = both.lend(1 << 20);
            let area = both.area();
            area.region.write(area.record(0), &record).unwrap();
            area.word(PUT).store(put, Ordering::Release);
            assert_eq!(both.take(), Look::Breach, "{put} {record:?}");
        }
    }

    #[test]
    fn an_owner_that_has_taken_what_was_not_there() {
        for taken in [3, u32::MAX, 1 << 31] {
            let mut both = Both::new();
            let piece = vec![1; PIECE as usize];
            assert_eq!((both.put(1, 0, &piece), both.put(1, 0, &piece)), (Some(true), Some(true)));
            both.area().word(TAKEN).store(taken, Ordering::Release);
            assert_eq!(both.put(1, 0, &piece), None);
        }
        assert_eq!(Both::new().put(1, 0, &vec![0; PIECE as usize + 1]), None);
    }
}
