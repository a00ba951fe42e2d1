//! One member of a set: what is asked of it, where its events come from, and which of them are new.

use core::sync::atomic::Ordering;
use std::{collections::HashMap, os::fd::RawFd, sync::Arc};

use libc::{EPOLL_CTL_ADD, EPOLL_CTL_MOD, EPOLLERR, EPOLLHUP, EPOLLIN, EPOLLOUT, EPOLLRDHUP};
use rustix::fd::AsRawFd;

use super::{ET, ONESHOT, Own, drop_from, mailbox::Member};
use crate::{
    error::{Errno, Result},
    log_debug,
    socket::{
        Role, Socket,
        datagram::Datagram,
        listener::Listener,
        readiness::Readiness,
        stream::{See, Seen, Stream},
        wait::Watcher,
    },
    sys::epoll::{self, Event},
};

/// "epoll_wait(2) will always report for this event" (epoll_ctl(2)).
const ALWAYS: u32 = (EPOLLERR | EPOLLHUP) as u32;
/// These end something: whoever waits for anything is told, as by the kernel.
const ENDS: u32 = ALWAYS | EPOLLRDHUP as u32;
pub(super) const READABLE: u32 = (EPOLLIN | libc::EPOLLRDNORM) as u32;
const WRITABLE: u32 = (EPOLLOUT | libc::EPOLLWRNORM) as u32;

/// What the fabrics have of a member.
enum Target {
    /// Nothing, until it connects or listens.
    Fresh,
    Stream(Arc<Stream>),
    Listener(Arc<Listener>),
    Datagram(Arc<Datagram>),
}

impl Target {
    /// The descriptor that announces it. `None`: something else does.
    fn event_fd(&self) -> Option<RawFd> {
        match self {
            Target::Stream(stream) => Some(stream.event_fd()),
            Target::Datagram(datagram) => Some(datagram.event_fd()),
            Target::Fresh | Target::Listener(_) => None,
        }
    }
}

/// What the last look has seen.
#[derive(Clone, Copy, Default)]
struct Last {
    events: u32,
    arrivals: u32,
    blocked: u32,
}

/// See the module. Locked with the members of its set.
pub(super) struct Entry {
    pub(super) member: Arc<Member>,
    /// The number under which it was put in.
    pub(super) fd: RawFd,
    /// That number is closed, though the socket has others: the kernel's set cannot be told of it any more.
    pub(super) number_is_closed: bool,
    /// Looks in a row that have seen nothing to report.
    pub(super) idle: u32,
    /// EPOLLONESHOT has had its event.
    pub(super) disabled: bool,
    /// The user's data.
    pub(super) data: u64,
    /// Where the socket is: with its number, its name.
    socket: usize,
    flags: u32,
    target: Target,
    /// The program's set has it, too.
    in_kernel: bool,
    /// Its event descriptor in the library's own set, -1 for none.
    event_fd: RawFd,
    last: Last,
    /// It was put in or changed since it was last looked at: what there is counts as new.
    renewed: bool,
}

/// What a look shows.
pub(super) enum Sight {
    /// These events, with what tells whether they are new.
    Events(Seen, u32),
    /// The kernel has the socket for good.
    Kernel,
}

fn address(socket: &Socket) -> usize {
    core::ptr::from_ref(socket).addr()
}

impl Entry {
    pub(super) fn new(member: Member, fd: RawFd, socket: &Socket, event: Event) -> Self {
        Entry {
            member: Arc::new(member),
            fd,
            number_is_closed: false,
            idle: 0,
            disabled: false,
            data: event.u64,
            socket: address(socket),
            flags: event.events,
            target: Target::Fresh,
            in_kernel: false,
            event_fd: -1,
            last: Last::default(),
            renewed: true,
        }
    }

    /// As its socket knows it.
    pub(super) fn watcher(&self) -> Arc<dyn Watcher> {
        Arc::clone(&self.member) as Arc<dyn Watcher>
    }

