//! Queues and memory that are made before they are needed, and destroyed when there is time for it.
//!
//! Making and destroying them is the greatest part of a connection's cost, and lies in the way of both ends. So where
//! connections are made one after the other, the service thread makes the next one's parts while it waits for the peer, and
//! clears away what is left of those that are over at such times too. A program that makes a connection now and then has no
//! spares; unused ones are gone after [`UNUSED`]. See docs/decisions/0007-spares.md.
//!
//! What passes from one connection to the next: the completion queue, emptied, with its channel, and the mappings, without
//! their registrations. Never a queue pair (its number may be in packets that are still under way) nor a key.
//!
//! Lock: `stock`, a leaf that is held for look-ups only.

use core::sync::atomic::Ordering;
use std::{collections::VecDeque, sync::Arc};

use super::{
    FAULTS,
    cm::Id,
    device::Device,
    memory::{Areas, Mappings},
    queues::{CompletionQueue, Queues},
};
use crate::{
    error::{Errno, Result},
    fabric::EndpointConfig,
    sys::{
        clock::{self, Nanos},
        lock::{Leaf, LeafGuard},
    },
};

/// So many connections of a kind within [`WITHIN`] call for a spare, and so many for a second one.
const FOR_ONE: usize = 2;
const FOR_TWO: usize = 8;
const WITHIN: Nanos = 1_000_000_000;

/// A spare, or what was kept for one, that nobody has used for so long is destroyed.
const UNUSED: Nanos = 2_000_000_000;

/// Connections that wait for their destruction, at most.
const WAITING: usize = 8;

/// Sets of pieces that are kept, at most.
const KEPT: usize = 2;

/// Larger buffers (both together, in bytes) are not made beforehand: a spare locks memory.
const LARGEST: u32 = 1 << 20;

/// The device-side half of a connection, made as soon as the device is known, or before.
pub(super) struct Parts {
    // The queue pair goes before the memory that it uses.
    pub(super) queues: Arc<Queues>,
    pub(super) areas: Areas,
    kind: Kind,
}

impl Parts {
    fn new(kind: Kind, pieces: Pieces) -> Result<Self> {
        let queues = Queues::new(&kind.device, &kind.config, pieces.completions)?;
        let areas = Areas::new(&kind.device, &queues.granted, kind.device.mode, pieces.mappings)?;
        Ok(Parts { queues: Arc::new(queues), areas, kind })
    }

    /// Takes it apart into what may be used again.
    fn retire(self) -> Pieces {
        let Parts { queues, areas, .. } = self;
        // While another thread still holds the queues their queue pair lives, and may write to the memory.
        match Arc::into_inner(queues) {
            Some(queues) => {
                let completions = queues.retire();
                Pieces { mappings: completions.is_some().then(|| areas.retire()).flatten(), completions }
            }
            None => Pieces::default(),
        }
    }
}

/// What a connection is made for: those of the same kind are exchangeable before they are used.
#[derive(Clone)]
struct Kind {
    device: Arc<Device>,
    config: EndpointConfig,
}

impl PartialEq for Kind {
    fn eq(&self, other: &Kind) -> bool {
        Arc::ptr_eq(&self.device, &other.device) && self.config == other.config
    }
}

/// What may be used again of a connection that is over.
#[derive(Default)]
struct Pieces {
    completions: Option<CompletionQueue>,
    mappings: Option<Mappings>,
}

/// A connection that is over.
pub(super) struct Remains {
    // Queues and memory before the id.
    pub(super) parts: Parts,
    pub(super) id: Id,
}

/// Something that is kept for a connection to come.
struct Kept<T> {
    kind: Kind,
    what: T,
    since: Nanos,
}

/// The connections made of late, which say what to expect.
struct Demand<K> {
    recent: VecDeque<(K, Nanos)>,
}

impl<K> Default for Demand<K> {
    fn default() -> Self {
        Demand { recent: VecDeque::new() }
    }
}

impl<K: PartialEq> Demand<K> {
    /// A connection of this kind is made.
    fn note(&mut self, kind: K, now: Nanos) {
        if self.recent.len() >= FOR_TWO {
            self.recent.pop_front();
        }
        self.recent.push_back((kind, now));
    }

