//! The one background thread of a process (DESIGN: D4): connection-manager events, deadlines, and connections that finish
//! after their last descriptor is closed.
//!
//! It owns the registry of connections by [`Token`]. Locks: the registry and the list of those in care are leaf locks, held
//! only to copy entries in and out; a handler runs without any of them.

mod forks;

pub use forks::{forks, inherit, note_fork, tell_parent};

use core::{
    sync::atomic::{AtomicBool, AtomicU8, AtomicU64, Ordering},
    time::Duration,
};
use std::{collections::HashMap, sync::Arc};

use rustix::fd::{AsRawFd, RawFd};

use crate::{
    error::{Errno, Result},
    fabric::{Event, Fabric, Token},
    log_trace, log_warn,
    sys::{
        clock::{self, Nanos},
        descriptor::{self, OwnFd},
        inside,
        lock::Leaf,
        own,
        ppoll::{PollFd, ppoll},
        signals, threads,
    },
};

/// Events taken from the fabric in one turn.
const EVENTS_A_TURN: usize = 64;
/// Connections in care whose event descriptors are watched at once; the others are looked at every [`CARE_INTERVAL`].
const WATCHED: usize = 128;
/// How often those in care that are not watched are looked at, in nanoseconds.
const CARE_INTERVAL: Nanos = 20_000_000;

/// How often the service looks at what is left at the end of the process, in nanoseconds.
const END_INTERVAL: Nanos = 1_000_000;

/// How long nothing must have happened before the fabric prepares for what may come. Its steps take some 100 us each, on soft-RoCE
/// within the kernel, where they keep the peer's answer waiting: the events of a connection that is being made follow each other
/// faster than this.
const QUIET: Duration = Duration::from_micros(250);

/// What the service is to do with a connection in its care.
pub enum Care {
    /// Look again at an event on its descriptor, or at this time.
    Until(Option<Nanos>),
    /// It needs no care any more, but stays known.
    Release,
    /// It is over: forget it. Its destruction happens here, in the service thread.
    Forget,
}

/// How far something is at the end of the process. Of several the greatest counts.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
#[repr(u8)]
pub enum Ending {
    /// Nothing that was sent is on its way any more.
    Over = 1,
    /// It is in use, perhaps by the call that the signal handler has interrupted which ends the process.
    Held = 2,
    /// Something is on its way.
    Waits = 3,
}

/// A connection or a listener, as the service sees it.
pub trait Handler: Send + Sync {
    /// Something has happened to it.
    fn event(self: Arc<Self>, event: Event, now: Nanos);

    /// Its turn while in care.
    fn care(self: Arc<Self>, now: Nanos) -> Care;

    /// The descriptor whose readability is worth a turn.
    fn event_fd(&self) -> Option<RawFd>;

    /// The process ends: a turn in the thread that ends it, which waits for no lock, gives nothing back and wakes nobody.
    fn end(&self, now: Nanos) -> Ending;

    /// The process is about to fork: what the child may be the one to use is not touched any more.
    fn before_fork(self: Arc<Self>) {}

    /// The process has forked, and [`Handler::forked`] will follow. Neither waits nor allocates.
    fn pause(&self, _child_serves: bool) {}

    /// The process has forked: what a child has too, and may serve, is left to the kernel. `child_serves`: one does.
    fn forked(&self, _child_serves: bool) {}
}

/// The service over one fabric.
pub struct Service {
    fabric: Arc<dyn Fabric>,
    wake: OwnFd,
    awake: AtomicBool,
    registry: Leaf<HashMap<Token, Arc<dyn Handler>>>,
    care: Leaf<Vec<Token>>,
    /// The process ends, and the service is to do what is left.
    asked: AtomicBool,
    /// How far it is: an [`Ending`], 0 before the first look.
    ending: AtomicU8,
    next_token: AtomicU64,
    /// See [`Service::run_in_background`].
    running: Leaf<bool>,
    /// The fabric may have events: the last look at its descriptor said so, or there was none yet.
    eventful: AtomicBool,
    /// Where the time of deadlines comes from.
    clock: Box<dyn Fn() -> Nanos + Send + Sync>,
}

impl Service {
    /// A service that is driven by [`Service::turn`].
    pub fn new(fabric: Arc<dyn Fabric>) -> Result<Arc<Self>> {
        Service::with_clock(fabric, clock::now)
    }

