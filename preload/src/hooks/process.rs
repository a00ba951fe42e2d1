//! Children that the C library makes past pthread_atfork. fork itself, and daemon and forkpty, have no hook: their handlers do it.

use libc::c_int;
use rsocket::capi::lifecycle;

use super::real;

/// _Fork(3): "This means that handlers registered with pthread_atfork(3) are not called by _Fork()".
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn _Fork() -> c_int {
    lifecycle::forked(i64::from(real!(_Fork() -> c_int))) as c_int
}
