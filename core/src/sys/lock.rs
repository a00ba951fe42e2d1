//! Mutexes for code that a signal handler may interrupt and come back to: it may legally call send or recv on any socket, and waiting there
//! for what its own thread holds would be for ever.
//!
//! A [`Lock`] notices that its own thread holds it, and says so: that call gives EAGAIN. So it does where the interrupted call holds another
//! lock, and this one is not free for a while: its owner may wait for that. Whoever takes a [`Leaf`] need not expect that: while
//! a thread holds one it is *busy*, and no call of a handler's comes that far (`capi::boundary::answer`).

use core::{
    cell::UnsafeCell,
    hint::spin_loop,
    marker::PhantomData,
    ops::{Deref, DerefMut},
    sync::atomic::{AtomicU32, AtomicUsize, Ordering},
    time::Duration,
};
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError, TryLockError};

use super::{futex, inside, owner::Forked};

/// The bit of an owner's identity (which is an address of 8 bytes) that says that others sleep until the lock is free.
const AWAITED: usize = 1;
/// Looks before a thread sleeps.
const LOOKS: u32 = 100;
/// Looks of a handler that must not sleep, others being let run in between.
const HURRIED_LOOKS: u32 = 50;

/// The mutex that knows its owner. Taken and named in one step, so that there is no moment at which a handler could find it taken by nobody.
pub struct Lock<T> {
    /// 0, or who holds it, perhaps with [`AWAITED`].
    owner: AtomicUsize,
    /// Counts how often sleepers were woken.
    wakes: AtomicU32,
    value: UnsafeCell<T>,
}

// SAFETY: the value is reached through the guard alone, of which there is one at a time; so it is only ever with one thread.
unsafe impl<T: Send> Sync for Lock<T> {}

/// The lock is held by this thread already, below the signal handler that asks; or by one that may wait for what is held there.
#[derive(Debug)]
pub struct Reentered;

/// Holds the lock.
pub struct Guard<'a, T> {
    lock: &'a Lock<T>,
    // The lock knows the thread.
    not_send: PhantomData<*mut ()>,
}

impl<T> Lock<T> {
    /// An unlocked one.
    pub const fn new(value: T) -> Self {
        Lock { owner: AtomicUsize::new(0), wakes: AtomicU32::new(0), value: UnsafeCell::new(value) }
    }

    /// As [`Leaf::renew`].
    pub fn renew(&self, _: &Forked) {
        self.owner.store(0, Ordering::Relaxed);
    }

    /// Whether nobody holds it, at this moment.
    pub fn is_free(&self) -> bool {
        self.owner.load(Ordering::Relaxed) == 0
    }

    /// Waits for the lock.
    #[inline]
    pub fn lock(&self) -> Result<Guard<'_, T>, Reentered> {
        let me = inside::thread();
        inside::holds(true);
        if self.owner.compare_exchange(0, me, Ordering::Acquire, Ordering::Relaxed).is_err() {
            self.wait(me).inspect_err(|_| inside::holds(false))?;
        }
        Ok(Guard { lock: self, not_send: PhantomData })
    }

    #[cold]
    fn wait(&self, me: usize) -> Result<(), Reentered> {
        let mut looks = 0;
        loop {
            let wakes = self.wakes.load(Ordering::Acquire);
            let owner = self.owner.load(Ordering::Relaxed);
            if owner == 0 {
                // Others may sleep still: whoever has slept itself wakes the next one.
                if self.owner.compare_exchange(0, me | AWAITED, Ordering::Acquire, Ordering::Relaxed).is_ok() {
                    return Ok(());
                }
                continue;
            }
            // Only this thread can have written its own identity, so a relaxed look is exact.
            if owner & !AWAITED == me {
                return Err(Reentered);
            }
            if inside::is_hurried() {
                looks += 1;
                if looks > HURRIED_LOOKS {
                    return Err(Reentered);
                }
                rustix::thread::sched_yield();
                continue;
            }
            if owner & AWAITED == 0 {
                if looks < LOOKS {
                    looks += 1;
                    spin_loop();
                    continue;
                }
                if self.owner.compare_exchange(owner, owner | AWAITED, Ordering::Relaxed, Ordering::Relaxed).is_err() {
                    continue;
                }
            }
            futex::wait_own(&self.wakes, wakes);
        }
    }

    #[cold]
    fn wake(&self) {
        self.wakes.fetch_add(1, Ordering::Release);
        futex::wake_one(&self.wakes);
    }
}

