//! A listening socket: connections that came over a fabric, next to those that wait in the kernel's queue.
//!
//! Locks: the queue is a leaf lock, held for a push or a pop.

use core::{
    sync::atomic::{AtomicBool, AtomicU32, Ordering},
    time::Duration,
};
use std::{
    collections::VecDeque,
    os::fd::RawFd,
    sync::{Arc, Mutex},
};

use super::{
    account,
    engine::Sizes,
    readiness::Readiness,
    stream::{Seen, Stream},
    wait::{Interest, Sleepers},
};
use crate::{
    error::{Errno, Result},
    fabric::{ConnectFailure, Event, Listening, Token},
    log_debug,
    service::{self, Care, Ending, Handler, Service},
    stats::{self, Counter},
    sys::{
        allocator,
        clock::Nanos,
        lock::{Leaf, LeafGuard},
    },
};

/// Peers that are looked at at once, where they come to nothing; the others are still there at the next look.
const PEERS_A_LOOK: usize = 16;

/// Of a peer that asks.
fn refuse(event: Event) {
    if let Event::Incoming { mut endpoint, .. } = event {
        endpoint.reject();
    }
}

/// A listener on the fabrics.
pub struct Listener {
    token: Token,
    service: Arc<Service>,
    sizes: Sizes,
    /// RDMA_IOMAPSIZE, which may change while it listens.
    iomap_entries: AtomicU32,
    backlog: AtomicU32,
    arrivals: AtomicU32,
    queue: Leaf<Queue>,
    sleepers: Sleepers,
    /// The kernel's socket listens as well. (Not on iWARP, whose devices have the port for themselves.)
    kernel_listens: AtomicBool,
    /// See [`Listener::leave_fabrics_soon`].
    leaving: AtomicBool,
    /// See [`Listener::share_soon`].
    sharing: AtomicBool,
    /// Other processes have the kernel's socket too.
    shared: AtomicBool,
    /// How often the process had forked when it was made.
    born: u32,
    /// The program itself has read what came here over a fabric.
    served: AtomicBool,
    /// The process has forked, and has not looked at it since: peers wait until it does, or a child says that it serves.
    held: AtomicBool,
    /// One thread at a time takes from the kernel's queue, so that none blocks there while a fabric's connection waits.
    pub kernel_turn: Mutex<()>,
}

#[derive(Default)]
struct Queue {
    /// Established, in the order of arrival.
    ready: VecDeque<Arc<Stream>>,
    /// Accepted by the library, not established yet.
    arriving: u32,
    listening: Option<Arc<dyn Listening>>,
    /// See [`Listener::held`].
    waiting: Vec<Event>,
    /// Threads that wait for peers themselves.
    attending: u32,
    /// A thread may be asleep in the kernel's accept, and not hear of peers over a fabric.
    in_kernel: bool,
    closed: bool,
}

/// While this lives, a thread may be asleep in the kernel's accept.
pub struct InKernel<'a>(&'a Listener);

impl Drop for InKernel<'_> {
    fn drop(&mut self) {
        self.0.queue().in_kernel = false;
    }
}

impl Listener {
    /// A listener that is known to the service; [`Listener::start`] makes it listen.
    pub fn new(service: &Arc<Service>, sizes: Sizes, backlog: u32) -> Arc<Self> {
        let listener = Arc::new(Listener {
            token: service.token(),
            service: Arc::clone(service),
            iomap_entries: AtomicU32::new(sizes.iomap_entries),
            sizes,
            backlog: AtomicU32::new(backlog),
            arrivals: AtomicU32::new(0),
            queue: Leaf::default(),
            sleepers: Sleepers::default(),
            kernel_listens: AtomicBool::new(true),
            leaving: AtomicBool::new(false),
            sharing: AtomicBool::new(false),
            shared: AtomicBool::new(false),
            born: service::forks(),
            served: AtomicBool::new(false),
            held: AtomicBool::new(false),
            kernel_turn: Mutex::new(()),
        });
        service.register(listener.token, Arc::clone(&listener) as Arc<dyn Handler>);
        listener
    }

