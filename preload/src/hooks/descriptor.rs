//! Descriptor numbers: close, dup, fcntl, ioctl.
//!
//! fstat and its kind have no hook: the kernel's socket under the number answers as any socket does.

use libc::{c_int, c_uint, c_ulong, c_void};
use rsocket::{
    calls::Route,
    capi::boundary::{answer, descriptor as boundary},
};

use super::{hooks, real, stream::duplicated};
use crate::guard::{closable, free, fresh, given, ours, ours_or_own};

hooks! {
    fn close(fd: c_int) -> c_int
        = closable(fd) => boundary::close(fd);
    fn __close(fd: c_int) -> c_int
        = closable(fd) => boundary::close(fd);
    fn __dup2(old: c_int, new: c_int) -> c_int
        = ours_or_own(old) || ours_or_own(new) => duplicated(boundary::dup2(old, new));
    fn dup2(old: c_int, new: c_int) -> c_int
        = ours_or_own(old) || ours_or_own(new) => duplicated(boundary::dup2(old, new));
    fn dup3(old: c_int, new: c_int, flags: c_int) -> c_int
        = ours_or_own(old) || ours_or_own(new) => duplicated(boundary::dup3(old, new, flags));
    // The third word of a variable argument list stands where a fixed one does on x86_64 and aarch64.
    fn ioctl(fd: c_int, request: c_ulong, argument: *mut c_void) -> c_int
        = ours(fd) => boundary::ioctl(fd, request, argument);
    fn close_range(first: c_uint, last: c_uint, flags: c_int) -> c_int
        = free() => boundary::close_range(first, last, flags);
}

#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn dup(fd: c_int) -> c_int {
    let ours = ours_or_own(fd).then(|| answer(|| duplicated(boundary::dup(fd)))).flatten();
    ours.map_or_else(|| fresh(real!(dup(fd: c_int) -> c_int)), given)
}

#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn fcntl(fd: c_int, command: c_int, argument: usize) -> c_int {
    match controlled(fd, command, argument) {
        Some(result) => handed(command, result),
        None => created(command, real!(fcntl(fd: c_int, command: c_int, argument: usize) -> c_int)),
    }
}

#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn fcntl64(fd: c_int, command: c_int, argument: usize) -> c_int {
    match controlled(fd, command, argument) {
        Some(result) => handed(command, result),
        None => created(command, real!(fcntl64(fd: c_int, command: c_int, argument: usize) -> c_int)),
    }
}

#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn __fcntl(fd: c_int, command: c_int, argument: usize) -> c_int {
    match controlled(fd, command, argument) {
        Some(result) => handed(command, result),
        None => created(command, real!(__fcntl(fd: c_int, command: c_int, argument: usize) -> c_int)),
    }
}

fn controlled(fd: c_int, command: c_int, argument: usize) -> Option<c_int> {
    ours_or_own(fd).then(|| answer(|| controlled_by(fd, command, argument))).flatten()
}

fn controlled_by(fd: c_int, command: c_int, argument: usize) -> Route<c_int> {
    let route = boundary::fcntl(fd, command, argument);
    match command {
        libc::F_DUPFD | libc::F_DUPFD_CLOEXEC => duplicated(route),
        _ => route,
    }
}

fn handed(command: c_int, result: c_int) -> c_int {
    match command {
        libc::F_DUPFD | libc::F_DUPFD_CLOEXEC => given(result),
        _ => result,
    }
}

fn created(command: c_int, result: c_int) -> c_int {
    match command {
        libc::F_DUPFD | libc::F_DUPFD_CLOEXEC => fresh(result),
        _ => result,
    }
}

#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn closefrom(least: c_int) {
    let done = if free() { answer(|| boundary::closefrom(least)) } else { None };
    if done.is_none() {
        real!(closefrom(least: c_int) -> ())
    }
}
