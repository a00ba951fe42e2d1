//! riomap, riounmap, riowrite.

use core::ffi::{c_int, c_void};

use super::{attempt, bytes, is_bad, zero};
use crate::{
    calls::{Route, iomap},
    error::Errno,
    sys::program::Span,
};

/// riomap.
///
/// # Safety
/// With PROT_WRITE the program must expect that its memory at `buf`, `len` bytes, changes until it is unmapped.
pub unsafe fn riomap(socket: c_int, buf: *mut c_void, len: usize, prot: c_int, offset: i64) -> Route<i64> {
    if is_bad(buf, len) {
        return Route::err(Errno::FAULT);
    }
    // Whoever writes there gets the address as a number.
    let start = buf.expose_provenance();
    // SAFETY: the caller's promise.
    iomap::riomap(socket, unsafe { Span::new(start, len) }, prot, offset)
}

/// riounmap.
///
/// # Safety
/// None.
pub unsafe fn riounmap(socket: c_int, buf: *mut c_void, len: usize) -> Route<c_int> {
    // SAFETY: it is only compared.
    zero(iomap::riounmap(socket, unsafe { Span::new(buf.addr(), len) }))
}

/// riowrite.
///
/// # Safety
/// `buf` must be good for reads of `count` bytes.
pub unsafe fn riowrite(socket: c_int, buf: *const c_void, count: usize, offset: i64, flags: c_int) -> Route<usize> {
    // SAFETY: the caller's promise.
    let from = attempt!(unsafe { bytes(buf, count) });
    // SAFETY: nobody fills it.
    let memory = unsafe { Span::new(buf.addr(), count) };
    iomap::riowrite(socket, from, memory, offset, flags)
}
