//! A receiver's side: its name, and the channels of those that send to it.

use core::{net::SocketAddr, time::Duration};
use std::{io::IoSliceMut, os::fd::RawFd};

use rustix::{
    event::epoll::{CreateFlags, create},
    fd::{AsFd, AsRawFd, OwnedFd},
};

use super::{
    super::{
        channel::{self, Bell},
        greeting::{self, ADDRESS},
    },
    lets_in,
    name::{self, Name},
    ring::{Front, Look, Reader},
};
use crate::{
    error::{Errno, Result},
    sys::{
        descriptor::{self, OwnFd},
        epoll::{self, Event},
    },
};

/// Channels of one receiver. One more takes the place of one that has nothing to read.
const MOST_CHANNELS: usize = 256;
/// Senders that are let in at one look.
const ARRIVALS_A_LOOK: usize = 16;
/// Events that are taken at once.
const EVENTS: usize = 32;
/// The name's events; a channel's are its own number's.
const DOOR: u64 = 0;
/// Those of a descriptor that is somebody else's.
const OTHER: u64 = u64::MAX;
const READABLE: u32 = libc::EPOLLIN as u32;

/// A sender.
struct Channel {
    number: u64,
    /// `None` where that end is gone: what it has left is still to be read.
    socket: Option<OwnFd>,
    /// Once it has said who it is.
    reader: Option<Reader>,
    source: SocketAddr,
    /// When it was last of use, by the count of datagrams.
    used: u64,
}

/// What was taken.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Taken {
    /// Bytes that were copied.
    pub copied: usize,
    /// Bytes that the datagram has.
    pub len: usize,
    /// Its sender.
    pub source: SocketAddr,
}

/// What was announced.
#[derive(Clone, Copy, Debug, Default)]
pub struct Heard {
    /// Anything: who is armed is so no longer, perhaps, or not for all.
    pub any: bool,
    /// Something at a descriptor that is [followed](Inbox::follow).
    pub followed: bool,
}

/// See the module.
pub struct Inbox {
    set: OwnFd,
    door: Option<(OwnFd, Name)>,
    channels: Vec<Channel>,
    last_number: u64,
    taken: u64,
    /// Bytes that came through channels that are no longer there.
    past: u64,
    /// A channel is new: what came another way before is older.
    news: bool,
    takes_v6: bool,
}

impl Inbox {
    /// For a socket that may hear IPv6 senders, or IPv4 ones alone.
    pub fn new(takes_v6: bool) -> Result<Self> {
        let set = descriptor::lift(create(CreateFlags::CLOEXEC)?);
        Ok(Inbox { set, door: None, channels: Vec::new(), last_number: DOOR, taken: 0, past: 0, news: false, takes_v6 })
    }

    /// The descriptor that is readable when there is something for [`Inbox::take_events`].
    pub fn event_fd(&self) -> RawFd {
        self.set.as_raw_fd()
    }

    /// Descriptors that it has.
    pub fn descriptors(&self) -> usize {
        1 + usize::from(self.door.is_some()) + self.channels.iter().filter(|channel| channel.socket.is_some()).count()
    }

    /// Whether anybody sends to it.
    pub fn has_senders(&self) -> bool {
        self.channels.iter().any(|channel| channel.socket.is_some())
    }

    /// Is found from now on by those who send to `addr` or, connected to `peer`, by that one alone. Senders of before find it anew.
    /// EADDRINUSE: another receiver has the name.
    pub fn open(&mut self, addr: SocketAddr, v6_only: bool, peer: Option<SocketAddr>) -> Result<()> {
        let name = peer.map_or_else(|| name::of_open(addr, v6_only), |peer| name::of_connected(addr, peer));
        if self.door.as_ref().is_some_and(|(_, own)| *own == name) {
            return Ok(());
        }
        self.close();
        let door = channel::listen(&name)?;
        self.watch(&door, DOOR)?;
        self.door = Some((door, name));
        Ok(())
    }

    /// Whether it can be found.
    pub fn is_open(&self) -> bool {
        self.door.is_some()
    }

    /// Is found no longer, and its senders go elsewhere. What they have sent is still to be read.
    pub fn close(&mut self) {
        self.shut_door();
        for at in (0..self.channels.len()).rev() {
            self.end(at);
        }
    }

