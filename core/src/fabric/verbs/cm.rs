//! The connection manager: the process's event channel, ids, and addresses.

use core::{
    ffi::{c_int, c_void},
    mem::MaybeUninit,
    net::{Ipv4Addr, Ipv6Addr, SocketAddr, SocketAddrV4, SocketAddrV6},
};
use std::sync::Arc;

use rdma_sys::{
    ibv_context, ibv_qp_attr, ibv_qp_state, rdma_addr, rdma_cm_event, rdma_cm_id, rdma_conn_param, rdma_event_channel, rdma_port_space,
};
use rustix::{
    fd::{AsRawFd, BorrowedFd, IntoRawFd, RawFd},
    fs::OFlags,
};

use super::libs::{self, Libs};
use crate::{
    error::{Errno, Result},
    fabric::{Path, path::Record},
    sys::{descriptor, inside, own},
};

/// Level and names of `rdma_set_option`, from <rdma/rdma_cma.h>.
const RDMA_OPTION_ID: c_int = 0;
const RDMA_OPTION_IB: c_int = 1;
const RDMA_OPTION_ID_TOS: c_int = 0;
const RDMA_OPTION_ID_REUSEADDR: c_int = 1;
const RDMA_OPTION_ID_AFONLY: c_int = 2;
const RDMA_OPTION_ID_ACK_TIMEOUT: c_int = 3;
const RDMA_OPTION_IB_PATH: c_int = 1;

/// Moves a descriptor up and returns its new number; the old number where there is no room above. Marked as the library's own, until who
/// closes it says so.
pub(super) fn high_descriptor(fd: RawFd) -> RawFd {
    // SAFETY: the caller owns the open descriptor.
    let low = unsafe { BorrowedFd::borrow_raw(fd) };
    match rustix::io::fcntl_dupfd_cloexec(low, descriptor::base()) {
        Ok(high) => {
            // SAFETY: the caller owns the old number and takes the new one instead.
            unsafe { rustix::io::close(fd) };
            own::mark(high.as_raw_fd());
            high.into_raw_fd()
        }
        Err(_) => {
            let _ = rustix::io::fcntl_setfd(low, rustix::io::FdFlags::CLOEXEC);
            own::mark(fd);
            fd
        }
    }
}

/// Makes reads of the descriptor return at once.
pub(super) fn set_nonblocking(fd: RawFd) -> Result<()> {
    // SAFETY: the caller owns the open descriptor.
    let fd = unsafe { BorrowedFd::borrow_raw(fd) };
    let flags = rustix::fs::fcntl_getfl(fd)?;
    rustix::fs::fcntl_setfl(fd, flags | OFlags::NONBLOCK)
}

/// The event channel of the process.
pub(super) struct Channel {
    raw: *mut rdma_event_channel,
    fd: RawFd,
    libs: &'static Libs,
}

// SAFETY: librdmacm lets any thread make ids on a channel; events are taken by the service thread only.
unsafe impl Send for Channel {}
// SAFETY: as above.
unsafe impl Sync for Channel {}

impl Channel {
    /// Opens the channel, which fails where the kernel has no RDMA or the process no right to it.
    pub(super) fn new(libs: &'static Libs) -> Result<Self> {
        let _inside = inside::enter_uncancelled();
        // SAFETY: no preconditions.
        let raw = unsafe { (libs.rdma_create_event_channel)() };
        if raw.is_null() {
            return Err(libs::last_errno());
        }
        let mut channel = Channel { raw, fd: -1, libs };
        // SAFETY: made just now and not shared yet. The library reads the number from here at each use.
        let fd = unsafe { &mut (*raw).fd };
        *fd = high_descriptor(*fd);
        channel.fd = *fd;
        set_nonblocking(channel.fd)?;
        Ok(channel)
    }

    /// The descriptor that is readable when there are events.
    pub(super) fn fd(&self) -> RawFd {
        self.fd
    }