impl<T> Deref for Guard<'_, T> {
    type Target = T;
    #[inline]
    fn deref(&self) -> &T {
        // SAFETY: this guard is the only one, so nobody writes the value while it is borrowed.
        unsafe { &*self.lock.value.get() }
    }
}

impl<T> DerefMut for Guard<'_, T> {
    #[inline]
    fn deref_mut(&mut self) -> &mut T {
        // SAFETY: this guard is the only one, and borrowed exclusively.
        unsafe { &mut *self.lock.value.get() }
    }
}

impl<T> Drop for Guard<'_, T> {
    #[inline]
    fn drop(&mut self) {
        if self.lock.owner.swap(0, Ordering::Release) & AWAITED != 0 {
            self.lock.wake();
        }
        inside::holds(false);
    }
}

/// A mutex that is held for a look or a push, and while no other is taken but one of its kind. See the module.
#[derive(Default)]
pub struct Leaf<T>(UnsafeCell<Mutex<T>>);

// SAFETY: the cell is written by `renew` alone, where there is one thread and no guard; else the mutex is shared, as a mutex is.
unsafe impl<T: Send> Sync for Leaf<T> {}

/// Holds the leaf lock.
pub struct LeafGuard<'a, T> {
    guard: MutexGuard<'a, T>,
    // Dropped last.
    busy: inside::Busy,
}

impl<T> Leaf<T> {
    /// An unlocked one.
    pub const fn new(value: T) -> Self {
        Leaf(UnsafeCell::new(Mutex::new(value)))
    }

    #[inline(always)]
    fn mutex(&self) -> &Mutex<T> {
        // SAFETY: nobody writes the cell while others may look at it, see `renew`.
        unsafe { &*self.0.get() }
    }

    /// In a forked child, where a thread that is not there may hold the lock for ever, in the middle of a change: a new one. What was in
    /// the old one is forgotten as it is.
    pub fn renew(&self, _: &Forked, value: T) {
        // SAFETY: this is the only thread, and it has no guard of a leaf lock (the promise of who makes a `Forked`); a write drops nothing.
        unsafe { self.0.get().write(Mutex::new(value)) }
    }

    /// Waits for the lock.
    #[inline]
    pub fn lock(&self) -> LeafGuard<'_, T> {
        let busy = inside::busy();
        LeafGuard { guard: self.mutex().lock().unwrap_or_else(PoisonError::into_inner), busy }
    }

    /// Takes it if it is free.
    pub fn try_lock(&self) -> Option<LeafGuard<'_, T>> {
        let busy = inside::busy();
        let guard = match self.mutex().try_lock() {
            Ok(guard) => guard,
            Err(TryLockError::Poisoned(poisoned)) => poisoned.into_inner(),
            Err(TryLockError::WouldBlock) => return None,
        };
        Some(LeafGuard { guard, busy })
    }
}

impl<T> LeafGuard<'_, T> {
    /// Gives the lock back until the condition is signalled, or this time is over.
    pub fn wait(self, condition: &Condvar, most: Duration) -> Self {
        let LeafGuard { guard, busy } = self;
        let (guard, _) = condition.wait_timeout(guard, most).unwrap_or_else(PoisonError::into_inner);
        LeafGuard { guard, busy }
    }
}

impl<T> Deref for LeafGuard<'_, T> {
    type Target = T;
    #[inline]
    fn deref(&self) -> &T {
        &self.guard
    }
}

