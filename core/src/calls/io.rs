//! Data in and out. read, readv, recv, recvfrom, recvmsg and their `_chk` forms all come here as [`recv`], the writing
//! ones as [`send`].

use std::{
    io::{IoSlice, IoSliceMut},
    os::fd::RawFd,
};

use super::Route;

/// send(2), sendto(2), sendmsg(2), write(2), writev(2). `flags` as in send(2). Raises SIGPIPE where TCP would.
/// (sendto on a connected stream ignores its address: pass none.)
pub fn send(_fd: RawFd, _from: &[IoSlice<'_>], _flags: i32) -> Route<usize> {
    Route::Kernel
}

/// recv(2) and all the others that read. `flags` as in recv(2). A stream gives no source address.
pub fn recv(_fd: RawFd, _into: &mut [IoSliceMut<'_>], _flags: i32) -> Route<usize> {
    Route::Kernel
}

/// ioctl(FIONREAD): bytes that can be read without blocking. EINVAL on a listener (tcp(7)).
pub fn readable_bytes(_fd: RawFd) -> Route<i32> {
    Route::Kernel
}

/// ioctl(SIOCOUTQ): bytes handed to send that the peer's side has not acknowledged.
pub fn unsent_bytes(_fd: RawFd) -> Route<i32> {
    Route::Kernel
}

/// pread, pwrite, preadv, pwritev, lseek …: a socket cannot seek (ESPIPE).
pub fn seek(_fd: RawFd) -> Route<i64> {
    Route::Kernel
}
