//! Datagram sockets that were asked for: peers of this host through shared memory, others by queue pairs where both ends have them, and all the
//! rest through the kernel's socket, whose address it is.
//!
//! Nothing waits for a peer to be found: what a datagram finds when it is sent is the way it goes. A full queue drops, as UDP does.
//!
//! A socket that is left to the kernel, for what only the kernel can do, is still looked at where the protocol of the wire is spoken: peers that
//! ask put a header in front of what they send.
//!
//! Locks: `kernel`, `outbox`, `inbox` and `remote` are engine locks (DESIGN: lock 4), in this order, held for a look or a copy. Who has `kernel`
//! is the only one that takes what the kernel's socket has, so that what was looked at is what is taken.

use core::{
    net::SocketAddr,
    sync::atomic::{AtomicBool, AtomicI32, AtomicU32, Ordering},
};
use std::{
    io::{IoSlice, IoSliceMut},
    os::fd::RawFd,
};

use libc::{POLLERR, POLLIN, POLLOUT, POLLRDNORM, POLLWRNORM};

use super::{
    address,
    spin::Spin,
    stream::Blocking,
    wait::{Interest, Sleepers},
};
use crate::{
    config,
    error::{Errno, Result},
    fabric::shm::datagram::{Inbox, Taken},
    log_debug,
    stats::{self, Counter},
    sys::{clock, descriptor, lock::Lock, message},
};

mod abroad;
mod outbox;
mod place;
mod remote;
mod turns;
mod waiting;

use outbox::{Outbox, Way};
use place::{Place, place_of};
use remote::Remote;
use turns::Turns;
use waiting::Looker;

/// How many datagram sockets there ever were: a process that has had none need not look.
static EVER: AtomicU32 = AtomicU32::new(0);

/// Arrays up to this size need no allocation.
const FEW: usize = 8;

/// What a datagram sent has come to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Sending {
    /// It went, with so many bytes, or was dropped as UDP does.
    Done(usize),
    /// The kernel sends it.
    Kernel,
}

/// A datagram that was received.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Received {
    /// Bytes that were copied or, with MSG_TRUNC, that it has.
    pub len: usize,
    /// Its sender.
    pub source: Option<SocketAddr>,
    /// Bytes of it were lost.
    pub truncated: bool,
    /// Bytes of control data.
    pub control: usize,
    /// What the kernel says of that: MSG_CTRUNC.
    pub flags: i32,
}

/// See the module.
pub struct Datagram {
    domain: i32,
    kernel: Lock<()>,
    outbox: Lock<Outbox>,
    inbox: Lock<Incoming>,
    remote: Lock<Remote>,
    /// It has, or has had, a queue: `remote` is worth a look.
    has_queue: AtomicBool,
    sleepers: Sleepers,
    spin: Spin,
    event_fd: AtomicI32,
    /// The kernel alone has it from now on, but for what has come before.
    left: AtomicBool,
    /// That is to be so, as soon as somebody can see to it.
    leaving: AtomicBool,
    /// Then nothing of it is looked at.
    for_good: AtomicBool,
    /// The kernel has the beginning of a datagram (MSG_MORE): the rest is to go there, too.
    corked: AtomicBool,
    /// Others may have the same address, or have had a chance to take it: SO_REUSEADDR and SO_REUSEPORT may be taken back after that.
    shared_name: AtomicBool,
    /// The kernel's error that a look of the library's has met, 0 for none: it is the program's.
    error: AtomicI32,
}

#[derive(Default)]
struct Incoming {
    inbox: Option<Inbox>,
    turns: Turns,
    closed: bool,
}

impl Incoming {
    fn next_len(&mut self) -> Option<usize> {
        self.inbox.as_mut()?.next_len()
    }
}

/// Whether there has ever been one in this process.
#[inline(always)]
pub fn is_any() -> bool {
    EVER.load(Ordering::Relaxed) != 0
}

