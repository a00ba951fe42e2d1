//! Whether a call concerns an rsocket at all: what every call of the program pays.

use core::ffi::c_int;

use libc::{fd_set, nfds_t, pollfd};
use rsocket::{
    calls::descriptor::is_ours,
    capi::boundary::{descriptor, poll, select},
    sys::{inside, own, owner},
};

/// The number is an rsocket's, and it is not the library itself (or a library that it calls) that asks.
#[inline(always)]
pub(crate) fn ours(fd: c_int) -> bool {
    is_ours(fd) && !inside::is_set()
}

/// The number is an rsocket's or one of the library's own descriptors, and it is not the library itself that asks.
#[inline(always)]
pub(crate) fn ours_or_own(fd: c_int) -> bool {
    (is_ours(fd) || own::is_own(fd)) && !inside::is_set()
}

/// As [`ours_or_own`], for close(2). In a signal handler that has interrupted its thread in the middle of something the number is only
/// taken out of the table.
#[inline(always)]
pub(crate) fn closable(fd: c_int) -> bool {
    ours_or_own(fd) && !(inside::is_busy() && left(fd))
}

#[cold]
#[inline(never)]
fn left(fd: c_int) -> bool {
    let ours = !own::is_own(fd);
    if ours {
        descriptor::leave(fd);
    }
    ours
}

/// It is not the library itself that asks, nor a handler that has interrupted it in the middle of something.
#[inline(always)]
pub(crate) fn free() -> bool {
    !inside::is_set() && !inside::is_busy()
}

/// It is a process that shares the memory with the one whose sockets these are, as a vfork child does. A system call.
pub(crate) fn stranger() -> bool {
    !inside::is_set() && !owner::is_current()
}

/// An entry of a poll call is ours.
///
/// # Safety
/// Unless NULL, `fds` must be an array of `count`.
#[inline]
pub(crate) unsafe fn ours_polled(fds: *const pollfd, count: nfds_t) -> bool {
    // SAFETY: the caller's promise is the one asked for.
    let entries = unsafe { poll::entries(fds, count) };
    entries.iter().any(|entry| is_ours(entry.fd)) && !inside::is_set()
}

/// A number in the sets of a select call is ours.
///
/// # Safety
/// Unless NULL, the sets must have room for numbers below `count`.
#[inline]
pub(crate) unsafe fn ours_selected(count: c_int, sets: [*const fd_set; 3]) -> bool {
    let count = select::bound(count);
    let any = sets.iter().any(|set| {
        // SAFETY: the caller's promise is the one asked for.
        let words = unsafe { select::words(*set, count) };
        words.iter().zip(0..).any(|(word, at)| any_bit(*word, |bit| at * 64 + bit, count))
    });
    any && !inside::is_set()
}

fn any_bit(mut word: u64, number: impl Fn(usize) -> usize, count: usize) -> bool {
    while word != 0 {
        let number = number(word.trailing_zeros() as usize);
        if number < count && is_ours(number as c_int) {
            return true;
        }
        word &= word - 1;
    }
    false
}

/// A number that the kernel has just given out (or an error, which is left alone): an rsocket that stood there was closed
/// behind the library's back, by stdio or a raw system call.
#[inline(always)]
pub(crate) fn fresh(fd: c_int) -> c_int {
    if ours(fd) {
        forget(fd);
    }
    given(fd)
}

/// A number that the program has from now on (or an error, which is left alone).
#[inline(always)]
pub(crate) fn given(fd: c_int) -> c_int {
    if !inside::is_set() {
        own::release(fd);
    }
    fd
}

#[cold]
#[inline(never)]
fn forget(fd: c_int) {
    descriptor::forget_stale(fd);
}
