//! Threads that the program does not know of: it ends with its own last one.

use core::{
    ffi::c_void,
    ptr::null_mut,
    sync::atomic::{AtomicPtr, AtomicU32, Ordering},
};

use super::{kernel, own};

/// pthread_exit(3): "After the last thread in a process terminates, the process terminates as by calling exit(3)". The C library's number
/// of these (exported for debuggers), where it has that.
static COUNT: AtomicPtr<c_void> = AtomicPtr::new(null_mut());

/// Looks the number up, once: not later than the first thread is started.
pub fn prepare() {
    // SAFETY: the name ends in a 0; the result is only kept.
    let found = unsafe { libc::dlsym(libc::RTLD_DEFAULT, c"__nptl_nthreads".as_ptr()) };
    COUNT.store(found, Ordering::Release);
}

/// A thread that this one has just started, and which never ends, is none of the program's. (Here, not there: until then the calling thread
/// keeps the number above 0.)
pub fn leave_one_out() {
    let count = COUNT.load(Ordering::Acquire).cast::<AtomicU32>();
    // SAFETY: NULL, or the C library's `unsigned int __nptl_nthreads`, which lives as long as the process and is changed by atomic steps.
    if let Some(count) = unsafe { count.as_ref() }
        && count.load(Ordering::Relaxed) > 1
    {
        count.fetch_sub(1, Ordering::Relaxed);
    }
}

/// Whether the calling thread is the process's first one, and all others are the library's, of which there is one.
pub fn is_alone() -> bool {
    let own = own::threads();
    own > 0 && rustix::thread::gettid() == rustix::process::getpid() && kernel::threads().is_some_and(|threads| threads <= 1 + own)
}
