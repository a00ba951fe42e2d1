//! A datagram socket.

use std::{
    io::{self, IoSlice, IoSliceMut},
    net::{SocketAddr, ToSocketAddrs},
    os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, IntoRawFd, RawFd},
    time::Duration,
};

use super::{
    address,
    socket::{Socket, carries_data, common},
};
use crate::capi::safe;

/// A datagram socket, as [`std::net::UdpSocket`].
#[derive(Debug)]
pub struct UdpSocket(Socket);

common!(UdpSocket);
carries_data!(UdpSocket);

impl UdpSocket {
    /// A socket at the first of the addresses that is free (bind(2)). Port 0: the kernel chooses one.
    pub fn bind(at: impl ToSocketAddrs) -> io::Result<Self> {
        address::each(at, |address| {
            let socket = Socket::new(&address, libc::SOCK_DGRAM)?;
            socket.bind(&address)?;
            Ok(UdpSocket(socket))
        })
    }

    /// Sends to the first of the addresses that can be connected to, and receives from there only (connect(2)).
    pub fn connect(&self, to: impl ToSocketAddrs) -> io::Result<()> {
        address::each(to, |address| self.0.connect(&address))
    }

    /// Sends a datagram to the first of the addresses (sendto(2)).
    pub fn send_to(&self, datagram: &[u8], to: impl ToSocketAddrs) -> io::Result<usize> {
        let to = address::first(to)?;
        safe::send(self.0.fd(), &[IoSlice::new(datagram)], libc::MSG_NOSIGNAL, Some(&to))
    }

    /// Waits for the next datagram (recvfrom(2)): how many bytes, and from whom. What has no room is lost.
    pub fn recv_from(&self, into: &mut [u8]) -> io::Result<(usize, SocketAddr)> {
        safe::receive_from(self.0.fd(), into, 0)
    }

    /// As [`Self::recv_from`], but it stays to be received (MSG_PEEK).
    pub fn peek_from(&self, into: &mut [u8]) -> io::Result<(usize, SocketAddr)> {
        safe::receive_from(self.0.fd(), into, libc::MSG_PEEK)
    }

    /// Sends to whom the socket is connected to.
    pub fn send(&self, datagram: &[u8]) -> io::Result<usize> {
        self.0.send(&[IoSlice::new(datagram)])
    }

    /// Waits for the next datagram, whoever sent it.
    pub fn recv(&self, into: &mut [u8]) -> io::Result<usize> {
        self.0.receive(&mut [IoSliceMut::new(into)])
    }

    /// Whether datagrams may go to a broadcast address (SO_BROADCAST).
    pub fn broadcast(&self) -> io::Result<bool> {
        self.0.flag(libc::SOL_SOCKET, libc::SO_BROADCAST)
    }

    /// Sets what [`Self::broadcast`] gives.
    pub fn set_broadcast(&self, on: bool) -> io::Result<()> {
        self.0.set_flag(libc::SOL_SOCKET, libc::SO_BROADCAST, on)
    }
}