impl Datagram {
    /// Of AF_INET or AF_INET6.
    pub fn new(domain: i32) -> Self {
        EVER.fetch_add(1, Ordering::Relaxed);
        Datagram {
            domain,
            kernel: Lock::new(()),
            outbox: Lock::new(Outbox::default()),
            inbox: Lock::new(Incoming::default()),
            remote: Lock::new(Remote::default()),
            has_queue: AtomicBool::new(false),
            sleepers: Sleepers::default(),
            spin: Spin::default(),
            event_fd: AtomicI32::new(-1),
            left: AtomicBool::new(false),
            leaving: AtomicBool::new(false),
            for_good: AtomicBool::new(false),
            corked: AtomicBool::new(false),
            shared_name: AtomicBool::new(false),
            error: AtomicI32::new(0),
        }
    }

    /// The same, which other processes may have, too: the kernel alone has it.
    pub fn shared(domain: i32) -> Self {
        let shared = Datagram::new(domain);
        shared.leaving.store(true, Ordering::Relaxed);
        shared.left.store(true, Ordering::Relaxed);
        shared
    }

    /// send(2), MSG_MORE: "The caller has more data to send": whether that is so after a datagram that goes to the kernel.
    pub fn cork(&self, more: bool) {
        self.corked.store(more, Ordering::Relaxed);
    }

    /// Whether the kernel waits for the rest of a datagram.
    pub fn is_corked(&self) -> bool {
        self.corked.load(Ordering::Relaxed)
    }

    /// Others may take the same address.
    pub fn note_shared_name(&self) {
        self.shared_name.store(true, Ordering::Relaxed);
    }

    /// Who sleeps here.
    pub fn sleepers(&self) -> &Sleepers {
        &self.sleepers
    }

    /// The descriptor that is readable when a peer of this host wants something, -1 for none.
    pub fn event_fd(&self) -> RawFd {
        self.event_fd.load(Ordering::Relaxed)
    }

    /// The kernel's socket has another address, or another peer: `fd` is one of its numbers.
    pub fn settle(&self, fd: RawFd) -> Result<()> {
        let peer = descriptor::borrow(fd).and_then(address::peer);
        self.outbox.lock()?.settle(peer);
        self.remote.lock()?.settle(peer.map(address::for_fabric));
        self.settle_inbox(fd)
    }

    /// Is found where the kernel would find it.
    fn settle_inbox(&self, fd: RawFd) -> Result<()> {
        let mut incoming = self.inbox.lock()?;
        let before = incoming.inbox.is_some();
        let place = descriptor::borrow(fd).filter(|_| shm() && !incoming.closed && !self.is_leaving());
        let place = place.and_then(|kernel| place_of(kernel, self.shared_name.load(Ordering::Relaxed)));
        match place {
            None => {
                if let Some(inbox) = &mut incoming.inbox {
                    inbox.close();
                }
            }
            Some(Place { addr, v6_only, peer }) => {
                if !before {
                    let inbox = Inbox::new(self.domain == libc::AF_INET6)?;
                    self.event_fd.store(inbox.event_fd(), Ordering::Relaxed);
                    incoming.inbox = Some(inbox);
                }
                let opened = incoming.inbox.as_mut().map(|inbox| inbox.open(addr, v6_only, peer));
                match opened {
                    Some(Ok(())) => log_debug!("datagrams to {addr} are received through shared memory"),
                    Some(Err(errno)) => log_debug!("datagrams to {addr} are not received through shared memory: {errno}"),
                    None => {}
                }
            }
        }
        if before != incoming.inbox.is_some() {
            // Who sleeps has another descriptor to sleep on.
            self.sleepers.wake(Interest::all());
        }
        Ok(())
    }

