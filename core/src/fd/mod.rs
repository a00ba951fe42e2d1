//! Descriptor numbers (DESIGN: D5): number → description → socket.
//!
//! A look at a number that is not ours is one atomic load. A hit is a pin on the description: no lock. Only inserting and
//! removing take a lock, inside the slab.
#![forbid(unsafe_code)]

use core::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::os::fd::RawFd;

use crate::{
    socket::Socket,
    sys::slab::{Pin, Slab},
};

/// Numbers above this are never ours: their sockets stay with the kernel.
const NUMBERS: usize = 1 << 20;

/// An open file description: what dup shares.
pub struct Description {
    /// The socket.
    pub socket: Socket,
    nonblocking: AtomicBool,
    numbers: AtomicU32,
}

/// 0: not ours. Else the description's index plus 1.
static SLOTS: [AtomicU32; NUMBERS] = [const { AtomicU32::new(0) }; NUMBERS];
/// No number from here on was ever ours.
static END: AtomicU32 = AtomicU32::new(0);
static DESCRIPTIONS: Slab<Description> = Slab::new();

/// A description that stays while this lives.
pub type Held = Pin<Description>;

#[inline(always)]
fn slot(fd: RawFd) -> Option<&'static AtomicU32> {
    SLOTS.get(fd as u32 as usize)
}

/// Whether the number is ours.
#[inline(always)]
pub fn is_ours(fd: RawFd) -> bool {
    slot(fd).is_some_and(|slot| slot.load(Ordering::Relaxed) != 0)
}

/// Finds the description of a number.
#[inline]
pub fn get(fd: RawFd) -> Option<Held> {
    let slot = slot(fd)?;
    let entry = slot.load(Ordering::Acquire);
    DESCRIPTIONS.pin(entry.checked_sub(1)?, || slot.load(Ordering::Acquire) == entry)
}

/// Gives a number to a new description. False: too many; the socket is the kernel's.
pub fn open(fd: RawFd, socket: Socket, nonblocking: bool) -> bool {
    forget(fd);
    let Some(slot) = slot(fd) else { return false };
    let description = Description { socket, nonblocking: AtomicBool::new(nonblocking), numbers: AtomicU32::new(1) };
    let Ok(index) = DESCRIPTIONS.insert(description) else { return false };
    enter(fd, slot, index);
    true
}

fn enter(fd: RawFd, slot: &AtomicU32, index: u32) {
    END.fetch_max(fd as u32 + 1, Ordering::Relaxed);
    slot.store(index + 1, Ordering::Release);
}

/// One more number for a description.
pub fn share(held: &Held, fd: RawFd) {
    forget(fd);
    let Some(slot) = slot(fd) else { return };
    held.numbers.fetch_add(1, Ordering::AcqRel);
    enter(fd, slot, held.index());
}

/// Takes a number out of the table. With the last one the description is retired and returned.
pub fn remove(fd: RawFd) -> Option<Held> {
    let entry = slot(fd)?.swap(0, Ordering::AcqRel);
    let held = DESCRIPTIONS.pin(entry.checked_sub(1)?, || true)?;
    if held.numbers.fetch_sub(1, Ordering::AcqRel) != 1 {
        return None;
    }
    DESCRIPTIONS.retire(&held);
    Some(held)
}

/// Drops what is known of a number, as close does, without waiting.
pub fn forget(fd: RawFd) {
    if is_ours(fd)
        && let Some(last) = remove(fd)
    {
        last.socket.close(false);
    }
}

/// Empties the table without closing anything: in a forked child the sockets are the parent's.
pub fn forget_all() {
    for slot in SLOTS.iter().take(END.load(Ordering::Relaxed) as usize) {
        if slot.load(Ordering::Relaxed) != 0 {
            slot.store(0, Ordering::Relaxed);
        }
    }
}

impl Description {
    /// O_NONBLOCK.
    pub fn is_nonblocking(&self) -> bool {
        self.nonblocking.load(Ordering::Relaxed)
    }

    /// Notes O_NONBLOCK, which the kernel's socket has too.
    pub fn set_nonblocking(&self, on: bool) {
        self.nonblocking.store(on, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::socket::{Origin, options::Options};

    fn fresh() -> Socket {
        Socket::new(libc::AF_INET, Origin::Preload, Options::default())
    }

    #[test]
    fn numbers_share_a_description() {
        let (one, two) = (900_001, 900_002);
        assert!(!is_ours(one) && get(one).is_none());
        assert!(open(one, fresh(), false));
        let held = get(one).unwrap();
        share(&held, two);
        held.set_nonblocking(true);
        assert!(get(two).unwrap().is_nonblocking());
        assert!(remove(one).is_none(), "the other number keeps it");
        assert!(!is_ours(one) && is_ours(two));
        assert!(remove(two).is_some());
        assert!(get(two).is_none() && remove(two).is_none());
    }

    #[test]
    fn odd_numbers_are_never_ours() {
        for fd in [-1, i32::MIN, i32::MAX, NUMBERS as i32] {
            assert!(!is_ours(fd) && get(fd).is_none());
            assert!(!open(fd, fresh(), false));
        }
    }
}
