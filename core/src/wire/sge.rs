//! The 16-byte scatter/gather record: addr (8), key (4), length (4) (PROTOCOL.md 1.2).

/// A piece of exposed memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub struct Sge {
    /// Virtual address at the owner.
    pub addr: u64,
    /// The owner's key (rkey).
    pub key: u32,
    /// Length in bytes, or in entries for the target list of the connect record.
    pub length: u32,
}
