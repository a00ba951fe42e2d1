//! ppoll(2) with a signal mask, as a raw system call: libc's would enter the preload library's own hook, rustix has none.

use core::time::Duration;
use std::os::fd::RawFd;

use super::kernel::call;
use crate::error::Result;

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

/// A time, as the kernel takes it.
#[repr(C)]
pub(super) struct Timespec {
    seconds: i64,
    nanoseconds: i64,
}

impl From<Duration> for Timespec {
    fn from(time: Duration) -> Self {
        Timespec { seconds: i64::try_from(time.as_secs()).unwrap_or(i64::MAX), nanoseconds: i64::from(time.subsec_nanos()) }
    }
}

/// Waits until an entry has events, at most `timeout` (`None`: for ever), with `mask` in place. Gives the number of entries with events.
pub fn ppoll(fds: &mut [PollFd], timeout: Option<Duration>, mask: Option<SignalMask>) -> Result<usize> {
    let mut timespec = timeout.map(Timespec::from);
    let timespec_pointer = timespec.as_mut().map_or(core::ptr::null_mut(), core::ptr::from_mut);
    let mask_pointer = mask.as_ref().map_or(core::ptr::null(), core::ptr::from_ref);
    let size = size_of::<SignalMask>();
    // SAFETY: the kernel reads and writes `fds` (a live exclusive slice of that many entries with its layout), reads and writes
    // the timespec and reads the 8-byte mask; each pointer is null or valid for the call.
    unsafe { call!(libc::SYS_ppoll, fds.as_mut_ptr(), fds.len(), timespec_pointer, mask_pointer, size) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn waits_and_reports() {
        let event = crate::sys::descriptor::event().unwrap();
        let fd = rustix::fd::AsRawFd::as_raw_fd(&event);
        let mut set = [PollFd { fd, events: libc::POLLIN, revents: 0 }, PollFd { fd: 1 << 20, events: 0, revents: 0 }];
        assert_eq!(ppoll(&mut set[..1], Some(Duration::from_millis(2)), None), Ok(0));
        crate::sys::descriptor::signal(&event);
        assert_eq!(ppoll(&mut set, None, Some(0)), Ok(2));
        assert_eq!((set[0].revents, set[1].revents), (libc::POLLIN, libc::POLLNVAL));
    }
}
