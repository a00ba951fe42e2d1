//! What all connections of a process over shared memory have in common: one epoll descriptor, who is behind what it reports, and the
//! memory that is made ready for the next connection.
//!
//! Locks: the table and the spare are leaf locks, held for a look-up.
#![forbid(unsafe_code)]

use core::{
    net::SocketAddr,
    sync::atomic::{AtomicBool, AtomicU32, AtomicU64, AtomicUsize, Ordering},
    time::Duration,
};
use std::{
    collections::HashMap,
    os::fd::RawFd,
    sync::{Arc, Weak},
};

use rustix::{
    event::{
        Timespec,
        epoll::{self, CreateFlags, EventData, EventFlags},
    },
    fd::{AsFd, AsRawFd, BorrowedFd},
    time::{Itimerspec, TimerfdClockId, TimerfdFlags, TimerfdTimerFlags, timerfd_create, timerfd_settime},
};

use super::{
    channel::{self, Heard},
    endpoint::{Parts, ShmEndpoint},
    greeting::Verdict,
    memory::{Kept, Layout, Memory, Own},
    name,
};
use crate::{
    error::{Errno, Result},
    fabric::{Endpoint, EndpointConfig, Event, Token, warn_of_limit},
    log_debug,
    sys::{
        descriptor::{self, OwnFd},
        lock::Leaf,
        owner::Process,
    },
};

/// Clients that have connected and not asked yet; of more, the oldest are turned away.
pub(super) const ASKING: usize = 256;

/// How long a connection is young: see [`Shared::watch`].
const YOUNG: Timespec = Timespec { tv_sec: 0, tv_nsec: 5_000_000 };
/// The name of the timer.
const TIMER: u64 = 0;

/// A listening socket.
pub(super) struct Rendezvous {
    /// Its name at [`Shared`].
    pub(super) id: u64,
    pub(super) socket: OwnFd,
    /// Its clients are announced once each: there was no descriptor for one.
    pub(super) quiet: AtomicBool,
    pub(super) token: Token,
    pub(super) addr: SocketAddr,
    pub(super) v6_only: bool,
    /// As whom it listens: that is what clients see.
    pub(super) user: AtomicU32,
    /// What connections are made with.
    pub(super) endpoint: Leaf<EndpointConfig>,
}

impl Rendezvous {
    /// What those that come in from now on are made with.
    pub(super) fn resize(&self, endpoint: &EndpointConfig) {
        *self.endpoint.lock() = *endpoint;
    }

    /// A process that has changed its user (setuid(2)) since it began to listen listens anew: clients see it as it is from now on.
    fn listen_as(&self, user: u32) {
        if self.user.swap(user, Ordering::Relaxed) != user {
            let _ = channel::listen_anew(&self.socket);
        }
    }
}

/// Who this process is now.
pub(super) fn user_now() -> u32 {
    rustix::process::geteuid().as_raw()
}

/// Who is behind a descriptor.
enum Watched {
    Listener(Arc<Rendezvous>),
    /// A client of the listener, connected, whose request has not come yet.
    Asking(Arc<Rendezvous>, OwnFd),
    /// Its end is watched for.
    Connection(Token),
}

/// See the module.
pub(super) struct Shared {
    epoll: OwnFd,
    watched: Leaf<HashMap<u64, Watched>>,
    next_id: AtomicU64,
    next_key: AtomicU32,
    endpoints: AtomicUsize,
    /// Goes off when [`Shared::young`] is to be looked at.
    timer: OwnFd,
    /// Connections whose ends are not watched for yet.
    young: Leaf<Vec<(u64, Weak<OwnFd>)>>,
    spare: Leaf<Option<Own>>,
    /// A descriptor for the time when there are no more.
    reserve: Leaf<Option<OwnFd>>,
    /// Programs of other users are let in.
    any_uid: bool,
}

/// Ports below this one are root's (ip(7), ip_unprivileged_port_start): some programs trust who comes from one.
const FIRST_OF_ALL: u16 = 1024;

/// Whether TCP would let a program of this host come from that address.
fn may_come_from(client: SocketAddr, channel: BorrowedFd<'_>) -> bool {
    let port = client.port() >= FIRST_OF_ALL || (client.port() != 0 && channel::peer_uid(channel) == Some(0));
    port && super::source_on_this_host(client).is_some()
}

