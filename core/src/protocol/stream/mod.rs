//! The stream protocol (PROTOCOL.md section 1) as a machine without input and output.
//!
//! A [`Connection`] decides what to send, where, and when, and keeps account of what arrived. The bytes themselves are the
//! caller's business: it copies into the send area at [`Connection::write_at`] and out of the receive area at
//! [`Connection::read_at`], posts what [`Connection::poll_work`] yields, in order, and hands in completions, in order.
//!
//! A connection belongs to one socket and is called under that socket's engine lock. Copies may go on without the lock:
//! what `writable`/`write_at` and `readable`/`read_at` have said stays true until `commit` and `consume`, whatever else is called
//! in between (unless the connection ends, which makes `commit` do nothing).
//!
//! Who owns what: `receive` the receive ring and the messages in it, `send` the send ring and the peer's records,
//! `credit` the message counters, `iomap` the mappings of both sides, `queue` the send queue and its completions, `connection` and `control` tie them together,
//! `shutdown` the states.

mod connection;
mod control;
mod credit;
mod fault;
mod iomap;
mod queue;
mod receive;
mod send;
mod shutdown;
mod state;
mod target;
#[cfg(test)]
mod tests;

pub use connection::Connection;
pub use fault::PeerFault;
pub use iomap::{MapError, Mapped};
pub use state::{Side, State};
pub use target::{Tables, Taken, TargetList};

use crate::work::{ExposedMemory, MessageMode};

/// Control messages that may be outstanding at once: the limit of the protocol.
pub const CONTROL_MESSAGES: u32 = 4;

/// Send queue entries kept for control messages where a message is one work request. See [`control_reserve`].
pub const CONTROL_RESERVE: u32 = CONTROL_MESSAGES;

/// Receives to post beyond `rq_size`. They take the peer's control messages, which need no credit, and cover for receives
/// that are posted late: fewer than [`REPOST_BATCH`] are missing at any time.
pub const RECEIVE_SLACK: u32 = 32;

/// So many used receives are posted again at once.
pub const REPOST_BATCH: u32 = 16;

/// The first write of a large send is at most this long and each following one twice as long, so that the wire is busy while
/// the next piece is copied.
pub const FIRST_WRITE: u32 = 16 << 10;

/// The largest single write, unless configured.
pub const DEFAULT_MAX_WRITE: u32 = 64 << 10;

/// The largest single write from memory that the program has registered: it needs no room in the send area.
pub const MOST_FROM_REGISTERED: u32 = 1 << 20;

/// Records in our own target list: where the peer advertises its receive buffer.
pub const TARGET_RECORDS: u32 = 2;

/// Send queue entries kept for control messages: [`CONTROL_MESSAGES`] times the work requests that one takes.
pub const fn control_reserve(mode: MessageMode) -> u32 {
    match mode {
        MessageMode::Immediate => CONTROL_RESERVE,
        MessageMode::Send => 2 * CONTROL_RESERVE,
    }
}

/// What a connection is made with.
#[derive(Clone, Copy, Debug)]
pub struct Config {
    /// Work requests that may be outstanding, after the device's limits. At least [`control_reserve`] and two for data.
    pub send_queue: u32,
    /// `rq_size`: the credits that the peer is granted. [`RECEIVE_SLACK`] more receives are posted. At least 1.
    pub receive_queue: u16,
    /// Size of the send area, at least 1.
    pub send_bytes: u32,
    /// Size of the receive area: even, at least 2.
    pub receive_bytes: u32,
    /// Payloads up to this size are copied when posted. At least 4 in [`MessageMode::Send`].
    pub inline: u32,
    /// Entries in our iomap table, a size that survives the connect record.
    pub iomap_entries: u16,
    /// How messages travel.
    pub mode: MessageMode,
    /// The memory that the peer may write to.
    pub exposed: ExposedMemory,
    /// The largest single write; see [`DEFAULT_MAX_WRITE`].
    pub max_write: u32,
    /// Our byte order: `cfg!(target_endian = "big")`, except in tests.
    pub host_is_big_endian: bool,
}
