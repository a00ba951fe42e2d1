//! socket, bind, listen, connect, shutdown, and the names of the two ends.

use core::{net::SocketAddr, time::Duration};
use std::sync::Arc;

use rustix::{
    fd::{BorrowedFd, IntoRawFd, OwnedFd, RawFd},
    net::{AddressFamily, SocketFlags, SocketType, sockopt},
};

use super::{Route, datagram, deferred, inherited, ours};
use crate::{
    config,
    error::{Errno, Result},
    fabric::{ConnectFailure, ConnectTo, Kernel, ListenOn},
    fd::{self, Held},
    log, log_debug, log_info,
    service::Service,
    socket::{
        Origin, Role, Socket, account, address, connect,
        listener::Listener,
        options::Options,
        runtime,
        stream::{Blocking, Fallback, Phase, Stream},
    },
    stats::{self, Counter},
    sys::{allocator, clock, descriptor, small_file},
};

/// How long a client that called the r* functions waits for an answer over a fabric: it has asked for one, and the connection
/// manager's own time-outs are shorter.
const NATIVE_DEADLINE: Duration = Duration::from_secs(30);

/// socket(2) of an unmodified program: domain, type (with SOCK_NONBLOCK and SOCK_CLOEXEC) and protocol as there.
pub fn socket(domain: i32, kind: i32, protocol: i32) -> Route<RawFd> {
    let allowed = || config::preload().allows(config::program(), domain, libc::SOCK_STREAM, protocol);
    make(domain, kind, protocol, Origin::Preload, allowed)
}

/// rsocket: the program asks for a fabric, so `preload_config` has no say.
pub fn rsocket(domain: i32, kind: i32, protocol: i32) -> Route<RawFd> {
    make(domain, kind, protocol, Origin::Native, || true)
}

fn make(domain: i32, kind: i32, protocol: i32, origin: Origin, allowed: impl Fn() -> bool) -> Route<RawFd> {
    let flags = kind & (libc::SOCK_NONBLOCK | libc::SOCK_CLOEXEC);
    let wanted =
        matches!(domain, libc::AF_INET | libc::AF_INET6) && kind & !flags == libc::SOCK_STREAM && matches!(protocol, 0 | libc::IPPROTO_TCP);
    if !wanted {
        return datagram::socket(domain, kind, protocol, origin);
    }
    log::prepare();
    stats::prepare();
    if !allowed() {
        stats::add(Counter::FallbackPolicy, 1);
        return Route::Kernel;
    }
    if allocator::is_exhausted() {
        account::fallback(ConnectFailure::Limit(Errno::NOMEM));
        return Route::Kernel;
    }
    placeholder(domain, flags)
        .map(|socket| {
            let number = socket.into_raw_fd();
            let nonblocking = flags & libc::SOCK_NONBLOCK != 0;
            fd::open(number, Socket::new(domain, origin, Options::default()), nonblocking);
            number
        })
        .into()
}

/// The kernel's socket under the program's number (DESIGN: D1).
pub(super) fn placeholder(domain: i32, flags: i32) -> Result<OwnedFd> {
    let family = if domain == libc::AF_INET6 { AddressFamily::INET6 } else { AddressFamily::INET };
    rustix::net::socket_with(family, SocketType::STREAM, socket_flags(flags), None)
}

/// SOCK_NONBLOCK and SOCK_CLOEXEC.
pub(super) fn socket_flags(flags: i32) -> SocketFlags {
    let mut with = SocketFlags::empty();
    with.set(SocketFlags::CLOEXEC, flags & libc::SOCK_CLOEXEC != 0);
    with.set(SocketFlags::NONBLOCK, flags & libc::SOCK_NONBLOCK != 0);
    with
}

/// bind(2). The kernel binds; listen and connect ask it for the address.
pub fn bind(fd: RawFd, addr: &[u8]) -> Route<()> {
    let Some(held) = ours(fd) else { return Route::Kernel };
    match held.socket.role() {
        // bind(2): EINVAL "The socket is already bound to an address." The kernel's socket under a stream may not be.
        Role::Stream => Route::err(if is_of_family(addr, held.socket.domain) { Errno::INVAL } else { Errno::AFNOSUPPORT }),
        Role::Datagram => datagram::bind(fd, &held, addr),
        _ => Route::Kernel,
    }
}