    /// Of which kind there should be spares, and how many.
    fn wanted(&self, now: Nanos) -> Option<(&K, usize)> {
        let (kind, _) = self.recent.back()?;
        let alike = self.recent.iter().filter(|(other, at)| other == kind && now.saturating_sub(*at) <= WITHIN).count();
        match alike {
            FOR_TWO.. => Some((kind, 2)),
            FOR_ONE.. => Some((kind, 1)),
            _ => None,
        }
    }
}

/// What there is to do.
enum Job {
    /// A spare is to be made.
    Make(Kind, Pieces),
    /// A connection is to be destroyed.
    Bury(Remains),
    /// To be dropped.
    Old(Vec<Kept<Parts>>, Vec<Kept<Pieces>>),
    Nothing,
}

#[derive(Default)]
struct Stock {
    demand: Demand<Kind>,
    ready: Vec<Kept<Parts>>,
    pieces: Vec<Kept<Pieces>>,
    over: VecDeque<Remains>,
    /// Somebody comes round to do what waits.
    tended: bool,
}

impl Stock {
    fn take_pieces(&mut self, kind: &Kind) -> Pieces {
        let found = self.pieces.iter().position(|kept| kept.kind == *kind);
        found.map(|at| self.pieces.swap_remove(at).what).unwrap_or_default()
    }

    /// The oldest thing that is kept.
    fn oldest(&self) -> Option<Nanos> {
        self.ready.iter().map(|kept| kept.since).chain(self.pieces.iter().map(|kept| kept.since)).min()
    }

    /// The kind of the next spare, if there are too few.
    fn missing(&self, now: Nanos) -> Option<&Kind> {
        self.demand.wanted(now).filter(|(_, count)| self.ready.len() < *count).map(|(kind, _)| kind)
    }

    /// When there is something to do, now at the earliest.
    fn next(&mut self, now: Nanos) -> Option<Nanos> {
        self.tended = true;
        if !self.over.is_empty() || self.missing(now).is_some() {
            return Some(now);
        }
        self.oldest().map(|since| since.saturating_add(UNUSED))
    }

    /// What to do next: first clear away what is over (its pieces serve the next), then the next spare.
    fn job(&mut self, now: Nanos) -> Job {
        if let Some(remains) = self.over.pop_front() {
            return Job::Bury(remains);
        }
        let old = |since: Nanos| now.saturating_sub(since) >= UNUSED;
        let ready: Vec<_> = self.ready.extract_if(.., |kept| old(kept.since)).collect();
        let pieces: Vec<_> = self.pieces.extract_if(.., |kept| old(kept.since)).collect();
        if !ready.is_empty() || !pieces.is_empty() {
            return Job::Old(ready, pieces);
        }
        let Some(kind) = self.missing(now).cloned() else { return Job::Nothing };
        let pieces = self.take_pieces(&kind);
        Job::Make(kind, pieces)
    }
}

/// The spares of the process, and what waits for its destruction.
#[derive(Default)]
pub(super) struct Spares {
    stock: Leaf<Stock>,
}

