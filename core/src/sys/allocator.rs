//! The C library's allocator, whose locks a signal handler must not wait for either: a thread of this library that is in there is *busy*
//! (`sys::lock`). Where it has no more, `sys::last_heap` has some.

use core::{
    alloc::{GlobalAlloc, Layout},
    ptr,
};
use std::alloc::System;

use super::{inside, last_heap};

/// System, and what `last_heap` has. The process may have another one (feature `allocator`), at a price: see `sys::lock`.
pub struct Allocator;

/// What a new connection needs of the heap, and more.
const PROBE: Layout = Layout::new::<[u8; 1 << 16]>();

/// Whether the heap is at its limit: what is new should be left to the kernel.
pub fn is_exhausted() -> bool {
    if !last_heap::is_in_use() {
        return false;
    }
    let _busy = inside::busy();
    // SAFETY: the layout is not empty.
    let probe = unsafe { System.alloc(PROBE) };
    if !probe.is_null() {
        // SAFETY: allocated above, with this layout.
        unsafe { System.dealloc(probe, PROBE) };
    }
    probe.is_null()
}

#[inline]
fn or_last(memory: *mut u8, layout: Layout) -> *mut u8 {
    if memory.is_null() { last_heap::take(layout) } else { memory }
}

// SAFETY: all is System's, which keeps the promises, or a block of `last_heap`, which has one owner and is as large and aligned as asked for.
unsafe impl GlobalAlloc for Allocator {
    #[inline]
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        let _busy = inside::busy();
        // SAFETY: the caller's promises are the ones asked for.
        let memory = unsafe { System.alloc(layout) };
        or_last(memory, layout)
    }

    #[inline]
    unsafe fn dealloc(&self, memory: *mut u8, layout: Layout) {
        if last_heap::owns(memory) {
            return last_heap::give_back(memory);
        }
        let _busy = inside::busy();
        // SAFETY: the caller's promises are the ones asked for, and the memory is System's.
        unsafe { System.dealloc(memory, layout) }
    }

    #[inline]
    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        let _busy = inside::busy();
        // SAFETY: the caller's promises are the ones asked for.
        let memory = unsafe { System.alloc_zeroed(layout) };
        if !memory.is_null() {
            return memory;
        }
        let memory = last_heap::take(layout);
        if !memory.is_null() {
            // SAFETY: a block is as large as the layout.
            unsafe { ptr::write_bytes(memory, 0, layout.size()) };
        }
        memory
    }

    #[inline]
    unsafe fn realloc(&self, memory: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        let _busy = inside::busy();
        let owned = last_heap::owns(memory);
        if !owned {
            // SAFETY: the caller's promises are the ones asked for, and the memory is System's.
            let moved = unsafe { System.realloc(memory, layout, size) };
            if !moved.is_null() {
                return moved;
            }
        }
        let Ok(wanted) = Layout::from_size_align(size, layout.align()) else { return ptr::null_mut() };
        // SAFETY: realloc's caller promises a size that is not 0.
        let fresh = unsafe { if owned { self.alloc(wanted) } else { last_heap::take(wanted) } };
        if !fresh.is_null() {
            // SAFETY: both are at least as large, and apart: the old one is not given back yet.
            unsafe { ptr::copy_nonoverlapping(memory, fresh, layout.size().min(size)) };
            // SAFETY: the caller's promises are the ones asked for.
            unsafe { self.dealloc(memory, layout) };
        }
        fresh
    }
}

#[cfg(feature = "allocator")]
#[global_allocator]
static ALLOCATOR: Allocator = Allocator;
