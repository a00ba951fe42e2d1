//! syscall(2): libuv closes every descriptor by it, and calls what older C libraries have no function for.

use core::time::Duration;
use std::time::Instant;

use libc::{c_int, c_long, nfds_t, timespec};
use rsocket::{
    calls::exit::is_last_thread,
    capi::{boundary, lifecycle},
};

use super::{descriptor, epoll, exec, exit, io, option, poll, real, rights, seek, select, socket, splice};
use crate::guard::{closable, free, fresh, ours, ours_or_own, ours_polled, ours_selected, stranger};

/// Seven words, as every caller's variable argument list has them; those that were not passed are only handed on.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn syscall(number: c_long, a: usize, b: usize, c: usize, d: usize, e: usize, f: usize) -> c_long {
    // SAFETY: the program's promises are those of the system call, which are those of the hook.
    if unsafe { concerns(number, [a, b, c, d]) } {
        // SAFETY: as above.
        if let Some(result) = unsafe { hooked(number, [a, b, c, d, e, f]) } {
            return result;
        }
    }
    let result = real!(syscall(number: c_long, a: usize, b: usize, c: usize, d: usize, e: usize, f: usize) -> c_long);
    created(number, b, result);
    rights::came_by(number, b, result);
    if forks(number, a) { lifecycle::forked(result) } else { result }
}

/// Whether the call makes a child with memory and descriptors of its own.
fn forks(number: c_long, flags: usize) -> bool {
    #[cfg(target_arch = "x86_64")]
    if number == libc::SYS_fork {
        return true;
    }
    number == libc::SYS_clone && flags & (libc::CLONE_VM | libc::CLONE_FILES) as usize == 0
}

/// Whether there is an rsocket among the arguments (or may come to be one). What is not goes to the kernel as it came: unlike
/// libc's functions, syscall is no cancellation point.
///
/// # Safety
/// The program's promises to the system call.
#[inline]
unsafe fn concerns(number: c_long, [a, b, c, d]: [usize; 4]) -> bool {
    match number {
        libc::SYS_socket => socket::possible(a as c_int),
        libc::SYS_close_range => free(),
        #[cfg(target_arch = "x86_64")]
        libc::SYS_dup2 => ours_or_own(a as c_int) || ours_or_own(b as c_int),
        libc::SYS_dup3 => ours_or_own(a as c_int) || ours_or_own(b as c_int),
        // SAFETY: the caller's promise is the one asked for.
        libc::SYS_sendmsg => ours(a as c_int) || unsafe { rights::carries(take(b)) },
        // SAFETY: the caller's promise is the one asked for.
        libc::SYS_sendmmsg => ours(a as c_int) || unsafe { rights::carry(take::<*const _>(b), c as u32) },
        libc::SYS_execve | libc::SYS_execveat => stranger(),
        libc::SYS_close => closable(a as c_int),
        libc::SYS_exit_group | libc::SYS_exit => true,
        libc::SYS_dup | libc::SYS_fcntl => ours_or_own(a as c_int),
        libc::SYS_sendfile => ours(a as c_int) || ours(b as c_int),
        libc::SYS_splice | libc::SYS_epoll_ctl => ours(a as c_int) || ours(c as c_int),
        #[cfg(target_arch = "x86_64")]
        // SAFETY: the caller's promise is the one asked for.
        libc::SYS_poll => unsafe { ours_polled(take(a), b as nfds_t) },
        // SAFETY: the caller's promise is the one asked for.
        libc::SYS_ppoll => unsafe { ours_polled(take(a), b as nfds_t) },
        #[cfg(target_arch = "x86_64")]
        // SAFETY: the caller's promise is the one asked for.
        libc::SYS_select => unsafe { ours_selected(a as c_int, [take(b), take(c), take(d)]) },
        // SAFETY: the caller's promise is the one asked for.
        libc::SYS_pselect6 => unsafe { ours_selected(a as c_int, [take(b), take(c), take(d)]) },
        _ => ours(a as c_int),
    }
}

fn is_epoll_create(number: c_long) -> bool {
    #[cfg(target_arch = "x86_64")]
    if number == libc::SYS_epoll_create {
        return true;
    }
    number == libc::SYS_epoll_create1
}

