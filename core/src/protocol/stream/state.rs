//! The states of a connection.

/// Who ended a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Side {
    /// We closed it.
    Local,
    /// The peer closed it.
    Peer,
    /// Each side ended its direction, or both closed.
    Both,
}

/// The state of a connection, as PROTOCOL.md 1.8 has it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum State {
    /// The peer's connect record is not known yet.
    Connecting,
    /// Data flows in both directions.
    Open,
    /// We have shut down our direction; the peer may send.
    WriteShut,
    /// The peer has shut down its direction; we may send.
    ReadShut,
    /// Both directions are over, in an orderly way.
    Disconnected(Side),
    /// The transport failed, or the peer broke the protocol.
    Broken,
}

impl State {
    /// Whether the peer may send data.
    pub const fn peer_may_send(self) -> bool {
        matches!(self, State::Connecting | State::Open | State::WriteShut)
    }

    /// Whether we may send data.
    pub const fn may_send(self) -> bool {
        matches!(self, State::Open | State::ReadShut)
    }

    /// Whether nothing that is sent now could reach the peer or matter to it.
    pub(super) const fn peer_is_gone(self) -> bool {
        matches!(self, State::Disconnected(Side::Peer) | State::Broken)
    }
}
