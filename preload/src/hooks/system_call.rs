//! syscall(2): libuv closes every descriptor by it, and calls what older C libraries have no function for.

use libc::{c_int, c_long};

use super::{descriptor, epoll, io, real, socket};
use crate::guard::{fresh, ours};

/// Seven words, as every caller's variable argument list has them; those that were not passed are only handed on.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn syscall(number: c_long, a: usize, b: usize, c: usize, d: usize, e: usize, f: usize) -> c_long {
    if concerns(number, a, b, c) {
        // SAFETY: the program's promises are those of the system call, which are those of the hook.
        if let Some(result) = unsafe { hooked(number, [a, b, c, d, e, f]) } {
            return result;
        }
    }
    let result = real!(syscall(number: c_long, a: usize, b: usize, c: usize, d: usize, e: usize, f: usize) -> c_long);
    created(number, b, result);
    result
}

/// Whether there is an rsocket among the arguments (or may come to be one). What is not goes to the kernel as it came: unlike
/// libc's functions, syscall is no cancellation point.
#[inline]
fn concerns(number: c_long, a: usize, b: usize, c: usize) -> bool {
    match number {
        libc::SYS_socket => socket::possible(a as c_int),
        libc::SYS_close_range => true,
        #[cfg(target_arch = "x86_64")]
        libc::SYS_dup2 => ours(a as c_int) || ours(b as c_int),
        libc::SYS_dup3 => ours(a as c_int) || ours(b as c_int),
        libc::SYS_epoll_ctl => ours(a as c_int) || ours(c as c_int),
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

fn created(number: c_long, command: usize, result: c_long) {
    if is_epoll_create(number) {
        epoll::made(result as c_int);
        return;
    }
    let creates = match number {
        libc::SYS_socket | libc::SYS_accept | libc::SYS_accept4 | libc::SYS_dup | libc::SYS_openat => true,
        libc::SYS_fcntl => matches!(command as c_int, libc::F_DUPFD | libc::F_DUPFD_CLOEXEC),
        _ => false,
    };
    if creates {
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

impl Argument for u32 {
    fn from_word(word: usize) -> Self {
        word as u32
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
        libc::SYS_recvmsg => to!(io::recvmsg(a, b, c)),
        libc::SYS_sendmsg => to!(io::sendmsg(a, b, c)),
        libc::SYS_recvmmsg => to!(io::recvmmsg(a, b, c, d, e)),
        libc::SYS_sendmmsg => to!(io::sendmmsg(a, b, c, d)),
        libc::SYS_socket => to!(socket::socket(a, b, c)),
        libc::SYS_bind => to!(socket::bind(a, b, c)),
        libc::SYS_listen => to!(socket::listen(a, b)),
        libc::SYS_accept => to!(socket::accept(a, b, c)),
        libc::SYS_accept4 => to!(socket::accept4(a, b, c, d)),
        libc::SYS_connect => to!(socket::connect(a, b, c)),
        libc::SYS_shutdown => to!(socket::shutdown(a, b)),
        libc::SYS_close => to!(descriptor::close(a)),
        libc::SYS_dup => to!(descriptor::dup(a)),
        #[cfg(target_arch = "x86_64")]
        libc::SYS_dup2 => to!(descriptor::dup2(a, b)),
        libc::SYS_dup3 => to!(descriptor::dup3(a, b, c)),
        libc::SYS_fcntl => to!(descriptor::fcntl(a, b, c)),
        libc::SYS_close_range => to!(descriptor::close_range(a, b, c)),
        libc::SYS_epoll_ctl => to!(epoll::epoll_ctl(a, b, c, d)),
        #[cfg(target_arch = "x86_64")]
        libc::SYS_epoll_wait => to!(epoll::epoll_wait(a, b, c, d)),
        libc::SYS_epoll_pwait => to!(epoll::epoll_pwait(a, b, c, d, e)),
        libc::SYS_epoll_pwait2 => to!(epoll::epoll_pwait2(a, b, c, d, e)),
        _ => None,
    }
}
