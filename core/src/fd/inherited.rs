//! What a forked child knows of its parent's sockets: no more than that they are its parent's.
//!
//! The objects are neither looked at nor closed, and no lock of theirs is taken. A connection over a fabric cannot be used by two processes: the
//! child's number stands for a connection that is lost ([`Inherited::Connection`]). A listener is the kernel's in the child, who tells when it is
//! used there ([`Inherited::Listener`]). The parent's epoll sets stay known: the kernel may report there what is meant for the parent.

use core::sync::atomic::Ordering;
use std::os::fd::RawFd;

use super::{DESCRIPTIONS, END, FOUND, LATER, LEFT, SET, SETS, SLOTS, enter, forget, set_index, slot};
use crate::{
    socket::{Role, Socket},
    sys::owner::Forked,
};

/// Entries of the table that no description has.
const CONNECTION: u32 = SET - 1;
const QUIET_CONNECTION: u32 = SET - 2;
const LISTENER: u32 = SET - 3;

/// Whose a number is that is an ancestor's.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Inherited {
    /// A connection over a fabric.
    Connection,
    /// The same, and the parent's epoll sets are to say no more of it.
    QuietConnection,
    /// A listener that is a fabric's too.
    Listener,
}

impl Inherited {
    fn entry(self) -> u32 {
        match self {
            Inherited::Connection => CONNECTION,
            Inherited::QuietConnection => QUIET_CONNECTION,
            Inherited::Listener => LISTENER,
        }
    }

    /// Whether it is a connection.
    pub fn is_connection(self) -> bool {
        self != Inherited::Listener
    }

    /// What becomes of a socket in a child. `None`: it is the kernel's alone.
    fn of(socket: &Socket) -> Option<Self> {
        match socket.role() {
            Role::Stream => socket.live_stream().map(|_| Inherited::Connection),
            Role::Listener => socket.listener().filter(|listener| listener.kernel_listens()).map(|_| Inherited::Listener),
            Role::Fresh | Role::Kernel | Role::KernelListener | Role::Deferred | Role::Datagram => None,
        }
    }
}

fn of_entry(entry: u32) -> Option<Inherited> {
    match entry {
        CONNECTION => Some(Inherited::Connection),
        QUIET_CONNECTION => Some(Inherited::QuietConnection),
        LISTENER => Some(Inherited::Listener),
        _ => None,
    }
}

/// What this number is, if it is an ancestor's.
pub fn get(fd: RawFd) -> Option<Inherited> {
    of_entry(slot(fd)?.load(Ordering::Relaxed))
}

/// Notes what this number is from now on: a duplicate of an ancestor's.
pub fn note(fd: RawFd, what: Inherited) {
    forget(fd);
    if let Some(slot) = slot(fd) {
        enter(fd, slot, what.entry());
    }
}

/// The parent's epoll sets say no more of it.
pub fn quiet(fd: RawFd) {
    if let Some(slot) = slot(fd) {
        let _ = slot.compare_exchange(CONNECTION, QUIET_CONNECTION, Ordering::Relaxed, Ordering::Relaxed);
    }
}

/// What no fabric has touched may be adopted in the child, where connections move (`calls::adopt`); and the child has to look at what comes by a
/// socket for datagrams, where peers may ask.
fn is_to_be_adopted(socket: &Socket, move_later: bool) -> bool {
    match socket.role() {
        Role::Fresh | Role::KernelListener | Role::Deferred => move_later,
        Role::Datagram => socket.datagram().is_some_and(|datagram| datagram.speaks()),
        Role::Stream | Role::Listener | Role::Kernel => false,
    }
}

/// In a forked child: all numbers are an ancestor's. Async-signal-safe, and without the allocator, whose locks may be the parent's still.
/// `move_later`: its connections move when they are first used.
pub fn inherit_all(move_later: bool) {
    for slot in SLOTS.iter().take(END.load(Ordering::Relaxed) as usize) {
        let entry = slot.load(Ordering::Relaxed);
        match set_index(entry) {
            Some(index) => SETS.pin(index, || true).iter().for_each(|held| held.set.inherit()),
            None if entry == 0 || entry == FOUND || of_entry(entry).is_some() => {}
            None => {
                let held = DESCRIPTIONS.pin(entry - 1, || true);
                let what = held.as_ref().and_then(|held| Inherited::of(&held.socket));
                let found = held.as_ref().is_some_and(|held| is_to_be_adopted(&held.socket, move_later));
                // For ever: what its last pin would take away is the parent's.
                core::mem::forget(held);
                slot.store(if found { FOUND } else { what.map_or(0, Inherited::entry) }, Ordering::Relaxed);
            }
        }
    }
    LEFT.iter().for_each(|place| place.store(0, Ordering::Relaxed));
    LATER.store(0, Ordering::Relaxed);
}

/// In a forked child: the tables are free of threads that are not there.
pub fn renew(forked: &Forked) {
    DESCRIPTIONS.renew(forked);
    SETS.renew(forked);
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fd;

    #[test]
    fn entries_are_no_descriptions() {
        let one = 900_031;
        for what in [Inherited::Connection, Inherited::QuietConnection, Inherited::Listener] {
            note(one, what);
            assert_eq!((get(one), fd::is_ours(one)), (Some(what), true));
            assert!(fd::get(one).is_none() && fd::get_set(one).is_none());
            assert_eq!(what.is_connection(), what != Inherited::Listener);
        }
        quiet(one);
        assert_eq!(get(one), Some(Inherited::Listener));
        note(one, Inherited::Connection);
        quiet(one);
        assert_eq!(get(one), Some(Inherited::QuietConnection));
        assert!(fd::remove(one).is_none(), "nothing is to be closed");
        assert_eq!((get(one), fd::is_ours(one)), (None, false));
        assert_eq!(get(-1), None);
    }
}