/// Whether bind(2) finds no fault with the family of an address; one that is too short is not looked at.
fn is_of_family(addr: &[u8], domain: i32) -> bool {
    let least = if domain == libc::AF_INET6 { address::V6_LEAST } else { size_of::<libc::sockaddr_in>() };
    let Some(family) = addr.first_chunk().filter(|_| addr.len() >= least) else { return true };
    let family = i32::from(u16::from_ne_bytes(*family));
    // AF_UNSPEC stands for AF_INET where the address is the wildcard.
    let wildcard = || addr.get(4..8) == Some(&[0; 4]);
    family == domain || domain == libc::AF_INET && family == libc::AF_UNSPEC && wildcard()
}

fn kernel_name(fd: RawFd) -> Option<SocketAddr> {
    address::local(descriptor::borrow(fd)?)
}

/// listen(2).
pub fn listen(fd: RawFd, backlog: i32) -> Route<()> {
    let Some(held) = ours(fd) else { return Route::Kernel };
    let socket = &held.socket;
    let longest = longest_queue(backlog, somaxconn());
    match socket.role() {
        Role::Stream => return Route::err(Errno::INVAL),
        Role::Kernel | Role::KernelListener | Role::Deferred | Role::Datagram => return Route::Kernel,
        Role::Listener => {
            if let Some(listener) = socket.listener() {
                listener.set_backlog(longest);
                if !listener.kernel_listens() {
                    return Route::ok(());
                }
            }
            return Route::Kernel;
        }
        Role::Fresh => {}
    }
    let Some(kernel) = descriptor::borrow(fd) else { return Route::Kernel };
    if deferred::is_wanted(socket) {
        return deferred::listen(socket, kernel, backlog);
    }
    // A fabric comes first where it would not get the port once the kernel listens on it (iWARP).
    let first = with_port_shared(socket, kernel, || start_listener(socket, fd, longest));
    let listened = rustix::net::listen(kernel, backlog);
    match (first, listened) {
        (Some(listener), Ok(())) => become_listener(socket, listener),
        (Some(listener), Err(Errno::ADDRINUSE)) if listener.owns_port() => {
            let text = "RDMA needs the listening port for itself (soft-iWARP): TCP peers of this listener are reset";
            log::warn_once("listener", text);
            listener.without_kernel();
            become_listener(socket, listener)
        }
        (Some(listener), Err(errno)) => {
            listener.close();
            Route::err(errno)
        }
        (None, Err(errno)) => Route::err(errno),
        // Not bound before: the kernel has chosen a port by now.
        (None, Ok(())) => match start_listener(socket, fd, longest) {
            Some(listener) => become_listener(socket, listener),
            None => {
                socket.become_kernel();
                Route::ok(())
            }
        },
    }
}

fn become_listener(socket: &Socket, listener: Arc<Listener>) -> Route<()> {
    socket.become_listener(listener);
    Route::ok(())
}

/// Soft-iWARP does not get a port to which a socket without SO_REUSEADDR is bound. Who calls the r* functions wants RDMA, whether that
/// is set or not; of an unmodified program's port the kernel keeps it.
fn with_port_shared<T>(socket: &Socket, kernel: BorrowedFd<'_>, work: impl FnOnce() -> T) -> T {
    if socket.origin == Origin::Native { lending_port(kernel, work) } else { work() }
}

/// While `work` is done another socket may be bound to the port of this one, if it has SO_REUSEADDR as well.
pub(super) fn lending_port<T>(kernel: BorrowedFd<'_>, work: impl FnOnce() -> T) -> T {
    let lend = !sockopt::socket_reuseaddr(kernel).unwrap_or(true);
    if lend {
        let _ = sockopt::set_socket_reuseaddr(kernel, true);
    }
    let result = work();
    if lend {
        let _ = sockopt::set_socket_reuseaddr(kernel, false);
    }
    result
}

