//! Which process owns the sockets in this memory.
//!
//! A vfork child runs in its parent's memory but has descriptors of its own: what it closes there is not closed in the
//! parent. It (and a child made by a raw `clone`) is told from the owner by its process number.
//!
//! A forked child owns its copy of the memory, in which locks and connections are its parent's: what is left of the parent's is
//! told from its own by the [`generation`].

use core::sync::atomic::{AtomicI32, AtomicU32, Ordering};

/// 0: no sockets were ever made here.
static OWNER: AtomicI32 = AtomicI32::new(0);
static GENERATION: AtomicU32 = AtomicU32::new(0);

/// Makes the calling process the owner: at start.
pub fn claim() {
    OWNER.store(current(), Ordering::Relaxed);
}

/// The calling process is a child that has a copy of the memory.
pub fn forked() {
    GENERATION.fetch_add(1, Ordering::Relaxed);
    claim();
}

/// How many forks there are between this process and the first one.
#[inline(always)]
pub fn generation() -> u32 {
    GENERATION.load(Ordering::Relaxed)
}

/// Remembers the process: a signal handler may fork within a call, and the child may come back to the call, which then knows nothing of it.
#[derive(Clone, Copy)]
pub struct Process(u32);

impl Process {
    /// This one.
    #[inline(always)]
    pub fn this() -> Self {
        Process(generation())
    }

    /// Whether it is another one by now, where nothing of the library's may be touched that was there before.
    #[inline(always)]
    pub fn has_forked(self) -> bool {
        self.0 != generation()
    }
}

/// Whether the calling process is the owner. One system call.
pub fn is_current() -> bool {
    let owner = OWNER.load(Ordering::Relaxed);
    owner == 0 || owner == current()
}

fn current() -> i32 {
    rustix::process::getpid().as_raw_nonzero().get()
}

/// The right to replace locks as they are: see [`Forked::new`].
pub struct Forked(());

impl Forked {
    /// # Safety
    /// The process must have no thread but the calling one, and that must hold no leaf lock.
    pub unsafe fn new() -> Self {
        Forked(())
    }
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
