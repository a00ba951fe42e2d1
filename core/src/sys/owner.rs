//! Which process owns the sockets in this memory.
//!
//! A vfork child runs in its parent's memory but has descriptors of its own: what it closes there is not closed in the
//! parent. It (and a child made by a raw `clone`) is told from the owner by its process number.

use core::sync::atomic::{AtomicI32, Ordering};

/// 0: no sockets were ever made here.
static OWNER: AtomicI32 = AtomicI32::new(0);

/// Makes the calling process the owner: at start, and in a child after fork.
pub fn claim() {
    OWNER.store(current(), Ordering::Relaxed);
}

/// Whether the calling process is the owner. One system call.
pub fn is_current() -> bool {
    let owner = OWNER.load(Ordering::Relaxed);
    owner == 0 || owner == current()
}

fn current() -> i32 {
    rustix::process::getpid().as_raw_nonzero().get()
}

#[cfg(test)]
mod tests {
    #[test]
    fn the_process_that_claimed_is_the_owner() {
        assert!(super::is_current());
        super::claim();
        assert!(super::is_current());
    }
}
