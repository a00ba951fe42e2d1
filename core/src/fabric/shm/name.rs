//! The names of rendezvous: abstract Unix socket addresses, which belong to a network namespace as ports do.
//!
//! A listener has one name, a client tries those of the listeners that the kernel would let it reach, the most specific first.
#![forbid(unsafe_code)]

use core::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

/// Ends in the version of what is said there (`greeting`): others do not find each other.
const PREFIX: &str = "rsocket.shm.1/";

/// Names that a client tries at most.
pub(super) const CANDIDATES: usize = 3;

/// The name of a listener. Mapped addresses have been made IPv4 before.
pub(super) fn of_listener(addr: SocketAddr, v6_only: bool) -> String {
    let only = if v6_only && addr.ip() == IpAddr::V6(Ipv6Addr::UNSPECIFIED) { "/6" } else { "" };
    format!("{PREFIX}{addr}{only}")
}

/// The name of a mark on a listener's address.
pub(super) fn of_mark(listener: &str) -> String {
    format!("{listener}/tcp-first")
}

/// Where a listener may be that a client of this address reaches: ip(7), ipv6(7), IPV6_V6ONLY.
pub(super) fn candidates(peer: SocketAddr) -> [String; CANDIDATES] {
    let any_v4 = SocketAddr::new(Ipv4Addr::UNSPECIFIED.into(), peer.port());
    let any_v6 = SocketAddr::new(Ipv6Addr::UNSPECIFIED.into(), peer.port());
    let wildcard = if peer.is_ipv4() { of_listener(any_v4, false) } else { of_listener(any_v6, true) };
    [of_listener(peer, false), wildcard, of_listener(any_v6, false)]
}

/// Whether a client of `peer` may have come to the listener of `addr`.
pub(super) fn reaches(peer: SocketAddr, addr: SocketAddr, v6_only: bool) -> bool {
    let dual = addr.ip() == IpAddr::V6(Ipv6Addr::UNSPECIFIED) && !v6_only;
    let wildcard = addr.ip().is_unspecified() && addr.is_ipv4() == peer.is_ipv4();
    peer.port() == addr.port() && (peer.ip() == addr.ip() || wildcard || dual)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn clients_find_the_listeners_that_tcp_finds() {
        let addr = |text: &str| text.parse::<SocketAddr>().unwrap();
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
            ("[::1]:80", "127.0.0.1:80", false, false),
        ];
        for (peer, listener, v6_only, found) in cases {
            let name = of_listener(addr(listener), v6_only);
            assert_eq!(candidates(addr(peer)).contains(&name), found, "{peer} {listener} {v6_only}");
            assert_eq!(reaches(addr(peer), addr(listener), v6_only), found, "{peer} {listener} {v6_only}");
        }
        assert!(candidates(addr("10.0.0.1:5"))[0].contains("10.0.0.1:5"));
    }

    #[test]
    fn scopes_are_told_apart() {
        let one: SocketAddr = "[fe80::1%2]:80".parse().unwrap();
        let other: SocketAddr = "[fe80::1%3]:80".parse().unwrap();
        assert!(!candidates(one).contains(&of_listener(other, false)));
    }

    #[test]
    fn names_fit_a_unix_address() {
        let longest = "[ffff:ffff:ffff:ffff:ffff:ffff:255.255.255.255%4294967295]:65535".parse().unwrap();
        assert!(of_mark(&of_listener(longest, false)).len() < 107);
    }
}
