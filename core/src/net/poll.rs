//! Waiting for many.

use std::{
    io,
    os::fd::{AsFd, AsRawFd, BorrowedFd},
    time::Duration,
};

use bitflags::bitflags;
use smallvec::SmallVec;

use crate::capi::safe;

bitflags! {
    /// What is waited for, and what has come (poll(2)).
    #[derive(Debug, Clone, Copy, PartialEq, Eq)]
    pub struct Events: i16 {
        /// A read does not wait: data, the end of the stream, a connection to accept (POLLIN).
        const READABLE = libc::POLLIN;
        /// A write does not wait; a connect has ended (POLLOUT).
        const WRITABLE = libc::POLLOUT;
        /// The peer writes no more (POLLRDHUP).
        const READ_CLOSED = libc::POLLRDHUP;
        /// An error is pending. Always looked for (POLLERR).
        const ERROR = libc::POLLERR;
        /// The connection is over. Always looked for (POLLHUP).
        const HANG_UP = libc::POLLHUP;
        /// Not an open descriptor. Always looked for (POLLNVAL).
        const INVALID = libc::POLLNVAL;
        /// What else poll(2) knows.
        const _ = !0;
    }
}

/// So many are waited for without memory of the heap.
const FEW: usize = 16;

/// A descriptor that is waited for, an rsocket or any other.
#[derive(Debug)]
pub struct PollFd<'fd> {
    fd: BorrowedFd<'fd>,
    wanted: Events,
    found: Events,
}

impl<'fd> PollFd<'fd> {
    /// Waits for these events.
    pub fn new(fd: &'fd (impl AsFd + ?Sized), wanted: Events) -> Self {
        PollFd { fd: fd.as_fd(), wanted, found: Events::empty() }
    }

    /// What has come, at the last [`poll`].
    pub fn found(&self) -> Events {
        self.found
    }
}

/// Waits until one of them has an event or the time is over (`None`: for ever), and gives the number of those that have
/// ([`PollFd::found`]). A signal ends the wait with [`Interrupted`](io::ErrorKind::Interrupted), as poll(2).
pub fn poll(fds: &mut [PollFd<'_>], time: Option<Duration>) -> io::Result<usize> {
    let entry = |fd: &PollFd<'_>| libc::pollfd { fd: fd.fd.as_raw_fd(), events: fd.wanted.bits(), revents: 0 };
    let mut entries: SmallVec<[libc::pollfd; FEW]> = fds.iter().map(entry).collect();
    let count = safe::poll(&mut entries, time)?;
    for (fd, entry) in fds.iter_mut().zip(&entries) {
        fd.found = Events::from_bits_retain(entry.revents);
    }
    Ok(count)
}
