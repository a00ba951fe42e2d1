//! Sleeping and waking (DESIGN: D6).
//!
//! A sleeper takes a [`Waiter`], registers it with every socket it waits for, looks once more, and sleeps in one ppoll on the
//! waiter and the sockets' event descriptors. Whoever changes a socket's state wakes the sleepers registered with it. Nobody
//! pays for a wake-up when nobody sleeps, and nobody is woken who does not wait for that socket.
//!
//! No lock here is held across a wait.

use core::{
    sync::atomic::{AtomicBool, AtomicU32, AtomicUsize, Ordering},
    time::Duration,
};
use std::sync::Arc;

use bitflags::bitflags;
use rustix::fd::{AsRawFd, OwnedFd, RawFd};

use super::Socket;
use crate::{
    stats::{self, Counter},
    sys::{
        descriptor, futex,
        lock::{Leaf, LeafGuard},
        owner::{self, Forked},
    },
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

/// How long a thread sleeps that nobody can wake, before it looks again.
const UNWOKEN: Duration = Duration::from_millis(5);

const WOKEN: u32 = 1;

/// A sleeping thread's wake-up.
pub struct Waiter {
    /// `None` where the process may open no more descriptors: the calls that wait have no errno for that.
    event: Option<OwnedFd>,
    /// 0 or [`WOKEN`].
    woken: AtomicU32,
    /// The thread sleeps on `woken` itself, not on the descriptor.
    on_word: AtomicBool,
    /// See [`owner::generation`].
    generation: u32,
    /// Whether a signal may come late: the flag was taken back while wakers could still reach it.
    taken: AtomicBool,
}

impl Waiter {
    fn wake(&self) {
        if self.woken.swap(WOKEN, Ordering::AcqRel) != WOKEN {
            stats::add(Counter::WakeUps, 1);
            if self.on_word.load(Ordering::Relaxed) {
                futex::wake_own(&self.woken);
            } else if let Some(event) = &self.event {
                descriptor::signal(event);
            }
        }
    }

    /// After a sleep that found it `readable` or not: it can be woken again. A look at the sockets must follow.
    fn reset(&self, readable: bool) {
        // Drained first: who wakes after the flag is back must leave a signal. And a signal that comes later than its flag was
        // seen is drained when it is seen, or it would end every sleep from then on.
        if readable || self.woken.load(Ordering::Acquire) == WOKEN {
            if let (Some(event), false) = (&self.event, self.on_word.load(Ordering::Relaxed)) {
                descriptor::drain(event);
            }
            self.woken.swap(0, Ordering::AcqRel);
            self.taken.store(true, Ordering::Relaxed);
        }
    }
}

/// Waiters that nobody uses now: a descriptor each, made on demand, at most as many as threads ever slept at once.
static IDLE: Leaf<Vec<Arc<Waiter>>> = Leaf::new(Vec::new());
/// More than this are closed again.
const IDLE_KEPT: usize = 64;

fn idle() -> LeafGuard<'static, Vec<Arc<Waiter>>> {
    IDLE.lock()
}

/// Closes all idle waiters.
#[cfg(test)]
pub(crate) fn close_idle() {
    idle().clear();
}

/// In a forked child: all waiters are the parent's, and their descriptors closed.
pub fn renew(forked: &Forked) {
    IDLE.renew(forked, Vec::new());
}

/// A waiter for the time of one call.
pub struct Borrowed(Option<Arc<Waiter>>);

/// Takes a waiter from the pool, or makes one.
pub fn waiter() -> Borrowed {
    if let Some(waiter) = idle().pop() {
        return Borrowed(Some(waiter));
    }
    let event = descriptor::event().ok();
    let (on_word, taken) = (AtomicBool::new(false), AtomicBool::new(false));
    Borrowed(Some(Arc::new(Waiter { event, woken: AtomicU32::new(0), on_word, generation: owner::generation(), taken })))
}

impl Borrowed {
    fn get(&self) -> Option<&Arc<Waiter>> {
        self.0.as_ref()
    }

    fn event(&self) -> Option<&OwnedFd> {
        self.get()?.event.as_ref()
    }

    /// The descriptor to sleep on, -1 for none.
    pub fn event_fd(&self) -> RawFd {
        self.event().map_or(-1, AsRawFd::as_raw_fd)
    }

    /// It is a word that is slept on, or the descriptor. To be said while no socket knows it.
    pub fn sleep_on_word(&self, on_word: bool) {
        if let Some(waiter) = self.get() {
            waiter.on_word.store(on_word, Ordering::Relaxed);
        }
    }

    /// The word to sleep on, and what it holds until somebody wakes it.
    pub fn word(&self) -> Option<futex::Word<'_>> {
        self.get().map(|waiter| futex::Word { word: &waiter.woken, holds: 0 })
    }

    /// How long to sleep, of the time that is left.
    pub fn sleep_time(&self, left: Option<Duration>) -> Option<Duration> {
        if self.event().is_some() { left } else { Some(left.map_or(UNWOKEN, |left| left.min(UNWOKEN))) }
    }

    /// Ready for the next sleep after one that found the descriptor `readable` or not.
    pub fn reset(&self, readable: bool) {
        if let Some(waiter) = &self.0 {
            waiter.reset(readable);
        }
    }
}

