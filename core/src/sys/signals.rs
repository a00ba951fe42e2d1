//! What signals do to blocking calls.

use core::mem::MaybeUninit;

/// After a wait was interrupted: whether the call is to be restarted, as signal(7) says for handlers set with SA_RESTART.
///
/// poll is never restarted by the kernel, so the wait itself cannot tell which handler ran. The handlers that are in place can:
/// when all of them restart, the call goes on; when one does not, it returns EINTR.
pub fn restarts() -> bool {
    (1..=64).all(|signal| {
        let mut action = MaybeUninit::<libc::sigaction>::uninit();
        // SAFETY: sigaction with no new action only writes the old one into `action`, which is large enough.
        let failed = unsafe { libc::sigaction(signal, core::ptr::null(), action.as_mut_ptr()) } != 0;
        if failed {
            return true;
        }
        // SAFETY: the call has succeeded and filled it in.
        let action = unsafe { action.assume_init() };
        let caught = action.sa_sigaction != libc::SIG_DFL && action.sa_sigaction != libc::SIG_IGN;
        !caught || action.sa_flags & libc::SA_RESTART != 0
    })
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
