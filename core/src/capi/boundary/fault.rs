//! Memory that the program names and does not have. The kernel finds out when it copies: what it would say before goes first.

use core::ffi::{c_int, c_void};
use std::io::{IoSlice, IoSliceMut};

use crate::{
    calls::{
        Route,
        datagram::{self, is_datagram},
        io,
    },
    error::Errno,
    sys::memory,
};

/// Bytes that are sent before it is looked how much more there is.
const LOOK: usize = 1 << 20;

/// The kernel copies in pieces of this size, and sends none that is not all there.
const WHOLE: usize = 32 << 10;

/// A call that reads into such memory: it fails when there is something to read, and that stays there.
#[cold]
pub(super) fn receiving(fd: c_int, flags: c_int) -> Route<usize> {
    if is_datagram(fd) {
        return nowhere(fd, flags);
    }
    let mut byte = [0];
    match io::recv(fd, &mut [IoSliceMut::new(&mut byte)], flags | libc::MSG_PEEK) {
        Route::Done(Ok(count)) if count > 0 => Route::err(Errno::FAULT),
        other => other,
    }
}

/// The same, of a datagram, which is taken all the same, as the kernel does.
#[cold]
pub(super) fn nowhere(fd: c_int, flags: c_int) -> Route<usize> {
    match datagram::receive(fd, &mut [], &mut [], flags | libc::MSG_TRUNC) {
        Route::Done(Ok(received)) if received.len > 0 => Route::err(Errno::FAULT),
        Route::Done(outcome) => Route::Done(outcome.map(|received| received.len)),
        Route::Kernel => Route::Kernel,
    }
}

/// A call that sends from such memory: it fails unless the socket cannot send at all.
#[cold]
pub(super) fn sending(fd: c_int, flags: c_int) -> Route<usize> {
    // A datagram of nothing would be one.
    if is_datagram(fd) {
        return Route::Kernel;
    }
    match io::send(fd, &[IoSlice::new(&[])], flags) {
        Route::Done(Ok(_)) => Route::err(Errno::FAULT),
        other => other,
    }
}

/// send(2) of so much as can be read of `length` bytes.
///
/// # Safety
/// `start` must be good for reads of `length` bytes, or of what there is before memory that cannot be read.
#[cold]
pub(super) unsafe fn send_what_there_is(fd: c_int, start: *const c_void, length: usize, flags: c_int) -> Route<usize> {
    // EMSGSIZE
    if is_datagram(fd) {
        return Route::Kernel;
    }
    let mut done = 0;
    while done < length {
        let place = start.wrapping_byte_add(done);
        let asked = LOOK.min(length - done);
        let there = memory::readable(place, asked);
        let whole = if there == asked { there } else { there - there % WHOLE };
        if whole == 0 {
            return if done > 0 { Route::ok(done) } else { sending(fd, flags) };
        }
        // SAFETY: so many bytes can be read there (just asked), and are the program's to keep (the caller's promise).
        let from = unsafe { core::slice::from_raw_parts(place.cast::<u8>(), whole) };
        match io::send(fd, &[IoSlice::new(from)], flags) {
            Route::Done(Ok(sent)) => {
                done += sent;
                if sent < asked {
                    break;
                }
            }
            _ if done > 0 => break,
            other => return other,
        }
    }
    Route::ok(done)
}