    /// The next event, which must be given to [`Channel::acknowledge`]; `None`: no event is there, or the channel is broken.
    pub(super) fn next(&self) -> Option<*mut rdma_cm_event> {
        let mut event = core::ptr::null_mut();
        // SAFETY: the channel is valid and does not block; the result is ours to write.
        libs::check(unsafe { (self.libs.rdma_get_cm_event)(self.raw, &mut event) }).ok()?;
        Some(event)
    }

    /// Gives an event back. Its memory is gone afterwards.
    pub(super) fn acknowledge(&self, event: *mut rdma_cm_event) {
        // SAFETY: the event came from `next` and is given back once.
        let _ = unsafe { (self.libs.rdma_ack_cm_event)(event) };
    }
}

impl Drop for Channel {
    fn drop(&mut self) {
        let _inside = inside::enter_uncancelled();
        // SAFETY: made in `new`, dropped once; every id holds an `Arc` of it and is gone.
        unsafe { (self.libs.rdma_destroy_event_channel)(self.raw) };
        own::unmark(self.fd);
    }
}

/// What an id is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum PortSpace {
    /// Connections and listeners.
    Streams,
    /// Unconnected queue pairs, and paths for them.
    Datagrams,
}

/// An id of the connection manager: a connection, a listener, or for datagrams. Dropping it waits until events of it that were taken have
/// been acknowledged, so it must not happen between [`Channel::next`] and [`Channel::acknowledge`] in the same thread.
pub(super) struct Id {
    handle: Handle,
    // After the id.
    channel: Arc<Channel>,
}

impl Id {
    /// Makes an id whose events carry `serial`.
    pub(super) fn new(channel: &Arc<Channel>, serial: u64, of: PortSpace) -> Result<Self> {
        let space = match of {
            PortSpace::Streams => rdma_port_space::RDMA_PS_TCP,
            PortSpace::Datagrams => rdma_port_space::RDMA_PS_UDP,
        };
        let _inside = inside::enter_uncancelled();
        let mut raw = core::ptr::null_mut();
        let libs = channel.libs;
        // SAFETY: the channel is valid; the context is a number that is never followed.
        libs::check(unsafe { (libs.rdma_create_id)(channel.raw, &mut raw, to_context(serial), space) })?;
        Ok(Id { handle: Handle { raw, libs }, channel: Arc::clone(channel) })
    }

    /// Takes over the id that came with a connect request; its events carry `serial` from now on.
    ///
    /// # Safety
    /// `raw` must come from a connect request that has not been acknowledged, and must be taken over once.
    pub(super) unsafe fn adopt(channel: &Arc<Channel>, raw: *mut rdma_cm_id, serial: u64) -> Self {
        // SAFETY: the id is valid and nobody else knows it yet.
        unsafe { (*raw).context = to_context(serial) };
        Id { handle: Handle { raw, libs: channel.libs }, channel: Arc::clone(channel) }
    }
}

impl core::ops::Deref for Id {
    type Target = Handle;

    fn deref(&self) -> &Handle {
        &self.handle
    }
}

impl Drop for Id {
    fn drop(&mut self) {
        let _inside = inside::enter_uncancelled();
        // SAFETY: made or taken over once, dropped once; the channel outlives the id.
        let _ = unsafe { (self.channel.libs.rdma_destroy_id)(self.handle.raw) };
    }
}

/// An id that somebody else keeps alive: its [`Id`], or an event that has not been acknowledged.
pub(super) struct Handle {
    raw: *mut rdma_cm_id,
    libs: &'static Libs,
}

// SAFETY: librdmacm lets any thread use an id; the fields read here are set before it is shared.
unsafe impl Send for Handle {}
// SAFETY: as above.
unsafe impl Sync for Handle {}

impl Handle {
    /// The id of an event.
    ///
    /// # Safety
    /// The handle must not be used after the event has been acknowledged.
    pub(super) unsafe fn of_event(channel: &Channel, raw: *mut rdma_cm_id) -> Self {
        Handle { raw, libs: channel.libs }
    }

