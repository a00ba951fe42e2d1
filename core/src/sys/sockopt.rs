//! getsockopt(2) and setsockopt(2) for any level and name, on the kernel's socket.

use core::{ffi::c_void, net::SocketAddr};
use std::os::fd::RawFd;

use rustix::{
    fd::AsRawFd,
    net::{AddressFamily, SocketFlags, SocketType},
};

use super::kernel::call;
use crate::error::Result;

/// Sets an option by a raw system call: libc's function would enter the preload library's own hook.
pub fn set(fd: RawFd, level: i32, name: i32, value: &[u8]) -> Result<()> {
    // SAFETY: the kernel reads `value.len()` bytes of a live slice.
    unsafe { call!(libc::SYS_setsockopt, fd, level, name, value.as_ptr(), value.len()) }.map(drop)
}

/// Reads an option into `out` and gives its length, in bytes.
pub fn get(fd: RawFd, level: i32, name: i32, out: &mut [u8]) -> Result<usize> {
    let mut length = u32::try_from(out.len()).unwrap_or(u32::MAX);
    // SAFETY: the kernel writes at most `length` bytes into a live slice of at least that length, and the length.
    unsafe { call!(libc::SYS_getsockopt, fd, level, name, out.as_mut_ptr(), &raw mut length) }?;
    Ok(length as usize)
}

/// Sets an option with the program's own pointer, which the kernel judges.
///
/// # Safety
/// What the kernel reads there is the program's to answer for: it reads at most `length` bytes, and where it cannot, says EFAULT.
pub unsafe fn set_at(fd: RawFd, level: i32, name: i32, value: *const c_void, length: u32) -> Result<()> {
    // SAFETY: the kernel reads the program's memory only.
    unsafe { call!(libc::SYS_setsockopt, fd, level, name, value, length) }.map(drop)
}

/// How large a packet to this peer may be, as the kernel's routes say now.
pub fn path_mtu(peer: SocketAddr) -> Option<u32> {
    let (family, level, name) = match peer {
        SocketAddr::V4(_) => (AddressFamily::INET, libc::IPPROTO_IP, libc::IP_MTU),
        SocketAddr::V6(_) => (AddressFamily::INET6, libc::IPPROTO_IPV6, libc::IPV6_MTU),
    };
    let probe = rustix::net::socket_with(family, SocketType::DGRAM, SocketFlags::CLOEXEC, None).ok()?;
    // udp(7): connecting sends nothing, but looks for the route.
    rustix::net::connect(&probe, &peer).ok()?;
    let mut mtu = [0; 4];
    get(probe.as_raw_fd(), level, name, &mut mtu).ok()?;
    u32::try_from(i32::from_ne_bytes(mtu)).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_loopback_has_large_packets() {
        assert!(path_mtu("127.0.0.1:9".parse().unwrap()).unwrap() >= 1280);
    }
}