    /// A service whose connections take the time from `clock`: virtual time, in tests. [`Service::start`] is for real time only.
    pub fn with_clock(fabric: Arc<dyn Fabric>, clock: impl Fn() -> Nanos + Send + Sync + 'static) -> Result<Arc<Self>> {
        Ok(Arc::new(Service {
            fabric,
            wake: descriptor::own_event()?,
            awake: AtomicBool::new(false),
            registry: Leaf::new(HashMap::new()),
            care: Leaf::new(Vec::new()),
            asked: AtomicBool::new(false),
            ending: AtomicU8::new(0),
            next_token: AtomicU64::new(1),
            running: Leaf::new(false),
            eventful: AtomicBool::new(true),
            clock: Box::new(clock),
        }))
    }

    /// The time, as deadlines of connections have it.
    pub fn now(&self) -> Nanos {
        (self.clock)()
    }

    /// Starts the thread unless it runs: when there is something for it to do.
    pub fn run_in_background(self: &Arc<Self>) -> Result<()> {
        let mut running = self.running.lock();
        if !*running {
            self.start()?;
            *running = true;
        }
        Ok(())
    }

    /// Starts the thread. All signals are blocked in it: handlers run in the program's threads.
    pub fn start(self: &Arc<Self>) -> Result<()> {
        let service = Arc::clone(self);
        let spawned = signals::with_all_blocked(|| std::thread::Builder::new().name("rsocket".into()).spawn(move || service.run()));
        if spawned.is_ok() {
            threads::leave_one_out();
            own::thread_begins();
        }
        spawned.map(drop).map_err(|error| error.raw_os_error().map_or(Errno::AGAIN, Errno::from_raw_os_error))
    }

    /// The fabric.
    pub fn fabric(&self) -> &Arc<dyn Fabric> {
        &self.fabric
    }

    /// A name for a new connection or listener.
    pub fn token(&self) -> Token {
        Token(self.next_token.fetch_add(1, Ordering::Relaxed))
    }

    /// Makes a connection or listener known.
    pub fn register(&self, token: Token, handler: Arc<dyn Handler>) {
        self.registry.lock().insert(token, handler);
    }

    /// Forgets it. What is left of it is dropped by the caller.
    pub fn forget(&self, token: Token) -> Option<Arc<dyn Handler>> {
        self.registry.lock().remove(&token)
    }

    /// Takes it into care: [`Handler::care`] is called soon, and again until it says otherwise.
    pub fn take_care(&self, token: Token) {
        self.keep_in_care(token);
        self.nudge();
    }

    fn keep_in_care(&self, token: Token) {
        let mut care = self.care.lock();
        if !care.contains(&token) {
            care.push(token);
        }
    }

    /// Everything that is known.
    pub fn everything(&self) -> Vec<Arc<dyn Handler>> {
        self.registry.lock().values().cloned().collect()
    }

    /// Forgets everything, as if the program had died.
    #[cfg(test)]
    pub(crate) fn abandon(&self) {
        let everything = core::mem::take(&mut *self.registry.lock());
        self.care.lock().clear();
        drop(everything);
    }

    /// Waits until nothing is known, at most until `deadline`. Only where the thread runs.
    #[cfg(test)]
    pub(crate) fn wait_forgotten(&self, deadline: Nanos) {
        while !self.registry.lock().is_empty() && clock::now() < deadline {
            clock::sleep(Duration::from_millis(1));
        }
    }

    /// The process ends: all that is known takes a [turn](Handler::end). The registry may be in use itself. (The one place where it is held
    /// while handlers run: they wait for nothing.)
    pub fn end_all(&self, now: Nanos) -> Ending {
        let Some(registry) = self.registry.try_lock() else { return Ending::Held };
        registry.values().map(|handler| handler.end(now)).max().unwrap_or(Ending::Over)
    }

    /// The same, by a thread that cannot do it: the service's does. Gives how far it is.
    pub fn ask_to_end(&self) -> Ending {
        if !self.asked.swap(true, Ordering::AcqRel) {
            self.nudge();
        }
        match self.ending.load(Ordering::Acquire) {
            ending if ending == Ending::Over as u8 => Ending::Over,
            ending if ending == Ending::Waits as u8 => Ending::Waits,
            _ => Ending::Held,
        }
    }

    fn nudge(&self) {
        if !self.awake.swap(true, Ordering::AcqRel) {
            descriptor::signal(&self.wake);
        }
    }

    /// One turn at time `now`: events, then those in care. Gives the time of the next turn that is due without any event.
    pub fn turn(&self, now: Nanos) -> Option<Nanos> {
        for event in self.fabric.events(EVENTS_A_TURN) {
            self.dispatch(event, now);
        }
        self.care_for_all(now)
    }

