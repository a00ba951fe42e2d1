//! The provider contract: what a transport must offer so that the stream protocol can run over it.
//!
//! A [`Fabric`] makes connections and reports their fate as [`Event`]s; an [`Endpoint`] is one connection's queue pair
//! with its registered memory. Both are object-safe and picked per connection at run time. Contract tests
//! (`fabric/contract.rs`) run over every fabric.
//!
//! Who may call: connection management ([`Fabric::events`], dropping an endpoint) belongs to the service thread; an
//! endpoint lives behind the engine lock of its socket (DESIGN: lock 4), and nothing here blocks.

use core::{
    fmt,
    net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr},
    sync::atomic::AtomicU32,
};
use std::{os::fd::RawFd, sync::Arc};

pub mod choice;
#[cfg(any(test, feature = "contract"))]
pub mod contract;
pub mod datagram;
pub mod faulty;
mod forward;
pub mod path;
pub mod region;
pub mod shm;
pub mod sim;
pub mod traced;
pub mod verbs;

use forward::forward;
pub use path::Path;
pub use region::Region;
use smallvec::SmallVec;

use crate::{
    error::{Errno, Result, Text},
    log::warn_once,
    sys::{
        clock::Nanos,
        descriptor::{self, OwnFd},
        program::Span,
    },
    work::{Completion, DataWrite, ExposedMemory, MessageMode, Payload, RemoteAddress, WorkRequest},
};

/// Which fabric carries a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum FabricKind {
    /// InfiniBand, RoCE or iWARP through librdmacm and libibverbs.
    Verbs,
    /// Shared memory, for a peer on the same host.
    Shm,
    /// The simulated fabric of the tests.
    Sim,
}

impl fmt::Display for FabricKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            FabricKind::Verbs => "RDMA",
            FabricKind::Shm => "shared memory",
            FabricKind::Sim => "the simulation",
        })
    }
}

/// Names a connection or a listener between a socket and its fabric. Never reused within a process; 0 is nobody.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Default)]
pub struct Token(pub u64);

/// What an endpoint is made with. The fabric may lower queue sizes and `inline` to the device's limits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct EndpointConfig {
    /// Data and control work requests that may be outstanding at once (`sq_size`).
    pub send_queue: u32,
    /// Receives to keep room for (`rq_size` plus slack for control messages and late reposting).
    pub receive_queue: u32,
    /// Wanted inline size in bytes.
    pub inline: u32,
    /// Size of the receive area in bytes; a multiple of 2.
    pub receive_bytes: u32,
    /// What it is over shared memory.
    pub shm_receive_bytes: u32,
    /// Size of the send area in bytes.
    pub send_bytes: u32,
    /// Size of the target list and the iomap table in bytes.
    pub target_bytes: u32,
    /// Whether this end may ever write to memory that the peer registers.
    pub places: bool,
}

/// What the fabric made of an [`EndpointConfig`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct EndpointLimits {
    /// See [`EndpointConfig::send_queue`].
    pub send_queue: u32,
    /// See [`EndpointConfig::receive_queue`].
    pub receive_queue: u32,
    /// Payloads up to this size are copied when posted and need not stay unchanged.
    pub inline: u32,
    /// How messages travel.
    pub mode: MessageMode,
}

/// One connection's queue pair, completion queue and memory.
///
/// Dropping it destroys the connection at once; [`Endpoint::disconnect`] first ends it in an orderly way.
pub trait Endpoint: Send {
    /// Which fabric this is.
    fn kind(&self) -> FabricKind;

    /// What was granted.
    fn limits(&self) -> EndpointLimits;

    /// Events of this endpoint carry this token from now on.
    fn set_token(&mut self, token: Token);

    /// Starts the connection with this private data; ends in [`Event::Established`] or [`Event::Failed`].
    /// Only for an endpoint that came with [`Event::Ready`]. Receives must have been posted before.
    fn connect(&mut self, private_data: &[u8]) -> Result<()>;

    /// Accepts with this private data; ends in [`Event::Established`] or [`Event::Failed`].
    /// Only for an endpoint that came with [`Event::Incoming`]. Receives must have been posted before.
    fn accept(&mut self, private_data: &[u8]) -> Result<()>;

