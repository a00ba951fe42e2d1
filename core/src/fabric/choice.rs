//! The fabrics of a process, tried one after the other: as one fabric.
//!
//! Shared memory is there from the start; RDMA is opened when a connection or a listener first asks for it, so that a program whose peers
//! are all on this host never loads its libraries.
#![forbid(unsafe_code)]

use core::net::{IpAddr, SocketAddr};
use std::{
    os::fd::RawFd,
    sync::{Arc, Mutex},
};

use super::{
    ConnectFailure, ConnectTo, EndpointConfig, Event, EventFds, Fabric, FabricKind, ListenOn, Listening, Started, Token, datagram,
    shm::Shm, verbs::Verbs,
};
use crate::{
    config::FabricChoice,
    error::{Errno, Result},
    log_info,
    sys::{
        allocator,
        clock::{self, Nanos},
        descriptor::OwnFd,
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
    /// Those that `choice` allows. An error where none of them can be used now: the first one's own, if a limit is what it lacks.
    pub fn open(choice: FabricChoice) -> core::result::Result<Arc<Self>, ConnectFailure> {
        let shm = choice.shm().then(|| Shm::open().inspect_err(|errno| log_info!("no shared memory: {errno}")));
        let failure = match &shm {
            Some(Err(errno)) => ConnectFailure::Limit(*errno),
            _ => ConnectFailure::NoDevice,
        };
        let verbs = choice.verbs().then(|| Mutex::new(Device::Unknown));
        let fabrics = Fabrics { shm: shm.and_then(Result::ok), verbs, verbs_first: choice.verbs_first() };
        let usable = fabrics.shm.is_some() || fabrics.verbs().is_some();
        if usable { Ok(Arc::new(fabrics)) } else { Err(failure) }
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
        if allocator::is_exhausted() {
            return Err(ConnectFailure::Limit(Errno::NOMEM));
        }
        let first = if self.verbs_first { self.connect_verbs(to, token) } else { self.connect_shm(to, token) };
        match first {
            Ok(started) => Ok(started),
            Err(failure @ (ConnectFailure::Limit(_) | ConnectFailure::Deferred)) => Err(failure),
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
        let wanted = |kind| on.only.is_none_or(|only| only == kind);
        let shm = self.shm.as_ref().filter(|_| wanted(FabricKind::Shm)).map(|shm| shm.listen(on, token));
        let verbs = wanted(FabricKind::Verbs).then(|| self.verbs()).flatten().map(|verbs| verbs.listen(on, token));
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

    /// Shared memory has its own way, without queue pairs: `shm::datagram`.
    fn datagrams(&self, local: IpAddr) -> Result<Box<dyn datagram::Queue>> {
        self.verbs().ok_or(Errno::NODEV)?.datagrams(local)
    }

    fn mark(&self, on: &ListenOn) -> Option<OwnFd> {
        self.shm.as_ref()?.mark(on)
    }

    fn is_marked(&self, peer: SocketAddr) -> bool {
        self.shm.as_ref().is_some_and(|shm| shm.is_marked(peer))
    }

    fn decline(&self, peer: SocketAddr) {
        if let Some(shm) = &self.shm {
            shm.decline(peer);
        }
    }

    fn reaches_others(&self) -> bool {
        self.verbs().is_some()
    }

    fn event_fds(&self) -> EventFds {
        let shm = self.shm.iter().flat_map(|shm| shm.event_fds());
        shm.chain(self.open_verbs().iter().flat_map(|verbs| verbs.event_fds())).collect()
    }

    fn events(&self, most: usize) -> Vec<Event> {
        let verbs = self.open_verbs();
        // Each gets its share, however much there is of the other.
        let share = if verbs.is_some() { most.div_ceil(2) } else { most };
        let mut events = self.shm.as_ref().map_or_else(Vec::new, |shm| shm.events(share));
        if let Some(verbs) = verbs {
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

    fn pause(&self) {
        self.parts.iter().for_each(|part| part.pause());
    }

    fn attend(&self, attended: bool) {
        self.parts.iter().for_each(|part| part.attend(attended));
    }

    fn take(&self, patient: bool) -> Result<Option<Event>> {
        self.parts.iter().find_map(|part| part.take(patient).transpose()).transpose()
    }

    fn resize(&self, endpoint: &EndpointConfig) {
        self.parts.iter().for_each(|part| part.resize(endpoint));
    }

    fn owns_port(&self) -> bool {
        self.parts.iter().any(|part| part.owns_port())
    }
}

#[cfg(test)]
mod tests {
    use core::net::Ipv4Addr;

    use super::*;

    const CONFIG: EndpointConfig = EndpointConfig {
        send_queue: 16,
        receive_queue: 48,
        inline: 0,
        receive_bytes: 4096,
        shm_receive_bytes: 4096,
        send_bytes: 4096,
        target_bytes: 32,
        places: false,
    };
    /// More than shared memory gives anybody.
    const TOO_MUCH: EndpointConfig = EndpointConfig { receive_queue: u32::MAX, ..CONFIG };
    const LOCALHOST: SocketAddr = SocketAddr::new(IpAddr::V4(Ipv4Addr::LOCALHOST), 0);
    /// RFC 5737: no host has it.
    const ELSEWHERE: SocketAddr = SocketAddr::new(IpAddr::V4(Ipv4Addr::new(192, 0, 2, 1)), 7);

    /// Shared memory, or not, and RDMA that is absent for long, or that nobody has asked for yet.
    fn fabrics(shm: bool, verbs: Option<Device>, verbs_first: bool) -> Fabrics {
        Fabrics { shm: shm.then(|| Shm::open().unwrap()), verbs: verbs.map(Mutex::new), verbs_first }
    }

    fn absent() -> Option<Device> {
        Some(Device::Absent(Nanos::MAX))
    }

    fn was_asked_for_verbs(fabrics: &Fabrics) -> bool {
        !matches!(&*fabrics.verbs.as_ref().unwrap().lock().unwrap(), Device::Unknown)
    }

    fn connect(fabrics: &Fabrics, to: &ConnectTo) -> core::result::Result<(), ConnectFailure> {
        match fabrics.connect(to, Token(1)) {
            Ok(Started::Ready(endpoint)) => {
                assert_eq!(endpoint.kind(), crate::fabric::FabricKind::Shm);
                Ok(())
            }
            Ok(Started::Later) => panic!("who else?"),
            Err(failure) => Err(failure),
        }
    }

    /// Another program of this host, with a listener.
    fn listening() -> (Arc<Shm>, Box<dyn Listening>) {
        let shm = Shm::open().unwrap();
        let listening = shm.listen(&listen_on(LOCALHOST), Token(1)).unwrap();
        (shm, listening)
    }

    fn listen_on(addr: SocketAddr) -> ListenOn {
        ListenOn { addr, v6_only: false, backlog: 1, only: None, endpoint: CONFIG }
    }

    #[test]
    fn none() {
        assert!(matches!(Fabrics::open(FabricChoice::None), Err(ConnectFailure::NoDevice)));
        let fabrics = fabrics(false, None, false);
        assert_eq!(connect(&fabrics, &ConnectTo::new(LOCALHOST, CONFIG)), Err(ConnectFailure::NoRoute));
        assert_eq!(fabrics.listen(&listen_on(LOCALHOST), Token(1)).err(), Some(Errno::NODEV));
        assert!(fabrics.event_fds().is_empty() && fabrics.events(1).is_empty() && fabrics.next_preparation(0).is_none());
    }

    #[test]
    fn shared_memory_alone() {
        let fabrics = Fabrics::open(FabricChoice::Shm).unwrap();
        assert_eq!(fabrics.event_fds().len(), 1);
        let (_other, listening) = listening();
        let peer = listening.local_addr();
        assert_eq!(connect(&fabrics, &ConnectTo::new(peer, CONFIG)), Ok(()));
        assert_eq!(connect(&fabrics, &ConnectTo::new(ELSEWHERE, CONFIG)), Err(ConnectFailure::NoRoute));
        drop(listening);
        assert_eq!(connect(&fabrics, &ConnectTo::new(peer, CONFIG)), Err(ConnectFailure::Refused));
    }

    #[test]
    fn rdma_that_is_absent() {
        let (_other, listening) = listening();
        let here = ConnectTo::new(listening.local_addr(), CONFIG);
        let elsewhere = ConnectTo::new(ELSEWHERE, CONFIG);
        for verbs_first in [false, true] {
            let fabrics = fabrics(true, absent(), verbs_first);
            assert_eq!(connect(&fabrics, &here), Ok(()));
            assert_eq!(connect(&fabrics, &elsewhere), Err(ConnectFailure::NoDevice));
            assert_eq!(fabrics.event_fds().len(), 1);
        }
        let alone = fabrics(false, absent(), false);
        assert_eq!(connect(&alone, &here), Err(ConnectFailure::NoDevice));
        assert_eq!(alone.listen(&listen_on(LOCALHOST), Token(1)).err(), Some(Errno::NODEV));
        assert_eq!(alone.datagrams(LOCALHOST.ip()).err(), Some(Errno::NODEV));
        assert!(alone.event_fds().is_empty());
    }

    /// Who finds a peer on this host never loads the libraries.
    #[test]
    fn rdma_is_not_asked_for_without_need() {
        let (_other, listening) = listening();
        let fabrics = fabrics(true, Some(Device::Unknown), false);
        assert_eq!(connect(&fabrics, &ConnectTo::new(listening.local_addr(), CONFIG)), Ok(()));
        assert_eq!((fabrics.event_fds().len(), fabrics.events(9).len(), fabrics.next_preparation(0)), (1, 0, None));
        fabrics.prepare(0);
        fabrics.cancel(Token(1));
        assert!(!was_asked_for_verbs(&fabrics));
    }

    /// A host that has not answered before is not asked again; one that needs no answer is this one.
    #[test]
    fn silent_hosts() {
        let (_other, listening) = listening();
        let silent = |peer| ConnectTo { silent: true, ..ConnectTo::new(peer, CONFIG) };
        for verbs_first in [false, true] {
            let fabrics = fabrics(true, Some(Device::Unknown), verbs_first);
            assert_eq!(connect(&fabrics, &silent(listening.local_addr())), Ok(()));
            assert_eq!(connect(&fabrics, &silent(ELSEWHERE)), Err(ConnectFailure::Silent));
            assert!(!was_asked_for_verbs(&fabrics));
        }
    }

    /// A limit of this host is none of the peer's: it is told as it is, and the kernel takes the connection.
    #[test]
    fn a_limit_ends_the_search() {
        let (_other, listening) = listening();
        let to = ConnectTo::new(listening.local_addr(), TOO_MUCH);
        let fabrics = fabrics(true, Some(Device::Unknown), false);
        assert_eq!(connect(&fabrics, &to), Err(ConnectFailure::Limit(Errno::INVAL)));
        assert!(!was_asked_for_verbs(&fabrics));
    }

    #[test]
    fn listens_where_it_can() {
        let fabrics = fabrics(true, absent(), false);
        let (_other, taken) = listening();
        assert_eq!(fabrics.listen(&listen_on(taken.local_addr()), Token(1)).err(), Some(Errno::ADDRINUSE));
        // The port of one that is closed is free.
        let addr = taken.local_addr();
        drop(taken);
        let listening = fabrics.listen(&listen_on(addr), Token(1)).unwrap();
        assert_eq!((listening.local_addr(), listening.owns_port()), (addr, false));
        assert!(listening.peers_fd().is_some() && matches!(listening.take(true), Ok(None)));
        let client = Shm::open().unwrap();
        let Ok(Started::Ready(mut endpoint)) = client.connect(&ConnectTo::new(addr, CONFIG), Token(2)) else { panic!("not found") };
        endpoint.connect(&[]).unwrap();
        assert!(matches!(fabrics.events(9).pop(), Some(Event::Incoming { listener: Token(1), .. })));
    }

    /// A device is looked for again, but not all the time.
    #[test]
    fn absence_is_believed_for_a_while() {
        let fabrics = fabrics(false, Some(Device::Absent(clock::now() + ABSENT_TIME)), false);
        let device = fabrics.verbs.as_ref().unwrap();
        let since = |device: &Mutex<Device>| match &*device.lock().unwrap() {
            Device::Absent(until) => *until,
            Device::Open(_) => Nanos::MAX,
            Device::Unknown => 0,
        };
        let before = since(device);
        assert!(fabrics.verbs().is_none());
        assert_eq!(since(device), before);
        *device.lock().unwrap() = Device::Absent(clock::now());
        let _ = fabrics.verbs();
        assert!(since(device) > clock::now());
    }
}
