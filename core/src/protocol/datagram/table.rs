//! A bounded table by address, which forgets what was used longest ago.

use core::net::SocketAddr;
use std::collections::HashMap;

/// One destination.
pub(super) struct Entry<S> {
    pub(super) state: S,
    /// The program has sent there.
    pub(super) own: bool,
    /// When it was last sent to or, if it is not the program's own, heard of.
    pub(super) used: u64,
    /// When anything was last said to it.
    pub(super) told: u64,
}

/// See the module.
pub(super) struct Table<S> {
    entries: HashMap<SocketAddr, Entry<S>>,
    capacity: usize,
}

/// Another flow is not another destination.
fn key(mut addr: SocketAddr) -> SocketAddr {
    if let SocketAddr::V6(addr) = &mut addr {
        addr.set_flowinfo(0);
    }
    addr
}

impl<S> Table<S> {
    pub(super) fn new(capacity: usize) -> Self {
        Table { entries: HashMap::new(), capacity }
    }

    pub(super) fn len(&self) -> usize {
        self.entries.len()
    }

    pub(super) fn get(&mut self, addr: SocketAddr) -> Option<&mut Entry<S>> {
        self.entries.get_mut(&key(addr))
    }

    /// For one that the program sends to: where the table is full, one that others have caused leaves it, or else the one that was
    /// used longest ago. Gives what has left.
    pub(super) fn make_room(&mut self, addr: SocketAddr) -> Option<S> {
        if self.entries.len() < self.capacity || self.entries.contains_key(&key(addr)) {
            return None;
        }
        let oldest = self.entries.iter().min_by_key(|(_, entry)| (entry.own, entry.used)).map(|(addr, _)| *addr)?;
        self.entries.remove(&oldest).map(|entry| entry.state)
    }

    /// The entry of an address, made as `state` if there is none. `None`: the table is full.
    pub(super) fn enter(&mut self, addr: SocketAddr, state: S) -> Option<&mut Entry<S>> {
        let addr = key(addr);
        if self.entries.len() >= self.capacity && !self.entries.contains_key(&addr) {
            return None;
        }
        Some(self.entries.entry(addr).or_insert(Entry { state, own: false, used: 0, told: 0 }))
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = (SocketAddr, &Entry<S>)> {
        self.entries.iter().map(|(addr, entry)| (*addr, entry))
    }

    pub(super) fn drain(&mut self) -> impl Iterator<Item = S> {
        self.entries.drain().map(|(_, entry)| entry.state)
    }
}