    fn shut_door(&mut self) {
        if let Some((door, _)) = self.door.take() {
            leave(&self.set, &door);
            // Children of the program may hold the descriptor, too.
            channel::end(&door);
        }
    }

    /// As [`Inbox::close`], where nothing can be given back.
    pub fn pause(&self) {
        if let Some((door, _)) = &self.door {
            channel::end(door);
        }
        self.channels.iter().filter_map(|channel| channel.reader.as_ref()).for_each(Reader::close);
    }

    /// Announces, too, what this descriptor does, until it is closed. Its events are the caller's to take off.
    pub fn follow(&self, fd: RawFd) -> Result<()> {
        epoll::control(self.set.as_raw_fd(), libc::EPOLL_CTL_ADD, fd, Some(Event { events: READABLE, u64: OTHER }))
    }

    fn watch(&self, socket: &OwnFd, number: u64) -> Result<()> {
        epoll::control(self.set.as_raw_fd(), libc::EPOLL_CTL_ADD, socket.as_raw_fd(), Some(Event { events: READABLE, u64: number }))
    }

    /// The channel's other end is gone, or is to go. It leaves when it is read out.
    fn end(&mut self, at: usize) {
        let Some(channel) = self.channels.get_mut(at) else { return };
        if let Some(reader) = &channel.reader {
            reader.close();
        }
        if let Some(socket) = channel.socket.take() {
            leave(&self.set, &socket);
            channel::end(&socket);
        }
        if !matches!(channel.reader.as_mut().map(Reader::look), Some(Look::Front(_))) {
            self.remove(at);
        }
    }

    fn remove(&mut self, at: usize) {
        let channel = self.channels.swap_remove(at);
        if let Some(socket) = &channel.socket {
            leave(&self.set, socket);
            channel::end(socket);
        }
        if let Some(reader) = &channel.reader {
            reader.close();
            self.past = self.past.wrapping_add(reader.written());
        }
    }

    /// Lets in senders, and takes bells off.
    pub fn take_events(&mut self) -> Heard {
        let mut heard = Heard::default();
        for _ in 0..=MOST_CHANNELS / EVENTS {
            let mut events = [Event { events: 0, u64: 0 }; EVENTS];
            let Ok(count) = epoll::wait(self.set.as_raw_fd(), &mut events, Some(Duration::ZERO), None) else { break };
            heard.any |= count > 0;
            for event in events.iter().take(count) {
                if { event.u64 } == DOOR {
                    self.let_in();
                } else if { event.u64 } == OTHER {
                    heard.followed = true;
                } else if let Some(at) = self.channels.iter().position(|channel| channel.number == { event.u64 }) {
                    self.hear(at);
                }
            }
            if count < EVENTS {
                break;
            }
        }
        heard
    }

    fn let_in(&mut self) {
        for _ in 0..ARRIVALS_A_LOOK {
            let Some((door, _)) = &self.door else { return };
            let socket = match channel::accept(door.as_fd()) {
                Ok(socket) => socket,
                Err(Errno::AGAIN | Errno::INTR | Errno::CONNABORTED) => return,
                // A limit: a door that stays readable would keep sleepers awake. Senders find the kernel's socket.
                Err(_) => return self.shut_door(),
            };
            let own = self.descriptors();
            // What is refused finds its socket closed, and uses the kernel's.
            if lets_in(channel::peer_uid(socket.as_fd())) && self.make_room() {
                match descriptor::lift_sparingly(socket, own) {
                    Ok(socket) => self.add(socket),
                    Err(_) => return self.shut_door(),
                }
            }
        }
    }

    fn add(&mut self, socket: OwnFd) {
        self.last_number += 1;
        if self.watch(&socket, self.last_number).is_ok() {
            let source = SocketAddr::from(([0, 0, 0, 0], 0));
            let (number, used) = (self.last_number, self.taken);
            self.channels.push(Channel { number, socket: Some(socket), reader: None, source, used });
            self.hear(self.channels.len() - 1);
        }
    }

    /// Room for one more channel.
    fn make_room(&mut self) -> bool {
        if self.channels.len() < MOST_CHANNELS {
            return true;
        }
        let idle = |channel: &mut Channel| !matches!(channel.reader.as_mut().map(Reader::look), Some(Look::Front(_)));
        let oldest = self.channels.iter_mut().enumerate().filter_map(|(at, channel)| idle(channel).then_some((channel.used, at))).min();
        if let Some((_, at)) = oldest {
            self.remove(at);
        }
        oldest.is_some()
    }

