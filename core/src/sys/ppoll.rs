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

#[repr(C)]
struct Timespec {
    seconds: i64,
    nanoseconds: i64,
}

/// Waits until an entry has events, at most `timeout` (`None`: for ever), with `mask` in place. Gives the number of entries with events.
pub fn ppoll(fds: &mut [PollFd], timeout: Option<Duration>, mask: Option<SignalMask>) -> Result<usize> {
    let mut timespec = Timespec { seconds: 0, nanoseconds: 0 };
    let timespec_pointer = match timeout {
        Some(timeout) => {
            timespec.seconds = i64::try_from(timeout.as_secs()).unwrap_or(i64::MAX);
            timespec.nanoseconds = i64::from(timeout.subsec_nanos());
            &raw mut timespec
        }
        None => core::ptr::null_mut(),
    };
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
