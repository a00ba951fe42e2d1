//! What signals do to blocking calls.

use core::{
    mem::MaybeUninit,
    sync::atomic::{AtomicBool, Ordering},
    time::Duration,
};

use rustix::fd::{AsRawFd, FromRawFd, OwnedFd};
use smallvec::SmallVec;

use super::{
    descriptor::{self, OwnFd},
    kernel::call,
    ppoll::{PollFd, SignalMask, ppoll},
};
use crate::error::{Errno, Result};

/// The signals that handlers catch, by what these do to an interrupted call.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Handlers {
    restarting: SignalMask,
    ending: SignalMask,
}

fn handlers() -> Handlers {
    let mut found = Handlers::default();
    for signal in 1..=64 {
        let mut action = MaybeUninit::<libc::sigaction>::uninit();
        // SAFETY: sigaction with no new action only writes the old one into `action`, which is large enough.
        let failed = unsafe { libc::sigaction(signal, core::ptr::null(), action.as_mut_ptr()) } != 0;
        if failed {
            continue;
        }
        // SAFETY: the call has succeeded and filled it in.
        let action = unsafe { action.assume_init() };
        if action.sa_sigaction == libc::SIG_DFL || action.sa_sigaction == libc::SIG_IGN {
            continue;
        }
        let of = if action.sa_flags & libc::SA_RESTART != 0 { &mut found.restarting } else { &mut found.ending };
        *of |= 1 << (signal - 1);
    }
    found
}

/// After a wait was interrupted: whether the call is to be restarted, as signal(7) says for handlers set with SA_RESTART.
///
/// poll is never restarted by the kernel, so the wait itself cannot tell which handler ran. The handlers that are in place can:
/// when all of them restart, the call goes on; when one does not, it returns EINTR. Where both kinds are in place, [`sleep`] tells them
/// apart.
pub fn restarts() -> bool {
    handlers().ending == 0
}

/// Some handlers restart calls and others do not, as far as is known: a look at all of them is not for every sleep.
static MIXED: AtomicBool = AtomicBool::new(false);
static LOOKED: AtomicBool = AtomicBool::new(false);

fn look_at_handlers() -> Handlers {
    let found = handlers();
    MIXED.store(found.restarting != 0 && found.ending != 0, Ordering::Relaxed);
    found
}

/// Sleeps as [`ppoll`] does, in a call that signal(7) restarts: 0 also after a signal whose handler lets calls go on. EINTR: one whose
/// handler does not has run.
pub fn sleep(set: &mut [PollFd], timeout: Option<Duration>) -> Result<usize> {
    if !LOOKED.swap(true, Ordering::Relaxed) {
        look_at_handlers();
    }
    if MIXED.load(Ordering::Relaxed) {
        let handlers = look_at_handlers();
        if let Some(slept) = sleep_and_tell_apart(set, timeout, handlers) {
            return slept;
        }
    }
    match ppoll(set, timeout, None) {
        Err(Errno::INTR) if look_at_handlers().ending == 0 => Ok(0),
        slept => slept,
    }
}

/// The signals that restart are held back during the sleep, which ends when one of them waits, and are delivered after it: so it is one
/// that does not restart which interrupts. `None`: there is no descriptor for it.
fn sleep_and_tell_apart(set: &mut [PollFd], timeout: Option<Duration>, handlers: Handlers) -> Option<Result<usize>> {
    let blocked = blocked()?;
    let held = handlers.restarting & !blocked;
    let told = signal_descriptor(held)?;
    let mut all: SmallVec<[PollFd; 8]> = SmallVec::from_slice(set);
    all.push(PollFd { fd: told.as_raw_fd(), events: libc::POLLIN, revents: 0 });
    let slept = ppoll(&mut all, timeout, Some(blocked | held));
    for (to, from) in set.iter_mut().zip(&all) {
        to.revents = from.revents;
    }
    Some(slept)
}

/// The signals that the thread blocks.
fn blocked() -> Option<SignalMask> {
    let mut mask: SignalMask = 0;
    let nothing: *const SignalMask = core::ptr::null();
    // SAFETY: with no new mask the kernel only writes the 8 bytes of the old one.
    unsafe { call!(libc::SYS_rt_sigprocmask, libc::SIG_BLOCK, nothing, &raw mut mask, size_of::<SignalMask>()) }.ok()?;
    Some(mask)
}

/// A descriptor that is readable while one of these signals waits (signalfd(2)).
fn signal_descriptor(signals: SignalMask) -> Option<OwnFd> {
    let flags = libc::SFD_CLOEXEC | libc::SFD_NONBLOCK;
    // SAFETY: the kernel reads an 8-byte mask.
    let made = unsafe { call!(libc::SYS_signalfd4, -1, &raw const signals, size_of::<SignalMask>(), flags) };
    let number = i32::try_from(made.ok()?).ok()?;
    // SAFETY: the kernel has just given it out, to nobody else.
    let made = unsafe { OwnedFd::from_raw_fd(number) };
    Some(descriptor::lift(made))
}

/// Sends SIGPIPE to the calling thread, as send(2) does on a connection that is shut down for writing.
pub fn raise_sigpipe() {
    // SAFETY: raising a signal for the own thread has no memory effects of its own; a handler runs as it would for the kernel's signal.
    unsafe { libc::raise(libc::SIGPIPE) };
}

/// Runs `start` with all signals blocked for this thread, so that a thread made in it never runs the program's handlers.
pub fn with_all_blocked<T>(start: impl FnOnce() -> T) -> T {
    let mut all = MaybeUninit::<libc::sigset_t>::uninit();
    let mut before = MaybeUninit::<libc::sigset_t>::uninit();
    // SAFETY: writes a full set into `all`.
    unsafe { libc::sigfillset(all.as_mut_ptr()) };
    // SAFETY: both point to sets; `all` was filled in above, `before` is only written.
    let changed = unsafe { libc::pthread_sigmask(libc::SIG_SETMASK, all.as_ptr(), before.as_mut_ptr()) } == 0;
    let result = start();
    if changed {
        // SAFETY: `before` was filled in by the successful call above.
        unsafe { libc::pthread_sigmask(libc::SIG_SETMASK, before.as_ptr(), core::ptr::null_mut()) };
    }
    result
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tells_blocked_signals() {
        let usual = blocked().unwrap();
        with_all_blocked(|| assert!(blocked().unwrap().count_ones() > usual.count_ones()));
        assert_eq!(blocked().unwrap(), usual);
    }

    #[test]
    fn sleeps_with_signals_apart() {
        let usual = blocked().unwrap();
        let handlers = Handlers { restarting: 1 << (libc::SIGWINCH - 1), ending: 0 };
        let slept = sleep_and_tell_apart(&mut [], Some(Duration::from_millis(1)), handlers);
        assert_eq!((slept, blocked().unwrap()), (Some(Ok(0)), usual));
    }
}
