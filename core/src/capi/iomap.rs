//! riomap, riounmap, riowrite: memory that the peer writes to directly.

use libc::{c_int, c_void, off_t, size_t};

use super::{boundary::iomap, serve};
use crate::{error::Errno, sys::kernel::call};

/// What the kernel has no such call for: EBADF, or EOPNOTSUPP.
macro_rules! nothing_for {
    ($socket:expr) => {
        call!(libc::SYS_fcntl, $socket, libc::F_GETFD).and(Err(Errno::OPNOTSUPP))
    };
}

/// Maps memory for riowrite at the other end (PROT_WRITE), or from there (PROT_NONE). Gives the offset (of -1: the address), or -1.
///
/// # Safety
/// With PROT_WRITE, buf must be good for writes of len bytes until it is unmapped, or the socket closed.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn riomap(socket: c_int, buf: *mut c_void, len: size_t, prot: c_int, flags: c_int, offset: off_t) -> off_t {
    let _ = flags;
    serve!(iomap::riomap(socket, buf, len, prot, offset), nothing_for!(socket))
}

/// Ends a mapping.
///
/// # Safety
/// None: buf is only compared.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn riounmap(socket: c_int, buf: *mut c_void, len: size_t) -> c_int {
    serve!(iomap::riounmap(socket, buf, len), nothing_for!(socket))
}

/// Writes to memory that the other end has mapped. Gives the number of bytes, 0 where nothing is mapped, or (size_t) -1.
///
/// # Safety
/// buf must be good for reads of count bytes.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn riowrite(socket: c_int, buf: *const c_void, count: size_t, offset: off_t, flags: c_int) -> size_t {
    serve!(iomap::riowrite(socket, buf, count, offset, flags), nothing_for!(socket))
}
