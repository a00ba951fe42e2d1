//! The "inside the library" flag of a thread: while it is set, every hook forwards to libc. And its "busy" flag: while that is set, calls on
//! rsockets, which only a signal handler can make then, give EAGAIN.
//!
//! They stand in initial-exec thread-local storage, written as assembly: `thread_local!` in a shared library goes through
//! `__tls_get_addr`, which may call malloc (docs/notes: interposing); this is one instruction, always.

#[cfg(not(miri))]
use core::arch::asm;
use core::{
    arch::global_asm,
    cell::Cell,
    ffi::c_int,
    marker::PhantomData,
    sync::atomic::{AtomicU32, Ordering, compiler_fence},
};

global_asm!(
    ".section .tbss.rsocket_inside,\"awT\",@nobits",
    ".hidden rsocket_inside",
    ".globl rsocket_inside",
    ".type rsocket_inside,@object",
    ".size rsocket_inside,16",
    ".p2align 3",
    "rsocket_inside: .zero 16",
    ".text",
);

/// The counters of this thread: *inside*, *busy*, *holding*, *hurried*.
#[inline(always)]
fn counters() -> &'static [AtomicU32; 4] {
    let pointer: *const [AtomicU32; 4];
    #[cfg(miri)]
    {
        // It knows no assembly.
        thread_local! { static COUNTERS: [AtomicU32; 4] = const { [const { AtomicU32::new(0) }; 4] } }
        pointer = COUNTERS.with(core::ptr::from_ref);
    }
    #[cfg(all(target_arch = "x86_64", not(miri)))]
    // SAFETY: computes the address of this thread's `rsocket_inside` and nothing else: no memory is written, no stack used. What is read
    // is the same as long as the thread lives, so that one computation serves a whole call.
    unsafe {
        asm!(
            "mov {0}, qword ptr [rip + rsocket_inside@GOTTPOFF]",
            "add {0}, qword ptr fs:[0]",
            out(reg) pointer,
            options(pure, nomem, nostack)
        );
    }
    #[cfg(all(target_arch = "aarch64", not(miri)))]
    // SAFETY: as above.
    unsafe {
        asm!(
            "mrs {0}, tpidr_el0",
            "adrp {1}, :gottprel:rsocket_inside",
            "ldr {1}, [{1}, #:gottprel_lo12:rsocket_inside]",
            "add {0}, {0}, {1}",
            out(reg) pointer,
            out(reg) _,
            options(pure, nomem, nostack)
        );
    }
    // SAFETY: the object is 16 zeroed, 8-byte aligned bytes that live as long as the thread; only this thread has the address.
    unsafe { &*pointer }
}

#[inline(always)]
fn counter() -> &'static AtomicU32 {
    let [inside, ..] = counters();
    inside
}

#[inline(always)]
fn busy_counter() -> &'static AtomicU32 {
    let [_, busy, ..] = counters();
    busy
}

/// Whether this thread is inside the library.
#[inline(always)]
pub fn is_set() -> bool {
    counter().load(Ordering::Relaxed) != 0
}

/// Whether this thread holds what a signal handler that has interrupted it could only wait for, for ever: a leaf lock, or the allocator's.
#[inline(always)]
pub fn is_busy() -> bool {
    busy_counter().load(Ordering::Relaxed) != 0
}

/// Makes [`is_busy`] true while it lives. Nests.
pub struct Busy {
    // As of `Guard`.
    not_send: PhantomData<Cell<*mut ()>>,
}

/// To be called before the lock is asked for, and dropped after it was given back.
#[inline(always)]
pub fn busy() -> Busy {
    change(busy_counter(), 1);
    Busy { not_send: PhantomData }
}

/// The same from one call of the C library to another one: makes [`is_busy`] true, or takes that back.
pub fn set_busy(on: bool) {
    change(busy_counter(), if on { 1 } else { -1 });
}

/// Whether this thread holds a lock: then a call of a signal handler that has interrupted it must not wait for another, whose owner may wait
/// for this one.
#[inline(always)]
pub fn is_holding() -> bool {
    let [_, _, holding, _] = counters();
    holding.load(Ordering::Relaxed) != 0
}

/// This thread takes a lock, and has given it back. To be said before and after.
#[inline(always)]
pub fn holds(takes: bool) {
    let [_, _, holding, _] = counters();
    change(holding, if takes { 1 } else { -1 });
}

/// Whether this thread must not wait for a lock: see [`is_holding`].
#[inline(always)]
pub fn is_hurried() -> bool {
    let [_, _, _, hurried] = counters();
    hurried.load(Ordering::Relaxed) != 0
}

/// Makes [`is_hurried`] true while it lives. Nests.
pub struct Hurry {
    // As of `Guard`.
    not_send: PhantomData<Cell<*mut ()>>,
}

/// See [`Hurry`].
pub fn hurry() -> Hurry {
    let [_, _, _, hurried] = counters();
    change(hurried, 1);
    Hurry { not_send: PhantomData }
}

impl Drop for Hurry {
    fn drop(&mut self) {
        let [_, _, _, hurried] = counters();
        change(hurried, -1);
    }
}

impl Drop for Busy {
    #[inline(always)]
    fn drop(&mut self) {
        change(busy_counter(), -1);
    }
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
fn change(counter: &AtomicU32, by: i32) {
    // A handler runs in this thread: what the compiler may move is all that counts.
    compiler_fence(Ordering::SeqCst);
    counter.store(counter.load(Ordering::Relaxed).wrapping_add_signed(by), Ordering::Relaxed);
    compiler_fence(Ordering::SeqCst);
}

/// Sets the flag for this thread until the guard is dropped.
#[inline(always)]
pub fn enter() -> Guard {
    change(counter(), 1);
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
    change(counter(), 1);
}

impl Drop for Guard {
    #[inline(always)]
    fn drop(&mut self) {
        change(counter(), -1);
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
        assert!(!super::is_busy());
        drop(outer);
        assert!(!super::is_set());
    }

    #[test]
    fn busy_is_another_flag() {
        let outer = super::busy();
        drop(super::busy());
        assert!(super::is_busy() && !super::is_set());
        assert!(!std::thread::spawn(super::is_busy).join().unwrap());
        drop(outer);
        assert!(!super::is_busy());
        super::set_busy(true);
        drop(super::busy());
        assert!(super::is_busy());
        super::set_busy(false);
        assert!(!super::is_busy());
    }
}
