//! The C side of `calls::descriptor`: and who may call it. A process that shares the owner's memory but not its descriptors
//! (a vfork child) does with a number what it likes, in the kernel; the owner's socket stays.

use core::ffi::{c_int, c_uint, c_ulong, c_void};

use super::{attempt, map, zero};
use crate::{
    calls::{Route, adopt, descriptor, io, socket},
    error::Errno,
    sys::{
        descriptor::borrow,
        inside,
        kernel::{self, descriptor_table_size},
        own, owner,
    },
};

/// close(2).
pub fn close(fd: c_int) -> Route<c_int> {
    if !owner::is_current() {
        return Route::Kernel;
    }
    if own::is_own(fd) {
        return Route::err(Errno::BADF);
    }
    zero(descriptor::close(fd))
}

/// close(2) in a signal handler that has interrupted its thread in the middle of something: the number goes at once, the connection when the
/// interrupted call ends. The kernel's own close follows.
#[cold]
pub fn leave(fd: c_int) {
    if owner::is_current() {
        descriptor::leave(fd);
    }
}

/// A child of this process becomes another program: the caller is that child, by vfork, or starts one without fork.
#[cold]
pub fn child_execs() -> Route<c_int> {
    adopt::child_execs();
    Route::Kernel
}

/// posix_spawn_file_actions_adddup2(3): a program is to be started with this number.
#[cold]
pub fn spawned_with(fd: c_int) -> Route<c_int> {
    adopt::child_duplicates(fd);
    Route::Kernel
}

/// The calling process is not the owner, but a child that may have plans with a duplicate.
#[cold]
fn stranger_duplicates(fd: c_int) -> Route<c_int> {
    adopt::child_duplicates(fd);
    Route::Kernel
}

/// shutdown(2).
pub fn shutdown(fd: c_int, how: c_int) -> Route<c_int> {
    if !owner::is_current() {
        return Route::Kernel;
    }
    zero(socket::shutdown(fd, how))
}

/// dup(2).
pub fn dup(fd: c_int) -> Route<c_int> {
    duplicate(fd, 0, false)
}

/// Whether one of the library's own descriptors is in the way of dup2(2): `old` is as if it were not open, and `new` cannot be had.
fn own_in_the_way(old: c_int, new: c_int) -> Option<Errno> {
    if own::is_own(old) || !is_open(old) {
        return Some(Errno::BADF);
    }
    own::is_own(new).then_some(Errno::BUSY)
}

fn is_open(fd: c_int) -> bool {
    borrow(fd).is_some_and(|fd| rustix::io::fcntl_getfd(fd).is_ok())
}

/// dup2(2).
pub fn dup2(old: c_int, new: c_int) -> Route<c_int> {
    if !owner::is_current() {
        return stranger_duplicates(old);
    }
    if let Some(errno) = own_in_the_way(old, new) {
        return Route::err(errno);
    }
    descriptor::dup_to(old, new, 0, false)
}

/// dup3(2): "EINVAL flags contain an invalid value", "oldfd was equal to newfd".
pub fn dup3(old: c_int, new: c_int, flags: c_int) -> Route<c_int> {
    if flags & !libc::O_CLOEXEC != 0 {
        return Route::err(Errno::INVAL);
    }
    if !owner::is_current() {
        return stranger_duplicates(old);
    }
    if old == new {
        return Route::err(Errno::INVAL);
    }
    if let Some(errno) = own_in_the_way(old, new) {
        return Route::err(errno);
    }
    descriptor::dup_to(old, new, flags, true)
}

/// fcntl(2). Commands that take a pointer (locks, owners by structure) are the kernel's: no socket has them, or none that matter here.
pub fn fcntl(fd: c_int, command: c_int, argument: usize) -> Route<c_int> {
    if own::is_own(fd) && owner::is_current() {
        return Route::err(Errno::BADF);
    }
    // Of an int argument, the upper half of the word is what was there before.
    let number = argument as c_int;
    match command {
        libc::F_DUPFD => duplicate(fd, number, false),
        libc::F_DUPFD_CLOEXEC => duplicate(fd, number, true),
        libc::F_SETFD if number & libc::FD_CLOEXEC == 0 && !owner::is_current() => stranger_duplicates(fd),
        libc::F_GETFD | libc::F_SETFD | libc::F_GETFL | libc::F_SETFL | libc::F_GETOWN | libc::F_SETOWN => match owner::is_current() {
            true => descriptor::fcntl(fd, command, number),
            false => Route::Kernel,
        },
        _ => Route::Kernel,
    }
}

fn duplicate(fd: c_int, least: c_int, close_on_exec: bool) -> Route<c_int> {
    if !owner::is_current() {
        return stranger_duplicates(fd);
    }
    if own::is_own(fd) {
        return Route::err(Errno::BADF);
    }
    descriptor::dup_from(fd, least, close_on_exec)
}

/// FIONREAD is SIOCINQ and TIOCINQ; TIOCOUTQ is SIOCOUTQ. (The crate's constants have other types on other C libraries.)
const FIONBIO: c_ulong = 0x5421;
const FIONREAD: c_ulong = 0x541b;
const SIOCOUTQ: c_ulong = 0x5411;