    /// The events and flags that were asked for.
    pub(super) fn flags(&self) -> u32 {
        self.flags
    }

    /// The kernel's set and the fabrics both have it.
    pub(super) fn is_in_both(&self) -> bool {
        matches!(self.target, Target::Listener(_) | Target::Datagram(_))
    }

    /// Once its event has come from either side, the other must be disabled too.
    pub(super) fn is_one_shot_in_both(&self) -> bool {
        self.flags & ONESHOT != 0 && self.is_in_both()
    }

    /// The stream, if it is one.
    pub(super) fn stream(&self) -> Option<&Arc<Stream>> {
        match &self.target {
            Target::Stream(stream) => Some(stream),
            Target::Fresh | Target::Listener(_) | Target::Datagram(_) => None,
        }
    }

    /// Whether the kernel's socket has something for the program, and not only for the library.
    pub(super) fn has_mail(&self) -> bool {
        match &self.target {
            Target::Datagram(datagram) => datagram.has_mail(self.fd),
            Target::Fresh | Target::Stream(_) | Target::Listener(_) => true,
        }
    }

    /// EPOLLONESHOT has had an event that was none.
    pub(super) fn renew_one_shot(&self, own: &Own) {
        if self.in_kernel && self.flags & ONESHOT != 0 && !self.disabled && !self.number_is_closed {
            let _ = epoll::control(own.program.as_raw_fd(), EPOLL_CTL_MOD, self.fd, Some(self.event()));
        }
    }

    fn event(&self) -> Event {
        Event { events: self.flags, u64: self.data }
    }

    /// Puts it where its socket's role wants it: the kernel's set, or among those that a fabric announces, or both.
    pub(super) fn place(&mut self, own: &Own, socket: &Socket) -> Result<()> {
        let wanted = match socket.role() {
            Role::Fresh | Role::Kernel | Role::KernelListener | Role::Deferred | Role::Datagram => true,
            Role::Listener => socket.listener().is_some_and(|listener| listener.kernel_listens()),
            Role::Stream => false,
        };
        if wanted && !self.in_kernel {
            epoll::control(own.program.as_raw_fd(), EPOLL_CTL_ADD, self.fd, Some(self.event()))?;
        } else if self.in_kernel && !wanted {
            self.leave_kernel(own);
        }
        self.in_kernel = wanted;
        let watcher = self.watcher();
        if let (Target::Fresh, Some(datagram)) = (&self.target, socket.datagram()) {
            datagram.sleepers().watch(&watcher);
            self.target = Target::Datagram(Arc::clone(datagram));
            self.renewed = true;
            return Ok(());
        }
        match (&self.target, socket.stream(), socket.listener()) {
            (Target::Fresh, Some(stream), _) => {
                stream.sleepers().watch(&watcher);
                self.target = Target::Stream(Arc::clone(stream));
            }
            (Target::Fresh, None, Some(listener)) => {
                listener.sleepers().watch(&watcher);
                self.target = Target::Listener(Arc::clone(listener));
            }
            _ => return Ok(()),
        }
        self.renewed = true;
        Ok(())
    }

    /// A number that is closed may be another descriptor by now.
    fn leave_kernel(&self, own: &Own) {
        if !self.number_is_closed {
            drop_from(&own.program, self.fd);
        }
    }

    /// EPOLL_CTL_MOD.
    pub(super) fn modify(&mut self, own: &Own, event: Event) -> Result<()> {
        if self.in_kernel {
            epoll::control(own.program.as_raw_fd(), EPOLL_CTL_MOD, self.fd, Some(event))?;
        }
        self.flags = event.events;
        self.data = event.u64;
        self.disabled = false;
        self.renewed = true;
        Ok(())
    }

    /// The kernel has its socket for good, and its member as well.
    pub(super) fn give_to_kernel(&mut self, own: &Own) {
        if !self.in_kernel && !self.number_is_closed {
            let event = if self.disabled { Event { events: ONESHOT | ET, u64: self.data } } else { self.event() };
            let _ = epoll::control(own.program.as_raw_fd(), EPOLL_CTL_ADD, self.fd, Some(event));
        }
        self.in_kernel = true;
    }

