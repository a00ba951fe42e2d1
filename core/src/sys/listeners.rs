//! Whether TCP listens at an address of this host (sock_diag(7)).
#![forbid(unsafe_code)]

use core::net::SocketAddr;

use rustix::net::{AddressFamily, RecvFlags, SendFlags, SocketFlags, SocketType, netlink};

use crate::error::{Errno, Result};

/// `struct nlmsghdr`, and `struct inet_diag_req_v2` behind it.
const HEADER: usize = 16;
const REQUEST: usize = HEADER + 56;

const LENGTH: usize = 0;
const TYPE: usize = LENGTH + 4;
const FLAGS: usize = TYPE + 2;

const FAMILY: usize = HEADER;
const PROTOCOL: usize = FAMILY + 1;
const STATES: usize = PROTOCOL + 3;
const OWN_PORT: usize = STATES + 4;
const PEER_PORT: usize = OWN_PORT + 2;
const OWN_IP: usize = PEER_PORT + 2;
const PEER_IP: usize = OWN_IP + 16;
const INTERFACE: usize = PEER_IP + 16;
const COOKIE: usize = INTERFACE + 4;

const NLMSG_ERROR: u16 = 2;
const SOCK_DIAG_BY_FAMILY: u16 = 20;
const NLM_F_REQUEST: u16 = 1;

/// Whether a client of the address of this end of a TCP connection would come to a listener: asked for by its place in the kernel's tables,
/// whatever their size. `None`: the kernel does not tell.
pub fn is_listened(local: SocketAddr, peer: SocketAddr) -> Option<bool> {
    match ask(&request(local, None)) {
        Ok(found) => Some(found),
        // A kernel that can tell nothing says so, too; the connection is there for sure.
        Err(Errno::NOENT) if ask(&request(local, Some(peer))).is_ok() => Some(false),
        Err(_) => None,
    }
}

/// `peer`: none is a listener's.
fn request(local: SocketAddr, peer: Option<SocketAddr>) -> [u8; REQUEST] {
    let mut bytes = [0; REQUEST];
    let mut put = |at: usize, what: &[u8]| {
        for (to, from) in bytes.iter_mut().skip(at).zip(what) {
            *to = *from;
        }
    };
    put(LENGTH, &(REQUEST as u32).to_ne_bytes());
    put(TYPE, &SOCK_DIAG_BY_FAMILY.to_ne_bytes());
    put(FLAGS, &NLM_F_REQUEST.to_ne_bytes());
    put(PROTOCOL, &[libc::IPPROTO_TCP as u8]);
    put(STATES, &u32::MAX.to_ne_bytes());
    // Whichever socket it is.
    put(COOKIE, &[0xff; 8]);
    put(FAMILY, &[if local.is_ipv4() { libc::AF_INET } else { libc::AF_INET6 } as u8]);
    for (addr, port_at, ip_at) in [(Some(local), OWN_PORT, OWN_IP), (peer, PEER_PORT, PEER_IP)] {
        let Some(addr) = addr else { continue };
        put(port_at, &addr.port().to_be_bytes());
        match addr {
            SocketAddr::V4(addr) => put(ip_at, &addr.ip().octets()),
            SocketAddr::V6(addr) => {
                put(ip_at, &addr.ip().octets());
                put(INTERFACE, &addr.scope_id().to_ne_bytes());
            }
        }
    }
    bytes
}

fn ask(request: &[u8]) -> Result<bool> {
    let kernel = rustix::net::socket_with(AddressFamily::NETLINK, SocketType::RAW, SocketFlags::CLOEXEC, Some(netlink::SOCK_DIAG))?;
    rustix::net::send(&kernel, request, SendFlags::empty())?;
    // The kernel has answered by now.
    let mut answer = [0; 512];
    let (length, _) = rustix::net::recv(&kernel, &mut answer, RecvFlags::DONTWAIT)?;
    let answer = answer.get(..length).unwrap_or_default();
    let two = |at: usize| answer.get(at..).and_then(|rest| rest.first_chunk()).map(|two| u16::from_ne_bytes(*two));
    let four = |at: usize| answer.get(at..).and_then(|rest| rest.first_chunk()).map(|four| i32::from_ne_bytes(*four));
    match two(TYPE) {
        Some(SOCK_DIAG_BY_FAMILY) => Ok(true),
        Some(NLMSG_ERROR) => Err(Errno::from_raw_os_error(four(HEADER).map_or(libc::EIO, |errno| errno.wrapping_neg()))),
        _ => Err(Errno::IO),
    }
}

#[cfg(test)]
mod tests {
    use std::net::{TcpListener, TcpStream};

    use super::*;

    #[test]
    fn own_ends_of_connections_are_told_apart() {
        for address in ["127.0.0.1", "0.0.0.0", "[::1]", "[::]"] {
            let listener = TcpListener::bind(format!("{address}:0")).unwrap();
            let port = listener.local_addr().unwrap().port();
            let to = if address.contains(':') { format!("[::1]:{port}") } else { format!("127.0.0.1:{port}") };
            let client = TcpStream::connect(to).unwrap();
            let (server, _) = listener.accept().unwrap();
            let ask = |end: &TcpStream| is_listened(end.local_addr().unwrap(), end.peer_addr().unwrap());
            assert_eq!([&server, &client].map(ask), [Some(true), Some(false)], "{address}");
            drop(listener);
            assert_eq!(ask(&server), Some(false), "{address}");
            let nobody = "192.0.2.1:1".parse().unwrap();
            assert_eq!(is_listened(nobody, nobody), None, "such a connection is not there");
        }
    }

    #[test]
    fn an_ipv4_client_comes_to_a_listener_of_both_families() {
        let listener = TcpListener::bind("[::]:0").unwrap();
        let local = SocketAddr::from(([127, 0, 0, 1], listener.local_addr().unwrap().port()));
        let client = TcpStream::connect(local).unwrap();
        assert_eq!(is_listened(local, client.local_addr().unwrap()), Some(true));
        assert_eq!(is_listened(client.local_addr().unwrap(), local), Some(false));
    }
}
