//! poll and ppoll over rsockets and any other descriptors.

use core::time::Duration;

use smallvec::SmallVec;

use super::{Route, ours};
pub use crate::sys::ppoll::{PollFd, SignalMask};
use crate::{
    error::Errno,
    fd::{self, Held},
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
    match glance(fds) {
        Some(found) if found > 0 || timeout.is_some_and(|timeout| timeout.is_zero()) && mask.is_none() => return Route::ok(found),
        _ => {}
    }
    let held: SmallVec<[Option<Held>; poll::FEW]> = fds.iter().map(|entry| ours(entry.fd)).collect();
    let mut entries: SmallVec<[Entry<'_>; poll::FEW]> = fds
        .iter()
        .zip(&held)
        .map(|(entry, held)| Entry { fd: entry.fd, events: entry.events, revents: 0, socket: held.as_ref().map(|held| &held.socket) })
        .collect();
    let result = poll::wait(&mut entries, timeout, mask);
    for (to, from) in fds.iter_mut().zip(&entries) {
        to.revents = from.revents;
    }
    result.into()
}

/// The first look, entry by entry, which is all that a busy program needs. `None`: the kernel has to be asked about one of them.
fn glance(fds: &mut [PollFd]) -> Option<usize> {
    let mut found = 0;
    for entry in fds {
        let seen = ours(entry.fd)?.socket.look();
        if seen.kernel {
            return None;
        }
        entry.revents = seen.events & (entry.events | poll::ALWAYS);
        found += usize::from(entry.revents != 0);
    }
    Some(found)
}
