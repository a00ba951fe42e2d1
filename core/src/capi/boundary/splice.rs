//! The C side of `calls::splice`.

use core::ffi::{c_int, c_uint};

use libc::{off64_t, ssize_t};

use super::{map, vector::MOST_BYTES};
use crate::{
    calls::{
        Route, descriptor,
        splice::{self, Pipe},
    },
    error::Errno,
};

const FLAGS: c_uint = libc::SPLICE_F_MOVE | libc::SPLICE_F_NONBLOCK | libc::SPLICE_F_MORE | libc::SPLICE_F_GIFT;

/// splice(2) where one end is an rsocket. What is wrong with the arguments ("ESPIPE off_in or off_out is not NULL, but the corresponding
/// file descriptor refers to a pipe", "EINVAL Neither of the file descriptors refers to a pipe") is wrong for the kernel's socket as well.
pub fn splice(
    from: c_int,
    from_offset: *const off64_t,
    to: c_int,
    to_offset: *const off64_t,
    length: usize,
    flags: c_uint,
) -> Route<ssize_t> {
    if length == 0 || flags & !FLAGS != 0 || !from_offset.is_null() || !to_offset.is_null() {
        return Route::Kernel;
    }
    let nonblocking = flags & libc::SPLICE_F_NONBLOCK != 0;
    let length = length.min(MOST_BYTES);
    let moved = match (descriptor::is_ours(from), descriptor::is_ours(to)) {
        (true, false) => Pipe::open(to, true, nonblocking).map(|pipe| splice::to_pipe(from, pipe, length)),
        (false, true) => Pipe::open(from, false, nonblocking).map(|pipe| splice::from_pipe(pipe, to, length)),
        _ => None,
    };
    map(moved.unwrap_or(Route::Kernel), |moved| moved as ssize_t)
}

/// sendfile(2) from an rsocket: what the kernel lets do with a socket is to fill a pipe. "ESPIPE offset is not NULL but the input file is not
/// seekable".
pub fn sendfile(to: c_int, from: c_int, offset: *const off64_t, count: usize) -> Route<ssize_t> {
    match (offset.is_null(), descriptor::is_ours(to)) {
        (false, _) => Route::err(Errno::SPIPE),
        (true, true) => Route::err(Errno::INVAL),
        (true, false) => splice(from, offset, to, offset, count, 0),
    }
}
