//! The 24-byte record of the iomap table: offset (8), then the mapped memory (16) (PROTOCOL.md 1.3 and 1.7).
//!
//! Like the target list before it, the table is in the byte order of its owner.

use super::{ByteOrder, Sge, field};

const OFFSET: usize = 0;
const MEMORY: usize = OFFSET + 8;

/// One mapping: memory of the writer of the record that the table's owner may write to.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub struct IomapRecord {
    /// The file-like offset at which the memory is mapped.
    pub offset: u64,
    /// The memory.
    pub memory: Sge,
}

impl IomapRecord {
    /// Size of the record.
    pub const BYTES: usize = MEMORY + Sge::BYTES;

    /// Reads a record. Every 24 bytes are one.
    pub fn parse(bytes: &[u8; Self::BYTES], order: ByteOrder) -> IomapRecord {
        IomapRecord { offset: order.get_u64(field::get(bytes, OFFSET)), memory: Sge::parse(&field::get(bytes, MEMORY), order) }
    }

    /// Writes the record over all 24 bytes.
    pub fn emit(&self, bytes: &mut [u8; Self::BYTES], order: ByteOrder) {
        field::put(bytes, OFFSET, order.put_u64(self.offset));
        field::put(bytes, MEMORY, self.memory.to_bytes(order));
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

    const RECORD: IomapRecord = IomapRecord { offset: 0x1000, memory: Sge { addr: 0x7f00_1234_5000, key: 0x04e9, length: 0x2000 } };
    const BIG: [u8; 24] = [0, 0, 0, 0, 0, 0, 0x10, 0, 0, 0, 0x7f, 0, 0x12, 0x34, 0x50, 0, 0, 0, 4, 0xe9, 0, 0, 0x20, 0];
    const LITTLE: [u8; 24] = [0, 0x10, 0, 0, 0, 0, 0, 0, 0, 0x50, 0x34, 0x12, 0, 0x7f, 0, 0, 0xe9, 4, 0, 0, 0, 0x20, 0, 0];

    #[test]
    fn bytes_in() {
        let record = IomapRecord::parse(&BIG, ByteOrder::Big);
        assert_eq!((record.offset, record.memory.addr), (0x1000, 0x7f00_1234_5000));
        assert_eq!((record.memory.key, record.memory.length), (0x04e9, 0x2000));
    }

    #[test]
    fn bytes_out() {
        let mut bytes = [0xa5; 24];
        RECORD.emit(&mut bytes, ByteOrder::Little);
        assert_eq!(bytes, LITTLE);
    }

    #[test]
    fn parse() {
        assert_eq!(IomapRecord::parse(&LITTLE, ByteOrder::Little), RECORD);
        assert_eq!(IomapRecord::parse(&BIG, ByteOrder::Big), RECORD);
    }

    #[test]
    fn emit() {
        assert_eq!(RECORD.to_bytes(ByteOrder::Big), BIG);
        assert_eq!(RECORD.to_bytes(ByteOrder::Little), LITTLE);
    }

    #[test]
    fn malformed_is_impossible_every_field_takes_any_value() {
        let all = IomapRecord::parse(&[0xff; 24], ByteOrder::Big);
        assert_eq!(all.offset, u64::MAX);
        assert_eq!(all.to_bytes(ByteOrder::Big), [0xff; 24]);
    }
}
