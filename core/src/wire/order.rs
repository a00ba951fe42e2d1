//! Byte order of a host, as a value: records in memory are in the order of the memory's owner (PROTOCOL.md 1.3).

/// A byte order.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ByteOrder {
    /// Least significant byte first.
    Little,
    /// Most significant byte first; also the order of the network.
    Big,
}

impl ByteOrder {
    /// The order of this machine.
    pub const HOST: ByteOrder = if cfg!(target_endian = "big") { ByteOrder::Big } else { ByteOrder::Little };

    /// Reads 32 bits.
    pub const fn get_u32(self, bytes: [u8; 4]) -> u32 {
        match self {
            ByteOrder::Little => u32::from_le_bytes(bytes),
            ByteOrder::Big => u32::from_be_bytes(bytes),
        }
    }

    /// Reads 64 bits.
    pub const fn get_u64(self, bytes: [u8; 8]) -> u64 {
        match self {
            ByteOrder::Little => u64::from_le_bytes(bytes),
            ByteOrder::Big => u64::from_be_bytes(bytes),
        }
    }

    /// The bytes of 32 bits.
    pub const fn put_u32(self, value: u32) -> [u8; 4] {
        match self {
            ByteOrder::Little => value.to_le_bytes(),
            ByteOrder::Big => value.to_be_bytes(),
        }
    }

    /// The bytes of 64 bits.
    pub const fn put_u64(self, value: u64) -> [u8; 8] {
        match self {
            ByteOrder::Little => value.to_le_bytes(),
            ByteOrder::Big => value.to_be_bytes(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_orders_read_back_what_they_wrote() {
        assert_eq!(ByteOrder::Big.put_u32(0x0102_0304), [1, 2, 3, 4]);
        assert_eq!(ByteOrder::Little.put_u32(0x0102_0304), [4, 3, 2, 1]);
        for order in [ByteOrder::Little, ByteOrder::Big] {
            assert_eq!(order.get_u32(order.put_u32(0xdead_beef)), 0xdead_beef);
            assert_eq!(order.get_u64(order.put_u64(0x0123_4567_89ab_cdef)), 0x0123_4567_89ab_cdef);
        }
    }

    #[test]
    fn the_host_order_is_that_of_native_integers() {
        assert_eq!(ByteOrder::HOST.put_u32(0x0102_0304), 0x0102_0304_u32.to_ne_bytes());
    }
}
