//! The bytes that travel: one structure a file, pure, `parse` and `to_bytes` on fixed arrays (PROTOCOL.md).
#![forbid(unsafe_code)]

mod connect;
mod datagram;
mod error;
mod field;
mod immediate;
mod iomap;
mod order;
mod sge;

pub use connect::{ConnectRecord, VERSION, decode_iomap_size, encode_iomap_size, round_iomap_size};
pub use datagram::{MAX_MESSAGE, MAX_QUEUE_PAIR, Operation, QUEUE_KEY, TAG, UdHeader, UdpHeader};
pub use error::WireError;
pub use immediate::{Control, MAX_DATA, Message};
pub use iomap::IomapRecord;
pub use order::ByteOrder;
pub use sge::Sge;
