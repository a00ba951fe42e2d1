//! InfiniBand, RoCE and iWARP through librdmacm and libibverbs.
//!
//! `libs` opens the libraries, `cm` wraps the connection manager's channel and ids, `device` what connections over one device
//! share, `queues` a connection's queues, `memory` its registered memory, `spare` makes both ready beforehand, `post` translates work,
//! `endpoint` and `event` put it together. `datagram` has unconnected queue pairs. Each connection has one descriptor (its completion channel); the process has one more for all
//! events.
//!
//! Nothing here waits for a peer. Every call into the libraries runs under [`inside::enter_uncancelled`](crate::sys::inside::enter_uncancelled),
//! those of the data path under [`inside::enter`](crate::sys::inside::enter): it costs less, and the preload library's write is no
//! cancellation point there.

use core::{
    fmt,
    net::{IpAddr, SocketAddr},
    sync::atomic::{AtomicI32, AtomicU64},
};
use std::sync::Arc;

use crate::{
    error::{Errno, Result},
    fabric::{ConnectFailure, ConnectTo, EndpointConfig, Event, EventFds, Fabric, ListenOn, Listening, Started, Token, datagram::Queue},
    sys::{clock::Nanos, inside, own},
};

mod cm;
mod datagram;
mod device;
mod endpoint;
mod event;
mod libs;
mod memory;
mod post;
mod queues;
mod spare;

use cm::{Channel, Id, PortSpace};
use event::{Entry, Resolving, Shared};

/// Faults that no socket hears of.
pub struct Faults {
    /// Connect requests that were refused because queues or memory could not be made.
    pub incoming_failed: AtomicU64,
    /// The errno of the last of them.
    pub last_errno: AtomicI32,
    /// Queues and memory that could not be made ready beforehand.
    pub spare_failed: AtomicU64,
}

/// Faults of this process.
pub static FAULTS: Faults = Faults { incoming_failed: AtomicU64::new(0), last_errno: AtomicI32::new(0), spare_failed: AtomicU64::new(0) };

/// Why RDMA cannot be used in this process.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum OpenError {
    /// A library is not installed.
    Library {
        /// Its file name.
        name: &'static str,
    },
    /// A library is too old.
    Symbol {
        /// The function that it lacks.
        name: &'static str,
    },
    /// The host has no RDMA device.
    NoDevice,
    /// The kernel's connection manager is not there or not allowed.
    Manager {
        /// What opening it said.
        errno: Errno,
    },
}

impl fmt::Display for OpenError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            OpenError::Library { name } => write!(f, "{name} cannot be loaded"),
            OpenError::Symbol { name } => write!(f, "the RDMA libraries are too old: {name} is missing"),
            OpenError::NoDevice => write!(f, "no RDMA device"),
            OpenError::Manager { errno } => write!(f, "the RDMA connection manager cannot be opened: {errno}"),
        }
    }
}

impl core::error::Error for OpenError {}

/// The verbs fabric.
pub struct Verbs {
    shared: Arc<Shared>,
}

impl Verbs {
    /// Opens the libraries and the connection manager. Devices that come later are found by a later call only.
    pub fn open() -> core::result::Result<Arc<Verbs>, OpenError> {
        let _inside = inside::enter_uncancelled();
        if !may_have_devices() {
            return Err(OpenError::NoDevice);
        }
        let libs = libs::get()?;
        own::keep_all_in_children();
        let mut count = 0;
        // SAFETY: the result is ours to write.
        let list = unsafe { (libs.ibv_get_device_list)(&mut count) };
        if list.is_null() {
            return Err(OpenError::NoDevice);
        }
        // SAFETY: the list came from the call above and is not used any more.
        unsafe { (libs.ibv_free_device_list)(list) };
        if count <= 0 {
            return Err(OpenError::NoDevice);
        }
        let channel = Channel::new(libs).map_err(|errno| OpenError::Manager { errno })?;
        Ok(Arc::new(Verbs { shared: Arc::new(Shared::new(libs, channel)) }))
    }
}

