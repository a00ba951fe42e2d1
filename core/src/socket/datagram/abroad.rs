//! Datagrams to and from other hosts: by queue pairs where the peer has one ([`Remote`]), and what of the protocol goes by the kernel's socket.

use core::{
    net::{IpAddr, SocketAddr},
    sync::atomic::Ordering,
    time::Duration,
};
use std::{
    io::{IoSlice, IoSliceMut},
    os::fd::RawFd,
};

use rustix::{
    fd::BorrowedFd,
    net::{SendAncillaryBuffer, SendFlags, SocketAddrAny, sockopt},
};
use smallvec::SmallVec;

use super::{
    Datagram, FEW, Received, Sending, count_kernels, outbox,
    remote::{Come, Message, Remote, Sent},
};
use crate::{
    config,
    error::{Errno, Result},
    fabric::{datagram::Queue, shm::datagram::Inbox},
    log_debug,
    socket::{address, connect, runtime, wait::Interest},
    stats::{self, Counter},
    sys::{
        allocator,
        clock::{self, Nanos},
        descriptor,
        lock::Guard,
        message,
        ppoll::{PollFd, ppoll},
        sockopt as option,
    },
    wire::{Operation, UdpHeader},
};

/// Bytes of the longest header.
const HEADER: usize = UdpHeader::V6_BYTES;
/// Control messages that one look takes off.
const CONTROLS: usize = 64;
/// How long it is believed from which address a destination is sent to, or that no device has it, in nanoseconds.
const ORIGIN_TIME: Nanos = 1_000_000_000;
/// The kernel takes no more pieces (UIO_MAXIOV).
const MOST_PIECES: usize = 1024;

/// From where the kernel sends to a destination of another host. `None`: it is no single host's, or this one's.
fn origin(kernel: BorrowedFd<'_>, destination: SocketAddr) -> Option<SocketAddr> {
    let ip = destination.ip();
    let single = !ip.is_multicast() && !ip.is_unspecified() && !ip.is_loopback();
    // Of which addresses are broadcast the kernel alone knows.
    let broadcasts = sockopt::socket_broadcast(kernel).unwrap_or(true);
    let local = address::local(kernel).map(address::for_fabric)?;
    if !single || broadcasts || !outbox::may_reach(kernel, Some(local), destination) {
        return None;
    }
    let from = if local.ip().is_unspecified() { source(destination)? } else { local.ip() };
    // Somebody of this host would have been found in shared memory.
    let shm = config::get().fabrics.shm() && !config::get().fabrics.verbs_first();
    let is_near = shm && (from == ip || outbox::source(destination, None).is_some());
    (!is_near && from.is_ipv4() == ip.is_ipv4()).then(|| SocketAddr::new(from, local.port()))
}

/// The address that the kernel would send from.
fn source(destination: SocketAddr) -> Option<IpAddr> {
    use rustix::net::{AddressFamily, SocketFlags, SocketType};
    let family = if destination.is_ipv4() { AddressFamily::INET } else { AddressFamily::INET6 };
    let probe = rustix::net::socket_with(family, SocketType::DGRAM, SocketFlags::CLOEXEC, None).ok()?;
    // udp(7): connecting sends nothing, but chooses the source address.
    rustix::net::connect(&probe, &destination).ok()?;
    address::local(&probe).map(|local| local.ip())
}

impl Datagram {
    /// Whether the protocol of the wire is spoken: peers may ask, and are asked.
    pub fn speaks(&self) -> bool {
        config::get().fabrics.verbs()
    }

    /// Queue pairs come before shared memory, and the destination is one that they reach from here.
    pub(super) fn is_for_verbs(&self, fd: RawFd, to: Option<SocketAddr>) -> Result<bool> {
        if !config::get().fabrics.verbs_first() {
            return Ok(false);
        }
        let Some(to) = to.or(self.outbox.lock()?.peer()) else { return Ok(false) };
        Ok(self.own(fd, address::destination(to), true, clock::now())?.is_some())
    }