    /// Refuses an incoming connection.
    fn reject(&mut self);

    /// What has become of [`Endpoint::connect`] or [`Endpoint::accept`], once, on a fabric that has no event for it: the answer comes on
    /// [`Endpoint::event_fd`], to whoever asks first after [`Endpoint::clear_events`].
    fn outcome(&mut self) -> Option<Outcome> {
        None
    }

    /// Starts the orderly end: the peer gets a disconnected event after what was posted before. No error if it is over already.
    fn disconnect(&mut self);

    /// As [`Endpoint::disconnect`], in disorder, where a fabric tells its peers the difference.
    fn reset(&mut self) {
        self.disconnect();
    }

    /// Whether a peer that is gone without a word is one that has closed: all that it had sent has come, as where the kernel closes the
    /// sockets of a process.
    fn peer_has_closed(&self) -> bool {
        false
    }

    /// Whether nothing that was posted needs this end any more, but for a message or two that the end of the connection stands for.
    fn has_delivered(&self) -> bool {
        false
    }

    /// Posts work requests in order, all or none: on an error the connection is to be given up.
    /// The caller never has more outstanding than `limits().send_queue`.
    fn post_sends(&mut self, work: &[WorkRequest]) -> Result<()>;

    /// As [`Endpoint::post_sends`] of one request, whose payload, a part of the send area, is still in the program's buffer: `bytes`. Only
    /// where it cannot be taken from there it goes through the send area.
    #[inline]
    fn post_bytes(&mut self, request: &WorkRequest, bytes: &[u8]) -> Result<()> {
        if let Payload::SendArea { offset, .. } = request.payload {
            self.send_area().write(offset as usize, bytes)?;
        }
        self.post_sends(core::slice::from_ref(request))
    }

    /// As [`Endpoint::post_bytes`], of what nearly every write is.
    #[inline]
    fn post_data(&mut self, data: &DataWrite, bytes: &[u8]) -> Result<()> {
        self.post_bytes(&data.request(), bytes)
    }

    /// Whether something that was posted goes on only when this end is polled, at an event on [`Endpoint::event_fd`] once armed.
    fn is_waiting(&self) -> bool {
        false
    }

    /// What registers memory of the program's for this connection, if that can be done.
    fn registrar(&self) -> Option<Arc<dyn Registrar>> {
        None
    }

    /// Whether the peer's bytes get to registered memory only when this end is polled, at an event on [`Endpoint::event_fd`], armed or not.
    fn is_exposed(&self) -> bool {
        false
    }

    /// Whether the latest poll has left something of that to the next one, of which no event tells.
    fn lags(&self) -> bool {
        false
    }

    /// The caller waits, where it runs now. Whether the peer has last waited on the same processor: if so, it cannot answer while the
    /// caller keeps that busy. `None`: nobody knows.
    fn waits_beside_peer(&self) -> Option<bool> {
        None
    }

    /// Posts `count` receives. The caller never has more outstanding than `limits().receive_queue`.
    fn post_receives(&mut self, count: u32) -> Result<()>;

    /// Takes completions in order into `out` and returns how many. 0: there are none now. Never blocks.
    fn poll(&mut self, out: &mut [Completion]) -> usize;

    /// Asks for one event on [`Endpoint::event_fd`] at the next completion. What completed before may not be announced: poll again afterwards.
    fn arm(&mut self) -> Result<()>;

    /// As [`Endpoint::arm`], for a thread that sleeps on a word of memory (futex(7)) instead of the descriptor: the word, and what it holds
    /// until the next completion. `None` where there is no such thing.
    fn arm_word(&mut self) -> Option<(Arc<dyn SleepWord>, u32)> {
        None
    }

    /// The descriptor that becomes readable when an armed completion queue gets a completion. Stays the endpoint's.
    /// `None` where the fabric has no descriptors (simulation), and once nothing will be announced any more.
    fn event_fd(&self) -> Option<RawFd>;

    /// Takes all announced events off [`Endpoint::event_fd`], so that it is no longer readable. The queue is unarmed afterwards
    /// if there was one.
    fn clear_events(&mut self);

    /// What the peer may write, for the connect record.
    fn exposed(&self) -> ExposedMemory;

