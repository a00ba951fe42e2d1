//! The sending direction: the ring that data is copied into, and what was committed and not handed out yet.

use std::collections::VecDeque;

use super::{FIRST_WRITE, credit::SendCredit, target::Targets};
use crate::{
    wire::{MAX_DATA, Sge},
    work::{Payload, RemoteAddress},
};

/// What is sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum What {
    /// A DATA message, from the send area.
    Data,
    /// Bytes for memory that the peer has mapped, from the send area.
    Placed,
    /// The same, from registered memory of the program's, at this address under this key of ours.
    PlacedFrom(RemoteAddress),
}

/// A committed write. Queue entries for it are taken, for a DATA message credit and room at the peer as well.
#[derive(Clone, Copy, Debug)]
pub(super) struct Committed {
    pub(super) what: What,
    /// Offset in the send area.
    pub(super) offset: u32,
    /// Where it goes, and its length.
    pub(super) to: Sge,
}

impl Committed {
    /// Where it goes, and from where.
    pub(super) fn transfer(&self) -> (RemoteAddress, Payload) {
        let Sge { addr, key, length } = self.to;
        let payload = match self.what {
            What::Data | What::Placed => Payload::SendArea { offset: self.offset, len: length },
            What::PlacedFrom(RemoteAddress { addr, key }) => Payload::Registered { addr, key, len: length },
        };
        (RemoteAddress { addr, key }, payload)
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
    /// Writes from registered memory that have been committed in all.
    registered: u64,
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
            registered: 0,
            targets: Targets::default(),
            credit: SendCredit::default(),
        }
    }

    pub(super) fn size(&self) -> u32 {
        self.size
    }

    /// What one message may carry, the ramp apart.
    #[inline(always)]
    fn room(&self) -> u32 {
        if self.credit.available() == 0 {
            return 0;
        }
        self.contiguous().min(self.targets.room())
    }

    /// Free bytes of the ring that lie together.
    fn contiguous(&self) -> u32 {
        (self.size - self.used).min(self.size - self.write_at)
    }

    pub(super) fn placeable(&self) -> u32 {
        self.contiguous().min(self.piece)
    }

    #[inline(always)]
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

    /// Makes a message of the `len` bytes at `write_at`, to be sent now: no more than [`Sender::writable`] says, and at least one.
    #[inline(always)]
    pub(super) fn take(&mut self, len: u32) -> Committed {
        self.credit.use_one();
        let message = Committed { what: What::Data, offset: self.write_at, to: self.targets.take(len) };
        self.advance(len);
        message
    }

    /// `len` bytes of the ring are taken, no more than are free.
    #[inline(always)]
    fn advance(&mut self, len: u32) {
        if len >= self.piece {
            self.piece = self.piece.saturating_mul(2).min(self.max_write);
        }
        self.used += len;
        self.write_at += len;
        if self.write_at == self.size {
            self.write_at = 0;
        }
    }

    /// The `len` bytes at `write_at` go to mapped memory, in their turn.
    pub(super) fn place(&mut self, len: u32, to: RemoteAddress) {
        let len = len.min(self.contiguous()).min(self.max_write);
        if len > 0 {
            let to = Sge { addr: to.addr, key: to.key, length: len };
            self.committed.push_back(Committed { what: What::Placed, offset: self.write_at, to });
            self.advance(len);
        }
    }

    /// `len` bytes of registered memory go to mapped memory, in their turn.
    pub(super) fn place_from(&mut self, from: RemoteAddress, len: u32, to: RemoteAddress) {
        if len > 0 {
            let to = Sge { addr: to.addr, key: to.key, length: len };
            self.committed.push_back(Committed { what: What::PlacedFrom(from), offset: 0, to });
            self.registered += 1;
        }
    }

    /// Writes from registered memory that have been committed in all.
    pub(super) fn registered(&self) -> u64 {
        self.registered
    }

    /// A message of the `len` bytes at `write_at` that is sent in its turn. Longer than what [`Sender::writable`] said is cut off.
    pub(super) fn commit(&mut self, len: u32) {
        // The ramp may have started again since the caller asked; what it was told still holds.
        let len = len.min(self.room()).min(self.max_write);
        if len > 0 {
            let message = self.take(len);
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
