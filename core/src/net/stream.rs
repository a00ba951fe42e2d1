//! A connection.

use std::{
    io::{self, IoSlice, IoSliceMut, Read, Write},
    net::{Shutdown, SocketAddr, ToSocketAddrs},
    os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, IntoRawFd, RawFd},
    time::Duration,
};

use super::{
    address,
    socket::{Socket, carries_data, common},
};
use crate::capi::safe;

/// A connection, as [`std::net::TcpStream`]. Closed when dropped: what was written arrives.
#[derive(Debug)]
pub struct TcpStream(pub(super) Socket);

common!(TcpStream);
carries_data!(TcpStream);

impl TcpStream {
    /// Connects to the first of the addresses that takes the connection (connect(2)).
    pub fn connect(to: impl ToSocketAddrs) -> io::Result<Self> {
        address::each(to, |address| {
            let socket = Socket::new(&address, libc::SOCK_STREAM)?;
            socket.connect(&address)?;
            Ok(TcpStream(socket))
        })
    }

    /// The same to one address; [`TimedOut`](io::ErrorKind::TimedOut) if it takes longer. A time of 0 is
    /// [`InvalidInput`](io::ErrorKind::InvalidInput).
    pub fn connect_timeout(to: &SocketAddr, time: Duration) -> io::Result<Self> {
        let socket = Socket::new(to, libc::SOCK_STREAM)?;
        socket.connect_within(to, time)?;
        Ok(TcpStream(socket))
    }

    /// Ends reading, writing or both (shutdown(2)).
    pub fn shutdown(&self, how: Shutdown) -> io::Result<()> {
        let how = match how {
            Shutdown::Read => libc::SHUT_RD,
            Shutdown::Write => libc::SHUT_WR,
            Shutdown::Both => libc::SHUT_RDWR,
        };
        safe::shutdown(self.0.fd(), how)
    }

    /// TCP_NODELAY. Over a fabric a message goes at once, whatever this says.
    pub fn nodelay(&self) -> io::Result<bool> {
        self.0.flag(libc::IPPROTO_TCP, libc::TCP_NODELAY)
    }

    /// Sets what [`Self::nodelay`] gives.
    pub fn set_nodelay(&self, on: bool) -> io::Result<()> {
        self.0.set_flag(libc::IPPROTO_TCP, libc::TCP_NODELAY, on)
    }
}

impl Read for &TcpStream {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        self.0.receive(&mut [IoSliceMut::new(into)])
    }

    fn read_vectored(&mut self, into: &mut [IoSliceMut<'_>]) -> io::Result<usize> {
        self.0.receive(into)
    }
}

impl Write for &TcpStream {
    fn write(&mut self, from: &[u8]) -> io::Result<usize> {
        self.0.send(&[IoSlice::new(from)])
    }

    fn write_vectored(&mut self, from: &[IoSlice<'_>]) -> io::Result<usize> {
        self.0.send(from)
    }

    /// Nothing is held back.
    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl Read for TcpStream {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        (&*self).read(into)
    }

    fn read_vectored(&mut self, into: &mut [IoSliceMut<'_>]) -> io::Result<usize> {
        (&*self).read_vectored(into)
    }
}

impl Write for TcpStream {
    fn write(&mut self, from: &[u8]) -> io::Result<usize> {
        (&*self).write(from)
    }

    fn write_vectored(&mut self, from: &[IoSlice<'_>]) -> io::Result<usize> {
        (&*self).write_vectored(from)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}
