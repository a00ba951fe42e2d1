//! Queues for datagrams in memory: a network without time of its own.
//!
//! A message is with its receiver at once; it leaves its sender's queue, and searches end, when the network takes a [`Network::turn`].
#![forbid(unsafe_code)]

use core::net::{IpAddr, SocketAddr};
use std::{
    collections::{BTreeMap, BTreeSet, VecDeque},
    io::IoSlice,
    os::fd::RawFd,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use crate::{
    error::{Errno, Result},
    fabric::datagram::{Found, Handle, Paths, Posted, Queue},
};

/// Messages that a queue keeps for its owner, those that may be on their way, and searches at a time.
const RECEIVES: usize = 16;
const SENDS: usize = 8;
const SEARCHES: usize = 64;
/// Bytes of the longest message, as on Ethernet.
const LARGEST: usize = 1024;
/// The first number of a queue pair.
const FIRST: u32 = 17;

#[derive(Default)]
struct World {
    made: u32,
    /// Messages for each queue that lives.
    queues: BTreeMap<u32, VecDeque<Vec<u8>>>,
    /// Of the sender, the messages that have not left.
    on_their_way: BTreeMap<u32, usize>,
    searches: Vec<(u32, u64, IpAddr)>,
    ended: BTreeMap<u32, Vec<(u64, Option<IpAddr>)>>,
    addresses: BTreeSet<IpAddr>,
    arrivals: BTreeMap<u32, u32>,
    dropped: u64,
}

/// Where queues reach each other. A path leads to each address that was ever a queue's.
#[derive(Clone, Default)]
pub struct Network {
    world: Arc<Mutex<World>>,
}

impl Network {
    fn world(&self) -> MutexGuard<'_, World> {
        self.world.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A queue of an address.
    pub fn queue(&self, local: IpAddr) -> SimQueue {
        let mut world = self.world();
        let number = FIRST + world.made;
        world.made += 1;
        world.addresses.insert(local);
        world.queues.insert(number, VecDeque::new());
        SimQueue { network: self.clone(), local, number, paths: Paths::default() }
    }

    /// No path leads to the address any more.
    pub fn cut(&self, address: IpAddr) {
        self.world().addresses.remove(&address);
    }

    /// What is on its way leaves, and searches end.
    pub fn turn(&self) {
        let mut world = self.world();
        world.on_their_way.clear();
        for (number, request, peer) in core::mem::take(&mut world.searches) {
            let found = world.addresses.contains(&peer).then_some(peer);
            world.ended.entry(number).or_default().push((request, found));
        }
    }

    /// Messages that found no room, or nobody.
    pub fn dropped(&self) -> u64 {
        self.world().dropped
    }
}

/// See the module.
pub struct SimQueue {
    network: Network,
    local: IpAddr,
    number: u32,
    paths: Paths<IpAddr>,
}

impl Queue for SimQueue {
    fn local(&self) -> IpAddr {
        self.local
    }

    fn number(&self) -> u32 {
        self.number
    }

    fn largest(&self) -> usize {
        LARGEST
    }

    fn find(&mut self, request: u64, peer: SocketAddr) -> Result<()> {
        let mut world = self.network.world();
        if world.searches.iter().filter(|(number, ..)| *number == self.number).count() >= SEARCHES {
            return Err(Errno::AGAIN);
        }
        world.searches.push((self.number, request, peer.ip()));
        Ok(())
    }

    fn found(&mut self) -> Option<Found> {
        let (request, address) = self.network.world().ended.get_mut(&self.number)?.pop()?;
        Some(Found { request, handle: address.map(|address| self.paths.insert(address)) })
    }

    fn release(&mut self, path: Handle) {
        self.paths.remove(path);
    }

    fn send(&mut self, path: Handle, number: u32, header: &[u8], from: &[IoSlice<'_>]) -> Result<Posted> {
        self.paths.get(path)?;
        let message: Vec<u8> = header.iter().chain(from.iter().flat_map(|slice| slice.iter())).copied().collect();
        if message.len() > LARGEST {
            return Ok(Posted::TooLong);
        }
        let mut world = self.network.world();
        let world = &mut *world;
        let on_their_way = world.on_their_way.entry(self.number).or_default();
        if *on_their_way >= SENDS {
            return Ok(Posted::Full);
        }
        *on_their_way += 1;
        match world.queues.get_mut(&number) {
            Some(queue) if queue.len() < RECEIVES => {
                queue.push_back(message);
                *world.arrivals.entry(number).or_default() += 1;
            }
            _ => world.dropped += 1,
        }
        Ok(Posted::Done)
    }

    fn arrivals(&mut self) -> u32 {
        self.network.world().arrivals.get(&self.number).copied().unwrap_or(0)
    }

    fn next_len(&mut self) -> Option<usize> {
        self.network.world().queues.get(&self.number)?.front().map(Vec::len)
    }

    fn read(&self, offset: usize, into: &mut [u8]) -> Result<()> {
        let world = self.network.world();
        let message = world.queues.get(&self.number).and_then(VecDeque::front).ok_or(Errno::FAULT)?;
        let end = offset.checked_add(into.len()).ok_or(Errno::FAULT)?;
        into.copy_from_slice(message.get(offset..end).ok_or(Errno::FAULT)?);
        Ok(())
    }

    fn take(&mut self) {
        if let Some(queue) = self.network.world().queues.get_mut(&self.number) {
            queue.pop_front();
        }
    }

    fn arm(&mut self) -> Result<()> {
        Ok(())
    }

    fn event_fd(&self) -> Option<RawFd> {
        None
    }

    fn clear_events(&mut self) -> bool {
        false
    }
}

impl Drop for SimQueue {
    fn drop(&mut self) {
        let mut world = self.network.world();
        world.queues.remove(&self.number);
        world.ended.remove(&self.number);
        world.searches.retain(|(number, ..)| *number != self.number);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fabric::contract::{DATAGRAMS, DatagramHarness};

    const HERE: IpAddr = IpAddr::V4(core::net::Ipv4Addr::new(10, 9, 0, 1));
    const NOWHERE: IpAddr = IpAddr::V4(core::net::Ipv4Addr::new(10, 9, 0, 99));

    #[derive(Default)]
    struct Simulated {
        network: Network,
        turns: u32,
    }

    impl DatagramHarness for Simulated {
        fn queue(&mut self) -> Box<dyn Queue> {
            Box::new(self.network.queue(HERE))
        }

        fn unreachable(&self) -> IpAddr {
            NOWHERE
        }

        fn turn(&mut self) -> bool {
            self.network.turn();
            self.turns += 1;
            self.turns < 1000
        }

        fn is_readable(&self, _: RawFd) -> bool {
            unreachable!("there are no descriptors")
        }
    }

    #[test]
    fn keeps_the_contract() {
        for (name, test) in DATAGRAMS {
            println!("{name}");
            test(&mut Simulated::default());
        }
    }

    #[test]
    fn paths_can_be_cut() {
        let network = Network::default();
        let (mut one, other) = (network.queue(HERE), network.queue(NOWHERE));
        network.cut(other.local());
        one.find(1, SocketAddr::new(NOWHERE, 7)).unwrap();
        network.turn();
        assert_eq!(one.found(), Some(Found { request: 1, handle: None }));
    }
}
