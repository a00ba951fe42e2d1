//! The readiness engine behind poll and select: rsockets and kernel descriptors in one wait (DESIGN: D6).
#![forbid(unsafe_code)]

pub mod set;

use core::time::Duration;
use std::os::fd::RawFd;

use libc::{POLLERR, POLLHUP, POLLIN, POLLNVAL, POLLOUT};
use smallvec::SmallVec;

use set::Set;

use crate::{
    config,
    error::{Errno, Result},
    socket::{
        Socket,
        wait::{self, Borrowed, Interest},
    },
    stats::{self, Counter},
    sys::{
        clock::{self, Nanos},
        owner::Process,
        ppoll::{PollFd, SignalMask, ppoll},
    },
};

/// What is waited for.
pub struct Entry<'a> {
    /// The number; negative: ignored.
    pub fd: RawFd,
    /// Wanted events.
    pub events: i16,
    /// Events found.
    pub revents: i16,
    /// The rsocket of that number, `None` for any other descriptor.
    pub socket: Option<&'a Socket>,
    /// The epoll set of that number, which the kernel shows as it is once that was brought up to date.
    pub set: Option<&'a Set>,
    /// It stands for a connection that is lost, and has these events: 0 if not.
    pub lost: i16,
}

/// Sets up to this size need no allocation.
pub const FEW: usize = 8;

/// Reported whether asked for or not (poll(2)).
pub const ALWAYS: i16 = POLLERR | POLLHUP | POLLNVAL;

