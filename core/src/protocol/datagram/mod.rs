//! The datagram protocol (PROTOCOL.md section 2) as a machine without input and output.
//!
//! [`Destinations`] knows of each destination how far its queue pair is known, and so which way a datagram goes ([`Way`]); and it says what
//! a datagram of the UDP socket means ([`Arrival`]) and whose a UD message is. It holds no bytes: the caller sends and delivers. `H` is
//! what the caller has resolved a path into (an address handle); those that are not needed any more come out of
//! [`Destinations::released`].
//!
//! A destination is *asked* by the header in front of the first datagram, once. Until it has answered, and for as long as it does not,
//! it gets plain datagrams: it may be no peer of ours, and takes a header for garbage. When it answers, its path is *resolved*, and
//! then it is *known*. A message to a queue pair that is gone vanishes, and nobody is told. So one that is known, but was not heard of for a
//! little while, is asked again with the next datagram, which is then the kernel's to deliver or to refuse. Where the answer fails to
//! come, it is in *doubt*: it gets plain datagrams, and is asked some more times, less and less often, until it answers or is given up.
//! [`Destinations::refused`] is the kernel's word that nobody is there.
//!
//! **Forgery.** A queue pair is taken only for the address and port that the UDP datagram came from, and only if the header names
//! the same address; nothing that arrives changes where another destination's datagrams go. A destination that is known is not given another
//! queue pair by what arrives unasked: it is asked, and its answer counts. The table is bounded, and what others have
//! caused never takes the place of a destination that the program itself has sent to.

mod table;
#[cfg(test)]
mod tests;

use core::net::SocketAddr;

use table::Table;

use crate::wire::{MAX_MESSAGE, Operation, UdHeader, UdpHeader};

/// Time of the caller's clock, in nanoseconds.
pub type Nanos = u64;

/// How long a destination that was asked again still gets messages before it gets plain datagrams. Until it is asked once more it takes as long,
/// and then twice as long each time.
pub const ANSWER_TIME: Nanos = 100_000_000;

/// After so long without a word from it a known destination is asked again when it is sent to.
pub const SILENCE: Nanos = 150_000_000;

/// Questions in a row that have no answer: then it is given up.
pub const QUESTIONS: u32 = 6;

/// Which way a datagram goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Way<H> {
    /// By the UDP socket, as it is.
    Plain,
    /// By the UDP socket, with a header in front that asks.
    Asking,
    /// By the queue pair, with a header that names its sender.
    Queue(H, u32),
}

/// A path to find: to this address of the destination's.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Resolve {
    /// Whose queue pair it is.
    pub destination: SocketAddr,
    /// The queue pair.
    pub queue_pair: u32,
}

/// What a datagram of the UDP socket means.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Arrival {
    /// The program gets the bytes from here on. `None`: nothing.
    pub deliver_from: Option<usize>,
    /// The sender is to be told the own queue pair.
    pub answer: bool,
    /// A path is to be found.
    pub resolve: Option<Resolve>,
}

/// What did not go as it should, counted since the beginning.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Faults {
    /// Queue pairs that were not taken, as their header named another address than it came from, or came unasked for a known destination.
    pub not_believed: u64,
    /// UD messages without a header that makes sense.
    pub malformed: u64,
    /// Destinations that had to leave the table for others.
    pub forgotten: u64,
    /// Queue pairs that found no place in the table.
    pub no_room: u64,
    /// Paths that were not found.
    pub unresolved: u64,
}

/// How far the queue pair of a destination is known.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State<H> {
    /// Never asked.
    New,
    /// Asked once; what is sent meanwhile, however long that is, is plain.
    Asked,
    /// Has answered or asked itself; its path is being found.
    Resolving(u32),
    /// Everything is known. `heard`: the last word from it, `None` where it has said, perhaps, that something has changed; `asked`: it was
    /// asked again, and has not answered.
    Known { handle: H, queue_pair: u32, heard: Option<Nanos>, asked: Option<Doubt> },
}

/// Questions that have no answer yet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Doubt {
    since: Nanos,
    last: Nanos,
    questions: u32,
}

impl Doubt {
    fn new(now: Nanos) -> Self {
        Doubt { since: now, last: now, questions: 1 }
    }