impl Shared {
    pub(super) fn new(any_uid: bool) -> Result<Self> {
        let mut seed = [0; 4];
        // Keys only tell connections apart: any will do.
        let _ = rustix::rand::getrandom(&mut seed, rustix::rand::GetRandomFlags::NONBLOCK);
        let timer = timerfd_create(TimerfdClockId::Monotonic, TimerfdFlags::CLOEXEC | TimerfdFlags::NONBLOCK).map(descriptor::lift)?;
        let epoll = epoll::create(CreateFlags::CLOEXEC).map(descriptor::lift)?;
        epoll::add(&epoll, &timer, EventData::new_u64(TIMER), EventFlags::IN)?;
        Ok(Shared {
            epoll,
            timer,
            young: Leaf::new(Vec::new()),
            watched: Leaf::new(HashMap::new()),
            next_id: AtomicU64::new(TIMER + 1),
            next_key: AtomicU32::new(u32::from_ne_bytes(seed)),
            endpoints: AtomicUsize::new(0),
            spare: Leaf::new(None),
            reserve: Leaf::new(Some(descriptor::own_event()?)),
            any_uid,
        })
    }

    pub(super) fn event_fd(&self) -> RawFd {
        self.epoll.as_raw_fd()
    }

    /// A name for something that is watched.
    pub(super) fn id(&self) -> u64 {
        self.next_id.fetch_add(1, Ordering::Relaxed)
    }

    /// Connections, each of which has a descriptor.
    pub(super) fn endpoints(&self) -> usize {
        self.endpoints.load(Ordering::Relaxed)
    }

    /// There is one more.
    pub(super) fn came(&self) {
        self.endpoints.fetch_add(1, Ordering::Relaxed);
    }

    /// One is gone.
    pub(super) fn went(&self) {
        self.endpoints.fetch_sub(1, Ordering::Relaxed);
    }

    /// A number that is good for addresses of tries, too.
    pub(super) fn key(&self) -> u32 {
        self.next_key.fetch_add(1, Ordering::Relaxed)
    }

    fn add(&self, fd: impl AsFd, id: u64, flags: EventFlags, who: Watched) -> Result<()> {
        self.watched.lock().insert(id, who);
        epoll::add(&self.epoll, fd, EventData::new_u64(id), flags).inspect_err(|_| self.unwatch(id))
    }

    /// The end of this connection is worth an event, once it is older than [`YOUNG`]. A short one is over by then in good order, which
    /// its own messages say: nobody need be woken for that. Threads that wait for a connection see its end themselves.
    pub(super) fn watch(&self, channel: &Arc<OwnFd>, id: u64, token: Token) {
        self.watched.lock().insert(id, Watched::Connection(token));
        let mut young = self.young.lock();
        young.push((id, Arc::downgrade(channel)));
        if young.len() == 1 {
            let once = Itimerspec { it_interval: Timespec::default(), it_value: YOUNG };
            if let Err(errno) = timerfd_settime(&self.timer, TimerfdTimerFlags::empty(), &once) {
                log_debug!("ends of peers will be seen late: {errno}");
            }
        }
    }

    /// Watches for the ends of those that were young.
    pub(super) fn grow_up(&self) {
        let _ = rustix::io::read(&self.timer, &mut [0_u8; 8]);
        let young = core::mem::take(&mut *self.young.lock());
        for (id, channel) in young {
            let Some(channel) = channel.upgrade() else { continue };
            // Edge-triggered: where a child holds the descriptor too, it cannot be taken off.
            if let Err(errno) = epoll::add(&self.epoll, &*channel, EventData::new_u64(id), EventFlags::RDHUP | EventFlags::ET) {
                log_debug!("the end of a peer will be seen late: {errno}");
            }
        }
    }

    /// Events carry another token from now on.
    pub(super) fn rename(&self, id: u64, token: Token) {
        if let Some(Watched::Connection(of)) = self.watched.lock().get_mut(&id) {
            *of = token;
        }
    }

    /// No more events of this.
    pub(super) fn unwatch(&self, id: u64) {
        let mut watched = self.watched.lock();
        let gone = watched.remove(&id);
        self.ignore(gone.as_ref());
        drop(watched);
    }

    /// Ends a listener, and those that have come to it and have not asked.
    pub(super) fn unlisten(&self, rendezvous: &Arc<Rendezvous>) {
        self.unwatch(rendezvous.id);
        let of_it = |who: &Watched| matches!(who, Watched::Asking(of, _) if Arc::ptr_eq(of, rendezvous));
        let mut watched = self.watched.lock();
        let gone: Vec<Watched> = watched.extract_if(|_, who| of_it(who)).map(|(_, who)| who).collect();
        gone.iter().for_each(|gone| self.ignore(Some(gone)));
        drop(watched);
    }

