//! What has been moved, and whether the peer takes what it is sent.

use super::Engine;
use crate::fabric::FabricKind;

/// So many messages without an answer are a stream.
const STREAM: u32 = 16;
/// So many looks that find little are no chance.
const SCANT: u32 = 8;

impl Engine {
    /// Bytes that the program has handed over, and taken.
    pub fn moved(&self) -> (u64, u64) {
        self.moved
    }

    /// Counts bytes that the program has handed over.
    #[inline(always)]
    pub fn note_sent(&mut self, count: usize) {
        self.moved.0 = self.moved.0.wrapping_add(count as u64);
        self.answered = self.connection.arrivals();
    }

    /// Counts bytes that the program has taken.
    #[inline(always)]
    pub fn note_taken(&mut self, count: usize) {
        self.moved.1 = self.moved.1.wrapping_add(count as u64);
    }

    /// Whether the peer sends through memory that this end looks at, message after message, and waits for no answer.
    pub fn is_streamed_to(&self) -> bool {
        self.kind == FabricKind::Shm && self.connection.arrivals().wrapping_sub(self.answered) >= STREAM
    }

    /// Whether it is, and the looks one after the other find little: each takes the message that was just written, and the cache line that the
    /// next one is written to.
    #[inline(always)]
    pub fn is_on_its_heels(&self) -> bool {
        self.scant >= SCANT && self.is_streamed_to()
    }

    /// Whether each request is to say when it is done, see [`Engine::progress`].
    pub fn watch(&mut self, on: bool) {
        self.watched = on;
        self.connection.set_signal_all(on);
    }

    /// What moves on as long as the peer takes what it is sent: bytes handed over and requests done.
    pub fn progress(&self) -> (u64, u64) {
        (self.moved.0, self.done)
    }

    /// Notes whether there was room for all that the program wanted to send.
    #[inline]
    pub fn note_room(&mut self, lacking: bool) {
        if self.watched {
            self.lacks_room = lacking;
        }
    }

    /// Whether something is under way that the peer has not acknowledged, or waits for room there.
    pub fn waits_for_peer(&self) -> bool {
        self.connection.outstanding() > 0 || (self.lacks_room && self.connection.can_write() && self.connection.writable() == 0)
    }

    /// Bytes that the receive area has room for.
    pub fn receive_space(&self) -> u32 {
        self.endpoint.exposed().receive.length
    }
}
