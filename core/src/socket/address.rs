//! Socket addresses between the bytes of `struct sockaddr` and [`SocketAddr`].

use core::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, SocketAddrV6};

use rustix::{fd::AsFd, net::SocketAddrAny};

/// The shortest `struct sockaddr_in6` that the kernel takes: without the scope (SIN6_LEN_RFC2133).
pub const V6_LEAST: usize = 24;

/// Reads a `struct sockaddr_in` or `sockaddr_in6`. `None` for another family or too few bytes.
pub fn parse(bytes: &[u8]) -> Option<SocketAddr> {
    let family = i32::from(u16::from_ne_bytes(*bytes.first_chunk()?));
    let port = u16::from_be_bytes(*bytes.get(2..)?.first_chunk()?);
    match family {
        libc::AF_INET => {
            let ip: [u8; 4] = *bytes.get(4..)?.first_chunk()?;
            // connect(2), bind(2): EINVAL for a shorter address; the kernel says so.
            (bytes.len() >= size_of::<libc::sockaddr_in>()).then(|| SocketAddr::new(IpAddr::V4(ip.into()), port))
        }
        libc::AF_INET6 => {
            let flow = u32::from_be_bytes(*bytes.get(4..)?.first_chunk()?);
            let ip: [u8; 16] = *bytes.get(8..)?.first_chunk()?;
            let scope = bytes.get(24..).and_then(|rest| rest.first_chunk()).map_or(0, |scope| u32::from_ne_bytes(*scope));
            Some(SocketAddr::V6(SocketAddrV6::new(ip.into(), port, flow, scope)))
        }
        _ => None,
    }
}

/// What the kernel gave.
pub fn from_kernel(addr: SocketAddrAny) -> Option<SocketAddr> {
    SocketAddr::try_from(addr).ok()
}

/// Own address of the kernel's socket (getsockname(2)).
pub fn local(socket: impl AsFd) -> Option<SocketAddr> {
    rustix::net::getsockname(socket).ok().and_then(from_kernel)
}

/// The address that it is connected to (getpeername(2)).
pub fn peer(socket: impl AsFd) -> Option<SocketAddr> {
    rustix::net::getpeername(socket).ok().flatten().and_then(from_kernel)
}

/// The same port at every address of the family.
pub fn anywhere(addr: SocketAddr) -> SocketAddr {
    SocketAddr::new(crate::fabric::any(addr.is_ipv6()), addr.port())
}

/// As a socket of this domain shows it: an IPv6 socket shows IPv4 peers as mapped addresses (ipv6(7)).
pub fn as_domain(addr: SocketAddr, domain: i32) -> SocketAddr {
    match addr.ip() {
        IpAddr::V4(ip) if domain == libc::AF_INET6 => SocketAddr::new(IpAddr::V6(ip.to_ipv6_mapped()), addr.port()),
        _ => addr,
    }
}

/// As the fabrics take it: mapped addresses are IPv4.
pub fn for_fabric(addr: SocketAddr) -> SocketAddr {
    match addr.ip() {
        IpAddr::V6(ip) => ip.to_ipv4_mapped().map_or(addr, |ip| SocketAddr::new(IpAddr::V4(ip), addr.port())),
        IpAddr::V4(_) => addr,
    }
}

/// The address to connect to: the wildcard means this host, as with the kernel.
pub fn destination(addr: SocketAddr) -> SocketAddr {
    let addr = for_fabric(addr);
    let ip = match addr.ip() {
        IpAddr::V4(ip) if ip.is_unspecified() => IpAddr::V4(Ipv4Addr::LOCALHOST),
        IpAddr::V6(ip) if ip.is_unspecified() => IpAddr::V6(Ipv6Addr::LOCALHOST),
        ip => ip,
    };
    let mut addr = addr;
    addr.set_ip(ip);
    addr
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reads_both_families() {
        let mut v4 = [0; 16];
        v4[..2].copy_from_slice(&2_u16.to_ne_bytes());
        v4[2..8].copy_from_slice(&[0x1f, 0x90, 10, 9, 0, 1]);
        assert_eq!(parse(&v4), Some("10.9.0.1:8080".parse().unwrap()));
        assert_eq!(parse(&v4[..15]), None);
        let mut v6 = [0; 28];
        v6[..2].copy_from_slice(&10_u16.to_ne_bytes());
        v6[2..4].copy_from_slice(&[0, 80]);
        v6[8..24].copy_from_slice(&Ipv6Addr::LOCALHOST.octets());
        assert_eq!(parse(&v6), Some("[::1]:80".parse().unwrap()));
        assert_eq!(parse(&[1, 0]), None);
        assert_eq!(parse(&[]), None);
    }

    #[test]
    fn maps() {
        let v4: SocketAddr = "10.0.0.1:5".parse().unwrap();
        let mapped: SocketAddr = "[::ffff:10.0.0.1]:5".parse().unwrap();
        assert_eq!(as_domain(v4, libc::AF_INET6), mapped);
        assert_eq!(for_fabric(mapped), v4);
        assert_eq!(destination("[::]:5".parse().unwrap()), "[::1]:5".parse().unwrap());
    }
}