    /// What keeps a descriptor open may outlast its entry (a client that has not asked keeps its listener, a child of the program has
    /// all), and the end that it has come to would be an event for ever. Within the lock of the table: an event without an entry comes again
    /// and again, to a thread that may keep this one from its processor.
    fn ignore(&self, gone: Option<&Watched>) {
        let _ = match gone {
            Some(Watched::Listener(listener)) => epoll::delete(&self.epoll, &listener.socket),
            Some(Watched::Asking(_, channel)) => epoll::delete(&self.epoll, channel),
            // Edge-triggered, and a stranger here.
            Some(Watched::Connection(_)) | None => Ok(()),
        };
    }

    /// Starts to take connections of a listener.
    pub(super) fn listen(&self, rendezvous: &Arc<Rendezvous>) -> Result<()> {
        self.add(&rendezvous.socket, rendezvous.id, EventFlags::IN, Watched::Listener(Arc::clone(rendezvous)))
    }

    /// Whether a thread waits for the clients of this listener by itself.
    pub(super) fn attend(&self, rendezvous: &Rendezvous, attended: bool) {
        let flags = if attended { EventFlags::empty() } else { EventFlags::IN };
        if let Err(errno) = epoll::modify(&self.epoll, &rendezvous.socket, EventData::new_u64(rendezvous.id), flags) {
            log_debug!("{}: {errno}", rendezvous.addr);
        }
    }

    /// Whether a program of this user may be connected with.
    pub(super) fn lets_in(&self, uid: Option<u32>) -> bool {
        self.any_uid || uid == Some(user_now())
    }

    /// Memory for a connection.
    pub(super) fn memory(&self, layout: Layout) -> Result<Own> {
        let spare = self.spare.lock().take_if(|spare| spare.memory().layout() == layout);
        match spare {
            Some(own) => Ok(own),
            None => Own::new(layout, self.key()),
        }
    }

    /// Makes memory for a connection to come, like that of the last one, while there is nothing else to do but to wait.
    pub(super) fn refill(&self, layout: Layout) {
        if self.spare.lock().as_ref().is_some_and(|spare| spare.memory().layout() == layout) {
            return;
        }
        let spare = Own::new(layout, self.key()).map(Own::lay_aside).ok();
        let before = core::mem::replace(&mut *self.spare.lock(), spare);
        drop(before);
    }

    #[cfg(test)]
    pub(super) fn watched_count(&self) -> usize {
        self.watched.lock().len()
    }

    /// See [`Fabric::events`](crate::fabric::Fabric::events).
    pub(super) fn take_events(self: &Arc<Self>, most: usize) -> Vec<Event> {
        let mut events = Vec::new();
        // Clients that connect and say nothing are no events: however many come, there is an end.
        for _ in 0..most {
            if events.len() >= most {
                break;
            }
            let mut ready = Vec::with_capacity(most - events.len());
            match epoll::wait(&self.epoll, rustix::buffer::spare_capacity(&mut ready), Some(&Timespec::default())) {
                Ok(count) if count > 0 => {}
                _ => break,
            }
            for event in ready {
                match event.data.u64() {
                    TIMER => self.grow_up(),
                    id => events.extend(self.take_event(id)),
                }
            }
        }
        events
    }

    fn take_event(self: &Arc<Self>, id: u64) -> Option<Event> {
        let listener = {
            let mut watched = self.watched.lock();
            match watched.get(&id)? {
                Watched::Connection(token) => {
                    let token = *token;
                    watched.remove(&id);
                    return Some(Event::Disconnected { token });
                }
                Watched::Listener(listener) => Ok(Arc::clone(listener)),
                Watched::Asking(..) => {
                    let asking = watched.remove(&id)?;
                    self.ignore(Some(&asking));
                    Err(asking)
                }
            }
        };
        match listener {
            Ok(listener) => self.take_client(&listener),
            Err(Watched::Asking(listener, channel)) => self.take_request(&listener, channel),
            Err(_) => None,
        }
    }

    /// As [`Shared::take_client`], by a thread that waits for clients: for the request, too, for so long. EINTR: a signal ends its call.
    pub(super) fn await_client(self: &Arc<Self>, listener: &Arc<Rendezvous>, patience: Duration) -> Result<Option<Event>> {
        let channel = match self.accept_client(listener) {
            Ok(channel) => channel,
            Err(declined) => return Ok(declined),
        };
        let process = Process::this();
        let awaited = channel::await_word(channel.as_fd(), patience);
        if process.has_forked() {
            // By a signal handler, and this is the child: the client is the parent's.
            core::mem::forget(channel);
            return Err(Errno::INTR);
        }
        match awaited {
            Ok(()) => Ok(self.take_request(listener, channel)),
            Err(errno) => {
                self.await_request(listener, channel);
                Err(errno)
            }
        }
    }

    /// The next client of a listener, if it has asked already.
    pub(super) fn take_client(self: &Arc<Self>, listener: &Arc<Rendezvous>) -> Option<Event> {
        match self.accept_client(listener) {
            Ok(channel) => self.take_request(listener, channel),
            Err(declined) => declined,
        }
    }

