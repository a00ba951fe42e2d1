//! What the two ends tell each other before data flows: one message each way, beside which the sender's memory is handed over.
//!
//! Both ends are of one host, so numbers are in its order. What comes in is hostile: [`Greeting::parse`] checks all that can be
//! checked without the memory itself.
#![forbid(unsafe_code)]

use core::net::{IpAddr, SocketAddr, SocketAddrV6};

use super::memory::Layout;

/// Longest private data.
pub(super) const PRIVATE_DATA: usize = 56;

const VERDICT: usize = 0;
const KEY: usize = VERDICT + 4;
const ENTRIES: usize = KEY + 4;
const TARGETS: usize = ENTRIES + 4;
const RECEIVE: usize = TARGETS + 4;
const PLACES: usize = RECEIVE + 4;
const LOCAL: usize = PLACES + 4;
const PEER: usize = LOCAL + ADDRESS;
const PRIVATE_LENGTH: usize = PEER + ADDRESS;
const PRIVATE: usize = PRIVATE_LENGTH + 4;

/// Bytes of a greeting.
pub(super) const BYTES: usize = PRIVATE + PRIVATE_DATA;

/// Bytes of an address: the IPv6 address (or a mapped IPv4 one), the scope, the port, two for the family.
pub(super) const ADDRESS: usize = 24;
const V4: u16 = 4;
const V6: u16 = 6;

/// What a greeting says besides its numbers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Verdict {
    /// A client asks.
    Request = 1,
    /// The listener agrees.
    Accepted = 2,
    /// The listener does not want the connection.
    Refused = 3,
}

/// One end's word.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Greeting {
    pub(super) verdict: Verdict,
    /// Names the sender's memory in addresses.
    pub(super) key: u32,
    /// How the sender's memory is laid out.
    pub(super) layout: Layout,
    /// The client's address.
    pub(super) client: SocketAddr,
    /// The address that the client connects to.
    pub(super) server: SocketAddr,
    /// At most [`PRIVATE_DATA`] bytes count.
    pub(super) private_data: Vec<u8>,
}

impl Greeting {
    pub(super) fn to_bytes(&self) -> [u8; BYTES] {
        let mut bytes = [0; BYTES];
        put(&mut bytes, VERDICT, &(self.verdict as u32).to_ne_bytes());
        put(&mut bytes, KEY, &self.key.to_ne_bytes());
        put(&mut bytes, ENTRIES, &self.layout.entries().to_ne_bytes());
        put(&mut bytes, TARGETS, &self.layout.targets().to_ne_bytes());
        put(&mut bytes, RECEIVE, &self.layout.receive().to_ne_bytes());
        put(&mut bytes, PLACES, &u32::from(self.layout.places()).to_ne_bytes());
        put(&mut bytes, LOCAL, &address_bytes(self.client));
        put(&mut bytes, PEER, &address_bytes(self.server));
        let private = self.private_data.get(..PRIVATE_DATA).unwrap_or(&self.private_data);
        put(&mut bytes, PRIVATE_LENGTH, &(private.len() as u32).to_ne_bytes());
        put(&mut bytes, PRIVATE, private);
        bytes
    }

    /// `None`: not a greeting, or one of memory that nobody makes.
    pub(super) fn parse(bytes: &[u8]) -> Option<Self> {
        let bytes: &[u8; BYTES] = bytes.try_into().ok()?;
        let number = |at: usize| bytes.get(at..).and_then(|rest| rest.first_chunk()).map(|four| u32::from_ne_bytes(*four));
        let verdict = match number(VERDICT)? {
            1 => Verdict::Request,
            2 => Verdict::Accepted,
            3 => Verdict::Refused,
            _ => return None,
        };
        let places = match number(PLACES)? {
            0 => false,
            1 => true,
            _ => return None,
        };
        let private_length = number(PRIVATE_LENGTH)? as usize;
        let (client, server) = (address(bytes.get(LOCAL..)?.first_chunk()?)?, address(bytes.get(PEER..)?.first_chunk()?)?);
        // A program's socket is of one family: it must not be shown a peer of another.
        if client.is_ipv4() != server.is_ipv4() {
            return None;
        }
        Some(Greeting {
            verdict,
            key: number(KEY)?,
            layout: Layout::new(number(ENTRIES)?, number(TARGETS)?, number(RECEIVE)?)?.with_placing(places),
            client,
            server,
            private_data: bytes.get(PRIVATE..)?.get(..private_length)?.to_vec(),
        })
    }
}

