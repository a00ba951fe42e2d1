//! Objects that are found by number while other threads may take them away: a slab of cells that are never unmapped.
//!
//! A cell's word holds ALIVE and a count of pins. [`Slab::pin`] adds a pin only while the cell is alive; the value is dropped
//! by whoever removes the last pin after [`Slab::retire`]. A pin is one compare-and-swap, needs no registration of the thread,
//! allocates nothing, and a thread that dies with a pin leaks one object instead of stopping all reclamation.

use super::{lock::Leaf, once::Once, owner::Forked};
use core::{
    cell::UnsafeCell,
    mem::MaybeUninit,
    ops::Deref,
    sync::atomic::{AtomicU32, AtomicU64, Ordering},
};

const ALIVE: u64 = 1 << 63;
/// Cells in a chunk.
const CHUNK: usize = 256;
/// Chunks at most: 262 144 objects.
const CHUNKS: usize = 1024;

struct Cell<T: 'static> {
    word: AtomicU64,
    slab: &'static Slab<T>,
    index: u32,
    value: UnsafeCell<MaybeUninit<T>>,
}

// SAFETY: the value is only handed out by shared reference while pinned, and moved in and out by the one thread that owns the
// cell at that time (insert: not alive yet; drop: the last pin). So a `T` that is Send and Sync is enough.
unsafe impl<T: Send + Sync> Sync for Cell<T> {}

/// A table of objects by index. Meant to be a `static`.
pub struct Slab<T: 'static> {
    chunks: [Once<[Cell<T>; CHUNK]>; CHUNKS],
    free: Leaf<Vec<u32>>,
    /// Indices from here on were never given out.
    made: AtomicU32,
}

/// Keeps an object in place. Dropping the last one of a retired object drops the object. One pointer: each call on a socket makes one.
pub struct Pin<T: Send + Sync + 'static> {
    cell: &'static Cell<T>,
}

impl<T: Send + Sync> Slab<T> {
    /// An empty slab.
    #[allow(clippy::new_without_default)]
    pub const fn new() -> Self {
        Slab { chunks: [const { Once::new() }; CHUNKS], free: Leaf::new(Vec::new()), made: AtomicU32::new(0) }
    }

    fn cell(&'static self, index: u32) -> Option<&'static Cell<T>> {
        let index = index as usize;
        self.chunks.get(index / CHUNK)?.get()?.get(index % CHUNK)
    }

    /// Puts an object in and gives its index. `None` (and the object back) when the slab is full.
    pub fn insert(&'static self, value: T) -> Result<u32, T> {
        let index = {
            let mut free = self.free.lock();
            match free.pop() {
                Some(index) => index,
                // Within the lock, so that none is taken twice.
                None if (self.made.load(Ordering::Relaxed) as usize) < CHUNK * CHUNKS => self.made.fetch_add(1, Ordering::Relaxed),
                None => return Err(value),
            }
        };
        let Some(chunk) = self.chunks.get(index as usize / CHUNK) else { return Err(value) };
        if chunk.get().is_none() {
            let first = index - index % CHUNK as u32;
            let cell = |index| Cell { word: AtomicU64::new(0), slab: self, index, value: UnsafeCell::new(MaybeUninit::uninit()) };
            let cells: Box<[Cell<T>]> = (first..first + CHUNK as u32).map(cell).collect();
            // Another thread may have been faster.
            let _ = cells.try_into().map(|cells| chunk.set(cells));
        }
        let Some(cell) = self.cell(index) else { return Err(value) };
        // SAFETY: the index came off the free list, so the cell is not alive and has no pins: nobody else looks at the value.
        let slot = unsafe { &mut *cell.value.get() };
        slot.write(value);
        // Not a store: a reader with a stale index may be between its add and its look (it backs out by itself).
        cell.word.fetch_or(ALIVE, Ordering::Release);
        Ok(index)
    }

    /// Pins the object of an index. `still` is asked after the pin is in place and must say whether the index still means what
    /// the caller takes it for (the cell may have been given to another object in between).
    #[inline]
    pub fn pin(&'static self, index: u32, still: impl Fn() -> bool) -> Option<Pin<T>> {
        let cell = self.cell(index)?;
        let mut word = cell.word.load(Ordering::Relaxed);
        loop {
            if word & ALIVE == 0 {
                return None;
            }
            match cell.word.compare_exchange_weak(word, word + 1, Ordering::Acquire, Ordering::Relaxed) {
                Ok(_) => break,
                Err(now) => word = now,
            }
        }
        let pin = Pin { cell };
        still().then_some(pin)
    }

    /// In a forked child: no object of the parent's will ever be given back, nor the places of those that have been.
    pub fn renew(&'static self, forked: &Forked) {
        self.free.renew(forked, Vec::new());
    }

    /// Takes the object out: no new pins. It is dropped with the last pin (at once if there is none).
    pub fn retire(&'static self, pin: &Pin<T>) {
        pin.cell.word.fetch_and(!ALIVE, Ordering::AcqRel);
    }
}

impl<T: Send + Sync> Pin<T> {
    /// The object's index.
    pub fn index(&self) -> u32 {
        self.cell.index
    }
}

impl<T: Send + Sync> Deref for Pin<T> {
    type Target = T;

