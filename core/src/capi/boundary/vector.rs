//! `struct iovec` arrays, and the limits on lengths that the kernel has.

use core::{array, ffi::c_void};
use std::io::{IoSlice, IoSliceMut};

use libc::iovec;

use super::attempt;
use crate::{
    calls::Route,
    error::{Errno, Result},
};

/// "Linux will transfer at most 0x7ffff000 (2,147,479,552) bytes" by one call (read(2)).
pub(super) const MOST_BYTES: usize = 0x7fff_f000;

/// IOV_MAX.
pub(super) const MOST_VECTORS: usize = 1024;

/// Arrays of up to so many elements are copied to a small place on the stack.
const FEW: usize = 16;

/// What an iovec becomes: [`IoSlice`] or [`IoSliceMut`].
pub(super) trait Slot<'a>: 'a {
    fn empty() -> Self;

    /// # Safety
    /// `start` must be good for `length` bytes for `'a`: for reads, and for writes by nobody else where the slot is written.
    unsafe fn over(start: *mut c_void, length: usize) -> Result<Self>
    where
        Self: Sized;
}

impl<'a> Slot<'a> for IoSlice<'a> {
    fn empty() -> Self {
        IoSlice::new(&[])
    }

    unsafe fn over(start: *mut c_void, length: usize) -> Result<Self> {
        // SAFETY: the caller's promise is the one asked for.
        unsafe { super::bytes(start, length) }.map(IoSlice::new)
    }
}

impl<'a> Slot<'a> for IoSliceMut<'a> {
    fn empty() -> Self {
        IoSliceMut::new(&mut [])
    }

    unsafe fn over(start: *mut c_void, length: usize) -> Result<Self> {
        // SAFETY: the caller's promise is the one asked for.
        unsafe { super::bytes_mut(start, length) }.map(IoSliceMut::new)
    }
}

/// Calls `then` with the memory that an iovec array names, in its own copy of the array (the program's is const, and may be
/// in use again), on the stack: signal handlers come through here.
///
/// `count` must not exceed [`MOST_VECTORS`]: the functions differ in the error for it. An element that names no memory is found out
/// about late: `bad` says what else is wrong.
///
/// # Safety
/// Unless NULL, `vectors` must be an array of `count`, whose elements name memory good for what the slots do with it.
pub(super) unsafe fn with<'a, S: Slot<'a>, R>(
    vectors: *const iovec,
    count: usize,
    then: impl FnOnce(&mut [S]) -> Route<R>,
    bad: impl FnOnce() -> Route<R>,
) -> Route<R> {
    if count == 0 {
        return then(&mut []);
    }
    if super::is_bad(vectors.cast(), count * size_of::<iovec>()) {
        return Route::err(Errno::FAULT);
    }
    // SAFETY: not bad, so an array of `count` (the caller's promise).
    let given = unsafe { core::slice::from_raw_parts(vectors, count) };
    if count > FEW {
        // SAFETY: the caller's promise is the one asked for.
        return unsafe { with_many(given, then, bad) };
    }
    let mut slots: [S; FEW] = array::from_fn(|_| S::empty());
    attempt!(check(given));
    // SAFETY: the caller's promise is the one asked for.
    match unsafe { fill(&mut slots, given) } {
        Ok(used) => then(slots.get_mut(..used).unwrap_or_default()),
        Err(_) => bad(),
    }
}

/// # Safety
/// As for [`with`].
#[cold]
#[inline(never)]
unsafe fn with_many<'a, S: Slot<'a>, R>(
    given: &[iovec],
    then: impl FnOnce(&mut [S]) -> Route<R>,
    bad: impl FnOnce() -> Route<R>,
) -> Route<R> {
    let mut slots: [S; MOST_VECTORS] = array::from_fn(|_| S::empty());
    attempt!(check(given));
    // SAFETY: the caller's promise is the one asked for.
    match unsafe { fill(&mut slots, given) } {
        Ok(used) => then(slots.get_mut(..used).unwrap_or_default()),
        Err(_) => bad(),
    }
}

/// Fills `slots` with what is not empty, and gives the number used. (What `given` is was checked.)
///
/// # Safety
/// As for [`with`].
unsafe fn fill<'a, S: Slot<'a>>(slots: &mut [S], given: &[iovec]) -> Result<usize> {
    let mut room = MOST_BYTES;
    let mut used = 0;
    for (slot, vector) in slots.iter_mut().zip(given.iter().filter(|vector| vector.iov_len != 0)) {
        let length = vector.iov_len.min(room);
        if length == 0 {
            break;
        }
        // SAFETY: the element names memory that is good for what the slot does (the caller's promise).
        *slot = unsafe { S::over(vector.iov_base, length) }?;
        room -= length;
        used += 1;
    }
    Ok(used)
}

fn check(given: &[iovec]) -> Result<()> {
    // "EINVAL The sum of the iov_len values overflows an ssize_t value" (readv(2)): the kernel looks at each, and cuts the sum.
    if given.iter().any(|vector| isize::try_from(vector.iov_len).is_err()) {
        return Err(Errno::INVAL);
    }
    match given {
        // One alone is cut first, as for write(2), ...
        [one] => super::access(one.iov_base, one.iov_len.min(MOST_BYTES)),
        // ... but of several the kernel looks at the whole of each element, also at what it would cut off.
        many => many.iter().try_for_each(|vector| super::access(vector.iov_base, vector.iov_len)),
    }
}

