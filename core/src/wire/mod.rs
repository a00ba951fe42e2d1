//! The bytes that travel: one structure a file, pure, `parse` and `to_bytes` on fixed arrays (PROTOCOL.md).
#![forbid(unsafe_code)]

mod sge;

pub use sge::Sge;
