//! Sockets: where the protocol, the fabrics and the kernel's socket meet. Locks and blocking are here and nowhere else.

pub mod account;
pub mod address;
pub mod connect;
pub mod datagram;
pub mod engine;
pub mod listener;
pub mod options;
pub mod readiness;
pub mod runtime;
pub mod spin;
pub mod stream;
#[cfg(test)]
mod tests;
pub mod wait;
mod watchers;

use core::sync::atomic::{AtomicBool, AtomicU8, AtomicU64, Ordering, fence};
use std::{
    os::fd::RawFd,
    sync::{Arc, OnceLock},
};

use datagram::Datagram;
use listener::Listener;
use options::Options;
use readiness::Readiness;
use stream::Stream;
use wait::{Borrowed, Interest, Watcher};
use watchers::Watchers;

use crate::{
    error::Result,
    sys::{
        clock::{self, Nanos},
        descriptor::OwnFd,
        lock::{Guard, Lock},
    },
};

/// How often the mark of a listener is asked for, in nanoseconds.
const MARK_INTERVAL: Nanos = 500_000_000;

/// What a socket has become.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum Role {
    /// Neither listening nor connected: the kernel's socket answers.
    Fresh,
    /// A stream over a fabric, or on the way to one.
    Stream,
    /// Listens, in the kernel and on the fabrics.
    Listener,
    /// The kernel's for good.
    Kernel,
    /// Listens in the kernel alone: what it accepts is [`Role::Deferred`].
    KernelListener,
    /// TCP has accepted it. When it is first used it may move to a fabric.
    Deferred,
    /// Datagrams, of peers on this host through shared memory.
    Datagram,
}

/// Who asked for a socket.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Origin {
    /// An unmodified program, by socket(2).
    Preload,
    /// A program that calls the r* functions.
    Native,
}

/// A stream socket that may go over a fabric. Under the same number there is a kernel socket of the same kind (DESIGN: D1).
pub struct Socket {
    /// AF_INET or AF_INET6.
    pub domain: i32,
    /// Who asked for it.
    pub origin: Origin,
    /// What was set on it.
    pub options: Options,
    role: AtomicU8,
    stream: OnceLock<Arc<Stream>>,
    listener: OnceLock<Arc<Listener>>,
    datagram: OnceLock<Arc<Datagram>>,
    mark: OnceLock<OwnFd>,
    marked_next: AtomicU64,
    /// The kernel's socket listened when it came here from another program.
    listens_elsewhere: AtomicBool,
    connect_turn: Lock<()>,
    watchers: Watchers,
    /// The last number is closed.
    closed: AtomicBool,
}

/// What a poller learns in one look.
#[derive(Clone, Copy, Debug)]
pub struct Look {
    /// Events of the fabric's side.
    pub events: i16,
    /// Whether the kernel's socket has a say too.
    pub kernel: bool,
    /// The descriptor to sleep on besides the waiter, -1 for none.
    pub event_fd: RawFd,
}

impl Look {
    const KERNEL: Look = Look { events: 0, kernel: true, event_fd: -1 };
}

impl Socket {
    /// A socket of this domain.
    pub fn new(domain: i32, origin: Origin, options: Options) -> Self {
        Socket {
            domain,
            origin,
            options,
            role: AtomicU8::new(Role::Fresh as u8),
            stream: OnceLock::new(),
            listener: OnceLock::new(),
            datagram: OnceLock::new(),
            mark: OnceLock::new(),
            marked_next: AtomicU64::new(0),
            listens_elsewhere: AtomicBool::new(false),
            connect_turn: Lock::new(()),
            watchers: Watchers::default(),
            closed: AtomicBool::new(false),
        }
    }

    /// A socket that accept(2) returns.
    pub fn accepted(domain: i32, origin: Origin, options: Options, stream: Arc<Stream>) -> Self {
        let socket = Socket::new(domain, origin, options);
        socket.become_stream(stream);
        socket
    }

    /// A socket that TCP has accepted, and which may move later.
    pub fn deferred(domain: i32, options: Options) -> Self {
        let socket = Socket::new(domain, Origin::Preload, options);
        socket.become_deferred();
        socket
    }

    /// A socket for datagrams.
    pub fn datagrams(domain: i32, origin: Origin) -> Self {
        let socket = Socket::new(domain, origin, Options::default());
        let _ = socket.datagram.set(Arc::new(Datagram::new(domain)));
        socket.set_role(Role::Datagram);
        socket
    }

