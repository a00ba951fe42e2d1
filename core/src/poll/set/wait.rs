//! epoll_wait: looks at hot members, at the kernel's, and sleeps for all of them at once.

use core::{sync::atomic::Ordering, time::Duration};
use std::{
    os::fd::RawFd,
    sync::{Arc, Weak},
};

use libc::{EPOLL_CTL_MOD, POLLIN};
use rustix::fd::AsRawFd;
use smallvec::SmallVec;

use super::{
    MAIL, Members, Own, Set,
    entry::{READABLE, Sight},
    strip, tagged, usual_tag,
};
use crate::{
    config,
    error::{Errno, Result},
    socket::stream::See,
    stats::{self, Counter},
    sys::{
        clock::{self, Nanos},
        epoll::{self, Event},
        owner::Process,
        ppoll::{PollFd, SignalMask, ppoll},
    },
};

/// A member that so many looks in a row have found without events is armed and goes cold.
const IDLE_LOOKS: u32 = 32;
/// While rsockets have events, the kernel's members are looked at so often, in nanoseconds: a system call.
const KERNEL_EVERY: Nanos = 50_000;
/// So long a child leaves its parent's announcement alone.
const PARENTS_TURN: Duration = Duration::from_millis(1);
/// Announcements taken at once.
const ANNOUNCED: usize = 64;

const NOTHING: Event = Event { events: 0, u64: 0 };

/// Members that are lost connections: number, event, and whether it is to be reported once.
pub(super) type Lost = SmallVec<[(RawFd, Event, bool); 4]>;

/// Events found for listeners, which may have one from the kernel as well.
type Listeners = SmallVec<[u64; 2]>;

impl Set {
    /// epoll_wait(2) and its kind. Only where the set has members: [`Set::is_kernels`].
    pub fn wait(&self, events: &mut [Event], timeout: Option<Duration>, mask: Option<SignalMask>) -> Result<usize> {
        let Some(own) = self.own.get() else { return Err(Errno::INVAL) };
        let most = config::get().max_events.map_or(events.len(), |most| most.min(events.len()));
        let process = Process::this();
        let waited = self.wait_for(own, events.get_mut(..most).unwrap_or_default(), timeout, mask);
        if process.has_forked() {
            return Err(Errno::INTR);
        }
        // Whatever it has found: it may have taken an announcement that was no event.
        self.leave(own);
        waited
    }

    fn wait_for(&self, own: &Own, events: &mut [Event], timeout: Option<Duration>, mask: Option<SignalMask>) -> Result<usize> {
        let now = clock::now();
        let found = self.look(own, events, now, mask)?;
        if found > 0 {
            return Ok(found);
        }
        if timeout.is_some_and(|timeout| timeout.is_zero()) {
            return self.ask_all(own, events, Some(Duration::ZERO), mask);
        }
        let deadline = clock::deadline(now, timeout);
        let found = self.spin(own, events)?;
        if found > 0 {
            return Ok(found);
        }
        stats::add(Counter::WaitsSlept, 1);
        loop {
            let found = self.take(own, &mut *self.members()?, events, See::Arm, &mut Listeners::new());
            if found > 0 {
                return Ok(found);
            }
            if !self.mailbox.go_to_sleep() {
                continue;
            }
            // Another thread that has made a member hot meanwhile, and left before this one slept, has armed nothing.
            if !self.members()?.hot.is_empty() {
                self.mailbox.wake_up();
                continue;
            }
            let found = self.sleep(own, events, deadline, mask)?;
            if found > 0 {
                return Ok(found);
            }
            if deadline.is_some_and(|deadline| clock::now() >= deadline) {
                return Ok(0);
            }
        }
    }

    /// A look at hot members; when the kernel's have been left out before, at these first.
    fn look(&self, own: &Own, events: &mut [Event], now: Nanos, mask: Option<SignalMask>) -> Result<usize> {
        let mut members = self.members()?;
        if core::mem::take(&mut members.kernel_waits) {
            drop(members);
            let half = events.len().div_ceil(2);
            let kernels = self.ask(own, events.get_mut(..half).unwrap_or_default(), Some(Duration::ZERO), mask)?;
            return self.add_own(own, events, kernels);
        }
        let mut listeners = Listeners::new();
        let found = self.take(own, &mut members, events, See::Now, &mut listeners);
        drop(members);
        self.add_kernels(own, events, found, &listeners, now)
    }

