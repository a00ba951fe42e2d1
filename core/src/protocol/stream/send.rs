//! The sending direction: the ring that data is copied into, and what was committed and not handed out yet.

use std::collections::VecDeque;

use super::{FIRST_WRITE, credit::SendCredit, target::Targets};
use crate::{
    wire::{MAX_DATA, Sge},
    work::{Payload, RemoteAddress},
};

/// A committed DATA message. Credit, room at the peer and the queue entries for it are taken.
#[derive(Clone, Copy, Debug)]
pub(super) struct Committed {
    /// Offset in the send area.
    pub(super) offset: u32,
    /// Where it goes, and its length.
    pub(super) to: Sge,
}

impl Committed {
    /// Where it goes, and from where.
    pub(super) fn transfer(&self) -> (RemoteAddress, Payload) {
        let Sge { addr, key, length } = self.to;
        (RemoteAddress { addr, key }, Payload::SendArea { offset: self.offset, len: length })
    }
}

/// See the module.
#[derive(Debug)]
pub(super) struct Sender {
    /// Size of the ring.
    size: u32,
    /// Where the next bytes are copied to.
    write_at: u32,
    /// Bytes from the oldest one that is not known to be sent up to `write_at`.
    used: u32,
    /// The longest message.
    max_write: u32,
    /// The longest message now: see [`FIRST_WRITE`].
    piece: u32,
    committed: VecDeque<Committed>,
    /// Where the data goes.
    pub(super) targets: Targets,
    /// How many messages may go.
    pub(super) credit: SendCredit,
}

impl Sender {
    pub(super) fn new(size: u32, max_write: u32) -> Self {
        let max_write = max_write.clamp(1, MAX_DATA);
        Sender {
            size,
            write_at: 0,
            used: 0,
            max_write,
            piece: FIRST_WRITE.min(max_write),
            committed: VecDeque::new(),
            targets: Targets::default(),
            credit: SendCredit::default(),
        }
    }

    pub(super) fn size(&self) -> u32 {
        self.size
    }

    /// What one message may carry, the ramp apart.
    fn room(&self) -> u32 {
        if self.credit.available() == 0 {
            return 0;
        }
        (self.size - self.used).min(self.size - self.write_at).min(self.targets.room())
    }

    pub(super) fn writable(&self) -> u32 {
        self.room().min(self.piece)
    }

    /// Bytes that were committed and are not known to be sent.
    pub(super) fn used(&self) -> u32 {
        self.used
    }

    pub(super) fn write_at(&self) -> u32 {
        self.write_at
    }

    /// Makes a message of the `len` bytes at `write_at`, to be sent now. Longer than what [`Sender::writable`] said is cut off.
    #[inline]
    pub(super) fn message(&mut self, len: u32) -> Option<Committed> {
        // The ramp may have started again since the caller asked; what it was told still holds.
        let len = len.min(self.room()).min(self.max_write);
        if len == 0 {
            return None;
        }
        if len >= self.piece {
            self.piece = self.piece.saturating_mul(2).min(self.max_write);
        }
        self.credit.use_one();
        let message = Committed { offset: self.write_at, to: self.targets.take(len) };
        self.used += len;
        self.write_at += len;
        if self.write_at == self.size {
            self.write_at = 0;
        }
        Some(message)
    }

    /// A message that is sent in its turn.
    pub(super) fn commit(&mut self, len: u32) {
        if let Some(message) = self.message(len) {
            self.committed.push_back(message);
        }
    }

    pub(super) fn committed(&self) -> u32 {
        self.committed.len() as u32
    }

    pub(super) fn next(&mut self) -> Option<Committed> {
        self.committed.pop_front()
    }

    /// The oldest `bytes` in the ring were sent. `idle`: as far as is known, the queue has run empty.
    pub(super) fn sent(&mut self, bytes: u32, idle: bool) {
        self.used -= bytes.min(self.used);
        if idle {
            self.piece = FIRST_WRITE.min(self.max_write);
        }
    }

    /// Nobody waits for what is left.
    pub(super) fn clear(&mut self) {
        self.committed.clear();
    }
}
