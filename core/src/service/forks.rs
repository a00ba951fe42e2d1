//! fork, as far as it concerns the service and its listeners.
//!
//! A child has copies of its parent's listeners, and knows of the kernel's half alone. Who will take connections from them nobody can tell. If
//! it is the children, a client that came over a fabric would wait for the parent, perhaps for ever. So a listener leaves the fabrics at fork,
//! unless its own process has been seen to serve what came there: then the child has some other errand (a snapshot, say). Even so its peers wait
//! until the process looks at it again. A child that takes connections after all, or uses one of its parent's, tells the parent, whose listeners
//! leave at once; peers that wait there try the kernel.
//!
//! The word goes through the eventfd that wakes the service, which children have a descriptor of: a count that no wake-up adds.

use core::sync::atomic::{AtomicBool, AtomicI32, AtomicU32, Ordering};
use std::sync::Arc;

use rustix::fd::{AsRawFd, BorrowedFd};

use super::Service;
use crate::{
    error::Result,
    log_debug, log_info,
    sys::{descriptor, own},
};

/// What a child adds to the count of its parent's eventfd.
const CHILD: u64 = 1 << 32;

/// The eventfd of the process's service, -1 for none.
static WAKE: AtomicI32 = AtomicI32::new(-1);
/// That of the parent's.
static PARENT: AtomicI32 = AtomicI32::new(-1);
/// The process has forked, and the service has not seen to it.
static FORKED: AtomicBool = AtomicBool::new(false);
/// How often it has forked, modulo 2^32.
static FORKS: AtomicU32 = AtomicU32::new(0);
/// A child serves, or has served, what is a listener's of this process; as told by itself.
static CHILD_SERVES: AtomicBool = AtomicBool::new(false);

impl Service {
    /// It is the process's: children may tell it something.
    pub fn announce(&self) {
        own::keep_in_children(self.wake.as_raw_fd());
        WAKE.store(self.wake.as_raw_fd(), Ordering::Relaxed);
    }

    /// After fork in the parent: listeners that will leave the fabrics take no more clients there. Neither waits for anybody nor allocates: other
    /// threads may wait for locks that the fork holds.
    pub fn pause(&self) {
        let child_serves = CHILD_SERVES.load(Ordering::Relaxed);
        if let Some(registry) = self.registry.try_lock() {
            registry.values().for_each(|handler| handler.pause(child_serves));
        }
    }

    /// Takes wake-ups off.
    pub(super) fn awoken(&self) {
        let mut count = [0; 8];
        let read = rustix::io::read(&self.wake, &mut count);
        if read.is_ok() && u64::from_ne_bytes(count) >= CHILD && !CHILD_SERVES.swap(true, Ordering::Relaxed) {
            log_info!("a forked child uses what it has of this process: listeners are left to TCP");
            FORKED.store(true, Ordering::Relaxed);
        }
    }

    /// Listeners leave the fabrics, if the process has forked since the last look.
    pub(super) fn see_to_forks(self: &Arc<Self>) {
        if FORKED.swap(false, Ordering::Acquire) {
            let child_serves = CHILD_SERVES.load(Ordering::Relaxed);
            self.everything().iter().for_each(|handler| handler.forked(child_serves));
        }
    }
}

fn signal(fd: i32, count: u64) -> Result<()> {
    let fd = descriptor::borrow(fd).ok_or(crate::error::Errno::BADF)?;
    rustix::io::write(fd, &count.to_ne_bytes()).map(drop)
}

/// After fork in the parent, see [`Service::pause`]: the service is to do the rest. Async-signal-safe.
pub fn note_fork() {
    FORKS.fetch_add(1, Ordering::Relaxed);
    FORKED.store(true, Ordering::Release);
    let _ = signal(WAKE.load(Ordering::Relaxed), 1);
}

/// How often the process has forked: what was made since then no child has.
pub fn forks() -> u32 {
    FORKS.load(Ordering::Relaxed)
}

/// In a forked child: the service is the parent's, which can be told something.
pub fn inherit() {
    FORKED.store(false, Ordering::Relaxed);
    CHILD_SERVES.store(false, Ordering::Relaxed);
    let wake = WAKE.swap(-1, Ordering::Relaxed);
    if wake >= 0 {
        own::close(PARENT.swap(wake, Ordering::Relaxed));
    }
}

/// This child serves what came, or would come, to its parent.
pub fn tell_parent() {
    let parent = PARENT.load(Ordering::Relaxed);
    if own::is_own(parent)
        && let Some(fd) = descriptor::borrow(parent)
        && is_eventfd(fd)
    {
        log_debug!("the parent is told that this child serves");
        let _ = signal(parent, CHILD);
    }
}

/// Whether the descriptor is still what it was: the program may have closed it by means that the library does not see.
fn is_eventfd(fd: BorrowedFd<'_>) -> bool {
    let name = format!("/proc/self/fd/{}", fd.as_raw_fd());
    rustix::fs::readlink(name, Vec::new()).is_ok_and(|kind| kind.as_bytes() == b"anon_inode:[eventfd]")
}