impl<T> DerefMut for LeafGuard<'_, T> {
    #[inline]
    fn deref_mut(&mut self) -> &mut T {
        &mut self.guard
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_renewed_leaf_is_free() {
        let leaf = Leaf::new(vec![1]);
        // As in a child whose parent's other thread holds it.
        core::mem::forget(leaf.lock());
        assert!(leaf.try_lock().is_none());
        // SAFETY: nobody else has this lock.
        leaf.renew(&unsafe { Forked::new() }, vec![2]);
        assert_eq!(*leaf.lock(), [2]);
    }

    #[test]
    fn reentry_is_an_error_and_others_wait() {
        let lock = Lock::new(1);
        let held = lock.lock().unwrap();
        assert!(lock.lock().is_err());
        std::thread::scope(|scope| {
            let other = scope.spawn(|| *lock.lock().unwrap());
            std::thread::sleep(core::time::Duration::from_millis(10));
            drop(held);
            assert_eq!(other.join().unwrap(), 1);
        });
        assert!(lock.lock().is_ok());
    }

    /// Adds to what a lock guards, and does not ask it.
    #[test]
    #[ignore = "a program for the test below"]
    fn program_asks_no_lock() {
        fn add(lock: &Lock<u64>) {
            for _ in 0..1000 {
                // SAFETY: none: that somebody sees it is what is tested.
                unsafe { *lock.value.get() += 1 };
            }
        }
        let lock = Lock::new(0_u64);
        std::thread::scope(|scope| {
            scope.spawn(|| add(&lock));
            scope.spawn(|| add(&lock));
        });
        println!("{} at the end", *lock.lock().unwrap());
    }

    /// With the thread sanitizer (`scripts/races`) the tests would see it if something were guarded by nothing.
    #[test]
    #[cfg(not(miri))]
    fn asking_no_lock_is_seen() {
        let mut command = std::process::Command::new(std::env::current_exe().unwrap());
        command.args(["--exact", "--ignored", "--nocapture", "sys::lock::tests::program_asks_no_lock"]);
        let output = command.output().unwrap();
        let text = String::from_utf8_lossy(&[output.stdout, output.stderr].concat()).into_owned();
        let sanitized = std::env::var("RSOCKET_SANITIZED").is_ok_and(|name| name == "thread");
        assert_eq!((!output.status.success(), text.contains("ThreadSanitizer: data race")), (sanitized, sanitized), "{text}");
    }

    #[test]
    fn one_at_a_time() {
        const ROUNDS: u64 = if cfg!(miri) { 100 } else { 50_000 };
        let lock = Lock::new(0_u64);
        std::thread::scope(|scope| {
            for _ in 0..4 {
                scope.spawn(|| (0..ROUNDS).for_each(|_| *lock.lock().unwrap() += 1));
            }
        });
        assert_eq!(*lock.lock().unwrap(), 4 * ROUNDS);
    }

    #[test]
    fn nobody_waits_in_a_hurry() {
        let (lock, own) = (Lock::new(1), Lock::new(2));
        let held = lock.lock().unwrap();
        std::thread::scope(|scope| {
            let other = scope.spawn(|| {
                let _below = own.lock().unwrap();
                assert!(inside::is_holding());
                let hurry = inside::hurry();
                let refused = lock.lock().is_err();
                drop(hurry);
                refused
            });
            assert!(other.join().unwrap());
        });
        drop(held);
        assert!(!inside::is_holding() && !inside::is_hurried());
        let _hurry = inside::hurry();
        assert!(lock.lock().is_ok());
    }

    #[test]
    fn a_leaf_makes_busy() {
        let leaf = Leaf::new(1);
        let held = leaf.lock();
        assert!(inside::is_busy());
        std::thread::scope(|scope| scope.spawn(|| assert!(leaf.try_lock().is_none() && !inside::is_busy())).join().unwrap());
        drop(held);
        assert!(!inside::is_busy() && leaf.try_lock().is_some_and(|held| *held == 1));
    }
}
