//! What a stage stands on: the simulation, or the shared memory of this host under a clock of the stage's.

use core::{
    net::{IpAddr, SocketAddr},
    sync::atomic::{AtomicU64, Ordering},
};
use std::sync::Arc;

use rustix::{
    fd::OwnedFd,
    net::{AddressFamily, SocketAddrUnix, SocketFlags, SocketType},
    rand::{GetRandomFlags, getrandom},
};

use crate::{
    fabric::{
        Fabric,
        shm::Shm,
        sim::{Host, Random, Settings, Sim},
    },
    sys::clock::Nanos,
};

/// The fabrics that tests run over.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Over {
    /// The simulation: time passes as its events say.
    Sim,
    /// Shared memory. What one end does the other sees at once, so that time passes as the programs take steps.
    Shm,
}

/// Where most tests run.
pub(super) const BOTH: &[Over] = &[Over::Sim, Over::Shm];
/// Where a test runs that needs links, hosts that fall silent, or devices.
pub(super) const SIM: &[Over] = &[Over::Sim];

/// How long a step of a program takes at most, in nanoseconds, where nothing else says so.
const STEP: Nanos = 20_000;

/// See the module.
pub(super) enum World {
    Sim(Sim),
    Shm(Neighbours),
}

/// Programs of this host.
pub(super) struct Neighbours {
    now: Arc<AtomicU64>,
    random: Random,
    fabrics: Vec<Arc<Shm>>,
    net: Net,
    next_port: u16,
}

/// Addresses of 127/8 that no other test has, of this process or another one, as long as this is not dropped.
pub(super) struct Net {
    high: [u8; 2],
    low: u8,
    _held: OwnedFd,
}

impl Net {
    pub(super) fn reserve() -> Self {
        loop {
            let mut bytes = [0; 3];
            getrandom(&mut bytes, GetRandomFlags::empty()).unwrap();
            let [a, b, low] = bytes;
            let low = low & !3;
            let held = rustix::net::socket_with(AddressFamily::UNIX, SocketType::DGRAM, SocketFlags::CLOEXEC, None).unwrap();
            let name = SocketAddrUnix::new_abstract_name(format!("rsocket-test/{a}.{b}.{low}").as_bytes()).unwrap();
            if rustix::net::bind(&held, &name).is_ok() {
                return Net { high: [a, b], low, _held: held };
            }
        }
    }

    /// One of three.
    pub(super) fn addr(&self, last: u8) -> IpAddr {
        assert!((1..=3).contains(&last));
        let [a, b] = self.high;
        IpAddr::from([127, a, b, self.low | last])
    }
}

/// A program's place: its address and, in the simulation, its host.
#[derive(Clone, Copy)]
pub(super) struct Place {
    pub(super) addr: IpAddr,
    pub(super) host: Option<Host>,
}

impl World {
    pub(super) fn new(over: Over, settings: Settings) -> Self {
        match over {
            Over::Sim => World::Sim(Sim::new(settings)),
            Over::Shm => World::Shm(Neighbours {
                now: Arc::default(),
                random: Random::new(settings.seed),
                fabrics: Vec::new(),
                net: Net::reserve(),
                next_port: 1024,
            }),
        }
    }

    /// The simulation, where there is one.
    pub(super) fn sim(&self) -> Option<&Sim> {
        match self {
            World::Sim(sim) => Some(sim),
            World::Shm(_) => None,
        }
    }

    /// Another program.
    pub(super) fn enter(&mut self, last: u8) -> (Place, Arc<dyn Fabric>) {
        match self {
            World::Sim(sim) => {
                let addr = IpAddr::from([10, 0, 0, last]);
                let host = sim.host(&[addr]);
                (Place { addr, host: Some(host) }, Arc::new(sim.fabric(host)))
            }
            World::Shm(neighbours) => {
                let shm = Shm::open().unwrap();
                neighbours.fabrics.push(Arc::clone(&shm));
                (Place { addr: neighbours.net.addr(last), host: None }, shm)
            }
        }
    }

    /// An own address for a client, where the fabric has no ports of its own to tell connections apart.
    pub(super) fn client(&mut self, place: Place) -> Option<SocketAddr> {
        match self {
            World::Sim(_) => None,
            World::Shm(neighbours) => {
                neighbours.next_port += 1;
                Some(SocketAddr::new(place.addr, neighbours.next_port))
            }
        }
    }

    /// Where a listener listens: in the simulation on every address.
    pub(super) fn listener(&self, place: Place, port: u16) -> SocketAddr {
        match self {
            World::Sim(_) => SocketAddr::from(([0, 0, 0, 0], port)),
            World::Shm(_) => SocketAddr::new(place.addr, port),
        }
    }

    /// A clock that follows.
    pub(super) fn clock(&self) -> Box<dyn Fn() -> Nanos + Send + Sync> {
        match self {
            World::Sim(sim) => {
                let sim = sim.clone();
                Box::new(move || sim.now())
            }
            World::Shm(neighbours) => {
                let now = Arc::clone(&neighbours.now);
                Box::new(move || now.load(Ordering::Relaxed))
            }
        }
    }

    pub(super) fn now(&self) -> Nanos {
        match self {
            World::Sim(sim) => sim.now(),
            World::Shm(neighbours) => neighbours.now.load(Ordering::Relaxed),
        }
    }

    /// When something will happen by itself.
    pub(super) fn next_at(&self) -> Option<Nanos> {
        self.sim().and_then(Sim::next_at)
    }

    /// The next that happens by itself does.
    pub(super) fn step(&self) {
        if let Some(sim) = self.sim() {
            sim.step();
        }
    }

    /// The kernel's timers have gone off: they do not follow this clock.
    pub(super) fn ripen(&self) {
        if let World::Shm(neighbours) = self {
            neighbours.fabrics.iter().for_each(|shm| shm.grow_up());
        }
    }

    /// Some program has done something, which takes time.
    pub(super) fn pass(&mut self) {
        if let World::Shm(neighbours) = self {
            let time = neighbours.random.within(&(0..=STEP));
            neighbours.now.fetch_add(time, Ordering::Relaxed);
        }
    }

    pub(super) fn run_until(&self, time: Nanos) {
        match self {
            World::Sim(sim) => sim.run_until(time),
            World::Shm(neighbours) => {
                neighbours.now.fetch_max(time, Ordering::Relaxed);
            }
        }
    }

    pub(super) fn kill(&self, place: Place) {
        if let (Some(sim), Some(host)) = (self.sim(), place.host) {
            sim.kill(host);
        }
    }

    /// The last events, for messages.
    pub(super) fn trace(&self) -> Vec<String> {
        self.sim().map_or_else(Vec::new, Sim::trace)
    }

    /// No endpoint is left, and nobody has broken the fabric's contract.
    pub(super) fn assert_clean(&self) {
        match self {
            World::Sim(sim) => {
                assert_eq!(sim.endpoint_count(), 0, "endpoints are left");
                assert_eq!(sim.violations(), Vec::<String>::new());
            }
            World::Shm(neighbours) => assert!(neighbours.fabrics.iter().all(|shm| shm.is_unused()), "endpoints are left"),
        }
    }
}
