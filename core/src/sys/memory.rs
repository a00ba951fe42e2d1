//! Whether memory of the program can be read, asked of the kernel: for what a program hands over that is probably wrong.

use core::ffi::c_void;

use super::kernel::call;
use crate::error::Errno;

/// No mapping has smaller pages.
const PAGE: usize = 4096;

/// No signal mask is changed in this way: rt_sigprocmask(2) has read the mask when it says EINVAL.
const NO_WAY: i32 = -1;

/// The number of bytes from `start`, of `length`, that can be read. A system call a page.
pub fn readable(start: *const c_void, length: usize) -> usize {
    let first = start.addr() & !(PAGE - 1);
    let end = start.addr().saturating_add(length);
    let gap = (first..end).step_by(PAGE).find(|page| !page_is_readable(*page));
    gap.map_or(end, |gap| gap.max(start.addr())) - start.addr()
}

fn page_is_readable(page: usize) -> bool {
    // The call takes NULL for no mask.
    if page == 0 {
        return false;
    }
    let nowhere: *mut c_void = core::ptr::null_mut();
    // SAFETY: the kernel reads 8 bytes at the address if it can, writes nothing, and changes nothing for lack of a way to do it.
    let asked = unsafe { call!(libc::SYS_rt_sigprocmask, NO_WAY, page, nowhere, 8_usize) };
    asked != Err(Errno::FAULT)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn as_far_as_pages_can_be_read() {
        // SAFETY: a fresh mapping at a place of the kernel's choice.
        let start = unsafe { libc::mmap(core::ptr::null_mut(), 4 * PAGE, libc::PROT_READ, libc::MAP_PRIVATE | libc::MAP_ANONYMOUS, -1, 0) };
        assert_ne!(start, libc::MAP_FAILED);
        // SAFETY: its third page, which nobody uses.
        assert_eq!(unsafe { libc::mprotect(start.wrapping_byte_add(2 * PAGE), PAGE, libc::PROT_NONE) }, 0);
        assert_eq!(readable(start, 0), 0);
        assert_eq!(readable(start, 10), 10);
        assert_eq!(readable(start, 2 * PAGE), 2 * PAGE);
        assert_eq!(readable(start, usize::MAX), 2 * PAGE);
        assert_eq!(readable(start.wrapping_byte_add(PAGE + 1), 2 * PAGE), PAGE - 1);
        assert_eq!(readable(start.wrapping_byte_add(2 * PAGE), 1), 0);
        assert_eq!(readable(core::ptr::null(), 1), 0);
        // SAFETY: the mapping made above; nothing refers to it any more.
        unsafe { libc::munmap(start, 4 * PAGE) };
    }
}
