//! Peers that are reached by queue pairs: what the protocol's [`Destinations`] decide is done here, over a fabric's [`Queue`]s.
//!
//! There is a queue for each local address that is used, made when it is first of use. What goes by the UDP socket is the caller's to send
//! and to receive: see [`Sent`] and [`Remote::datagram`]. The destination or sender is always as the fabrics have it: mapped addresses are IPv4.

use core::net::{IpAddr, SocketAddr};
use std::{
    collections::{HashMap, HashSet},
    io::{IoSlice, IoSliceMut},
};

use super::turns::Turns;
use crate::{
    fabric::datagram::{Found, Handle, Posted, Queue},
    log_debug,
    protocol::datagram::{ANSWER_TIME, Destinations, Resolve, SILENCE, Way},
    sys::clock::Nanos,
    wire::{Operation, UdHeader, UdpHeader},
};

/// Destinations that are remembered.
const MOST: usize = 256;
/// Senders of plain datagrams that are remembered, once or twice that.
const MOST_PLAIN: usize = 1024;
/// Queues of one socket: local addresses that it uses.
const MOST_QUEUES: usize = 16;
/// So long peers go on to send to the queues of a socket that answers no more: then they have asked in vain, and use UDP.
const LINGER: Nanos = SILENCE + 2 * ANSWER_TIME;
/// So often who sends looks for what peers say, at most: the program may do nothing but send.
const LOOK_EVERY: Nanos = 100_000;

/// Which way a datagram went, or is to go.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Sent {
    /// By a queue pair.
    Queue,
    /// Nowhere: the queue was full.
    Dropped,
    /// By the UDP socket, as it is.
    Plain,
    /// By the UDP socket, behind this header.
    Asking(UdpHeader),
}

/// What to do with a datagram of the UDP socket.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Come {
    /// The program gets the bytes from here on. `None`: nothing.
    pub(super) deliver_from: Option<usize>,
    /// To be sent to where it came from.
    pub(super) answer: Option<UdpHeader>,
}

/// The path to a destination, from one of the queues.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Path {
    queue: u32,
    handle: Handle,
}

/// A message for the program: the oldest one of a queue.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Front {
    at: usize,
    source: SocketAddr,
    begins: usize,
    len: usize,
}

/// A message that was taken.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Message {
    pub(super) copied: usize,
    pub(super) len: usize,
    pub(super) source: SocketAddr,
}

/// See the module.
pub(super) struct Remote {
    destinations: Destinations<Path>,
    queues: Vec<Box<dyn Queue>>,
    searches: HashMap<u64, Resolve>,
    last_request: u64,
    /// Whom the socket is connected to: it hears nobody else.
    peer: Option<SocketAddr>,
    front: Option<Front>,
    /// Whose turn it is.
    turn: usize,
    /// Senders whose messages have come.
    heard: HashSet<SocketAddr>,
    turns: Turns,
    /// The kernel alone has the socket from then on.
    until: Option<Nanos>,
    /// From where destinations are sent to, `None` where no queue goes there; and until when that is believed.
    origins: HashMap<SocketAddr, (Option<SocketAddr>, Nanos)>,
    /// When who sends looks again for what peers say.
    next_look: Nanos,
    /// Who has sent datagrams without a header: the latest of them, and those before.
    plain: [HashSet<SocketAddr>; 2],
}

impl Default for Remote {
    fn default() -> Self {
        Remote {
            destinations: Destinations::new(MOST),
            queues: Vec::new(),
            searches: HashMap::new(),
            last_request: 0,
            peer: None,
            front: None,
            turn: 0,
            heard: HashSet::new(),
            turns: Turns::default(),
            until: None,
            origins: HashMap::new(),
            next_look: 0,
            plain: [HashSet::new(), HashSet::new()],
        }
    }
}

fn is_same(one: SocketAddr, other: SocketAddr) -> bool {
    (one.ip(), one.port()) == (other.ip(), other.port())
}

