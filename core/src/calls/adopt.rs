//! Sockets from elsewhere: inherited by exec, or received over a Unix socket.
//!
//! Whatever brings a number into the process looks whether it is a socket of TCP or UDP, and notes it in the descriptor table ([`note`],
//! [`note_inherited`]). The first call on such a number adopts it: it is an rsocket then, as if this process had made it; one that is connected
//! only where connections move when they are first used (`calls::deferred`), else it is the kernel's. One that listens already does so on the fabrics once this process waits for connections there ([`awaited`]): whoever merely holds it, as a
//! program that starts servers, leaves the peers to others.
//!
//! The other way round, a socket that is given away stays the kernel's, or cannot go ([`give_away`]).
#![forbid(unsafe_code)]

use core::time::Duration;

use rustix::{
    fd::{AsRawFd, RawFd},
    fs::OFlags,
};

use super::{
    datagram, deferred, option,
    socket::{placeholder, start_listener},
};
use crate::{
    config,
    error::{Errno, Result},
    fd::{self, Held},
    log, log_debug,
    socket::{Origin, Role, Socket, listener::Listener, options::Options},
    stats::{self, Counter},
    sys::{
        descriptor, listeners, owner,
        ppoll::{self, PollFd},
        sockopt,
    },
};

/// States of a TCP socket, as TCP_INFO has them.
const TCP_ESTABLISHED: u8 = 1;
const TCP_CLOSE: u8 = 7;
const TCP_LISTEN: u8 = 10;

/// Numbers that are looked at by one system call.
const BLOCK: RawFd = 256;
/// Inherited numbers above this are not looked for.
const FAR: RawFd = 1 << 16;

/// How often, and how many times, a child looks whether its parent has done what it has been asked for.
const LOOK: Duration = Duration::from_micros(100);
const LOOKS: u32 = 5000;

/// A TCP socket.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Found {
    Unconnected,
    Listens,
    /// It has been accepted, perhaps, or has been connected: TCP's, unless its connections move later.
    Connected,
    /// Of UDP.
    Datagrams,
}

/// What stands under a number, if it is such a socket. Anything else costs one system call.
fn found(fd: RawFd) -> Option<Found> {
    match integer(fd, libc::SOL_SOCKET, libc::SO_PROTOCOL)? {
        libc::IPPROTO_TCP => {}
        libc::IPPROTO_UDP => return Some(Found::Datagrams),
        _ => return None,
    }
    let mut state = [0];
    sockopt::get(fd, libc::IPPROTO_TCP, libc::TCP_INFO, &mut state).ok()?;
    match state {
        [TCP_CLOSE] => Some(Found::Unconnected),
        [TCP_LISTEN] => Some(Found::Listens),
        [TCP_ESTABLISHED] => Some(Found::Connected),
        _ => None,
    }
}

fn integer(fd: RawFd, level: i32, name: i32) -> Option<i32> {
    let mut value = [0; 4];
    sockopt::get(fd, level, name, &mut value).ok()?;
    Some(i32::from_ne_bytes(value))
}

/// The kernel has given out a number for something that others have made.
pub fn note(fd: RawFd) {
    if found(fd).is_some() {
        fd::find(fd);
    }
}

/// Looks at the numbers that are open when the library is loaded. Neither allocates nor reads anything: it runs before the program and its
/// libraries, in each that is started.
pub fn note_inherited() {
    let limit = RawFd::try_from(descriptor::limit()).unwrap_or(RawFd::MAX).min(FAR);
    let mut first = 0;
    while first < limit {
        let mut block: [PollFd; BLOCK as usize] = core::array::from_fn(|at| PollFd { fd: first + at as RawFd, events: 0, revents: 0 });
        let length = usize::try_from(limit - first).unwrap_or(0).min(block.len());
        let Some(asked) = block.get_mut(..length) else { return };
        // Numbers that are not open: POLLNVAL.
        if ppoll::ppoll(asked, Some(Duration::ZERO), None).is_err() {
            return;
        }
        let open = asked.iter().filter(|one| one.revents & libc::POLLNVAL == 0);
        let count = open.map(|one| note(one.fd)).count();
        // The kernel gives out the lowest numbers first: behind so many that are free there are none.
        if count == 0 {
            return;
        }
        first += BLOCK;
    }
}