    /// While hot members have events, the kernel's and the cold ones are looked at from time to time only: a system call.
    fn add_kernels(&self, own: &Own, events: &mut [Event], found: usize, listeners: &Listeners, now: Nanos) -> Result<usize> {
        if found == 0 {
            return Ok(0);
        }
        let mut members = self.members()?;
        if now.saturating_sub(members.kernel_looked) < KERNEL_EVERY {
            return Ok(found);
        }
        members.kernel_looked = now;
        let rest = events.get_mut(found..).unwrap_or_default();
        // However few events are wanted at once: what is left out now comes first the next time.
        members.kernel_waits = rest.is_empty();
        drop(members);
        let more = if rest.is_empty() { 0 } else { self.ask(own, rest, Some(Duration::ZERO), None).unwrap_or(0) };
        Ok(unite(events, found + more, listeners))
    }

    /// Fills up with what rsockets have after `kernels` events of the kernel's.
    fn add_own(&self, own: &Own, events: &mut [Event], kernels: usize) -> Result<usize> {
        let mut listeners = Listeners::new();
        let rest = events.get_mut(kernels..).unwrap_or_default();
        let more = self.take(own, &mut *self.members()?, rest, See::Now, &mut listeners);
        Ok(unite(events, kernels + more, &listeners))
    }

    /// All that there is, from the kernel first.
    fn ask_all(&self, own: &Own, events: &mut [Event], timeout: Option<Duration>, mask: Option<SignalMask>) -> Result<usize> {
        let kernels = self.ask(own, events, timeout, mask)?;
        self.add_own(own, events, kernels)
    }

    /// Waits in the program's set, and takes what the library's own announces there.
    fn ask(&self, own: &Own, events: &mut [Event], timeout: Option<Duration>, mask: Option<SignalMask>) -> Result<usize> {
        let found = epoll::wait(own.program.as_raw_fd(), events, timeout, mask)?;
        let (found, announced) = self.strip(events, found);
        if announced && !self.is_inherited() {
            self.harvest(own, &mut *self.members()?);
        }
        let found = if found > 0 && self.has_datagrams.load(Ordering::Relaxed) { self.without_controls(own, events, found) } else { found };
        if found > 0 {
            self.disable_one_shots(own, events.get(..found).unwrap_or_default());
        }
        Ok(found)
    }

    /// The kernel has reported datagrams, which are the library's alone perhaps: then that is no event. Says how many are left.
    fn without_controls(&self, own: &Own, events: &mut [Event], found: usize) -> usize {
        let Ok(mut members) = self.members() else { return found };
        let mut kept = 0;
        for at in 0..found {
            let Some(mut event) = events.get(at).copied() else { break };
            if event.events & READABLE != 0 {
                let mut same = members.entries.iter_mut().filter(|entry| entry.data == event.u64).peekable();
                let known = same.peek().is_some();
                // Of several with the same data any may be the one.
                if known && !same.any(|entry| entry.has_mail()) {
                    event.events &= !READABLE;
                }
            }
            if event.events == 0 {
                let same = members.entries.iter_mut().filter(|entry| entry.data == event.u64);
                same.for_each(|entry| entry.renew_one_shot(own));
                continue;
            }
            if let Some(to) = events.get_mut(kept) {
                *to = event;
                kept += 1;
            }
        }
        kept
    }

    /// Takes the library's own event out of what the kernel has found. Says how many are left, and whether it was there.
    fn strip(&self, events: &mut [Event], found: usize) -> (usize, bool) {
        let tag = match self.tag.load(Ordering::Acquire) {
            // The thread may have waited in another set, whose number this one has got meanwhile.
            0 => usual_tag(),
            tag => tag,
        };
        strip(tag, events, found)
    }

    /// A wait in the parent process's set, where the kernel has all that is this one's. What the library's own set announces is for the
    /// parent, and is put back: the announcement came to one of all that wait. `None`: there was nothing of the library's at fork.
    pub fn wait_inherited(&self, events: &mut [Event], timeout: Option<Duration>, mask: Option<SignalMask>) -> Option<Result<usize>> {
        let own = self.own.get()?;
        let deadline = clock::deadline(clock::now(), timeout);
        loop {
            let found = match epoll::wait(own.program.as_raw_fd(), events, clock::left(clock::now(), deadline), mask) {
                Ok(found) => found,
                failed => return Some(failed),
            };
            let (left, announced) = self.strip(events, found);
            if announced {
                let tag = tagged(self.tag.load(Ordering::Acquire));
                let _ = epoll::control(own.program.as_raw_fd(), EPOLL_CTL_MOD, own.private.as_raw_fd(), Some(tag));
            }
            if left > 0 || !announced {
                return Some(Ok(left));
            }
            // The parent's turn.
            let left = clock::left(clock::now(), deadline);
            let _ = ppoll(&mut [], Some(left.map_or(PARENTS_TURN, |left| left.min(PARENTS_TURN))), None);
            if left.is_some_and(|left| left.is_zero()) {
                return Some(Ok(0));
            }
        }
    }

