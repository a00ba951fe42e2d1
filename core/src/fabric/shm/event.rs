//! What all connections of a process over shared memory have in common: one epoll descriptor, who is behind what it reports, and the
//! memory that is made ready for the next connection.
//!
//! Locks: the table and the spare are leaf locks, held for a look-up.
#![forbid(unsafe_code)]

use core::{
    net::SocketAddr,
    sync::atomic::{AtomicU32, AtomicU64, Ordering},
};
use std::{
    collections::HashMap,
    os::fd::RawFd,
    sync::{Arc, Mutex, MutexGuard},
};

use rustix::{
    event::{
        Timespec,
        epoll::{self, CreateFlags, EventData, EventFlags},
    },
    fd::{AsFd, AsRawFd, OwnedFd},
};

use super::{
    channel,
    endpoint::{Parts, ShmEndpoint},
    greeting::{BYTES, Greeting, Verdict},
    memory::{Layout, Memory, Own},
    name,
};
use crate::{
    error::{Errno, Result},
    fabric::{Endpoint, EndpointConfig, Event, Token, warn_of_limit},
    log_debug,
    sys::descriptor,
};

/// Clients that have connected and not asked yet; of more, the oldest are turned away.
pub(super) const ASKING: usize = 256;

/// Events of a listening socket. Edge-triggered: where there is no descriptor for a client, the service must not be woken for it again
/// and again.
const LISTENING: EventFlags = EventFlags::IN.union(EventFlags::ET);

/// A listening socket.
pub(super) struct Rendezvous {
    pub(super) socket: OwnedFd,
    pub(super) token: Token,
    pub(super) addr: SocketAddr,
    pub(super) v6_only: bool,
    pub(super) endpoint: EndpointConfig,
}

/// Who is behind a descriptor.
enum Watched {
    Listener(Arc<Rendezvous>),
    /// A client of the listener, connected, whose request has not come yet.
    Asking(Arc<Rendezvous>, OwnedFd),
    /// Its end is watched for.
    Connection(Token),
}

/// See the module.
pub(super) struct Shared {
    epoll: OwnedFd,
    watched: Mutex<HashMap<u64, Watched>>,
    next_id: AtomicU64,
    next_key: AtomicU32,
    spare: Mutex<Option<Own>>,
    /// Programs of other users are let in.
    any_uid: bool,
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(|poisoned| poisoned.into_inner())
}