/// Waits until an entry has events. Gives how many have.
pub fn wait(entries: &mut [Entry<'_>], timeout: Option<Duration>, mask: Option<SignalMask>) -> Result<usize> {
    let found = look(entries, mask)?;
    if found > 0 || timeout.is_some_and(|timeout| timeout.is_zero()) {
        return Ok(found);
    }
    let deadline = clock::deadline(clock::now(), timeout);
    let process = Process::this();
    let spun = spin(entries);
    if process.has_forked() {
        return Err(Errno::INTR);
    }
    if spun {
        return look(entries, mask);
    }
    let waiter = wait::waiter();
    let sockets = entries.iter().filter_map(|entry| entry.socket).collect();
    let sets: SmallVec<[&Set; 2]> = entries.iter().filter_map(|entry| entry.set).collect();
    sets.iter().for_each(|set| set.watch(true));
    let registered = Registered { process: Process::this(), waiter: &waiter, sockets, sets };
    for entry in entries.iter() {
        if let Some(socket) = entry.socket {
            socket.add_sleeper(&waiter, interest(entry.events));
        }
    }
    stats::add(Counter::WaitsSlept, 1);
    let found = sleep_until(entries, &waiter, deadline, mask);
    drop(registered);
    found
}

/// Takes the poller off again, whatever ends the wait.
struct Registered<'a> {
    process: Process,
    waiter: &'a Borrowed,
    sockets: SmallVec<[&'a Socket; FEW]>,
    sets: SmallVec<[&'a Set; 2]>,
}

impl Drop for Registered<'_> {
    fn drop(&mut self) {
        if self.process.has_forked() {
            return;
        }
        for socket in &self.sockets {
            socket.remove_sleeper(self.waiter);
        }
        self.sets.iter().for_each(|set| set.watch(false));
    }
}

fn interest(events: i16) -> Interest {
    let mut interest = Interest::STATE;
    if events & !POLLOUT != 0 {
        interest |= Interest::READ;
    }
    if events & (POLLOUT | libc::POLLWRNORM) != 0 {
        interest |= Interest::WRITE;
    }
    interest
}

fn sleep_until(entries: &mut [Entry<'_>], waiter: &Borrowed, deadline: Option<Nanos>, mask: Option<SignalMask>) -> Result<usize> {
    let mut set: SmallVec<[PollFd; 2 * FEW]> = SmallVec::new();
    let mut owners: SmallVec<[Option<&Socket>; 2 * FEW]> = SmallVec::new();
    let process = Process::this();
    loop {
        if process.has_forked() {
            return Err(Errno::INTR);
        }
        set.clear();
        owners.clear();
        set.push(PollFd { fd: waiter.event_fd(), events: POLLIN, revents: 0 });
        owners.push(None);
        let mut found = 0;
        for entry in entries.iter_mut() {
            if let Some(set) = entry.set {
                set.refresh();
            }
            let Some(socket) = entry.socket else {
                // Programs poll arrays full of -1, as long as their limit of descriptors; the kernel takes no longer ones.
                if entry.fd >= 0 {
                    set.push(PollFd { fd: entry.fd, events: entry.events, revents: 0 });
                    owners.push(None);
                }
                continue;
            };
            let seen = socket.arm_and_look(waiter);
            entry.revents = seen.events & (entry.events | ALWAYS);
            found += usize::from(entry.revents != 0);
            if seen.kernel {
                set.push(PollFd { fd: entry.fd, events: entry.events, revents: 0 });
                owners.push(None);
            }
            if seen.event_fd >= 0 {
                set.push(PollFd { fd: seen.event_fd, events: POLLIN, revents: 0 });
                owners.push(Some(socket));
            }
        }
        if found == 0 {
            let mut left = clock::left(clock::now(), deadline);
            if let Some(most) = config::get().wake_up_interval {
                left = Some(left.map_or(most, |left| left.min(most)));
            }
            ppoll(&mut set, waiter.sleep_time(left), mask)?;
            if process.has_forked() {
                continue;
            }
            for (slept, owner) in set.iter().zip(&owners) {
                if let (true, Some(socket)) = (slept.revents != 0, owner) {
                    socket.look_after_sleep(waiter);
                }
            }
            waiter.reset(set.first().is_some_and(|own| own.revents != 0));
        }
        let found = look(entries, mask)?;
        if found > 0 || deadline.is_some_and(|deadline| clock::now() >= deadline) {
            return Ok(found);
        }
    }
}

/// Spins over the rsockets for the polling time. True if one has events.
fn spin(entries: &[Entry<'_>]) -> bool {
    // Where the kernel has all of them there is nothing to see.
    let Some(stream) = entries.iter().find_map(|entry| entry.socket?.live_stream()) else { return false };
    let Some(turns) = stream.spin_turns() else { return false };
    let until = clock::now().saturating_add(u64::try_from(turns.time.as_nanos()).unwrap_or(0));
    let ready = |entry: &Entry<'_>| entry.socket.is_some_and(|socket| socket.look().events & (entry.events | ALWAYS) != 0);
    let mut found = false;
    let process = Process::this();
    while !found && clock::now() < until && !process.has_forked() {
        turns.pause();
        found = entries.iter().any(ready);
    }
    if !process.has_forked() {
        stream.spin().spun(found);
    }
    found
}

/// One look at everything, without waiting.
fn look(entries: &mut [Entry<'_>], mask: Option<SignalMask>) -> Result<usize> {
    let mut kernel: SmallVec<[(usize, PollFd); FEW]> = SmallVec::new();
    let mut found = 0;
    for (index, entry) in entries.iter_mut().enumerate() {
        entry.revents = 0;
        if let Some(set) = entry.set {
            set.refresh();
        }
        let ask = match entry.socket {
            None if entry.lost != 0 => {
                entry.revents = entry.lost & (entry.events | ALWAYS);
                found += 1;
                false
            }
            None => entry.fd >= 0,
            Some(socket) => {
                let seen = socket.look();
                entry.revents = seen.events & (entry.events | ALWAYS);
                found += usize::from(entry.revents != 0);
                seen.kernel
            }
        };
        if ask {
            kernel.push((index, PollFd { fd: entry.fd, events: entry.events, revents: 0 }));
        }
    }
    // A signal that waits and that the mask lets through ends the call, but only where nothing was found.
    if kernel.is_empty() && (found > 0 || mask.is_none()) {
        return Ok(found);
    }
    let mut set: SmallVec<[PollFd; FEW]> = kernel.iter().map(|(_, fd)| *fd).collect();
    match ppoll(&mut set, Some(Duration::ZERO), mask) {
        // A signal counts only where nothing was found.
        Err(Errno::INTR) if found > 0 => return Ok(found),
        looked => looked?,
    };
    for ((index, _), fd) in kernel.iter().zip(&set) {
        if let Some(entry) = entries.get_mut(*index) {
            entry.revents |= entry.socket.map_or(fd.revents, |socket| socket.sift(entry.fd, fd.revents));
        }
    }
    Ok(entries.iter().filter(|entry| entry.revents != 0).count())
}