    /// Its name at the fabric.
    pub fn token(&self) -> Token {
        self.token
    }

    /// The fabric listens now.
    pub fn start(&self, listening: Box<dyn Listening>) {
        self.queue().listening = Some(Arc::from(listening));
    }

    /// A thread sleeps here that can see to peers itself ([`Listener::take_peers`]), on [`Listener::peers_fd`]; or no longer does. The
    /// service, which would have to be woken first, leaves them alone meanwhile.
    pub fn attend(&self, attending: bool) {
        let mut queue = self.queue();
        let before = queue.attending;
        queue.attending = if attending { before + 1 } else { before.saturating_sub(1) };
        // Within the lock: a thread that comes must not be overtaken by one that goes.
        if (before == 0 || queue.attending == 0)
            && let Some(listening) = &queue.listening
        {
            listening.attend(attending);
        }
    }

    /// The program has read from a connection of this listener's.
    pub fn note_served(&self) {
        self.served.store(true, Ordering::Relaxed);
    }

    /// Whether it stays at the fabrics when the process forks (`service::forks`). A fabric that has the port for itself (iWARP) is not left.
    fn stays(&self, child_serves: bool) -> bool {
        !self.kernel_listens() || self.served.load(Ordering::Relaxed) && !child_serves
    }

    /// A child has it, too.
    pub(super) fn after_fork(&self, child_serves: bool) {
        if self.stays(child_serves) {
            // Whoever sleeps here looks.
            self.sleepers.wake(Interest::READ);
        } else {
            self.leave_fabrics();
        }
    }

    /// The program looks at it.
    #[inline]
    fn look(&self) {
        if self.held.load(Ordering::Relaxed) {
            self.release();
        }
    }

    #[cold]
    fn release(&self) {
        self.held.store(false, Ordering::Relaxed);
        // Who was about to wait has done so by now, or sees that it need not.
        if !self.queue().waiting.is_empty() {
            self.service.take_care(self.token);
        }
    }

    /// Keeps a peer until the program looks, if that is to be. `None`: it waits.
    fn hold(&self, event: Event) -> Option<Event> {
        if !self.held.load(Ordering::Relaxed) {
            return Some(event);
        }
        let mut queue = self.queue();
        let room = queue.waiting.len() <= self.backlog.load(Ordering::Relaxed) as usize && queue.listening.is_some();
        if !room || !self.held.load(Ordering::Relaxed) {
            return Some(event);
        }
        queue.waiting.push(event);
        None
    }

    /// The kernel alone has peers from now on; what was taken in before stays.
    pub fn leave_fabrics(&self) {
        let (listening, waiting) = {
            let mut queue = self.queue();
            (queue.listening.take(), core::mem::take(&mut queue.waiting))
        };
        drop(listening);
        // They try the kernel next.
        waiting.into_iter().for_each(refuse);
    }

    /// As [`Listener::leave_fabrics`], in the service's thread: for a process that has the memory in common with this one, and nothing else.
    pub fn leave_fabrics_soon(&self) {
        self.leaving.store(true, Ordering::Release);
        self.service.take_care(self.token);
    }

    /// A program has it too that was started without fork: as after fork, in the service's thread. Peers that come from now on wait. False: it
    /// stays at the fabrics, and there is nothing to wait for.
    pub fn share_soon(&self) -> bool {
        self.pause(false);
        self.sharing.store(true, Ordering::Release);
        self.service.take_care(self.token);
        !self.stays(false)
    }

    /// Whether no more peers come over a fabric, or the kernel has none to take them.
    pub fn has_left_fabrics(&self) -> bool {
        !self.kernel_listens() || self.queue().listening.is_none()
    }

    /// The descriptor that is readable when a peer asks, -1 for none.
    pub fn peers_fd(&self) -> RawFd {
        self.queue().listening.as_ref().and_then(|listening| listening.peers_fd()).unwrap_or(-1)
    }

