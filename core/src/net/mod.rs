//! Sockets for programs written in Rust, used as those of [`std::net`]: [`TcpStream`], [`TcpListener`], [`UdpSocket`], and [`poll`] for many
//! of them.
//!
//! They are rsockets: their bytes go over RDMA, or through shared memory to a peer of the same host, if it has rsockets too, and by the
//! kernel else. What `std::net`'s methods promise holds here; errors are those of the functions of the C library whose man pages they name.
//!
//! ```
//! use rsocket::net::{TcpListener, TcpStream};
//! use std::io::{Read, Write};
//!
//! # fn main() -> std::io::Result<()> {
//! let listener = TcpListener::bind("127.0.0.1:0")?;
//! let mut client = TcpStream::connect(listener.local_addr()?)?;
//! let (mut server, _) = listener.accept()?;
//! client.write_all(b"hello")?;
//! let mut bytes = [0; 5];
//! server.read_exact(&mut bytes)?;
//! assert_eq!(&bytes, b"hello");
//! # Ok(())
//! # }
//! ```
//!
//! A descriptor of theirs stands for a socket only in this library's functions: the kernel knows another end of it, or none. So
//! [`AsFd`](std::os::fd::AsFd) is for its number, and for options of the kernel's; to wait for one use [`poll`], and there is no conversion
//! into an [`OwnedFd`](std::os::fd::OwnedFd), which would be closed by close(2).

mod address;
mod datagram;
mod listener;
mod poll;
mod socket;
mod stream;

pub use datagram::UdpSocket;
pub use listener::{Incoming, TcpListener};
pub use poll::{Events, PollFd, poll};
pub use stream::TcpStream;