impl Shared {
    pub(super) fn new(any_uid: bool) -> Result<Self> {
        let mut seed = [0; 4];
        // Keys only tell connections apart: any will do.
        let _ = rustix::rand::getrandom(&mut seed, rustix::rand::GetRandomFlags::NONBLOCK);
        Ok(Shared {
            epoll: descriptor::lift(epoll::create(CreateFlags::CLOEXEC)?),
            watched: Mutex::new(HashMap::new()),
            next_id: AtomicU64::new(1),
            next_key: AtomicU32::new(u32::from_ne_bytes(seed)),
            spare: Mutex::new(None),
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

    /// A number that is good for addresses of tries, too.
    pub(super) fn key(&self) -> u32 {
        self.next_key.fetch_add(1, Ordering::Relaxed)
    }

    fn add(&self, fd: impl AsFd, id: u64, flags: EventFlags, who: Watched) -> Result<()> {
        lock(&self.watched).insert(id, who);
        epoll::add(&self.epoll, fd, EventData::new_u64(id), flags).inspect_err(|_| self.unwatch(id))
    }

    /// The end of this connection is worth an event.
    pub(super) fn watch(&self, channel: &OwnedFd, id: u64, token: Token) {
        // Edge-triggered: where a child holds the descriptor too, it cannot be taken off.
        if let Err(errno) = self.add(channel, id, EventFlags::RDHUP | EventFlags::ET, Watched::Connection(token)) {
            log_debug!("{token:?}: the end of the peer will be seen late: {errno}");
        }
    }

    /// Events carry another token from now on.
    pub(super) fn rename(&self, id: u64, token: Token) {
        if let Some(Watched::Connection(of)) = lock(&self.watched).get_mut(&id) {
            *of = token;
        }
    }

    /// No more events of this.
    pub(super) fn unwatch(&self, id: u64) {
        let gone = lock(&self.watched).remove(&id);
        self.ignore(gone.as_ref());
    }

    /// Ends a listener, and those that have come to it and have not asked.
    pub(super) fn unlisten(&self, id: u64, rendezvous: &Arc<Rendezvous>) {
        self.unwatch(id);
        let of_it = |who: &Watched| matches!(who, Watched::Asking(of, _) if Arc::ptr_eq(of, rendezvous));
        let gone: Vec<Watched> = lock(&self.watched).extract_if(|_, who| of_it(who)).map(|(_, who)| who).collect();
        gone.iter().for_each(|gone| self.ignore(Some(gone)));
    }

    /// What keeps a descriptor open may outlast its entry (a client that has not asked keeps its listener, a child of the program has
    /// all), and the end that it has come to would be an event for ever.
    fn ignore(&self, gone: Option<&Watched>) {
        let _ = match gone {
            Some(Watched::Listener(listener)) => epoll::delete(&self.epoll, &listener.socket),
            Some(Watched::Asking(_, channel)) => epoll::delete(&self.epoll, channel),
            // Edge-triggered, and a stranger here.
            Some(Watched::Connection(_)) | None => Ok(()),
        };
    }

    /// Starts to take connections of a listener.
    pub(super) fn listen(&self, rendezvous: &Arc<Rendezvous>) -> Result<u64> {
        let id = self.id();
        self.add(&rendezvous.socket, id, LISTENING, Watched::Listener(Arc::clone(rendezvous)))?;
        Ok(id)
    }

    /// Whether a program of this user may be connected with.
    pub(super) fn lets_in(&self, uid: Option<u32>) -> bool {
        self.any_uid || uid == Some(rustix::process::geteuid().as_raw())
    }

    /// Memory for a connection.
    pub(super) fn memory(&self, layout: Layout) -> Result<Own> {
        let spare = lock(&self.spare).take_if(|spare| spare.memory().layout() == layout);
        match spare {
            Some(own) => Ok(own),
            None => Own::new(layout, self.key()),
        }
    }

    /// Makes memory for a connection to come, like that of the last one, while there is nothing else to do but to wait.
    pub(super) fn refill(&self, layout: Layout) {
        if lock(&self.spare).as_ref().is_some_and(|spare| spare.memory().layout() == layout) {
            return;
        }
        let spare = Own::new(layout, self.key()).map(Own::lay_aside).ok();
        let before = core::mem::replace(&mut *lock(&self.spare), spare);
        drop(before);
    }

    #[cfg(test)]
    pub(super) fn watched_count(&self) -> usize {
        lock(&self.watched).len()
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
                events.extend(self.take_event(event.data.u64()));
            }
        }
        events
    }

    fn take_event(self: &Arc<Self>, id: u64) -> Option<Event> {
        let listener = {
            let mut watched = lock(&self.watched);
            match watched.get(&id)? {
                Watched::Connection(token) => {
                    let token = *token;
                    watched.remove(&id);
                    return Some(Event::Disconnected { token });
                }
                Watched::Listener(listener) => Ok(Arc::clone(listener)),
                Watched::Asking(..) => Err(watched.remove(&id)?),
            }
        };
        match listener {
            Ok(listener) => self.take_client(&listener, id),
            Err(asking) => {
                self.ignore(Some(&asking));
                let Watched::Asking(listener, channel) = asking else { return None };
                self.take_request(&listener, channel)
            }
        }
    }

    fn take_client(self: &Arc<Self>, listener: &Arc<Rendezvous>, id: u64) -> Option<Event> {
        let channel = match channel::accept(listener.socket.as_fd()) {
            Ok(channel) => channel,
            Err(Errno::AGAIN) => return None,
            Err(errno) => {
                // It will lose patience, or be served together with the next one.
                log_debug!("a client of {} has to wait: {errno}", listener.addr);
                if matches!(errno, Errno::MFILE | Errno::NFILE | Errno::NOMEM | Errno::NOBUFS) {
                    warn_of_limit(errno);
                }
                return None;
            }
        };
        // Whoever else waits there is an event again.
        let _ = epoll::modify(&self.epoll, &listener.socket, EventData::new_u64(id), LISTENING);
        let uid = channel::peer_uid(channel.as_fd());
        if !self.lets_in(uid) {
            log_debug!("a client of user {uid:?} is left to the kernel");
            return None;
        }
        self.take_request(listener, channel)
    }

    /// The request of a client that has connected: now if it is there, else when it comes.
    fn take_request(self: &Arc<Self>, listener: &Arc<Rendezvous>, channel: OwnedFd) -> Option<Event> {
        let mut bytes = [0; BYTES + 1];
        let (len, file) = match channel::receive(channel.as_fd(), &mut bytes) {
            Err(Errno::AGAIN | Errno::INTR) => {
                self.await_request(listener, channel);
                return None;
            }
            Err(_) | Ok((0, _)) => return None,
            Ok(received) => received,
        };
        let Some(request) = bytes.get(..len).and_then(Greeting::parse).filter(|greeting| greeting.verdict == Verdict::Request) else {
            log_debug!("a client of {} speaks nonsense", listener.addr);
            return None;
        };
        if !name::reaches(request.server, listener.addr, listener.v6_only) {
            log_debug!("a client of {} asks for {}", listener.addr, request.server);
            return None;
        }
        let peer = file.ok_or(Errno::PROTO).and_then(|file| Memory::of_peer(file.as_fd(), request.layout, request.key));
        let memories = peer.and_then(|peer| Ok((self.memory(Layout::of(&listener.endpoint)?)?, peer)));
        match memories {
            Ok((own, peer)) => {
                let (client, server) = (request.client, request.server);
                let parts = Parts { shared: Arc::clone(self), channel, own, peer: Some(peer), client, server, token: Token::default() };
                let endpoint: Box<dyn Endpoint> = Box::new(ShmEndpoint::new(parts, &listener.endpoint));
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

    fn await_request(&self, listener: &Arc<Rendezvous>, channel: OwnedFd) {
        let id = self.id();
        if let Err(errno) = epoll::add(&self.epoll, &channel, EventData::new_u64(id), EventFlags::IN | EventFlags::RDHUP) {
            log_debug!("a client of {} is left to the kernel: {errno}", listener.addr);
            return;
        }
        let mut watched = lock(&self.watched);
        watched.insert(id, Watched::Asking(Arc::clone(listener), channel));
        let asking = || watched.iter().filter(|(_, who)| matches!(who, Watched::Asking(..))).map(|(id, _)| *id);
        if asking().count() > ASKING {
            let oldest = asking().min();
            let turned_away = oldest.and_then(|oldest| watched.remove(&oldest));
            drop(watched);
            self.ignore(turned_away.as_ref());
        }
    }
}