/// Whether a result is a new number.
fn creates(number: c_long, command: usize) -> bool {
    #[cfg(target_arch = "x86_64")]
    let older = matches!(
        number,
        libc::SYS_open | libc::SYS_creat | libc::SYS_eventfd | libc::SYS_signalfd | libc::SYS_inotify_init | libc::SYS_dup2
    );
    #[cfg(not(target_arch = "x86_64"))]
    let older = false;
    match number {
        libc::SYS_socket | libc::SYS_accept | libc::SYS_accept4 | libc::SYS_dup | libc::SYS_dup3 | libc::SYS_openat | libc::SYS_openat2 => {
            true
        }
        libc::SYS_eventfd2 | libc::SYS_timerfd_create | libc::SYS_signalfd4 | libc::SYS_inotify_init1 => true,
        libc::SYS_memfd_create | libc::SYS_pidfd_open | libc::SYS_pidfd_getfd | libc::SYS_perf_event_open | libc::SYS_userfaultfd => true,
        libc::SYS_io_uring_setup | libc::SYS_bpf | libc::SYS_fanotify_init | libc::SYS_memfd_secret => true,
        libc::SYS_fcntl => matches!(command as c_int, libc::F_DUPFD | libc::F_DUPFD_CLOEXEC),
        _ => older,
    }
}

fn created(number: c_long, command: usize, result: c_long) {
    if is_epoll_create(number) {
        epoll::made(result as c_int);
    } else if creates(number, command) {
        fresh(result as c_int);
    }
}

/// An argument of a system call, as a C function takes it.
trait Argument {
    fn from_word(word: usize) -> Self;
}

impl Argument for i32 {
    fn from_word(word: usize) -> Self {
        word as i32
    }
}

impl Argument for i64 {
    fn from_word(word: usize) -> Self {
        word as i64
    }
}

impl Argument for u32 {
    fn from_word(word: usize) -> Self {
        word as u32
    }
}

impl Argument for u64 {
    fn from_word(word: usize) -> Self {
        word as u64
    }
}

impl Argument for usize {
    fn from_word(word: usize) -> Self {
        word
    }
}

impl<T> Argument for *const T {
    fn from_word(word: usize) -> Self {
        word as *const T
    }
}

impl<T> Argument for *mut T {
    fn from_word(word: usize) -> Self {
        word as *mut T
    }
}

fn take<A: Argument>(word: usize) -> A {
    A::from_word(word)
}

/// The system calls that have a hook: the hook's result.
///
/// # Safety
/// The program's promises to the system call.
#[inline]
unsafe fn hooked(number: c_long, [a, b, c, d, e, f]: [usize; 6]) -> Option<c_long> {
    macro_rules! to {
        ($family:ident::$name:ident($($word:ident),*)) => {{
            // SAFETY: the caller's promise is the one asked for.
            let result = unsafe { $family::$name($(take($word)),*) };
            Some(result as c_long)
        }};
    }
    match number {
        libc::SYS_read => to!(io::read(a, b, c)),
        libc::SYS_write => to!(io::write(a, b, c)),
        libc::SYS_readv => to!(io::readv(a, b, c)),
        libc::SYS_writev => to!(io::writev(a, b, c)),
        libc::SYS_recvfrom => to!(io::recvfrom(a, b, c, d, e, f)),
        libc::SYS_sendto => to!(io::sendto(a, b, c, d, e, f)),
        libc::SYS_recvmsg => to!(rights::recvmsg(a, b, c)),
        libc::SYS_sendmsg => to!(rights::sendmsg(a, b, c)),
        libc::SYS_recvmmsg => to!(rights::recvmmsg(a, b, c, d, e)),
        libc::SYS_sendmmsg => to!(rights::sendmmsg(a, b, c, d)),
        libc::SYS_sendfile => to!(io::sendfile(a, b, c, d)),
        libc::SYS_splice => to!(splice::splice(a, b, c, d, e, f)),
        // The offset is in two words, of which the upper one says nothing here.
        libc::SYS_preadv2 => to!(io::preadv2(a, b, c, d, f)),
        libc::SYS_pwritev2 => to!(io::pwritev2(a, b, c, d, f)),
        libc::SYS_pread64 => to!(seek::pread(a, b, c, d)),
        libc::SYS_pwrite64 => to!(seek::pwrite(a, b, c, d)),
        libc::SYS_preadv => to!(seek::preadv(a, b, c, d)),
        libc::SYS_pwritev => to!(seek::pwritev(a, b, c, d)),
        libc::SYS_lseek => to!(seek::lseek(a, b, c)),
        libc::SYS_socket => to!(socket::socket(a, b, c)),
        libc::SYS_bind => to!(socket::bind(a, b, c)),
        libc::SYS_listen => to!(socket::listen(a, b)),
        libc::SYS_accept => to!(socket::accept(a, b, c)),
        libc::SYS_accept4 => to!(socket::accept4(a, b, c, d)),
        libc::SYS_connect => to!(socket::connect(a, b, c)),
        libc::SYS_shutdown => to!(socket::shutdown(a, b)),
        libc::SYS_getsockname => to!(socket::getsockname(a, b, c)),
        libc::SYS_getpeername => to!(socket::getpeername(a, b, c)),
        libc::SYS_getsockopt => to!(option::getsockopt(a, b, c, d, e)),
        libc::SYS_setsockopt => to!(option::setsockopt(a, b, c, d, e)),
        libc::SYS_ioctl => to!(descriptor::ioctl(a, b, c)),
        libc::SYS_close => to!(descriptor::close(a)),
        libc::SYS_dup => to!(descriptor::dup(a)),
        #[cfg(target_arch = "x86_64")]
        libc::SYS_dup2 => to!(descriptor::dup2(a, b)),
        libc::SYS_dup3 => to!(descriptor::dup3(a, b, c)),
        libc::SYS_fcntl => to!(descriptor::fcntl(a, b, c)),
        libc::SYS_execve => to!(exec::execve(a, b, c)),
        libc::SYS_execveat => to!(exec::execveat(a, b, c, d, e)),
        libc::SYS_close_range => to!(descriptor::close_range(a, b, c)),
        libc::SYS_epoll_ctl => to!(epoll::epoll_ctl(a, b, c, d)),
        #[cfg(target_arch = "x86_64")]
        libc::SYS_epoll_wait => to!(epoll::epoll_wait(a, b, c, d)),
        libc::SYS_epoll_pwait => to!(epoll::epoll_pwait(a, b, c, d, e)),
        libc::SYS_exit_group => exit::leave(a as c_int),
        libc::SYS_exit if is_last_thread() => exit::leave(a as c_int),
        libc::SYS_epoll_pwait2 => to!(epoll::epoll_pwait2(a, b, c, d, e)),
        _ => {
            // SAFETY: the caller's promise is the one asked for.
            unsafe { waiting(number, [a, b, c, d, e, f]) }
        }
    }
}

