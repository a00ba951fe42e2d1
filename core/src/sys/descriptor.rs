//! The library's own descriptors: close-on-exec, and above the program's numbers (DESIGN: D1).

use core::{
    sync::atomic::{AtomicI32, Ordering},
    time::Duration,
};
use std::os::fd::RawFd;

use rustix::{
    event::{EventfdFlags, eventfd},
    fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd},
    io::{Errno, fcntl_dupfd_cloexec},
    process::{Resource, getrlimit},
};

pub use super::own::OwnFd;
use super::{
    own,
    ppoll::{PollFd, ppoll},
};
use crate::error::Result;

/// Own descriptors stand at and above this number where the limit allows.
/// (select's FD_SETSIZE: up to here programs close and reuse numbers by hand.)
const BASE: RawFd = 1024;

/// Moves a descriptor out of the program's way, which closes it no more. Where the limit on descriptors leaves no room up there it stays
/// where it is.
pub fn lift(fd: OwnedFd) -> OwnFd {
    lifted(fd).into()
}

fn lifted(fd: OwnedFd) -> OwnedFd {
    /// The base when it was last looked up, 0 before: a system call less for each descriptor.
    static KNOWN: AtomicI32 = AtomicI32::new(0);
    let mut known = KNOWN.load(Ordering::Relaxed);
    if known == 0 {
        known = base();
        KNOWN.store(known, Ordering::Relaxed);
    }
    if fd.as_raw_fd() >= known {
        return fd;
    }
    match fcntl_dupfd_cloexec(&fd, known) {
        Ok(lifted) => lifted,
        // fcntl(2): "F_DUPFD ... arg is greater than the maximum allowable value": the limit has been lowered.
        Err(Errno::INVAL) => {
            KNOWN.store(0, Ordering::Relaxed);
            fcntl_dupfd_cloexec(&fd, base()).unwrap_or(fd)
        }
        Err(_) => fd,
    }
}

/// How many descriptors the process may have (RLIMIT_NOFILE).
pub fn limit() -> usize {
    getrlimit(Resource::Nofile).current.map_or(usize::MAX, |limit| usize::try_from(limit).unwrap_or(usize::MAX))
}

/// Where own descriptors begin: the upper half of what is allowed, so that programs which count from below are not disturbed.
pub fn base() -> RawFd {
    let limit = getrlimit(Resource::Nofile).current.unwrap_or(u64::MAX);
    RawFd::try_from(limit / 2).unwrap_or(RawFd::MAX).clamp(3, BASE)
}

/// Where the limit is higher than this nobody counts what is left of it.
const COUNTED: u64 = 4096;
/// Numbers that are always left to the program.
const LEFT: usize = 8;

/// Whether the library, which has taken `own` numbers, may take more: twice as many must be left to the program, which needs one for each
/// connection too, and may want more of them than can go over RDMA. One system call where the limit is low, as it is by default (1024).
pub fn may_take_more(own: usize) -> bool {
    let limit = getrlimit(Resource::Nofile).current.unwrap_or(u64::MAX);
    if limit > COUNTED {
        return true;
    }
    let mut all: Vec<PollFd> = (0..limit as RawFd).map(|fd| PollFd { fd, events: 0, revents: 0 }).collect();
    // Numbers that are not open: POLLNVAL.
    if ppoll(&mut all, Some(Duration::ZERO), None).is_err() {
        return true;
    }
    let free = all.iter().filter(|one| one.revents & libc::POLLNVAL != 0).count();
    free > 2 * own + LEFT
}

/// Moves a descriptor out of the program's way, as [`lift`], for the library that has taken `own` numbers: EMFILE where the program would
/// be left too few, see [`may_take_more`]. Those are counted only where the new descriptor, whose number was the lowest free one, says
/// that few may be left.
pub fn lift_sparingly(fd: OwnedFd, own: usize) -> Result<OwnFd> {
    let limit = getrlimit(Resource::Nofile).current.unwrap_or(u64::MAX);
    let below = u64::try_from(fd.as_raw_fd()).unwrap_or(0);
    let own_too = u64::try_from(3 * own + LEFT).unwrap_or(u64::MAX);
    if limit <= COUNTED && below.saturating_add(own_too) >= limit && !may_take_more(own) {
        return Err(Errno::MFILE);
    }
    Ok(lift(fd))
}

/// A duplicate of a program's descriptor for the library's own use.
pub fn duplicate(fd: RawFd) -> Result<OwnFd> {
    let copy = fcntl_dupfd_cloexec(borrow(fd).ok_or(Errno::BADF)?, base());
    copy.or_else(|_| fcntl_dupfd_cloexec(borrow(fd).ok_or(Errno::BADF)?, 3)).map(OwnFd::from)
}

/// Borrows a number for one system call. `None` for a negative one.
///
/// The number is the program's: it may be closed at any time, as with any system call on a number.
pub fn borrow(fd: RawFd) -> Option<BorrowedFd<'static>> {
    // SAFETY: the value is not -1 (checked). That it stays open is not needed: every use is one raw system call, which says EBADF otherwise.
    (fd >= 0).then(|| unsafe { BorrowedFd::borrow_raw(fd) })
}

/// A nonblocking event descriptor.
pub fn event() -> Result<OwnedFd> {
    let event = eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK).map(lifted)?;
    own::mark_for_good(event.as_raw_fd());
    Ok(event)
}

/// The same, for those who close it soon.
pub fn own_event() -> Result<OwnFd> {
    eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK).map(lift)
}

/// Makes an event descriptor readable.
pub fn signal(event: impl AsFd) {
    let _ = rustix::io::write(event, &1_u64.to_ne_bytes());
}

/// Makes an event descriptor unreadable again.
pub fn drain(event: impl AsFd) {
    let _ = rustix::io::read(event, &mut [0_u8; 8]);
}
