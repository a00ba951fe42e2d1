//! Memory that the program has lent for as long as it likes: to be written by its peer. It may be gone, or be something else, when bytes
//! come for it, so that nobody but the kernel touches it, who looks first.

use rustix::fd::{AsRawFd, BorrowedFd};

use super::kernel::call;
use crate::error::{Errno, Result};

/// No mapping has smaller pages.
const PAGE: usize = 4096;

/// Linux 5.14: "Populate (prefault) page tables", readable or writable.
const MADV_POPULATE_READ: i32 = 22;
const MADV_POPULATE_WRITE: i32 = 23;

/// So many bytes at an address of the program's.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Span {
    start: usize,
    len: usize,
}

impl Span {
    /// # Safety
    /// As long as it, or what is made of it, is [filled](Span::fill_from), the program must expect that these bytes change, if it has memory
    /// there: no reference of Rust's may lead there.
    pub unsafe fn new(start: usize, len: usize) -> Self {
        Span { start, len }
    }

    /// One that is never filled.
    #[cfg(test)]
    pub(crate) fn unused(start: usize, len: usize) -> Self {
        Span { start, len }
    }

    /// The address.
    pub fn start(self) -> usize {
        self.start
    }

    /// Bytes.
    pub fn len(self) -> usize {
        self.len
    }

    /// Whether it has no bytes.
    pub fn is_empty(self) -> bool {
        self.len == 0
    }

    /// Where another span begins that lies within.
    pub fn position_of(self, other: Span) -> Option<usize> {
        let at = other.start.checked_sub(self.start)?;
        (at.checked_add(other.len)? <= self.len).then_some(at)
    }

    /// `len` bytes at `offset`, if they lie within.
    pub fn part(self, offset: u64, len: u32) -> Option<Span> {
        let (offset, len) = (usize::try_from(offset).ok()?, usize::try_from(len).ok()?);
        (offset.checked_add(len)? <= self.len).then_some(Span { start: self.start.checked_add(offset)?, len })
    }

    /// EFAULT unless all of it can be read, or written. Its pages are there afterwards, as with memory that a device may write. Before
    /// Linux 5.14 nobody can tell.
    pub fn populate(self, writable: bool) -> Result<()> {
        let advice = if writable { MADV_POPULATE_WRITE } else { MADV_POPULATE_READ };
        let first = self.start & !(PAGE - 1);
        let len = self.start.checked_add(self.len).ok_or(Errno::FAULT)? - first;
        loop {
            // SAFETY: changes nothing that a program could see.
            match unsafe { call!(libc::SYS_madvise, first, len, advice) } {
                Ok(_) => return Ok(()),
                Err(Errno::INTR | Errno::AGAIN) => {}
                // madvise(2): EINVAL is also what a kernel says that does not know the advice, even of nothing.
                // SAFETY: as above.
                Err(Errno::INVAL) if unsafe { call!(libc::SYS_madvise, first, 0_usize, advice) }.is_err() => return Ok(()),
                Err(Errno::INVAL | Errno::NOMEM | Errno::FAULT) => return Err(Errno::FAULT),
                Err(errno) => return Err(errno),
            }
        }
    }

    /// Reads into it from a file, as far as there is memory.
    pub fn fill_from(self, file: BorrowedFd<'_>, at: u64) {
        let mut done = 0;
        while done < self.len {
            let at = i64::try_from(at).unwrap_or(i64::MAX).saturating_add(done as i64);
            // SAFETY: the kernel writes only where the process has memory, and the program expects that (the promise of `new`).
            match unsafe { call!(libc::SYS_pread64, file.as_raw_fd(), self.start + done, self.len - done, at) } {
                Ok(0) | Err(_) => return,
                Ok(count) => done += count,
            }
        }
    }

    /// Writes it to a file. EFAULT: there is no memory, or not all of it may be read.
    pub fn pour_into(self, file: BorrowedFd<'_>, at: u64) -> Result<()> {
        let mut done = 0;
        while done < self.len {
            let at = i64::try_from(at).unwrap_or(i64::MAX).saturating_add(done as i64);
            // SAFETY: the kernel reads only where the process has memory.
            match unsafe { call!(libc::SYS_pwrite64, file.as_raw_fd(), self.start + done, self.len - done, at) } {
                Ok(0) => return Err(Errno::IO),
                Ok(count) => done += count,
                Err(Errno::INTR) => {}
                Err(errno) => return Err(errno),
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use rustix::fd::AsFd;

    use super::*;

    /// Two pages, of which the second has no memory or another protection.
    fn pages(second: Option<i32>) -> usize {
        // SAFETY: a fresh mapping at a place of the kernel's choice.
        let start = unsafe {
            libc::mmap(core::ptr::null_mut(), 2 * PAGE, libc::PROT_READ | libc::PROT_WRITE, libc::MAP_PRIVATE | libc::MAP_ANONYMOUS, -1, 0)
        };
        assert_ne!(start, libc::MAP_FAILED);
        let page = start.wrapping_byte_add(PAGE);
        let done = match second {
            // SAFETY: the second page, of which nothing is used.
            None => unsafe { libc::munmap(page, PAGE) },
            // SAFETY: as above.
            Some(protection) => unsafe { libc::mprotect(page, PAGE, protection) },
        };
        assert_eq!(done, 0);
        start.addr()
    }

    fn span(start: usize, len: usize) -> Span {
        // SAFETY: only spans of `pages` are filled.
        unsafe { Span::new(start, len) }
    }

    #[test]
    fn what_is_no_memory_is_told() {
        for (second, readable, writable) in [
            (None, Err(Errno::FAULT), Err(Errno::FAULT)),
            (Some(libc::PROT_READ), Ok(()), Err(Errno::FAULT)),
            (Some(libc::PROT_READ | libc::PROT_WRITE), Ok(()), Ok(())),
        ] {
            let start = pages(second);
            assert_eq!(span(start + 5, PAGE - 5).populate(true), Ok(()));
            let over = span(start + 5, PAGE);
            assert_eq!((over.populate(false), over.populate(true)), (readable, writable), "{second:?}");
        }
        assert_eq!(span(usize::MAX, 2).populate(true), Err(Errno::FAULT));
    }

    #[test]
    fn is_filled_as_far_as_it_is_there() {
        let file = rustix::fs::memfd_create("fill", rustix::fs::MemfdFlags::CLOEXEC).unwrap();
        let bytes: Vec<u8> = (0..2 * PAGE).map(|at| at as u8).collect();
        assert_eq!(rustix::io::pwrite(&file, &bytes, 0), Ok(2 * PAGE));
        let start = pages(None);
        span(start + PAGE - 9, 100).fill_from(file.as_fd(), 3);
        // SAFETY: the first page of the mapping.
        let page = unsafe { core::slice::from_raw_parts(core::ptr::with_exposed_provenance::<u8>(start), PAGE) };
        assert_eq!(page[PAGE - 9..], bytes[3..12]);
        assert!(page[..PAGE - 9].iter().all(|byte| *byte == 0));
    }

    #[test]
    fn parts() {
        let whole = span(1000, 100);
        assert_eq!(whole.part(10, 90), Some(span(1010, 90)));
        assert_eq!((whole.part(10, 91), whole.part(u64::MAX, 1)), (None, None));
        assert_eq!(
            (whole.position_of(span(1010, 90)), whole.position_of(span(1010, 91)), whole.position_of(span(999, 1))),
            (Some(10), None, None)
        );
    }
}
