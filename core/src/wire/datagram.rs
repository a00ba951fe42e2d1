//! The headers of datagrams (PROTOCOL.md 2): one before the program's bytes in a UD message, one before those that go by the UDP socket.

use core::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, SocketAddrV6};

use super::field;

/// Begins every datagram of the UDP socket that is meant for the library.
pub const TAG: u32 = 0x5555_5555;

/// The key of every UD queue pair, as the connection manager's for UDP.
pub const QUEUE_KEY: u32 = 0x0123_4567;

/// Largest number of a queue pair.
pub const MAX_QUEUE_PAIR: u32 = (1 << 24) - 1;

/// Bytes of a message that every receiver has room for, header included.
pub const MAX_MESSAGE: usize = 2048;

const V4: u8 = 4;
const V6: u8 = 6;

/// What a datagram of the UDP socket is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Operation {
    /// The program's bytes follow.
    Data,
    /// Nothing follows: it says which queue pair its sender has.
    Control,
}

const OPERATION_DATA: u8 = 0;
const OPERATION_CONTROL: u8 = 7;

const UDP_TAG: usize = 0;
const UDP_VERSION: usize = UDP_TAG + 4;
const UDP_OPERATION: usize = UDP_VERSION + 1;
const UDP_LENGTH: usize = UDP_OPERATION + 1;
const UDP_RESERVED: usize = UDP_LENGTH + 1;
const UDP_QUEUE_PAIR: usize = UDP_RESERVED + 1;
const UDP_ADDRESS: usize = UDP_QUEUE_PAIR + 4;

/// The header in front of what goes by the UDP socket.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct UdpHeader {
    /// What follows.
    pub operation: Operation,
    /// The sender's queue pair, at most [`MAX_QUEUE_PAIR`].
    pub queue_pair: u32,
    /// The sender's address that the queue pair belongs to.
    pub address: IpAddr,
}

impl UdpHeader {
    /// Bytes with an IPv4 address.
    pub const V4_BYTES: usize = UDP_ADDRESS + 4;
    /// Bytes with an IPv6 address, the most there are.
    pub const V6_BYTES: usize = UDP_ADDRESS + 16;

    /// Bytes of this header.
    pub fn len(&self) -> usize {
        if self.address.is_ipv4() { Self::V4_BYTES } else { Self::V6_BYTES }
    }

    /// Never: the method is the usual companion of [`UdpHeader::len`].
    pub fn is_empty(&self) -> bool {
        false
    }

    /// The header that a datagram begins with. `None`: it has none, and is the program's as it is; also where it only looks like one.
    pub fn parse(datagram: &[u8]) -> Option<UdpHeader> {
        let fixed = datagram.first_chunk::<{ Self::V4_BYTES }>()?;
        if u32::from_be_bytes(field::get(fixed, UDP_TAG)) != TAG {
            return None;
        }
        let [version] = field::get(fixed, UDP_VERSION);
        let [length] = field::get(fixed, UDP_LENGTH);
        let address = match (version, usize::from(length)) {
            (V4, Self::V4_BYTES) => IpAddr::V4(Ipv4Addr::from(field::get::<4>(fixed, UDP_ADDRESS))),
            (V6, Self::V6_BYTES) => {
                let all = datagram.first_chunk::<{ Self::V6_BYTES }>()?;
                IpAddr::V6(Ipv6Addr::from(field::get::<16>(all, UDP_ADDRESS)))
            }
            _ => return None,
        };
        let [operation] = field::get(fixed, UDP_OPERATION);
        let operation = match operation {
            OPERATION_DATA => Operation::Data,
            OPERATION_CONTROL => Operation::Control,
            _ => return None,
        };
        let queue_pair = u32::from_be_bytes(field::get(fixed, UDP_QUEUE_PAIR)) & MAX_QUEUE_PAIR;
        Some(UdpHeader { operation, queue_pair, address })
    }

