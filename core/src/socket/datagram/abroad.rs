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
    net::{RecvAncillaryBuffer, RecvFlags, SendAncillaryBuffer, SendFlags, SocketAddrAny, sockopt},
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
    socket::{address, runtime, wait::Interest},
    stats::{self, Counter},
    sys::{
        allocator,
        clock::{self, Nanos},
        descriptor,
        lock::Guard,
        ppoll::{PollFd, ppoll},
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
    let is_near = config::get().fabrics.shm() && (from == ip || outbox::source(destination, None).is_some());
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
    fn speaks(&self) -> bool {
        config::get().fabrics.verbs()
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
        let sent = self.remote.lock()?.send(own, destination, from, len, now);
        match sent {
            Sent::Queue => stats::add(Counter::DatagramsSentVerbs, 1),
            Sent::Dropped => stats::add(Counter::DatagramsDropped, 1),
            Sent::Plain => return Ok(Sending::Kernel),
            Sent::Asking(header) => return self.ask(fd, &header, from, len, to),
        }
        Ok(Sending::Done(len))
    }

    /// Sends a datagram behind a header.
    fn ask(&self, fd: RawFd, header: &UdpHeader, from: &[IoSlice<'_>], len: usize, to: Option<SocketAddr>) -> Result<Sending> {
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
            Err(errno) => Err(errno),
        }
    }

    /// Something of the protocol's that has come by the kernel's socket: what the program gets of it. The sender is answered. (A control message
    /// is an answer: there is a queue, or no use for it. Nothing is made then, as an epoll set may be locked.)
    fn hear(&self, fd: RawFd, source: SocketAddr, bytes: &[u8]) -> Result<Option<usize>> {
        let (peer, now) = (address::for_fabric(source), clock::now());
        let asks = UdpHeader::parse(bytes).is_some_and(|header| header.operation == Operation::Data);
        let own = self.own(fd, peer, asks, now)?.map(|own| own.ip());
        let Come { deliver_from, answer } = self.remote.lock()?.datagram(own, peer, bytes, now);
        if let Some(answer) = answer.filter(|_| !self.is_leaving())
            && let Err(errno) = send_kernel(fd, &answer, &[], Some(source))
        {
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
        Ok(Some(Received { len: if whole { len } else { copied }, source, truncated: copied < len }))
    }

    /// Looks for messages, and takes their announcements off.
    pub(super) fn look_abroad(&self) -> bool {
        let Ok(Some(mut remote)) = self.queues() else { return false };
        // Another thread may sleep whose announcement that was.
        let others = remote.clear_events() && self.sleepers.any();
        if others {
            remote.arm();
        }
        let there = remote.next_len(clock::now()).is_some();
        if others && there {
            self.sleepers.wake(Interest::READ);
        }
        there
    }

    /// Takes a datagram of the kernel's, without waiting. A header is not the program's, nor is a control message.
    pub(super) fn receive_kernel(&self, fd: RawFd, into: &mut [IoSliceMut<'_>], flags: i32) -> Result<Received> {
        if !self.speaks() || into.len() >= MOST_PIECES {
            return super::receive_kernel(fd, into, flags);
        }
        for _ in 0..CONTROLS {
            let room = into.iter().map(|slice| slice.len()).sum();
            let before = head(into, &[0; HEADER]);
            let mut spare = [0; HEADER];
            let (len, source) = receive_whole(fd, into, &mut spare, flags)?;
            let first = head(into, &spare);
            let header = source.and_then(|_| UdpHeader::parse(first.get(..len.min(HEADER)).unwrap_or_default()));
            let (Some(header), Some(source)) = (header, source) else { return Ok(received(len, room, source, flags)) };
            if flags & libc::MSG_PEEK != 0 {
                if header.operation == Operation::Control {
                    restore(into, &before);
                    self.take_control(fd)?;
                    continue;
                }
                shift(into, &spare, header.len());
                return Ok(received(len.saturating_sub(header.len()), room, Some(source), flags));
            }
            match self.hear(fd, source, first.get(..len.min(HEADER)).unwrap_or_default())? {
                Some(from) => {
                    shift(into, &spare, from);
                    return Ok(received(len.saturating_sub(from), room, Some(source), flags));
                }
                None => restore(into, &before),
            }
        }
        Err(Errno::AGAIN)
    }

    /// Takes the control message that comes next.
    fn take_control(&self, fd: RawFd) -> Result<()> {
        let mut bytes = [0; HEADER];
        if let (len, Some(source)) = receive_whole(fd, &mut [], &mut bytes, 0)? {
            self.hear(fd, source, bytes.get(..len.min(HEADER)).unwrap_or_default())?;
        }
        Ok(())
    }

    /// The header of the kernel's next datagram, if it has one; control messages are taken off. EAGAIN: there is none.
    fn next_header(&self, fd: RawFd) -> Result<Option<UdpHeader>> {
        for _ in 0..CONTROLS {
            let mut polled = [PollFd { fd, events: libc::POLLIN, revents: 0 }];
            ppoll(&mut polled, Some(Duration::ZERO), None)?;
            let [PollFd { revents: events, .. }] = polled;
            // An error is the program's, and a look would take it.
            if events & libc::POLLIN == 0 || events & libc::POLLERR != 0 {
                return Err(if events & libc::POLLERR != 0 { Errno::IO } else { Errno::AGAIN });
            }
            let mut bytes = [0; HEADER];
            let (len, source) = receive_whole(fd, &mut [], &mut bytes, libc::MSG_PEEK)?;
            let header = source.and_then(|_| UdpHeader::parse(bytes.get(..len.min(HEADER)).unwrap_or_default()));
            match header {
                Some(header) if header.operation == Operation::Control => self.take_control(fd)?,
                header => return Ok(header),
            }
        }
        Err(Errno::AGAIN)
    }

    /// The kernel's socket is readable: whether there is something for the program. (A blocking call would wait otherwise.)
    pub fn has_mail(&self, fd: RawFd) -> bool {
        !self.speaks() || self.next_header(fd) != Err(Errno::AGAIN)
    }

    /// FIONREAD, where the next one is the kernel's: `None` if the kernel's word is right.
    pub(super) fn next_len_behind_header(&self, fd: RawFd) -> Option<usize> {
        if !self.speaks() {
            return None;
        }
        let header = self.next_header(fd).ok()??;
        let bytes = descriptor::borrow(fd).and_then(|fd| rustix::io::ioctl_fionread(fd).ok())?;
        usize::try_from(bytes).ok()?.checked_sub(header.len())
    }
}

/// What a call says of a datagram of `len` bytes, for which there was `room`.
fn received(len: usize, room: usize, source: Option<SocketAddr>, flags: i32) -> Received {
    if flags & libc::MSG_PEEK == 0 {
        stats::add(Counter::DatagramsReceivedKernel, 1);
    }
    let whole = flags & libc::MSG_TRUNC != 0;
    Received { len: if whole { len } else { len.min(room) }, source, truncated: len > room }
}

/// Takes a datagram of the kernel's: its length, whatever there was room for, and its sender.
fn receive_whole(fd: RawFd, into: &mut [IoSliceMut<'_>], spare: &mut [u8; HEADER], flags: i32) -> Result<(usize, Option<SocketAddr>)> {
    let kernel = descriptor::borrow(fd).ok_or(Errno::BADF)?;
    let how = RecvFlags::from_bits_retain((flags & !libc::MSG_WAITFORONE).cast_unsigned()) | RecvFlags::DONTWAIT | RecvFlags::TRUNC;
    let mut slices: SmallVec<[rustix::io::IoSliceMut<'_>; FEW]> = into.iter_mut().map(|slice| rustix::io::IoSliceMut::new(slice)).collect();
    slices.push(rustix::io::IoSliceMut::new(spare));
    let received = rustix::net::recvmsg(kernel, &mut slices, &mut RecvAncillaryBuffer::default(), how)?;
    Ok((received.bytes, received.address.and_then(address::from_kernel)))
}

/// Sends a header, and what follows it, without waiting.
fn send_kernel(fd: RawFd, header: &UdpHeader, from: &[IoSlice<'_>], to: Option<SocketAddr>) -> Result<()> {
    let kernel = descriptor::borrow(fd).ok_or(Errno::BADF)?;
    let mut bytes = [0; HEADER];
    let len = header.emit(&mut bytes);
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
        let of = |len, room, flags| received(len, room, None, flags);
        assert_eq!((of(5, 5, 0).len, of(5, 5, 0).truncated), (5, false));
        assert_eq!((of(6, 5, 0).len, of(6, 5, 0).truncated), (5, true));
        assert_eq!((of(6, 5, libc::MSG_TRUNC).len, of(0, 0, 0).truncated), (6, false));
    }
}