    /// It is a member no longer.
    pub(super) fn leave(self, own: &Own, kernel: bool) {
        if kernel && self.in_kernel {
            self.leave_kernel(own);
        }
        // A number that is not its stream's any more may be another one's.
        if self.event_fd >= 0 && self.target.event_fd() == Some(self.event_fd) {
            drop_from(&own.private, self.event_fd);
        }
        self.ignore();
    }

    /// Its socket tells it nothing more.
    pub(super) fn ignore(self) {
        match &self.target {
            Target::Fresh => {}
            Target::Stream(stream) => stream.sleepers().unwatch(&self.watcher()),
            Target::Listener(listener) => listener.sleepers().unwatch(&self.watcher()),
            Target::Datagram(datagram) => datagram.sleepers().unwatch(&self.watcher()),
        }
    }

    /// One event is all that EPOLLONESHOT wants, from whichever side it comes.
    pub(super) fn disable(&mut self, own: &Own) {
        self.disabled = true;
        if self.in_kernel {
            let nothing = Event { events: ONESHOT | ET, u64: self.data };
            let _ = epoll::control(own.program.as_raw_fd(), EPOLL_CTL_MOD, self.fd, Some(nothing));
        }
    }

    /// Has the event descriptor, which a stream gets while it connects, in the library's own set.
    pub(super) fn follow(&mut self, own: &Own) -> Result<()> {
        let Some(now) = self.target.event_fd() else { return Ok(()) };
        if now == self.event_fd {
            return Ok(());
        }
        self.event_fd = now;
        if now < 0 {
            return Ok(());
        }
        let event = Event { events: EPOLLIN as u32, u64: self.member.name };
        match epoll::control(own.private.as_raw_fd(), EPOLL_CTL_ADD, now, Some(event)) {
            // A number that was another stream's before, whose descriptor a child of the program still holds.
            Err(Errno::EXIST) => epoll::control(own.private.as_raw_fd(), EPOLL_CTL_MOD, now, Some(event)),
            added => added,
        }
        // "ENOSPC The limit imposed by /proc/sys/fs/epoll/max_user_watches was encountered" (epoll_ctl(2)): the next look tries again.
        .inspect_err(|_| self.event_fd = -1)
    }

    /// Looks at it.
    pub(super) fn see(&mut self, own: &Own, how: See) -> Sight {
        if let Err(errno) = self.follow(own) {
            log_debug!("descriptor {} in an epoll set: {errno}", self.fd);
        }
        match &self.target {
            Target::Fresh => Sight::Events(Seen { readiness: Readiness::Events(0), arrivals: 0, blocked: 0, over: false }, 0),
            Target::Listener(listener) => {
                let seen = listener.see();
                Sight::Events(seen, bits(seen.readiness))
            }
            Target::Stream(stream) => match stream.see(how) {
                Ok(Seen { readiness: Readiness::Kernel, .. }) => Sight::Kernel,
                Ok(seen) => Sight::Events(seen, bits(seen.readiness)),
                // A signal handler's look at what its own thread works on.
                Err(_) => Sight::Events(Seen { readiness: Readiness::Events(0), ..self.last_seen() }, 0),
            },
            Target::Datagram(datagram) => match datagram.see(how) {
                Ok(seen) => Sight::Events(seen, bits(seen.readiness)),
                Err(_) => Sight::Events(self.last_seen(), 0),
            },
        }
    }

    /// Takes an announcement off its event descriptor. After the last one that stays readable, and is watched no longer.
    pub(super) fn hear(&mut self, own: &Own) {
        if let Sight::Events(Seen { over: true, .. }, _) = self.see(own, See::Announced)
            && self.event_fd >= 0
        {
            drop_from(&own.private, self.event_fd);
        }
    }