    fn care_for_all(&self, now: Nanos) -> Option<Nanos> {
        // Taken out first: whoever asks for care from now on gets another turn, whatever this one says.
        let in_care = core::mem::take(&mut *self.care.lock());
        let mut next = None;
        for token in in_care {
            let handler = self.registry.lock().get(&token).cloned();
            let care = handler.map_or(Care::Forget, |handler| handler.care(now));
            match care {
                Care::Until(at) => {
                    next = clock::earlier(next, at);
                    self.keep_in_care(token);
                }
                Care::Release => {}
                Care::Forget => drop(self.forget(token)),
            }
        }
        next
    }

    fn dispatch(&self, event: Event, now: Nanos) {
        log_trace!("event {}", event.name());
        let token = match &event {
            Event::Ready { token, .. } | Event::Established { token, .. } | Event::Failed { token, .. } | Event::Disconnected { token } => {
                *token
            }
            Event::Incoming { listener, .. } | Event::Declined { listener } => *listener,
        };
        let handler = self.registry.lock().get(&token).cloned();
        match (handler, event) {
            (Some(handler), event) => handler.event(event, now),
            // The listener was closed a moment ago.
            (None, Event::Incoming { mut endpoint, .. }) => endpoint.reject(),
            // The connection was closed a moment ago: an endpoint in the event is destroyed here.
            (None, event) => drop(event),
        }
    }

    fn run(self: Arc<Self>) {
        inside::enter_for_ever();
        loop {
            self.see_to_forks();
            let now = clock::now();
            let mut next = if self.eventful.swap(false, Ordering::Relaxed) { self.turn(now) } else { self.care_for_all(now) };
            if self.asked.load(Ordering::Acquire) {
                self.ending.store(self.end_all(now) as u8, Ordering::Release);
                next = clock::earlier(next, Some(now.saturating_add(END_INTERVAL)));
            }
            self.rest(next);
        }
    }

    /// Sleeps until a turn is worth while; in between, the fabric does what could wait until now, as long as nothing else is to do.
    fn rest(&self, next: Option<Nanos>) {
        loop {
            let now = clock::now();
            match self.fabric.next_preparation(now) {
                Some(at) if at <= now => {}
                at => return self.sleep(clock::earlier(next, at)),
            }
            let left = clock::left(now, next).map_or(QUIET, |left| left.min(QUIET));
            if self.wait(Some(left)) || next.is_some_and(|next| next <= clock::now()) {
                return;
            }
            self.fabric.prepare(now);
        }
    }

    fn sleep(&self, until: Option<Nanos>) {
        let mut until = until;
        if self.care.lock().len() > WATCHED {
            until = clock::earlier(until, Some(clock::now().saturating_add(CARE_INTERVAL)));
        }
        self.wait(clock::left(clock::now(), until));
    }

    /// Waits until a turn is worth while, at most this long. False: the time is over.
    pub(crate) fn wait(&self, most: Option<Duration>) -> bool {
        let care = self.care.lock().clone();
        // Held over the wait so that the descriptors stay open.
        let handlers: Vec<_> = {
            let registry = self.registry.lock();
            care.iter().take(WATCHED).filter_map(|token| registry.get(token).cloned()).collect()
        };
        let fabric = self.fabric.event_fds();
        let fds = fabric.iter().copied().chain(handlers.iter().filter_map(|handler| handler.event_fd()));
        let mut set: Vec<_> =
            [self.wake.as_raw_fd()].into_iter().chain(fds).map(|fd| PollFd { fd, events: libc::POLLIN, revents: 0 }).collect();
        let found = ppoll(&mut set, most, None);
        let eventful = set.iter().skip(1).take(fabric.len()).any(|fabric| fabric.revents != 0);
        if eventful || fabric.is_empty() || found.is_err() {
            self.eventful.store(true, Ordering::Relaxed);
        }
        if let Err(errno) = found
            && errno != Errno::INTR
        {
            log_warn!("service: poll: {errno}");
        }
        // Drained first: a nudge after the flag is back must leave its signal. And a signal that comes later than its flag
        // was seen is drained when it is seen.
        if self.awake.load(Ordering::Acquire) || set.first().is_some_and(|wake| wake.revents != 0) {
            self.awoken();
            self.awake.swap(false, Ordering::AcqRel);
        }
        found != Ok(0)
    }
}

#[cfg(test)]
mod tests;
