//! What has been moved, and whether the peer takes what it is sent.

use super::Engine;

impl Engine {
    /// Bytes that the program has handed over, and taken.
    pub fn moved(&self) -> (u64, u64) {
        self.moved
    }

    /// Counts bytes that the program has handed over, and taken.
    #[inline]
    pub fn note_moved(&mut self, sent: usize, received: usize) {
        self.moved = (self.moved.0.wrapping_add(sent as u64), self.moved.1.wrapping_add(received as u64));
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
