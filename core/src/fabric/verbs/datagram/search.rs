//! Looking for the path to a destination: the connection manager resolves address and route, of which an address handle is made. All of it
//! in the service thread. The outcome waits in the queue's [`Outcomes`] until the queue looks.

use core::{
    net::SocketAddr,
    sync::atomic::{AtomicUsize, Ordering},
};
use std::sync::Arc;

use rdma_sys::rdma_cm_event_type as kind;

use super::path::{Address, Port};
use crate::{
    error::{Errno, Result},
    fabric::{
        ConnectFailure,
        verbs::{
            cm::{Id, PortSpace},
            device::Device,
            event::{ADDRESS_TIMEOUT, ADDRESS_TRIES, Entry, ROUTE_TIMEOUT, Shared, unreachable},
        },
    },
    log_debug,
    sys::lock::Leaf,
};

/// Searches of one queue at a time.
const MOST: usize = 64;

/// What searches of one queue have come to. Lock: `ended`, a leaf.
#[derive(Default)]
pub(super) struct Outcomes {
    ended: Leaf<Vec<(u64, Option<Address>)>>,
    /// How many those are, for who has no lock.
    count: AtomicUsize,
    under_way: AtomicUsize,
}

impl Outcomes {
    /// The next one.
    pub(super) fn take(&self) -> Option<(u64, Option<Address>)> {
        if self.count.load(Ordering::Acquire) == 0 {
            return None;
        }
        let ended = self.ended.lock().pop()?;
        self.count.fetch_sub(1, Ordering::Relaxed);
        Some(ended)
    }

    fn put(&self, request: u64, address: Option<Address>) {
        let mut ended = self.ended.lock();
        ended.push((request, address));
        self.count.fetch_add(1, Ordering::Release);
        self.under_way.fetch_sub(1, Ordering::Relaxed);
    }
}

/// From where paths are looked for.
pub(super) struct Origin {
    /// The local address, port 0.
    pub(super) local: SocketAddr,
    /// The device that has it.
    pub(super) device: Arc<Device>,
    /// And its port.
    pub(super) port: Port,
}

/// One that is under way.
pub(in crate::fabric::verbs) struct Search {
    request: u64,
    peer: SocketAddr,
    origin: Arc<Origin>,
    outcomes: Arc<Outcomes>,
    /// Tries to resolve the address that are left.
    tries: u32,
    id: Id,
}

/// How far it is.
enum Step {
    GoesOn,
    Found,
    Failed,
}

impl Search {
    /// Begins one. EAGAIN: there are too many.
    pub(super) fn begin(shared: &Shared, request: u64, peer: SocketAddr, origin: &Arc<Origin>, outcomes: &Arc<Outcomes>) -> Result<()> {
        if outcomes.under_way.load(Ordering::Relaxed) >= MOST {
            return Err(Errno::AGAIN);
        }
        let serial = shared.serial();
        let id = Id::new(shared.channel(), serial, PortSpace::Datagrams)?;
        let (origin, outcomes) = (Arc::clone(origin), Arc::clone(outcomes));
        let mut search = Box::new(Search { request, peer, origin, outcomes, tries: ADDRESS_TRIES, id });
        // The entry must be there before the event can come, so the lock is held over the call, which does not wait.
        let mut entries = shared.entries();
        let begun = search.resolve();
        if begun.is_err() {
            drop(entries);
            return begun;
        }
        search.outcomes.under_way.fetch_add(1, Ordering::Relaxed);
        entries.insert(serial, Entry::Search(search));
        Ok(())
    }

    fn resolve(&mut self) -> Result<()> {
        self.tries = self.tries.checked_sub(1).ok_or(Errno::TIMEDOUT)?;
        self.id.resolve_addr(Some(self.origin.local), self.peer, ADDRESS_TIMEOUT)
    }

    /// Goes on after an event.
    fn step(&mut self, what: kind::Type, status: i32) -> Step {
        let next = match what {
            // Another device may have a way there, but not to and from this queue pair.
            kind::RDMA_CM_EVENT_ADDR_RESOLVED if self.is_of_the_device() => self.id.resolve_route(ROUTE_TIMEOUT),
            kind::RDMA_CM_EVENT_ADDR_ERROR if unreachable(status) == ConnectFailure::TimedOut => self.resolve(),
            kind::RDMA_CM_EVENT_ROUTE_RESOLVED => return Step::Found,
            _ => return Step::Failed,
        };
        if next.is_ok() { Step::GoesOn } else { Step::Failed }
    }

    fn is_of_the_device(&self) -> bool {
        self.id.verbs() == self.origin.device.context() && self.id.port() == self.origin.port.number
    }

    /// Leaves the outcome. Gives the id back, which is to be destroyed after the event at hand is acknowledged.
    fn end(self, is_found: bool) -> Id {
        let Origin { device, port, .. } = &*self.origin;
        let record = if is_found { self.id.record() } else { None };
        let made = record.ok_or(Errno::HOSTUNREACH).and_then(|record| Address::new(device, port, &record));
        log_debug!("path of datagrams to {}: {:?}", self.peer, made.as_ref().map(|address| address.largest));
        self.outcomes.put(self.request, made.ok());
        self.id
    }
}

impl Shared {
    /// An event of a search; `None` if it is not one. An id is to be destroyed once the event is acknowledged.
    pub(in crate::fabric::verbs) fn searched(&self, serial: u64, what: kind::Type, status: i32) -> Option<Option<Id>> {
        let mut entries = self.entries();
        let is_found = match entries.search(serial)?.step(what, status) {
            Step::GoesOn => return Some(None),
            Step::Found => true,
            Step::Failed => false,
        };
        let entry = entries.remove(serial);
        drop(entries);
        match entry {
            Some(Entry::Search(search)) => Some(Some(search.end(is_found))),
            _ => Some(None),
        }
    }
}
