//! Our target list: two records in exposed memory, into which the peer writes where we may write next (PROTOCOL.md 1.5).
//!
//! The memory is hostile and is written while we run, so it is read in one place only: when an SGL message has completed, the
//! caller makes a copy, and the records that were taken over from it are zeroed before anything else is posted.

use super::PeerFault;
use crate::wire::{ByteOrder, IomapRecord, Sge};

/// A copy of the memory of the target list. To be made so that a record that is just being written is not seen half: read until
/// two readings agree.
pub type TargetList = [[u8; 16]; 2];

/// The memory that the peer writes its records to, as the one place where they are read: each reading is a copy, and made so that a record
/// which is just being written is not seen half.
pub trait Tables {
    /// The target list.
    fn target_list(&self) -> TargetList;

    /// The record of this entry of the iomap table.
    fn iomap_record(&self, index: u32) -> [u8; IomapRecord::BYTES];
}

/// A target list, and an iomap table of zeros.
#[cfg(test)]
impl<F: Fn() -> TargetList> Tables for F {
    fn target_list(&self) -> TargetList {
        self()
    }

    fn iomap_record(&self, _: u32) -> [u8; IomapRecord::BYTES] {
        [0; IomapRecord::BYTES]
    }
}

/// Which records were taken over: bit `i` for record `i`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
#[must_use = "the records taken over have to be zeroed before anything is posted"]
pub struct Taken(pub u8);

impl Taken {
    /// No record.
    pub const NONE: Taken = Taken(0);

    /// Whether there is nothing to zero.
    pub const fn is_empty(self) -> bool {
        self.0 == 0
    }

    /// Whether record `index` (0 or 1) is to be zeroed.
    pub const fn contains(self, index: u32) -> bool {
        self.0 >> index & 1 != 0
    }

    /// Byte range of record `index` in the target list.
    pub const fn offset_of(index: u32) -> u32 {
        index * Sge::BYTES as u32
    }
}

/// Our private copies of the two records, reduced as they are written to.
#[derive(Debug, Default)]
pub(super) struct Targets {
    /// Where data goes now.
    current: Sge,
    /// Where it goes when the current record is used up; length 0 as long as the peer has not filled it in.
    following: Sge,
    /// The record that the peer fills in next.
    expected: bool,
}

impl Targets {
    /// Starts with the buffer of the peer's connect record. It stands for record 0, so record 1 comes next.
    pub(super) fn start(&mut self, first: Sge) {
        *self = Targets { current: first, following: Sge::default(), expected: true };
    }

    /// How much a single message may carry now.
    pub(super) fn room(&self) -> u32 {
        self.current.length
    }

    /// Takes `len` bytes of the current record. `len` is at most [`Targets::room`].
    pub(super) fn take(&mut self, len: u32) -> Sge {
        let len = len.min(self.current.length);
        let taken = Sge { length: len, ..self.current };
        self.current.addr = self.current.addr.wrapping_add(u64::from(len));
        self.current.length -= len;
        if self.current.length == 0 {
            self.current = core::mem::take(&mut self.following);
        }
        taken
    }

    /// Takes over what the peer has filled in: the expected record, then the one after it.
    pub(super) fn refill(&mut self, list: &TargetList, order: ByteOrder) -> Result<Taken, PeerFault> {
        let mut taken = Taken::NONE;
        for _ in 0..list.len() {
            let [zero, one] = list;
            let (bytes, bit) = if self.expected { (one, 2) } else { (zero, 1) };
            let record = Sge::parse(bytes, order);
            // No memory is at address 0: that is a record of which only the second half has arrived so far.
            if record.length == 0 || record.addr == 0 {
                break;
            }
            if record.addr.checked_add(u64::from(record.length)).is_none() {
                return Err(PeerFault::RecordOverflow);
            }
            let slot = if self.current.length == 0 { &mut self.current } else { &mut self.following };
            if slot.length != 0 {
                return Err(PeerFault::RecordInUse);
            }
            *slot = record;
            taken.0 |= bit;
            self.expected = !self.expected;
        }
        Ok(taken)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const ORDER: ByteOrder = ByteOrder::Big;

    fn record(addr: u64, length: u32) -> [u8; 16] {
        Sge { addr, key: 9, length }.to_bytes(ORDER)
    }

    fn started() -> Targets {
        let mut targets = Targets::default();
        targets.start(Sge { addr: 0x1000, key: 7, length: 100 });
        targets
    }

    #[test]
    fn a_record_is_used_from_its_start_to_its_end() {
        let mut targets = started();
        assert_eq!(targets.take(30), Sge { addr: 0x1000, key: 7, length: 30 });
        assert_eq!(targets.take(99), Sge { addr: 0x101e, key: 7, length: 70 }, "never more than there is");
        assert_eq!(targets.room(), 0);
    }

    #[test]
    fn only_the_expected_record_is_looked_at() {
        let mut targets = started();
        let list = [record(0x3000, 50), [0; 16]];
        assert_eq!(targets.refill(&list, ORDER), Ok(Taken::NONE));
        let list = [[0; 16], record(0x2000, 60)];
        assert_eq!(targets.refill(&list, ORDER), Ok(Taken(2)));
        let _ = targets.take(100);
        assert_eq!(targets.take(60), Sge { addr: 0x2000, key: 9, length: 60 });
    }

    #[test]
    fn both_records_may_come_with_one_message() {
        let mut targets = started();
        let _ = targets.take(100);
        let list = [record(0x3000, 50), record(0x2000, 60)];
        assert_eq!(targets.refill(&list, ORDER), Ok(Taken(3)));
        assert_eq!(targets.take(60).addr, 0x2000);
        assert_eq!(targets.take(50).addr, 0x3000);
    }

    #[test]
    fn half_a_record_is_left_for_later() {
        let mut targets = started();
        assert_eq!(targets.refill(&[[0; 16], record(0, 60)], ORDER), Ok(Taken::NONE));
        assert_eq!(targets.refill(&[[0; 16], record(0x2000, 0)], ORDER), Ok(Taken::NONE));
    }

    #[test]
    fn hostile_records_are_faults() {
        let mut targets = started();
        assert_eq!(targets.refill(&[[0; 16], record(u64::MAX - 3, 5)], ORDER), Err(PeerFault::RecordOverflow));
        let both = [record(0x3000, 50), record(0x2000, 60)];
        assert_eq!(started().refill(&both, ORDER), Err(PeerFault::RecordInUse));
    }
}
