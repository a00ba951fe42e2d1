//! Datagrams to a receiver in the same network namespace.
//!
//! A receiver has a name that says its address (`name`), under which it listens on an abstract Unix socket. Who sends to it connects there
//! once, hands over a sealed memory file of its own (`ring`), and puts its datagrams in: the first is there before the receiver knows of
//! the channel, so that nobody waits for anybody. [`Outlet`] is a sender's end of a channel, [`Inbox`] all those of a receiver.
//!
//! One ring has one writer: what a sender does wrong, or leaves undone when it dies, is its own channel's end and nobody else's. The
//! socket of the channel is the bell of a receiver that sleeps, and tells each end that the other is gone.
#![forbid(unsafe_code)]

use core::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::io::IoSlice;

use rustix::fd::AsFd;

use super::{
    channel::{self, Bell},
    event::user_now,
    greeting, source_on_this_host,
};
use crate::{
    config,
    error::{Errno, Result},
    sys::{clock::Nanos, descriptor::OwnFd},
};

mod inbox;
mod name;
mod ring;
#[cfg(test)]
mod tests;

pub use inbox::{Heard, Inbox, Taken};
use ring::{Put, Writer};

/// Longest datagram that a channel takes.
pub const LONGEST: usize = ring::LONGEST;

/// A receiver that was killed is noticed after so long without a look, in nanoseconds.
const LOOK_EVERY: Nanos = 5_000_000;

/// Whether a program of this user may be at the other end.
fn lets_in(uid: Option<u32>) -> bool {
    config::get().shm_any_uid || uid == Some(user_now())
}

/// The address that the kernel would send from to `destination`, if that is one of this host's, and not several's. `bound`: the sender has this
/// address.
pub fn source(destination: SocketAddr, bound: Option<IpAddr>) -> Option<IpAddr> {
    let single = match destination.ip() {
        // The loopback's broadcast address is of the loopback's network.
        IpAddr::V4(ip) => !ip.is_multicast() && !ip.is_broadcast() && ip != Ipv4Addr::new(127, 255, 255, 255),
        IpAddr::V6(ip) => !ip.is_multicast(),
    };
    let source = source_on_this_host(destination).filter(|_| single)?;
    Some(bound.unwrap_or(source))
}

/// What became of a datagram.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Sent {
    /// It is the receiver's.
    Done,
    /// The receiver's queue is full: it is dropped, as UDP does.
    Dropped,
    /// The receiver is gone, or takes no more: it is to be sent elsewhere.
    Gone,
}

/// A sender's end of a channel.
pub struct Outlet {
    socket: OwnFd,
    writer: Writer,
    looked: Nanos,
}

impl Outlet {
    /// To the receiver of what is sent from `source` to `destination`. `None`: it is not to be found. EPERM: it is another user's. EMFILE: the
    /// library, which has `own` numbers, may take no more.
    pub fn open(source: SocketAddr, destination: SocketAddr, own: usize, now: Nanos) -> Result<Option<Self>> {
        let Some(socket) = channel::connect(&name::candidates(source, destination), own)? else { return Ok(None) };
        if !lets_in(channel::peer_uid(socket.as_fd())) {
            return Err(Errno::PERM);
        }
        let (writer, file) = Writer::new()?;
        match channel::send(socket.as_fd(), &greeting::address_bytes(source), Some(file.as_fd())) {
            Ok(()) => Ok(Some(Outlet { socket, writer, looked: now })),
            Err(Errno::PIPE | Errno::CONNRESET) => Ok(None),
            Err(errno) => Err(errno),
        }
    }

    /// Sends the `len` bytes of a datagram.
    pub fn send(&mut self, from: &[IoSlice<'_>], len: usize, now: Nanos) -> Sent {
        if now.saturating_sub(self.looked) >= LOOK_EVERY {
            self.looked = now;
            if channel::take_ring(self.socket.as_fd()) != Bell::Silent {
                return Sent::Gone;
            }
        }
        let mut put = self.writer.put(from, len, now);
        if put == Put::Full {
            // A receiver on the same processor has its turn first.
            rustix::thread::sched_yield();
            put = self.writer.put(from, len, now);
        }
        match put {
            Put::Done(false) => Sent::Done,
            Put::Done(true) if channel::ring(self.socket.as_fd()).is_ok() => Sent::Done,
            Put::Done(true) | Put::Closed => Sent::Gone,
            Put::Full if channel::take_ring(self.socket.as_fd()) == Bell::Silent => Sent::Dropped,
            Put::Full => Sent::Gone,
        }
    }
}

impl Drop for Outlet {
    fn drop(&mut self) {
        // A child of the program may hold the descriptor, too.
        channel::end(&self.socket);
    }
}