/// The description of a number that was noted: the socket is adopted, if it is (still) one to adopt.
#[cold]
#[inline(never)]
pub(super) fn adopted(fd: RawFd) -> Option<Held> {
    // A vfork child's descriptors are not those that the table is about.
    if !owner::is_current() {
        return None;
    }
    let Some((socket, nonblocking)) = taken_over(fd) else {
        fd::lose(fd);
        return None;
    };
    log_debug!("descriptor {fd} was made elsewhere, and is taken over");
    let held = fd::adopt(fd, socket, nonblocking)?;
    if config::deferral().is_on()
        && let Some(one) = identity(fd)
    {
        // A connection is often given to a program as its standard input and output.
        fd::share_found(&held, |other| identity(other) == Some(one));
    }
    Some(held)
}

/// What is one socket under all its numbers (socket(7), SO_COOKIE).
fn identity(fd: RawFd) -> Option<u64> {
    rustix::net::sockopt::socket_cookie(descriptor::borrow(fd)?).ok()
}

fn taken_over(fd: RawFd) -> Option<(Socket, bool)> {
    let found = found(fd)?;
    let deferred = config::deferral().is_on();
    if found == Found::Connected && !(deferred && may_be_accepted(fd)) {
        return None;
    }
    let domain = integer(fd, libc::SOL_SOCKET, libc::SO_DOMAIN)?;
    if found == Found::Datagrams && !datagram::is_to_be_adopted(domain) {
        return None;
    }
    log::prepare();
    stats::prepare();
    let flags = rustix::fs::fcntl_getfl(descriptor::borrow(fd)?).ok()?;
    if found == Found::Datagrams {
        return Some((Socket::shared_datagrams(domain), flags.contains(OFlags::NONBLOCK)));
    }
    if !config::preload().allows(config::program(), domain, libc::SOCK_STREAM, libc::IPPROTO_TCP) {
        stats::add(Counter::FallbackPolicy, 1);
        return None;
    }
    let socket = Socket::new(domain, Origin::Preload, Options::default());
    match found {
        Found::Unconnected | Found::Datagrams => {}
        Found::Listens if deferred => socket.become_kernel_listener(),
        Found::Listens => socket.listens_elsewhere(),
        Found::Connected => socket.become_deferred(),
    }
    settings(fd, &socket);
    Some((socket, flags.contains(OFlags::NONBLOCK)))
}

/// Whether a listener may have accepted the connection. To look for the other end of one that was made by connect would come to its server's
/// listener, as a connection of its own.
fn may_be_accepted(fd: RawFd) -> bool {
    let names = descriptor::borrow(fd).and_then(deferred::names);
    names.is_some_and(|(local, peer)| listeners::is_listened(local, peer) != Some(false))
}

/// What can have been set on a socket and matters to a connection or is shown by accepted sockets.
const SETTINGS: &[(i32, i32)] = &[
    (libc::SOL_SOCKET, libc::SO_KEEPALIVE),
    (libc::SOL_SOCKET, libc::SO_LINGER),
    (libc::SOL_SOCKET, libc::SO_RCVTIMEO),
    (libc::SOL_SOCKET, libc::SO_SNDTIMEO),
    (libc::SOL_SOCKET, libc::SO_RCVLOWAT),
    (libc::SOL_SOCKET, libc::SO_OOBINLINE),
    (libc::SOL_SOCKET, libc::SO_REUSEADDR),
    (libc::SOL_SOCKET, libc::SO_REUSEPORT),
    (libc::IPPROTO_TCP, libc::TCP_NODELAY),
    (libc::IPPROTO_TCP, libc::TCP_CORK),
    (libc::IPPROTO_TCP, libc::TCP_KEEPIDLE),
    (libc::IPPROTO_TCP, libc::TCP_KEEPINTVL),
    (libc::IPPROTO_TCP, libc::TCP_KEEPCNT),
    (libc::IPPROTO_TCP, libc::TCP_USER_TIMEOUT),
    (libc::IPPROTO_TCP, libc::TCP_LINGER2),
    (libc::IPPROTO_TCP, libc::TCP_SYNCNT),
    (libc::IPPROTO_TCP, libc::TCP_CONGESTION),
    (libc::IPPROTO_IP, libc::IP_TOS),
    (libc::IPPROTO_IP, libc::IP_TTL),
    (libc::IPPROTO_IPV6, libc::IPV6_TCLASS),
    (libc::IPPROTO_IPV6, libc::IPV6_UNICAST_HOPS),
];

/// Buffers are shown as twice what was set.
const DOUBLED: &[i32] = &[libc::SO_RCVBUF, libc::SO_SNDBUF];

