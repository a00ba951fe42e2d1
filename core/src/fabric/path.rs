//! The path of a connection through an InfiniBand fabric: the option RDMA_ROUTE, `struct ibv_path_data` of <infiniband/sa.h>.
#![forbid(unsafe_code)]

use crate::error::{Errno, Result};

/// IBV_PATH_FLAG_GMP, _PRIMARY and _BIDIRECTIONAL: what a connection is made with.
const FLAGS: u32 = 1 | 2 | 8 | 32;
/// Behind the flags come 4 bytes for nothing.
const RECORD: usize = 8;

/// One path, as it is in memory: flags, and a path record as it travels.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Path([u8; Path::BYTES]);

/// What a path record says, numbers as the host has them. A size or time is a code of the InfiniBand specification's, and the selector
/// above it (0: greater, 1: less, 2: exactly).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Record {
    /// The GID of the peer's port.
    pub destination: [u8; 16],
    /// The GID of the own port.
    pub source: [u8; 16],
    /// Local identifiers; 0 on Ethernet.
    pub destination_lid: u16,
    /// See `destination_lid`.
    pub source_lid: u16,
    /// 20 bits.
    pub flow_label: u32,
    /// Routers that it may pass.
    pub hop_limit: u8,
    /// Traffic class.
    pub traffic_class: u8,
    /// Whether it may be used the other way as well.
    pub reversible: bool,
    /// How many there are.
    pub paths: u8,
    /// Partition key.
    pub partition: u16,
    /// Service level.
    pub service_level: u8,
    /// Selector and code of the MTU.
    pub mtu: (u8, u8),
    /// Selector and code of the rate.
    pub rate: (u8, u8),
    /// Selector and code of the packet's life time.
    pub life_time: (u8, u8),
}

impl Path {
    /// Size in bytes.
    pub const BYTES: usize = 72;

    /// The one of an array that a connection is made with. EINVAL where there is none, or a part of one.
    pub fn choose(array: &[u8]) -> Result<Self> {
        let (paths, rest) = array.as_chunks::<{ Path::BYTES }>();
        let chosen = paths.iter().find(|path| path.first_chunk().is_some_and(|flags| u32::from_ne_bytes(*flags) == FLAGS));
        chosen.filter(|_| rest.is_empty()).map(|path| Path(*path)).ok_or(Errno::INVAL)
    }

    /// Its bytes.
    pub fn bytes(&self) -> &[u8; Path::BYTES] {
        &self.0
    }
}

impl From<&Record> for Path {
    fn from(of: &Record) -> Self {
        let two = |(selector, code): (u8, u8)| selector << 6 | code & 0x3f;
        let label = (of.flow_label & 0xf_ffff) << 8 | u32::from(of.hop_limit);
        let parts: [&[u8]; 13] = [
            &FLAGS.to_ne_bytes(),
            // Nothing, and no service id.
            &[0; RECORD - 4 + 8],
            &of.destination,
            &of.source,
            &of.destination_lid.to_be_bytes(),
            &of.source_lid.to_be_bytes(),
            &label.to_be_bytes(),
            &[of.traffic_class, u8::from(of.reversible) << 7 | of.paths & 0x7f],
            &of.partition.to_be_bytes(),
            &u16::from(of.service_level & 0xf).to_be_bytes(),
            &[two(of.mtu), two(of.rate)],
            &[two(of.life_time)],
            // No preference.
            &[0; 7],
        ];
        let mut bytes = [0; Path::BYTES];
        for (to, from) in bytes.iter_mut().zip(parts.into_iter().flatten()) {
            *to = *from;
        }
        Path(bytes)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Written down from <infiniband/sa.h>.
    #[test]
    fn a_record_stands_where_the_header_says() {
        let record = Record {
            destination: [0xd; 16],
            source: [0x5; 16],
            destination_lid: 0x1234,
            source_lid: 0x5678,
            flow_label: 0xabcde,
            hop_limit: 0x40,
            traffic_class: 0x20,
            reversible: true,
            paths: 1,
            partition: 0xffff,
            service_level: 3,
            mtu: (2, 4),
            rate: (2, 3),
            life_time: (2, 18),
        };
        let path = Path::from(&record);
        let bytes = path.bytes();
        assert_eq!(u32::from_ne_bytes(bytes[..4].try_into().unwrap()), 0x2b);
        assert_eq!(bytes[4..16], [0; 12]);
        assert_eq!((&bytes[16..32], &bytes[32..48]), (&[0xd; 16][..], &[5; 16][..]));
        assert_eq!(bytes[48..56], [0x12, 0x34, 0x56, 0x78, 0x0a, 0xbc, 0xde, 0x40]);
        assert_eq!(bytes[56..66], [0x20, 0x81, 0xff, 0xff, 0, 3, 0x84, 0x83, 0x92, 0]);
        assert_eq!(bytes[66..], [0; 6]);
        assert_eq!(Path::choose(bytes), Ok(path));
    }

    #[test]
    fn the_primary_one_is_chosen() {
        let path = Path::from(&Record { service_level: 1, ..Record::default() });
        let mut alternate = *Path::from(&Record::default()).bytes();
        alternate[0] = 4 | 8;
        assert_eq!(Path::choose(&[alternate, *path.bytes()].concat()), Ok(path));
        for wrong in [&[][..], &alternate, &path.bytes()[..71], &[path.bytes(), &[0][..]].concat()] {
            assert_eq!(Path::choose(wrong), Err(Errno::INVAL));
        }
    }
}