    fn last_seen(&self) -> Seen {
        let Last { arrivals, blocked, .. } = self.last;
        Seen { readiness: Readiness::Events(0), arrivals, blocked, over: false }
    }

    /// The events to report of what was seen; none is 0.
    pub(super) fn to_report(&self, seen: &Seen, events: u32) -> u32 {
        let wanted = events & (self.flags | ALWAYS);
        if self.flags & ET == 0 || self.renewed {
            return wanted;
        }
        let mut news = events & !self.last.events;
        if seen.arrivals != self.last.arrivals {
            news |= READABLE;
        }
        if seen.blocked != self.last.blocked {
            news |= events & WRITABLE;
        }
        let concerned = news & (self.flags | ENDS) != 0;
        if concerned { wanted } else { 0 }
    }

    /// This was seen, and reported as far as it was to be.
    pub(super) fn saw(&mut self, seen: &Seen, events: u32) {
        self.last = Last { events, arrivals: seen.arrivals, blocked: seen.blocked };
        self.renewed = false;
    }

    /// It goes cold: what changes from now on is posted.
    pub(super) fn cool(&self) {
        self.member.queued.store(false, Ordering::SeqCst);
    }

    /// It is hot, or stays so. False: somebody else has posted it meanwhile.
    pub(super) fn heat(&self) -> bool {
        !self.member.queued.swap(true, Ordering::AcqRel)
    }
}

fn bits(readiness: Readiness) -> u32 {
    match readiness {
        Readiness::Events(events) => u32::from(events.cast_unsigned()),
        Readiness::Kernel => 0,
    }
}

/// The members of a set by name, and by number and socket. A name is a place and how often that was given away.
#[derive(Default)]
pub(super) struct Entries {
    places: Vec<Place>,
    free: Vec<u32>,
    names: HashMap<(RawFd, usize), u64>,
}

#[derive(Default)]
struct Place {
    uses: u32,
    entry: Option<Entry>,
}

fn place_of(name: u64) -> usize {
    name as u32 as usize
}

impl Entries {
    /// How many there are, at most.
    pub(super) fn len(&self) -> usize {
        self.places.len()
    }

    /// A name for the next member. (0 is nobody's.)
    pub(super) fn free_name(&mut self) -> u64 {
        if self.free.is_empty() {
            self.free.push(self.places.len() as u32);
            self.places.push(Place::default());
        }
        let at = self.free.last().copied().unwrap_or(0);
        let uses = self.places.get(at as usize).map_or(0, |place| place.uses);
        u64::from(uses.wrapping_add(1).max(1)) << 32 | u64::from(at)
    }

    /// Enters it under the name that was given last.
    pub(super) fn insert(&mut self, entry: Entry) {
        let name = entry.member.name;
        if let Some(place) = self.places.get_mut(place_of(name)) {
            self.free.pop();
            self.names.insert((entry.fd, entry.socket), name);
            *place = Place { uses: (name >> 32) as u32, entry: Some(entry) };
        }
    }

    pub(super) fn get_mut(&mut self, name: u64) -> Option<&mut Entry> {
        self.places.get_mut(place_of(name))?.entry.as_mut().filter(|entry| entry.member.name == name)
    }

    pub(super) fn take(&mut self, name: u64) -> Option<Entry> {
        let entry = self.places.get_mut(place_of(name))?.entry.take_if(|entry| entry.member.name == name)?;
        self.names.remove(&(entry.fd, entry.socket));
        self.free.push(name as u32);
        Some(entry)
    }

    /// The name of the member that this number of the socket is.
    pub(super) fn find(&self, fd: RawFd, socket: &Socket) -> Option<u64> {
        self.names.get(&(fd, address(socket))).copied()
    }

    pub(super) fn iter_mut(&mut self) -> impl Iterator<Item = &mut Entry> {
        self.places.iter_mut().filter_map(|place| place.entry.as_mut())
    }

    pub(super) fn all(self) -> impl Iterator<Item = Entry> {
        self.places.into_iter().filter_map(|place| place.entry)
    }
}
