//! Descriptor numbers: close, dup, fcntl, and what happens behind the library's back.

use rustix::fd::{IntoRawFd, RawFd};

use super::{Route, datagram, exit, inherited, known, ours};
use crate::{
    config,
    error::Errno,
    fd::{
        self, Shared,
        inherited::{Inherited, inherit_all},
    },
    log, service,
    socket::{Role, connect, runtime, stream::moving, wait},
    stats,
    sys::{descriptor, own, owner::Forked},
};

/// Whether the number belongs to an rsocket: one atomic load, safe anywhere (DESIGN: D5).
#[inline(always)]
pub fn is_ours(fd: RawFd) -> bool {
    fd::is_ours(fd)
}

/// Whether the number belongs to a connection that TCP has made and that may move when it is used. This is no use of it.
pub fn is_unused(fd: RawFd) -> bool {
    known(fd).is_some_and(|held| held.socket.role() == Role::Deferred || held.socket.stream().is_some_and(|stream| stream.is_moving()))
}

/// Whether the number is a connection of an ancestor's, which cannot be used here.
pub fn is_lost(fd: RawFd) -> bool {
    inherited::is_lost(fd)
}

/// close(2): drops the number and, with the last number of its description, the connection. The kernel's descriptor is closed by the
/// caller's own call ([`Route::Kernel`]).
pub fn close(fd: RawFd) -> Route<()> {
    if let Some(last) = fd::remove(fd) {
        datagram::closes(fd, &last);
        last.socket.close(true);
    }
    Route::Kernel
}

/// The kernel has (or is about to have) something else under this number: forget the rsocket, as after close. Does not touch the kernel's descriptor.
pub fn forget(fd: RawFd) {
    fd::forget(fd);
}

/// As [`forget`], anywhere: the rest is done by [`finish_left`].
pub fn leave(fd: RawFd) {
    fd::leave(fd);
}

/// Whether there is something for [`finish_left`].
#[inline(always)]
pub fn is_any_left() -> bool {
    fd::is_any_left()
}

/// There is something for [`finish_left`].
pub fn leave_something() {
    fd::leave_something();
}

/// Closes what signal handlers have left open.
pub fn finish_left() {
    fd::finish_left();
    if exit::is_ending() {
        exit::wait_for_end();
    }
}

/// What a duplicate of this number is one of, unless the kernel alone has it.
enum Original {
    Known(Shared),
    Inherited(Inherited),
}

impl Original {
    fn of(fd: RawFd) -> Option<Self> {
        let known = ours(fd).map(Shared::Socket).or_else(|| fd::get_set(fd).map(Shared::Set));
        known.map(Original::Known).or_else(|| fd::inherited::get(fd).map(Original::Inherited))
    }

    /// One more number for it.
    fn share(&self, fd: RawFd) {
        match self {
            Original::Known(known) => known.share(fd),
            Original::Inherited(what) => inherited::duplicated(*what, fd),
        }
    }
}

/// dup(2) and fcntl(F_DUPFD, F_DUPFD_CLOEXEC): the lowest free number from `least`.
pub fn dup_from(fd: RawFd, least: i32, close_on_exec: bool) -> Route<RawFd> {
    let Some(held) = Original::of(fd) else { return Route::Kernel };
    let Some(kernel) = descriptor::borrow(fd) else { return Route::Kernel };
    let Ok(least) = u32::try_from(least) else { return Route::err(Errno::INVAL) };
    let least = RawFd::try_from(least).unwrap_or(RawFd::MAX);
    let made = rustix::io::fcntl_dupfd_cloexec(kernel, least);
    made.and_then(|copy| {
        if !close_on_exec {
            rustix::io::fcntl_setfd(&copy, rustix::io::FdFlags::empty())?;
        }
        let number = copy.into_raw_fd();
        held.share(number);
        Ok(number)
    })
    .into()
}

/// dup2(2), dup3(2) where `old` or `new` is ours: `flags` is 0 or O_CLOEXEC. (dup2 of a number to itself and dup3's EINVAL are decided here: `dup3` says which call it was.)
pub fn dup_to(old: RawFd, new: RawFd, flags: i32, dup3: bool) -> Route<RawFd> {
    let held = Original::of(old);
    if held.is_none() && !is_ours(new) {
        return Route::Kernel;
    }
    if old == new {
        // dup2(2): "If oldfd is a valid file descriptor, and newfd has the same value as oldfd, then dup2() does nothing"; dup3: EINVAL.
        return if dup3 { Route::err(Errno::INVAL) } else { Route::ok(new) };
    }
    if flags & !libc::O_CLOEXEC != 0 {
        return Route::err(Errno::INVAL);
    }
    // The kernel closes `new` and puts the copy there in one step; a failure leaves `new` alone.
    if let Err(errno) = crate::sys::kernel::dup3(old, new, flags) {
        return Route::err(errno);
    }
    forget(new);
    if let Some(held) = held {
        held.share(new);
    }
    Route::ok(new)
}

/// fcntl(2) for commands with an int argument or none, other than F_DUPFD*: F_GETFL, F_SETFL, F_GETFD, F_SETFD …
/// The kernel's socket has the flags; O_NONBLOCK is noted on the way.
pub fn fcntl(fd: RawFd, command: i32, argument: i32) -> Route<i32> {
    if command == libc::F_SETFL
        && let Some(held) = ours(fd)
    {
        held.set_nonblocking(argument & libc::O_NONBLOCK != 0);
    }
    Route::Kernel
}

/// ioctl(FIONBIO). The kernel's socket has the flag; it is noted on the way.
pub fn set_nonblocking(fd: RawFd, on: bool) -> Route<()> {
    if let Some(held) = ours(fd) {
        held.set_nonblocking(on);
    }
    Route::Kernel
}

/// Before fork: what TCP has made and the program has not used yet stays with TCP, since the child may be the one to use it.
pub fn before_fork() {
    // Another library's handler may hold the allocator's lock: where there is nothing to do, nothing is done.
    if moving::is_any_unused()
        && let Some(service) = runtime::running()
    {
        service.everything().into_iter().for_each(|handler| handler.before_fork());
    }
}

/// After fork in the parent (pthread_atfork parent handler). Async-signal-safe.
pub fn after_fork_in_parent() {
    runtime::forked();
    datagram::forked();
}

/// After fork in the child (pthread_atfork child handler): everything inherited is forgotten as it is. Async-signal-safe, and without the
/// allocator. [`renew`] is to follow.
pub fn after_fork_in_child() {
    // First: it looks at descriptors by their marks.
    service::inherit();
    inherit_all(config::is_deferral_on());
    own::forget_all();
    exit::after_fork_in_child();
    stats::reset();
    log::renew();
}

/// In a forked child, as soon as its thread holds no lock: what threads that are not there have left locked is free.
pub fn renew(forked: &Forked) {
    fd::inherited::renew(forked);
    runtime::renew(forked);
    connect::renew(forked);
    wait::renew(forked);
    super::epoll::renew(forked);
}
