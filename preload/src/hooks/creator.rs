//! Calls that give out a new number: if an rsocket stood under it, it is gone.

use libc::{c_char, c_int, c_uint, c_void, mode_t, pid_t, sigset_t};

use super::{real, rights};
use crate::guard::fresh;

macro_rules! creators {
    ($(fn $name:ident($($argument:ident: $kind:ty),*);)*) => {$(
        #[unsafe(no_mangle)]
        pub(crate) unsafe extern "C" fn $name($($argument: $kind),*) -> c_int {
            fresh(real!($name($($argument: $kind),*) -> c_int))
        }
    )*};
}

creators! {
    // The mode of a variable argument list stands where a fixed argument does on x86_64 and aarch64.
    fn open(path: *const c_char, flags: c_int, mode: mode_t);
    fn open64(path: *const c_char, flags: c_int, mode: mode_t);
    fn __open(path: *const c_char, flags: c_int, mode: mode_t);
    fn __open64(path: *const c_char, flags: c_int, mode: mode_t);
    fn openat(directory: c_int, path: *const c_char, flags: c_int, mode: mode_t);
    fn openat64(directory: c_int, path: *const c_char, flags: c_int, mode: mode_t);
    fn __open_2(path: *const c_char, flags: c_int);
    fn __open64_2(path: *const c_char, flags: c_int);
    fn __openat_2(directory: c_int, path: *const c_char, flags: c_int);
    fn __openat64_2(directory: c_int, path: *const c_char, flags: c_int);
    fn creat(path: *const c_char, mode: mode_t);
    fn creat64(path: *const c_char, mode: mode_t);
    fn eventfd(initial: c_uint, flags: c_int);
    fn timerfd_create(clock: c_int, flags: c_int);
    fn signalfd(fd: c_int, mask: *const sigset_t, flags: c_int);
    // These give out numbers that programs close by themselves.
    fn mkstemp(template: *mut c_char);
    fn mkstemp64(template: *mut c_char);
    fn mkostemp(template: *mut c_char, flags: c_int);
    fn mkostemp64(template: *mut c_char, flags: c_int);
    fn mkstemps(template: *mut c_char, suffix: c_int);
    fn mkstemps64(template: *mut c_char, suffix: c_int);
    fn mkostemps(template: *mut c_char, suffix: c_int, flags: c_int);
    fn mkostemps64(template: *mut c_char, suffix: c_int, flags: c_int);
    fn posix_openpt(flags: c_int);
    fn shm_open(name: *const c_char, flags: c_int, mode: mode_t);
    fn open_by_handle_at(mount: c_int, handle: *mut c_void, flags: c_int);
    fn pidfd_open(process: pid_t, flags: c_uint);
    fn memfd_create(name: *const c_char, flags: c_uint);
    fn inotify_init();
    fn inotify_init1(flags: c_int);
}

/// A duplicate of another process's descriptor, which may be a socket to adopt.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn pidfd_getfd(process: c_int, number: c_int, flags: c_uint) -> c_int {
    let fd = real!(pidfd_getfd(process: c_int, number: c_int, flags: c_uint) -> c_int);
    rights::take(fd);
    fd
}

#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn pipe(ends: *mut c_int) -> c_int {
    both(real!(pipe(ends: *mut c_int) -> c_int), ends)
}

#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn __pipe(ends: *mut c_int) -> c_int {
    both(real!(__pipe(ends: *mut c_int) -> c_int), ends)
}

#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn pipe2(ends: *mut c_int, flags: c_int) -> c_int {
    both(real!(pipe2(ends: *mut c_int, flags: c_int) -> c_int), ends)
}

#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn socketpair(domain: c_int, kind: c_int, protocol: c_int, ends: *mut c_int) -> c_int {
    both(real!(socketpair(domain: c_int, kind: c_int, protocol: c_int, ends: *mut c_int) -> c_int), ends)
}

fn both(result: c_int, ends: *const c_int) -> c_int {
    if result == 0 {
        // SAFETY: the call has succeeded, so there are two numbers there.
        let ends = unsafe { ends.cast::<[c_int; 2]>().read() };
        for end in ends {
            fresh(end);
        }
    }
    result
}