impl Spares {
    fn stock(&self) -> LeafGuard<'_, Stock> {
        self.stock.lock()
    }

    /// Parts for a connection, the queue pair in RESET: a spare, or new ones.
    pub(super) fn parts(&self, device: &Arc<Device>, config: &EndpointConfig) -> Result<Parts> {
        let kind = Kind { device: Arc::clone(device), config: *config };
        let pieces = {
            let mut stock = self.stock();
            if stock.tended && config.receive_bytes.saturating_add(config.send_bytes) <= LARGEST {
                stock.demand.note(kind.clone(), clock::now());
            }
            let found = stock.ready.iter().position(|spare| spare.kind == kind);
            if let Some(at) = found {
                return Ok(stock.ready.swap_remove(at).what);
            }
            stock.take_pieces(&kind)
        };
        match Parts::new(kind.clone(), pieces) {
            Err(errno) if is_limit(errno) && self.give_up_all() => Parts::new(kind, Pieces::default()),
            result => result,
        }
    }

    /// Destroys a connection that is over: soon, or at once if it was not ended in an orderly way.
    pub(super) fn put_away(&self, remains: Remains) {
        let mut stock = self.stock();
        if stock.tended && remains.parts.queues.is_over() && stock.over.len() < WAITING {
            stock.over.push_back(remains);
        }
        drop(stock);
    }

    /// When there is something to do; not later than `now`: at once.
    pub(super) fn next_preparation(&self, now: Nanos) -> Option<Nanos> {
        self.stock().next(now)
    }

    /// One step of what waits.
    pub(super) fn prepare(&self, now: Nanos) {
        let job = self.stock().job(now);
        match job {
            Job::Nothing => {}
            Job::Bury(remains) => self.bury(remains, now),
            Job::Old(ready, pieces) => drop((ready, pieces)),
            Job::Make(kind, pieces) => self.make(kind, pieces, now),
        }
    }

    fn bury(&self, remains: Remains, now: Nanos) {
        let Remains { parts, id } = remains;
        let kind = parts.kind.clone();
        let wanted = {
            let stock = self.stock();
            stock.pieces.len() < KEPT && stock.demand.wanted(now).is_some_and(|(wanted, _)| *wanted == kind)
        };
        if wanted {
            let what = parts.retire();
            self.stock().pieces.push(Kept { kind, what, since: now });
        } else {
            drop(parts);
        }
        drop(id);
    }

    fn make(&self, kind: Kind, pieces: Pieces, now: Nanos) {
        match Parts::new(kind.clone(), pieces) {
            Ok(what) => self.stock().ready.push(Kept { kind, what, since: now }),
            Err(_) => {
                FAULTS.spare_failed.fetch_add(1, Ordering::Relaxed);
                // Not again before more connections have been made.
                self.stock().demand = Demand::default();
            }
        }
    }

    /// Destroys all that is kept or waits. False: there was nothing.
    fn give_up_all(&self) -> bool {
        let mut stock = self.stock();
        let (ready, pieces, over) =
            (core::mem::take(&mut stock.ready), core::mem::take(&mut stock.pieces), core::mem::take(&mut stock.over));
        drop(stock);
        let any = !(ready.is_empty() && pieces.is_empty() && over.is_empty());
        drop((ready, pieces, over));
        any
    }
}

/// An errno that may go away when something is destroyed.
fn is_limit(errno: Errno) -> bool {
    matches!(errno, Errno::NOMEM | Errno::MFILE | Errno::NFILE | Errno::AGAIN | Errno::NOSPC)
}

#[cfg(test)]
mod tests {
    use super::*;

    const MILLI: Nanos = 1_000_000;

    #[test]
    fn a_connection_now_and_then_wants_none() {
        let mut demand = Demand::default();
        assert_eq!(demand.wanted(0), None);
        for second in 1..20 {
            demand.note('a', second * 1100 * MILLI);
            assert_eq!(demand.wanted(second * 1100 * MILLI), None);
        }
    }

    #[test]
    fn two_in_a_second_want_one_for_a_second() {
        let mut demand = Demand::default();
        demand.note('a', 100 * MILLI);
        demand.note('a', 900 * MILLI);
        assert_eq!(demand.wanted(1000 * MILLI), Some((&'a', 1)));
        assert_eq!(demand.wanted(1200 * MILLI), None);
    }

    #[test]
    fn many_want_two_and_the_last_kind_counts() {
        let mut demand = Demand::default();
        for turn in 0..100 {
            demand.note('a', turn * 10 * MILLI);
        }
        assert_eq!(demand.recent.len(), FOR_TWO);
        assert_eq!(demand.wanted(1000 * MILLI), Some((&'a', 2)));
        demand.note('b', 1000 * MILLI);
        assert_eq!(demand.wanted(1000 * MILLI), None);
        demand.note('b', 1001 * MILLI);
        assert_eq!(demand.wanted(1001 * MILLI), Some((&'b', 1)));
    }
}
