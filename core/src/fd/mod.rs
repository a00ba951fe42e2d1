//! Descriptor numbers (DESIGN: D5): number → description → socket.
//!
//! A look at a number that is not ours is one atomic load. A hit is a pin on the description: no lock. Only inserting and
//! removing take a lock, inside the slab.
#![forbid(unsafe_code)]

pub mod inherited;

use core::sync::atomic::{AtomicBool, AtomicU8, AtomicU32, AtomicU64, Ordering};
use std::{os::fd::RawFd, sync::Arc};

use crate::{
    poll::set::Set,
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

/// An epoll set: what dup shares of it.
pub struct SetDescription {
    /// The set.
    pub set: Arc<Set>,
    numbers: AtomicU32,
}

/// Set in the slots of epoll sets, whose descriptions are a table of their own.
const SET: u32 = 1 << 31;

/// In the slots of sockets that others have made and that nobody has called yet: of no description, and of no set.
const FOUND: u32 = SET;

/// 0: not ours. Else the description's index plus 1.
static SLOTS: [AtomicU32; NUMBERS] = [const { AtomicU32::new(0) }; NUMBERS];
/// No number from here on was ever ours.
static END: AtomicU32 = AtomicU32::new(0);
/// Numbers that were closed where that could not be done: entry and number. 0: nothing.
static LEFT: [AtomicU64; 64] = [const { AtomicU64::new(0) }; 64];
/// What calls have to look at when they end: there is something in [`LEFT`], and the process ends.
static LATER: AtomicU8 = AtomicU8::new(0);
const ANY_LEFT: u8 = 1;
const PROCESS_ENDS: u8 = 2;
static DESCRIPTIONS: Slab<Description> = Slab::new();
static SETS: Slab<SetDescription> = Slab::new();

/// A description that stays while this lives.
pub type Held = Pin<Description>;

/// An epoll set that stays while this lives.
pub type HeldSet = Pin<SetDescription>;

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
    // The index of a set's slot is beyond the table.
    DESCRIPTIONS.pin(entry.checked_sub(1)?, || slot.load(Ordering::Acquire) == entry)
}

/// Finds the epoll set of a number.
#[inline]
pub fn get_set(fd: RawFd) -> Option<HeldSet> {
    let slot = slot(fd)?;
    let entry = slot.load(Ordering::Acquire);
    SETS.pin(set_index(entry)?, || slot.load(Ordering::Acquire) == entry)
}

fn set_index(entry: u32) -> Option<u32> {
    if entry & SET == 0 { None } else { (entry & !SET).checked_sub(1) }
}

/// Gives a number to a new description. False: too many; the socket is the kernel's.
pub fn open(fd: RawFd, socket: Socket, nonblocking: bool) -> bool {
    forget(fd);
    let Some(slot) = slot(fd) else { return false };
    let description = Description { socket, nonblocking: AtomicBool::new(nonblocking), numbers: AtomicU32::new(1) };
    let Ok(index) = DESCRIPTIONS.insert(description) else { return false };
    enter(fd, slot, index + 1);
    true
}

/// Notes that a number has a socket that others have made, which may be [adopted](adopt).
pub fn find(fd: RawFd) {
    if let Some(slot) = slot(fd)
        && slot.compare_exchange(0, FOUND, Ordering::AcqRel, Ordering::Relaxed).is_ok()
    {
        END.fetch_max(fd as u32 + 1, Ordering::Relaxed);
    }
}

/// Whether that is noted of the number.
pub fn is_found(fd: RawFd) -> bool {
    slot(fd).is_some_and(|slot| slot.load(Ordering::Relaxed) == FOUND)
}

/// It is none to adopt: the number is the kernel's.
pub fn lose(fd: RawFd) {
    if let Some(slot) = slot(fd) {
        let _ = slot.compare_exchange(FOUND, 0, Ordering::AcqRel, Ordering::Relaxed);
    }
}

/// Gives a description to a number that was [found](find): this one, unless another thread was faster.
pub fn adopt(fd: RawFd, socket: Socket, nonblocking: bool) -> Option<Held> {
    let slot = slot(fd)?;
    let description = Description { socket, nonblocking: AtomicBool::new(nonblocking), numbers: AtomicU32::new(1) };
    let index = DESCRIPTIONS.insert(description).ok()?;
    if slot.compare_exchange(FOUND, index + 1, Ordering::AcqRel, Ordering::Relaxed).is_err()
        && let Some(unused) = DESCRIPTIONS.pin(index, || true)
    {
        DESCRIPTIONS.retire(&unused);
    }
    get(fd)
}

/// Gives a number to a new epoll set. False: too many; the set is the kernel's.
pub fn open_set(fd: RawFd, set: Arc<Set>) -> bool {
    forget(fd);
    let Some(slot) = slot(fd) else { return false };
    let Ok(index) = SETS.insert(SetDescription { set, numbers: AtomicU32::new(1) }) else { return false };
    enter(fd, slot, SET | (index + 1));
    true
}

fn enter(fd: RawFd, slot: &AtomicU32, entry: u32) {
    END.fetch_max(fd as u32 + 1, Ordering::Relaxed);
    slot.store(entry, Ordering::Release);
}