    /// The next client of a listener. Without one there may be an event.
    fn accept_client(&self, listener: &Rendezvous) -> core::result::Result<OwnFd, Option<Event>> {
        let channel = match channel::accept(listener.socket.as_fd()) {
            Ok(channel) => channel,
            Err(errno @ (Errno::MFILE | Errno::NFILE)) => {
                warn_of_limit(errno);
                self.turn_away(listener);
                return Err(None);
            }
            Err(_) => return Err(None),
        };
        if listener.quiet.swap(false, Ordering::Relaxed) {
            self.attend(listener, false);
        }
        let channel = descriptor::lift_sparingly(channel, self.endpoints()).inspect_err(|errno| warn_of_limit(*errno)).map_err(|_| None)?;
        listener.listen_as(user_now());
        let uid = channel::peer_uid(channel.as_fd());
        if !self.lets_in(uid) {
            log_debug!("a client of {} is left to the kernel", channel::user(uid));
            return Err(Some(Event::Declined { listener: listener.token }));
        }
        Ok(channel)
    }

    /// Where no descriptor is left for a client it goes to the kernel's queue, where it waits as any other: here it would be announced
    /// again and again.
    fn turn_away(&self, listener: &Rendezvous) {
        let mut reserve = self.reserve.lock();
        drop(reserve.take());
        let turned_away = channel::accept(listener.socket.as_fd()).is_ok();
        if !turned_away && !listener.quiet.swap(true, Ordering::Relaxed) {
            // Not even so: one event a client must do, until there is a descriptor again.
            let flags = EventFlags::IN | EventFlags::ET;
            let _ = epoll::modify(&self.epoll, &listener.socket, EventData::new_u64(listener.id), flags);
        }
        *reserve = descriptor::own_event().ok();
    }

    /// The request of a client that has connected: now if it is there, else when it comes.
    fn take_request(self: &Arc<Self>, listener: &Arc<Rendezvous>, channel: OwnFd) -> Option<Event> {
        let (request, file) = match channel::hear(channel.as_fd()) {
            Heard::Silence => {
                self.await_request(listener, channel);
                return None;
            }
            Heard::End => return Some(Event::Declined { listener: listener.token }),
            Heard::Greeting(greeting, file) if greeting.verdict == Verdict::Request => (greeting, file),
            Heard::Greeting(..) | Heard::Nonsense => {
                log_debug!("a client of {} speaks nonsense", listener.addr);
                return None;
            }
        };
        let reaches = name::reaches(request.server, listener.addr, listener.v6_only);
        if !reaches || !may_come_from(request.client, channel.as_fd()) {
            log_debug!("a client of {} says that it comes from {} for {}", listener.addr, request.client, request.server);
            return None;
        }
        let config = *listener.endpoint.lock();
        let own = || self.memory(Layout::of(&config)?);
        let memories = Memory::that_came(file, &request).and_then(|peer| Ok((own()?, peer, Kept::new(config.send_bytes, None)?)));
        match memories {
            Ok((own, peer, kept)) => {
                let (client, server) = (request.client, request.server);
                let channel = Arc::new(channel);
                let parts =
                    Parts { shared: Arc::clone(self), channel, own, peer: Some(peer), kept, client, server, token: Token::default() };
                let endpoint: Box<dyn Endpoint> = Box::new(ShmEndpoint::new(parts, &config));
                Some(Event::Incoming { listener: listener.token, endpoint, private_data: request.private_data })
            }
            Err(errno) => {
                log_debug!("a client of {} is left to the kernel: {errno}", listener.addr);
                if matches!(errno, Errno::MFILE | Errno::NFILE | Errno::NOMEM | Errno::FBIG) {
                    warn_of_limit(errno);
                }
                None
            }
        }
    }

    fn await_request(&self, listener: &Arc<Rendezvous>, channel: OwnFd) {
        let id = self.id();
        // Within the lock, see `ignore`.
        let mut watched = self.watched.lock();
        if let Err(errno) = epoll::add(&self.epoll, &channel, EventData::new_u64(id), EventFlags::IN | EventFlags::RDHUP) {
            log_debug!("a client of {} is left to the kernel: {errno}", listener.addr);
            return;
        }
        watched.insert(id, Watched::Asking(Arc::clone(listener), channel));
        let asking = || watched.iter().filter(|(_, who)| matches!(who, Watched::Asking(..))).map(|(id, _)| *id);
        if asking().count() > ASKING {
            let oldest = asking().min();
            let turned_away = oldest.and_then(|oldest| watched.remove(&oldest));
            self.ignore(turned_away.as_ref());
            drop(watched);
        }
    }
}
