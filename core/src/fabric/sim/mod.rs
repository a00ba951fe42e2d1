//! A simulated fabric: hosts, links and queue pairs on virtual time, with every delay drawn from one seed.
//!
//! Everything happens in [`Sim::step`], one event at a time, in the caller's thread; nothing waits, and nothing has a
//! descriptor unless [`Settings::descriptors`] says so. The same seed and the same calls give the same run ([`Sim::digest`]). What a stack above does against the contract
//! (too many requests, memory that is not its own) is noted in [`Sim::violations`] and otherwise answered as hardware would.
//!
//! Harsher than hardware where that finds faults: the bytes of a request that is not inline are read when it is *delivered*,
//! completions come late, and messages may arrive before [`Event::Established`].
#![forbid(unsafe_code)]

pub mod datagram;
mod endpoint;
mod lent;
mod random;
mod setup;
mod traffic;
mod world;

use core::{net::IpAddr, ops::RangeInclusive};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use rustix::fd::{AsRawFd, OwnedFd};

use endpoint::{SimEndpoint, SimListening};
pub use random::Random;
use world::{Notice, World};

use super::{ConnectFailure, ConnectTo, Event, EventFds, Fabric, ListenOn, Listening, Started, Token};
use crate::{error::Result, sys::descriptor, work::MessageMode};

/// A host of a simulation: one program with one device.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Host(pub(super) usize);

/// How long things take, in nanoseconds of virtual time; each time a number of the range is drawn.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Timing {
    /// From posting to arrival.
    pub wire: RangeInclusive<u64>,
    /// From the end of a request to its completion.
    pub completion: RangeInclusive<u64>,
    /// One step of the connection manager.
    pub manager: RangeInclusive<u64>,
    /// From the posting of a receive to the retry of a message that found none.
    pub receiver_not_ready: RangeInclusive<u64>,
    /// How long a request is retried on a cut link.
    pub retry: u64,
    /// How long a connection manager waits for a silent peer.
    pub connect: u64,
}

impl Default for Timing {
    fn default() -> Self {
        Timing {
            wire: 500..=20_000,
            completion: 100..=5_000,
            manager: 10_000..=200_000,
            receiver_not_ready: 10_000..=1_000_000,
            retry: 4_000_000_000,
            connect: 5_000_000_000,
        }
    }
}

/// What a simulation is made with.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Settings {
    /// Every delay follows from it.
    pub seed: u64,
    /// How long things take.
    pub timing: Timing,
    /// How messages travel.
    pub mode: MessageMode,
    /// Most entries of a send queue that the devices grant.
    pub send_queue: u32,
    /// Most entries of a receive queue that the devices grant.
    pub receive_queue: u32,
    /// Largest inline size that the devices grant, in bytes.
    pub inline: u32,
    /// Whether endpoints and fabrics have event descriptors: then whoever does not arm a queue, or looks before it arms,
    /// is not told of its completions. Without them everybody is expected to look after every step.
    pub descriptors: bool,
    /// Whether an acceptor on iWARP has to leave the first word to its peer, as soft-iWARP wants it: else it violates the contract.
    pub first_word: bool,
}

impl Settings {
    /// InfiniBand-like devices with large queues.
    pub fn new(seed: u64) -> Self {
        Settings {
            seed,
            timing: Timing::default(),
            mode: MessageMode::Immediate,
            send_queue: 16_384,
            receive_queue: 16_384,
            inline: 220,
            descriptors: false,
            first_word: false,
        }
    }
}

/// A simulation. Clones are the same one.
#[derive(Clone)]
pub struct Sim {
    world: Arc<Mutex<World>>,
}

impl Sim {
    /// A world without hosts.
    pub fn new(settings: Settings) -> Self {
        Sim { world: Arc::new(Mutex::new(World::new(settings))) }
    }

    /// Adds a host with these addresses.
    pub fn host(&self, addresses: &[IpAddr]) -> Host {
        lock(&self.world).add_host(addresses)
    }

    /// The device of a host as a program uses it. After [`Sim::kill`] this is the device of a new program.
    pub fn fabric(&self, host: Host) -> SimFabric {
        let event = lock(&self.world).revive(host);
        SimFabric { world: Arc::clone(&self.world), host, event }
    }

    /// Lets the next event happen. False: there is none, nothing will change by itself.
    pub fn step(&self) -> bool {
        lock(&self.world).step()
    }

    /// The time in nanoseconds.
    pub fn now(&self) -> u64 {
        lock(&self.world).now
    }

    /// When the next event will happen.
    pub fn next_at(&self) -> Option<u64> {
        lock(&self.world).next_at()
    }