    /// One that other processes may have, too.
    pub fn shared_datagrams(domain: i32) -> Self {
        let socket = Socket::new(domain, Origin::Preload, Options::default());
        let _ = socket.datagram.set(Arc::new(Datagram::shared(domain)));
        socket.set_role(Role::Datagram);
        socket
    }

    /// What it has become.
    #[inline]
    pub fn role(&self) -> Role {
        match self.role.load(Ordering::Acquire) {
            0 => Role::Fresh,
            1 => Role::Stream,
            2 => Role::Listener,
            4 => Role::KernelListener,
            5 => Role::Deferred,
            6 => Role::Datagram,
            _ => Role::Kernel,
        }
    }

    fn set_role(&self, role: Role) {
        self.role.store(role as u8, Ordering::Release);
    }

    /// It came from another program, which has made the kernel's socket listen.
    pub fn listens_elsewhere(&self) {
        self.listens_elsewhere.store(true, Ordering::Relaxed);
    }

    /// Whether it did.
    pub fn is_listening_elsewhere(&self) -> bool {
        self.listens_elsewhere.load(Ordering::Relaxed)
    }

    /// For the thread that looks whether it is fresh and then starts to connect: what a second one started would reach the peer, too.
    pub fn connect_turn(&self) -> Result<Guard<'_, ()>> {
        Ok(self.connect_turn.lock()?)
    }

    /// Makes it a stream, unless it has been one before.
    pub fn become_stream(&self, stream: Arc<Stream>) {
        if self.begin_stream(stream) {
            self.stream_begun();
        }
    }

    /// Makes it a stream that is about to connect: the peer may have accepted it, and said so to another thread, before the one that
    /// connects goes on. Those who watch it are told by [`Socket::stream_begun`]. False: it has been one before.
    pub fn begin_stream(&self, stream: Arc<Stream>) -> bool {
        let first = self.stream.set(stream).is_ok();
        if first {
            self.set_role(Role::Stream);
            self.close_if_late();
        }
        first
    }

    /// Another thread has closed the socket while this one made of it what that one could not see yet.
    fn close_if_late(&self) {
        fence(Ordering::SeqCst);
        if self.closed.load(Ordering::Relaxed) {
            self.close(false);
        }
    }

    /// The stream has got what there is to watch.
    pub fn stream_begun(&self) {
        self.watchers.tell(|watcher| watcher.became(self));
    }

    /// Makes it a listener, unless it has been one before.
    pub fn become_listener(&self, listener: Arc<Listener>) {
        if self.listener.set(listener).is_ok() {
            self.set_role(Role::Listener);
            self.watchers.tell(|watcher| watcher.became(self));
            self.close_if_late();
        }
    }

    /// TCP has accepted it, and it may move later.
    pub fn become_deferred(&self) {
        self.set_role(Role::Deferred);
    }

    /// Makes it a listener of the kernel's whose connections may move later.
    pub fn become_kernel_listener(&self) {
        self.set_role(Role::KernelListener);
    }

    /// Gives such a listener the mark by which clients of this host know it. `None`: another process has it, for this one too, or an old one
    /// that is about to end: that is looked at again after a while.
    #[inline]
    pub fn mark(&self, make: impl FnOnce() -> Option<OwnFd>) {
        if self.mark.get().is_none() {
            let now = clock::now();
            if now >= self.marked_next.load(Ordering::Relaxed) {
                self.marked_next.store(now.saturating_add(MARK_INTERVAL), Ordering::Relaxed);
                if let Some(mark) = make() {
                    let _ = self.mark.set(mark);
                }
            }
        }
    }

    /// Leaves it to the kernel for good.
    pub fn become_kernel(&self) {
        self.set_role(Role::Kernel);
        self.watchers.tell(|watcher| watcher.became(self));
    }

    /// The stream, if it is one now.
    #[inline]
    pub fn stream(&self) -> Option<&Arc<Stream>> {
        if self.role() == Role::Stream { self.stream.get() } else { None }
    }

    /// The stream, unless the kernel has taken it over.
    #[inline]
    pub fn live_stream(&self) -> Option<&Stream> {
        self.stream().map(|stream| &**stream).filter(|stream| !stream.is_kernel())
    }

    /// The listener, if it is one.
    pub fn listener(&self) -> Option<&Arc<Listener>> {
        if self.role() == Role::Listener { self.listener.get() } else { None }
    }

    /// The datagram socket, if it is one.
    pub fn datagram(&self) -> Option<&Arc<Datagram>> {
        if self.role() == Role::Datagram { self.datagram.get() } else { None }
    }

    /// Whether the kernel has it for good, also by a fall-back that the service made.
    pub fn is_kernel(&self) -> bool {
        match self.role() {
            Role::Kernel => true,
            Role::Stream if self.stream.get().is_some_and(|stream| stream.is_kernel()) => {
                self.become_kernel();
                true
            }
            Role::Datagram if self.datagram.get().is_some_and(|datagram| datagram.has_left().unwrap_or(false)) => {
                self.become_kernel();
                true
            }
            _ => false,
        }
    }

    fn look_with(&self, look: impl Fn(&Stream) -> Result<Readiness>, datagrams: impl Fn(&Datagram) -> i16) -> Look {
        match self.role() {
            Role::Datagram => {
                let Some(datagram) = self.datagram.get() else { return Look::KERNEL };
                Look { events: datagrams(datagram), kernel: true, event_fd: datagram.event_fd() }
            }
            Role::Fresh | Role::Kernel | Role::KernelListener | Role::Deferred => Look::KERNEL,
            Role::Listener => {
                let Some(listener) = self.listener.get() else { return Look::KERNEL };
                // Once it was shut down, the kernel's socket looks as it should either way.
                Look { events: listener.events(), kernel: listener.kernel_listens() || listener.is_closed(), event_fd: listener.peers_fd() }
            }
            Role::Stream => {
                let Some(stream) = self.stream.get() else { return Look::KERNEL };
                match look(stream) {
                    Ok(Readiness::Events(events)) => Look { events, kernel: false, event_fd: stream.event_fd() },
                    Ok(Readiness::Kernel) => Look::KERNEL,
                    Err(_) => Look { events: 0, kernel: false, event_fd: stream.event_fd() },
                }
            }
        }
    }

    /// poll's view.
    pub fn look(&self) -> Look {
        self.look_with(Stream::readiness, Datagram::events)
    }

    /// poll's last look before it sleeps; the poller is registered.
    pub fn arm_and_look(&self, waiter: &Borrowed) -> Look {
        self.look_with(|stream| stream.arm_and_look(waiter), Datagram::arm_and_see)
    }

    /// What poll is to say of these events of the kernel's socket, whose number is `fd`.
    pub fn sift(&self, fd: RawFd, events: i16) -> i16 {
        const READABLE: i16 = libc::POLLIN | libc::POLLRDNORM;
        match self.datagram() {
            Some(datagram) if events & READABLE != 0 && !datagram.has_mail(fd) => events & !READABLE,
            _ => events,
        }
    }

    /// poll slept and this socket's event descriptor was readable.
    pub fn look_after_sleep(&self, waiter: &Borrowed) {
        if let Some(stream) = self.stream() {
            let _ = stream.look_after_sleep(waiter);
        }
        if let Some(listener) = self.listener() {
            // poll(2) is never restarted: it has no time for what a signal could interrupt.
            let _ = listener.take_peers(false);
        }
        if let Some(datagram) = self.datagram() {
            datagram.look_after_sleep(waiter);
        }
    }

    /// Registers a poller.
    pub fn add_sleeper(&self, waiter: &Borrowed, interest: Interest) {
        if let Some(stream) = self.stream.get() {
            stream.sleepers().add(waiter, interest);
        }
        if let Some(listener) = self.listener.get() {
            listener.sleepers().add(waiter, interest);
            listener.attend(true);
        }
        if let Some(datagram) = self.datagram.get() {
            datagram.sleepers().add(waiter, interest);
        }
    }

    /// Takes a poller off.
    pub fn remove_sleeper(&self, waiter: &Borrowed) {
        if let Some(stream) = self.stream.get() {
            stream.sleepers().remove(waiter);
        }
        if let Some(listener) = self.listener.get() {
            listener.sleepers().remove(waiter);
            listener.attend(false);
        }
        if let Some(datagram) = self.datagram.get() {
            datagram.sleepers().remove(waiter);
        }
    }

    /// Somebody wants to know of all that happens to it, and of what it becomes: see [`Watcher`].
    pub fn watch(&self, watcher: &Arc<dyn Watcher>) {
        self.watchers.add(watcher);
    }

    /// One of its numbers is closed, others are not.
    pub fn number_closed(&self, fd: RawFd) {
        self.watchers.tell(|watcher| watcher.number_closed(fd));
    }

    /// The last descriptor is closed.
    pub fn close(&self, blocking: bool) {
        self.closed.store(true, Ordering::Relaxed);
        fence(Ordering::SeqCst);
        self.watchers.tell(|watcher| watcher.closed());
        if let Some(stream) = self.stream() {
            stream.close(self.options.linger(), blocking);
        }
        if let Some(listener) = self.listener.get() {
            listener.close();
        }
        if let Some(datagram) = self.datagram.get() {
            datagram.close();
        }
    }
}