    /// The kernel has said this of the socket, to the library: it is the program's.
    fn keep(&self, errno: Errno) -> Result<()> {
        self.note(errno)?;
        let _ = self.error.compare_exchange(0, errno.raw_os_error(), Ordering::Relaxed, Ordering::Relaxed);
        self.sleepers.wake(Interest::all());
        Ok(())
    }

    /// The kernel says this of the socket.
    fn note(&self, errno: Errno) -> Result<()> {
        if errno == Errno::CONNREFUSED
            && let Some(mut remote) = self.queues()?
            && let Some(peer) = remote.refused()
        {
            connect::forget_asked(peer);
        }
        Ok(())
    }

    /// The error that was kept, as that of the next call.
    pub(super) fn report_error(&self) -> Result<()> {
        if self.error.load(Ordering::Relaxed) == 0 {
            return Ok(());
        }
        match self.error.swap(0, Ordering::Relaxed) {
            0 => Ok(()),
            error => Err(Errno::from_raw_os_error(error)),
        }
    }

    /// SO_ERROR: the pending error, once.
    pub fn take_error(&self, fd: RawFd) -> Result<i32> {
        if let Err(errno) = self.report_error() {
            return Ok(errno.raw_os_error());
        }
        let mut value = [0; 4];
        option::get(fd, libc::SOL_SOCKET, libc::SO_ERROR, &mut value)?;
        let error = i32::from_ne_bytes(value);
        if error != 0 {
            self.note(Errno::from_raw_os_error(error))?;
        }
        Ok(error)
    }

    /// The socket is about to be closed: those are told who would go on to send to its queues.
    pub fn bid_farewell(&self, fd: RawFd) {
        let Ok(Some(mut remote)) = self.queues() else { return };
        let all = remote.farewells(clock::now());
        drop(remote);
        for (peer, header) in all {
            let _ = send_kernel(fd, Some(&header), &[], Some(address::as_domain(peer, self.domain)));
        }
    }

    /// Who only sends hears the answers here.
    pub(super) fn look_for_answers(&self, fd: RawFd) -> Result<()> {
        if self.queues()?.is_some_and(|mut remote| remote.is_look_due(clock::now())) {
            let _ = self.next_header(&self.kernel.lock()?, fd);
        }
        Ok(())
    }

