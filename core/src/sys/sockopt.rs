//! setsockopt(2) for any level and name, on the kernel's socket.

use std::os::fd::RawFd;

use super::kernel::call;
use crate::error::Result;

/// Sets an option by a raw system call: libc's function would enter the preload library's own hook.
pub fn set(fd: RawFd, level: i32, name: i32, value: &[u8]) -> Result<()> {
    // SAFETY: the kernel reads `value.len()` bytes of a live slice.
    unsafe { call!(libc::SYS_setsockopt, fd, level, name, value.as_ptr(), value.len()) }.map(drop)
}
