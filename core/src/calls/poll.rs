//! poll and ppoll over rsockets and any other descriptors.

use core::time::Duration;

use super::{Route, ours};
pub use crate::sys::ppoll::{PollFd, SignalMask};
use crate::{
    fd::{self, Held},
    poll::{self, Entry},
};

/// poll(2), ppoll(2): `timeout` `None` waits for ever; `mask` is put in place for the wait. Gives the number of entries with events.
/// `Kernel` when no entry is an rsocket.
pub fn poll(fds: &mut [PollFd], timeout: Option<Duration>, mask: Option<SignalMask>) -> Route<usize> {
    if !fds.iter().any(|entry| fd::is_ours(entry.fd)) {
        return Route::Kernel;
    }
    let held: Vec<Option<Held>> = fds.iter().map(|entry| ours(entry.fd)).collect();
    let mut entries: Vec<_> = fds
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