/// ioctl(2).
///
/// # Safety
/// Unless NULL, `argument` must be good for what `request` reads and writes there.
pub unsafe fn ioctl(fd: c_int, request: c_ulong, argument: *mut c_void) -> Route<c_int> {
    let argument: *mut c_int = argument.cast();
    // The kernel takes an unsigned int; callers with an int sign-extend it.
    let request = request & 0xffff_ffff;
    if !matches!(request, FIONBIO | FIONREAD | SIOCOUTQ) {
        return Route::Kernel;
    }
    // SAFETY: these three have a pointer to an int: NULL or good for reads and writes (the caller's promise).
    let Some(argument) = (unsafe { argument.as_mut() }) else { return Route::err(Errno::FAULT) };
    let counted = match request {
        FIONBIO => return zero(descriptor::set_nonblocking(fd, *argument != 0)),
        FIONREAD => io::readable_bytes(fd),
        _ => io::unsent_bytes(fd),
    };
    map(counted, |bytes| {
        *argument = bytes;
        0
    })
}

/// Closes the rsockets numbered `first` to `last`. What is left of the call is the kernel's.
fn close_ours(first: c_uint, last: c_uint) {
    let end = descriptor_table_size().unwrap_or(1 << 20) as c_uint;
    for number in first..last.saturating_add(1).min(end) {
        let fd = number as c_int;
        if descriptor::is_ours(fd) {
            // An error of one does not keep the others open.
            let _ = descriptor::close(fd);
        }
    }
}

/// close_range(2): as if the library's own descriptors were not open. (CLOSE_RANGE_CLOEXEC closes nothing, and they are close-on-exec; other
/// flags than CLOSE_RANGE_UNSHARE are EINVAL.)
pub fn close_range(first: c_uint, last: c_uint, flags: c_int) -> Route<c_int> {
    let flags = flags as c_uint;
    let known = libc::CLOSE_RANGE_UNSHARE | libc::CLOSE_RANGE_CLOEXEC;
    if first > last || flags & !known != 0 || !owner::is_current() {
        return Route::Kernel;
    }
    // "CLOSE_RANGE_UNSHARE Unshare the specified file descriptors from any other processes before closing them": from the library's own
    // threads there is nothing to keep, which would keep open what is closed here.
    let shares = flags & libc::CLOSE_RANGE_UNSHARE != 0 && !only_thread();
    if flags & libc::CLOSE_RANGE_CLOEXEC != 0 {
        return ranges(first, last, if shares { flags } else { libc::CLOSE_RANGE_CLOEXEC });
    }
    if shares {
        // They stay open for the other threads.
        return ranges(first, last, libc::CLOSE_RANGE_UNSHARE);
    }
    close_ours(first, last);
    ranges(first, last, 0)
}

/// closefrom(3).
pub fn closefrom(least: c_int) -> Route<c_int> {
    let (first, last) = (least.max(0) as c_uint, c_uint::MAX);
    match close_range(first, last, 0) {
        // Before Linux 5.9.
        Route::Done(Err(Errno::NOSYS)) => {
            each_from(first as c_int);
            Route::ok(0)
        }
        other => other,
    }
}

fn each_from(first: c_int) {
    let end = descriptor_table_size().unwrap_or(1 << 20) as c_int;
    for fd in (first..end).filter(|fd| !own::is_own(*fd)) {
        let _ = kernel::close(fd);
    }
}

/// close_range(2) of what lies between the library's own descriptors.
fn ranges(mut first: c_uint, last: c_uint, mut flags: c_uint) -> Route<c_int> {
    while let Some(own) = c_int::try_from(first).ok().and_then(|from| own::next(from, last.min(c_int::MAX as c_uint) as c_int)) {
        let own = own as c_uint;
        if own > first {
            attempt!(kernel::close_range(first, own - 1, flags));
            // The table is the thread's own by now.
            flags &= !libc::CLOSE_RANGE_UNSHARE;
        }
        if own == last {
            return Route::ok(0);
        }
        first = own + 1;
    }
    map(kernel::close_range(first, last, flags).into(), |()| 0)
}

/// The process has no threads but the calling one and the library's.
fn only_thread() -> bool {
    kernel::threads().is_some_and(|threads| threads <= 1 + own::threads())
}

/// The kernel has given out this number: what stood under it was closed behind the library's back.
pub fn forget_stale(fd: c_int) {
    if inside::is_busy() {
        leave(fd);
    } else if owner::is_current() {
        descriptor::forget(fd);
    }
}

/// What fdopen(3) must know: whether data moves through the library, so that C's streams cannot use the kernel's socket.
pub fn carries_data(fd: c_int) -> bool {
    descriptor::is_unused(fd) || matches!(io::readable_bytes(fd), Route::Done(Ok(_))) || descriptor::is_lost(fd)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_the_kernel_refuses() {
        assert_eq!(dup3(1, 2, libc::O_NONBLOCK), Route::err(Errno::INVAL));
        // SAFETY: NULL is allowed.
        assert_eq!(unsafe { ioctl(1, FIONREAD, core::ptr::null_mut()) }, Route::err(Errno::FAULT));
        // SAFETY: not a request that is looked at.
        assert_eq!(unsafe { ioctl(1, 0x8912, core::ptr::null_mut()) }, Route::Kernel);
        assert_eq!(close_range(5, 4, 0), Route::Kernel);
    }
}
