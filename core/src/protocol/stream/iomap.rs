//! Direct placement (PROTOCOL.md 1.7): what we have mapped for the peer, as records in its table, and what it has mapped for us, as our
//! copies of the records in ours.

use std::collections::VecDeque;

use super::{Connection, PeerFault};
use crate::{
    wire::{IomapRecord, Message, Sge},
    work::{Payload, RemoteAddress, WorkRequest},
};

/// Why memory cannot be mapped for the peer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MapError {
    /// The peer's table is full, or there is none.
    TableFull,
    /// The peer takes no more IOMAP messages until it has read data that came after those before.
    TooManyAtOnce,
    /// Our direction has ended.
    Ended,
}

/// Memory of the peer's that we may write to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Mapped {
    /// Where the asked-for offset is.
    pub to: RemoteAddress,
    /// How many bytes belong to the mapping from there on.
    pub room: u64,
}

/// See the module.
#[derive(Debug, Default)]
pub(super) struct Iomaps {
    /// Entries of the peer's table.
    most: u16,
    /// What we have put, or will put, into the peer's table; an entry of length 0 is free.
    ours: Vec<Entry>,
    /// Entries whose record the peer does not know yet, in order.
    due: VecDeque<u16>,
    /// Our copy of the records that the peer has put into our table, as far as any is in use.
    theirs: Vec<IomapRecord>,
}

#[derive(Clone, Copy, Debug, Default)]
struct Entry {
    record: IomapRecord,
    /// The peer has been sent a record for it, and no empty one since.
    known: bool,
    due: bool,
}

impl Iomaps {
    pub(super) fn set_peer_entries(&mut self, most: u16) {
        self.most = most;
    }

    pub(super) fn due(&self) -> usize {
        self.due.len()
    }

    /// Takes a free entry, the lowest.
    fn map(&mut self, record: IomapRecord) -> Option<u16> {
        let free = self.ours.iter().position(|entry| entry.record.memory.length == 0);
        let index = free.unwrap_or(self.ours.len());
        let number = u16::try_from(index).ok().filter(|number| *number < self.most)?;
        if free.is_none() {
            self.ours.push(Entry::default());
        }
        self.ours.get_mut(index)?.record = record;
        self.make_due(number);
        Some(number)
    }

    /// The peer may be told, if it knows of the entry: what it finds in its table then is no memory.
    fn unmap(&mut self, index: u16, may_tell: bool) {
        let Some(entry) = self.ours.get_mut(usize::from(index)) else { return };
        entry.record = IomapRecord::default();
        if entry.known {
            if may_tell {
                self.make_due(index);
            }
        } else {
            entry.due = false;
            self.due.retain(|due| *due != index);
        }
    }

    fn make_due(&mut self, index: u16) {
        let Some(entry) = self.ours.get_mut(usize::from(index)) else { return };
        if !core::mem::replace(&mut entry.due, true) {
            self.due.push_back(index);
        }
    }

    /// The next record to send, and its entry.
    fn next(&mut self) -> Option<(u16, IomapRecord)> {
        let index = self.due.pop_front()?;
        let entry = self.ours.get_mut(usize::from(index))?;
        entry.due = false;
        entry.known = entry.record.memory.length != 0;
        Some((index, entry.record))
    }

    pub(super) fn clear_due(&mut self) {
        self.due.clear();
    }

    /// The peer has written this record into our table, which has so many entries.
    pub(super) fn take(&mut self, index: u32, entries: u16, record: IomapRecord) -> Result<(), PeerFault> {
        let at = u16::try_from(index).ok().filter(|index| *index < entries).ok_or(PeerFault::NoSuchEntry { index, entries })?;
        let at = usize::from(at);
        let length = u64::from(record.memory.length);
        if record.memory.addr.checked_add(length).is_none() || record.offset.checked_add(length).is_none() {
            return Err(PeerFault::RecordOverflow);
        }
        if at >= self.theirs.len() {
            self.theirs.resize(at + 1, IomapRecord::default());
        }
        if let Some(entry) = self.theirs.get_mut(at) {
            *entry = record;
        }
        Ok(())
    }

    /// Where `offset` is in the peer's memory. Where mappings overlap, the one of the lowest entry counts.
    fn find(&self, offset: u64) -> Option<Mapped> {
        self.theirs.iter().find_map(|record| {
            let into = offset.checked_sub(record.offset)?;
            let room = u64::from(record.memory.length).checked_sub(into).filter(|room| *room > 0)?;
            let to = RemoteAddress { addr: record.memory.addr.wrapping_add(into), key: record.memory.key };
            Some(Mapped { to, room })
        })
    }
}

