//! A listening socket.

use std::{
    io,
    iter::FusedIterator,
    net::{SocketAddr, ToSocketAddrs},
    os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, IntoRawFd, RawFd},
};

use super::{
    TcpStream, address,
    socket::{Socket, common},
};
use crate::capi::safe;

/// Connections that wait to be accepted: as many as the kernel allows (`/proc/sys/net/core/somaxconn`).
const BACKLOG: i32 = -1;

/// A listening socket, as [`std::net::TcpListener`]: peers over RDMA, shared memory and TCP come to it.
#[derive(Debug)]
pub struct TcpListener(Socket);

common!(TcpListener);

impl TcpListener {
    /// Listens at the first of the addresses that is free, with SO_REUSEADDR (bind(2), listen(2)). Port 0: the kernel chooses one.
    pub fn bind(at: impl ToSocketAddrs) -> io::Result<Self> {
        address::each(at, |address| {
            let socket = Socket::new(&address, libc::SOCK_STREAM)?;
            socket.set_flag(libc::SOL_SOCKET, libc::SO_REUSEADDR, true)?;
            socket.bind(&address)?;
            safe::listen(socket.fd(), BACKLOG)?;
            Ok(TcpListener(socket))
        })
    }

    /// Waits for the next connection (accept(2)): the connection, close-on-exec, and the peer's address.
    pub fn accept(&self) -> io::Result<(TcpStream, SocketAddr)> {
        loop {
            match safe::accept(self.0.fd()) {
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                accepted => return accepted.map(|(accepted, peer)| (TcpStream(Socket::of(accepted)), peer)),
            }
        }
    }

    /// All connections to come.
    pub fn incoming(&self) -> Incoming<'_> {
        Incoming(self)
    }
}

/// See [`TcpListener::incoming`]: it has no end.
#[derive(Debug)]
pub struct Incoming<'a>(&'a TcpListener);

impl Iterator for Incoming<'_> {
    type Item = io::Result<TcpStream>;

    fn next(&mut self) -> Option<Self::Item> {
        Some(self.0.accept().map(|(stream, _)| stream))
    }
}

impl FusedIterator for Incoming<'_> {}