impl Drop for Borrowed {
    fn drop(&mut self) {
        let Some(waiter) = self.0.take() else { return };
        if waiter.generation != owner::generation() {
            // A signal handler has forked, and this is the child: the descriptor was closed.
            core::mem::forget(waiter);
            return;
        }
        // No socket knows it any more, so that this is the last that can be there.
        waiter.reset(waiter.taken.load(Ordering::Relaxed));
        waiter.on_word.store(false, Ordering::Relaxed);
        waiter.taken.store(false, Ordering::Relaxed);
        let mut idle = idle();
        if waiter.event.is_some() && idle.len() < IDLE_KEPT {
            idle.push(waiter);
        }
    }
}

/// Somebody who wants to know of all that happens to a socket, for as long as it is registered: a set of sockets (epoll).
pub trait Watcher: Send + Sync {
    /// Something of what poll shows has changed. Called under the socket's lock: notes it, and looks later.
    fn changed(&self);

    /// The socket has become something else (a stream, a listener, the kernel's). Called without any lock of the socket's.
    fn became(&self, socket: &Socket);

    /// This number of the socket is closed, and others are not.
    fn number_closed(&self, fd: RawFd);

    /// The last number of the socket is closed.
    fn closed(&self);
}

enum Sleeper {
    Thread(Arc<Waiter>, Interest),
    Watcher(Arc<dyn Watcher>),
}

impl Sleeper {
    fn is_thread(&self, waiter: &Arc<Waiter>) -> bool {
        matches!(self, Sleeper::Thread(own, _) if Arc::ptr_eq(own, waiter))
    }

    fn is_watcher(&self, watcher: &Arc<dyn Watcher>) -> bool {
        matches!(self, Sleeper::Watcher(own) if core::ptr::addr_eq(Arc::as_ptr(own), Arc::as_ptr(watcher)))
    }
}

/// Who sleeps on a socket, and who watches it all the time.
#[derive(Default)]
pub struct Sleepers {
    count: AtomicUsize,
    list: Leaf<Vec<Sleeper>>,
}

impl Sleepers {
    fn list(&self) -> LeafGuard<'_, Vec<Sleeper>> {
        self.list.lock()
    }

    /// Registers a sleeper. It must look at the socket's state afterwards, under the socket's lock, before it sleeps.
    pub fn add(&self, waiter: &Borrowed, interest: Interest) {
        let Some(waiter) = waiter.get() else { return };
        self.change(|list| list.push(Sleeper::Thread(Arc::clone(waiter), interest)));
    }

    fn change(&self, change: impl FnOnce(&mut Vec<Sleeper>)) {
        let mut list = self.list();
        change(&mut list);
        self.count.store(list.len(), Ordering::Release);
    }

    /// Registers a watcher, which must look at the socket's state afterwards; once.
    pub fn watch(&self, watcher: &Arc<dyn Watcher>) {
        self.change(|list| {
            if !list.iter().any(|other| other.is_watcher(watcher)) {
                list.push(Sleeper::Watcher(Arc::clone(watcher)));
            }
        });
    }

    /// Takes a watcher off.
    pub fn unwatch(&self, watcher: &Arc<dyn Watcher>) {
        self.change(|list| list.retain(|other| !other.is_watcher(watcher)));
    }

    /// Takes a sleeper off.
    pub fn remove(&self, waiter: &Borrowed) {
        let Some(waiter) = waiter.get() else { return };
        self.change(|list| list.retain(|other| !other.is_thread(waiter)));
    }

    /// Whether anybody sleeps or watches. Exact for whoever holds the socket's lock after the sleeper's last look.
    pub fn any(&self) -> bool {
        self.count.load(Ordering::Acquire) != 0
    }

    /// As [`Sleepers::any`], for one that is among them.
    pub fn any_others(&self) -> bool {
        self.count.load(Ordering::Acquire) > 1
    }

    /// Wakes those that wait for something of `changed`.
    #[inline]
    pub fn wake(&self, changed: Interest) {
        if !changed.is_empty() && self.any() {
            self.wake_but(None, changed);
        }
    }

    /// As [`Sleepers::wake`], for a thread that is among them and looks for itself.
    pub fn wake_others(&self, own: &Borrowed, changed: Interest) {
        if !changed.is_empty() {
            self.wake_but(own.get(), changed);
        }
    }

    fn wake_but(&self, own: Option<&Arc<Waiter>>, changed: Interest) {
        for sleeper in self.list().iter() {
            match sleeper {
                Sleeper::Watcher(watcher) => watcher.changed(),
                Sleeper::Thread(..) if own.is_some_and(|own| sleeper.is_thread(own)) => {}
                Sleeper::Thread(waiter, interest) if interest.intersects(changed) => waiter.wake(),
                Sleeper::Thread(..) => {}
            }
        }
    }
}

#[cfg(test)]
mod tests;
