//! select and pselect over rsockets and any other descriptors.

use core::time::Duration;
use std::os::fd::RawFd;

use libc::{POLLERR, POLLHUP, POLLIN, POLLNVAL, POLLOUT, POLLPRI};
use smallvec::SmallVec;

use super::{
    Route, deferred,
    poll::{Polled, SignalMask},
};
use crate::{
    error::Errno,
    fd,
    poll::{self, Entry},
    sys::clock,
};

/// The sets of select(2) as words of 64 descriptors each (the layout of `fd_set`), read and overwritten.
pub struct Sets<'a> {
    /// Wanted and found readable.
    pub read: Option<&'a mut [u64]>,
    /// Wanted and found writable.
    pub write: Option<&'a mut [u64]>,
    /// Wanted and found exceptional.
    pub except: Option<&'a mut [u64]>,
}

/// poll(2), "Correspondence between select() and poll() notifications".
const READ: i16 = POLLIN | POLLHUP | POLLERR | libc::POLLRDNORM | libc::POLLRDBAND;
const WRITE: i16 = POLLOUT | POLLERR | libc::POLLWRNORM | libc::POLLWRBAND;
const EXCEPT: i16 = POLLPRI;

fn is_set(set: &Option<&mut [u64]>, fd: usize) -> bool {
    set.as_deref().and_then(|words| words.get(fd / 64)).is_some_and(|word| word >> (fd % 64) & 1 != 0)
}

fn keep(set: &mut Option<&mut [u64]>, fd: usize, on: bool) -> usize {
    let Some(word) = set.as_deref_mut().and_then(|words| words.get_mut(fd / 64)) else { return 0 };
    let bit = 1_u64 << (fd % 64);
    let was = *word & bit != 0;
    if !on {
        *word &= !bit;
    }
    usize::from(was && on)
}

/// select(2), pselect(2) over descriptors below `count`. `timeout` `None` waits for ever. Gives the number of bits set and the time that was left.
/// `Kernel` when no descriptor in the sets is an rsocket.
pub fn select(count: usize, sets: &mut Sets<'_>, timeout: Option<Duration>, mask: Option<SignalMask>) -> Route<(usize, Duration)> {
    let wanted = |fd: usize| {
        let events = [(&sets.read, READ), (&sets.write, WRITE), (&sets.except, EXCEPT)];
        events.into_iter().filter(|(set, _)| is_set(set, fd)).fold(0, |events, (_, bits)| events | bits)
    };
    let members: SmallVec<[(RawFd, i16); poll::FEW]> =
        (0..count).map(|fd| (RawFd::try_from(fd).unwrap_or(-1), wanted(fd))).filter(|(_, events)| *events != 0).collect();
    if !members.iter().any(|(fd, _)| fd::is_ours(*fd)) {
        return Route::Kernel;
    }
    if let [(fd, events)] = members[..]
        && deferred::outcome_is_asked(fd, events)
    {
        return Route::Kernel;
    }
    let polled: SmallVec<[Polled; poll::FEW]> = members.iter().map(|(fd, _)| Polled::new(*fd)).collect();
    let mut entries: SmallVec<[Entry<'_>; poll::FEW]> =
        members.iter().zip(&polled).map(|((fd, events), polled)| polled.entry(*fd, *events)).collect();
    let start = clock::now();
    if let Err(errno) = poll::wait(&mut entries, timeout, mask) {
        return Route::err(errno);
    }
    // select(2): EBADF "An invalid file descriptor was given in one of the sets."
    if entries.iter().any(|entry| entry.revents & POLLNVAL != 0) {
        return Route::err(Errno::BADF);
    }
    let mut found = 0;
    for entry in &entries {
        let Ok(fd) = usize::try_from(entry.fd) else { continue };
        found += keep(&mut sets.read, fd, entry.revents & READ != 0);
        found += keep(&mut sets.write, fd, entry.revents & WRITE != 0);
        found += keep(&mut sets.except, fd, entry.revents & EXCEPT != 0);
    }
    let gone = Duration::from_nanos(clock::now().saturating_sub(start));
    Route::ok((found, timeout.unwrap_or_default().saturating_sub(gone)))
}
