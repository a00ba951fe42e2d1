//! What the library goes on with where the C library's heap cannot grow (`ulimit -v`, a memory limit): blocks of a static area. A program
//! can do without the memory that malloc(3) refuses it; it shall not end because this library cannot.
//!
//! It is for what exists already, and for what the kernel's connections need: while blocks are in use and the heap is still full
//! ([`super::allocator::is_exhausted`]), no new connection takes memory of its own. Lock-free, as the allocator is called between fork and exec.

use core::{
    alloc::Layout,
    cell::UnsafeCell,
    ptr,
    sync::atomic::{AtomicU64, AtomicUsize, Ordering},
};

/// Blocks of one size: where in the area they begin, how large one is, and a bit for each that is in use.
struct Class<const WORDS: usize> {
    begin: usize,
    block: usize,
    used: [AtomicU64; WORDS],
}

impl<const WORDS: usize> Class<WORDS> {
    const fn new(begin: usize, block: usize) -> Self {
        Class { begin, block, used: [const { AtomicU64::new(0) }; WORDS] }
    }

    /// The offset of a block that was free, and has so many bytes.
    fn take(&self, wanted: usize) -> Option<usize> {
        if wanted > self.block {
            return None;
        }
        self.used.iter().enumerate().find_map(|(index, word)| {
            let first_free = |bits: u64| bits.trailing_ones();
            let with = |bits: u64| 1_u64.checked_shl(first_free(bits)).map(|bit| bits | bit);
            let before = word.fetch_update(Ordering::Acquire, Ordering::Relaxed, with).ok()?;
            Some(self.begin + (index * 64 + first_free(before) as usize) * self.block)
        })
    }

    fn give_back(&self, offset: usize) {
        let block = (offset - self.begin) / self.block;
        if let Some(word) = self.used.get(block / 64) {
            word.fetch_and(!(1 << (block % 64)), Ordering::Release);
        }
    }
}

/// 1024 blocks of 256 bytes, 64 of 4 KiB, 64 of 16 KiB.
const MIDDLE_AT: usize = 16 * 64 * 256;
const LARGE_AT: usize = MIDDLE_AT + 64 * 4096;
const BYTES: usize = LARGE_AT + 64 * 16384;

static SMALL: Class<16> = Class::new(0, 256);
static MIDDLE: Class<1> = Class::new(MIDDLE_AT, 4096);
static LARGE: Class<1> = Class::new(LARGE_AT, 16384);

/// Pages that are never touched cost no memory.
#[repr(C, align(4096))]
struct Area(UnsafeCell<[u8; BYTES]>);

// SAFETY: the blocks are handed out as raw memory, each to one owner.
unsafe impl Sync for Area {}

static AREA: Area = Area(UnsafeCell::new([0; BYTES]));
static IN_USE: AtomicUsize = AtomicUsize::new(0);

fn area() -> *mut u8 {
    AREA.0.get().cast()
}

/// Whether any block is in use.
#[inline]
pub(super) fn is_in_use() -> bool {
    IN_USE.load(Ordering::Relaxed) != 0
}

/// Where in the area the memory is, if it is in there.
#[inline]
fn offset(memory: *mut u8) -> Option<usize> {
    Some((memory as usize).wrapping_sub(area() as usize)).filter(|&offset| offset < BYTES)
}

/// Whether the memory is a block.
#[inline]
pub(super) fn owns(memory: *mut u8) -> bool {
    offset(memory).is_some()
}

/// As malloc(3): null where no block is free that is large enough.
#[cold]
pub(super) fn take(layout: Layout) -> *mut u8 {
    // A block begins at a multiple of its size, or of a page.
    let wanted = layout.size().max(layout.align());
    if layout.align() > align_of::<Area>() {
        return ptr::null_mut();
    }
    let taken = SMALL.take(wanted).or_else(|| MIDDLE.take(wanted)).or_else(|| LARGE.take(wanted));
    let Some(offset) = taken else { return ptr::null_mut() };
    IN_USE.fetch_add(1, Ordering::Relaxed);
    area().wrapping_add(offset)
}

/// As free(3), of a block.
#[cold]
pub(super) fn give_back(memory: *mut u8) {
    let Some(offset) = offset(memory) else { return };
    match offset {
        offset if offset < MIDDLE_AT => SMALL.give_back(offset),
        offset if offset < LARGE_AT => MIDDLE.give_back(offset),
        offset => LARGE.give_back(offset),
    }
    IN_USE.fetch_sub(1, Ordering::Relaxed);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn blocks_are_apart_aligned_and_come_back() {
        let layout = |size, align| Layout::from_size_align(size, align).unwrap();
        let mut taken: Vec<(usize, usize)> = Vec::new();
        let sizes = [(1, 1), (256, 256), (257, 8), (4096, 4096), (4097, 16), (16384, 64)];
        for round in 0..3 {
            loop {
                let before = taken.len();
                for (size, align) in sizes {
                    let memory = take(layout(size, align));
                    if !memory.is_null() {
                        assert!(owns(memory) && (memory as usize).is_multiple_of(align), "{size} {align}");
                        taken.push((memory as usize, size));
                    }
                }
                if taken.len() == before {
                    break;
                }
            }
            assert_eq!(taken.len(), 1024 + 64 + 64, "round {round}: every block is used");
            taken.sort_unstable();
            assert!(taken.windows(2).all(|two| matches!(two, [(at, size), (next, _)] if at + size <= *next)), "two share memory");
            assert!(is_in_use());
            taken.drain(..).for_each(|(memory, _)| give_back(memory as *mut u8));
            assert!(!is_in_use());
        }
        assert!(take(layout(16385, 1)).is_null() && take(layout(1, 8192)).is_null());
        assert!(!owns(Box::into_raw(Box::new(0_u8))), "the heap's");
    }
}
