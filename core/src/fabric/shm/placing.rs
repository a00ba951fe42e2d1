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
    /// Bytes are in place that were not. `starved`: the writer waits for that.
    Placed { starved: bool },
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
        let mut found = Look::Nothing;
        loop {
            let put = area.word(PUT).load(Ordering::Acquire);
            if put.wrapping_sub(self.taken) > RECORDS {
                return Look::Breach;
            }
            while self.taken != put {
                if !self.place(peer, area, base) {
                    return Look::Breach;
                }
                self.taken = self.taken.wrapping_add(1);
                area.word(TAKEN).store(self.taken, Ordering::Release);
                found = Look::Placed { starved: false };
            }
            if area.word(ARMED).load(Ordering::Relaxed) != 0 || !self.exposes() {
                break;
            }
            *asked = asked.saturating_add(1);
            area.word(ARMED).store(1, Ordering::Relaxed);
            fence(Ordering::SeqCst);
        }
        if found == Look::Nothing {
            return found;
        }
        fence(Ordering::SeqCst);
        Look::Placed { starved: area.word(STARVED).load(Ordering::Relaxed) != 0 && area.word(STARVED).swap(0, Ordering::Relaxed) != 0 }
    }

    /// Carries out the next record. False: it is none.
    fn place(&self, peer: &Memory, area: Area<'_>, base: u32) -> bool {
        let mut record = [0; RECORD];
        if area.region.read(area.record(self.taken), &mut record).is_err() {
            return false;
        }
        let number = |at: usize| record.get(at..).and_then(|rest| rest.first_chunk()).map_or(0, |four| u32::from_ne_bytes(*four));
        let addr = record.first_chunk().map_or(0, |eight| u64::from_ne_bytes(*eight));
        let (key, len, at) = (number(8), number(12), number(16));
        if len > PIECE || at > RING - len {
            return false;
        }
        let Some(span) = self.exposures.find(key) else {
            // What comes for memory that is no longer registered is lost, as the peer may not know that yet.
            return key != base && key.wrapping_sub(base) <= self.exposures.keys.load(Ordering::Relaxed);
        };
        match (span.part(addr, len), peer.file()) {
            (Some(part), Some(file)) => part.fill_from(file, (area.at + RING_AT) as u64 + u64::from(at)),
            _ => return false,
        }
        true
    }
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
