//! Sets of sockets: what epoll(7) knows of rsockets (DESIGN: D7).
//!
//! Under the program's number stands a real epoll set, which has the kernel's descriptors, events and user data as the program gave them.
//! The rsockets of a set are members here. A member is *hot*, in the list of those that each wait looks at, while something happens to
//! it; when nothing has for a while, or before a thread sleeps, it is armed and goes *cold*: then its event descriptor, which stands in an
//! epoll set of the library's own, or whoever else changes the socket, announces it. So a wait costs by active members, and a busy one
//! needs no system call.
//!
//! The library's own epoll set is a member of the program's, under a tag that no member of the program's has: a thread sleeps in the
//! program's set, and is woken for either kind. Kernel descriptors thus cost what they cost without the library.
//!
//! Locks: a set's members (DESIGN: lock 2) are locked for a look, never across a wait; its mailbox is a leaf lock, since sockets post
//! there under locks of their own.

mod entry;
mod mailbox;
mod wait;

use core::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use std::{
    collections::VecDeque,
    os::fd::RawFd,
    sync::{Arc, OnceLock, Weak},
};

use entry::{Entries, Entry};
use libc::{EPOLL_CTL_ADD, EPOLL_CTL_DEL, EPOLL_CTL_MOD, EPOLLIN};
use mailbox::{Mailbox, Member};
use rustix::{
    event::epoll::{CreateFlags, create},
    fd::AsRawFd,
};

use crate::{
    error::{Errno, Result},
    log_debug,
    socket::{Role, Socket, spin::Spin},
    sys::{
        clock::Nanos,
        descriptor::{self, OwnFd},
        epoll::{self, Event},
        lock::{Guard, Lock},
        once::Once,
        own,
    },
};

const ET: u32 = libc::EPOLLET as u32;
const ONESHOT: u32 = libc::EPOLLONESHOT as u32;
const EXCLUSIVE: u32 = libc::EPOLLEXCLUSIVE as u32;
/// What may be asked for together with EPOLLEXCLUSIVE (epoll_ctl(2)), EPOLLERR, EPOLLHUP and EPOLLWAKEUP among them.
const WITH_EXCLUSIVE: u32 = (EPOLLIN | libc::EPOLLOUT | libc::EPOLLERR | libc::EPOLLHUP | libc::EPOLLWAKEUP) as u32 | ET | EXCLUSIVE;

/// The library's own set announces this of itself: a mail has come.
const MAIL: u64 = 0;

/// An epoll set of the program's.
pub struct Set {
    me: Weak<Set>,
    own: OnceLock<Own>,
    mailbox: Arc<Mailbox>,
    members: Lock<Members>,
    /// Members, and sets within this one: while there are none, the kernel has all.
    count: AtomicU32,
    /// What the program's set says when there is something in the library's own. 0: it is not in there.
    tag: AtomicU64,
    /// It was made before this process was forked: the kernel has it.
    inherited: AtomicBool,
    /// And a thread was at work on its members then.
    torn: AtomicBool,
    /// It has, or has had, a datagram socket: see [`Set::without_controls`].
    has_datagrams: AtomicBool,
    spin: Spin,
}

/// Made when the first member comes.
struct Own {
    /// The program's set, under a number of the library's.
    program: OwnFd,
    /// The event descriptors of members.
    private: OwnFd,
}

#[derive(Default)]
struct Members {
    entries: Entries,
    /// Hot ones, by their names. Those that are gone are skipped.
    hot: VecDeque<u64>,
    /// Sets within this one.
    nested: Vec<Weak<Set>>,
    /// Listeners and datagram sockets with EPOLLONESHOT.
    one_shots_in_both: u32,
    /// When the kernel's members were last looked at, and whether they are to come first at the next look.
    kernel_looked: Nanos,
    kernel_waits: bool,
}

