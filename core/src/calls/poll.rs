//! poll and ppoll over rsockets and any other descriptors.

use core::time::Duration;
use std::os::fd::RawFd;

use smallvec::SmallVec;

use super::{Route, deferred, inherited};
pub use crate::sys::ppoll::{PollFd, SignalMask};
use crate::{
    error::Errno,
    fd::{self, Held, HeldSet},
    poll::{self, Entry},
    sys::descriptor,
};

/// The limit of descriptors is not asked for where there are no more entries than these: no program has a lower one.
const UNLIMITED: usize = 16;

/// poll(2), ppoll(2): `timeout` `None` waits for ever; `mask` is put in place for the wait. Gives the number of entries with events.
/// `Kernel` when no entry is an rsocket.
pub fn poll(fds: &mut [PollFd], timeout: Option<Duration>, mask: Option<SignalMask>) -> Route<usize> {
    if !fds.iter().any(|entry| fd::is_ours(entry.fd)) {
        return Route::Kernel;
    }
    // poll(2): EINVAL "The nfds value exceeds the RLIMIT_NOFILE value."
    if fds.len() > UNLIMITED && fds.len() > descriptor::limit() {
        return Route::err(Errno::INVAL);
    }
    if let [one] = fds
        && deferred::outcome_is_asked(one.fd, one.events)
    {
        return Route::Kernel;
    }
    match glance(fds) {
        Some(found) if found > 0 || timeout.is_some_and(|timeout| timeout.is_zero()) && mask.is_none() => return Route::ok(found),
        _ => {}
    }
    let polled: SmallVec<[Polled; poll::FEW]> = fds.iter().map(|entry| Polled::new(entry.fd)).collect();
    let mut entries: SmallVec<[Entry<'_>; poll::FEW]> =
        fds.iter().zip(&polled).map(|(entry, polled)| polled.entry(entry.fd, entry.events)).collect();
    let result = poll::wait(&mut entries, timeout, mask);
    for (to, from) in fds.iter_mut().zip(&entries) {
        to.revents = from.revents;
    }
    result.into()
}

/// What stands under a polled number, and stays for the time of the call.
pub(super) struct Polled {
    held: Option<Held>,
    set: Option<HeldSet>,
    lost: i16,
}

impl Polled {
    pub(super) fn new(fd: RawFd) -> Self {
        let held = deferred::used(fd);
        if held.is_none() {
            inherited::listens(fd);
        }
        let lost = if held.is_none() { inherited::events(fd) } else { 0 };
        Polled { held, set: fd::get_set(fd), lost }
    }

    pub(super) fn entry(&self, fd: RawFd, events: i16) -> Entry<'_> {
        let socket = self.held.as_ref().map(|held| &held.socket);
        let set = self.set.as_ref().map(|held| &*held.set);
        Entry { fd, events, revents: 0, socket, set, lost: self.lost }
    }
}

/// The first look, entry by entry, which is all that a busy program needs. `None`: the kernel has to be asked about one of them.
fn glance(fds: &mut [PollFd]) -> Option<usize> {
    let mut found = 0;
    for entry in fds {
        let seen = deferred::used(entry.fd)?.socket.look();
        if seen.kernel {
            return None;
        }
        entry.revents = seen.events & (entry.events | poll::ALWAYS);
        found += usize::from(entry.revents != 0);
    }
    Some(found)
}
