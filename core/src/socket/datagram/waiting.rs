//! Looking for datagrams, and sleeping until there are some.
//!
//! A look at memory is free; announcements cost system calls, and are looked at where they came, or by somebody who does not wait for them.

use core::sync::atomic::Ordering;
use std::os::fd::RawFd;

use libc::POLLIN;

use super::{Datagram, Incoming};
use crate::{
    config,
    error::{Errno, Result},
    fabric::shm::datagram::Inbox,
    socket::{
        readiness::Readiness,
        stream::{See, Seen},
        wait::{self, Borrowed, Interest},
    },
    stats::{self, Counter},
    sys::{
        clock::{self, Nanos},
        owner::Process,
        ppoll, signals,
    },
};

/// Who looks.
#[derive(Clone, Copy)]
pub(super) enum Looker<'a> {
    /// One that is not registered with the socket.
    Passing,
    /// A sleeper, which looks for itself.
    Sleeper(&'a Borrowed),
    /// A watcher, which looks for itself.
    Watcher,
}

impl Datagram {
    /// Looks where there is nothing.
    pub(super) fn look(&self, incoming: &mut Incoming, looker: Looker<'_>) -> bool {
        self.is_there(incoming) || self.look_anew(incoming, looker)
    }

    /// Looks at memory alone.
    fn is_there(&self, incoming: &mut Incoming) -> bool {
        incoming.next_len().is_some() || self.look_abroad(false, Looker::Passing)
    }

    /// Whether others than who looks sleep, or watch.
    fn others_wait(&self, looker: Looker<'_>) -> bool {
        match looker {
            Looker::Passing => self.sleepers.any(),
            Looker::Sleeper(_) | Looker::Watcher => self.sleepers.any_others(),
        }
    }

    fn wake_others(&self, looker: Looker<'_>) {
        match looker {
            Looker::Sleeper(own) => self.sleepers.wake_others(own, Interest::READ),
            Looker::Passing | Looker::Watcher => self.sleepers.wake(Interest::READ),
        }
    }

    /// Looks for new datagrams, also of new senders, and takes announcements off.
    fn look_anew(&self, incoming: &mut Incoming, looker: Looker<'_>) -> bool {
        let Some(inbox) = &mut incoming.inbox else { return false };
        let heard = inbox.take_events();
        if inbox.take_news() {
            incoming.turns.new_sender();
        }
        // Another thread may sleep whose bell this one has taken off.
        let others = heard.any && self.others_wait(looker);
        if others {
            inbox.arm();
        }
        let there = inbox.next_len().is_some();
        if others && there {
            self.wake_others(looker);
        }
        self.look_abroad(heard.followed, looker) || there
    }

    /// Looks for messages, and takes their announcements off if there are any.
    fn look_abroad(&self, announced: bool, looker: Looker<'_>) -> bool {
        let Ok(Some(mut remote)) = self.queues() else { return false };
        // As above.
        let others = announced && remote.clear_events() && self.others_wait(looker);
        if others {
            remote.arm();
        }
        let there = remote.next_len(clock::now()).is_some();
        if others && there {
            self.wake_others(looker);
        }
        there
    }

    /// The kernel had nothing: looks for new datagrams, and says whether the kernel is to be asked once more before they are taken.
    pub(super) fn has_news(&self) -> Result<bool> {
        let mut incoming = self.inbox.lock()?;
        incoming.turns.kernel_is_empty();
        if let Some(mut remote) = self.queues()? {
            remote.kernel_is_empty();
        }
        let there = self.look_anew(&mut incoming, Looker::Passing);
        Ok(there && incoming.turns.has_news())
    }