impl Set {
    /// The set under a number that epoll_create(2) has given.
    pub fn new() -> Arc<Self> {
        Arc::new_cyclic(|me| Set {
            me: Weak::clone(me),
            own: OnceLock::new(),
            mailbox: Arc::default(),
            members: Lock::new(Members::default()),
            count: AtomicU32::new(0),
            tag: AtomicU64::new(0),
            inherited: AtomicBool::new(false),
            torn: AtomicBool::new(false),
            has_datagrams: AtomicBool::new(false),
            spin: Spin::default(),
        })
    }

    /// Whether the kernel alone has its members.
    #[inline]
    pub fn is_kernels(&self) -> bool {
        self.count.load(Ordering::SeqCst) == 0 || self.inherited.load(Ordering::Relaxed)
    }

    /// This process is the child of the one that made it: members and locks are the parent's.
    pub fn inherit(&self) {
        self.torn.fetch_or(!self.members.is_free(), Ordering::Relaxed);
        self.inherited.store(true, Ordering::Relaxed);
    }

    /// Whether nothing is known of its members, as a thread that is not there was at work on them.
    fn is_torn(&self) -> bool {
        self.torn.load(Ordering::Relaxed)
    }

    /// The last number of an inherited set is closed. The rest is the parent's.
    pub fn let_go(&self) {
        if let Some(own) = self.own.get() {
            own::close(own.program.as_raw_fd());
            own::close(own.private.as_raw_fd());
        }
        self.mailbox.let_go();
    }

    /// Whether it was made before this process was forked.
    pub fn is_inherited(&self) -> bool {
        self.inherited.load(Ordering::Relaxed)
    }

