//! epoll(7) as raw system calls: libc's functions would enter the preload library's own hooks; rustix has no signal mask here, and wants
//! owned descriptors where the program's numbers are meant.

use core::{
    sync::atomic::{AtomicBool, Ordering},
    time::Duration,
};
use std::os::fd::RawFd;

use super::{
    kernel::call,
    ppoll::{SignalMask, Timespec},
};
use crate::error::{Errno, Result};

/// An event, as the program passes and gets it.
pub type Event = libc::epoll_event;

/// epoll_ctl(2).
pub fn control(set: RawFd, operation: i32, fd: RawFd, event: Option<Event>) -> Result<()> {
    let pointer = event.as_ref().map_or(core::ptr::null(), core::ptr::from_ref);
    // SAFETY: the kernel reads an event there, unless it is NULL.
    unsafe { call!(libc::SYS_epoll_ctl, set, operation, fd, pointer) }.map(drop)
}

/// epoll_pwait2(2); where the kernel is older than that (5.11), epoll_pwait(2) with the next longer number of milliseconds. `None` waits
/// for ever.
pub fn wait(set: RawFd, events: &mut [Event], timeout: Option<Duration>, mask: Option<SignalMask>) -> Result<usize> {
    static OLD: AtomicBool = AtomicBool::new(false);
    if !OLD.load(Ordering::Relaxed) {
        match wait_precisely(set, events, timeout, mask) {
            Err(Errno::NOSYS) => OLD.store(true, Ordering::Relaxed),
            other => return other,
        }
    }
    wait_milliseconds(set, events, timeout, mask)
}

fn most(events: &[Event]) -> i32 {
    i32::try_from(events.len()).unwrap_or(i32::MAX)
}

fn wait_precisely(set: RawFd, events: &mut [Event], timeout: Option<Duration>, mask: Option<SignalMask>) -> Result<usize> {
    let timespec = timeout.map(Timespec::from);
    let timespec = timespec.as_ref().map_or(core::ptr::null(), core::ptr::from_ref);
    let mask = mask.as_ref().map_or(core::ptr::null(), core::ptr::from_ref);
    let (most, size) = (most(events), size_of::<SignalMask>());
    // SAFETY: the kernel writes at most `most` events there, and reads the timespec and the 8-byte mask; each is NULL or good for the call.
    unsafe { call!(libc::SYS_epoll_pwait2, set, events.as_mut_ptr(), most, timespec, mask, size) }
}

fn wait_milliseconds(set: RawFd, events: &mut [Event], timeout: Option<Duration>, mask: Option<SignalMask>) -> Result<usize> {
    let timeout = timeout.map_or(-1, |timeout| i32::try_from(timeout.as_nanos().div_ceil(1_000_000)).unwrap_or(i32::MAX));
    let mask = mask.as_ref().map_or(core::ptr::null(), core::ptr::from_ref);
    let (most, size) = (most(events), size_of::<SignalMask>());
    // SAFETY: as above.
    unsafe { call!(libc::SYS_epoll_pwait, set, events.as_mut_ptr(), most, timeout, mask, size) }
}

#[cfg(test)]
mod tests {
    use rustix::{
        event::epoll::{CreateFlags, create},
        fd::AsRawFd,
    };

    use super::*;
    use crate::sys::descriptor;

    #[test]
    fn waits_in_either_way() {
        let (set, one) = (create(CreateFlags::CLOEXEC).unwrap(), descriptor::event().unwrap());
        let event = Event { events: libc::EPOLLIN as u32, u64: 7 };
        control(set.as_raw_fd(), libc::EPOLL_CTL_ADD, one.as_raw_fd(), Some(event)).unwrap();
        assert_eq!(control(set.as_raw_fd(), libc::EPOLL_CTL_ADD, one.as_raw_fd(), Some(event)), Err(Errno::EXIST));
        let mut events = [Event { events: 0, u64: 0 }; 2];
        for wait in [wait_precisely, wait_milliseconds] {
            assert_eq!(wait(set.as_raw_fd(), &mut events, Some(Duration::from_micros(100)), None), Ok(0));
            descriptor::signal(&one);
            assert_eq!(wait(set.as_raw_fd(), &mut events, None, Some(0)), Ok(1));
            assert_eq!({ events[0].u64 }, 7);
            descriptor::drain(&one);
        }
        control(set.as_raw_fd(), libc::EPOLL_CTL_DEL, one.as_raw_fd(), None).unwrap();
        assert_eq!(wait(set.as_raw_fd(), &mut [], None, None), Err(Errno::INVAL));
    }
}