    /// Whether it is time to ask once more, or to give up.
    fn is_due(self, now: Nanos) -> bool {
        now.saturating_sub(self.last) >= ANSWER_TIME << self.questions.saturating_sub(1).min(QUESTIONS)
    }
}

/// What is known of the destinations of one socket. See the module.
pub struct Destinations<H> {
    table: Table<State<H>>,
    released: Vec<H>,
    faults: Faults,
}

impl<H: Copy> Destinations<H> {
    /// Of at most so many destinations.
    pub fn new(capacity: usize) -> Self {
        Destinations { table: Table::new(capacity), released: Vec::new(), faults: Faults::default() }
    }

    /// Which way the program's `len` bytes go to `destination`. `largest`: the most that a UD message takes there, header included.
    /// (Addresses that are no single host's are not asked about: they are the UDP socket's.)
    pub fn send(&mut self, destination: SocketAddr, len: usize, largest: usize, now: Nanos) -> Way<H> {
        let header = UdHeader { source: destination }.len();
        let fits = len.saturating_add(header) <= largest.min(MAX_MESSAGE);
        self.make_room(destination);
        let Some(entry) = self.table.enter(destination, State::New) else { return Way::Plain };
        entry.own = true;
        (entry.used, entry.told) = (now, now);
        match &mut entry.state {
            State::New => {
                entry.state = State::Asked;
                Way::Asking
            }
            State::Asked | State::Resolving(_) => Way::Plain,
            State::Known { asked: Some(doubt), handle, .. } if doubt.is_due(now) => {
                if doubt.questions >= QUESTIONS {
                    self.released.push(*handle);
                    entry.state = State::Asked;
                    return Way::Plain;
                }
                (doubt.last, doubt.questions) = (now, doubt.questions + 1);
                Way::Asking
            }
            State::Known { asked: Some(doubt), .. } if now.saturating_sub(doubt.since) >= ANSWER_TIME => Way::Plain,
            State::Known { heard, asked: asked @ None, .. } if heard.is_none_or(|heard| now.saturating_sub(heard) >= SILENCE) => {
                *asked = Some(Doubt::new(now));
                Way::Asking
            }
            State::Known { handle, queue_pair, .. } if fits => Way::Queue(*handle, *queue_pair),
            State::Known { .. } => Way::Plain,
        }
    }

    /// Whether it has never been asked, and nothing is known of it.
    pub fn is_new(&mut self, destination: SocketAddr) -> bool {
        self.table.get(destination).is_none_or(|entry| matches!(entry.state, State::New))
    }

    /// A datagram of the UDP socket.
    pub fn datagram(&mut self, source: SocketAddr, bytes: &[u8], now: Nanos) -> Arrival {
        let Some(header) = UdpHeader::parse(bytes) else {
            return Arrival { deliver_from: Some(0), answer: false, resolve: None };
        };
        let is_data = header.operation == Operation::Data;
        let is_named = header.address.to_canonical() == source.ip().to_canonical();
        if is_named && header.queue_pair == 0 && !is_data {
            // A farewell. One that is forged costs a question.
            self.refused(source);
            return Arrival { deliver_from: None, answer: false, resolve: None };
        }
        let believed = is_named && header.queue_pair != 0;
        let resolve = if believed { self.learn(source, header.queue_pair, !is_data, now) } else { None };
        self.faults.not_believed += u64::from(!believed);
        if let Some(entry) = self.table.get(source).filter(|_| is_data) {
            entry.told = now;
        }
        Arrival { deliver_from: is_data.then(|| header.len()), answer: is_data, resolve }
    }

    /// A UD message: its sender, and where the program's bytes begin. `None`: it is dropped.
    pub fn message(&mut self, message: &[u8], now: Nanos) -> Option<(SocketAddr, usize)> {
        let Some(header) = UdHeader::parse(message).filter(|header| header.source.port() != 0) else {
            self.faults.malformed += 1;
            return None;
        };
        if let Some(entry) = self.table.get(header.source)
            && let State::Known { heard: Some(heard), .. } = &mut entry.state
        {
            // A word from it, though not an answer: what it was asked stands.
            *heard = now;
        }
        Some((header.source, header.len()))
    }

