//! The boundary between C and the calls: raw pointers in, slices and values out, and the `errno` variable.
//!
//! The r* functions and the hooks of the preload library share it. A function here has the arguments of the C function of
//! its name and gives the [`Route`]: `Kernel` and nothing touched, or the C function's result. What a man page says of
//! pointers, lengths and address truncation is decided here; everything else in `calls`.
//!
//! A pointer that is NULL (or into the first page) where memory is needed gives EFAULT, and so does memory that reaches beyond a
//! program's addresses. Other bad pointers cannot be told from good ones here, where the kernel would report EFAULT: they are undefined
//! behaviour. Lengths that no memory is good for are looked into: see [`io::send`].

pub mod address;
pub mod datagram;
pub mod descriptor;
pub mod epoll;
mod fault;
pub mod io;
pub mod iomap;
pub mod option;
pub mod poll;
pub mod rights;
pub mod select;
pub mod socket;
pub mod splice;
pub mod vector;

use core::ffi::{c_int, c_void};

use super::lifecycle;
use crate::{
    calls::{Route, descriptor as numbers},
    error::{Errno, Result},
    sys::inside,
};

/// A C function's result.
pub trait Answer {
    /// What it is on failure.
    const FAILURE: Self;
}

impl Answer for i32 {
    const FAILURE: Self = -1;
}

impl Answer for i64 {
    const FAILURE: Self = -1;
}

impl Answer for usize {
    /// riowrite: (size_t) -1.
    const FAILURE: Self = Self::MAX;
}

impl Answer for isize {
    const FAILURE: Self = -1;
}

/// Makes a call: `None` when it is the kernel's. `errno` is set on failure, else what it was before.
#[inline]
pub fn answer<T: Answer>(call: impl FnOnce() -> Route<T>) -> Option<T> {
    // What the library calls itself comes here too where it writes, whatever it does meanwhile.
    if inside::is_busy() && !inside::is_set() {
        return interrupted();
    }
    let hurry = inside::is_holding().then(inside::hurry);
    // SAFETY: has no preconditions; gives the address of this thread's errno.
    let place = unsafe { libc::__errno_location() };
    // SAFETY: the address is valid as long as the thread runs, and only this thread uses it.
    let before = unsafe { *place };
    let (after, answer) = match call() {
        Route::Kernel => (before, None),
        Route::Done(Ok(value)) => (before, Some(value)),
        Route::Done(Err(error)) => (error.raw_os_error(), Some(T::FAILURE)),
    };
    // SAFETY: as above. Not by `set_errno`: looking up the place costs more than the rest.
    unsafe { *place = after };
    if numbers::is_any_left() && hurry.is_none() {
        finish_left();
    }
    answer
}

/// A signal handler has interrupted its thread in the middle of something that the call would wait for (`sys::lock`).
#[cold]
#[inline(never)]
fn interrupted<T: Answer>() -> Option<T> {
    set_errno(libc::EAGAIN);
    Some(T::FAILURE)
}

/// Nothing of a call's `errno` changes.
#[cold]
#[inline(never)]
fn finish_left() {
    let before = errno();
    lifecycle::renew_if_due();
    numbers::finish_left();
    set_errno(before);
}

/// The thread's `errno`.
#[inline]
pub fn errno() -> c_int {
    // SAFETY: has no preconditions; gives the address of this thread's errno.
    let place = unsafe { libc::__errno_location() };
    // SAFETY: the address is valid as long as the thread runs, and only this thread uses it.
    unsafe { *place }
}

/// Sets the thread's `errno`.
#[inline]
pub fn set_errno(errno: c_int) {
    // SAFETY: has no preconditions; gives the address of this thread's errno.
    let place = unsafe { libc::__errno_location() };
    // SAFETY: the address is valid as long as the thread runs, and only this thread uses it.
    unsafe { *place = errno };
}

/// A route with its value changed.
#[inline]
fn map<T, U>(route: Route<T>, change: impl FnOnce(T) -> U) -> Route<U> {
    match route {
        Route::Kernel => Route::Kernel,
        Route::Done(result) => Route::Done(result.map(change)),
    }
}

/// The result of a call that gives 0.
#[inline]
fn zero(route: Route<()>) -> Route<c_int> {
    map(route, |()| 0)
}