    /// What there is of queues; `None`: nothing.
    pub(super) fn queues(&self) -> Result<Option<Guard<'_, Remote>>> {
        Ok(if self.has_queue.load(Ordering::Acquire) { Some(self.remote.lock()?) } else { None })
    }

    /// The own address and port towards a destination or source, where there is a queue for it, which is made first if that `may` be.
    fn own(&self, fd: RawFd, destination: SocketAddr, may: bool, now: Nanos) -> Result<Option<SocketAddr>> {
        if let Some(own) = self.remote.lock()?.origin(destination, now) {
            return Ok(own);
        }
        let own = descriptor::borrow(fd).and_then(|kernel| origin(kernel, destination));
        if !may {
            return Ok(own);
        }
        let own = match own {
            Some(own) if self.make_queue(own.ip())? => Some(own),
            _ => None,
        };
        self.remote.lock()?.set_origin(destination, own, now.saturating_add(ORIGIN_TIME));
        Ok(own)
    }

    /// Whether there is a queue for a local address; made if need be.
    fn make_queue(&self, local: IpAddr) -> Result<bool> {
        if self.remote.lock()?.has(local) {
            return Ok(true);
        }
        if self.is_leaving() || allocator::is_exhausted() {
            return Ok(false);
        }
        let Some(service) = runtime::service() else { return Ok(false) };
        let made = service.fabric().datagrams(local).and_then(|queue| service.run_in_background().map(|()| queue));
        match made {
            Ok(queue) => self.add_queue(queue),
            Err(errno) => {
                log_debug!("no datagrams of {local} over RDMA: {errno}");
                Ok(false)
            }
        }
    }

    fn add_queue(&self, queue: Box<dyn Queue>) -> Result<bool> {
        let mut incoming = self.inbox.lock()?;
        if incoming.closed {
            return Err(Errno::BADF);
        }
        let before = incoming.inbox.is_some();
        if !before {
            let inbox = Inbox::new(self.domain == libc::AF_INET6)?;
            self.event_fd.store(inbox.event_fd(), Ordering::Relaxed);
            incoming.inbox = Some(inbox);
        }
        if let (Some(inbox), Some(fd)) = (&incoming.inbox, queue.event_fd()) {
            inbox.follow(fd)?;
        }
        let added = self.remote.lock()?.add(queue);
        self.has_queue.store(true, Ordering::Release);
        drop(incoming);
        if !before || self.sleepers.any() {
            // Who sleeps has another descriptor to sleep on, or is not armed.
            self.sleepers.wake(Interest::all());
        }
        Ok(added)
    }

    /// Sends to a destination that is not found in shared memory: `to` or, where that is `None`, to whom the socket is connected.
    pub(super) fn send_abroad(&self, fd: RawFd, from: &[IoSlice<'_>], len: usize, to: Option<SocketAddr>) -> Result<Sending> {
        if !self.speaks() {
            return Ok(Sending::Kernel);
        }
        let Some(named) = to.or(self.outbox.lock()?.peer()) else { return Ok(Sending::Kernel) };
        let (destination, now) = (address::destination(named), clock::now());
        let Some(own) = self.own(fd, destination, true, now)? else { return Ok(Sending::Kernel) };
        let mut remote = self.remote.lock()?;
        let (is_new, connected) = (remote.is_new(destination), remote.is_connected());
        let is_plain = is_new && (!remote.is_to_be_asked(destination) || connect::is_asked(destination));
        let sent = if is_plain { Sent::Plain } else { remote.send(own, destination, from, len, now) };
        drop(remote);
        if is_new && matches!(sent, Sent::Asking(_)) {
            connect::remember_asked(destination);
        }
        match sent {
            Sent::Queue => stats::add(Counter::DatagramsSentVerbs, 1),
            Sent::Dropped => stats::add(Counter::DatagramsDropped, 1),
            // What comes back of it is to be known.
            Sent::Plain if connected && to.is_none() => return self.send_by_kernel(fd, None, from, len, to),
            Sent::Plain => return Ok(Sending::Kernel),
            Sent::Asking(header) => {
                let asked = self.send_by_kernel(fd, Some(&header), from, len, to)?;
                if asked == Sending::Kernel {
                    self.remote.lock()?.was_not_asked(destination);
                    connect::forget_asked(destination);
                }
                return Ok(asked);
            }
        }
        Ok(Sending::Done(len))
    }

    /// Sends a datagram, perhaps behind a header.
    fn send_by_kernel(
        &self,
        fd: RawFd,
        header: Option<&UdpHeader>,
        from: &[IoSlice<'_>],
        len: usize,
        to: Option<SocketAddr>,
    ) -> Result<Sending> {
        if from.len() >= MOST_PIECES {
            return Ok(Sending::Kernel);
        }
        match send_kernel(fd, header, from, to) {
            Ok(()) => {
                count_kernels();
                Ok(Sending::Done(len))
            }
            // The kernel may wait for room; and without the header it may fit.
            Err(Errno::AGAIN | Errno::MSGSIZE | Errno::INTR) => Ok(Sending::Kernel),
            Err(errno) => {
                self.note(errno)?;
                Err(errno)
            }
        }
    }

    /// Something of the protocol's that has come by the kernel's socket: what the program gets of it. The sender is answered. (A control message
    /// is an answer: there is a queue, or no use for it. Nothing is made then, as an epoll set may be locked.)
    fn hear(&self, fd: RawFd, source: SocketAddr, bytes: &[u8]) -> Result<Option<usize>> {
        let (peer, now) = (address::for_fabric(source), clock::now());
        connect::forget_asked(peer);
        let asks = UdpHeader::parse(bytes).is_some_and(|header| header.operation == Operation::Data);
        let own = self.own(fd, peer, asks, now)?.map(|own| own.ip());
        let mut remote = self.remote.lock()?;
        let (Come { deliver_from, answer }, connected) = (remote.datagram(own, peer, bytes, now), remote.is_connected());
        drop(remote);
        let Some(answer) = answer.filter(|_| !self.is_leaving()) else { return Ok(deliver_from) };
        let mut sent = send_kernel(fd, Some(&answer), &[], Some(source));
        if let Err(errno) = sent
            && connected
            && is_pending(errno)
        {
            self.keep(errno)?;
            sent = send_kernel(fd, Some(&answer), &[], Some(source));
        }
        if let Err(errno) = sent {
            log_debug!("no answer to {source}: {errno}");
        }
        Ok(deliver_from)
    }

    /// Takes a message.
    pub(super) fn take_abroad(&self, into: &mut [IoSliceMut<'_>], flags: i32, at_once: bool) -> Result<Option<Received>> {
        let stays = flags & libc::MSG_PEEK != 0;
        let Some(mut remote) = self.queues()? else { return Ok(None) };
        let now = clock::now();
        let Some(Message { copied, len, source }) = remote.take(into, stays, at_once, now) else { return Ok(None) };
        if !stays {
            stats::add(Counter::DatagramsReceivedVerbs, 1);
        }
        if self.sleepers.any() && remote.next_len(now).is_some() {
            self.sleepers.wake(Interest::READ);
        }
        let whole = flags & libc::MSG_TRUNC != 0;
        let source = Some(address::as_domain(source, self.domain));
        Ok(Some(Received { len: if whole { len } else { copied }, source, truncated: copied < len, control: 0, flags: 0 }))
    }

    /// Takes a datagram of the kernel's, without waiting. A header is not the program's, nor is a control message.
    pub(super) fn receive_kernel(&self, fd: RawFd, into: &mut [IoSliceMut<'_>], control: &mut [u8], flags: i32) -> Result<Received> {
        if !self.speaks() || into.len() >= MOST_PIECES {
            return super::receive_kernel(fd, into, control, flags);
        }
        let turn = self.kernel.lock()?;
        let taken = self.receive_sifted(&turn, fd, into, control, flags);
        if let Err(errno) = taken {
            self.note(errno)?;
        }
        taken
    }

    fn receive_sifted(
        &self,
        turn: &Guard<'_, ()>,
        fd: RawFd,
        into: &mut [IoSliceMut<'_>],
        control: &mut [u8],
        flags: i32,
    ) -> Result<Received> {
        for _ in 0..CONTROLS {
            let room = into.iter().map(|slice| slice.len()).sum();
            let before = head(into, &[0; HEADER]);
            let mut spare = [0; HEADER];
            let whole = receive_whole(fd, into, &mut spare, control, flags)?;
            let first = head(into, &spare);
            let first = first.get(..whole.len.min(HEADER)).unwrap_or_default();
            let header = whole.source.and_then(|_| UdpHeader::parse(first));
            let (Some(header), Some(source)) = (header, whole.source) else {
                if let Some(source) = whole.source.filter(|_| !self.is_leaving()) {
                    self.remote.lock()?.plain(address::for_fabric(source));
                }
                return Ok(received(&whole, 0, room, flags));
            };
            let begins = if flags & libc::MSG_PEEK == 0 {
                self.hear(fd, source, first)?
            } else {
                (header.operation == Operation::Data).then(|| header.len())
            };
            match begins {
                Some(begins) => {
                    shift(into, &spare, begins);
                    return Ok(received(&whole, begins, room, flags));
                }
                None => restore(into, &before),
            }
            if flags & libc::MSG_PEEK != 0 {
                self.take_control(turn, fd)?;
            }
        }
        Err(Errno::AGAIN)
    }

    /// Takes the control message that comes next.
    fn take_control(&self, _: &Guard<'_, ()>, fd: RawFd) -> Result<()> {
        let mut bytes = [0; HEADER];
        let whole = receive_whole(fd, &mut [], &mut bytes, &mut [], 0)?;
        if let Some(source) = whole.source {
            self.hear(fd, source, bytes.get(..whole.len.min(HEADER)).unwrap_or_default())?;
        }
        Ok(())
    }

    /// The header of the kernel's next datagram, if it has one; control messages are taken off. EAGAIN: there is none.
    fn next_header(&self, turn: &Guard<'_, ()>, fd: RawFd) -> Result<Option<UdpHeader>> {
        for _ in 0..CONTROLS {
            let mut polled = [PollFd { fd, events: libc::POLLIN | libc::POLLRDHUP, revents: 0 }];
            ppoll(&mut polled, Some(Duration::ZERO), None)?;
            let [PollFd { revents: events, .. }] = polled;
            // An error without anything to read stays where it is.
            if events & libc::POLLIN == 0 {
                return Err(Errno::AGAIN);
            }
            let mut bytes = [0; HEADER];
            let whole = match receive_whole(fd, &mut [], &mut bytes, &mut [], libc::MSG_PEEK) {
                Err(errno) if is_pending(errno) => {
                    self.keep(errno)?;
                    continue;
                }
                // It was shut down, and is readable for that.
                Err(Errno::AGAIN) if events & libc::POLLRDHUP != 0 => return Err(Errno::IO),
                whole => whole?,
            };
            let header = whole.source.and_then(|_| UdpHeader::parse(bytes.get(..whole.len.min(HEADER)).unwrap_or_default()));
            match header {
                Some(header) if header.operation == Operation::Control => self.take_control(turn, fd)?,
                header => return Ok(header),
            }
        }
        Err(Errno::AGAIN)
    }

    /// The kernel's socket is readable: whether there is something for the program. (A blocking call would wait otherwise.)
    pub fn has_mail(&self, fd: RawFd) -> bool {
        if !self.speaks() || self.for_good.load(Ordering::Acquire) {
            return true;
        }
        self.kernel.lock().map_or(true, |turn| self.next_header(&turn, fd) != Err(Errno::AGAIN))
    }

    /// Waits in the kernel, as the socket and these flags have it, until it has something. A datagram of nothing from nobody: there is nothing
    /// to wait for any more.
    pub(super) fn await_kernel(&self, fd: RawFd, flags: i32) -> Result<Option<Received>> {
        let message = message::receive(fd, &mut [], &mut [], flags & libc::MSG_DONTWAIT | libc::MSG_PEEK)?;
        let over = message.source().is_empty();
        Ok(over.then_some(Received { len: 0, source: None, truncated: false, control: 0, flags: 0 }))
    }

    /// FIONREAD, where the next one is the kernel's: `None` if the kernel's word is right.
    pub(super) fn next_len_behind_header(&self, fd: RawFd) -> Option<usize> {
        if !self.speaks() {
            return None;
        }
        let header = self.next_header(&self.kernel.lock().ok()?, fd).ok()??;
        let bytes = descriptor::borrow(fd).and_then(|fd| rustix::io::ioctl_fionread(fd).ok())?;
        usize::try_from(bytes).ok()?.checked_sub(header.len())
    }
}

/// Errors that others have caused wait in a connected socket until somebody calls (udp(7)).
fn is_pending(errno: Errno) -> bool {
    matches!(
        errno,
        Errno::CONNREFUSED | Errno::HOSTUNREACH | Errno::NETUNREACH | Errno::HOSTDOWN | Errno::NONET | Errno::NOPROTOOPT | Errno::PROTO
    )
}

/// What a call says of a datagram whose first bytes, up to `begins`, are not the program's, and for which there was `room`.
fn received(whole: &Whole, begins: usize, room: usize, flags: i32) -> Received {
    if flags & libc::MSG_PEEK == 0 {
        stats::add(Counter::DatagramsReceivedKernel, 1);
    }
    let len = whole.len.saturating_sub(begins);
    let told = if flags & libc::MSG_TRUNC != 0 { len } else { len.min(room) };
    Received { len: told, source: whole.source, truncated: len > room, control: whole.control, flags: whole.flags }
}

/// A datagram of the kernel's: its whole length, its sender, and what control data there was room for.
#[derive(Clone, Copy, Debug, Default)]
struct Whole {
    len: usize,
    source: Option<SocketAddr>,
    control: usize,
    flags: i32,
}

/// Takes a datagram of the kernel's, and whatever of it there is room for.
fn receive_whole(fd: RawFd, into: &mut [IoSliceMut<'_>], spare: &mut [u8; HEADER], control: &mut [u8], flags: i32) -> Result<Whole> {
    let how = flags & !libc::MSG_WAITFORONE | libc::MSG_DONTWAIT | libc::MSG_TRUNC;
    let mut slices: SmallVec<[IoSliceMut<'_>; FEW]> = into.iter_mut().map(|slice| IoSliceMut::new(slice)).collect();
    slices.push(IoSliceMut::new(spare));
    let got = message::receive(fd, &mut slices, control, how)?;
    Ok(Whole { len: got.len, source: address::parse(got.source()), control: got.control, flags: got.flags & libc::MSG_CTRUNC })
}

/// Sends a header, if there is one, and what follows it, without waiting.
fn send_kernel(fd: RawFd, header: Option<&UdpHeader>, from: &[IoSlice<'_>], to: Option<SocketAddr>) -> Result<()> {
    let kernel = descriptor::borrow(fd).ok_or(Errno::BADF)?;
    let mut bytes = [0; HEADER];
    let len = header.map_or(0, |header| header.emit(&mut bytes));
    let mut slices: SmallVec<[rustix::io::IoSlice<'_>; FEW]> = SmallVec::new();
    slices.push(rustix::io::IoSlice::new(bytes.get(..len).unwrap_or_default()));
    slices.extend(from.iter().map(|slice| rustix::io::IoSlice::new(slice)));
    let (flags, mut control) = (SendFlags::DONTWAIT | SendFlags::NOSIGNAL, SendAncillaryBuffer::default());
    match to {
        Some(to) => rustix::net::sendmsg_addr(kernel, &SocketAddrAny::from(to), &slices, &mut control, flags),
        None => rustix::net::sendmsg(kernel, &slices, &mut control, flags),
    }
    .map(drop)
}

/// The first bytes of `into` and, behind it, `spare`.
fn head(into: &[IoSliceMut<'_>], spare: &[u8; HEADER]) -> [u8; HEADER] {
    let mut head = [0; HEADER];
    let all = into.iter().flat_map(|slice| slice.iter()).chain(spare);
    head.iter_mut().zip(all).for_each(|(to, from)| *to = *from);
    head
}

/// Puts the first bytes of `into` back.
fn restore(into: &mut [IoSliceMut<'_>], before: &[u8; HEADER]) {
    into.iter_mut().flat_map(|slice| slice.iter_mut()).zip(before).for_each(|(to, from)| *to = *from);
}

/// Drops the first bytes of `into` and, behind it, `spare`.
fn shift(into: &mut [IoSliceMut<'_>], spare: &[u8; HEADER], by: usize) {
    let all: Vec<u8> = into.iter().flat_map(|slice| slice.iter()).chain(spare).skip(by).copied().collect();
    into.iter_mut().flat_map(|slice| slice.iter_mut()).zip(&all).for_each(|(to, from)| *to = *from);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_header_is_taken_out_of_pieces() {
        let (mut one, mut two, spare) = ([1, 2, 3], [4, 5], core::array::from_fn(|at| 6 + at as u8));
        let mut into = [IoSliceMut::new(&mut one), IoSliceMut::new(&mut []), IoSliceMut::new(&mut two)];
        let before = head(&into, &spare);
        assert_eq!(before[..7], [1, 2, 3, 4, 5, 6, 7]);
        shift(&mut into, &spare, 16);
        assert_eq!(head(&into, &[0; HEADER])[..6], [17, 18, 19, 20, 21, 0]);
        restore(&mut into, &before);
        assert_eq!((one, two), ([1, 2, 3], [4, 5]));
    }

    #[test]
    fn what_a_call_says() {
        let of = |len, room, flags| received(&Whole { len: len + 16usize, ..Whole::default() }, 16, room, flags);
        assert_eq!((of(5, 5, 0).len, of(5, 5, 0).truncated), (5, false));
        assert_eq!((of(6, 5, 0).len, of(6, 5, 0).truncated), (5, true));
        assert_eq!((of(6, 5, libc::MSG_TRUNC).len, of(0, 0, 0).truncated), (6, false));
    }
}
