//! The "inside the library" flag of a thread: while it is set, every hook forwards to libc.
//!
//! It stands in initial-exec thread-local storage, written as assembly: `thread_local!` in a shared library goes through
//! `__tls_get_addr`, which may call malloc (docs/notes: interposing); this is one instruction, always.

use core::{
    arch::{asm, global_asm},
    cell::Cell,
    ffi::c_int,
    marker::PhantomData,
    sync::atomic::{AtomicU32, Ordering},
};

global_asm!(
    ".section .tbss.rsocket_inside,\"awT\",@nobits",
    ".hidden rsocket_inside",
    ".globl rsocket_inside",
    ".type rsocket_inside,@object",
    ".size rsocket_inside,8",
    ".p2align 3",
    "rsocket_inside: .zero 8",
    ".text",
);

#[inline(always)]
fn counter() -> &'static AtomicU32 {
    let pointer: *const AtomicU32;
    #[cfg(target_arch = "x86_64")]
    // SAFETY: computes the address of this thread's `rsocket_inside` and nothing else: no memory is written, no stack used.
    unsafe {
        asm!(
            "mov {0}, qword ptr [rip + rsocket_inside@GOTTPOFF]",
            "add {0}, qword ptr fs:[0]",
            out(reg) pointer,
            options(nostack, readonly)
        );
    }
    #[cfg(target_arch = "aarch64")]
    // SAFETY: as above.
    unsafe {
        asm!(
            "mrs {0}, tpidr_el0",
            "adrp {1}, :gottprel:rsocket_inside",
            "ldr {1}, [{1}, #:gottprel_lo12:rsocket_inside]",
            "add {0}, {0}, {1}",
            out(reg) pointer,
            out(reg) _,
            options(nostack, readonly)
        );
    }
    // SAFETY: the object is 8 zeroed, 8-byte aligned bytes that live as long as the thread; only this thread has the address.
    unsafe { &*pointer }
}

/// Whether this thread is inside the library.
#[inline(always)]
pub fn is_set() -> bool {
    counter().load(Ordering::Relaxed) != 0
}

/// An identity of the calling thread: unique among living threads, never 0, and without a system call.
#[inline(always)]
pub fn thread() -> usize {
    core::ptr::from_ref(counter()).addr()
}

/// Keeps the flag set while it lives. Nests.
pub struct Guard {
    // The flag belongs to the thread that set it.
    not_send: PhantomData<Cell<*mut ()>>,
}

/// Adds to the counter. Not one atomic step: a signal handler that comes between leaves it as it found it, and nobody else writes it.
#[inline(always)]
fn change(by: i32) {
    let counter = counter();
    counter.store(counter.load(Ordering::Relaxed).wrapping_add_signed(by), Ordering::Relaxed);
}

/// Sets the flag for this thread until the guard is dropped.
#[inline(always)]
pub fn enter() -> Guard {
    change(1);
    Guard { not_send: PhantomData }
}

/// Sets the flag, and puts off the thread's cancellation (pthread_cancel(3)): for what may call a cancellation point. Cancelled there
/// the thread would take locks with it, since nothing of this library is unwound.
#[inline]
pub fn enter_uncancelled() -> Uncancelled {
    let inside = enter();
    let mut before = 0;
    // SAFETY: writes the earlier state into a live variable.
    unsafe { pthread_setcancelstate(PTHREAD_CANCEL_DISABLE, &mut before) };
    Uncancelled { before, inside }
}

/// See [`enter_uncancelled`].
pub struct Uncancelled {
    before: c_int,
    #[expect(dead_code, reason = "dropped last")]
    inside: Guard,
}

impl Drop for Uncancelled {
    #[inline]
    fn drop(&mut self) {
        // SAFETY: the state is one that it gave before; NULL is allowed by the C library's manual.
        unsafe { pthread_setcancelstate(self.before, core::ptr::null_mut()) };
    }
}

const PTHREAD_CANCEL_DISABLE: c_int = 1;

unsafe extern "C" {
    fn pthread_setcancelstate(state: c_int, before: *mut c_int) -> c_int;
}

/// Sets the flag for this thread for ever: for the library's own threads.
pub fn enter_for_ever() {
    change(1);
}

impl Drop for Guard {
    #[inline(always)]
    fn drop(&mut self) {
        change(-1);
    }
}

#[cfg(test)]
mod tests {
    #[test]
    fn nests_and_is_per_thread() {
        assert!(!super::is_set());
        let outer = super::enter();
        {
            let _inner = super::enter();
            assert!(super::is_set());
            assert!(!std::thread::spawn(super::is_set).join().unwrap());
        }
        assert!(super::is_set());
        drop(outer);
        assert!(!super::is_set());
    }
}
