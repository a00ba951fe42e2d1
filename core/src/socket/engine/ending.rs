//! How a connection ends, from either side.

use super::{Engine, PUMPS_AT_END};
use crate::{
    error::Errno,
    protocol::stream::{Side, State},
    socket::wait::Interest,
};

impl Engine {
    /// Ends the connection with an error for the program.
    pub fn reset(&mut self, errno: Errno) {
        if self.is_open() && self.error.is_none() {
            self.error = Some(errno);
        }
        self.connection.broken();
        self.end_in_disorder();
    }

    /// The connection manager says that the connection is over: what arrived before stays readable, then comes end of file.
    pub fn peer_gone(&mut self) -> Interest {
        // Whatever is left behind here is lost. There is nobody to answer to, and perhaps there never was a connection to post to.
        for _ in 0..PUMPS_AT_END {
            if self.take_completions().is_empty() {
                break;
            }
        }
        self.gone();
        Interest::all()
    }

    /// The connection is over. A peer that said nothing before has reset it, or was killed: what it sent may not be all that it
    /// wanted to send, which is worth an error (tcp(7): ECONNRESET).
    pub(super) fn gone(&mut self) {
        if self.is_open() && self.endpoint.peer_has_closed() {
            self.connection.peer_disconnects();
            return;
        }
        if self.is_open() && self.connection.state().peer_may_send() && self.error.is_none() {
            self.error = Some(Errno::CONNRESET);
        }
        self.connection.broken();
        self.end();
    }

    /// A write after the peer has closed: the first one is taken and lost, as by TCP, which learns only then that nobody reads (no
    /// program is killed by SIGPIPE for saying good-bye). One of no bytes tells the peer nothing. False: EPIPE.
    pub fn swallow(&mut self, bytes: usize) -> bool {
        let first = self.connection.state() == State::Disconnected(Side::Peer) && !self.write_shut && !self.reset;
        if first && bytes > 0 {
            // What the peer answers then: tcp(7), "EPIPE: the other end closed the socket unexpectedly".
            self.reset = true;
            self.error.get_or_insert(Errno::PIPE);
        }
        first
    }

    /// The error that a read reports, once. That of a write is none of its: it finds the end of file.
    pub fn take_read_error(&mut self) -> Option<Errno> {
        self.error.take_if(|error| *error != Errno::PIPE)
    }

    /// Whether the connection is known to be over in both directions.
    pub fn is_over(&self) -> bool {
        self.is_broken() || self.reset
    }

    /// Whether the peer has sent data or an orderly end.
    pub fn has_arrived(&self) -> bool {
        self.connection.readable() > 0 || !self.is_broken()
    }

    /// Ends the connection manager's connection; once.
    pub fn end(&mut self) {
        if !self.disconnected {
            self.disconnected = true;
            self.endpoint.disconnect();
        }
    }

    /// As [`Engine::end`]: the peer is to see a reset, where it can.
    pub fn end_in_disorder(&mut self) {
        if !self.disconnected {
            self.disconnected = true;
            self.endpoint.reset();
        }
    }

    /// After [`Engine::disconnect`]: whether all that was sent is known to have arrived, or to be where it arrives whatever happens here.
    pub fn is_delivered(&self) -> bool {
        self.connection.all_sent() || (self.connection.all_posted() && self.endpoint.has_delivered())
    }

    /// shutdown(SHUT_RD): reads find the end of file. As with TCP the peer is not told, and what it sends can still be read.
    pub fn shutdown_read(&mut self) {
        self.read_shut = true;
        self.end_if_shut();
    }

    /// Half close: what was written before goes first.
    pub fn shutdown_write(&mut self) {
        self.write_shut = true;
        if !self.end_if_shut() {
            self.connection.shutdown_write();
            self.transmit();
        }
    }

    /// Both directions are shut down: the peer's next write is answered by a reset, as after close.
    fn end_if_shut(&mut self) -> bool {
        let both = self.read_shut && self.write_shut;
        if both {
            self.connection.disconnect();
            self.transmit();
        }
        both
    }

    /// Full close: what was written before goes first, and completes visibly.
    pub fn disconnect(&mut self) {
        self.connection.disconnect();
        self.connection.set_signal_all(true);
        self.transmit();
        // Both directions were over already: the last requests may have been unsignaled.
        if self.connection.flush_needed() && self.connection.keep_alive() {
            self.transmit();
        }
    }
}
