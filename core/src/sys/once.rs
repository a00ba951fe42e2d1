//! Values that are made once, and where nobody waits for anybody: two that come first at the same time both make one, and one of these is
//! dropped. So nothing hangs in a child that was forked while another thread made it, nor in a signal handler that has interrupted it.

use core::{
    marker::PhantomData,
    ptr::null_mut,
    sync::atomic::{AtomicPtr, Ordering},
};

/// See the module. Meant to be a `static`: what it holds is never dropped.
pub struct Once<T> {
    value: AtomicPtr<T>,
    // Shared by all threads as the value is.
    kind: PhantomData<T>,
}

impl<T> Once<T> {
    /// An empty one.
    #[allow(clippy::new_without_default)]
    pub const fn new() -> Self {
        Once { value: AtomicPtr::new(null_mut()), kind: PhantomData }
    }

    /// The value, if it is there.
    #[inline]
    pub fn get(&self) -> Option<&'static T> {
        // SAFETY: NULL, or the pointer of a box that was given up for ever in `set`, all of it written before.
        unsafe { self.value.load(Ordering::Acquire).as_ref() }
    }

    /// Puts a value in, unless there is one.
    pub fn set(&self, value: Box<T>) -> Result<&'static T, Box<T>> {
        let value = Box::into_raw(value);
        if self.value.compare_exchange(null_mut(), value, Ordering::AcqRel, Ordering::Relaxed).is_err() {
            // SAFETY: made of a box above, and nobody has seen it.
            return Err(unsafe { Box::from_raw(value) });
        }
        // SAFETY: as in `get`.
        Ok(unsafe { &*value })
    }

    /// The value, which `make` makes if it is not there.
    pub fn get_or_make(&self, make: impl FnOnce() -> Box<T>) -> &'static T {
        if let Some(value) = self.get() {
            return value;
        }
        match self.set(make()) {
            Ok(value) => value,
            // Somebody else was faster, and what is there stays.
            Err(own) => self.get().unwrap_or_else(|| Box::leak(own)),
        }
    }

    /// As [`Once::get_or_make`].
    pub fn get_or_init(&self, make: impl FnOnce() -> T) -> &'static T {
        self.get_or_make(|| Box::new(make()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_value_stays() {
        static ONCE: Once<u32> = Once::new();
        assert_eq!(ONCE.get(), None);
        // One that comes while another is being made.
        assert_eq!(*ONCE.get_or_init(|| *ONCE.get_or_init(|| 1) + 1), 1);
        assert_eq!((*ONCE.get_or_init(|| 3), ONCE.set(Box::new(4)), ONCE.get()), (1, Err(Box::new(4)), Some(&1)));
    }

    #[test]
    fn all_threads_see_the_same() {
        static ONCE: Once<usize> = Once::new();
        let seen = |number| core::ptr::from_ref(ONCE.get_or_init(|| number)).addr();
        let threads: Vec<_> = (0..8).map(|number| std::thread::spawn(move || seen(number))).collect();
        let mut all: Vec<_> = threads.into_iter().map(|thread| thread.join().unwrap()).collect();
        all.dedup();
        assert_eq!(all.len(), 1);
    }
}