impl Remote {
    /// Whether a local address has a queue.
    pub(super) fn has(&self, local: IpAddr) -> bool {
        self.position(local).is_some()
    }

    fn position(&self, local: IpAddr) -> Option<usize> {
        self.queues.iter().position(|queue| queue.local() == local)
    }

    /// The queue of a local address that has none. False: there are too many.
    pub(super) fn add(&mut self, queue: Box<dyn Queue>) -> bool {
        let fits = self.queues.len() < MOST_QUEUES && !self.has(queue.local());
        if fits {
            self.queues.push(queue);
        }
        fits
    }

    /// The kernel's socket has another address, or is connected to another peer.
    pub(super) fn settle(&mut self, peer: Option<SocketAddr>) {
        self.peer = peer;
        self.origins.clear();
    }

    /// From which own address and port a destination is sent to by a queue. `None`: that is to be found out.
    #[allow(clippy::option_option, reason = "known to be nothing is not unknown")]
    pub(super) fn origin(&self, destination: SocketAddr, now: Nanos) -> Option<Option<SocketAddr>> {
        self.origins.get(&destination).filter(|(_, until)| now < *until).map(|(own, _)| *own)
    }

    /// That was found out.
    pub(super) fn set_origin(&mut self, destination: SocketAddr, own: Option<SocketAddr>, until: Nanos) {
        // The first datagram gives the socket its port.
        if own.is_some_and(|own| own.port() == 0) {
            return;
        }
        if self.origins.len() >= MOST && !self.origins.contains_key(&destination) {
            self.origins.clear();
        }
        self.origins.insert(destination, (own, until));
    }

    /// Takes note of searches that have ended, and gives back what is not needed.
    fn progress(&mut self, now: Nanos) {
        let Remote { destinations, queues, searches, .. } = self;
        for queue in queues.iter_mut() {
            while let Some(Found { request, handle }) = queue.found() {
                let path = handle.map(|handle| Path { queue: queue.number(), handle });
                match searches.remove(&request) {
                    Some(resolve) => destinations.resolved(resolve, path, now),
                    None => handle.into_iter().for_each(|handle| queue.release(handle)),
                }
            }
        }
        while let Some(path) = destinations.released() {
            if let Some(queue) = queues.iter_mut().find(|queue| queue.number() == path.queue) {
                queue.release(path.handle);
            }
        }
    }