    /// EAGAIN: a signal handler has interrupted its own thread at work on this set.
    fn members(&self) -> Result<Guard<'_, Members>> {
        Ok(self.members.lock()?)
    }

    /// The library's part of the set under `number`, made if need be. EINVAL: `number` is not an epoll set.
    fn own(&self, number: RawFd) -> Result<&Own> {
        if let Some(own) = self.own.get() {
            return Ok(own);
        }
        let _one = self.members()?;
        if let Some(own) = self.own.get() {
            return Ok(own);
        }
        let program = descriptor::duplicate(number)?;
        let private = create(CreateFlags::CLOEXEC).map(descriptor::lift)?;
        let wake = self.mailbox.open()?;
        epoll::control(private.as_raw_fd(), EPOLL_CTL_ADD, wake, Some(Event { events: EPOLLIN as u32, u64: MAIL }))?;
        let tag = usual_tag();
        // Before anybody can meet it there.
        self.tag.store(tag, Ordering::Release);
        let added = epoll::control(program.as_raw_fd(), EPOLL_CTL_ADD, private.as_raw_fd(), Some(tagged(tag)));
        if let Err(errno) = added {
            self.tag.store(0, Ordering::Release);
            return Err(errno);
        }
        for fd in [program.as_raw_fd(), private.as_raw_fd(), wake] {
            own::keep_in_children(fd);
        }
        Ok(self.own.get_or_init(|| Own { program, private }))
    }

    /// The program is about to put something of the kernel's into its set, or to change it there, under this data: that must not be the
    /// tag.
    pub fn avoid(&self, data: u64) {
        let tag = self.tag.load(Ordering::Acquire);
        if tag == data
            && let Some(own) = self.own.get()
        {
            let other = tag.wrapping_add(2);
            self.tag.store(other, Ordering::Release);
            let _ = epoll::control(own.program.as_raw_fd(), EPOLL_CTL_MOD, own.private.as_raw_fd(), Some(tagged(other)));
        }
    }

    /// epoll_ctl(2), EPOLL_CTL_ADD of an rsocket, where `number` is the set's and `fd` the socket's.
    pub fn add(&self, number: RawFd, fd: RawFd, socket: &Socket, event: Event) -> Result<()> {
        let flags = event.events;
        // epoll_ctl(2): "EINVAL EPOLLEXCLUSIVE was specified in events and … an invalid event was specified".
        if flags & EXCLUSIVE != 0 && flags & !WITH_EXCLUSIVE != 0 {
            return Err(Errno::INVAL);
        }
        let own = self.own(number)?;
        self.avoid(event.u64);
        let mut members = self.members()?;
        if members.entries.find(fd, socket).is_some() {
            return Err(Errno::EXIST);
        }
        let name = members.entries.free_name();
        let member = Member::new(name, &self.mailbox, Weak::clone(&self.me));
        let mut entry = Entry::new(member, fd, socket, event);
        socket.watch(&entry.watcher());
        // What the socket becomes from now on waits for the lock, and finds the entry.
        if let Err(errno) = entry.place(own, socket).and_then(|()| entry.follow(own)) {
            // Its socket has the name already, which nobody else may get.
            members.entries.insert(entry);
            if let Some(entry) = members.entries.take(name) {
                entry.leave(own, true);
            }
            return Err(errno);
        }
        members.one_shots_in_both += u32::from(entry.is_one_shot_in_both());
        self.has_datagrams.fetch_or(socket.datagram().is_some(), Ordering::Relaxed);
        self.count.fetch_add(1, Ordering::SeqCst);
        self.mailbox.post(&entry.member);
        members.entries.insert(entry);
        Ok(())
    }

    /// EPOLL_CTL_MOD.
    pub fn modify(&self, fd: RawFd, socket: &Socket, event: Event) -> Result<()> {
        self.avoid(event.u64);
        let mut members = self.members()?;
        let (Some(own), Some(name)) = (self.own.get(), members.entries.find(fd, socket)) else { return Err(Errno::NOENT) };
        let Some(entry) = members.entries.get_mut(name) else { return Err(Errno::NOENT) };
        // epoll_ctl(2): "EINVAL op was EPOLL_CTL_MOD and events included EPOLLEXCLUSIVE", or "… has previously been applied".
        if (event.events | entry.flags()) & EXCLUSIVE != 0 {
            return Err(Errno::INVAL);
        }
        let before = entry.is_one_shot_in_both();
        entry.modify(own, event)?;
        let after = entry.is_one_shot_in_both();
        self.mailbox.post(&entry.member);
        members.count_one_shots(before, after);
        Ok(())
    }

    /// EPOLL_CTL_DEL.
    pub fn remove(&self, fd: RawFd, socket: &Socket) -> Result<()> {
        let mut members = self.members()?;
        let name = members.entries.find(fd, socket).ok_or(Errno::NOENT)?;
        if let Some(entry) = members.entries.get_mut(name) {
            // It was closed, perhaps, and is the same socket's again.
            entry.number_is_closed = false;
        }
        self.take_out(&mut members, name, true);
        Ok(())
    }

    /// The socket was closed while it was put in.
    pub fn remove_closed(&self, fd: RawFd, socket: &Socket) {
        if let Ok(mut members) = self.members()
            && let Some(name) = members.entries.find(fd, socket)
        {
            self.take_out(&mut members, name, false);
        }
    }

    /// Whether this number of the socket is a member here. (One whose socket is the kernel's for good is not.)
    pub fn has(&self, fd: RawFd, socket: &Socket) -> bool {
        self.members().is_ok_and(|members| members.entries.find(fd, socket).is_some())
    }

    fn take_out(&self, members: &mut Members, name: u64, from_kernel: bool) {
        if let (Some(entry), Some(own)) = (members.entries.take(name), self.own.get()) {
            members.count_one_shots(entry.is_one_shot_in_both(), false);
            entry.leave(own, from_kernel);
            self.count.fetch_sub(1, Ordering::AcqRel);
        }
    }

    /// A set is a member of this one now, in the kernel: waits look after it.
    pub fn nest(&self, number: RawFd, inner: &Arc<Set>) -> Result<()> {
        self.own(number)?;
        inner.mailbox.watched(true);
        self.members()?.nested.push(Arc::downgrade(inner));
        self.count.fetch_add(1, Ordering::SeqCst);
        inner.refresh();
        Ok(())
    }

    /// It is no longer.
    pub fn part(&self, inner: &Arc<Set>) {
        let Ok(mut members) = self.members() else { return };
        if let Some(at) = members.nested.iter().position(|other| core::ptr::eq(other.as_ptr(), Arc::as_ptr(inner))) {
            members.nested.swap_remove(at);
            self.count.fetch_sub(1, Ordering::AcqRel);
            inner.mailbox.watched(false);
        }
    }

    /// See [`Watcher::became`].
    fn became(&self, name: u64, socket: &Socket) {
        let Some(own) = self.own.get() else { return };
        let Ok(mut members) = self.members() else { return };
        if socket.role() == Role::Kernel {
            self.leave_to_kernel(&mut members, name);
            return;
        }
        let Some(entry) = members.entries.get_mut(name) else { return };
        let before = entry.is_one_shot_in_both();
        if let Err(errno) = entry.place(own, socket) {
            log_debug!("descriptor {} in an epoll set: {errno}", entry.fd);
        }
        let after = entry.is_one_shot_in_both();
        self.mailbox.post(&entry.member);
        members.count_one_shots(before, after);
    }

    /// The kernel has the socket for good: it becomes a member of the kernel's set, and of that alone. Or it is closed.
    fn leave_to_kernel(&self, members: &mut Members, name: u64) {
        if let (Some(entry), Some(own)) = (members.entries.get_mut(name), self.own.get()) {
            if !entry.member.gone.load(Ordering::Acquire) {
                entry.give_to_kernel(own);
            }
            self.take_out(members, name, false);
        }
    }

    fn number_closed(&self, name: u64, fd: RawFd) {
        if let Ok(mut members) = self.members()
            && let Some(entry) = members.entries.get_mut(name)
            && entry.fd == fd
        {
            entry.number_is_closed = true;
        }
    }

    fn closed(&self, name: u64) -> Result<()> {
        self.take_out(&mut *self.members()?, name, false);
        Ok(())
    }
}