    /// The device's context; null before the address is resolved.
    pub(super) fn verbs(&self) -> *mut ibv_context {
        // SAFETY: the id is valid as long as `self`; the field is set before the event that makes it of interest.
        unsafe { (*self.raw).verbs }
    }

    /// Own address and port.
    pub(super) fn local_addr(&self) -> SocketAddr {
        let addr = self.route_addr();
        // SAFETY: the storage is the largest member of a union of plain structures.
        from_storage(unsafe { &addr.src_addr_union.src_storage })
    }

    /// The peer's address and port.
    pub(super) fn peer_addr(&self) -> SocketAddr {
        let addr = self.route_addr();
        // SAFETY: as above.
        from_storage(unsafe { &addr.dst_addr_union.dst_storage })
    }

    fn route_addr(&self) -> &rdma_addr {
        // SAFETY: the id is valid as long as `self`.
        unsafe { &(*self.raw).route.addr }
    }

    /// Binds to an address.
    pub(super) fn bind(&self, addr: SocketAddr) -> Result<()> {
        let _inside = inside::enter_uncancelled();
        let mut storage = to_storage(addr);
        // SAFETY: the id is valid; the address is large enough for any family.
        libs::check(unsafe { (self.libs.rdma_bind_addr)(self.raw, (&raw mut storage).cast()) })
    }

    /// Starts to look for a device with a route to the peer.
    pub(super) fn resolve_addr(&self, local: Option<SocketAddr>, peer: SocketAddr, milliseconds: c_int) -> Result<()> {
        let _inside = inside::enter_uncancelled();
        let mut from = local.map(to_storage);
        let mut to = to_storage(peer);
        let from = from.as_mut().map_or(core::ptr::null_mut(), |storage| (&raw mut *storage).cast());
        // SAFETY: the id is valid; the addresses are large enough for any family and live until the call returns.
        libs::check(unsafe { (self.libs.rdma_resolve_addr)(self.raw, from, (&raw mut to).cast(), milliseconds) })
    }

    /// Starts to resolve the route.
    pub(super) fn resolve_route(&self, milliseconds: c_int) -> Result<()> {
        let _inside = inside::enter_uncancelled();
        // SAFETY: the id is valid.
        libs::check(unsafe { (self.libs.rdma_resolve_route)(self.raw, milliseconds) })
    }

    /// Listens.
    pub(super) fn listen(&self, backlog: u32) -> Result<()> {
        let _inside = inside::enter_uncancelled();
        // SAFETY: the id is valid.
        libs::check(unsafe { (self.libs.rdma_listen)(self.raw, c_int::try_from(backlog).unwrap_or(c_int::MAX)) })
    }

    /// Sends the connect request.
    pub(super) fn connect(&self, parameters: &mut rdma_conn_param) -> Result<()> {
        let _inside = inside::enter_uncancelled();
        // SAFETY: the id is valid; the caller's parameters and their private data live until the call returns.
        libs::check(unsafe { (self.libs.rdma_connect)(self.raw, parameters) })
    }

    /// Answers a connect request.
    pub(super) fn accept(&self, parameters: &mut rdma_conn_param) -> Result<()> {
        let _inside = inside::enter_uncancelled();
        // SAFETY: as above.
        libs::check(unsafe { (self.libs.rdma_accept)(self.raw, parameters) })
    }

    /// Completes the active side's connection.
    pub(super) fn establish(&self) -> Result<()> {
        let _inside = inside::enter_uncancelled();
        // SAFETY: the id is valid.
        libs::check(unsafe { (self.libs.rdma_establish)(self.raw) })
    }

    /// Refuses a connect request.
    pub(super) fn reject(&self) {
        let _inside = inside::enter_uncancelled();
        // SAFETY: the id is valid; there is no private data.
        let _ = unsafe { (self.libs.rdma_reject)(self.raw, core::ptr::null(), 0) };
    }

    /// Tells the peer that the connection is over, or answers the peer that did.
    pub(super) fn disconnect(&self) {
        let _inside = inside::enter_uncancelled();
        // SAFETY: the id is valid. It fails where there is no connection (any more).
        let _ = unsafe { (self.libs.rdma_disconnect)(self.raw) };
    }