/// Notes what was set on the socket where it comes from: what differs from a new one.
fn settings(fd: RawFd, socket: &Socket) {
    let Ok(new) = placeholder(socket.domain, libc::SOCK_CLOEXEC) else { return };
    for (level, name) in SETTINGS {
        let [mut own, mut usual] = [[0; 16]; 2];
        let value = sockopt::get(fd, *level, *name, &mut own).ok().and_then(|length| own.get(..length));
        let other = sockopt::get(new.as_raw_fd(), *level, *name, &mut usual).ok().and_then(|length| usual.get(..length));
        if let Some(value) = value.filter(|value| Some(*value) != other) {
            option::taken(fd, socket, *level, *name, value);
        }
    }
    for name in DOUBLED {
        let value = integer(fd, libc::SOL_SOCKET, *name);
        if let Some(value) = value.filter(|value| Some(*value) != integer(new.as_raw_fd(), libc::SOL_SOCKET, *name)) {
            option::taken(fd, socket, libc::SOL_SOCKET, *name, &(value / 2).to_ne_bytes());
        }
    }
}

/// This process waits for connections on the number. Where the socket listened before it came here, it does so on the fabrics too from now on,
/// unless another process that has it was first: then the kernel has it.
#[inline]
pub(super) fn awaited(fd: RawFd, held: &Held) {
    if held.socket.role() == Role::Fresh && held.socket.is_listening_elsewhere() {
        listen_too(fd, &held.socket);
    }
}

#[cold]
#[inline(never)]
fn listen_too(fd: RawFd, socket: &Socket) {
    // Of several threads that wait one makes it a listener.
    let Ok(_turn) = socket.connect_turn() else { return };
    if socket.role() != Role::Fresh {
        return;
    }
    match start_listener(socket, fd, backlog(fd)) {
        Some(listener) => {
            listener.share_kernel();
            socket.become_listener(listener);
        }
        None => socket.become_kernel(),
    }
}

/// The backlog that a listener was given: a listener's TCP_INFO has it in the place of tcpi_sacked.
fn backlog(fd: RawFd) -> u32 {
    const SACKED: usize = 28;
    let mut info = [0; SACKED + 4];
    let read = sockopt::get(fd, libc::IPPROTO_TCP, libc::TCP_INFO, &mut info);
    let bytes = info.last_chunk().filter(|_| read == Ok(SACKED + 4));
    bytes.map_or(0, |bytes| u32::from_ne_bytes(*bytes))
}

/// Another process is to have this number, too. A listener's peers come through the kernel from now on, where either finds them. A connection
/// over a fabric cannot be had by another process: EINVAL, as the kernel says of other descriptors of which that is true.
pub fn give_away(fd: RawFd) -> Result<()> {
    let Some(held) = super::ours(fd) else { return Ok(()) };
    if let Some(listener) = held.socket.listener() {
        listener.leave_fabrics();
    }
    if let Some(datagram) = held.socket.datagram() {
        datagram.share();
    }
    if let Some(stream) = held.socket.stream() {
        // What the program has not used yet can go.
        stream.stay();
    }
    if held.socket.live_stream().is_some() {
        log::warn_once(
            "rights",
            "a connection over RDMA or shared memory cannot be passed to another process (RSOCKET_FABRIC=kernel: TCP's can)",
        );
        return Err(Errno::INVAL);
    }
    Ok(())
}

/// Another program is about to have what is not close-on-exec: the caller, a child that has the memory in common with its parent (vfork(2)),
/// becomes it, or starts it without fork (posix_spawn(3), system(3)). What holds for a forked child holds for it (`service::forks`): listeners
/// leave the fabrics unless the program itself is seen to serve them, and connections that are not used yet stay with TCP.
pub fn child_execs() {
    fd::each(|number, held| {
        if is_shareable(held.socket.role()) && stays_open(number) {
            share(&held.socket);
        }
    });
}

/// What is not the kernel's alone.
fn is_shareable(role: Role) -> bool {
    matches!(role, Role::Listener | Role::Stream | Role::Datagram)
}

fn share(socket: &Socket) {
    if let Some(listener) = socket.listener()
        && listener.share_soon()
    {
        wait_until(|| listener.has_left_fabrics());
    }
    if let Some(datagram) = socket.datagram() {
        datagram.share();
    }
    if let Some(stream) = socket.stream()
        && stream.stay_soon()
    {
        wait_until(|| !stream.is_moving());
    }
}

/// The listeners are given away: with a connection over a fabric another process can do nothing.
fn leave_all() {
    fd::each(|_, held| {
        if let Some(listener) = held.socket.listener() {
            leave(listener);
        }
        if let Some(datagram) = held.socket.datagram() {
            datagram.share();
        }
    });
}

