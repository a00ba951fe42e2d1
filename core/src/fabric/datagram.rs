//! Datagrams over a device: the unconnected queue pair of one local address, beside [`Endpoint`](super::Endpoint).
//!
//! A [`Queue`] sends single messages to queue pairs whose path is known, and receives from anybody. It knows nothing of what the messages
//! say. Messages may be lost or overtaken; none comes in parts. It lives behind the engine lock of its socket (DESIGN: lock 4), and nothing
//! here blocks; only making and dropping one takes its time.

use core::net::{IpAddr, SocketAddr};
use std::{io::IoSlice, os::fd::RawFd};

use crate::error::{Errno, Result};

/// A path that was found, as long as it is not [released](Queue::release). Good for the queue that found it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Handle {
    pub(super) index: usize,
    /// Never the same for two of one queue.
    pub(super) serial: u64,
}

/// What became of a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Posted {
    /// It is on its way.
    Done,
    /// The queue is full: it was dropped.
    Full,
    /// The path takes no message of this length, though the queue does: it is to be sent elsewhere.
    TooLong,
}

/// The end of a [search](Queue::find).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Found {
    /// As given.
    pub request: u64,
    /// `None`: there is no path, or it does not go over this queue's device.
    pub handle: Option<Handle>,
}

/// An unconnected queue pair. Receives are posted from the beginning.
pub trait Queue: Send {
    /// The local address that it belongs to.
    fn local(&self) -> IpAddr;

    /// Its number, which peers send to.
    fn number(&self) -> u32;

    /// Bytes of the longest message.
    fn largest(&self) -> usize;

    /// Starts to look for the path to `peer`. The outcome comes by [`Queue::found`], after some time, and is announced to nobody. EAGAIN: too
    /// many are looked for already.
    fn find(&mut self, request: u64, peer: SocketAddr) -> Result<()>;

    /// The outcome of a search.
    fn found(&mut self) -> Option<Found>;

    /// Nobody needs this path any more. Messages that are on their way are not touched.
    fn release(&mut self, path: Handle);

    /// Sends a message of `header` and the bytes behind it to the queue pair of this number. What is given may be changed at once.
    fn send(&mut self, path: Handle, number: u32, header: &[u8], from: &[IoSlice<'_>]) -> Result<Posted>;

    /// How many messages have come, modulo 2^32.
    fn arrivals(&mut self) -> u32;

    /// The length of the oldest message, until it is [taken](Queue::take).
    fn next_len(&mut self) -> Option<usize>;

    /// Copies bytes at `offset` of the oldest message. EFAULT where there are none.
    fn read(&self, offset: usize, into: &mut [u8]) -> Result<()>;

    /// The oldest message is done with.
    fn take(&mut self);

    /// Asks for one event on [`Queue::event_fd`] at the next message, or without one. What has come before may not be announced: look again
    /// afterwards.
    fn arm(&mut self) -> Result<()>;

    /// The descriptor that becomes readable then. Stays the queue's. `None` where there are no descriptors (simulation).
    fn event_fd(&self) -> Option<RawFd>;

    /// Takes all announced events off it. Whether there were any: then it is armed no longer.
    fn clear_events(&mut self) -> bool;
}

/// The paths of a queue, by handle. `P` is one path.
pub(super) struct Paths<P> {
    slots: Vec<Option<(u64, P)>>,
    next_serial: u64,
}

impl<P> Default for Paths<P> {
    fn default() -> Self {
        Paths { slots: Vec::new(), next_serial: 0 }
    }
}

impl<P> Paths<P> {
    /// Keeps a path.
    pub(super) fn insert(&mut self, path: P) -> Handle {
        let serial = self.next_serial;
        self.next_serial += 1;
        let index = match self.slots.iter().position(Option::is_none) {
            Some(index) => index,
            None => {
                self.slots.push(None);
                self.slots.len().saturating_sub(1)
            }
        };
        if let Some(slot) = self.slots.get_mut(index) {
            *slot = Some((serial, path));
        }
        Handle { index, serial }
    }

    /// EINVAL: it was released.
    pub(super) fn get(&mut self, handle: Handle) -> Result<&mut P> {
        match self.slots.get_mut(handle.index) {
            Some(Some((serial, path))) if *serial == handle.serial => Ok(path),
            _ => Err(Errno::INVAL),
        }
    }

    /// `None`: it was released before.
    pub(super) fn remove(&mut self, handle: Handle) -> Option<P> {
        self.get(handle).ok()?;
        self.slots.get_mut(handle.index)?.take().map(|(_, path)| path)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_handle_is_good_for_one_path() {
        let mut paths = Paths::default();
        let (one, other) = (paths.insert(1), paths.insert(2));
        assert_eq!((paths.get(one).copied(), paths.get(other).copied()), (Ok(1), Ok(2)));
        assert_eq!((paths.remove(one), paths.remove(one)), (Some(1), None));
        let third = paths.insert(3);
        assert_eq!((third.index, third == one), (one.index, false));
        assert_eq!((paths.get(one).copied(), paths.get(third).copied()), (Err(Errno::INVAL), Ok(3)));
    }
}
