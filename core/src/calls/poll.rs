//! poll and ppoll over rsockets and any other descriptors.

use core::time::Duration;

use super::Route;

pub use crate::sys::ppoll::{PollFd, SignalMask};

/// poll(2), ppoll(2): `timeout` `None` waits for ever; `mask` is put in place for the wait. Gives the number of entries with events.
/// `Kernel` when no entry is an rsocket.
pub fn poll(_fds: &mut [PollFd], _timeout: Option<Duration>, _mask: Option<SignalMask>) -> Route<usize> {
    Route::Kernel
}
