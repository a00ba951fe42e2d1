//! Sleeping on words of memory (futex(7)): on two at once, one of which another process may wake.
#![forbid(unsafe_code)]

use core::{
    ffi::c_void,
    ptr,
    sync::atomic::{AtomicBool, AtomicU32, Ordering},
};

use rustix::{
    thread::{
        ClockId,
        futex::{self, Flags, Wait, WaitFlags, WaitPtr, WaitvFlags},
    },
    time::Timespec,
};

use super::clock::Nanos;
use crate::error::{Errno, Result};

/// A word, and what it must hold for a sleep to begin.
#[derive(Clone, Copy)]
pub struct Word<'a> {
    /// The word.
    pub word: &'a AtomicU32,
    /// Its value.
    pub holds: u32,
}

/// The kernel has no futex_waitv (it is of Linux 5.16), or a filter forbids it.
static MISSING: AtomicBool = AtomicBool::new(false);

/// Whether [`wait`] can be used, as far as is known.
pub fn is_available() -> bool {
    !MISSING.load(Ordering::Relaxed)
}

/// Sleeps until one of the words is woken, at once if one holds something else, at most until `deadline` on the clock of
/// [`clock::now`](super::clock::now). `shared` is of memory that other processes have too, `own` is not: a process that moves its own
/// sleepers on a shared word to another one (FUTEX_CMP_REQUEUE) cannot take this one away from who wakes it by `own`.
///
/// EINTR after a signal whose handler does not restart system calls; ETIMEDOUT; ENOSYS where there is no such call.
pub fn wait(shared: Word<'_>, own: Word<'_>, deadline: Option<Nanos>) -> Result<()> {
    let mut waits = [Wait::new(), Wait::new()];
    let flags = [WaitFlags::SIZE_U32, WaitFlags::SIZE_U32 | WaitFlags::PRIVATE];
    for ((wait, flags), of) in waits.iter_mut().zip(flags).zip([shared, own]) {
        wait.val = u64::from(of.holds);
        wait.uaddr = WaitPtr::new(ptr::from_ref(of.word).cast_mut().cast::<c_void>());
        wait.flags = flags;
    }
    let until = deadline.map(|at| Timespec { tv_sec: (at / 1_000_000_000) as i64, tv_nsec: (at % 1_000_000_000) as i64 });
    match futex::waitv(&waits, WaitvFlags::empty(), until.as_ref(), ClockId::Monotonic) {
        Ok(_) | Err(Errno::AGAIN) => Ok(()),
        Err(errno @ (Errno::NOSYS | Errno::PERM | Errno::ACCESS)) => {
            MISSING.store(true, Ordering::Relaxed);
            Err(errno)
        }
        Err(errno) => Err(errno),
    }
}

/// Sleeps on a word of this process's own while it holds this, until it is woken, or a signal comes.
pub fn wait_own(word: &AtomicU32, holds: u32) {
    let _ = futex::wait(word, Flags::PRIVATE, holds, None);
}

/// Wakes one that sleeps on a word of this process's own.
pub fn wake_one(word: &AtomicU32) {
    let _ = futex::wake(word, Flags::PRIVATE, 1);
}

/// Wakes all that sleep on a word of this process's own.
pub fn wake_own(word: &AtomicU32) {
    let _ = futex::wake(word, Flags::PRIVATE, u32::MAX >> 1);
}

/// Wakes all that sleep on a word that processes share.
pub fn wake_shared(word: &AtomicU32) {
    let _ = futex::wake(word, Flags::empty(), u32::MAX >> 1);
}

#[cfg(test)]
mod tests {
    use std::{thread, time::Duration};

    use super::*;
    use crate::sys::clock;

    #[test]
    fn either_word_wakes() {
        for wake in [wake_shared as fn(&AtomicU32), wake_own] {
            let words = [AtomicU32::new(1), AtomicU32::new(2)];
            let woken = AtomicBool::new(false);
            thread::scope(|scope| {
                scope.spawn(|| {
                    wait(Word { word: &words[0], holds: 1 }, Word { word: &words[1], holds: 2 }, None).unwrap();
                    assert!(woken.load(Ordering::SeqCst));
                });
                thread::sleep(Duration::from_millis(10));
                woken.store(true, Ordering::SeqCst);
                for word in &words {
                    word.store(9, Ordering::SeqCst);
                    wake(word);
                }
            });
        }
    }

    #[test]
    fn no_sleep_where_a_word_holds_something_else() {
        let words = [AtomicU32::new(1), AtomicU32::new(2)];
        let wait = |one, other| {
            let soon = Some(clock::now() + 5_000_000);
            wait(Word { word: &words[0], holds: one }, Word { word: &words[1], holds: other }, soon)
        };
        assert_eq!((wait(1, 3), wait(0, 2), wait(1, 2)), (Ok(()), Ok(()), Err(Errno::TIMEDOUT)));
    }
}