fn put(bytes: &mut [u8; BYTES], at: usize, what: &[u8]) {
    for (to, from) in bytes.iter_mut().skip(at).zip(what) {
        *to = *from;
    }
}

pub(super) fn address_bytes(addr: SocketAddr) -> [u8; ADDRESS] {
    let (ip, scope, family) = match addr {
        SocketAddr::V4(addr) => (addr.ip().to_ipv6_mapped(), 0, V4),
        SocketAddr::V6(addr) => (*addr.ip(), addr.scope_id(), V6),
    };
    let mut bytes = [0; ADDRESS];
    let parts = ip.octets().into_iter().chain(scope.to_ne_bytes()).chain(addr.port().to_ne_bytes()).chain(family.to_ne_bytes());
    for (to, from) in bytes.iter_mut().zip(parts) {
        *to = from;
    }
    bytes
}

pub(super) fn address(bytes: &[u8; ADDRESS]) -> Option<SocketAddr> {
    let (ip, rest) = bytes.split_first_chunk::<16>()?;
    let (scope, rest) = rest.split_first_chunk()?;
    let (port, rest) = rest.split_first_chunk()?;
    let ip = core::net::Ipv6Addr::from(*ip);
    let port = u16::from_ne_bytes(*port);
    match u16::from_ne_bytes(*rest.first_chunk()?) {
        V4 => ip.to_ipv4_mapped().map(|ip| SocketAddr::new(IpAddr::V4(ip), port)),
        V6 => Some(SocketAddr::V6(SocketAddrV6::new(ip, port, 0, u32::from_ne_bytes(*scope)))),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn greeting() -> Greeting {
        Greeting {
            verdict: Verdict::Request,
            key: 0x0102_0304,
            layout: Layout::new(256, 32, 131_072).unwrap(),
            client: "[fe80::2%3]:40000".parse().unwrap(),
            server: "[fe80::1%3]:80".parse().unwrap(),
            private_data: b"forty bytes or so".to_vec(),
        }
    }

    #[test]
    fn comes_back_as_it_was() {
        let greeting = greeting();
        assert_eq!(Greeting::parse(&greeting.to_bytes()), Some(greeting.clone()));
        let (client, server) = ("127.0.0.1:40000".parse().unwrap(), "127.0.0.2:80".parse().unwrap());
        let greeting = Greeting { client, server, ..greeting };
        assert_eq!(Greeting::parse(&greeting.to_bytes()), Some(greeting));
    }

    #[test]
    fn both_ends_are_of_one_family() {
        let mixed = Greeting { client: "127.0.0.1:40000".parse().unwrap(), ..greeting() };
        assert_eq!(Greeting::parse(&mixed.to_bytes()), None);
    }

    #[test]
    fn malformed_is_told() {
        let bytes = greeting().to_bytes();
        assert_eq!(Greeting::parse(&bytes[..BYTES - 1]), None);
        assert_eq!(Greeting::parse(&[]), None);
        let with = |at: usize, value: u32| {
            let mut bytes = bytes;
            put(&mut bytes, at, &value.to_ne_bytes());
            Greeting::parse(&bytes)
        };
        assert_eq!(with(VERDICT, 4), None);
        assert_eq!(with(ENTRIES, 255), None);
        assert_eq!(with(ENTRIES, 0), None);
        assert_eq!(with(RECEIVE, u32::MAX), None);
        assert_eq!(with(TARGETS, u32::MAX), None);
        assert_eq!(with(PLACES, 2), None);
        assert!(with(PLACES, 1).unwrap().layout.places());
        assert_eq!(with(PRIVATE_LENGTH, PRIVATE_DATA as u32 + 1), None);
        assert_eq!(with(LOCAL + ADDRESS - 4, 0x0005_0000), None);
        assert!(with(PRIVATE_LENGTH, PRIVATE_DATA as u32).is_some());
    }

    #[test]
    fn private_data_is_cut() {
        let long = Greeting { private_data: vec![1; 100], ..greeting() };
        assert_eq!(Greeting::parse(&long.to_bytes()).unwrap().private_data, vec![1; PRIVATE_DATA]);
    }
}
