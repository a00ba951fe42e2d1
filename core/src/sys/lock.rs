//! A mutex that notices when a signal handler comes back to what its own thread holds.
//!
//! A handler may legally call send or recv on a socket whose lock the interrupted call holds; waiting there would be for ever.

use core::{
    ops::{Deref, DerefMut},
    sync::atomic::{AtomicUsize, Ordering},
};
use std::sync::{Mutex, MutexGuard, TryLockError};

use super::inside;

/// The mutex.
pub struct Lock<T> {
    owner: AtomicUsize,
    mutex: Mutex<T>,
}

/// The lock is held by this thread already, below the signal handler that asks.
#[derive(Debug)]
pub struct Reentered;

/// Holds the lock.
pub struct Guard<'a, T> {
    owner: &'a AtomicUsize,
    guard: MutexGuard<'a, T>,
}

impl<T> Lock<T> {
    /// An unlocked one.
    pub const fn new(value: T) -> Self {
        Lock { owner: AtomicUsize::new(0), mutex: Mutex::new(value) }
    }

    /// Waits for the lock.
    #[inline]
    pub fn lock(&self) -> Result<Guard<'_, T>, Reentered> {
        let me = inside::thread();
        let guard = match self.mutex.try_lock() {
            Ok(guard) => guard,
            Err(TryLockError::Poisoned(poisoned)) => poisoned.into_inner(),
            // Only this thread can have written its own identity, so a relaxed look is exact.
            Err(TryLockError::WouldBlock) if self.owner.load(Ordering::Relaxed) == me => return Err(Reentered),
            Err(TryLockError::WouldBlock) => self.mutex.lock().unwrap_or_else(|poisoned| poisoned.into_inner()),
        };
        self.owner.store(me, Ordering::Relaxed);
        Ok(Guard { owner: &self.owner, guard })
    }
}

impl<T> Deref for Guard<'_, T> {
    type Target = T;
    fn deref(&self) -> &T {
        &self.guard
    }
}

impl<T> DerefMut for Guard<'_, T> {
    fn deref_mut(&mut self) -> &mut T {
        &mut self.guard
    }
}

impl<T> Drop for Guard<'_, T> {
    #[inline]
    fn drop(&mut self) {
        self.owner.store(0, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

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
}