    /// The receive area (written by the peer: hostile).
    fn receive_area(&self) -> &Region;

    /// The send area.
    fn send_area(&self) -> &Region;

    /// The target list and iomap table (written by the peer: hostile).
    fn target_area(&self) -> &Region;

    /// Own address of the connection.
    fn local_addr(&self) -> SocketAddr;

    /// The peer's address.
    fn peer_addr(&self) -> SocketAddr;

    /// The path that the connection takes, where the fabric has paths.
    fn path(&self) -> Option<Path> {
        None
    }
}

/// Memory with a word that threads may sleep on: see [`Endpoint::arm_word`].
pub trait SleepWord: Send + Sync {
    /// The word, which other processes may change and wake.
    fn word(&self) -> &AtomicU32;
}

/// Registers memory of the program's. Needs no lock of the connection's, and may take its time: pages are made and pinned.
pub trait Registrar: Send + Sync {
    /// Registers memory for this end to send from, and for the peer to write to if `remote` says so. EFAULT: it is no memory, or cannot be
    /// written.
    fn register(&self, memory: Span, remote: bool) -> Result<Box<dyn Registered>>;
}

/// Memory of the program's that is registered. Dropping it ends that, and may take its time.
pub trait Registered: Send {
    /// What the peer calls its first byte.
    fn remote(&self) -> RemoteAddress;

    /// The key under which the device reads it for this end, where there is one.
    fn local_key(&self) -> Option<u32>;

    /// The peer's bytes get there no longer once this returns, which is soon; to be called under the lock of the connection. What is not
    /// done here is done when it is dropped, before the call that ends the mapping returns.
    fn revoke(&self) {}
}

/// How a connection was established, the acceptor's private data (see [`Event::Established`]), or why it was not.
pub type Outcome = core::result::Result<Vec<u8>, ConnectFailure>;

/// A connection that has been started.
pub enum Started {
    /// The endpoint is made already: what [`Event::Ready`] says of it holds.
    Ready(Box<dyn Endpoint>),
    /// [`Event::Ready`] or [`Event::Failed`] will come.
    Later,
}

/// A listening address. Dropping it stops listening; connections that came in before are not touched.
pub trait Listening: Send + Sync {
    /// The address that is listened on.
    fn local_addr(&self) -> SocketAddr;

    /// The descriptor that is readable when a peer asks, where any thread may see to it: [`Listening::take`].
    fn peers_fd(&self) -> Option<RawFd> {
        None
    }

    /// It will be dropped soon: nobody new comes. Neither waits nor allocates.
    fn pause(&self) {}

    /// From now on (or no longer) a thread waits on [`Listening::peers_fd`] itself: no event of the fabric's is needed, which would wake
    /// the service thread too.
    fn attend(&self, _attended: bool) {}

    /// Takes a peer that asks: what [`Fabric::events`] would give. `patient`: one that has come and not asked yet is waited for, a moment; EINTR
    /// where a signal ends the caller's call meanwhile.
    fn take(&self, _patient: bool) -> Result<Option<Event>> {
        Ok(None)
    }

    /// What connections that come in from now on are made with.
    fn resize(&self, _endpoint: &EndpointConfig) {}

    /// Whether peers are served even where the kernel's socket cannot listen on the port.
    fn owns_port(&self) -> bool {
        false
    }
}

/// The program's own socket.
#[derive(Clone, Copy, Debug)]
pub struct Kernel {
    /// Its number.
    pub fd: RawFd,
    /// Whether it is of the family AF_INET6.
    pub is_ipv6: bool,
}

impl Kernel {
    /// Binds it to a port of the kernel's choice. Not to an address: that would show (ipv6(7), IPV6_V6ONLY), and stay if the kernel has to
    /// connect after all.
    pub fn reserve(self) -> Option<u16> {
        let socket = descriptor::borrow(self.fd)?;
        rustix::net::bind(socket, &SocketAddr::new(any(self.is_ipv6), 0)).ok()?;
        let port = SocketAddr::try_from(rustix::net::getsockname(socket).ok()?).ok()?.port();
        (port != 0).then_some(port)
    }
}