/// `?` for functions that give a [`Route`].
macro_rules! attempt {
    ($result:expr) => {
        match $result {
            Ok(value) => value,
            Err(errno) => return $crate::calls::Route::Done(Err(errno)),
        }
    };
}
use attempt;

/// What stands below this address is no memory of a program's: NULL, and members of a structure at NULL.
const FIRST_PAGE: usize = 4096;

/// Whether the memory could be a program's: the upper half of the address space is the kernel's, who looks at that first.
fn in_user_space(start: *const c_void, length: usize) -> bool {
    start.addr().checked_add(length).is_some_and(|end| isize::try_from(end).is_ok())
}

/// See [`in_user_space`]: "EFAULT … outside your accessible address space".
fn access(start: *const c_void, length: usize) -> Result<()> {
    if in_user_space(start, length) { Ok(()) } else { Err(Errno::FAULT) }
}

/// Whether it is a program's memory, of no unusual length: what nearly every call names. If not, the other functions say what it is.
#[inline(always)]
fn is_usual(start: *const c_void, length: usize) -> bool {
    const ADDRESSES: usize = isize::MAX as usize - FIRST_PAGE - vector::MOST_BYTES;
    length.wrapping_sub(1) < vector::MOST_BYTES && start.addr().wrapping_sub(FIRST_PAGE) < ADDRESSES
}

fn is_bad(start: *const c_void, length: usize) -> bool {
    start.addr() < FIRST_PAGE || !in_user_space(start, length)
}

/// Memory to read.
///
/// # Safety
/// Unless [bad](is_bad), `start` must be good for reads of `length` bytes for `'a`.
#[inline]
unsafe fn bytes<'a>(start: *const c_void, length: usize) -> Result<&'a [u8]> {
    match (length, is_bad(start, length)) {
        (0, _) => Ok(&[]),
        (_, true) => Err(Errno::FAULT),
        // SAFETY: not bad, so good for `length` bytes (the caller's promise), which do not exceed isize::MAX.
        _ => Ok(unsafe { core::slice::from_raw_parts(start.cast(), length) }),
    }
}

/// Memory to write.
///
/// # Safety
/// Unless [bad](is_bad), `start` must be good for writes of `length` bytes for `'a`, and nobody else may use them.
#[inline]
unsafe fn bytes_mut<'a>(start: *mut c_void, length: usize) -> Result<&'a mut [u8]> {
    match (length, is_bad(start, length)) {
        (0, _) => Ok(&mut []),
        (_, true) => Err(Errno::FAULT),
        // SAFETY: not bad, so good for `length` bytes (the caller's promise), which do not exceed isize::MAX.
        _ => Ok(unsafe { core::slice::from_raw_parts_mut(start.cast(), length) }),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn errno_is_set_on_failure_only() {
        set_errno(42);
        assert_eq!(answer::<c_int>(|| Route::Kernel), None);
        assert_eq!(errno(), 42);
        let noisy = || {
            set_errno(7);
            Route::ok(3isize)
        };
        assert_eq!(answer(noisy), Some(3));
        assert_eq!(errno(), 42);
        assert_eq!(answer::<isize>(|| Route::err(Errno::AGAIN)), Some(-1));
        assert_eq!(errno(), libc::EAGAIN);
    }

    #[test]
    fn a_busy_thread_is_not_waited_for() {
        let busy = inside::busy();
        assert_eq!(answer::<c_int>(|| unreachable!()), Some(-1));
        assert_eq!(errno(), libc::EAGAIN);
        drop(busy);
        assert_eq!(answer(|| Route::ok(1)), Some(1));
    }

    #[test]
    fn null_is_a_fault_unless_nothing_is_wanted() {
        // SAFETY: NULL is allowed.
        assert_eq!(unsafe { bytes(core::ptr::null(), 1) }, Err(Errno::FAULT));
        // SAFETY: NULL is allowed.
        assert_eq!(unsafe { bytes_mut(core::ptr::null_mut(), 0) }, Ok(&mut [][..]));
        for (start, length) in [(8, 1), (usize::MAX, 1), (1 << 20, usize::MAX), (1 << 20, isize::MAX as usize)] {
            let start = core::ptr::without_provenance(start);
            // SAFETY: what is no program's memory is allowed.
            assert_eq!(unsafe { bytes(start, length) }, Err(Errno::FAULT));
        }
    }
}
