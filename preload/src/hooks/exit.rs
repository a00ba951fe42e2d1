//! _exit, _Exit: what has been sent goes first. exit, quick_exit and main's return: `rsocket::capi::lifecycle`.

use libc::c_int;
use rsocket::{calls::exit, sys::kernel};

use super::real;

/// _exit(2).
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn _exit(status: c_int) -> ! {
    exit::end();
    real!(_exit(status: c_int) -> c_int);
    kernel::exit(status)
}

/// _Exit(3).
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn _Exit(status: c_int) -> ! {
    exit::end();
    real!(_Exit(status: c_int) -> c_int);
    kernel::exit(status)
}

/// The system call.
pub(crate) fn leave(status: c_int) -> ! {
    exit::end();
    kernel::exit(status)
}