/// Starts to listen on the fabric. `None`: no fabric, or the socket has no port yet.
pub(super) fn start_listener(socket: &Socket, fd: RawFd, backlog: u32) -> Option<Arc<Listener>> {
    let addr = kernel_name(fd).filter(|addr| addr.port() != 0)?;
    let service = runtime::service()?;
    let sizes = socket.options.sizes();
    let v6_only = descriptor::borrow(fd).is_some_and(|fd| sockopt::ipv6_v6only(fd).unwrap_or(false));
    if v6_only {
        // Also where bind to an IPv6 address has set it.
        socket.options.remember(libc::IPPROTO_IPV6, libc::IPV6_V6ONLY, &1_i32.to_ne_bytes());
    }
    let listener = Listener::new(&service, sizes, backlog);
    let on = ListenOn { addr: address::for_fabric(addr), v6_only, backlog, only: None, endpoint: sizes.endpoint() };
    match service.run_in_background().and_then(|()| service.fabric().listen(&on, listener.token())) {
        Ok(listening) => {
            log_debug!("listening on {addr} over the fabrics");
            listener.start(listening);
            // It may sleep without an eye on a fabric that was opened only now.
            service.take_care(listener.token());
            Some(listener)
        }
        Err(errno) => {
            log_info!("no listener on {addr} over a fabric: {errno}");
            account::no_listener(errno);
            listener.close();
            None
        }
    }
}

/// listen(2): a backlog above net.core.somaxconn is silently cut; a negative one is above everything.
fn longest_queue(backlog: i32, somaxconn: u32) -> u32 {
    backlog.cast_unsigned().min(somaxconn)
}

/// The administrator's limit as it is now: the kernel, too, looks at each listen(2). Its usual value where /proc does not say.
fn somaxconn() -> u32 {
    let mut text = [0; 16];
    let limit = small_file::read(c"/proc/sys/net/core/somaxconn", &mut text).and_then(small_file::number);
    limit.and_then(|limit| u32::try_from(limit).ok()).unwrap_or(4096)
}

/// The fabric listens no more. What becomes of the socket then (listen(2) makes a listener of it again) is the kernel's.
pub(super) fn stop_listening(socket: &Socket, listener: &Listener) {
    listener.close();
    socket.become_kernel();
}

/// connect(2), with the bytes of a `struct sockaddr`.
pub fn connect(fd: RawFd, addr: &[u8]) -> Route<()> {
    let Some(held) = ours(fd) else {
        // As if the connection stood: "EISCONN The socket is already connected."
        return if inherited::is_lost(fd) { Route::err(Errno::ISCONN) } else { Route::Kernel };
    };
    if held.socket.role() == Role::Datagram {
        return datagram::connect(fd, &held, addr);
    }
    let Some(family) = addr.first_chunk() else { return Route::Kernel };
    if i32::from(u16::from_ne_bytes(*family)) == libc::AF_UNSPEC {
        dissolve(&held.socket);
        return Route::Kernel;
    }
    match held.socket.role() {
        Role::Listener | Role::Kernel | Role::KernelListener | Role::Deferred | Role::Datagram => return Route::Kernel,
        Role::Stream => return connect_again(fd, &held),
        Role::Fresh => {}
    }
    let Some(peer) = address::parse(addr).filter(|peer| peer.port() != 0) else { return Route::Kernel };
    // An IPv4 address on an IPv6 socket and the reverse are the kernel's to refuse.
    if peer.is_ipv6() != (held.socket.domain == libc::AF_INET6) {
        return Route::Kernel;
    }
    let to = address::destination(peer);
    let Some(service) = runtime::service() else { return leave_to_kernel(&held) };
    let started = {
        let _turn = match held.socket.connect_turn() {
            Ok(turn) => turn,
            Err(errno) => return Route::err(errno),
        };
        if held.socket.role() != Role::Fresh {
            // Another thread's connect was faster.
            None
        } else {
            if deferred::is_wanted(&held.socket) {
                return connect_later(fd, &held, &service, to);
            }
            match start_connect(fd, &held, &service, to, peer) {
                Err(ConnectFailure::Deferred) => return connect_later(fd, &held, &service, to),
                Err(failure) => {
                    account::fallback(failure);
                    return leave_to_kernel(&held);
                }
                Ok(stream) => {
                    held.socket.stream_begun();
                    Some(stream)
                }
            }
        }
    };
    match started {
        None => connect_again(fd, &held),
        // connect(2): "The socket is nonblocking and the connection cannot be completed immediately."
        Some(_) if held.is_nonblocking() => Route::err(Errno::INPROGRESS),
        Some(stream) => finish_connect(fd, &held, &stream, peer),
    }
}