impl Members {
    fn count_one_shots(&mut self, before: bool, after: bool) {
        self.one_shots_in_both = (self.one_shots_in_both + u32::from(after)).saturating_sub(u32::from(before));
    }
}

impl Drop for Set {
    fn drop(&mut self) {
        if self.inherited.load(Ordering::Relaxed) {
            return;
        }
        let Ok(members) = self.members().map(|mut members| core::mem::take(&mut *members)) else { return };
        for inner in members.nested.iter().filter_map(Weak::upgrade) {
            inner.mailbox.watched(false);
        }
        members.entries.all().for_each(Entry::ignore);
    }
}

/// See [`usual_tag`].
static USUAL_TAG: Once<u64> = Once::new();

/// The tag of every set whose program does not use the same data: who has waited in a set whose number is another one's, or nobody's, by
/// now still knows it.
fn usual_tag() -> u64 {
    *USUAL_TAG.get_or_init(|| {
        let mut tag = [0; 8];
        let _ = rustix::rand::getrandom(&mut tag, rustix::rand::GetRandomFlags::NONBLOCK);
        u64::from_ne_bytes(tag) | 1
    })
}

/// Takes the event with the tag out of what the kernel has found. Says how many are left, and whether it was there.
fn strip(tag: u64, events: &mut [Event], found: usize) -> (usize, bool) {
    let Some(at) = events.iter().take(found).position(|event| { event.u64 } == tag) else { return (found, false) };
    // The others keep their order.
    events.copy_within(at + 1..found, at);
    (found - 1, true)
}

/// As [`Set::sift`], where the set is gone, or was not known when the wait began.
pub fn sift_unknown(events: &mut [Event], found: usize) -> usize {
    USUAL_TAG.get().map_or(found, |tag| strip(*tag, events, found).0)
}

fn tagged(tag: u64) -> Event {
    // Edge-triggered: one thread is woken for it, and takes all.
    Event { events: EPOLLIN as u32 | ET, u64: tag }
}

/// Takes a descriptor out of an epoll set, if it is there.
fn drop_from(set: &OwnFd, fd: RawFd) {
    let _ = epoll::control(set.as_raw_fd(), EPOLL_CTL_DEL, fd, None);
}