    /// In a forked child: the members that are lost connections, as `lost` knows them by number and flags, with the event that it gives. None where
    /// another thread was changing the set at fork.
    pub fn lost(&self, lost: impl Fn(RawFd, u32) -> Option<u32>) -> Lost {
        let mut found = Lost::new();
        if self.is_torn() {
            return found;
        }
        let Ok(mut members) = self.members() else { return found };
        for entry in members.entries.iter_mut().filter(|entry| !entry.disabled && !entry.number_is_closed && entry.stream().is_some()) {
            if let Some(events) = lost(entry.fd, entry.flags()) {
                let once = entry.flags() & (super::ET | super::ONESHOT) != 0;
                found.push((entry.fd, Event { events, u64: entry.data }, once));
            }
        }
        found
    }

    /// Whether a wait is to be left to the kernel, since that has all members. [`Set::sift`] follows then.
    pub fn leaves_to_kernel(&self) -> bool {
        self.mailbox.kernel_waits(true);
        // A member that comes after this look wakes the wait.
        let leaves = self.is_kernels();
        if !leaves {
            self.mailbox.kernel_waits(false);
        }
        leaves
    }

    /// What the kernel has found in such a wait. Says how many events are the program's.
    pub fn sift(&self, events: &mut [Event], found: usize) -> usize {
        self.mailbox.kernel_waits(false);
        let (found, announced) = self.strip(events, found);
        if announced {
            // Also where the kernel has all members again: it announces once, and nobody signals again what nobody has seen.
            self.mailbox.seen();
            self.refresh();
        }
        found
    }

    /// The kernel has reported listeners with EPOLLONESHOT, perhaps: the fabrics' side is to report no more.
    fn disable_one_shots(&self, own: &Own, events: &[Event]) {
        let Ok(mut members) = self.members() else { return };
        if members.one_shots_in_both == 0 {
            return;
        }
        for entry in members.entries.iter_mut().filter(|entry| entry.is_one_shot_in_both()) {
            if events.iter().any(|event| { event.u64 } == entry.data) {
                entry.disable(own);
            }
        }
    }

    /// Members that were announced become hot; each at most once, as it may be announced again meanwhile.
    fn harvest(&self, own: &Own, members: &mut Members) {
        for _ in 0..=members.entries.len() / ANNOUNCED {
            let mut announced = [NOTHING; ANNOUNCED];
            let Ok(count) = epoll::wait(own.private.as_raw_fd(), &mut announced, Some(Duration::ZERO), None) else { return };
            for event in announced.iter().take(count) {
                let name = event.u64;
                if name == MAIL {
                    self.mailbox.seen();
                } else if let Some(entry) = members.entries.get_mut(name) {
                    entry.idle = 0;
                    // First: it is not to be posted as well.
                    if entry.heat() {
                        members.hot.push_back(name);
                    }
                    entry.hear(own);
                }
            }
            if count < ANNOUNCED {
                return;
            }
        }
    }

    /// Takes events of hot members, each once; those that have none for long, or all with [`See::Arm`], go cold.
    fn take(&self, own: &Own, members: &mut Members, out: &mut [Event], how: See, listeners: &mut Listeners) -> usize {
        self.mailbox.take(&mut members.hot);
        let mut found = 0;
        let mut lost: SmallVec<[u64; 4]> = SmallVec::new();
        for _ in 0..members.hot.len() {
            let Some(place) = out.get_mut(found) else { break };
            let Some(name) = members.hot.pop_front() else { break };
            let Some(entry) = members.entries.get_mut(name) else { continue };
            if entry.member.gone.load(Ordering::Acquire) {
                lost.push(name);
                continue;
            }
            let cools = how == See::Arm || entry.idle >= IDLE_LOOKS;
            if cools || entry.disabled {
                // Before the look: what changes after it is posted.
                entry.cool();
            }
            if entry.disabled {
                continue;
            }
            let (seen, all) = match entry.see(own, if cools { See::Arm } else { See::Now }) {
                Sight::Events(seen, events) => (seen, events),
                Sight::Kernel => {
                    lost.push(name);
                    continue;
                }
            };
            let report = entry.to_report(&seen, all);
            entry.saw(&seen, all);
            entry.idle = if report != 0 { 0 } else { entry.idle.saturating_add(1) };
            if report != 0 {
                *place = Event { events: report, u64: entry.data };
                found += 1;
                if entry.is_in_both() {
                    listeners.push(entry.data);
                }
                if entry.flags() & super::ONESHOT != 0 {
                    entry.disable(own);
                }
            }
            if !cools || report != 0 && entry.heat() {
                members.hot.push_back(name);
            }
        }
        for name in lost {
            self.leave_to_kernel(members, name);
        }
        found
    }

