//! The receiving direction: the ring of two halves, the messages in it, and the receives that are posted for them.

use std::collections::VecDeque;

use super::{PeerFault, RECEIVE_SLACK, REPOST_BATCH, credit::ReceiveCredit};

/// See the module.
#[derive(Debug)]
pub(super) struct Receiver {
    /// Size of the ring.
    size: u32,
    /// Where the next byte to read is.
    read_at: u32,
    /// Bytes that arrived and were not read.
    readable: u32,
    /// Messages with data that have arrived in all, modulo 2^32.
    arrivals: u32,
    /// Bytes that were advertised and have not arrived: of the half that is being filled, and of the one after it, which is all there or not.
    room: u32,
    room_after: u32,
    /// Bytes of the ring that are neither that nor readable.
    free: u32,
    /// Bytes that are still unread of the oldest message; 0: there is none.
    oldest: u32,
    /// The lengths of those that came after it, in order. At most as many as the receive queue has entries.
    messages: VecDeque<u32>,
    credit: ReceiveCredit,
    /// Receives used up and not posted again, and how many of them are posted again at once.
    used: u32,
    batch: u32,
    /// Whether the half to be advertised next is the second one.
    second_half: bool,
    /// Most of the first half is still to be filled: a connection that carries little never needs the second one, and is spared a
    /// message and a wake-up at each end.
    fresh: bool,
    /// The peer keeps one record only, so that it must be used up before it is filled in again.
    single_record: bool,
}

impl Receiver {
    /// The first half is advertised by the connect record.
    pub(super) fn new(size: u32, queue: u16) -> Self {
        let size = size & !1;
        Receiver {
            size,
            read_at: 0,
            readable: 0,
            arrivals: 0,
            room: size / 2,
            room_after: 0,
            free: size / 2,
            oldest: 0,
            messages: VecDeque::new(),
            credit: ReceiveCredit::new(queue),
            used: 0,
            batch: (u32::from(queue) / 4).clamp(1, REPOST_BATCH),
            second_half: true,
            fresh: true,
            single_record: false,
        }
    }

    /// How many records the peer's target list has.
    pub(super) fn set_peer_records(&mut self, count: u32) {
        self.single_record = count < 2;
    }

    pub(super) fn half(&self) -> u32 {
        self.size / 2
    }

    #[inline(always)]
    pub(super) fn receive_used(&mut self) {
        self.used = self.used.saturating_add(1);
    }

    pub(super) fn receives_initial(&self) -> u32 {
        u32::from(self.credit.size()) + RECEIVE_SLACK
    }

    #[inline(always)]
    pub(super) fn receives_due(&self) -> u32 {
        if self.used >= self.batch { self.used } else { 0 }
    }

    pub(super) fn receives_posted(&mut self, count: u32) {
        self.used = self.used.saturating_sub(count);
    }

    /// `by` bytes after `at` in the ring. Both are at most the size of the ring.
    #[inline(always)]
    fn wrap(&self, at: u32, by: u32) -> u32 {
        let to = u64::from(at) + u64::from(by);
        let size = u64::from(self.size);
        (if to >= size { to - size } else { to }) as u32
    }

    /// A DATA message.
    #[inline(always)]
    pub(super) fn data(&mut self, len: u32) -> Result<(), PeerFault> {
        self.credit.arrived()?;
        if len == 0 {
            self.credit.consumed(1);
            return Ok(());
        }
        // A message lies within one half.
        if len > self.room {
            return Err(PeerFault::DataTooLong { len, room: self.room });
        }
        self.room -= len;
        if self.fresh {
            self.fresh = self.room > self.half() / 4 * 3;
        }
        if self.room == 0 {
            self.room = core::mem::take(&mut self.room_after);
        }
        self.readable += len;
        self.arrivals = self.arrivals.wrapping_add(1);
        if self.oldest == 0 {
            self.oldest = len;
        } else {
            self.messages.push_back(len);
        }
        Ok(())
    }

    /// An IOMAP message: the record is in place, so it is done with.
    pub(super) fn iomap(&mut self) -> Result<(), PeerFault> {
        self.credit.arrived()?;
        self.credit.consumed(1);
        Ok(())
    }

    /// As the shipped library, which does not count IOMAP messages.
    #[cfg(test)]
    pub(super) fn forget_iomap(&mut self) {
        self.credit.forget_one();
    }

    pub(super) fn readable(&self) -> u32 {
        self.readable
    }

    pub(super) fn arrivals(&self) -> u32 {
        self.arrivals
    }

    /// The peer may send nothing more: neither room nor a message is left to it.
    pub(super) fn is_full(&self) -> bool {
        self.room == 0 || self.credit.left() == 0
    }

    #[inline(always)]
    pub(super) fn read_at(&self) -> Option<(u32, u32)> {
        if self.readable == 0 { None } else { Some((self.read_at, self.readable.min(self.size - self.read_at))) }
    }

    pub(super) fn peek_at(&self, skip: u32) -> Option<(u32, u32)> {
        let left = self.readable.checked_sub(skip).filter(|left| *left > 0)?;
        let at = self.wrap(self.read_at, skip);
        Some((at, left.min(self.size - at)))
    }

    #[inline(always)]
    pub(super) fn consume(&mut self, count: u32) {
        let count = count.min(self.readable);
        self.readable -= count;
        self.free += count;
        self.read_at = self.wrap(self.read_at, count);
        let mut left = count;
        let mut messages = 0;
        while left > 0 && self.oldest <= left {
            left -= self.oldest;
            messages += 1;
            self.oldest = self.messages.pop_front().unwrap_or(0);
            if self.oldest == 0 {
                break;
            }
        }
        self.oldest = self.oldest.saturating_sub(left);
        self.credit.consumed(messages);
    }

    /// Whether a grant has to be sent.
    #[inline(always)]
    pub(super) fn grant_due(&self) -> bool {
        self.credit.due() || self.half_is_free()
    }

    /// Whether a whole half is neither advertised nor unread. It is the next in rotation, as bytes are read in order.
    #[inline(always)]
    fn half_is_free(&self) -> bool {
        self.free >= self.half() && !self.fresh && self.half() > 0 && !(self.single_record && self.room > 0)
    }

    /// The limit to send now.
    pub(super) fn grant(&mut self) -> u16 {
        self.credit.grant()
    }

    /// The half to advertise now, as an offset in the ring.
    pub(super) fn advertise(&mut self) -> Option<u32> {
        if !self.half_is_free() {
            return None;
        }
        let offset = if self.second_half { self.half() } else { 0 };
        self.second_half = !self.second_half;
        self.free -= self.half();
        if self.room == 0 {
            self.room = self.half();
        } else {
            self.room_after = self.half();
        }
        Some(offset)
    }
}