    #[inline]
    fn deref(&self) -> &T {
        // SAFETY: the pin was taken while the cell was alive, hence initialised; the value is dropped only after the last pin.
        let slot = unsafe { &*self.cell.value.get() };
        // SAFETY: as above.
        unsafe { slot.assume_init_ref() }
    }
}

impl<T: Send + Sync> Drop for Pin<T> {
    #[inline]
    fn drop(&mut self) {
        // The last pin of a retired object: the word goes from 1 to 0, and only one thread can see that.
        if self.cell.word.fetch_sub(1, Ordering::Release) == 1 {
            self.give_back();
        }
    }
}

impl<T: Send + Sync> Pin<T> {
    /// The last pin is gone.
    #[cold]
    fn give_back(&self) {
        // As a fence would, and the thread sanitizer, which knows no fences, sees it: what others did with the value is done.
        self.cell.word.load(Ordering::Acquire);
        // SAFETY: not alive and no pins: nobody can reach the value any more, and the cell is not on the free list yet.
        let slot = unsafe { &mut *self.cell.value.get() };
        // SAFETY: it was initialised by `insert` and is dropped exactly once (see above).
        unsafe { slot.assume_init_drop() };
        self.cell.slab.free.lock().push(self.cell.index);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use core::sync::atomic::AtomicUsize;
    use std::sync::Arc;

    #[test]
    fn drops_with_the_last_pin() {
        static SLAB: Slab<Arc<()>> = Slab::new();
        let object = Arc::new(());
        let index = SLAB.insert(object.clone()).unwrap();
        let one = SLAB.pin(index, || true).unwrap();
        let two = SLAB.pin(index, || true).unwrap();
        SLAB.retire(&one);
        assert!(SLAB.pin(index, || true).is_none());
        drop(one);
        assert_eq!(Arc::strong_count(&object), 2);
        drop(two);
        assert_eq!(Arc::strong_count(&object), 1);
        assert_eq!(SLAB.insert(object).unwrap(), index, "the cell is used again");
    }

    #[test]
    fn readers_never_see_a_dropped_object() {
        struct Canary(AtomicUsize);
        impl Drop for Canary {
            fn drop(&mut self) {
                self.0.store(0xdead, Ordering::SeqCst);
            }
        }
        static SLAB: Slab<Canary> = Slab::new();
        static CURRENT: AtomicU64 = AtomicU64::new(u64::MAX);
        static STOP: AtomicUsize = AtomicUsize::new(0);
        let readers: Vec<_> = (0..2)
            .map(|_| {
                std::thread::spawn(|| {
                    let mut hits = 0_u64;
                    while STOP.load(Ordering::Relaxed) == 0 {
                        let seen = CURRENT.load(Ordering::Acquire);
                        let Ok(index) = u32::try_from(seen) else { continue };
                        if let Some(pin) = SLAB.pin(index, || CURRENT.load(Ordering::Acquire) == seen) {
                            assert_eq!(pin.0.load(Ordering::SeqCst), 7);
                            hits += 1;
                        }
                    }
                    hits
                })
            })
            .collect();
        for _ in 0..if cfg!(miri) { 20 } else { 50_000 } {
            let index = SLAB.insert(Canary(AtomicUsize::new(7))).ok().unwrap();
            CURRENT.store(u64::from(index), Ordering::Release);
            let pin = SLAB.pin(index, || true).unwrap();
            CURRENT.store(u64::MAX, Ordering::Release);
            SLAB.retire(&pin);
        }
        STOP.store(1, Ordering::Relaxed);
        for reader in readers {
            reader.join().unwrap();
        }
    }
}