    /// Takes in peers that have asked, until there is a connection. `patient`: see [`Listening::take`].
    pub fn take_peers(self: &Arc<Self>, patient: bool) -> Result<()> {
        for _ in 0..PEERS_A_LOOK {
            let listening = self.queue().listening.clone();
            let Some(event) = listening.map_or(Ok(None), |listening| listening.take(patient))? else { break };
            Arc::clone(self).event(event, self.service.now());
            if self.has_connection() {
                break;
            }
        }
        Ok(())
    }

    /// SO_RCVBUF has changed: connections that come in from now on have such receive buffers.
    pub fn resize(&self, changed: Sizes) {
        let Sizes { receive_bytes, shm_receive_bytes, iomap_entries, .. } = changed;
        self.iomap_entries.store(iomap_entries, Ordering::Relaxed);
        let sizes = Sizes { receive_bytes, shm_receive_bytes, iomap_entries, ..self.sizes };
        let listening = self.queue().listening.clone();
        if let Some(listening) = listening {
            listening.resize(&sizes.endpoint());
        }
    }

    /// Whether it has peers even where the kernel cannot listen on its port.
    pub fn owns_port(&self) -> bool {
        self.queue().listening.as_ref().is_some_and(|listening| listening.owns_port())
    }

    /// The kernel could not listen beside the fabric: its socket has no say, and looks as if it had hung up.
    pub fn without_kernel(&self) {
        self.kernel_listens.store(false, Ordering::Relaxed);
    }

    /// Whether the kernel's socket listens as well.
    pub fn kernel_listens(&self) -> bool {
        self.kernel_listens.load(Ordering::Relaxed)
    }

    /// Other processes have the kernel's socket too, and may accept there.
    pub fn share_kernel(&self) {
        self.shared.store(true, Ordering::Relaxed);
    }

    /// A thread is about to accept a peer of the kernel's that another process may be faster to accept, whereupon the thread would sleep
    /// until the next one comes. Peers over fabrics are refused meanwhile: they come through the kernel then, and wake it. `None`: not now,
    /// one of those is here, or about to be.
    pub fn enter_kernel(&self) -> Option<Option<InKernel<'_>>> {
        if !self.shared.load(Ordering::Relaxed) {
            return Some(None);
        }
        let mut queue = self.queue();
        if queue.arriving > 0 || !queue.ready.is_empty() {
            return None;
        }
        queue.in_kernel = true;
        drop(queue);
        Some(Some(InKernel(self)))
    }

    /// Whether it was closed, or shut down.
    pub fn is_closed(&self) -> bool {
        self.queue().closed
    }

    /// listen(2) once more changes the backlog.
    pub fn set_backlog(&self, backlog: u32) {
        self.backlog.store(backlog, Ordering::Relaxed);
    }

    fn queue(&self) -> LeafGuard<'_, Queue> {
        self.queue.lock()
    }

    /// The connection that came first.
    pub fn pop(&self) -> Option<Arc<Stream>> {
        self.look();
        self.queue().ready.pop_front()
    }

    /// Puts a connection back that could not be handed to the program (no descriptors left).
    pub fn put_back(&self, stream: Arc<Stream>) {
        let mut queue = self.queue();
        if queue.closed {
            drop(queue);
            stream.close(None, false);
        } else {
            queue.ready.push_front(stream);
        }
    }

    /// Whether a connection waits.
    pub fn has_connection(&self) -> bool {
        !self.queue().ready.is_empty()
    }

    /// poll's events of the fabrics' side.
    pub fn events(&self) -> i16 {
        self.look();
        if self.has_connection() { libc::POLLIN | libc::POLLRDNORM } else { 0 }
    }

    /// What a watcher sees (see [`Watcher`](super::wait::Watcher)).
    pub fn see(&self) -> Seen {
        let arrivals = self.arrivals();
        let events = self.events();
        Seen { readiness: Readiness::Events(events), arrivals, blocked: 0, over: false }
    }

    /// Connections that have come over a fabric in all, modulo 2^32.
    fn arrivals(&self) -> u32 {
        self.arrivals.load(Ordering::Relaxed)
    }

    /// Who sleeps here.
    pub fn sleepers(&self) -> &Sleepers {
        &self.sleepers
    }

    /// A connection that was accepted for this listener is established.
    pub fn established(&self, stream: &Arc<Stream>) {
        let closed = {
            let mut queue = self.queue();
            queue.arriving = queue.arriving.saturating_sub(1);
            if !queue.closed {
                queue.ready.push_back(Arc::clone(stream));
                self.arrivals.fetch_add(1, Ordering::Relaxed);
            }
            queue.closed
        };
        if closed {
            stream.close(None, false);
        } else {
            self.sleepers.wake(Interest::READ);
        }
    }

    /// A connection that was accepted for this listener ended before it was established.
    pub fn lost(&self) {
        let mut queue = self.queue();
        queue.arriving = queue.arriving.saturating_sub(1);
    }

    /// close(2): stops listening and ends the connections that nobody has taken.
    pub fn close(&self) {
        let ready = {
            let mut queue = self.queue();
            queue.closed = true;
            core::mem::take(&mut queue.ready)
        };
        drop(self.service.forget(self.token));
        self.leave_fabrics();
        // As TCP: who was never accepted is reset.
        for stream in ready {
            stream.close(Some(Duration::ZERO), false);
        }
        self.sleepers.wake(Interest::all());
    }

    /// listen(2): the queue takes one more than the backlog says, as with TCP.
    fn has_room(&self) -> bool {
        let mut queue = self.queue();
        let waiting = u32::try_from(queue.ready.len()).unwrap_or(u32::MAX).saturating_add(queue.arriving);
        let room = !queue.closed && !queue.in_kernel && waiting <= self.backlog.load(Ordering::Relaxed);
        if room {
            queue.arriving += 1;
        }
        room
    }
}

