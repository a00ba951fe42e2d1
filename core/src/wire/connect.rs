//! The 40-byte record in the private data of the CM request and reply (PROTOCOL.md 1.2).

use super::{ByteOrder, Sge, WireError, field};

const VERSION_AT: usize = 0;
const FLAGS: usize = VERSION_AT + 1;
const CREDITS: usize = FLAGS + 1;
const RESERVED: usize = CREDITS + 2;
const IOMAP_SIZE: usize = RESERVED + 3;
const TARGETS: usize = IOMAP_SIZE + 1;
const DATA_BUFFER: usize = TARGETS + Sge::BYTES;

const FLAG_NET: u8 = 1 << 0;
const FLAG_IOMAP: u8 = 1 << 1;
const FLAG_COUNTS: u8 = 1 << 2;

/// The protocol version that this implementation speaks.
pub const VERSION: u8 = 1;

/// What each side tells the other when they connect.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ConnectRecord {
    /// The sender's byte order (flag NET: big endian).
    pub order: ByteOrder,
    /// Flag IOMAP: [`ConnectRecord::iomap_size`] is valid.
    pub has_iomap: bool,
    /// Flag COUNTS, this implementation's: IOMAP messages that the sender has received are among those that it grants anew.
    pub counts_iomaps: bool,
    /// Receives that the sender has posted for DATA and IOMAP messages.
    pub credits: u16,
    /// Entries in the sender's iomap table, as they travel: see [`decode_iomap_size`].
    pub iomap_size: u8,
    /// Where buffer advertisements for the sender go; its length counts records.
    pub targets: Sge,
    /// The sender's first receive buffer.
    pub data_buffer: Sge,
}

impl ConnectRecord {
    /// Size of the record.
    pub const BYTES: usize = DATA_BUFFER + Sge::BYTES;

    /// Reads the record from private data, which the CM may have padded. Unknown flags are ignored: they are room for negotiation.
    pub fn parse(private_data: &[u8]) -> Result<ConnectRecord, WireError> {
        // The version comes first: a shorter record of another version is refused for that.
        match private_data.get(VERSION_AT) {
            None | Some(&VERSION) => {}
            Some(&other) => return Err(WireError::Version(other)),
        }
        let Some(bytes) = private_data.first_chunk::<{ Self::BYTES }>() else {
            return Err(WireError::TooShort { len: private_data.len() });
        };
        let [flags] = field::get(bytes, FLAGS);
        let [iomap_size] = field::get(bytes, IOMAP_SIZE);
        Ok(ConnectRecord {
            order: if flags & FLAG_NET != 0 { ByteOrder::Big } else { ByteOrder::Little },
            has_iomap: flags & FLAG_IOMAP != 0,
            counts_iomaps: flags & FLAG_COUNTS != 0,
            credits: u16::from_be_bytes(field::get(bytes, CREDITS)),
            iomap_size,
            targets: Sge::parse(&field::get(bytes, TARGETS), ByteOrder::Big),
            data_buffer: Sge::parse(&field::get(bytes, DATA_BUFFER), ByteOrder::Big),
        })
    }

    /// Writes the record over all 40 bytes.
    pub fn emit(&self, bytes: &mut [u8; Self::BYTES]) {
        let net = if self.order == ByteOrder::Big { FLAG_NET } else { 0 };
        let iomap = if self.has_iomap { FLAG_IOMAP } else { 0 };
        field::put(bytes, VERSION_AT, [VERSION]);
        let counts = if self.counts_iomaps { FLAG_COUNTS } else { 0 };
        field::put(bytes, FLAGS, [net | iomap | counts]);
        field::put(bytes, CREDITS, self.credits.to_be_bytes());
        field::put(bytes, RESERVED, [0; 3]);
        field::put(bytes, IOMAP_SIZE, [self.iomap_size]);
        field::put(bytes, TARGETS, self.targets.to_bytes(ByteOrder::Big));
        field::put(bytes, DATA_BUFFER, self.data_buffer.to_bytes(ByteOrder::Big));
    }

    /// The record as bytes.
    pub fn to_bytes(&self) -> [u8; Self::BYTES] {
        let mut bytes = [0; Self::BYTES];
        self.emit(&mut bytes);
        bytes
    }
}

/// Sizes up to here travel as they are, larger ones in units of 256 with this bit set.
const IOMAP_SCALED: u16 = 128;
const IOMAP_UNIT_SHIFT: u32 = 8;
const IOMAP_UNIT: u16 = 1 << IOMAP_UNIT_SHIFT;
const IOMAP_LARGEST: u16 = (IOMAP_SCALED - 1) << IOMAP_UNIT_SHIFT;

/// The smallest size that is at least `entries` and survives the trip in 8 bits; the largest one where there is none.
pub const fn round_iomap_size(entries: u16) -> u16 {
    if entries <= IOMAP_SCALED {
        entries
    } else if entries >= IOMAP_LARGEST {
        IOMAP_LARGEST
    } else {
        entries.div_ceil(IOMAP_UNIT) * IOMAP_UNIT
    }
}

