//! getsockopt(2) and setsockopt(2) for any level and name, on the kernel's socket.

use std::os::fd::RawFd;

use super::kernel::call;
use crate::error::Result;

/// Sets an option by a raw system call: libc's function would enter the preload library's own hook.
pub fn set(fd: RawFd, level: i32, name: i32, value: &[u8]) -> Result<()> {
    // SAFETY: the kernel reads `value.len()` bytes of a live slice.
    unsafe { call!(libc::SYS_setsockopt, fd, level, name, value.as_ptr(), value.len()) }.map(drop)
}

/// Reads an option into `out` and gives its length, in bytes.
pub fn get(fd: RawFd, level: i32, name: i32, out: &mut [u8]) -> Result<usize> {
    let mut length = u32::try_from(out.len()).unwrap_or(u32::MAX);
    // SAFETY: the kernel writes at most `length` bytes into a live slice of at least that length, and the length.
    unsafe { call!(libc::SYS_getsockopt, fd, level, name, out.as_mut_ptr(), &raw mut length) }?;
    Ok(length as usize)
}
