//! Which numbers are the library's own descriptors: a program that closes all it has, or all numbers that there are, must not close these.
//!
//! A count a number: when one is closed and another thread gets the number again, the new mark may come before the old one goes. Beside the
//! count stands whether forked children keep it open.

use core::{
    mem::ManuallyDrop,
    sync::atomic::{AtomicBool, AtomicI32, AtomicU8, AtomicUsize, Ordering},
};

use rustix::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd, RawFd};

/// The bit of what children keep, above the count.
const KEPT: u8 = 0x80;
/// Numbers above this are not known.
const NUMBERS: usize = 1 << 20;

static MARKS: [AtomicU8; NUMBERS] = [const { AtomicU8::new(0) }; NUMBERS];
/// No number from here on was ever marked.
static END: AtomicI32 = AtomicI32::new(0);
/// See [`keep_all_in_children`].
static KEEP_ALL: AtomicBool = AtomicBool::new(false);
/// Threads of the library's own.
static THREADS: AtomicUsize = AtomicUsize::new(0);

#[inline(always)]
fn count(fd: RawFd) -> Option<&'static AtomicU8> {
    MARKS.get(fd as u32 as usize)
}

/// Whether the number is the library's own.
#[inline(always)]
pub fn is_own(fd: RawFd) -> bool {
    count(fd).is_some_and(|count| count.load(Ordering::Relaxed) != 0)
}

/// The number is the library's, until [`unmark`].
pub fn mark(fd: RawFd) {
    let Some(count) = count(fd) else { return };
    END.fetch_max(fd.saturating_add(1), Ordering::Relaxed);
    let _ = count.fetch_update(Ordering::Release, Ordering::Relaxed, |marks| (marks & !KEPT < !KEPT).then_some(marks + 1));
}

/// Forked children keep it open, see [`forget_all`].
pub fn keep_in_children(fd: RawFd) {
    if let Some(count) = count(fd).filter(|_| is_own(fd)) {
        count.fetch_or(KEPT, Ordering::Relaxed);
    }
}

/// A library of others holds on to descriptors that it has, and would use their numbers in a child too: children keep all.
pub fn keep_all_in_children() {
    KEEP_ALL.store(true, Ordering::Relaxed);
}

/// The number is the library's until the kernel gives it to the program: for a descriptor whose owner does not say when it is closed.
pub fn mark_for_good(fd: RawFd) {
    if !is_own(fd) {
        mark(fd);
    }
}

/// The descriptor under the number was closed.
pub fn unmark(fd: RawFd) {
    let Some(count) = count(fd) else { return };
    let fewer = |marks: u8| if marks & !KEPT <= 1 { Some(0) } else { Some(marks - 1) };
    let _ = count.fetch_update(Ordering::Release, Ordering::Relaxed, fewer);
}

/// The kernel has given the number to the program: whatever the library had there is closed.
#[inline(always)]
pub fn release(fd: RawFd) {
    if is_own(fd)
        && let Some(count) = count(fd)
    {
        count.store(0, Ordering::Release);
    }
}

/// The lowest own number of those from `first` to `last`.
pub fn next(first: RawFd, last: RawFd) -> Option<RawFd> {
    let end = END.load(Ordering::Relaxed).min(last.saturating_add(1));
    (first..end).find(|fd| is_own(*fd))
}

/// In a forked child: what was inherited is of no use, but for what is to be [kept](keep_in_children). It is closed, so that peers see the
/// parent's end when the parent ends, however long the child lives.
pub fn forget_all() {
    for (fd, count) in (0..END.load(Ordering::Relaxed)).zip(&MARKS) {
        let marks = count.load(Ordering::Relaxed);
        if marks == 0 || marks & KEPT != 0 {
            continue;
        }
        if KEEP_ALL.load(Ordering::Relaxed) {
            count.store(0, Ordering::Relaxed);
        } else {
            close(fd);
        }
    }
    THREADS.store(0, Ordering::Relaxed);
}

/// Closes a descriptor of the library's by its number.
pub fn close(fd: RawFd) {
    if is_own(fd) {
        release(fd);
        let _ = super::kernel::close(fd);
    }
}

