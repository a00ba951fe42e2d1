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

/// Events of a connected stream with this SO_RCVLOWAT. socket(7): "select(2), poll(2), and epoll(7) indicate a socket as readable only if
/// at least SO_RCVLOWAT bytes are available"; as with TCP also when there is no room for so many.
pub fn stream(engine: &Engine, receive_low: u32) -> i16 {
    let connection = engine.connection();
    let mut events = 0;
    let readable = connection.readable();
    if readable > 0 && (readable >= receive_low || connection.receives_no_more()) {
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