/// The wildcard address of a family.
pub fn any(is_ipv6: bool) -> IpAddr {
    if is_ipv6 { IpAddr::V6(Ipv6Addr::UNSPECIFIED) } else { IpAddr::V4(Ipv4Addr::UNSPECIFIED) }
}

/// What to connect.
#[derive(Clone, Copy, Debug)]
pub struct ConnectTo {
    /// The peer.
    pub peer: SocketAddr,
    /// Own address and port, where the program has bound them. A port of 0 lets the fabric choose.
    pub local: Option<SocketAddr>,
    /// The program's socket, which the kernel connects if no fabric does: a fabric without ports of its own binds it.
    pub kernel: Option<Kernel>,
    /// The peer's host did not answer a short while ago: only fabrics that need no answer from it are worth a try.
    pub silent: bool,
    /// Type of service (IP_TOS), 0 for none.
    pub tos: u8,
    /// The path that the program has chosen (RDMA_ROUTE): then nobody is asked for one.
    pub path: Option<Path>,
    /// The memory and queues to make once the route is known.
    pub endpoint: EndpointConfig,
}

impl ConnectTo {
    /// To `peer`, from wherever, and the rest as it is for most.
    pub fn new(peer: SocketAddr, endpoint: EndpointConfig) -> Self {
        ConnectTo { peer, local: None, kernel: None, silent: false, tos: 0, path: None, endpoint }
    }
}

/// What to listen on.
#[derive(Clone, Copy, Debug)]
pub struct ListenOn {
    /// Address and port; the wildcard address listens on every device.
    pub addr: SocketAddr,
    /// IPV6_V6ONLY of an IPv6 listener.
    pub v6_only: bool,
    /// Longest queue of requests that the fabric holds back.
    pub backlog: u32,
    /// The fabric to listen on; `None`: all of them.
    pub only: Option<FabricKind>,
    /// The memory and queues that each incoming connection is made with.
    pub endpoint: EndpointConfig,
}

/// Why a connection was not made. All of them make a client try the kernel next.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ConnectFailure {
    /// There is no RDMA device, or no library for it.
    NoDevice,
    /// No RDMA device has a route to the address.
    NoRoute,
    /// The peer's host answered that nobody listens, or the listener refused.
    Refused,
    /// The peer's host does not answer.
    TimedOut,
    /// The peer's host did not answer a short while ago, and was not asked.
    Silent,
    /// The listener takes connections over TCP, which move when they are first used: see [`Fabric::mark`].
    Deferred,
    /// The peer uses TCP, though the connection was free to move.
    Plain,
    /// A local limit: locked memory, queue pairs, descriptors, permission. The errno that said so.
    Limit(crate::error::Errno),
    /// Anything else.
    Other(crate::error::Errno),
}

impl fmt::Display for ConnectFailure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            ConnectFailure::NoDevice => f.write_str("no RDMA device"),
            ConnectFailure::NoRoute => f.write_str("no RDMA device has a route"),
            ConnectFailure::Refused => f.write_str("refused by the peer's library, or nobody listens there"),
            ConnectFailure::Silent => f.write_str("the host has not answered over RDMA before"),
            ConnectFailure::TimedOut => f.write_str("no answer over RDMA"),
            ConnectFailure::Deferred => f.write_str("the listener takes TCP alone, at first"),
            ConnectFailure::Plain => f.write_str("the peer uses TCP"),
            ConnectFailure::Limit(errno) => write!(f, "a limit of this host: {}", Text(*errno)),
            ConnectFailure::Other(errno) => write!(f, "{}", Text(*errno)),
        }
    }
}

