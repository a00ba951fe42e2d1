//! How a connection ends (PROTOCOL.md 1.8).

use super::{Connection, PeerFault, Side, State};
use crate::{log_debug, wire::Control};

impl Connection {
    /// The state.
    pub fn state(&self) -> State {
        self.state
    }

    /// Whether there is data to read, or there may be some later.
    pub fn can_read(&self) -> bool {
        self.readable() > 0 || self.state.peer_may_send()
    }

    /// Whether data may be committed, as soon as there is room.
    pub fn can_write(&self) -> bool {
        self.state.may_send()
    }

    /// Whether the peer takes nothing more: it closed the connection, or both directions are over, or the transport failed.
    pub fn peer_disconnected(&self) -> bool {
        matches!(self.state, State::Disconnected(Side::Peer | Side::Both) | State::Broken)
    }

    /// Whether the peer sends no more and everything before was read.
    pub fn end_of_file(&self) -> bool {
        !self.can_read()
    }

    /// Ends our direction, after the data committed so far.
    pub fn shutdown_write(&mut self) {
        match self.state {
            State::Open => {
                self.due.end = Some(Control::Shutdown);
                self.set_state(State::WriteShut);
            }
            // That was the second direction.
            State::ReadShut => {
                self.due.end = Some(Control::Disconnect);
                self.set_state(State::Disconnected(Side::Both));
            }
            State::Connecting | State::WriteShut | State::Disconnected(_) | State::Broken => {}
        }
    }

    /// Ends both directions, after the data committed so far.
    pub fn disconnect(&mut self) {
        match self.state {
            State::Open | State::WriteShut | State::ReadShut => {
                // Takes the place of a SHUTDOWN that has not been sent.
                self.due.end = Some(Control::Disconnect);
                self.set_state(State::Disconnected(Side::Local));
            }
            State::Connecting => self.set_state(State::Disconnected(Side::Local)),
            State::Disconnected(_) | State::Broken => {}
        }
    }

    /// The transport failed, or the connection manager says that the connection is over. What arrived before stays readable, so hand in
    /// the messages that have completed first: what comes later is ignored.
    pub fn broken(&mut self) {
        match self.state {
            State::Connecting | State::Open | State::WriteShut | State::ReadShut => self.set_state(State::Broken),
            State::Disconnected(Side::Local) => self.set_state(State::Disconnected(Side::Both)),
            State::Disconnected(Side::Peer | Side::Both) | State::Broken => {}
        }
        self.drop_work();
        self.queue.clear();
    }

    /// The peer broke the protocol.
    pub(super) fn broken_by_peer(&mut self) {
        self.set_state(State::Broken);
        self.drop_work();
        self.queue.clear();
    }

    /// Data, or an iomap record, is taken until the peer has ended its direction; after our own close it is dropped by nobody reading.
    #[inline]
    pub(super) fn may_take_data(&self) -> Result<(), PeerFault> {
        if self.state == State::Open {
            return Ok(());
        }
        match self.state {
            State::Open | State::WriteShut | State::Disconnected(Side::Local) => Ok(()),
            State::Connecting => Err(PeerFault::NotEstablished),
            State::ReadShut | State::Disconnected(Side::Peer | Side::Both) | State::Broken => Err(PeerFault::DataAfterEnd),
        }
    }

    /// DISCONNECT arrived, or the peer's process is gone and all has come that it had sent: what we have not sent cannot be received any more.
    pub fn peer_disconnects(&mut self) {
        let side = match self.state {
            State::WriteShut | State::Disconnected(Side::Local | Side::Both) => Side::Both,
            _ => Side::Peer,
        };
        self.set_state(State::Disconnected(side));
        self.drop_work();
    }

    /// SHUTDOWN arrived. What we have not sent still goes out, and so does the end of our direction.
    pub(super) fn peer_shuts_down(&mut self) {
        match self.state {
            State::Open => self.set_state(State::ReadShut),
            State::WriteShut | State::Disconnected(Side::Local) => self.set_state(State::Disconnected(Side::Both)),
            State::Connecting | State::ReadShut | State::Disconnected(_) | State::Broken => {}
        }
    }

    /// The only writer of the state.
    pub(super) fn set_state(&mut self, to: State) {
        if self.state != to {
            log_debug!("stream: {:?} -> {to:?}", self.state);
            self.state = to;
        }
    }
}
