//! The events of poll(2), as the kernel's TCP reports them in the same state.

use libc::{POLLERR, POLLHUP, POLLIN, POLLOUT, POLLRDHUP, POLLRDNORM, POLLWRNORM};

use super::engine::Engine;

/// What a poller learns about a socket.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Readiness {
    /// These events (POLLIN …).
    Events(i16),
    /// Ask the kernel about the descriptor.
    Kernel,
}

/// Events of a connected stream.
pub fn stream(engine: &Engine) -> i16 {
    let connection = engine.connection();
    let mut events = 0;
    if connection.readable() > 0 {
        events |= POLLIN | POLLRDNORM;
    }
    let read_over = engine.at_end_of_stream();
    // poll(2): POLLRDHUP "Stream socket peer closed connection, or shut down writing half of connection"; reading does not block.
    if read_over {
        events |= POLLIN | POLLRDNORM | POLLRDHUP;
    }
    let write_over = !connection.can_write();
    if connection.writable() > 0 || write_over {
        events |= POLLOUT | POLLWRNORM;
    }
    // poll(2): POLLHUP: both directions are over. A peer that has closed in an orderly way only ends its own direction, as with TCP.
    if engine.is_over() || (read_over && engine.write_shut()) {
        events |= POLLHUP;
    }
    if engine.has_error() {
        events |= POLLERR;
    }
    events
}

/// Events after a failed connect. (As the kernel: POLLERR until SO_ERROR has been read.)
pub fn failed(error_pending: bool) -> i16 {
    let events = POLLIN | POLLRDNORM | POLLOUT | POLLWRNORM | POLLHUP | POLLRDHUP;
    if error_pending { events | POLLERR } else { events }
}