    /// The path of a [`Resolve`] was found, or was not.
    pub fn resolved(&mut self, resolve: Resolve, handle: Option<H>, now: Nanos) {
        let entry = self.table.get(resolve.destination);
        match (entry, handle) {
            (Some(entry), Some(handle)) if matches!(entry.state, State::Resolving(of) if of == resolve.queue_pair) => {
                entry.state = State::Known { handle, queue_pair: resolve.queue_pair, heard: Some(now), asked: None };
            }
            (Some(entry), None) if matches!(entry.state, State::Resolving(of) if of == resolve.queue_pair) => {
                entry.state = State::Asked;
                self.faults.unresolved += 1;
            }
            // It was forgotten meanwhile, or has another queue pair by now.
            (_, handle) => self.released.extend(handle),
        }
    }

    /// The kernel says that nobody has this address and port, the queue pair did not take a message for it, or a question could not be sent: what is
    /// known of it is worth nothing, nor is what has been said before; it is asked anew.
    pub fn refused(&mut self, destination: SocketAddr) {
        if let Some(entry) = self.table.get(destination) {
            if let State::Known { handle, .. } = entry.state {
                self.released.push(handle);
            }
            entry.state = State::New;
        }
    }

    /// Whether this source may have asked meanwhile, as it has heard nothing for a while.
    pub fn may_ask(&mut self, source: SocketAddr, now: Nanos) -> bool {
        self.table.get(source).is_none_or(|entry| now.saturating_sub(entry.told) >= SILENCE)
    }

    /// Those who know of a queue pair here, and may not ask before they use it.
    pub fn acquaintances(&self, now: Nanos) -> impl Iterator<Item = SocketAddr> {
        let recent = move |time: Nanos| now.saturating_sub(time) < SILENCE;
        let all = self.table.iter().filter(|(_, entry)| matches!(entry.state, State::Known { .. } | State::Resolving(_)));
        all.filter(move |(_, entry)| recent(entry.told) || recent(entry.used)).map(|(addr, _)| addr)
    }

    /// A handle that nobody needs any more.
    pub fn released(&mut self) -> Option<H> {
        self.released.pop()
    }

    /// All handles, at the end.
    pub fn close(&mut self) {
        for state in self.table.drain() {
            if let State::Known { handle, .. } = state {
                self.released.push(handle);
            }
        }
    }

    /// What did not go as it should.
    pub fn faults(&self) -> Faults {
        self.faults
    }

    /// How many destinations there are.
    pub fn len(&self) -> usize {
        self.table.len()
    }

    /// Whether there is none.
    pub fn is_empty(&self) -> bool {
        self.table.len() == 0
    }

    /// For a destination that the program sends to.
    fn make_room(&mut self, destination: SocketAddr) {
        if let Some(forgotten) = self.table.make_room(destination) {
            self.faults.forgotten += 1;
            if let State::Known { handle, .. } = forgotten {
                self.released.push(handle);
            }
        }
    }

    /// `answers`: it is what a destination says when it is asked.
    fn learn(&mut self, source: SocketAddr, queue_pair: u32, answers: bool, now: Nanos) -> Option<Resolve> {
        let Some(entry) = self.table.enter(source, State::New) else {
            self.faults.no_room += 1;
            return None;
        };
        if !entry.own {
            entry.used = now;
        }
        let resolve = Resolve { destination: source, queue_pair };
        match &mut entry.state {
            State::Known { queue_pair: known, heard, asked, .. } if *known == queue_pair => {
                // Only the answer ends a doubt.
                if answers {
                    (*heard, *asked) = (Some(now), None);
                }
                None
            }
            State::Known { handle, asked: Some(_), .. } if answers => {
                self.released.push(*handle);
                entry.state = State::Resolving(queue_pair);
                Some(resolve)
            }
            State::Known { heard, .. } => {
                // It may be the destination, begun anew, or somebody else in its name. Asked, the one who has the address answers.
                self.faults.not_believed += 1;
                *heard = None;
                None
            }
            State::Resolving(of) if *of == queue_pair || !answers => None,
            // Nobody has asked it, or that was before it was [refused](Self::refused).
            State::New if answers => None,
            State::New | State::Asked | State::Resolving(_) => {
                entry.state = State::Resolving(queue_pair);
                Some(resolve)
            }
        }
    }
}