    /// Lets everything happen that happens up to this time, and sets the clock to it.
    pub fn run_until(&self, time: u64) {
        let mut world = lock(&self.world);
        while world.next_at().is_some_and(|next| next <= time) {
            world.step();
        }
        world.now = world.now.max(time);
    }

    /// The program on this host dies: its peers see disconnects and flushed requests after a while. Its endpoints are dead.
    pub fn kill(&self, host: Host) {
        lock(&self.world).kill(host);
    }

    /// The host does not answer any more (true) or again (false); connections to it break when their retries are over.
    pub fn silence(&self, host: Host, silent: bool) {
        lock(&self.world).silence(host, silent);
    }

    /// Takes away (true) or gives back (false) the device: connecting has no route, listening is not possible. Connections stay.
    pub fn without_device(&self, host: Host, without: bool) {
        lock(&self.world).without_device(host, without);
    }

    /// Cuts the link between two hosts: requests are retried for [`Timing::retry`].
    pub fn cut(&self, one: Host, other: Host) {
        lock(&self.world).cut(one, other);
    }

    /// Mends a cut link.
    pub fn heal(&self, one: Host, other: Host) {
        lock(&self.world).heal(one, other);
    }

    /// What the stacks above have done against the contract, oldest first (at most 100).
    pub fn violations(&self) -> Vec<String> {
        lock(&self.world).violations.clone()
    }

    /// The last events (at most 1000), with their times.
    pub fn trace(&self) -> Vec<String> {
        lock(&self.world).trace.iter().cloned().collect()
    }

    /// A hash of all events so far.
    pub fn digest(&self) -> u64 {
        lock(&self.world).digest
    }

    /// Endpoints that a stack holds. Events that were not taken count as nobody's.
    pub fn endpoint_count(&self) -> usize {
        lock(&self.world).held
    }

    /// Registrations of programs' memory that a stack holds.
    pub fn registration_count(&self) -> usize {
        lock(&self.world).lent.count()
    }

    /// How often a message found no receive.
    pub fn not_ready_count(&self) -> u64 {
        lock(&self.world).not_ready
    }
}

fn lock(world: &Mutex<World>) -> MutexGuard<'_, World> {
    world.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The device of one host.
pub struct SimFabric {
    world: Arc<Mutex<World>>,
    host: Host,
    event: Option<Arc<OwnedFd>>,
}

impl Fabric for SimFabric {
    fn connect(&self, to: &ConnectTo, token: Token) -> core::result::Result<Started, ConnectFailure> {
        lock(&self.world).connect(self.host, to, token).map(|()| Started::Later)
    }

    fn cancel(&self, token: Token) {
        lock(&self.world).cancel(self.host, token);
    }

    fn listen(&self, on: &ListenOn, token: Token) -> Result<Box<dyn Listening>> {
        let (id, local) = lock(&self.world).listen(self.host, on, token)?;
        Ok(Box::new(SimListening { world: Arc::clone(&self.world), id, local }))
    }

    fn event_fds(&self) -> EventFds {
        self.event.iter().map(|event| event.as_raw_fd()).collect()
    }

    fn events(&self, most: usize) -> Vec<Event> {
        let mut world = lock(&self.world);
        let mut events = Vec::new();
        while events.len() < most {
            let Some(notice) = world.next_notice(self.host) else { break };
            events.extend(self.event(&mut world, notice));
        }
        if let Some(event) = self.event.as_ref().filter(|_| !world.has_notices(self.host)) {
            descriptor::drain(&**event);
        }
        events
    }
}

impl SimFabric {
    /// `None` where the endpoint has been dropped meanwhile.
    fn event(&self, world: &mut World, notice: Notice) -> Option<Event> {
        let end = notice.end();
        let side = world.side(end).filter(|side| !side.gone)?;
        let token = side.token;
        // An incoming connection that was never given a token hears of its end when it is accepted.
        let named = token != Token::default();
        let handle = || -> Box<dyn super::Endpoint> { Box::new(SimEndpoint::new(&self.world, end, side)) };
        let event = match notice {
            Notice::Ready(_) => Event::Ready { token, endpoint: handle() },
            Notice::Incoming { listener, private_data, .. } => Event::Incoming { listener, endpoint: handle(), private_data },
            Notice::Established { private_data, .. } if named => Event::Established { token, private_data },
            Notice::Failed { reason, .. } if named => Event::Failed { token, reason },
            Notice::Disconnected(_) if named => Event::Disconnected { token },
            Notice::Established { .. } | Notice::Failed { .. } | Notice::Disconnected(_) => return None,
        };
        world.held += usize::from(matches!(event, Event::Ready { .. } | Event::Incoming { .. }));
        Some(event)
    }
}

#[cfg(test)]
mod tests;
