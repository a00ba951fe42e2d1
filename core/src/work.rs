//! The plain values that pass between `protocol` and `fabric`: work requests down, completions up.
//!
//! Neither side names the other: a protocol machine yields [`WorkRequest`]s and takes [`Completion`]s, a fabric does the
//! opposite, and `socket` carries them across.

use crate::wire::Sge;

/// How messages travel on a transport (PROTOCOL.md 1.4 and 1.9).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MessageMode {
    /// RDMA write with immediate: the immediate is the message.
    Immediate,
    /// iWARP: a 4-byte SEND in the sender's host order is the message, its payload goes ahead as a plain write.
    Send,
}

/// The address of memory that the peer exposes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub struct RemoteAddress {
    /// Virtual address at the owner.
    pub addr: u64,
    /// The owner's key (rkey).
    pub key: u32,
}

/// Where the bytes of a work request come from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Payload {
    /// A zero-length transfer.
    Empty,
    /// `len` bytes at `offset` of the endpoint's send area. They must stay as they are until the request has completed,
    /// unless they were sent inline.
    SendArea {
        /// Byte offset in the send area.
        offset: u32,
        /// Length in bytes, at least 1.
        len: u32,
    },
    /// `len` bytes of registered memory of the program's, as with the send area, at an address under a key of this end's.
    Registered {
        /// Where.
        addr: u64,
        /// The key for the device.
        key: u32,
        /// Length in bytes, at least 1.
        len: u32,
    },
    /// The request carries its bytes itself (records of 16 or 24 bytes, the 4 bytes of an iWARP message).
    Bytes {
        /// The bytes, valid up to `len`.
        bytes: [u8; 24],
        /// How many of them count.
        len: u8,
    },
}

impl Payload {
    /// A payload of at most 24 bytes that travels in the request itself. Longer input is cut off.
    pub fn bytes(from: &[u8]) -> Self {
        let mut bytes = [0; 24];
        let mut len = 0_u8;
        for (to, byte) in bytes.iter_mut().zip(from) {
            *to = *byte;
            len += 1;
        }
        Payload::Bytes { bytes, len }
    }

    /// Length in bytes.
    pub fn len(&self) -> u32 {
        match self {
            Payload::Empty => 0,
            Payload::SendArea { len, .. } | Payload::Registered { len, .. } => *len,
            Payload::Bytes { len, .. } => u32::from(*len),
        }
    }

    /// Whether the transfer has no bytes.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }
}

/// What a work request does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Operation {
    /// A plain RDMA write; the peer is not told.
    Write {
        /// Where the payload lands.
        to: RemoteAddress,
    },
    /// An RDMA write with immediate; the peer gets a completion that carries `immediate` (host order here).
    WriteWithImmediate {
        /// Where the payload lands; ignored for an empty payload.
        to: RemoteAddress,
        /// The 32-bit message.
        immediate: u32,
    },
    /// A SEND of the payload (at most 4 bytes): a message in [`MessageMode::Send`].
    Send,
}

/// One entry for a send queue.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct WorkRequest {
    /// Comes back in [`Completion::Sent`]. Counts up with every work request of a connection, so a completion also says
    /// that all requests with lower numbers are done.
    pub id: u64,
    /// What to do.
    pub operation: Operation,
    /// With which bytes.
    pub payload: Payload,
    /// Ask for a completion. Without it only a failure is reported.
    pub signaled: bool,
}

/// A message with bytes of the send area, by an RDMA write with immediate: what nearly every work request is, without what the others
/// could be.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DataWrite {
    /// See [`WorkRequest::id`].
    pub id: u64,
    /// Where the bytes land.
    pub to: RemoteAddress,
    /// The 32-bit message.
    pub immediate: u32,
    /// Byte offset in the send area.
    pub offset: u32,
    /// Length in bytes, at least 1.
    pub len: u32,
    /// See [`WorkRequest::signaled`].
    pub signaled: bool,
}

impl DataWrite {
    /// The same as any other request.
    pub fn request(&self) -> WorkRequest {
        let DataWrite { id, to, immediate, offset, len, signaled } = *self;
        let operation = Operation::WriteWithImmediate { to, immediate };
        WorkRequest { id, operation, payload: Payload::SendArea { offset, len }, signaled }
    }
}

/// Why a work request failed: what the transport says, as far as a socket cares.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TransportError {
    /// The peer did not acknowledge within the retry limit: dead host or cut link.
    RetryExceeded,
    /// The queue pair was torn down (flush), after a disconnect or an earlier error.
    Flushed,
    /// The peer refused the access, or sent what this side could not take.
    RemoteAccess,
    /// Anything else; the provider's code.
    Other(u32),
}

/// What a completion queue delivers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Completion {
    /// A message arrived: the immediate in host order, or the 4 bytes of an iWARP SEND as `u32::from_ne_bytes`.
    /// One posted receive has been used up.
    Received {
        /// The message.
        message: u32,
    },
    /// A SEND of another length than 4, or a message of the other mode: never sent by a correct peer.
    ReceivedMalformed {
        /// Number of bytes that arrived.
        len: u32,
    },
    /// The signaled work request `id` and all before it are done.
    Sent {
        /// The request's id.
        id: u64,
    },
    /// The connection is broken.
    Failed(TransportError),
}

/// The memory that an endpoint exposes to the peer, as the connect record announces it (PROTOCOL.md 1.2, 1.3).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ExposedMemory {
    /// The whole receive area: address, key, length in bytes.
    pub receive: Sge,
    /// The target list and, behind it, the iomap table: address, key, length in bytes.
    pub targets: Sge,
}