/// The kernel connects, and the connection moves when it is first used, if the server is for it.
fn connect_later(fd: RawFd, held: &Held, service: &Arc<Service>, to: SocketAddr) -> Route<()> {
    let begun = held.socket.stream();
    if deferred::connect(fd, held, service, to, begun) {
        return Route::Kernel;
    }
    if let Some(begun) = begun {
        begun.not_started();
    }
    leave_to_kernel(held)
}

/// connect(2): "Some protocol sockets (e.g., TCP sockets …) may dissolve the association by connecting to an address with the
/// sa_family member of sockaddr set to AF_UNSPEC". TCP resets the connection; a listener listens no more.
fn dissolve(socket: &Socket) {
    if let Some(stream) = socket.stream() {
        stream.close(Some(Duration::ZERO), false);
        socket.become_kernel();
    } else if let Some(listener) = socket.listener() {
        stop_listening(socket, listener);
    }
}

/// The kernel connects; whether it can or not, it is the kernel's socket from now on.
fn leave_to_kernel(held: &Held) -> Route<()> {
    stats::add(Counter::ConnectedKernel, 1);
    held.socket.become_kernel();
    Route::Kernel
}

fn start_connect(
    fd: RawFd,
    held: &Held,
    service: &Arc<Service>,
    to: SocketAddr,
    peer: SocketAddr,
) -> core::result::Result<Arc<Stream>, ConnectFailure> {
    let options = &held.socket.options;
    let sizes = options.sizes();
    let request = ConnectTo {
        peer: to,
        local: connect::bound(kernel_name(fd)).filter(|local| local.is_ipv4() == to.is_ipv4()),
        kernel: Some(Kernel { fd, is_ipv6: held.socket.domain == libc::AF_INET6 }),
        silent: connect::is_silent(to.ip()),
        tos: options.tos(),
        path: options.path(),
        endpoint: sizes.endpoint(),
    };
    let patience = match held.socket.origin {
        Origin::Preload => config::get().connect_deadline,
        Origin::Native => NATIVE_DEADLINE,
    };
    let deadline = clock::deadline(clock::now(), Some(patience)).unwrap_or(u64::MAX);
    let fallback = if held.is_nonblocking() { Some(fallback(fd, peer).map_err(ConnectFailure::Limit)?) } else { None };
    let stream = Stream::connecting(service, &request, sizes, deadline, fallback);
    held.socket.begin_stream(Arc::clone(&stream));
    stream.start(&request)?;
    if let Err(errno) = service.run_in_background() {
        stream.close(Some(Duration::ZERO), false);
        return Err(ConnectFailure::Limit(errno));
    }
    stream.adopt(options);
    Ok(stream)
}

fn fallback(fd: RawFd, peer: SocketAddr) -> Result<Fallback> {
    Ok(Fallback { socket: descriptor::duplicate(fd)?, peer })
}

/// Waits for the outcome of a blocking connect.
fn finish_connect(fd: RawFd, held: &Held, stream: &Arc<Stream>, peer: SocketAddr) -> Route<()> {
    let deadline = clock::deadline(clock::now(), held.socket.options.send_timeout());
    match stream.wait_connected(Blocking::Until(deadline)) {
        Ok(Phase::Up) => Route::ok(()),
        Ok(Phase::Kernel) => leave_to_kernel(held),
        Ok(Phase::Connecting | Phase::Accepting | Phase::Failed) => {
            Route::err(stream.take_error().ok().flatten().unwrap_or(Errno::CONNREFUSED))
        }
        // Another thread has given it up.
        Ok(Phase::Closing | Phase::Closed) => Route::err(Errno::CONNRESET),
        Err(errno) => {
            // connect(2), signal(7): the connection goes on being made; the service sees to it.
            if let Ok(fallback) = fallback(fd, peer) {
                let _ = stream.set_fallback(fallback);
            }
            // socket(7), SO_SNDTIMEO: connect gives EINPROGRESS when the time is over.
            Route::err(if errno == Errno::AGAIN { Errno::INPROGRESS } else { errno })
        }
    }
}