    /// Writes the header over the first [`UdpHeader::len`] bytes, and says how many those are.
    pub fn emit(&self, bytes: &mut [u8; Self::V6_BYTES]) -> usize {
        let operation = match self.operation {
            Operation::Data => OPERATION_DATA,
            Operation::Control => OPERATION_CONTROL,
        };
        let version = if self.address.is_ipv4() { V4 } else { V6 };
        field::put(bytes, UDP_TAG, TAG.to_be_bytes());
        field::put(bytes, UDP_VERSION, [version]);
        field::put(bytes, UDP_OPERATION, [operation]);
        field::put(bytes, UDP_LENGTH, [self.len() as u8]);
        field::put(bytes, UDP_RESERVED, [0]);
        field::put(bytes, UDP_QUEUE_PAIR, (self.queue_pair & MAX_QUEUE_PAIR).to_be_bytes());
        match self.address {
            IpAddr::V4(address) => field::put(bytes, UDP_ADDRESS, address.octets()),
            IpAddr::V6(address) => field::put(bytes, UDP_ADDRESS, address.octets()),
        }
        self.len()
    }
}

const UD_VERSION: usize = 0;
const UD_LENGTH: usize = UD_VERSION + 1;
const UD_PORT: usize = UD_LENGTH + 1;
const UD_V4_ADDRESS: usize = UD_PORT + 2;
const UD_FLOW: usize = UD_PORT + 2;
const UD_V6_ADDRESS: usize = UD_FLOW + 4;

/// The header in front of what goes by a UD queue pair: the sender's address.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct UdHeader {
    /// The sender. (A scope does not travel: it is the receiver's matter.)
    pub source: SocketAddr,
}

impl UdHeader {
    /// Bytes with an IPv4 address.
    pub const V4_BYTES: usize = UD_V4_ADDRESS + 4;
    /// Bytes with an IPv6 address, the most there are.
    pub const V6_BYTES: usize = UD_V6_ADDRESS + 16;

    /// Bytes of this header.
    pub fn len(&self) -> usize {
        if self.source.is_ipv4() { Self::V4_BYTES } else { Self::V6_BYTES }
    }

    /// Never: the method is the usual companion of [`UdHeader::len`].
    pub fn is_empty(&self) -> bool {
        false
    }

    /// The header that a message begins with. `None`: no such thing, the message is dropped.
    pub fn parse(message: &[u8]) -> Option<UdHeader> {
        let fixed = message.first_chunk::<{ Self::V4_BYTES }>()?;
        let [version] = field::get(fixed, UD_VERSION);
        let [length] = field::get(fixed, UD_LENGTH);
        let port = u16::from_be_bytes(field::get(fixed, UD_PORT));
        let source = match (version, usize::from(length)) {
            (V4, Self::V4_BYTES) => SocketAddr::new(Ipv4Addr::from(field::get::<4>(fixed, UD_V4_ADDRESS)).into(), port),
            (V6, Self::V6_BYTES) => {
                let all = message.first_chunk::<{ Self::V6_BYTES }>()?;
                let address = Ipv6Addr::from(field::get::<16>(all, UD_V6_ADDRESS));
                SocketAddrV6::new(address, port, u32::from_be_bytes(field::get(all, UD_FLOW)), 0).into()
            }
            _ => return None,
        };
        Some(UdHeader { source })
    }

    /// Writes the header over the first [`UdHeader::len`] bytes, and says how many those are.
    pub fn emit(&self, bytes: &mut [u8; Self::V6_BYTES]) -> usize {
        field::put(bytes, UD_VERSION, [if self.source.is_ipv4() { V4 } else { V6 }]);
        field::put(bytes, UD_LENGTH, [self.len() as u8]);
        field::put(bytes, UD_PORT, self.source.port().to_be_bytes());
        match self.source {
            SocketAddr::V4(source) => field::put(bytes, UD_V4_ADDRESS, source.ip().octets()),
            SocketAddr::V6(source) => {
                field::put(bytes, UD_FLOW, source.flowinfo().to_be_bytes());
                field::put(bytes, UD_V6_ADDRESS, source.ip().octets());
            }
        }
        self.len()
    }
}

#[cfg(test)]
mod tests;
