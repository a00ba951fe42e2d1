//! select and pselect over rsockets and any other descriptors.

use core::time::Duration;

use super::{Route, poll::SignalMask};

/// The sets of select(2) as words of 64 descriptors each (the layout of `fd_set`), read and overwritten.
pub struct Sets<'a> {
    /// Wanted and found readable.
    pub read: Option<&'a mut [u64]>,
    /// Wanted and found writable.
    pub write: Option<&'a mut [u64]>,
    /// Wanted and found exceptional.
    pub except: Option<&'a mut [u64]>,
}

/// select(2), pselect(2) over descriptors below `count`. `timeout` `None` waits for ever. Gives the number of bits set and the time that was left.
/// `Kernel` when no descriptor in the sets is an rsocket.
pub fn select(_count: usize, _sets: &mut Sets<'_>, _timeout: Option<Duration>, _mask: Option<SignalMask>) -> Route<(usize, Duration)> {
    Route::Kernel
}