/// What happens to connections. Delivered by [`Fabric::events`] in the service thread.
pub enum Event {
    /// The route is known and the endpoint made: post receives and call [`Endpoint::connect`].
    Ready {
        /// As given to [`Fabric::connect`].
        token: Token,
        /// The connection to be.
        endpoint: Box<dyn Endpoint>,
    },
    /// A peer wants to connect: take it by [`Endpoint::set_token`] and [`Endpoint::accept`], or refuse it.
    Incoming {
        /// The listener's token.
        listener: Token,
        /// The connection to be.
        endpoint: Box<dyn Endpoint>,
        /// The peer's private data: hostile, may be longer than what was sent (padded with zeros), shorter or empty.
        private_data: Vec<u8>,
    },
    /// A peer has found the listener, and says that it stays with TCP.
    Declined {
        /// The listener's token.
        listener: Token,
    },
    /// Data can flow.
    Established {
        /// The connection.
        token: Token,
        /// The acceptor's private data (active side only, else empty): hostile, see [`Event::Incoming`].
        private_data: Vec<u8>,
    },
    /// The connection was not made.
    Failed {
        /// The connection.
        token: Token,
        /// Why.
        reason: ConnectFailure,
    },
    /// The connection is over: the peer disconnected, died, or the device went away.
    Disconnected {
        /// The connection.
        token: Token,
    },
}

impl Event {
    /// A word for the log.
    pub fn name(&self) -> &'static str {
        match self {
            Event::Ready { .. } => "ready",
            Event::Incoming { .. } => "incoming",
            Event::Declined { .. } => "declined",
            Event::Established { .. } => "established",
            Event::Failed { .. } => "failed",
            Event::Disconnected { .. } => "disconnected",
        }
    }
}

/// Tells, once for each limit, that it keeps connections from the fabric.
pub fn warn_of_limit(errno: Errno) {
    let text = Text(errno);
    let (key, hint) = match errno {
        Errno::MFILE | Errno::NFILE => ("limit of descriptors", " (see ulimit -n)"),
        Errno::NOMEM => ("limit of memory", " (see ulimit -l and -v)"),
        Errno::AGAIN => ("limit of threads", " (see ulimit -u)"),
        Errno::FBIG => ("limit of a file's size", " (see ulimit -f)"),
        _ => ("limit", ""),
    };
    warn_once(key, format_args!("no more connections over RDMA or shared memory ({text}): the kernel carries the others{hint}"));
}

/// The descriptors of a fabric: one, or one of each where several are in use.
pub type EventFds = SmallVec<[RawFd; 2]>;

/// A transport.
pub trait Fabric: Send + Sync {
    /// Starts to connect; the outcome comes as [`Event::Ready`] or [`Event::Failed`] with this token, unless it is there at once.
    fn connect(&self, to: &ConnectTo, token: Token) -> core::result::Result<Started, ConnectFailure>;

    /// Gives up a connection that is not [`Event::Ready`] yet. An event that is already under way may still come.
    fn cancel(&self, token: Token);

    /// Starts to listen; peers come as [`Event::Incoming`] with this token.
    fn listen(&self, on: &ListenOn, token: Token) -> Result<Box<dyn Listening>>;

    /// A queue pair for datagrams from and to this address of the host. ENODEV where no device has it.
    fn datagrams(&self, _local: IpAddr) -> Result<Box<dyn datagram::Queue>> {
        Err(Errno::NODEV)
    }

    /// The descriptors that are readable when there are events. They stay the fabric's.
    fn event_fds(&self) -> EventFds;

    /// Takes the events that are there, at most `most`, without blocking.
    fn events(&self, most: usize) -> Vec<Event>;

    /// When [`Fabric::prepare`] has something to do; not later than `now`: at once. Asked by the service thread when all events have
    /// been handled.
    fn next_preparation(&self, _now: Nanos) -> Option<Nanos> {
        None
    }

    /// Says to peers of this host, as long as the result lives, here or in a child of the program, that who connects to this address by TCP
    /// is worth to wait for: the connection moves when it is first used. `None` where nobody can be told.
    fn mark(&self, _on: &ListenOn) -> Option<OwnFd> {
        None
    }

    /// Whether an address of this host is [marked](Fabric::mark).
    fn is_marked(&self, _peer: SocketAddr) -> bool {
        false
    }

    /// Tells a listener on this host that nobody will connect: [`Event::Declined`].
    fn decline(&self, _peer: SocketAddr) {}

    /// Whether peers on other hosts can be reached.
    fn reaches_others(&self) -> bool {
        true
    }

    /// One step of what can wait until there is nothing else to do: making ready for connections to come, clearing away what is
    /// left of others. Called by the service thread when nothing has happened for a moment.
    fn prepare(&self, _now: Nanos) {}
}
