//! The standard error descriptor, duplicated: nothing else may borrow a number that the program can close at any time.

use rustix::fd::{BorrowedFd, OwnedFd};

use crate::error::Result;

/// A close-on-exec duplicate of descriptor 2, at `lowest` or above. Fails with EBADF where the program has closed it,
/// EINVAL where `lowest` is over the limit, EMFILE where there is no number left.
pub fn duplicate(lowest: i32) -> Result<OwnedFd> {
    // SAFETY: the borrow ends with this call, which does nothing but ask the kernel for a duplicate; if the number is closed or
    // replaced meanwhile, the kernel answers EBADF or duplicates what is there, and no memory is concerned either way.
    let stderr = unsafe { BorrowedFd::borrow_raw(2) };
    rustix::io::fcntl_dupfd_cloexec(stderr, lowest)
}
