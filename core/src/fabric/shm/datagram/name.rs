//! The names under which receivers of datagrams are found: abstract Unix socket addresses, as those of listeners.
//!
//! A name says what the kernel would look at to find the socket that a datagram is for: the address and port that it has and, where it is
//! connected, those of the only peer that it hears.
#![forbid(unsafe_code)]

use core::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

/// Ends in the version of what is said there.
const PREFIX: &[u8] = b"rsocket.udp.1/";

const OPEN: u8 = b'o';
const V6_ONLY: u8 = b'6';
const CONNECTED: u8 = b'c';

/// A name, at most 59 bytes.
pub(super) type Name = Vec<u8>;

fn push(name: &mut Name, addr: SocketAddr) {
    let (ip, scope) = match addr {
        SocketAddr::V4(addr) => (addr.ip().to_ipv6_mapped(), 0),
        SocketAddr::V6(addr) => (*addr.ip(), addr.scope_id()),
    };
    name.extend(ip.octets());
    name.extend(scope.to_be_bytes());
    name.extend(addr.port().to_be_bytes());
}

/// The name of a receiver that hears everybody. (Mapped addresses are IPv4's.)
pub(super) fn of_open(addr: SocketAddr, v6_only: bool) -> Name {
    let only = v6_only && addr.ip() == IpAddr::V6(Ipv6Addr::UNSPECIFIED);
    let mut name = [PREFIX, &[if only { V6_ONLY } else { OPEN }]].concat();
    push(&mut name, addr);
    name
}

/// The name of one that hears `peer`.
pub(super) fn of_connected(addr: SocketAddr, peer: SocketAddr) -> Name {
    let mut name = [PREFIX, &[CONNECTED]].concat();
    push(&mut name, addr);
    push(&mut name, peer);
    name
}

/// Where the receiver of a datagram from `source` to `destination` may be, the most specific first, as the kernel looks.
pub(super) fn candidates(source: SocketAddr, destination: SocketAddr) -> [Name; 4] {
    let any_v4 = SocketAddr::new(Ipv4Addr::UNSPECIFIED.into(), destination.port());
    let any_v6 = SocketAddr::new(Ipv6Addr::UNSPECIFIED.into(), destination.port());
    let wildcard = if destination.is_ipv4() { of_open(any_v4, false) } else { of_open(any_v6, true) };
    [of_connected(destination, source), of_open(destination, false), wildcard, of_open(any_v6, false)]
}

#[cfg(test)]
mod tests {
    use super::*;

    fn addr(text: &str) -> SocketAddr {
        text.parse().unwrap()
    }

    #[test]
    fn senders_find_whom_the_kernel_finds() {
        let cases = [
            ("127.0.0.1:80", "127.0.0.1:80", false, true),
            ("127.0.0.1:80", "127.0.0.2:80", false, false),
            ("127.0.0.1:80", "127.0.0.1:81", false, false),
            ("127.0.0.1:80", "0.0.0.0:80", false, true),
            ("127.0.0.1:80", "[::]:80", false, true),
            ("127.0.0.1:80", "[::]:80", true, false),
            ("[::1]:80", "[::]:80", false, true),
            ("[::1]:80", "[::]:80", true, true),
            ("[::1]:80", "[::1]:80", true, true),
            ("[::1]:80", "0.0.0.0:80", false, false),
        ];
        let source = addr("127.0.0.1:9");
        for (destination, receiver, v6_only, found) in cases {
            let name = of_open(addr(receiver), v6_only);
            assert_eq!(candidates(source, addr(destination)).contains(&name), found, "{destination} {receiver} {v6_only}");
        }
    }

    #[test]
    fn the_connected_receiver_comes_first_and_hears_its_peer_only() {
        let (one, other, receiver) = (addr("127.0.0.1:9"), addr("127.0.0.1:8"), addr("127.0.0.1:80"));
        let name = of_connected(receiver, one);
        assert_eq!(candidates(one, receiver).iter().position(|of| *of == name), Some(0));
        assert!(!candidates(other, receiver).contains(&name));
    }

    #[test]
    fn scopes_are_told_apart_and_names_fit() {
        let (one, other) = (addr("[fe80::1%2]:80"), addr("[fe80::1%3]:80"));
        assert_ne!(of_open(one, false), of_open(other, false));
        // "sun_path" has 108 bytes, of which the first is 0.
        assert!(of_connected(one, other).len() < 107);
    }
}
