//! The C API for Rust: descriptors that are owned, slices and addresses in place of pointers, and errors in place of errno.

use core::{
    ffi::{c_int, c_void},
    mem::{self, size_of},
    net::SocketAddr,
    ptr::{self, from_mut, from_ref},
};
use std::{
    io::{Error, ErrorKind, IoSlice, IoSliceMut, Result},
    os::fd::{AsFd, AsRawFd, BorrowedFd, RawFd},
    time::Duration,
};

use libc::{sockaddr, sockaddr_storage, socklen_t};

use super::{
    boundary::{self, address::Out},
    descriptor, io, option, poll, serve, socket,
};
use crate::{socket::address, sys::kernel::call};

/// A number that is closed by rclose.
#[derive(Debug)]
pub struct Descriptor(RawFd);

impl Descriptor {
    /// Takes a number.
    ///
    /// # Safety
    /// It must be open, and nobody else's.
    pub unsafe fn from_raw(number: RawFd) -> Self {
        Descriptor(number)
    }
}

impl AsFd for Descriptor {
    fn as_fd(&self) -> BorrowedFd<'_> {
        // SAFETY: open as long as this is.
        unsafe { BorrowedFd::borrow_raw(self.0) }
    }
}

impl Drop for Descriptor {
    fn drop(&mut self) {
        // SAFETY: any number is good.
        unsafe { descriptor::rclose(self.0) };
    }
}

fn done(result: c_int) -> Result<c_int> {
    if result < 0 { Err(Error::last_os_error()) } else { Ok(result) }
}

fn size(result: isize) -> Result<usize> {
    usize::try_from(result).map_err(|_| Error::last_os_error())
}

/// An address as the C functions take it.
struct Name {
    bytes: sockaddr_storage,
    length: socklen_t,
}

impl Name {
    /// Room for any.
    fn empty() -> Self {
        // SAFETY: a structure of numbers, for which 0 is a value.
        let bytes = unsafe { mem::zeroed() };
        Name { bytes, length: size_of::<sockaddr_storage>() as socklen_t }
    }

    fn of(address: &SocketAddr) -> Result<Self> {
        let mut name = Name::empty();
        // SAFETY: both are good for reads and writes, and there is as much room as the length says.
        let out = unsafe { Out::new(name.place(), from_mut(&mut name.length)) };
        out.map_err(|errno| Error::from_raw_os_error(errno.raw_os_error()))?.write(address);
        Ok(name)
    }

    fn at(&self) -> *const sockaddr {
        from_ref(&self.bytes).cast()
    }

    fn place(&mut self) -> *mut sockaddr {
        from_mut(&mut self.bytes).cast()
    }

    fn address(&self) -> Result<SocketAddr> {
        // SAFETY: the bytes of the structure, all of which have been set.
        let bytes = unsafe { core::slice::from_raw_parts(from_ref(&self.bytes).cast::<u8>(), size_of::<sockaddr_storage>()) };
        let told = bytes.get(..self.length as usize).and_then(address::parse);
        told.ok_or_else(|| Error::new(ErrorKind::InvalidData, "not an address of IP"))
    }
}

/// See `rsocket`.
pub fn socket(domain: c_int, kind: c_int) -> Result<Descriptor> {
    // SAFETY: no pointers.
    done(unsafe { socket::rsocket(domain, kind, 0) }).map(Descriptor)
}

/// See `rbind`.
pub fn bind(fd: BorrowedFd<'_>, address: &SocketAddr) -> Result<()> {
    let name = Name::of(address)?;
    // SAFETY: the address is as long as it says.
    done(unsafe { socket::rbind(fd.as_raw_fd(), name.at(), name.length) }).map(drop)
}

/// See `rconnect`.
pub fn connect(fd: BorrowedFd<'_>, address: &SocketAddr) -> Result<()> {
    let name = Name::of(address)?;
    // SAFETY: the address is as long as it says.
    done(unsafe { socket::rconnect(fd.as_raw_fd(), name.at(), name.length) }).map(drop)
}

/// See `rlisten`.
pub fn listen(fd: BorrowedFd<'_>, backlog: c_int) -> Result<()> {
    // SAFETY: no pointers.
    done(unsafe { socket::rlisten(fd.as_raw_fd(), backlog) }).map(drop)
}

/// See `raccept`. The new descriptor is close-on-exec from the beginning.
pub fn accept(fd: BorrowedFd<'_>) -> Result<(Descriptor, SocketAddr)> {
    let mut name = Name::empty();
    let (place, length) = (name.place(), from_mut(&mut name.length));
    let (fd, flags) = (fd.as_raw_fd(), libc::SOCK_CLOEXEC);
    let accepted: c_int = serve!(boundary::socket::accept(fd, place, length, flags), call!(libc::SYS_accept4, fd, place, length, flags));
    Ok((done(accepted).map(Descriptor)?, name.address()?))
}

/// See `rshutdown`.
pub fn shutdown(fd: BorrowedFd<'_>, how: c_int) -> Result<()> {
    // SAFETY: no pointers.
    done(unsafe { socket::rshutdown(fd.as_raw_fd(), how) }).map(drop)
}

/// dup(2), close-on-exec.
pub fn duplicate(fd: BorrowedFd<'_>) -> Result<Descriptor> {
    // SAFETY: no pointers.
    done(unsafe { descriptor::rfcntl(fd.as_raw_fd(), libc::F_DUPFD_CLOEXEC, 0) }).map(Descriptor)
}

/// fcntl(2), F_GETFL.
pub fn status_flags(fd: BorrowedFd<'_>) -> Result<c_int> {
    // SAFETY: no pointers.
    done(unsafe { descriptor::rfcntl(fd.as_raw_fd(), libc::F_GETFL, 0) })
}