/// Whether the kernel knows of a device, or does not say. Asking it is much faster than loading the libraries to ask them.
fn may_have_devices() -> bool {
    match std::fs::read_dir("/sys/class/infiniband") {
        Ok(mut devices) => devices.next().is_some(),
        Err(_) => !std::path::Path::new("/sys/class").exists(),
    }
}

impl Fabric for Verbs {
    fn connect(&self, to: &ConnectTo, token: Token) -> core::result::Result<Started, ConnectFailure> {
        let serial = self.shared.serial();
        let id = prepare(&self.shared, to, serial).map_err(event::start_failure)?;
        // The entry must be there before the event can come, so the lock is held over the call, which does not wait.
        let mut entries = self.shared.entries();
        let mut resolving = Box::new(Resolving::new(token, to, id));
        match resolving.resolve() {
            Ok(()) => {
                entries.insert(serial, Entry::Resolving(resolving));
                Ok(Started::Later)
            }
            Err(errno) => {
                drop(entries);
                Err(event::start_failure(errno))
            }
        }
    }

    fn cancel(&self, token: Token) {
        let cancelled = self.shared.entries().cancel(token);
        // Outside the lock: destroying the id may wait for the thread that handles its event.
        drop(cancelled);
    }

    fn listen(&self, on: &ListenOn, token: Token) -> Result<Box<dyn Listening>> {
        let serial = self.shared.serial();
        let id = Id::new(self.shared.channel(), serial, PortSpace::Streams)?;
        // Best effort: old kernels lack the options, and binding says what matters.
        let _ = id.set_reuse_address();
        if on.addr.is_ipv6() {
            id.set_family_only(on.v6_only)?;
        }
        id.bind(on.addr)?;
        if !id.verbs().is_null() {
            // Binding may have opened the device: moves its descriptors out of the application's way.
            self.shared.devices().get(id.verbs())?;
        }
        self.shared.entries().insert(serial, Entry::Listener { token, endpoint: on.endpoint });
        let listener = Listener { id, serial, shared: Arc::clone(&self.shared) };
        listener.id.listen(on.backlog)?;
        Ok(Box::new(listener))
    }

    fn datagrams(&self, local: IpAddr) -> Result<Box<dyn Queue>> {
        Ok(Box::new(datagram::VerbsQueue::new(&self.shared, local)?))
    }

    fn event_fds(&self) -> EventFds {
        EventFds::from_slice(&[self.shared.channel().fd()])
    }

    fn events(&self, most: usize) -> Vec<Event> {
        self.shared.take_events(most)
    }

    fn next_preparation(&self, now: Nanos) -> Option<Nanos> {
        self.shared.spares().next_preparation(now)
    }

    fn prepare(&self, now: Nanos) {
        self.shared.spares().prepare(now);
    }
}

/// Makes the id of a connection with its options.
fn prepare(shared: &Shared, to: &ConnectTo, serial: u64) -> Result<Id> {
    let id = Id::new(shared.channel(), serial, PortSpace::Streams)?;
    if to.local.is_some_and(|local| local.port() != 0) {
        let _ = id.set_reuse_address();
    }
    if to.tos != 0 {
        id.set_tos(to.tos)?;
    }
    // Not every transport has it.
    let _ = id.set_ack_timeout(queues::ACK_TIMEOUT);
    Ok(id)
}

/// A listening id.
struct Listener {
    id: Id,
    serial: u64,
    shared: Arc<Shared>,
}

impl Listening for Listener {
    fn local_addr(&self) -> SocketAddr {
        self.id.local_addr()
    }

    fn resize(&self, endpoint: &EndpointConfig) {
        self.shared.entries().resize(self.serial, endpoint);
    }

    fn owns_port(&self) -> bool {
        true
    }
}

impl Drop for Listener {
    fn drop(&mut self) {
        let gone = self.shared.entries().remove(self.serial);
        drop(gone);
    }
}
