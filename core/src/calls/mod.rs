//! The calls by descriptor number: what the hooks of the preload library and the r* functions have in common.
//!
//! Every call says by its [`Route`] whether rsockets has done it or whether it is the kernel's: a number that is not an
//! rsocket, or one whose socket is (still, or for good) a plain kernel socket. Here errno is decided; pointers and the
//! `errno` variable are the callers' business.
#![forbid(unsafe_code)]

pub mod accept;
pub mod adopt;
pub mod datagram;
mod deferred;
pub mod descriptor;
pub mod epoll;
pub mod exit;
mod inherited;
pub mod io;
pub mod iomap;
pub mod option;
pub mod poll;
pub mod select;
pub mod socket;
pub mod splice;

use std::os::fd::RawFd;

use crate::{
    error::{Errno, Result},
    fd::{self, Held},
};

/// Who does a call.
#[derive(Debug, PartialEq, Eq)]
pub enum Route<T> {
    /// The kernel: make the same call on the same number.
    Kernel,
    /// It is done.
    Done(Result<T>),
}

impl<T> Route<T> {
    /// Done, successfully.
    pub fn ok(value: T) -> Self {
        Route::Done(Ok(value))
    }

    /// Done, with an error.
    pub fn err(errno: Errno) -> Self {
        Route::Done(Err(errno))
    }
}

impl<T> From<Result<T>> for Route<T> {
    fn from(result: Result<T>) -> Self {
        Route::Done(result)
    }
}

/// The description of a number whose socket is not the kernel's for good; a number whose socket is leaves the table here. One that was noted as
/// somebody else's work enters it.
#[inline]
fn ours(fd: RawFd) -> Option<Held> {
    let held = match fd::get(fd) {
        Some(held) => held,
        None if fd::is_found(fd) => adopt::adopted(fd)?,
        None => return None,
    };
    if held.socket.is_kernel() {
        fd::forget(fd);
        return None;
    }
    Some(held)
}

/// As [`fd::get`]; one that was noted as somebody else's work enters the table.
#[inline(always)]
fn known(fd: RawFd) -> Option<Held> {
    match fd::get(fd) {
        None if fd::is_found(fd) => ours(fd),
        known => known,
    }
}

/// The same as [`ours`], of a number that the process waits for connections on, if it listens.
fn ours_awaited(fd: RawFd) -> Option<Held> {
    let held = ours(fd)?;
    adopt::awaited(fd, &held);
    if held.socket.is_kernel() { ours(fd) } else { Some(held) }
}