    /// What a channel's socket says.
    fn hear(&mut self, at: usize) {
        let Some(channel) = self.channels.get_mut(at) else { return };
        let Some(socket) = &channel.socket else { return };
        if channel.reader.is_some() {
            if channel::take_ring(socket.as_fd()) == Bell::End {
                self.end(at);
            }
            return;
        }
        match greeting_of(socket, self.takes_v6) {
            Ok((source, reader)) => {
                (channel.source, channel.reader) = (source, Some(reader));
                self.news = true;
            }
            Err(Errno::AGAIN) => {}
            // A limit of this end's: nor would others come through.
            Err(Errno::NOMEM | Errno::MFILE | Errno::NFILE) => {
                self.remove(at);
                self.shut_door();
            }
            Err(_) => self.remove(at),
        }
    }

    /// Whether there was a new channel since this was last asked.
    pub fn take_news(&mut self) -> bool {
        core::mem::take(&mut self.news)
    }

    /// Bytes that have come in all, modulo 2^32: another number is another datagram.
    pub fn arrivals(&self) -> u32 {
        let now = self.channels.iter().filter_map(|channel| channel.reader.as_ref()).map(Reader::written);
        now.fold(self.past, u64::wrapping_add) as u32
    }

    /// Wants the event descriptor to become readable at the next datagram. A look must follow.
    pub fn arm(&self) {
        self.channels.iter().filter_map(|channel| channel.reader.as_ref()).for_each(Reader::arm);
    }

    /// The channel with the datagram that was sent first.
    fn first(&mut self) -> Option<(usize, Front)> {
        let mut first: Option<(usize, Front)> = None;
        for at in (0..self.channels.len()).rev() {
            let Some(channel) = self.channels.get_mut(at) else { continue };
            let gone = channel.socket.is_none();
            match channel.reader.as_mut().map_or(Look::Empty, Reader::look) {
                Look::Front(front) if first.is_none_or(|(_, other)| front.time < other.time) => first = Some((at, front)),
                Look::Front(_) => {}
                Look::Empty if !gone => {}
                Look::Empty | Look::Nonsense => {
                    // The last one takes its place, which was looked at before.
                    let last = self.channels.len() - 1;
                    self.remove(at);
                    first = first.map(|(of, front)| (if of == last { at } else { of }, front));
                }
            }
        }
        first
    }

    /// How long the next datagram is.
    pub fn next_len(&mut self) -> Option<usize> {
        self.first().map(|(_, front)| front.len)
    }

    /// Takes the next datagram, or only looks at it if it `stays`.
    pub fn take(&mut self, into: &mut [IoSliceMut<'_>], stays: bool) -> Option<Taken> {
        let (at, front) = self.first()?;
        let channel = self.channels.get_mut(at)?;
        let copied = channel.reader.as_mut()?.take(into, stays);
        self.taken += 1;
        channel.used = self.taken;
        Some(Taken { copied, len: front.len, source: channel.source })
    }
}

impl Drop for Inbox {
    fn drop(&mut self) {
        self.close();
        // Those that were still to be read out.
        while !self.channels.is_empty() {
            self.remove(0);
        }
    }
}

fn leave(set: &OwnFd, socket: &OwnFd) {
    let _ = epoll::control(set.as_raw_fd(), libc::EPOLL_CTL_DEL, socket.as_raw_fd(), None);
}

/// Who a sender is, and its memory. EAGAIN: it has not said so yet.
fn greeting_of(socket: &OwnFd, takes_v6: bool) -> Result<(SocketAddr, Reader)> {
    // One byte more than it has: what is longer is none.
    let mut bytes = [0; ADDRESS + 1];
    let (len, file): (usize, Option<OwnedFd>) = channel::receive(socket.as_fd(), &mut bytes)?;
    if len != ADDRESS {
        return Err(Errno::PROTO);
    }
    let source = bytes.first_chunk().and_then(greeting::address).ok_or(Errno::PROTO)?;
    if source.port() == 0 || source.is_ipv6() && !takes_v6 {
        return Err(Errno::PROTO);
    }
    Ok((source, Reader::new(file.ok_or(Errno::PROTO)?.as_fd())?))
}