/// What dup gives another number to.
pub enum Shared {
    /// A socket.
    Socket(Held),
    /// An epoll set.
    Set(HeldSet),
}

impl Shared {
    /// One more number for it.
    pub fn share(&self, fd: RawFd) {
        match self {
            Shared::Socket(held) => share(held, fd),
            Shared::Set(held) => share_set(held, fd),
        }
    }
}

/// One more number for a description.
fn share(held: &Held, fd: RawFd) {
    forget(fd);
    let Some(slot) = slot(fd) else { return };
    held.numbers.fetch_add(1, Ordering::AcqRel);
    enter(fd, slot, held.index() + 1);
}

/// One more number for an epoll set.
fn share_set(held: &HeldSet, fd: RawFd) {
    forget(fd);
    let Some(slot) = slot(fd) else { return };
    held.numbers.fetch_add(1, Ordering::AcqRel);
    enter(fd, slot, SET | (held.index() + 1));
}

/// Each number that has a description.
pub fn each(mut see: impl FnMut(RawFd, &Held)) {
    for number in 0..END.load(Ordering::Relaxed) as RawFd {
        if let Some(held) = get(number) {
            see(number, &held);
        }
    }
}

/// Takes a number out of the table. With the last one the description is retired and returned. (A set ends with its last number and
/// the last wait in it.)
pub fn remove(fd: RawFd) -> Option<Held> {
    give_up(slot(fd)?.swap(0, Ordering::AcqRel), fd)
}

/// Takes a number out of the table, for a signal handler that has interrupted its thread where nothing of the rest can be done: that is
/// left to [`finish_left`]. (Where too many are left at once, the connection stays until the process ends.)
pub fn leave(fd: RawFd) {
    let Some(slot) = slot(fd) else { return };
    let entry = u64::from(slot.swap(0, Ordering::AcqRel)) << 32 | u64::from(fd as u32);
    if LEFT.iter().any(|place| place.compare_exchange(0, entry, Ordering::AcqRel, Ordering::Relaxed).is_ok()) {
        LATER.fetch_or(ANY_LEFT, Ordering::Release);
    }
}

/// Whether there is something for [`finish_left`].
#[inline(always)]
pub fn is_any_left() -> bool {
    LATER.load(Ordering::Relaxed) != 0
}

/// Whoever calls from now on is to look whether the process [ends](crate::calls::exit).
pub fn look_at_end(ends: bool) {
    if ends {
        LATER.fetch_or(PROCESS_ENDS, Ordering::AcqRel);
    } else {
        LATER.fetch_and(!PROCESS_ENDS, Ordering::AcqRel);
    }
}

/// [`is_any_left`] says so, until it is seen to.
pub fn leave_something() {
    LATER.fetch_or(ANY_LEFT, Ordering::Release);
}

/// Closes what was [left](leave).
#[cold]
pub fn finish_left() {
    LATER.fetch_and(!ANY_LEFT, Ordering::AcqRel);
    for place in &LEFT {
        let entry = place.swap(0, Ordering::AcqRel);
        if let Some(last) = give_up((entry >> 32) as u32, entry as u32 as RawFd) {
            last.socket.close(false);
        }
    }
}

/// One number less for the description of this entry.
fn give_up(entry: u32, fd: RawFd) -> Option<Held> {
    if let Some(index) = set_index(entry) {
        let held = SETS.pin(index, || true)?;
        if held.numbers.fetch_sub(1, Ordering::AcqRel) == 1 {
            if held.set.is_inherited() {
                held.set.let_go();
            } else {
                SETS.retire(&held);
            }
        }
        return None;
    }
    let held = DESCRIPTIONS.pin(entry.checked_sub(1)?, || true)?;
    if held.numbers.fetch_sub(1, Ordering::AcqRel) != 1 {
        held.socket.number_closed(fd);
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

/// The description has these numbers, too, of those that were [found](find).
pub fn share_found(held: &Held, same: impl Fn(RawFd) -> bool) {
    for number in 0..END.load(Ordering::Relaxed) as RawFd {
        if is_found(number) && same(number) {
            share(held, number);
        }
    }
}

impl Description {
    /// Its last number is closed.
    pub fn is_closed(&self) -> bool {
        self.numbers.load(Ordering::Acquire) == 0
    }

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
    fn what_was_left_is_closed_later() {
        let (one, two) = (900_011, 900_012);
        assert!(open(one, fresh(), false));
        let held = get(one).unwrap();
        share(&held, two);
        leave(one);
        assert!(!is_ours(one) && is_ours(two) && is_any_left());
        assert!(open(one, fresh(), false), "the number is given out again");
        leave(two);
        assert_eq!(held.numbers.load(Ordering::Relaxed), 2);
        finish_left();
        assert!(!is_any_left() && is_ours(one));
        assert_eq!(held.numbers.load(Ordering::Relaxed), 0);
        assert!(remove(one).is_some());
    }

    #[test]
    fn odd_numbers_are_never_ours() {
        for fd in [-1, i32::MIN, i32::MAX, NUMBERS as i32] {
            assert!(!is_ours(fd) && get(fd).is_none());
            assert!(!open(fd, fresh(), false));
        }
    }
}