    /// Sends the `len` bytes of a datagram from this address and port to a single host's, by a queue pair, or says how.
    pub(super) fn send(&mut self, own: SocketAddr, to: SocketAddr, from: &[IoSlice<'_>], len: usize, now: Nanos) -> Sent {
        self.progress(now);
        let Some(queue) = self.position(own.ip()).and_then(|at| self.queues.get_mut(at)) else { return Sent::Plain };
        match self.destinations.send(to, len, queue.largest(), now) {
            Way::Plain => Sent::Plain,
            Way::Asking => Sent::Asking(UdpHeader { operation: Operation::Data, queue_pair: queue.number(), address: own.ip() }),
            Way::Queue(path, number) => {
                let mut header = [0; UdHeader::V6_BYTES];
                let used = UdHeader { source: own }.emit(&mut header);
                let header = header.get(..used).unwrap_or_default();
                // The socket may have another address by now than the one that the path begins at.
                let sent = if path.queue == queue.number() { queue.send(path.handle, number, header, from).ok() } else { None };
                match sent {
                    Some(Posted::Done) => Sent::Queue,
                    Some(Posted::Full) => Sent::Dropped,
                    Some(Posted::TooLong) => Sent::Plain,
                    None => {
                        self.destinations.refused(to);
                        Sent::Plain
                    }
                }
            }
        }
    }

    /// Whether it is time to look for what peers say.
    pub(super) fn is_look_due(&mut self, now: Nanos) -> bool {
        let is_due = now >= self.next_look;
        if is_due {
            self.next_look = now.saturating_add(LOOK_EVERY);
        }
        is_due
    }

    /// A datagram of the UDP socket has come without a header: its sender is no peer, which would have asked.
    pub(super) fn plain(&mut self, source: SocketAddr) {
        // One that answers a question, or is being resolved, sends plain ones meanwhile.
        if !self.destinations.is_new(source) {
            return;
        }
        let [latest, before] = &mut self.plain;
        if latest.len() >= MOST_PLAIN {
            *before = core::mem::take(latest);
        }
        latest.insert(source);
    }

    /// Whether a destination may be asked: nothing is known of it, nor has it begun itself, without asking.
    pub(super) fn is_to_be_asked(&mut self, to: SocketAddr) -> bool {
        self.destinations.is_new(to) && !self.plain.iter().any(|some| some.contains(&to))
    }

    /// Whether nothing is known of a destination.
    pub(super) fn is_new(&mut self, to: SocketAddr) -> bool {
        self.destinations.is_new(to)
    }

    /// Whether it is connected.
    pub(super) fn is_connected(&self) -> bool {
        self.peer.is_some()
    }

    /// A question could not be sent.
    pub(super) fn was_not_asked(&mut self, destination: SocketAddr) {
        self.destinations.refused(destination);
    }

    /// Nobody is there to whom the socket is connected: says who that is.
    pub(super) fn refused(&mut self) -> Option<SocketAddr> {
        self.peer.inspect(|peer| self.destinations.refused(*peer))
    }

    /// A datagram of the UDP socket that begins with `bytes` has come from `source`, which `own` address speaks to.
    pub(super) fn datagram(&mut self, own: Option<IpAddr>, source: SocketAddr, bytes: &[u8], now: Nanos) -> Come {
        self.progress(now);
        for some in &mut self.plain {
            some.remove(&source);
        }
        let arrival = self.destinations.datagram(source, bytes, now);
        let queue = own.and_then(|own| self.position(own)).and_then(|at| self.queues.get_mut(at));
        let answer = queue.as_ref().filter(|_| arrival.answer).map(|queue| UdpHeader {
            operation: Operation::Control,
            queue_pair: queue.number(),
            address: queue.local(),
        });
        if let Some(resolve) = arrival.resolve {
            self.last_request += 1;
            let request = self.last_request;
            match queue.map(|queue| queue.find(request, resolve.destination)) {
                Some(Ok(())) => drop(self.searches.insert(request, resolve)),
                tried => {
                    log_debug!("no search for a path to {source}: {tried:?}");
                    self.destinations.resolved(resolve, None, now);
                }
            }
        }
        Come { deliver_from: arrival.deliver_from, answer }
    }

    /// The next message for the program; what is none is dropped.
    fn look(&mut self, now: Nanos) -> Option<Front> {
        if self.front.is_some() {
            return self.front;
        }
        let count = self.queues.len();
        for step in 0..count {
            let at = (self.turn + step).checked_rem(count)?;
            while let Some(len) = self.queues.get_mut(at)?.next_len() {
                let Some((source, begins)) = self.header(at, len, now) else {
                    self.queues.get_mut(at)?.take();
                    continue;
                };
                self.note_sender(source);
                self.front = Some(Front { at, source, begins, len: len.saturating_sub(begins) });
                return self.front;
            }
        }
        None
    }

    /// Whose the oldest message of a queue is, and where the program's bytes begin. `None`: it is dropped.
    fn header(&mut self, at: usize, len: usize, now: Nanos) -> Option<(SocketAddr, usize)> {
        let mut header = [0; UdHeader::V6_BYTES];
        let header = header.get_mut(..len.min(UdHeader::V6_BYTES))?;
        let queue = self.queues.get_mut(at)?;
        queue.read(0, header).ok()?;
        let is_ipv4 = queue.local().is_ipv4();
        let (source, begins) = self.destinations.message(header, now)?;
        let is_wanted = source.is_ipv4() == is_ipv4 && self.peer.is_none_or(|peer| is_same(peer, source));
        is_wanted.then_some((source, begins))
    }

    /// What a sender has sent by UDP before its first message is older.
    fn note_sender(&mut self, source: SocketAddr) {
        if self.heard.contains(&source) {
            return;
        }
        if self.heard.len() >= MOST {
            self.heard.clear();
        }
        self.heard.insert(source);
        self.turns.new_sender();
    }

    /// How long the next message is.
    pub(super) fn next_len(&mut self, now: Nanos) -> Option<usize> {
        self.look(now).map(|front| front.len)
    }

    /// Whether the next message was looked at, and is still the next one.
    pub(super) fn is_peeked(&self) -> bool {
        self.turns.is_peeked()
    }

    /// The kernel has nothing.
    pub(super) fn kernel_is_empty(&mut self) {
        self.turns.kernel_is_empty();
    }

    /// Takes the next message, or only looks at it if it `stays`. `at_once`: the kernel has not been asked yet, and may have its turn.
    pub(super) fn take(&mut self, into: &mut [IoSliceMut<'_>], stays: bool, at_once: bool, now: Nanos) -> Option<Message> {
        let front = self.look(now)?;
        // A sender that has heard nothing for a while asks, by UDP, and goes on by messages.
        let may_be_overtaken = !self.turns.is_peeked() && self.destinations.may_ask(front.source, now);
        if at_once && (self.turns.is_kernels(stays) || may_be_overtaken) {
            return None;
        }
        let queue = self.queues.get_mut(front.at)?;
        let mut copied = 0;
        for slice in into {
            let now = slice.len().min(front.len.saturating_sub(copied));
            if let Some(part) = slice.get_mut(..now) {
                queue.read(front.begins.saturating_add(copied), part).ok()?;
            }
            copied += now;
        }
        self.turns.took(stays);
        if !stays {
            queue.take();
            self.front = None;
            self.turn = front.at + 1;
        }
        Some(Message { copied, len: front.len, source: front.source })
    }

    /// What is to be said to whom when the socket is closed: they need not wait for the answer to a question.
    pub(super) fn farewells(&mut self, now: Nanos) -> Vec<(SocketAddr, UdpHeader)> {
        let Remote { destinations, queues, .. } = self;
        let all = destinations.acquaintances(now).filter_map(|peer| {
            let address = queues.iter().map(|queue| queue.local()).find(|local| local.is_ipv4() == peer.is_ipv4())?;
            Some((peer, UdpHeader { operation: Operation::Control, queue_pair: 0, address }))
        });
        all.collect()
    }

    /// Whether anybody has sent messages.
    pub(super) fn has_senders(&self) -> bool {
        !self.heard.is_empty()
    }

    /// The kernel alone is to have the socket. True: nothing more is to come by a queue.
    pub(super) fn retire(&mut self, now: Nanos) -> bool {
        if self.queues.is_empty() {
            return true;
        }
        let until = *self.until.get_or_insert(now.saturating_add(LINGER));
        now >= until && self.next_len(now).is_none()
    }

    /// Messages that have come for the program, modulo 2^32.
    pub(super) fn arrivals(&mut self) -> u32 {
        self.queues.iter_mut().fold(0, |sum, queue| sum.wrapping_add(queue.arrivals()))
    }

    /// Wants an announcement of the next message. A look must follow.
    pub(super) fn arm(&mut self) {
        for queue in &mut self.queues {
            if let Err(errno) = queue.arm() {
                log_debug!("datagrams of {}: {errno}", queue.local());
            }
        }
    }

    /// Takes announcements off. Whether there were any.
    pub(super) fn clear_events(&mut self) -> bool {
        // All of them, whatever the first one says.
        self.queues.iter_mut().filter_map(|queue| queue.clear_events().then_some(())).count() > 0
    }
}

#[cfg(test)]
mod tests;