/// The service's thread, which runs on, does it for a child that shares this memory; which goes on when it is done: a peer must not be faster.
fn leave(listener: &Listener) {
    if owner::is_current() {
        return listener.leave_fabrics();
    }
    listener.leave_fabrics_soon();
    wait_until(|| listener.has_left_fabrics());
}

fn wait_until(done: impl Fn() -> bool) {
    for _ in 0..LOOKS {
        if done() {
            return;
        }
        let _ = ppoll::ppoll(&mut [], Some(LOOK), None);
    }
}

/// execve(2): "File descriptors that are marked close-on-exec are closed".
fn stays_open(fd: RawFd) -> bool {
    let flags = descriptor::borrow(fd).and_then(|fd| rustix::io::fcntl_getfd(fd).ok());
    flags.is_some_and(|flags| !flags.contains(rustix::io::FdFlags::CLOEXEC))
}

/// Such a child has made a duplicate for itself, has taken off FD_CLOEXEC, or is to have a duplicate from the start: it is given away on purpose.
/// So is a listener, whoever has served it. With a connection over a fabric the child can do nothing; but a program that gives these to others
/// will do so again, and they can have TCP's.
pub fn child_duplicates(fd: RawFd) {
    let Some(held) = fd::get(fd) else { return };
    match held.socket.role() {
        Role::Listener => held.socket.listener().into_iter().for_each(|listener| leave(listener)),
        Role::Stream => {
            share(&held.socket);
            if held.socket.live_stream().is_some() {
                leave_all();
            }
        }
        Role::Datagram => held.socket.datagram().into_iter().for_each(|datagram| datagram.share()),
        Role::Fresh | Role::Kernel | Role::KernelListener | Role::Deferred => {}
    }
}

#[cfg(test)]
mod tests {
    use std::{
        net::{TcpListener, TcpStream, UdpSocket},
        os::fd::AsRawFd as _,
    };

    use super::*;

    #[test]
    fn sockets_are_told_from_all_others() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let client = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        let fresh = placeholder(libc::AF_INET6, libc::SOCK_CLOEXEC).unwrap();
        let datagrams = UdpSocket::bind("127.0.0.1:0").unwrap();
        let file = std::fs::File::open("/dev/null").unwrap();
        assert_eq!(found(listener.as_raw_fd()), Some(Found::Listens));
        assert_eq!(found(fresh.as_raw_fd()), Some(Found::Unconnected));
        assert_eq!(found(client.as_raw_fd()), Some(Found::Connected));
        assert_eq!(found(datagrams.as_raw_fd()), Some(Found::Datagrams));
        let others = [file.as_raw_fd(), -1];
        assert_eq!(others.map(found), [None; 2]);
    }

    #[test]
    fn what_was_set_and_the_backlog_are_found() {
        let socket = placeholder(libc::AF_INET, libc::SOCK_CLOEXEC).unwrap();
        let fd = socket.as_raw_fd();
        for (level, name, value) in [(libc::SOL_SOCKET, libc::SO_RCVBUF, 40_000), (libc::IPPROTO_TCP, libc::TCP_NODELAY, 1_i32)] {
            sockopt::set(fd, level, name, &value.to_ne_bytes()).unwrap();
        }
        rustix::net::listen(&socket, 17).unwrap();
        assert_eq!(backlog(fd), 17);
        let adopted = Socket::new(libc::AF_INET, Origin::Preload, Options::default());
        settings(fd, &adopted);
        assert_eq!(adopted.options.sizes().receive_bytes, 80_000);
        let kept = adopted.options.inherit().1;
        let kept: Vec<_> = kept.iter().map(|setting| (setting.level, setting.name)).collect();
        assert_eq!(kept, [(libc::IPPROTO_TCP, libc::TCP_NODELAY), (libc::SOL_SOCKET, libc::SO_RCVBUF)]);
    }

    #[test]
    fn a_number_is_adopted_once() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let fd = listener.as_raw_fd();
        note(fd);
        assert!(fd::is_ours(fd) && fd::get(fd).is_none());
        let held = super::super::ours(fd).unwrap();
        assert!(held.socket.role() == Role::Fresh && held.socket.is_listening_elsewhere());
        assert!(super::super::ours(fd).is_some() && !held.is_nonblocking());
        fd::forget(fd);
        // Not one any more when it is looked at.
        let number = 900_021;
        fd::find(number);
        assert!(fd::is_found(number) && super::super::ours(number).is_none() && !fd::is_ours(number));
    }
}
