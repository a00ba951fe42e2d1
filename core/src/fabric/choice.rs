//! The fabrics of a process, tried one after the other: as one fabric.
//!
//! Shared memory is there from the start; RDMA is opened when a connection or a listener first asks for it, so that a program whose peers
//! are all on this host never loads its libraries.
#![forbid(unsafe_code)]

use core::net::SocketAddr;
use std::{
    os::fd::RawFd,
    sync::{Arc, Mutex},
};

use super::{ConnectFailure, ConnectTo, Event, EventFds, Fabric, ListenOn, Listening, Started, Token, shm::Shm, verbs::Verbs};
use crate::{
    config::FabricChoice,
    error::{Errno, Result},
    log_info,
    sys::{
        clock::{self, Nanos},
        inside,
    },
};

/// How long the absence of a device is believed, in nanoseconds.
const ABSENT_TIME: Nanos = 5_000_000_000;

/// RDMA, as far as it is known.
enum Device {
    Unknown,
    Absent(Nanos),
    Open(Arc<Verbs>),
}

/// See the module.
pub struct Fabrics {
    shm: Option<Arc<Shm>>,
    verbs: Option<Mutex<Device>>,
    verbs_first: bool,
}

impl Fabrics {
    /// Those that `choice` allows. `None` if none of them can be used now.
    pub fn open(choice: FabricChoice) -> Option<Arc<Self>> {
        let shm = if choice.shm() { Shm::open().inspect_err(|errno| log_info!("no shared memory: {errno}")).ok() } else { None };
        let verbs = choice.verbs().then(|| Mutex::new(Device::Unknown));
        let fabrics = Fabrics { shm, verbs, verbs_first: choice.verbs_first() };
        let usable = fabrics.shm.is_some() || fabrics.verbs().is_some();
        usable.then(|| Arc::new(fabrics))
    }

    /// RDMA, opened if need be.
    fn verbs(&self) -> Option<Arc<Verbs>> {
        let mut device = self.verbs.as_ref()?.lock().unwrap_or_else(|poisoned| poisoned.into_inner());
        match &*device {
            Device::Open(verbs) => return Some(Arc::clone(verbs)),
            Device::Absent(until) if *until > clock::now() => return None,
            Device::Absent(_) | Device::Unknown => {}
        }
        let _inside = inside::enter_uncancelled();
        match Verbs::open() {
            Ok(verbs) => {
                *device = Device::Open(Arc::clone(&verbs));
                Some(verbs)
            }
            Err(error) => {
                log_info!("no RDMA: {error}");
                *device = Device::Absent(clock::now().saturating_add(ABSENT_TIME));
                None
            }
        }
    }

    /// RDMA, if it is in use.
    fn open_verbs(&self) -> Option<Arc<Verbs>> {
        match &*self.verbs.as_ref()?.lock().unwrap_or_else(|poisoned| poisoned.into_inner()) {
            Device::Open(verbs) => Some(Arc::clone(verbs)),
            Device::Unknown | Device::Absent(_) => None,
        }
    }

    fn connect_verbs(&self, to: &ConnectTo, token: Token) -> core::result::Result<Started, ConnectFailure> {
        if to.silent {
            return Err(ConnectFailure::Silent);
        }
        self.verbs().ok_or(ConnectFailure::NoDevice)?.connect(to, token)
    }

    fn connect_shm(&self, to: &ConnectTo, token: Token) -> core::result::Result<Started, ConnectFailure> {
        self.shm.as_ref().ok_or(ConnectFailure::NoRoute)?.connect(to, token)
    }
}

impl Fabric for Fabrics {
    /// What RDMA finds out only later is not made good by shared memory: the connection is the kernel's then.
    fn connect(&self, to: &ConnectTo, token: Token) -> core::result::Result<Started, ConnectFailure> {
        let first = if self.verbs_first { self.connect_verbs(to, token) } else { self.connect_shm(to, token) };
        match first {
            Ok(started) => Ok(started),
            Err(failure @ ConnectFailure::Limit(_)) => Err(failure),
            Err(failure) if self.verbs_first => self.connect_shm(to, token).map_err(|_| failure),
            Err(failure) if self.verbs.is_none() => Err(failure),
            Err(_) => self.connect_verbs(to, token),
        }
    }

    fn cancel(&self, token: Token) {
        if let Some(verbs) = self.open_verbs() {
            verbs.cancel(token);
        }
    }

    fn listen(&self, on: &ListenOn, token: Token) -> Result<Box<dyn Listening>> {
        let shm = self.shm.as_ref().map(|shm| shm.listen(on, token));
        let verbs = self.verbs().map(|verbs| verbs.listen(on, token));
        let mut error = Errno::NODEV;
        let mut parts = Vec::new();
        for (listened, name) in [(shm, "shared memory"), (verbs, "RDMA")] {
            match listened {
                Some(Ok(part)) => parts.push(part),
                Some(Err(errno)) => {
                    log_info!("no listener on {} over {name}: {errno}", on.addr);
                    error = errno;
                }
                None => {}
            }
        }
        if parts.is_empty() { Err(error) } else { Ok(Box::new(Listeners { addr: on.addr, parts })) }
    }

    fn event_fds(&self) -> EventFds {
        let shm = self.shm.iter().flat_map(|shm| shm.event_fds());
        shm.chain(self.open_verbs().iter().flat_map(|verbs| verbs.event_fds())).collect()
    }

    fn events(&self, most: usize) -> Vec<Event> {
        let mut events = self.shm.as_ref().map_or_else(Vec::new, |shm| shm.events(most));
        if let Some(verbs) = self.open_verbs() {
            events.extend(verbs.events(most.saturating_sub(events.len())));
        }
        events
    }

    fn next_preparation(&self, now: Nanos) -> Option<Nanos> {
        self.open_verbs()?.next_preparation(now)
    }

    fn prepare(&self, now: Nanos) {
        if let Some(verbs) = self.open_verbs() {
            verbs.prepare(now);
        }
    }
}

/// A listener on all fabrics that took it.
struct Listeners {
    addr: SocketAddr,
    parts: Vec<Box<dyn Listening>>,
}

impl Listening for Listeners {
    fn local_addr(&self) -> SocketAddr {
        self.addr
    }

    // Shared memory alone has one, and is alone in that.
    fn peers_fd(&self) -> Option<RawFd> {
        self.parts.iter().find_map(|part| part.peers_fd())
    }

    fn attend(&self, attended: bool) {
        self.parts.iter().for_each(|part| part.attend(attended));
    }

    fn take(&self) -> Option<Event> {
        self.parts.iter().find_map(|part| part.take())
    }

    fn owns_port(&self) -> bool {
        self.parts.iter().any(|part| part.owns_port())
    }
}
