//! poll and ppoll over rsockets and any other descriptors.

use core::time::Duration;
use std::os::fd::RawFd;

use super::Route;

/// One `struct pollfd`, layout included.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PollFd {
    /// Descriptor; negative: ignored.
    pub fd: RawFd,
    /// Requested events (POLLIN …).
    pub events: i16,
    /// Returned events.
    pub revents: i16,
}

/// A signal mask, as the kernel takes it (64 signals).
pub type SignalMask = u64;

/// poll(2), ppoll(2): `timeout` `None` waits for ever; `mask` is put in place for the wait. Gives the number of entries with events.
/// `Kernel` when no entry is an rsocket.
pub fn poll(_fds: &mut [PollFd], _timeout: Option<Duration>, _mask: Option<SignalMask>) -> Route<usize> {
    Route::Kernel
}