impl Handler for Listener {
    fn event(self: Arc<Self>, event: Event, _now: Nanos) {
        let Some(event) = self.hold(event) else { return };
        let Event::Incoming { mut endpoint, private_data, .. } = event else { return };
        if allocator::is_exhausted() {
            account::fallback(ConnectFailure::Limit(Errno::NOMEM));
            endpoint.reject();
            return;
        }
        if !self.has_room() {
            stats::add(Counter::BacklogFull, 1);
            endpoint.reject();
            return;
        }
        let peer = endpoint.peer_addr();
        let sizes = Sizes { iomap_entries: self.iomap_entries.load(Ordering::Relaxed), ..self.sizes };
        if let Err(errno) = Stream::accept(&self.service, endpoint, sizes, &private_data, &self) {
            log_debug!("connection from {peer} not accepted: {errno}");
            self.lost();
        }
    }

    fn care(self: Arc<Self>, now: Nanos) -> Care {
        if self.leaving.load(Ordering::Acquire) {
            self.leave_fabrics();
        }
        if self.sharing.swap(false, Ordering::AcqRel) {
            self.after_fork(false);
        }
        let waiting = core::mem::take(&mut self.queue().waiting);
        waiting.into_iter().for_each(|event| Arc::clone(&self).event(event, now));
        Care::Release
    }

    fn event_fd(&self) -> Option<RawFd> {
        None
    }

    fn end(&self, _now: Nanos) -> Ending {
        Ending::Over
    }

    fn pause(&self, child_serves: bool) {
        if self.stays(child_serves) {
            self.held.store(true, Ordering::Relaxed);
        } else if let Some(queue) = self.queue.try_lock()
            && let Some(listening) = &queue.listening
        {
            listening.pause();
        }
    }

    fn forked(&self, child_serves: bool) {
        // Else no child has it.
        if self.born != service::forks() {
            self.after_fork(child_serves);
        }
    }
}
