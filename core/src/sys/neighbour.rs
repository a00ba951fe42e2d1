//! What the kernel tells of the program at the other end of a TCP connection within this host.
#![forbid(unsafe_code)]

use core::net::{IpAddr, SocketAddr};
use std::{fs, io::Read, os::unix::ffi::OsStrExt, path::Path};

/// Longest environment and list of mappings that is read, in bytes.
const LONGEST: u64 = 1 << 20;
/// Most connections that the kernel is asked for.
const LONGEST_TABLE: u64 = 16 << 20;
/// The library, as it is mapped; what other than this one is called so is the shipped one, or one that does as it does.
const LIBRARY: &[u8] = b"librspreload.so";
/// What makes it wait for an invitation.
const SETTING: &[u8] = b"RDMAV_FORK_SAFE=";

/// Whether the client of a connection within this host has a preload library that waits for an invitation (PROTOCOL.md 3). `None`: it is on
/// another host, or is not to be seen.
pub fn expects_invitation(local: SocketAddr, peer: SocketAddr) -> Option<bool> {
    let inode = socket_of(peer, local)?;
    let wanted = format!("socket:[{inode}]");
    let owners = processes().filter(|process| has_open(process, &wanted));
    let mut found = None;
    for owner in owners {
        let (environment, mappings) = (read(&owner.join("environ"), LONGEST)?, read(&owner.join("maps"), LONGEST)?);
        let set = environment.split(|byte| *byte == 0).filter_map(|variable| variable.strip_prefix(SETTING));
        let on = set.into_iter().any(|value| !value.is_empty() && value.iter().any(|byte| *byte != b'0'));
        let preloaded = mappings.windows(LIBRARY.len()).any(|name| name == LIBRARY);
        found = Some(found == Some(true) || on && preloaded);
    }
    found
}

fn processes() -> impl Iterator<Item = std::path::PathBuf> {
    let all = fs::read_dir("/proc").into_iter().flatten().flatten();
    all.filter(|entry| entry.file_name().as_bytes().iter().all(u8::is_ascii_digit)).map(|entry| entry.path())
}

fn has_open(process: &Path, wanted: &str) -> bool {
    let open = fs::read_dir(process.join("fd")).into_iter().flatten().flatten();
    open.filter_map(|entry| fs::read_link(entry.path()).ok()).any(|target| target.as_os_str() == wanted)
}

fn read(path: &Path, most: u64) -> Option<Vec<u8>> {
    let mut bytes = Vec::new();
    fs::File::open(path).ok()?.take(most).read_to_end(&mut bytes).ok()?;
    Some(bytes)
}

/// The inode of the connection from `local` to `remote` (proc(5), /proc/net/tcp).
fn socket_of(local: SocketAddr, remote: SocketAddr) -> Option<u64> {
    // An IPv6 socket has an IPv4 peer under a mapped address, in the other table.
    ["/proc/net/tcp", "/proc/net/tcp6"].iter().find_map(|table| {
        let text = read(Path::new(table), LONGEST_TABLE)?;
        let wide = table.ends_with('6');
        let (local, remote) = (shown(local, wide)?, shown(remote, wide)?);
        let text = String::from_utf8_lossy(&text).into_owned();
        text.lines().find_map(|line| {
            let mut words = line.split_ascii_whitespace().skip(1);
            let same = words.next()? == local && words.next()? == remote;
            same.then(|| words.nth(6)?.parse().ok()).flatten()
        })
    })
}

/// As that table shows an address: words of the host's byte order, in hexadecimal.
fn shown(addr: SocketAddr, wide: bool) -> Option<String> {
    let bytes = match (addr.ip(), wide) {
        (IpAddr::V4(ip), false) => ip.octets().to_vec(),
        (IpAddr::V4(ip), true) => ip.to_ipv6_mapped().octets().to_vec(),
        (IpAddr::V6(ip), true) => ip.octets().to_vec(),
        (IpAddr::V6(_), false) => return None,
    };
    let words: String = bytes.as_chunks().0.iter().map(|word: &[u8; 4]| format!("{:08X}", u32::from_ne_bytes(*word))).collect();
    Some(format!("{words}:{:04X}", addr.port()))
}

#[cfg(test)]
mod tests {
    use std::net::{TcpListener, TcpStream};

    use super::*;

    #[test]
    fn a_client_of_this_process_waits_for_nothing() {
        for address in ["127.0.0.1:0", "[::1]:0"] {
            let listener = TcpListener::bind(address).unwrap();
            let client = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
            let (server, peer) = listener.accept().unwrap();
            assert_eq!(expects_invitation(server.local_addr().unwrap(), peer), Some(false));
            drop(client);
        }
        assert_eq!(expects_invitation("192.0.2.1:80".parse().unwrap(), "192.0.2.2:1025".parse().unwrap()), None);
    }
}
