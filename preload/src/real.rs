//! libc's own functions, or those of the next library that interposes them.
//!
//! One list makes the symbols, their names and the table. The table is filled when the library is loaded: a later look-up
//! could wait for the loader's lock, which may be held by a thread that waits for this one. A call that comes before that
//! (from the constructor of another preloaded library) looks its own symbol up; doing that twice, in two threads or a
//! signal handler, does no harm.

use core::{
    ffi::{CStr, c_int, c_void},
    ptr::null_mut,
    sync::atomic::{AtomicPtr, Ordering},
};

use rsocket::capi::boundary;

macro_rules! symbols {
    ($($name:ident)*) => {
        /// The interposed functions.
        #[allow(non_camel_case_types)]
        #[derive(Clone, Copy)]
        #[repr(usize)]
        pub(crate) enum Symbol { $($name),* }

        const ALL: &[(Symbol, &CStr)] = &[$((Symbol::$name, name(concat!(stringify!($name), "\0")))),*];
    };
}

symbols! {
    // socket
    socket bind listen accept accept4 connect shutdown getsockname getpeername
    // option
    getsockopt setsockopt
    // io
    read readv recv recvfrom __read_chk __recv_chk __recvfrom_chk
    write writev send sendto sendfile sendfile64
    preadv2 preadv64v2 pwritev2 pwritev64v2
    // rights
    sendmsg sendmmsg recvmsg recvmmsg
    // splice
    splice
    // seek
    pread pread64 __pread_chk __pread64_chk preadv preadv64 pwrite pwrite64 pwritev pwritev64 lseek lseek64
    // poll, select
    poll ppoll __poll_chk __ppoll_chk select pselect
    // descriptor
    close dup dup2 dup3 fcntl fcntl64 ioctl close_range closefrom
    // stream
    fclose fdopen fileno fileno_unlocked
    // exec
    execve execv execvp execvpe fexecve execveat posix_spawn posix_spawnp posix_spawn_file_actions_adddup2
    execl execlp execle system popen
    // print (dprintf calls vdprintf)
    vdprintf __vdprintf_chk
    // what older programs import
    __read __write __send __connect __close __dup2 __fcntl __lseek __pread64 __pwrite64 __poll __select __open __open64 __pipe
    // epoll
    epoll_create epoll_create1 epoll_ctl epoll_wait epoll_pwait epoll_pwait2
    // creator
    open open64 openat openat64 __open_2 __open64_2 __openat_2 __openat64_2 creat creat64
    pipe pipe2 socketpair eventfd timerfd_create signalfd
    mkstemp mkstemp64 mkostemp mkostemp64 mkstemps mkstemps64 mkostemps mkostemps64 posix_openpt shm_open open_by_handle_at pidfd_open pidfd_getfd
    memfd_create inotify_init inotify_init1
    // exit
    _exit _Exit
    // process
    _Fork
    // system_call
    syscall
}

const COUNT: usize = ALL.len();

static TABLE: [AtomicPtr<c_void>; COUNT] = [const { AtomicPtr::new(null_mut()) }; COUNT];

/// The real function.
#[inline(always)]
pub(crate) fn function(symbol: Symbol) -> *mut c_void {
    match TABLE.get(symbol as usize).map(|place| place.load(Ordering::Relaxed)) {
        Some(function) if !function.is_null() => function,
        _ => resolve(symbol),
    }
}

/// Fills the table.
pub(crate) fn resolve_all() {
    for (symbol, _) in ALL {
        resolve(*symbol);
    }
}

#[cold]
#[inline(never)]
fn resolve(symbol: Symbol) -> *mut c_void {
    let (Some((_, name)), Some(place)) = (ALL.get(symbol as usize), TABLE.get(symbol as usize)) else {
        return missing as *mut c_void;
    };
    let errno = boundary::errno();
    // SAFETY: the name ends in a 0; the result is only kept.
    let found = unsafe { libc::dlsym(libc::RTLD_NEXT, name.as_ptr()) };
    boundary::set_errno(errno);
    let function = if found.is_null() { missing as *mut c_void } else { found };
    place.store(function, Ordering::Release);
    function
}

/// A function that this libc does not have. (Its result is that of every hooked function that may be missing: -1.)
extern "C" fn missing() -> isize {
    boundary::set_errno(libc::ENOSYS as c_int);
    -1
}

const fn name(text: &'static str) -> &'static CStr {
    match CStr::from_bytes_with_nul(text.as_bytes()) {
        Ok(name) => name,
        Err(_) => c"",
    }
}
