//! epoll sets: the members that are rsockets are the library's, the others the kernel's (`poll::set`).

use core::time::Duration;
use std::{os::fd::RawFd, sync::Arc};

use libc::{EPOLL_CTL_ADD, EPOLL_CTL_DEL, EPOLL_CTL_MOD};

use super::{Route, deferred, inherited, ours, poll::SignalMask, socket::stop_listening};
pub use crate::poll::set::sift_unknown;
pub use crate::sys::epoll::Event;
use crate::{
    error::{Errno, Result},
    fd::{self, Held},
    log_info,
    poll::set::Set,
    socket::Role,
    stats::{self, Counter},
    sys::{epoll, lock::Lock, owner::Forked},
};

/// epoll_create(2) has given this number.
pub fn created(number: RawFd) {
    fd::open_set(number, Set::new());
}

/// epoll_ctl(2). `event` is `None` for NULL.
pub fn control(number: RawFd, operation: i32, fd: RawFd, event: Option<Event>) -> Route<i32> {
    // "EINVAL … fd is the same as epfd"
    if number == fd {
        return Route::Kernel;
    }
    inherited::listens(fd);
    let held = if operation == EPOLL_CTL_ADD { deferred::used(fd) } else { ours(fd) };
    match held {
        // What it accepts is the library's, but not what happens to it.
        Some(held) if held.socket.role() == Role::KernelListener => control_other(number, operation, fd, event),
        None if fd::get_set(number).is_some_and(|known| known.set.is_inherited()) && inherited::is_lost(fd) => control_lost(operation, fd),
        Some(held) => control_socket(number, operation, fd, &held, event),
        None => control_other(number, operation, fd, event),
    }
}

/// A lost connection in an ancestor's set, in which the kernel's socket must not come: it would be an event of the ancestor's.
fn control_lost(operation: i32, fd: RawFd) -> Route<i32> {
    match operation {
        EPOLL_CTL_ADD => return Route::err(Errno::NOMEM),
        EPOLL_CTL_DEL => inherited::quiet(fd),
        _ => {}
    }
    Route::ok(0)
}

fn control_socket(number: RawFd, operation: i32, fd: RawFd, held: &Held, event: Option<Event>) -> Route<i32> {
    let socket = &held.socket;
    let known = fd::get_set(number);
    let set = known.as_ref().map(|known| &known.set);
    match (operation, event, set) {
        (EPOLL_CTL_ADD, Some(event), set) => {
            let added = match set {
                Some(set) if set.is_inherited() => Err(Errno::MFILE),
                Some(set) => set.add(number, fd, socket, event).inspect(|()| {
                    // Another thread may have closed it before it was watched.
                    if held.is_closed() {
                        set.remove_closed(fd, socket);
                    }
                }),
                None => adopt(number, fd, held, event),
            };
            match added {
                Err(Errno::MFILE | Errno::NFILE | Errno::NOMEM) => left_to_kernel(fd, held),
                other => done(other),
            }
        }
        (EPOLL_CTL_MOD, Some(event), Some(set)) if set.has(fd, socket) => done(set.modify(fd, socket, event)),
        (EPOLL_CTL_DEL, _, Some(set)) if set.has(fd, socket) => done(set.remove(fd, socket)),
        // It is no member, or one of the kernel's; and what is wrong with the arguments the kernel says.
        _ => Route::Kernel,
    }
}

fn done(result: Result<()>) -> Route<i32> {
    result.map(|()| 0).into()
}

/// One thread at a time adopts a set.
static ADOPTING: Lock<()> = Lock::new(());

/// In a forked child: see [`Lock::renew`].
pub(super) fn renew(forked: &Forked) {
    ADOPTING.renew(forked);
}

/// A set that was made past the hooks: inherited by exec, or by a system call of its own.
fn adopt(number: RawFd, fd: RawFd, held: &Held, event: Event) -> Result<()> {
    let _one = ADOPTING.lock()?;
    if let Some(known) = fd::get_set(number) {
        return known.set.add(number, fd, &held.socket, event);
    }
    let set = Set::new();
    set.add(number, fd, &held.socket, event)?;
    fd::open_set(number, set);
    Ok(())
}