/// A table size as it travels. Exact for what [`round_iomap_size`] returns, rounded down for others.
pub const fn encode_iomap_size(entries: u16) -> u8 {
    if entries <= IOMAP_SCALED {
        entries as u8
    } else if entries >= IOMAP_LARGEST {
        u8::MAX
    } else {
        (IOMAP_SCALED | entries >> IOMAP_UNIT_SHIFT) as u8
    }
}

/// The table size that travelled as `size`.
pub const fn decode_iomap_size(size: u8) -> u16 {
    let size = size as u16;
    if size > IOMAP_SCALED { (size & (IOMAP_SCALED - 1)) << IOMAP_UNIT_SHIFT } else { size }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// From a capture of the shipped implementation.
    const BYTES: [u8; 40] = [
        0x01, 0x02, 0x01, 0x80, 0, 0, 0, 0, //
        0x00, 0x00, 0x55, 0x64, 0xbb, 0x41, 0xc0, 0x00, 0x00, 0x00, 0x03, 0xb6, 0x00, 0x00, 0x00, 0x02, //
        0x00, 0x00, 0x55, 0x64, 0xbb, 0x41, 0xe0, 0x00, 0x00, 0x00, 0x04, 0xe9, 0x00, 0x01, 0x00, 0x00,
    ];

    const RECORD: ConnectRecord = ConnectRecord {
        order: ByteOrder::Little,
        has_iomap: true,
        counts_iomaps: false,
        credits: 384,
        iomap_size: 0,
        targets: Sge { addr: 0x5564_bb41_c000, key: 0x3b6, length: 2 },
        data_buffer: Sge { addr: 0x5564_bb41_e000, key: 0x4e9, length: 0x1_0000 },
    };

    #[test]
    fn bytes_in() {
        let record = ConnectRecord::parse(&BYTES).unwrap();
        assert_eq!((record.order, record.has_iomap, record.credits, record.iomap_size), (ByteOrder::Little, true, 384, 0));
        assert_eq!(record.targets, RECORD.targets);
        assert_eq!(record.data_buffer, RECORD.data_buffer);
    }

    #[test]
    fn bytes_out() {
        let mut bytes = [0xa5; 40];
        RECORD.emit(&mut bytes);
        assert_eq!(bytes, BYTES);
    }

    #[test]
    fn parse() {
        assert_eq!(ConnectRecord::parse(&BYTES), Ok(RECORD));
        let mut padded = BYTES.to_vec();
        padded.resize(56, 0);
        assert_eq!(ConnectRecord::parse(&padded), Ok(RECORD), "the CM pads private data");
        let mut bytes = BYTES;
        bytes[1] = 0xf9;
        bytes[4..8].copy_from_slice(&[9, 9, 9, 7]);
        let record = ConnectRecord { order: ByteOrder::Big, has_iomap: false, iomap_size: 7, ..RECORD };
        assert_eq!(ConnectRecord::parse(&bytes), Ok(record), "unknown flags and reserved bytes are ignored");
    }

    #[test]
    fn emit() {
        assert_eq!(RECORD.to_bytes(), BYTES);
        let record = ConnectRecord { order: ByteOrder::Big, has_iomap: false, counts_iomaps: true, iomap_size: 0xff, ..RECORD };
        assert_eq!(record.to_bytes()[..8], [1, 5, 1, 0x80, 0, 0, 0, 0xff]);
        assert_eq!(ConnectRecord::parse(&record.to_bytes()), Ok(record));
    }

    #[test]
    fn malformed() {
        for len in 0..40 {
            assert_eq!(ConnectRecord::parse(&BYTES[..len]), Err(WireError::TooShort { len }));
        }
        for version in (0..=255).filter(|version| *version != 1) {
            let mut bytes = BYTES;
            bytes[0] = version;
            assert_eq!(ConnectRecord::parse(&bytes), Err(WireError::Version(version)));
            assert_eq!(ConnectRecord::parse(&bytes[..9]), Err(WireError::Version(version)));
        }
    }

    #[test]
    fn iomap_sizes_survive_the_trip() {
        for entries in 0..=u16::MAX {
            let rounded = round_iomap_size(entries);
            assert_eq!(decode_iomap_size(encode_iomap_size(rounded)), rounded);
            assert!(rounded >= entries.min(IOMAP_LARGEST));
            assert!(decode_iomap_size(encode_iomap_size(entries)) <= entries);
        }
        assert_eq!((encode_iomap_size(128), encode_iomap_size(256), encode_iomap_size(512)), (128, 129, 130));
        assert_eq!((decode_iomap_size(128), decode_iomap_size(129), decode_iomap_size(255)), (128, 256, 32512));
    }
}