    /// Sends to `to` or, where that is `None`, to whom the socket is connected.
    pub fn send(&self, fd: RawFd, from: &[IoSlice<'_>], to: Option<SocketAddr>) -> Result<Sending> {
        self.look_for_answers(fd)?;
        self.report_error()?;
        if self.is_leaving() {
            return Ok(Sending::Kernel);
        }
        let len = from.iter().map(|slice| slice.len()).sum();
        let way = if !shm() || self.is_for_verbs(fd, to)? {
            Way::Kernel
        } else {
            let mut outbox = self.outbox.lock()?;
            let Some(to) = to.or(outbox.peer()) else { return Ok(Sending::Kernel) };
            outbox.send(fd, from, len, to, || self.settle_inbox(fd))
        };
        stats::add(
            match way {
                Way::Memory => Counter::DatagramsSentShm,
                Way::Dropped => Counter::DatagramsDropped,
                Way::Kernel => return self.send_abroad(fd, from, len, to),
            },
            1,
        );
        Ok(Sending::Done(len))
    }

    /// Takes what comes next. `None`: the kernel alone has the socket from now on.
    /// (Control data is the kernel's alone.)
    pub fn receive(
        &self,
        fd: RawFd,
        into: &mut [IoSliceMut<'_>],
        control: &mut [u8],
        flags: i32,
        blocking: Blocking,
    ) -> Result<Option<Received>> {
        loop {
            self.report_error()?;
            let abroad_first = self.queues()?.is_some_and(|remote| remote.is_peeked());
            if let Some(taken) = self.take_either(into, flags, true, abroad_first)? {
                return Ok(Some(taken));
            }
            match self.receive_kernel(fd, into, control, flags) {
                // What has come there since is older than what comes through a channel that was made since.
                Err(Errno::AGAIN) if self.has_news()? => continue,
                Err(Errno::AGAIN) => {}
                result => return result.map(Some),
            }
            if let Some(taken) = self.take_either(into, flags, false, false)? {
                return Ok(Some(taken));
            }
            if self.has_left()? {
                return Ok(None);
            }
            if self.is_kernels_to_wait() {
                match self.await_kernel(fd, flags)? {
                    None => continue,
                    over => return Ok(over),
                }
            }
            let Blocking::Until(deadline) = blocking else { return Err(Errno::AGAIN) };
            if self.spin()? {
                continue;
            }
            self.sleep(fd, deadline)?;
            if deadline.is_some_and(|deadline| clock::now() >= deadline) {
                // One last look.
                return match self.take_either(into, flags, false, false)? {
                    Some(taken) => Ok(Some(taken)),
                    None => self.receive_kernel(fd, into, control, flags).map(Some),
                };
            }
        }
    }

    /// Takes a datagram that has not come by the kernel.
    fn take_either(&self, into: &mut [IoSliceMut<'_>], flags: i32, at_once: bool, abroad_first: bool) -> Result<Option<Received>> {
        let abroad = if abroad_first { self.take_abroad(into, flags, at_once)? } else { None };
        if abroad.is_some() {
            return Ok(abroad);
        }
        match self.take(into, flags, at_once)? {
            None => self.take_abroad(into, flags, at_once),
            taken => Ok(taken),
        }
    }

    /// Takes a datagram of a peer on this host. `at_once`: the kernel has not been asked yet, and may have its turn.
    fn take(&self, into: &mut [IoSliceMut<'_>], flags: i32, at_once: bool) -> Result<Option<Received>> {
        let stays = flags & libc::MSG_PEEK != 0;
        let mut incoming = self.inbox.lock()?;
        if incoming.closed {
            // The number may be another descriptor by now.
            return Err(Errno::BADF);
        }
        if incoming.next_len().is_none() || at_once && incoming.turns.is_kernels(stays) {
            return Ok(None);
        }
        let Some(Taken { copied, len, source }) = incoming.inbox.as_mut().and_then(|inbox| inbox.take(into, stays)) else {
            return Ok(None);
        };
        incoming.turns.took(stays);
        if !stays {
            stats::add(Counter::DatagramsReceivedShm, 1);
        }
        if self.sleepers.any() && incoming.next_len().is_some() {
            self.sleepers.wake(Interest::READ);
        }
        let whole = flags & libc::MSG_TRUNC != 0;
        let source = Some(address::as_domain(source, self.domain));
        Ok(Some(Received { len: if whole { len } else { copied }, source, truncated: copied < len, control: 0, flags: 0 }))
    }

    /// FIONREAD (udp(7)): "the size of the next pending datagram". `None`: the kernel has it.
    pub fn next_len(&self, fd: RawFd) -> Option<usize> {
        let mut incoming = self.inbox.lock().ok()?;
        self.look(&mut incoming, Looker::Passing);
        let kernels = || descriptor::borrow(fd).and_then(|fd| rustix::io::ioctl_fionread(fd).ok()).is_some_and(|bytes| bytes > 0);
        let next = if incoming.turns.is_kernels(true) && kernels() { None } else { incoming.next_len() };
        drop(incoming);
        let next = next.or_else(|| self.queues().ok()??.next_len(clock::now()).filter(|_| !kernels()));
        next.or_else(|| self.next_len_behind_header(fd))
    }

    fn events_of(&self, there: bool) -> i16 {
        let error = if self.error.load(Ordering::Relaxed) == 0 { 0 } else { POLLERR };
        // A UDP socket is writable nearly always; without anything to read the kernel's word is enough.
        if there { error | POLLIN | POLLRDNORM | POLLOUT | POLLWRNORM } else { error }
    }

    /// poll's events of the peers on this host.
    pub fn events(&self) -> i16 {
        self.events_of(self.inbox.lock().is_ok_and(|mut incoming| self.look(&mut incoming, Looker::Passing)))
    }

    /// The kernel alone has it from now on, for something that only the kernel knows. What has come before is still to be read.
    pub fn leave(&self) -> Result<()> {
        self.leaving.store(true, Ordering::Release);
        self.has_left().map(drop)
    }

    /// The same, and nothing is looked at any more: a socket that reads no more is readable without anything to read.
    pub fn leave_for_good(&self) -> Result<()> {
        self.for_good.store(true, Ordering::Release);
        self.leave()
    }

    fn is_leaving(&self) -> bool {
        self.leaving.load(Ordering::Acquire)
    }

    /// It has left, no queue is there any more, and the kernel's socket is still looked at.
    fn is_kernels_to_wait(&self) -> bool {
        self.left.load(Ordering::Acquire) && !self.has_queue.load(Ordering::Acquire)
    }

    /// Whether the kernel alone has it, and nothing is left to read or to look at.
    pub fn has_left(&self) -> Result<bool> {
        if !self.is_leaving() {
            return Ok(false);
        }
        if !self.left.load(Ordering::Acquire) {
            self.outbox.lock()?.settle(None);
            if let Some(inbox) = &mut self.inbox.lock()?.inbox {
                inbox.take_events();
                inbox.close();
            }
            self.left.store(true, Ordering::Release);
            self.sleepers.wake(Interest::all());
        }
        let mut remote = self.remote.lock()?;
        let over = remote.retire(clock::now());
        let gone = over.then(|| core::mem::take(&mut *remote));
        drop(remote);
        drop(gone);
        if over {
            self.has_queue.store(false, Ordering::Release);
        }
        let over = over && (!self.speaks() || self.for_good.load(Ordering::Acquire));
        Ok(over && self.inbox.lock()?.next_len().is_none())
    }

    /// Another process has the kernel's socket, too, or is about to: it may read there, and would miss what comes through shared memory. Neither
    /// waits nor allocates; the rest is done by the next call.
    pub fn share(&self) {
        self.leaving.store(true, Ordering::Release);
        if self.inbox.is_free()
            && let Ok(incoming) = self.inbox.lock()
            && let Some(inbox) = &incoming.inbox
        {
            inbox.pause();
        }
    }

    /// The last number is closed.
    pub fn close(&self) {
        self.leaving.store(true, Ordering::Release);
        let outbox = self.outbox.lock().map(|mut outbox| core::mem::take(&mut *outbox));
        let inbox = self.inbox.lock().map(|mut incoming| {
            incoming.closed = true;
            incoming.inbox.take()
        });
        let remote = self.remote.lock().map(|mut remote| core::mem::take(&mut *remote));
        self.event_fd.store(-1, Ordering::Relaxed);
        drop((outbox, inbox, remote));
        self.sleepers.wake(Interest::all());
    }
}

/// Whether peers of this host are looked for in shared memory.
fn shm() -> bool {
    config::get().fabrics.shm()
}

/// Takes a datagram of the kernel's, without waiting.
fn receive_kernel(fd: RawFd, into: &mut [IoSliceMut<'_>], control: &mut [u8], flags: i32) -> Result<Received> {
    let got = message::receive(fd, into, control, flags & !libc::MSG_WAITFORONE | libc::MSG_DONTWAIT)?;
    if flags & libc::MSG_PEEK == 0 {
        stats::add(Counter::DatagramsReceivedKernel, 1);
    }
    let (source, truncated) = (address::parse(got.source()), got.flags & libc::MSG_TRUNC != 0);
    Ok(Received { len: got.len, source, truncated, control: got.control, flags: got.flags & libc::MSG_CTRUNC })
}

/// The kernel sends one.
pub fn count_kernels() {
    stats::add(Counter::DatagramsSentKernel, 1);
}
