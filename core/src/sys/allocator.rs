//! The C library's allocator, whose locks a signal handler must not wait for either: a thread of this library that is in there is *busy*
//! (`sys::lock`).

use core::alloc::{GlobalAlloc, Layout};
use std::alloc::System;

use super::inside;

struct Allocator;

// SAFETY: all is System's, which keeps the promises.
unsafe impl GlobalAlloc for Allocator {
    #[inline]
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        let _busy = inside::busy();
        // SAFETY: the caller's promises are the ones asked for.
        unsafe { System.alloc(layout) }
    }

    #[inline]
    unsafe fn dealloc(&self, memory: *mut u8, layout: Layout) {
        let _busy = inside::busy();
        // SAFETY: the caller's promises are the ones asked for.
        unsafe { System.dealloc(memory, layout) }
    }

    #[inline]
    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        let _busy = inside::busy();
        // SAFETY: the caller's promises are the ones asked for.
        unsafe { System.alloc_zeroed(layout) }
    }

    #[inline]
    unsafe fn realloc(&self, memory: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        let _busy = inside::busy();
        // SAFETY: the caller's promises are the ones asked for.
        unsafe { System.realloc(memory, layout, size) }
    }
}

#[global_allocator]
static ALLOCATOR: Allocator = Allocator;