    /// Looks for the polling time whether a peer of this host sends something, if there is one.
    pub(super) fn spin(&self) -> Result<bool> {
        let near = self.inbox.lock()?.inbox.as_ref().is_some_and(Inbox::has_senders);
        let far = self.queues()?.is_some_and(|remote| remote.has_senders());
        if !near && !far {
            return Ok(false);
        }
        let Some(turns) = self.spin.turns(|| None) else { return Ok(false) };
        let until = clock::now().saturating_add(u64::try_from(turns.time.as_nanos()).unwrap_or(0));
        let process = Process::this();
        let mut found = false;
        while !found && clock::now() < until {
            turns.pause();
            if process.has_forked() {
                return Err(Errno::INTR);
            }
            found = near && self.inbox.lock()?.next_len().is_some() || far && self.remote.lock()?.next_len(clock::now()).is_some();
        }
        self.spin.spun(found);
        Ok(found)
    }

    pub(super) fn sleep(&self, fd: RawFd, deadline: Option<Nanos>) -> Result<()> {
        let (process, waiter) = (Process::this(), wait::waiter());
        self.sleepers.add(&waiter, Interest::READ | Interest::STATE);
        let announced = if self.arm_and_look() { Ok(false) } else { self.sleep_armed(fd, deadline, &waiter) };
        if process.has_forked() {
            // By a signal handler, and this is the child.
            return Err(Errno::INTR);
        }
        if announced == Ok(true) {
            self.look_after_sleep(&waiter);
        }
        self.sleepers.remove(&waiter);
        announced.map(drop)
    }

    /// Whether the event descriptor is readable afterwards.
    fn sleep_armed(&self, fd: RawFd, deadline: Option<Nanos>, waiter: &Borrowed) -> Result<bool> {
        stats::add(Counter::WaitsSlept, 1);
        let mut set = [waiter.event_fd(), fd, self.event_fd()].map(|fd| ppoll::PollFd { fd, events: POLLIN, revents: 0 });
        let left = clock::left(clock::now(), deadline);
        let left = config::get().wake_up_interval.map_or(left, |most| Some(left.map_or(most, |left| left.min(most))));
        let time = waiter.sleep_time(left);
        // signal(7): with a time-out on the socket it is EINTR whatever the handler.
        if deadline.is_none() { signals::sleep(&mut set, time) } else { ppoll::ppoll(&mut set, time, None) }?;
        let [_, _, announced] = set;
        Ok(announced.revents != 0)
    }

    fn arm(&self, incoming: &Incoming) {
        if let Some(inbox) = &incoming.inbox {
            inbox.arm();
        }
        if let Ok(Some(mut remote)) = self.queues() {
            remote.arm();
        }
    }

    /// Arms, and says whether there is something, also where that cannot be said. What was announced before ends the sleep at once.
    fn arm_and_look(&self) -> bool {
        let Ok(mut incoming) = self.inbox.lock() else { return true };
        self.arm(&incoming);
        let there = self.is_there(&mut incoming);
        there || self.error.load(Ordering::Relaxed) != 0 || self.is_leaving() && !self.left.load(Ordering::Acquire)
    }

    /// poll's events of the peers on this host; the event descriptor becomes readable when there are others.
    pub fn arm_and_see(&self) -> i16 {
        let Ok(mut incoming) = self.inbox.lock() else { return 0 };
        self.arm(&incoming);
        let there = self.is_there(&mut incoming);
        self.events_of(there)
    }

    /// A sleeper slept, and the event descriptor was readable.
    pub fn look_after_sleep(&self, own: &Borrowed) {
        if let Ok(mut incoming) = self.inbox.lock() {
            self.look_anew(&mut incoming, Looker::Sleeper(own));
        }
    }

    /// What a watcher sees (see [`Watcher`](crate::socket::wait::Watcher)).
    pub fn see(&self, how: See) -> Result<Seen> {
        let mut incoming = self.inbox.lock()?;
        let there = match how {
            See::Now => self.look(&mut incoming, Looker::Watcher),
            See::Announced => self.look_anew(&mut incoming, Looker::Watcher),
            See::Arm => {
                self.arm(&incoming);
                self.is_there(&mut incoming)
            }
        };
        let far = self.queues()?.map_or(0, |mut remote| remote.arrivals());
        let arrivals = incoming.inbox.as_ref().map_or(0, Inbox::arrivals).wrapping_add(far);
        Ok(Seen { readiness: Readiness::Events(self.events_of(there)), arrivals, blocked: 0, over: false })
    }
}