/// connect on a socket that connects or is connected.
fn connect_again(fd: RawFd, held: &Held) -> Route<()> {
    let Some(stream) = held.socket.stream() else { return Route::Kernel };
    match stream.phase() {
        Phase::Up => {
            // The first connect after a nonblocking one that has succeeded says so (connect(2) on Linux gives 0 once, then EISCONN).
            if stream.first_report() { Route::ok(()) } else { Route::err(Errno::ISCONN) }
        }
        // The kernel's socket connects, or has.
        Phase::Connecting if stream.kernel_answers() => Route::Kernel,
        Phase::Connecting if held.is_nonblocking() => Route::err(Errno::ALREADY),
        Phase::Connecting => {
            let peer = stream.addresses().ok().and_then(|(_, peer)| peer);
            finish_connect(fd, held, stream, peer.unwrap_or_else(|| SocketAddr::from(([0, 0, 0, 0], 0))))
        }
        Phase::Failed => match stream.take_error() {
            Ok(Some(errno)) => Route::err(errno),
            // The error has been reported: connect starts anew, at the kernel.
            _ => leave_to_kernel(held),
        },
        Phase::Kernel => Route::Kernel,
        Phase::Accepting | Phase::Closing | Phase::Closed => Route::err(Errno::BADF),
    }
}

/// shutdown(2).
pub fn shutdown(fd: RawFd, how: i32) -> Route<()> {
    let Some(held) = deferred::used(fd) else { return Route::Kernel };
    if !matches!(held.socket.role(), Role::Listener | Role::Stream) {
        datagram::shutdown(&held, how);
        return Route::Kernel;
    }
    let (read, write) = match how {
        libc::SHUT_RD => (true, false),
        libc::SHUT_WR => (false, true),
        libc::SHUT_RDWR => (true, true),
        _ => return Route::err(Errno::INVAL),
    };
    if let Some(listener) = held.socket.listener() {
        // A listener writes nothing. Of its reading half shutdown ends listening: sleeping accepts return EINVAL.
        if read {
            stop_listening(&held.socket, listener);
        }
        return if listener.kernel_listens() { Route::Kernel } else { Route::ok(()) };
    }
    let Some(stream) = held.socket.stream() else { return Route::Kernel };
    if stream.is_moving() {
        // The peer waits for an end on the way that the connection takes.
        let _ = stream.wait_connected(Blocking::Until(None));
    }
    if stream.phase() == Phase::Connecting {
        // As TCP: whatever half it was, there will be no connection.
        dissolve(&held.socket);
        return Route::ok(());
    }
    match stream.shutdown(read, write) {
        Err(Errno::NOTCONN) if stream.phase() == Phase::Kernel => Route::Kernel,
        result => result.into(),
    }
}

fn name(
    fd: RawFd,
    missing: impl Fn(RawFd) -> Route<SocketAddr>,
    pick: impl Fn(&Stream, Option<SocketAddr>, Option<SocketAddr>) -> Option<SocketAddr>,
) -> Route<SocketAddr> {
    let Some(held) = ours(fd) else { return missing(fd) };
    let Some(stream) = held.socket.stream() else { return Route::Kernel };
    if stream.phase() == Phase::Connecting {
        return Route::Kernel;
    }
    match stream.addresses() {
        Ok((local, peer)) => {
            pick(stream, local, peer).map_or(Route::Kernel, |addr| Route::ok(address::as_domain(addr, held.socket.domain)))
        }
        Err(errno) => Route::err(errno),
    }
}

/// getsockname(2), as it goes into a `struct sockaddr` of the socket's family.
pub fn getsockname(fd: RawFd) -> Route<SocketAddr> {
    name(fd, |_| Route::Kernel, |_, local, _| local)
}

/// getpeername(2).
pub fn getpeername(fd: RawFd) -> Route<SocketAddr> {
    // A connection that is over has no peer: the kernel says ENOTCONN.
    name(fd, inherited::peer, |stream, _, peer| peer.filter(|_| !stream.is_over()))
}

#[cfg(test)]
mod tests;