impl Connection {
    /// Maps memory of ours at `offset` for the peer, whom the next IOMAP message tells, before any data that is committed from now on.
    /// Gives the entry in the peer's table. `memory` is not empty.
    pub fn map(&mut self, offset: u64, memory: Sge) -> Result<u16, MapError> {
        if !self.state.may_send() {
            return Err(MapError::Ended);
        }
        if !self.sender.credit.has_room_for_iomap(self.iomaps.due()) {
            return Err(MapError::TooManyAtOnce);
        }
        self.iomaps.map(IomapRecord { offset, memory }).ok_or(MapError::TableFull)
    }

    /// Ends a mapping. The memory must not be written any more from now on, whatever the peer still believes.
    pub fn unmap(&mut self, index: u16) {
        let may_tell = self.state.may_send() && self.sender.credit.has_room_for_iomap(self.iomaps.due());
        self.iomaps.unmap(index, may_tell);
    }

    /// What the peer has mapped at `offset`.
    pub fn mapped_at(&self, offset: u64) -> Option<Mapped> {
        self.iomaps.find(offset)
    }

    /// Whether the peer is still to be told of mappings.
    pub fn has_due_iomaps(&self) -> bool {
        self.iomaps.due() > 0
    }

    /// How many bytes a single [`Connection::place`] may take now, all in one piece at [`Connection::write_at`].
    pub fn placeable(&self) -> u32 {
        if self.may_place() { self.sender.placeable() } else { 0 }
    }

    /// As [`Connection::commit`] of `count` bytes, at most as many as [`Connection::placeable`] said, that go to memory which the peer has
    /// mapped, and of which it is not told.
    pub fn place(&mut self, count: u32, to: RemoteAddress) {
        if self.has_queue_entries(1) {
            self.sender.place(count, to);
        }
    }

    /// As [`Connection::place`], and gives the work request at once, to be posted next, where nothing else waits. `None`: it is among those of
    /// [`Connection::poll_work`].
    #[must_use = "what is given is to be posted"]
    pub fn place_and_poll(&mut self, count: u32, to: RemoteAddress) -> Option<WorkRequest> {
        let nothing_waits = !self.has_work();
        self.place(count, to);
        if nothing_waits { self.poll_work() } else { None }
    }

    /// How many bytes a single [`Connection::place_from`] may take now.
    pub fn placeable_from(&self) -> u32 {
        if self.may_place() { super::MOST_FROM_REGISTERED } else { 0 }
    }

    /// Room in the queue is left for what the peer is to be told of: data that comes after it may have been committed already.
    fn may_place(&self) -> bool {
        self.has_queue_entries(self.iomaps.due() as u32 + 1)
    }

    /// As [`Connection::place`], from registered memory of the program's, which has to stay as it is until [`Connection::is_placed`] says of
    /// the number given here that it was sent.
    pub fn place_from(&mut self, from: RemoteAddress, count: u32, to: RemoteAddress) -> u64 {
        if self.has_queue_entries(1) {
            self.sender.place_from(from, count, to);
        }
        self.sender.registered()
    }

    /// Whether nobody reads the memory any more that was given to [`Connection::place_from`].
    pub fn is_placed(&self, number: u64) -> bool {
        let (done, posted) = self.queue.registered();
        done >= number || (done >= posted && self.sender.committed() == 0)
    }

    /// Whether memory that was given to [`Connection::place_from`] may still be read.
    pub fn reads_registered(&self) -> bool {
        !self.is_placed(self.sender.registered())
    }

    /// Whether an IOMAP message can go now. One that is due does so though our direction may be about to end: data comes after it.
    #[inline]
    pub(super) fn iomap_is_ready(&self) -> bool {
        self.iomaps.due() > 0 && self.sender.credit.available() > 0 && self.has_room_for(1)
    }

    pub(super) fn iomap_message(&mut self) -> Option<WorkRequest> {
        let peer = self.peer?;
        let (index, record) = self.iomaps.next()?;
        self.sender.credit.use_one_for_iomap();
        let table = peer.targets.addr.wrapping_add(u64::from(peer.targets.length) * Sge::BYTES as u64);
        let addr = table.wrapping_add(u64::from(index) * IomapRecord::BYTES as u64);
        let payload = Payload::bytes(&record.to_bytes(peer.order));
        Some(self.data_message(RemoteAddress { addr, key: peer.targets.key }, payload, Message::Iomap(u32::from(index))))
    }
}