/// The memory of an array of one element.
///
/// # Safety
/// Unless NULL, `vectors` must be an array of `count`.
pub(super) unsafe fn only_one(vectors: *const iovec, count: usize) -> Option<(*const c_void, usize)> {
    if count != 1 || super::is_bad(vectors.cast(), size_of::<iovec>()) {
        return None;
    }
    // SAFETY: not bad, so an array of 1 (the caller's promise).
    unsafe { vectors.as_ref() }.map(|one| (one.iov_base.cast_const(), one.iov_len))
}

/// Bytes in all elements, whose memory is not looked at.
///
/// # Safety
/// Unless NULL, `vectors` must be an array of `count`.
pub(super) unsafe fn length(vectors: *const iovec, count: usize) -> Result<usize> {
    if count == 0 {
        return Ok(0);
    }
    if vectors.is_null() {
        return Err(Errno::FAULT);
    }
    // SAFETY: not NULL, so an array of `count` (the caller's promise).
    let given = unsafe { core::slice::from_raw_parts(vectors, count) };
    check(given)?;
    Ok(given.iter().fold(0usize, |sum, vector| sum.saturating_add(vector.iov_len)).min(MOST_BYTES))
}

#[cfg(test)]
mod tests {
    use core::ptr::{null, null_mut};

    use super::*;

    fn vector(bytes: &mut [u8]) -> iovec {
        iovec { iov_base: bytes.as_mut_ptr().cast(), iov_len: bytes.len() }
    }

    fn lengths(vectors: &[iovec]) -> Result<Vec<usize>> {
        // SAFETY: the tests' vectors name live memory, or more than there is but it is not read.
        let route = unsafe {
            let list = |slots: &mut [IoSlice<'_>]| Route::ok(slots.iter().map(|slot| slot.len()).collect());
            with(vectors.as_ptr(), vectors.len(), list, || Route::err(Errno::FAULT))
        };
        match route {
            Route::Done(result) => result,
            Route::Kernel => panic!("not routed here"),
        }
    }

    #[test]
    fn few_and_many_and_empty_ones() {
        let mut bytes = [1u8; 4];
        let mut vectors = vec![
            iovec { iov_base: null_mut(), iov_len: 0 },
            vector(&mut bytes[..3]),
            iovec { iov_base: null_mut(), iov_len: 0 },
            vector(&mut bytes[3..]),
        ];
        assert_eq!(lengths(&vectors), Ok(vec![3, 1]));
        vectors.resize(1024, vector(&mut bytes[..1]));
        assert_eq!(lengths(&vectors).unwrap().len(), 1022);
        assert_eq!(lengths(&[]), Ok(vec![]));
    }

    #[test]
    fn written_through() {
        let (mut one, mut two) = ([0u8; 2], [0u8; 2]);
        let vectors = [vector(&mut one), vector(&mut two)];
        // SAFETY: the vectors name live memory that nothing else uses.
        let route = unsafe {
            let write = |mut slots: &mut [IoSliceMut<'_>]| {
                IoSliceMut::advance_slices(&mut slots, 1);
                slots[0].copy_from_slice(&[7]);
                slots[1].copy_from_slice(&[8, 9]);
                Route::ok(())
            };
            with(vectors.as_ptr(), 2, write, || Route::Kernel)
        };
        assert_eq!(route, Route::ok(()));
        assert_eq!((one, two), ([0, 7], [8, 9]));
        assert_eq!(vectors[0].iov_len, 2, "the program's array is not touched");
    }

    #[test]
    fn bad_ones() {
        let mut bytes = [0u8; 4];
        assert_eq!(lengths(&[vector(&mut bytes), iovec { iov_base: null_mut(), iov_len: 1 }]), Err(Errno::FAULT));
        assert_eq!(lengths(&[iovec { iov_base: bytes.as_mut_ptr().cast(), iov_len: usize::MAX }]), Err(Errno::INVAL));
        // SAFETY: NULL is allowed.
        let null = unsafe { with(null(), 1, |_: &mut [IoSlice<'_>]| Route::ok(()), || Route::Kernel) };
        assert_eq!(null, Route::err(Errno::FAULT));
    }

    #[test]
    fn the_sum_is_cut_where_the_kernel_cuts_it() {
        // Memory that is reserved but never touched.
        let size = MOST_BYTES;
        // SAFETY: a fresh mapping at a place of the kernel's choice.
        let start =
            unsafe { libc::mmap(null_mut(), size, libc::PROT_READ, libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE, -1, 0) };
        assert_ne!(start, libc::MAP_FAILED);
        let big = iovec { iov_base: start, iov_len: size - 10 };
        assert_eq!(lengths(&[big, big, big]), Ok(vec![size - 10, 10]));
        // SAFETY: the mapping made above; nothing refers to it any more.
        unsafe { libc::munmap(start, size) };
    }
}
