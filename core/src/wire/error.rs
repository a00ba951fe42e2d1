//! What can be wrong with bytes from the wire.

use core::fmt;

/// Bytes that are not what the protocol allows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WireError {
    /// A record with fewer bytes than it needs.
    TooShort {
        /// How many there were.
        len: usize,
    },
    /// A connect record of another protocol version.
    Version(u8),
    /// An operation that is reserved, or never sent (WRITE).
    ReservedOperation(u8),
    /// A CTRL message with an unknown value.
    UnknownControl(u32),
}

impl fmt::Display for WireError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            WireError::TooShort { len } => write!(f, "record cut off after {len} bytes"),
            WireError::Version(version) => write!(f, "protocol version {version}"),
            WireError::ReservedOperation(operation) => write!(f, "reserved operation {operation}"),
            WireError::UnknownControl(value) => write!(f, "unknown control value {value:#x}"),
        }
    }
}

impl core::error::Error for WireError {}
