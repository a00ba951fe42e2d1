//! recvmsg(2) with the control data as the kernel writes it, which rustix only gives in pieces of its own.

use core::mem::MaybeUninit;
use std::{io::IoSliceMut, os::fd::RawFd};

use super::kernel::call;
use crate::error::Result;

/// Bytes of the longest address that is looked at: `struct sockaddr_in6`.
const NAME: usize = size_of::<libc::sockaddr_in6>();

/// An address, as the kernel writes it.
#[derive(Default)]
#[repr(C, align(8))]
struct Name([u8; NAME]);

/// What has come.
pub struct Message {
    /// Its bytes: with MSG_TRUNC as many as it had.
    pub len: usize,
    /// MSG_TRUNC, MSG_CTRUNC and their kind.
    pub flags: i32,
    /// Bytes of control data.
    pub control: usize,
    name: Name,
    name_length: usize,
}

impl Message {
    /// The `struct sockaddr` of its sender; empty where there is none.
    pub fn source(&self) -> &[u8] {
        self.name.0.get(..self.name_length.min(NAME)).unwrap_or_default()
    }
}

/// Receives into `into`, and control data into `control`.
pub fn receive(fd: RawFd, into: &mut [IoSliceMut<'_>], control: &mut [u8], flags: i32) -> Result<Message> {
    let mut name = Name::default();
    // SAFETY: all-zero is a valid value of this plain structure.
    let mut header: libc::msghdr = unsafe { MaybeUninit::zeroed().assume_init() };
    header.msg_name = (&raw mut name).cast();
    header.msg_namelen = NAME as u32;
    header.msg_iov = into.as_mut_ptr().cast();
    header.msg_iovlen = into.len() as _;
    header.msg_control = control.as_mut_ptr().cast();
    header.msg_controllen = control.len() as _;
    // SAFETY: the kernel writes within the name, the slices (which are laid out as iovec) and the control data, all of which live.
    let len = unsafe { call!(libc::SYS_recvmsg, fd, &raw mut header, flags) }?;
    Ok(Message { len, flags: header.msg_flags, control: header.msg_controllen, name, name_length: header.msg_namelen as usize })
}

#[cfg(test)]
mod tests {
    use std::{net::UdpSocket, os::fd::AsRawFd};

    use super::*;

    #[test]
    fn bytes_sender_and_flags() {
        let [one, other] = [(); 2].map(|()| UdpSocket::bind("127.0.0.1:0").unwrap());
        one.send_to(b"hello", other.local_addr().unwrap()).unwrap();
        let (mut first, mut rest) = ([0; 2], [0; 2]);
        let mut into = [IoSliceMut::new(&mut first), IoSliceMut::new(&mut rest)];
        let message = receive(other.as_raw_fd(), &mut into, &mut [], libc::MSG_TRUNC).unwrap();
        assert_eq!((message.len, message.flags & libc::MSG_TRUNC, message.control), (5, libc::MSG_TRUNC, 0));
        assert_eq!(port(message.source()), one.local_addr().unwrap().port());
        assert_eq!((&first, &rest), (b"he", b"ll"));
        assert!(receive(other.as_raw_fd(), &mut [], &mut [], libc::MSG_DONTWAIT).is_err());
    }

    fn port(name: &[u8]) -> u16 {
        u16::from_be_bytes([name[2], name[3]])
    }
}