/// fcntl(2), F_SETFL.
pub fn set_status_flags(fd: BorrowedFd<'_>, flags: c_int) -> Result<()> {
    // SAFETY: no pointers.
    done(unsafe { descriptor::rfcntl(fd.as_raw_fd(), libc::F_SETFL, flags.into()) }).map(drop)
}

/// See `rgetsockname`.
pub fn getsockname(fd: BorrowedFd<'_>) -> Result<SocketAddr> {
    let mut name = Name::empty();
    let (place, length) = (name.place(), from_mut(&mut name.length));
    // SAFETY: there is as much room as the length says.
    done(unsafe { socket::rgetsockname(fd.as_raw_fd(), place, length) })?;
    name.address()
}

/// See `rgetpeername`.
pub fn getpeername(fd: BorrowedFd<'_>) -> Result<SocketAddr> {
    let mut name = Name::empty();
    let (place, length) = (name.place(), from_mut(&mut name.length));
    // SAFETY: there is as much room as the length says.
    done(unsafe { socket::rgetpeername(fd.as_raw_fd(), place, length) })?;
    name.address()
}

/// A message without an address, of this memory, which is read only if the call is one that sends.
fn message(vectors: *const libc::iovec, count: usize) -> libc::msghdr {
    // SAFETY: a structure of numbers and pointers, for which 0 is a value.
    let mut message: libc::msghdr = unsafe { mem::zeroed() };
    message.msg_iov = vectors.cast_mut();
    message.msg_iovlen = count;
    message
}

/// See `rsendmsg`.
pub fn send(fd: BorrowedFd<'_>, from: &[IoSlice<'_>], flags: c_int, to: Option<&SocketAddr>) -> Result<usize> {
    let name = to.map(Name::of).transpose()?;
    // IoSlice: "guaranteed to be ABI compatible with the iovec type on Unix platforms".
    let mut message = message(from.as_ptr().cast(), from.len());
    if let Some(name) = &name {
        message.msg_name = name.at().cast_mut().cast();
        message.msg_namelen = name.length;
    }
    // SAFETY: the vectors are slices, the address is as long as it says; nothing is written.
    size(unsafe { io::rsendmsg(fd.as_raw_fd(), &message, flags) })
}

/// See `rrecvmsg`.
pub fn receive(fd: BorrowedFd<'_>, into: &mut [IoSliceMut<'_>], flags: c_int) -> Result<usize> {
    if let [one] = into {
        // SAFETY: a slice that may be written.
        return size(unsafe { io::rrecv(fd.as_raw_fd(), one.as_mut_ptr().cast(), one.len(), flags) });
    }
    let mut message = message(into.as_mut_ptr().cast_const().cast(), into.len());
    // SAFETY: the vectors are slices that may be written.
    size(unsafe { io::rrecvmsg(fd.as_raw_fd(), &mut message, flags) })
}

/// See `rrecvfrom`.
pub fn receive_from(fd: BorrowedFd<'_>, into: &mut [u8], flags: c_int) -> Result<(usize, SocketAddr)> {
    let mut name = Name::empty();
    let (place, length) = (name.place(), from_mut(&mut name.length));
    // SAFETY: a slice that may be written; there is as much room for the address as its length says.
    let count = size(unsafe { io::rrecvfrom(fd.as_raw_fd(), into.as_mut_ptr().cast(), into.len(), flags, place, length) })?;
    Ok((count, name.address()?))
}

/// The value of an option.
///
/// # Safety
/// Any bytes make a value.
pub unsafe trait Value: Copy {
    /// The value of which all bytes are 0.
    const ZERO: Self;
}

// SAFETY: an integer.
unsafe impl Value for c_int {
    const ZERO: Self = 0;
}

// SAFETY: two integers.
unsafe impl Value for libc::timeval {
    const ZERO: Self = libc::timeval { tv_sec: 0, tv_usec: 0 };
}

/// See `rgetsockopt`.
pub fn option<T: Value>(fd: BorrowedFd<'_>, level: c_int, name: c_int) -> Result<T> {
    let mut value = T::ZERO;
    let mut length = size_of::<T>() as socklen_t;
    let place: *mut c_void = from_mut(&mut value).cast();
    // SAFETY: there is as much room as the length says, and whatever comes is a value.
    done(unsafe { option::rgetsockopt(fd.as_raw_fd(), level, name, place, &mut length) })?;
    Ok(value)
}

/// See `rsetsockopt`.
pub fn set_option<T: Value>(fd: BorrowedFd<'_>, level: c_int, name: c_int, value: &T) -> Result<()> {
    let (place, length) = (from_ref(value).cast(), size_of::<T>() as socklen_t);
    // SAFETY: the value is as long as it says.
    done(unsafe { option::rsetsockopt(fd.as_raw_fd(), level, name, place, length) }).map(drop)
}

/// See `rpoll`. What is longer than a poll's longest time-out is for ever; a part of a millisecond is a whole one.
pub fn poll(fds: &mut [libc::pollfd], time: Option<Duration>) -> Result<usize> {
    let milliseconds = time.and_then(|time| c_int::try_from(time.as_nanos().div_ceil(1_000_000)).ok()).unwrap_or(-1);
    let place = if fds.is_empty() { ptr::null_mut() } else { fds.as_mut_ptr() };
    // SAFETY: an array of so many.
    let found = done(unsafe { poll::rpoll(place, fds.len() as libc::nfds_t, milliseconds) })?;
    Ok(found.unsigned_abs() as usize)
}

/// Gives the number away: it is not closed.
pub fn release(descriptor: Descriptor) -> RawFd {
    mem::ManuallyDrop::new(descriptor).0
}
