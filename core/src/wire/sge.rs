//! The 16-byte scatter/gather record: addr (8), key (4), length (4) (PROTOCOL.md 1.2).
//!
//! Big endian within the connect record, in the byte order of the memory's owner within a target list.

use super::{ByteOrder, field};

const ADDR: usize = 0;
const KEY: usize = ADDR + 8;
const LENGTH: usize = KEY + 4;

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

impl Sge {
    /// Size of the record.
    pub const BYTES: usize = LENGTH + 4;

    /// Reads a record. Every 16 bytes are one.
    pub fn parse(bytes: &[u8; Self::BYTES], order: ByteOrder) -> Sge {
        Sge {
            addr: order.get_u64(field::get(bytes, ADDR)),
            key: order.get_u32(field::get(bytes, KEY)),
            length: order.get_u32(field::get(bytes, LENGTH)),
        }
    }

    /// Writes the record over all 16 bytes.
    pub fn emit(&self, bytes: &mut [u8; Self::BYTES], order: ByteOrder) {
        field::put(bytes, ADDR, order.put_u64(self.addr));
        field::put(bytes, KEY, order.put_u32(self.key));
        field::put(bytes, LENGTH, order.put_u32(self.length));
    }

    /// The record as bytes.
    pub fn to_bytes(&self, order: ByteOrder) -> [u8; Self::BYTES] {
        let mut bytes = [0; Self::BYTES];
        self.emit(&mut bytes, order);
        bytes
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const RECORD: Sge = Sge { addr: 0x5564_bb41_c000, key: 0x3b6, length: 2 };
    const BIG: [u8; 16] = [0, 0, 0x55, 0x64, 0xbb, 0x41, 0xc0, 0, 0, 0, 3, 0xb6, 0, 0, 0, 2];
    const LITTLE: [u8; 16] = [0, 0xc0, 0x41, 0xbb, 0x64, 0x55, 0, 0, 0xb6, 3, 0, 0, 2, 0, 0, 0];

    #[test]
    fn bytes_in() {
        assert_eq!(Sge::parse(&BIG, ByteOrder::Big).addr, 0x5564_bb41_c000);
        assert_eq!(Sge::parse(&BIG, ByteOrder::Big).key, 0x3b6);
        assert_eq!(Sge::parse(&BIG, ByteOrder::Big).length, 2);
    }

    #[test]
    fn bytes_out() {
        let mut bytes = [0xa5; 16];
        RECORD.emit(&mut bytes, ByteOrder::Big);
        assert_eq!(bytes, BIG);
        let mut bytes = [0xa5; 16];
        RECORD.emit(&mut bytes, ByteOrder::Little);
        assert_eq!(bytes, LITTLE);
    }

    #[test]
    fn parse() {
        assert_eq!(Sge::parse(&BIG, ByteOrder::Big), RECORD);
        assert_eq!(Sge::parse(&LITTLE, ByteOrder::Little), RECORD);
        assert_eq!(Sge::parse(&[0; 16], ByteOrder::Little), Sge::default());
    }

    #[test]
    fn emit() {
        assert_eq!(RECORD.to_bytes(ByteOrder::Big), BIG);
        assert_eq!(RECORD.to_bytes(ByteOrder::Little), LITTLE);
    }

    #[test]
    fn malformed_is_impossible_every_field_takes_any_value() {
        let all = Sge::parse(&[0xff; 16], ByteOrder::Big);
        assert_eq!(all, Sge { addr: u64::MAX, key: u32::MAX, length: u32::MAX });
        assert_eq!(all.to_bytes(ByteOrder::Little), [0xff; 16]);
    }
}