    /// The attributes, and their mask, that bring a queue pair for this connection into `state`.
    pub(super) fn queue_attributes(&self, state: ibv_qp_state::Type) -> Result<(ibv_qp_attr, c_int)> {
        let _inside = inside::enter_uncancelled();
        // SAFETY: all-zero is a valid value of this plain structure.
        let mut attributes: ibv_qp_attr = unsafe { MaybeUninit::zeroed().assume_init() };
        attributes.qp_state = state;
        let mut mask = 0;
        // SAFETY: the id is valid; both results are ours to write.
        libs::check(unsafe { (self.libs.rdma_init_qp_attr)(self.raw, &mut attributes, &mut mask) })?;
        Ok((attributes, mask))
    }

    /// The type of service of the connection's packets.
    pub(super) fn set_tos(&self, tos: u8) -> Result<()> {
        self.set_option(RDMA_OPTION_ID, RDMA_OPTION_ID_TOS, tos)
    }

    /// Allows an address that another id is bound to.
    pub(super) fn set_reuse_address(&self) -> Result<()> {
        self.set_option::<c_int>(RDMA_OPTION_ID, RDMA_OPTION_ID_REUSEADDR, 1)
    }

    /// Whether an IPv6 id takes IPv6 peers only.
    pub(super) fn set_family_only(&self, only: bool) -> Result<()> {
        self.set_option(RDMA_OPTION_ID, RDMA_OPTION_ID_AFONLY, c_int::from(only))
    }

    /// The acknowledge time-out that the connect request announces.
    pub(super) fn set_ack_timeout(&self, timeout: u8) -> Result<()> {
        self.set_option(RDMA_OPTION_ID, RDMA_OPTION_ID_ACK_TIMEOUT, timeout)
    }

    /// Takes this path instead of one that is asked for; the event is the same as of [`Handle::resolve_route`].
    pub(super) fn set_path(&self, path: &Path) -> Result<()> {
        self.set_option(RDMA_OPTION_IB, RDMA_OPTION_IB_PATH, *path.bytes())
    }

    /// The number of the device's port; 0 before the device is known.
    pub(super) fn port(&self) -> u8 {
        // SAFETY: as above.
        unsafe { (*self.raw).port_num }
    }

    /// The first path of a resolved route.
    pub(super) fn path(&self) -> Option<Path> {
        self.record().map(|record| Path::from(&record))
    }

    /// What its record says.
    pub(super) fn record(&self) -> Option<Record> {
        // SAFETY: the id is valid as long as `self`; its route is set before the event that says so, and stays.
        let route = unsafe { &(*self.raw).route };
        let paths = route.path_rec;
        if paths.is_null() || route.num_paths < 1 {
            return None;
        }
        // SAFETY: not null, and there is one, which stays as long as the id.
        let of = unsafe { &*paths };
        // SAFETY: a union of 16 bytes.
        let destination = unsafe { of.dgid.raw };
        // SAFETY: as above.
        let source = unsafe { of.sgid.raw };
        Some(Record {
            destination,
            source,
            destination_lid: u16::from_be(of.dlid),
            source_lid: u16::from_be(of.slid),
            flow_label: u32::from_be(of.flow_label),
            hop_limit: of.hop_limit,
            traffic_class: of.traffic_class,
            reversible: of.reversible != 0,
            paths: of.numb_path,
            partition: u16::from_be(of.pkey),
            service_level: of.sl,
            mtu: (of.mtu_selector, of.mtu),
            rate: (of.rate_selector, of.rate),
            life_time: (of.packet_life_time_selector, of.packet_life_time),
        })
    }

    fn set_option<T: Copy>(&self, level: c_int, name: c_int, mut value: T) -> Result<()> {
        let _inside = inside::enter_uncancelled();
        let len = size_of::<T>();
        let value: *mut c_void = (&raw mut value).cast();
        // SAFETY: the id is valid; the value lives until the call returns and has the given length.
        libs::check(unsafe { (self.libs.rdma_set_option)(self.raw, level, name, value, len) })
    }
}