/// There is no descriptor left for what the set needs, or the set is the parent process's: what is not connected yet is left to TCP.
fn left_to_kernel(fd: RawFd, held: &Held) -> Route<i32> {
    let socket = &held.socket;
    match (socket.role(), socket.listener()) {
        (Role::Stream, _) => return Route::err(Errno::NOMEM),
        (Role::Listener, Some(listener)) if listener.kernel_listens() => stop_listening(socket, listener),
        (Role::Fresh, _) => socket.become_kernel(),
        _ => return Route::Kernel,
    }
    log_info!("descriptor {fd} is left to TCP: its epoll set cannot have it otherwise");
    stats::add(Counter::FallbackLimit, 1);
    Route::Kernel
}

/// The member is the kernel's. If it is a set, ours may be among its members.
fn control_other(number: RawFd, operation: i32, fd: RawFd, event: Option<Event>) -> Route<i32> {
    let Some(outer) = fd::get_set(number).filter(|outer| !outer.set.is_inherited()) else { return Route::Kernel };
    if let (EPOLL_CTL_ADD | EPOLL_CTL_MOD, Some(event)) = (operation, event) {
        outer.set.avoid(event.u64);
    }
    let Some(inner) = fd::get_set(fd).filter(|inner| !Arc::ptr_eq(&inner.set, &outer.set)) else { return Route::Kernel };
    match operation {
        EPOLL_CTL_ADD if event.is_some() => {
            done(epoll::control(number, operation, fd, event).and_then(|()| {
                // There is no descriptor left for what the outer set needs.
                outer.set.nest(number, &inner.set).map_err(|_| {
                    let _ = epoll::control(number, EPOLL_CTL_DEL, fd, None);
                    Errno::NOMEM
                })
            }))
        }
        EPOLL_CTL_DEL => {
            let taken = epoll::control(number, operation, fd, event);
            if taken.is_ok() {
                outer.set.part(&inner.set);
            }
            done(taken)
        }
        _ => Route::Kernel,
    }
}

/// epoll_wait(2), epoll_pwait(2), epoll_pwait2(2): `timeout` `None` waits for ever; `mask` is put in place for the wait.
/// `Kernel` while no member is an rsocket: what the kernel gives then, be it nothing or an error, goes through [`sift`].
pub fn wait(number: RawFd, events: &mut [Event], timeout: Option<Duration>, mask: Option<SignalMask>) -> Route<usize> {
    match fd::get_set(number) {
        Some(held) if held.set.is_inherited() => wait_inherited(&held.set, events, timeout, mask),
        Some(held) if !held.set.leaves_to_kernel() => held.set.wait(events, timeout, mask).into(),
        _ => Route::Kernel,
    }
}

/// A wait in an ancestor's set: what the kernel has there, and that connections are lost.
fn wait_inherited(set: &Set, events: &mut [Event], timeout: Option<Duration>, mask: Option<SignalMask>) -> Route<usize> {
    let lost = set.lost(inherited::event_of_member);
    let timeout = if lost.is_empty() { timeout } else { Some(Duration::ZERO) };
    let kernels = match set.wait_inherited(events, timeout, mask) {
        None => return Route::Kernel,
        Some(Err(errno)) => return Route::err(errno),
        Some(Ok(found)) => found,
    };
    let mut found = kernels;
    for (place, (fd, event, once)) in events.iter_mut().skip(kernels).zip(lost) {
        *place = event;
        found += 1;
        if once {
            inherited::quiet(fd);
        }
    }
    Route::ok(found)
}

/// The kernel has found so many `events` in a wait that was left to it, no more than there were at first. Says how many of them are the program's: an rsocket may have come
/// into the set meanwhile. If that is none, the wait is to be made again.
pub fn sift(number: RawFd, events: &mut [Event], found: usize) -> usize {
    match fd::get_set(number) {
        Some(held) => held.set.sift(events, found),
        None => sift_unknown(events, found),
    }
}
