//! Sleeping and waking (DESIGN: D6).
//!
//! A sleeper takes a [`Waiter`], registers it with every socket it waits for, looks once more, and sleeps in one ppoll on the
//! waiter and the sockets' event descriptors. Whoever changes a socket's state wakes the sleepers registered with it. Nobody
//! pays for a wake-up when nobody sleeps, and nobody is woken who does not wait for that socket.
//!
//! No lock here is held across a wait.

use core::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard};

use bitflags::bitflags;
use rustix::fd::{AsRawFd, OwnedFd, RawFd};

use crate::{
    error::Result,
    stats::{self, Counter},
    sys::descriptor,
};

bitflags! {
    /// What about a socket has changed, or is waited for.
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    pub struct Interest: u8 {
        /// Data or a connection to take, or end of file.
        const READ = 1;
        /// Room to write.
        const WRITE = 2;
        /// Established, failed, or over.
        const STATE = 4;
    }
}

/// A sleeping thread's wake-up.
pub struct Waiter {
    event: OwnedFd,
    woken: AtomicBool,
}

impl Waiter {
    /// The descriptor to sleep on.
    pub fn event_fd(&self) -> RawFd {
        self.event.as_raw_fd()
    }

    fn wake(&self) {
        if !self.woken.swap(true, Ordering::AcqRel) {
            stats::add(Counter::WakeUps, 1);
            descriptor::signal(&self.event);
        }
    }

    /// Whether somebody woke it; afterwards it can be woken again.
    fn reset(&self) {
        if self.woken.swap(false, Ordering::AcqRel) {
            descriptor::drain(&self.event);
        }
    }
}

/// Waiters that nobody uses now: a descriptor each, made on demand, at most as many as threads ever slept at once.
static IDLE: Mutex<Vec<Arc<Waiter>>> = Mutex::new(Vec::new());
/// More than this are closed again.
const IDLE_KEPT: usize = 64;

fn idle() -> MutexGuard<'static, Vec<Arc<Waiter>>> {
    IDLE.lock().unwrap_or_else(|poisoned| poisoned.into_inner())
}

/// Forgets all idle waiters without closing them: for a forked child, whose descriptors are the parent's objects.
pub fn forget_idle() {
    if let Ok(mut idle) = IDLE.try_lock() {
        idle.clear();
    }
}

/// A waiter for the time of one call.
pub struct Borrowed(Option<Arc<Waiter>>);

/// Takes a waiter from the pool, or makes one.
pub fn waiter() -> Result<Borrowed> {
    if let Some(waiter) = idle().pop() {
        return Ok(Borrowed(Some(waiter)));
    }
    let event = descriptor::event()?;
    Ok(Borrowed(Some(Arc::new(Waiter { event, woken: AtomicBool::new(false) }))))
}

impl Borrowed {
    /// The waiter.
    pub fn get(&self) -> Option<&Arc<Waiter>> {
        self.0.as_ref()
    }

    /// Ready for the next sleep.
    pub fn reset(&self) {
        if let Some(waiter) = &self.0 {
            waiter.reset();
        }
    }
}

impl Drop for Borrowed {
    fn drop(&mut self) {
        let Some(waiter) = self.0.take() else { return };
        waiter.reset();
        let mut idle = idle();
        if idle.len() < IDLE_KEPT {
            idle.push(waiter);
        }
    }
}

/// Who sleeps on a socket.
#[derive(Default)]
pub struct Sleepers {
    count: AtomicUsize,
    list: Mutex<Vec<(Arc<Waiter>, Interest)>>,
}

impl Sleepers {
    fn list(&self) -> MutexGuard<'_, Vec<(Arc<Waiter>, Interest)>> {
        self.list.lock().unwrap_or_else(|poisoned| poisoned.into_inner())
    }

    /// Registers a sleeper. It must look at the socket's state afterwards, under the socket's lock, before it sleeps.
    pub fn add(&self, waiter: &Borrowed, interest: Interest) {
        let Some(waiter) = waiter.get() else { return };
        let mut list = self.list();
        list.push((Arc::clone(waiter), interest));
        self.count.store(list.len(), Ordering::Release);
    }

    /// Takes a sleeper off.
    pub fn remove(&self, waiter: &Borrowed) {
        let Some(waiter) = waiter.get() else { return };
        let mut list = self.list();
        list.retain(|(other, _)| !Arc::ptr_eq(other, waiter));
        self.count.store(list.len(), Ordering::Release);
    }

    /// Whether anybody sleeps. Exact for whoever holds the socket's lock after the sleeper's last look.
    pub fn any(&self) -> bool {
        self.count.load(Ordering::Acquire) != 0
    }

    /// Wakes those that wait for something of `changed`.
    pub fn wake(&self, changed: Interest) {
        if changed.is_empty() || !self.any() {
            return;
        }
        for (waiter, interest) in self.list().iter() {
            if interest.intersects(changed) {
                waiter.wake();
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn readable(waiter: &Borrowed) -> bool {
        let event = waiter.get().unwrap().event_fd();
        let event = descriptor::borrow(event).unwrap();
        let mut set = [rustix::event::PollFd::new(&event, rustix::event::PollFlags::IN)];
        rustix::event::poll(&mut set, Some(&rustix::event::Timespec::default())).unwrap() == 1
    }

    #[test]
    fn wakes_the_interested_only() {
        let sleepers = Sleepers::default();
        let (reader, writer) = (waiter().unwrap(), waiter().unwrap());
        sleepers.add(&reader, Interest::READ);
        sleepers.add(&writer, Interest::WRITE | Interest::STATE);
        sleepers.wake(Interest::READ);
        assert!(readable(&reader) && !readable(&writer));
        reader.reset();
        assert!(!readable(&reader));
        sleepers.remove(&reader);
        sleepers.wake(Interest::all());
        assert!(!readable(&reader) && readable(&writer));
        sleepers.remove(&writer);
        assert!(!sleepers.any());
    }
}