/// A serial number in the place of an id's context.
fn to_context(serial: u64) -> *mut c_void {
    core::ptr::without_provenance_mut(usize::try_from(serial).unwrap_or(0))
}

/// The serial number in an id's context.
pub(super) fn from_context(context: *mut c_void) -> u64 {
    context.addr() as u64
}

/// The errno that an event's status stands for, if it is one.
pub(super) fn status_errno(status: c_int) -> Option<Errno> {
    match status {
        -4095..=-1 => Some(Errno::from_raw_os_error(-status)),
        _ => None,
    }
}

fn to_storage(addr: SocketAddr) -> libc::sockaddr_storage {
    // SAFETY: all-zero is a valid value of this plain structure.
    let mut storage: libc::sockaddr_storage = unsafe { MaybeUninit::zeroed().assume_init() };
    match addr {
        SocketAddr::V4(addr) => {
            let value = libc::sockaddr_in {
                sin_family: libc::AF_INET as libc::sa_family_t,
                sin_port: addr.port().to_be(),
                sin_addr: libc::in_addr { s_addr: u32::from_ne_bytes(addr.ip().octets()) },
                sin_zero: [0; 8],
            };
            // SAFETY: the storage is larger than, and aligned for, every socket address.
            unsafe { (&raw mut storage).cast::<libc::sockaddr_in>().write(value) };
        }
        SocketAddr::V6(addr) => {
            let value = libc::sockaddr_in6 {
                sin6_family: libc::AF_INET6 as libc::sa_family_t,
                sin6_port: addr.port().to_be(),
                sin6_flowinfo: addr.flowinfo().to_be(),
                sin6_addr: libc::in6_addr { s6_addr: addr.ip().octets() },
                sin6_scope_id: addr.scope_id(),
            };
            // SAFETY: as above.
            unsafe { (&raw mut storage).cast::<libc::sockaddr_in6>().write(value) };
        }
    }
    storage
}

/// The address in `storage`; 0.0.0.0:0 for a family that is neither IPv4 nor IPv6.
fn from_storage(storage: &libc::sockaddr_storage) -> SocketAddr {
    match c_int::from(storage.ss_family) {
        libc::AF_INET => {
            // SAFETY: the family says what is there; the storage is larger and aligned.
            let addr = unsafe { &*(&raw const *storage).cast::<libc::sockaddr_in>() };
            let ip = Ipv4Addr::from(addr.sin_addr.s_addr.to_ne_bytes());
            SocketAddr::V4(SocketAddrV4::new(ip, u16::from_be(addr.sin_port)))
        }
        libc::AF_INET6 => {
            // SAFETY: as above.
            let addr = unsafe { &*(&raw const *storage).cast::<libc::sockaddr_in6>() };
            let ip = Ipv6Addr::from(addr.sin6_addr.s6_addr);
            let flow = u32::from_be(addr.sin6_flowinfo);
            SocketAddr::V6(SocketAddrV6::new(ip, u16::from_be(addr.sin6_port), flow, addr.sin6_scope_id))
        }
        _ => SocketAddr::V4(SocketAddrV4::new(Ipv4Addr::UNSPECIFIED, 0)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_survive_the_trip() {
        for text in ["10.9.0.1:7471", "[fd09::1]:7471", "[fe80::1%3]:65535"] {
            let addr: SocketAddr = text.parse().unwrap();
            assert_eq!(from_storage(&to_storage(addr)), addr);
        }
    }

    #[test]
    fn unknown_family_is_unspecified() {
        // SAFETY: plain structure.
        let storage = unsafe { MaybeUninit::zeroed().assume_init() };
        assert_eq!(from_storage(&storage), "0.0.0.0:0".parse().unwrap());
    }

    #[test]
    fn status_is_an_errno_only_if_negative() {
        assert_eq!(status_errno(-110), Some(Errno::TIMEDOUT));
        assert_eq!(status_errno(8), None);
        assert_eq!(status_errno(c_int::MIN), None);
    }
}