/// A thread of the library begins.
pub fn thread_begins() {
    THREADS.fetch_add(1, Ordering::Relaxed);
}

/// How many threads there are of the library's own.
pub fn threads() -> usize {
    THREADS.load(Ordering::Relaxed)
}

/// A descriptor of the library's own.
#[derive(Debug)]
pub struct OwnFd(ManuallyDrop<OwnedFd>);

impl OwnFd {
    /// Out of the program's way, as by `descriptor::lift`.
    pub fn lifted(self) -> Self {
        let base = super::descriptor::base();
        if self.as_raw_fd() >= base {
            return self;
        }
        rustix::io::fcntl_dupfd_cloexec(&self, base).map_or(self, OwnFd::from)
    }
}

impl From<OwnedFd> for OwnFd {
    fn from(fd: OwnedFd) -> Self {
        mark(fd.as_raw_fd());
        OwnFd(ManuallyDrop::new(fd))
    }
}

impl Drop for OwnFd {
    fn drop(&mut self) {
        let number = self.as_raw_fd();
        // Closed behind the library's back, or in a forked child: by now it may be another descriptor.
        let is_gone = count(number).is_some_and(|count| count.load(Ordering::Relaxed) == 0);
        if !is_gone {
            // SAFETY: dropped once, here, and not used afterwards.
            unsafe { ManuallyDrop::drop(&mut self.0) };
            unmark(number);
        }
    }
}

impl AsFd for OwnFd {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}

impl AsRawFd for OwnFd {
    fn as_raw_fd(&self) -> RawFd {
        self.0.as_raw_fd()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Numbers that no descriptor of the test program has.
    const BASE: RawFd = 800_000;

    #[test]
    fn marks_count() {
        let (one, other) = (BASE + 1, BASE + 5);
        assert!(!is_own(one));
        mark(one);
        mark(one);
        unmark(one);
        assert!(is_own(one));
        mark_for_good(other);
        mark_for_good(other);
        assert_eq!((next(BASE, BASE + 9), next(one + 1, RawFd::MAX), next(BASE, BASE)), (Some(one), Some(other), None));
        unmark(one);
        unmark(one);
        release(other);
        assert!(!is_own(one) && !is_own(other) && next(BASE, RawFd::MAX).is_none());
    }

    #[test]
    fn odd_numbers_are_nobodys() {
        for fd in [-1, RawFd::MIN, RawFd::MAX, NUMBERS as RawFd] {
            mark(fd);
            assert!(!is_own(fd));
            unmark(fd);
        }
    }

    #[test]
    fn a_descriptor_is_marked_as_long_as_it_lives() {
        let event = rustix::event::eventfd(0, rustix::event::EventfdFlags::CLOEXEC).unwrap();
        let high = rustix::io::fcntl_dupfd_cloexec(&event, 900).unwrap();
        let number = high.as_raw_fd();
        let own = OwnFd::from(high);
        assert!(is_own(number));
        drop(own);
        assert!(!is_own(number));
    }

    #[test]
    fn what_is_not_marked_is_not_closed() {
        let event = rustix::event::eventfd(0, rustix::event::EventfdFlags::CLOEXEC).unwrap();
        let number = event.as_raw_fd();
        let own = OwnFd::from(event);
        // The program has the number now.
        release(number);
        drop(own);
        let still = super::super::descriptor::borrow(number).unwrap();
        assert!(rustix::io::fcntl_getfd(still).is_ok());
        assert!(!is_own(number));
        close(number);
        assert!(rustix::io::fcntl_getfd(still).is_ok(), "it is the program's");
        mark(number);
        close(number);
        assert!(rustix::io::fcntl_getfd(still).is_err());
    }

    #[test]
    fn what_children_keep_is_a_mark_like_others() {
        let one = BASE + 20;
        keep_in_children(one);
        assert!(!is_own(one));
        mark(one);
        keep_in_children(one);
        mark(one);
        unmark(one);
        assert!(is_own(one));
        unmark(one);
        assert!(!is_own(one));
    }
}
