//! rclose, rfcntl.

use libc::{c_int, c_long};

use super::{boundary::descriptor, serve};
use crate::sys::kernel::call;

/// close(2).
///
/// # Safety
/// None; the signature is C's.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rclose(socket: c_int) -> c_int {
    serve!(descriptor::close(socket), call!(libc::SYS_close, socket))
}

/// fcntl(2): `int rfcntl(int, int, ...)`. Of a variable argument list the third word is taken, which is where the calling
/// conventions of x86_64 and aarch64 put it.
///
/// # Safety
/// `argument` must be what `cmd` asks for.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rfcntl(socket: c_int, cmd: c_int, argument: c_long) -> c_int {
    serve!(descriptor::fcntl(socket, cmd, argument as usize), call!(libc::SYS_fcntl, socket, cmd, argument))
}
