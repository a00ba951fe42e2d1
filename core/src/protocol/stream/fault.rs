//! What a peer can do wrong. Each fault ends the connection: [`super::State::Broken`].

use core::fmt;

use crate::wire::WireError;

/// A breach of the protocol by the peer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PeerFault {
    /// The connect record is of another version.
    Version(u8),
    /// The connect record is cut off.
    RecordTooShort(usize),
    /// The connect record grants no message.
    NoCredits,
    /// The connect record has no receive buffer.
    NoBuffer,
    /// The connect record has no target list.
    NoTargets,
    /// A record describes memory that reaches beyond the end of the address space.
    RecordOverflow,
    /// A record was filled in that is not used up.
    RecordInUse,
    /// An IOMAP message of an entry that our table does not have.
    NoSuchEntry {
        /// The entry.
        index: u32,
        /// How many there are.
        entries: u16,
    },
    /// A message with a reserved operation.
    ReservedOperation(u8),
    /// A control message with an unknown value.
    UnknownControl(u32),
    /// A message that is not 4 bytes long, or that came in the way of the other mode.
    MalformedMessage(u32),
    /// More data than was advertised, or data across the end of a record.
    DataTooLong {
        /// Length of the message.
        len: u32,
        /// What the record had room for.
        room: u32,
    },
    /// A message without credit.
    NoCreditLeft,
    /// A send limit below an earlier one, or above what the peer can ever grant.
    BadLimit {
        /// The limit.
        limit: u16,
        /// Messages sent so far (wrapping).
        sent: u16,
    },
    /// Data after the peer had ended its direction.
    DataAfterEnd,
    /// A message before the peer's connect record was known.
    NotEstablished,
}

impl PeerFault {
    /// A short name, for counters.
    pub const fn name(&self) -> &'static str {
        match self {
            PeerFault::Version(_) => "version",
            PeerFault::RecordTooShort(_) => "record_too_short",
            PeerFault::NoCredits => "no_credits",
            PeerFault::NoBuffer => "no_buffer",
            PeerFault::NoTargets => "no_targets",
            PeerFault::RecordOverflow => "record_overflow",
            PeerFault::RecordInUse => "record_in_use",
            PeerFault::NoSuchEntry { .. } => "no_such_entry",
            PeerFault::ReservedOperation(_) => "reserved_operation",
            PeerFault::UnknownControl(_) => "unknown_control",
            PeerFault::MalformedMessage(_) => "malformed_message",
            PeerFault::DataTooLong { .. } => "data_too_long",
            PeerFault::NoCreditLeft => "no_credit_left",
            PeerFault::BadLimit { .. } => "bad_limit",
            PeerFault::DataAfterEnd => "data_after_end",
            PeerFault::NotEstablished => "not_established",
        }
    }
}

impl fmt::Display for PeerFault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            PeerFault::Version(version) => write!(f, "the peer speaks protocol version {version}"),
            PeerFault::RecordTooShort(len) => write!(f, "the peer's connect record has {len} bytes"),
            PeerFault::NoCredits => write!(f, "the peer grants no messages"),
            PeerFault::NoBuffer => write!(f, "the peer has no receive buffer"),
            PeerFault::NoTargets => write!(f, "the peer has no target list"),
            PeerFault::RecordOverflow => write!(f, "the peer advertised memory beyond the address space"),
            PeerFault::NoSuchEntry { index, entries } => write!(f, "the peer writes entry {index} of an iomap table of {entries}"),
            PeerFault::RecordInUse => write!(f, "the peer advertised a record again that is not used up"),
            PeerFault::ReservedOperation(operation) => write!(f, "the peer sent reserved operation {operation}"),
            PeerFault::UnknownControl(value) => write!(f, "the peer sent unknown control value {value:#x}"),
            PeerFault::MalformedMessage(len) => write!(f, "the peer sent a malformed message of {len} bytes"),
            PeerFault::DataTooLong { len, room } => write!(f, "the peer sent {len} bytes where {room} were advertised"),
            PeerFault::NoCreditLeft => write!(f, "the peer sent more messages than were granted"),
            PeerFault::BadLimit { limit, sent } => write!(f, "the peer set a send limit of {limit} after {sent} messages"),
            PeerFault::DataAfterEnd => write!(f, "the peer sent data after it had shut down"),
            PeerFault::NotEstablished => write!(f, "the peer sent a message before its connect record"),
        }
    }
}

impl core::error::Error for PeerFault {}

impl From<WireError> for PeerFault {
    fn from(error: WireError) -> Self {
        match error {
            WireError::TooShort { len } => PeerFault::RecordTooShort(len),
            WireError::Version(version) => PeerFault::Version(version),
            WireError::ReservedOperation(operation) => PeerFault::ReservedOperation(operation),
            WireError::UnknownControl(value) => PeerFault::UnknownControl(value),
        }
    }
}