/// poll and select: what the C functions of the kinds with a mask keep from the program, these calls show it.
///
/// # Safety
/// The program's promises to the system call.
unsafe fn waiting(number: c_long, [a, b, c, d, e, f]: [usize; 6]) -> Option<c_long> {
    let start = Instant::now();
    let result = match number {
        #[cfg(target_arch = "x86_64")]
        // SAFETY: the caller's promise is the one asked for.
        libc::SYS_poll => return Some(c_long::from(unsafe { poll::poll(take(a), b as nfds_t, c as c_int) })),
        #[cfg(target_arch = "x86_64")]
        // SAFETY: the caller's promise is the one asked for.
        libc::SYS_select => return Some(c_long::from(unsafe { select::select(take(a), take(b), take(c), take(d), take(e)) })),
        libc::SYS_ppoll => {
            let timeout: *mut timespec = take(c);
            // SAFETY: the caller's promise is the one asked for.
            let result = unsafe { poll::ppoll(take(a), b as nfds_t, timeout, take(d)) };
            // SAFETY: NULL or good for reads and writes (the caller's promise).
            (result, unsafe { timeout.as_mut() })
        }
        libc::SYS_pselect6 => {
            // "The final argument … is instead a pointer to a structure of the form { const kernel_sigset_t *ss; size_t ss_len; }"
            let both: *const [usize; 2] = take(f);
            // SAFETY: NULL or good for reads (the caller's promise).
            let mask = unsafe { both.as_ref() }.map_or(0, |[mask, _]| *mask);
            let timeout: *mut timespec = take(e);
            // SAFETY: the caller's promise is the one asked for.
            let result = unsafe { select::pselect(take(a), take(b), take(c), take(d), timeout, take(mask)) };
            // SAFETY: NULL or good for reads and writes (the caller's promise).
            (result, unsafe { timeout.as_mut() })
        }
        _ => return None,
    };
    // "The Linux ppoll() system call modifies its tmo_p argument" (ppoll(2); so does pselect6), unless it is wrong.
    let (result, timeout) = result;
    let waited = result >= 0 || boundary::errno() == libc::EINTR;
    if let Some(timeout) = timeout.filter(|_| waited) {
        left(timeout, start);
    }
    Some(c_long::from(result))
}

/// What is left of a time-out that began then.
fn left(timeout: &mut timespec, start: Instant) {
    let all = Duration::new(timeout.tv_sec.max(0) as u64, timeout.tv_nsec.clamp(0, 999_999_999) as u32);
    let left = all.saturating_sub(start.elapsed());
    *timeout = timespec { tv_sec: left.as_secs() as i64, tv_nsec: i64::from(left.subsec_nanos()) };
}