    /// Spins over hot members for the polling time.
    fn spin(&self, own: &Own, events: &mut [Event]) -> Result<usize> {
        let turns = {
            let mut members = self.members()?;
            // Where none is hot, nothing comes soon.
            let Some(name) = members.hot.front().copied() else { return Ok(0) };
            let stream = members.entries.get_mut(name).and_then(|entry| entry.stream()).cloned();
            drop(members);
            self.spin.turns(|| stream?.waits_beside_peer())
        };
        let Some(turns) = turns else { return Ok(0) };
        let mut now = clock::now();
        let until = now.saturating_add(u64::try_from(turns.time.as_nanos()).unwrap_or(0));
        let (mut found, mut listeners) = (0, Listeners::new());
        while found == 0 && now < until {
            turns.pause();
            if self.is_inherited() {
                return Err(Errno::INTR);
            }
            found = self.take(own, &mut *self.members()?, events, See::Now, &mut listeners);
            now = clock::now();
        }
        self.spin.spun(found > 0);
        self.add_kernels(own, events, found, &listeners, now)
    }

    /// Sleeps until something is announced, the kernel has something or the deadline is past, once.
    fn sleep(&self, own: &Own, events: &mut [Event], deadline: Option<Nanos>, mask: Option<SignalMask>) -> Result<usize> {
        let mut left = clock::left(clock::now(), deadline);
        if let Some(most) = config::get().wake_up_interval {
            left = Some(left.map_or(most, |left| left.min(most)));
        }
        let nested = self.nested();
        let slept = if nested.is_empty() {
            self.ask(own, events, left, mask)
        } else {
            nested.iter().for_each(|inner| inner.refresh());
            let mut program = [PollFd { fd: own.program.as_raw_fd(), events: POLLIN, revents: 0 }];
            let polled = ppoll(&mut program, left, mask);
            // Only what is true now: an inner set may have been announced for what is no event of the program's.
            nested.iter().for_each(|inner| inner.refresh());
            polled.and_then(|_| self.ask(own, events, Some(Duration::ZERO), None))
        };
        if self.is_inherited() {
            // A signal handler has forked, and this is the child.
            return Err(Errno::INTR);
        }
        self.mailbox.wake_up();
        self.members()?.kernel_looked = clock::now();
        self.add_own(own, events, slept?)
    }

    fn nested(&self) -> Vec<Arc<Set>> {
        let Ok(mut members) = self.members() else { return Vec::new() };
        let before = members.nested.len();
        members.nested.retain(|inner| inner.strong_count() > 0);
        let gone = u32::try_from(before - members.nested.len()).unwrap_or(0);
        self.count.fetch_sub(gone, Ordering::AcqRel);
        members.nested.iter().filter_map(Weak::upgrade).collect()
    }

    /// A thread goes away: others that rely on being woken are, for what is left, and what is hot is armed for them.
    fn leave(&self, own: &Own) {
        if self.mailbox.is_relied_on() {
            self.settle(own);
        }
    }

    /// Arms all, and shows whether there is something to report.
    fn settle(&self, own: &Own) {
        let Ok(mut guard) = self.members() else { return };
        let members = &mut *guard;
        self.mailbox.take(&mut members.hot);
        let mut ready = false;
        for _ in 0..members.hot.len() {
            let Some(name) = members.hot.pop_front() else { break };
            let Some(entry) = members.entries.get_mut(name) else { continue };
            entry.cool();
            if entry.disabled {
                continue;
            }
            // The kernel's turn comes with the next look.
            let reports = match entry.see(own, See::Arm) {
                Sight::Events(seen, events) => entry.to_report(&seen, events) != 0,
                Sight::Kernel => true,
            };
            ready |= reports;
            if reports && entry.heat() {
                members.hot.push_back(name);
            }
        }
        self.mailbox.show(ready);
    }

    /// For whoever polls the set: the program's set is readable from now on if there is something to report.
    pub fn refresh(&self) {
        if self.is_kernels() {
            return;
        }
        for inner in self.nested() {
            inner.refresh();
        }
        if let Some(own) = self.own.get() {
            if let Ok(mut members) = self.members() {
                self.harvest(own, &mut members);
            }
            self.settle(own);
        }
    }

    /// Somebody polls the set, or no longer.
    pub fn watch(&self, on: bool) {
        self.mailbox.watched(on);
    }
}

/// A listener may have connections of both kinds: that is one event. Of those at the end of `found`, the ones with a listener's data are
/// put together with an earlier one.
fn unite(events: &mut [Event], found: usize, listeners: &Listeners) -> usize {
    let mut found = found;
    for data in listeners {
        let mut places = events.iter().take(found).enumerate().filter(|(_, event)| { event.u64 } == *data).map(|(at, _)| at);
        let (Some(first), Some(second)) = (places.next(), places.next()) else { continue };
        let more = events.get(second).map_or(0, |event| event.events);
        if let Some(event) = events.get_mut(first) {
            event.events |= more;
        }
        events.copy_within(second + 1..found, second);
        found -= 1;
    }
    found
}
