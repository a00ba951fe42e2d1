//! The C side of `calls::io`.

use core::{
    ffi::{c_int, c_uint, c_void},
    ptr::null_mut,
};
use std::{
    io::{IoSlice, IoSliceMut},
    time::Instant,
};

use libc::{iovec, mmsghdr, msghdr, sockaddr, socklen_t, ssize_t, timespec};

use super::{
    address, attempt, datagram, fault, map,
    poll::duration,
    vector::{self, MOST_BYTES, MOST_VECTORS},
};
use crate::{
    calls::{Route, datagram::is_datagram, io},
    error::{Errno, Result},
    sys::kernel::call,
};

/// read(2).
///
/// # Safety
/// Unless NULL, `buffer` must be good for writes of `length` bytes.
#[inline(always)]
pub unsafe fn read(fd: c_int, buffer: *mut c_void, length: usize) -> Route<ssize_t> {
    if super::is_usual(buffer, length) {
        // SAFETY: as in `recv`.
        return size(io::recv_one(fd, unsafe { core::slice::from_raw_parts_mut(buffer.cast(), length) }, 0));
    }
    attempt!(super::access(buffer, length));
    // SAFETY: the caller's promise is the one asked for.
    match unsafe { super::bytes_mut(buffer, length.min(MOST_BYTES)) } {
        Ok(into) => size(io::read(fd, &mut [IoSliceMut::new(into)], 0)),
        Err(_) => size(fault::receiving(fd, 0)),
    }
}

/// write(2).
///
/// # Safety
/// Unless NULL, `buffer` must be good for reads of `length` bytes.
#[inline(always)]
pub unsafe fn write(fd: c_int, buffer: *const c_void, length: usize) -> Route<ssize_t> {
    if !super::is_usual(buffer, length) {
        attempt!(super::access(buffer, length));
    }
    // SAFETY: the caller's promise is the one asked for.
    unsafe { send(fd, buffer, length, 0) }
}

/// recv(2).
///
/// # Safety
/// Unless NULL, `buffer` must be good for writes of `length` bytes.
#[inline(always)]
pub unsafe fn recv(fd: c_int, buffer: *mut c_void, length: usize, flags: c_int) -> Route<ssize_t> {
    if super::is_usual(buffer, length) && flags & libc::MSG_TRUNC == 0 {
        // SAFETY: neither bad nor nothing, so good for `length` bytes (the caller's promise).
        return size(io::recv_one(fd, unsafe { core::slice::from_raw_parts_mut(buffer.cast(), length) }, flags));
    }
    // SAFETY: the caller's promise is the one asked for.
    unsafe { recv_unusual(fd, buffer, length, flags) }
}

#[inline(never)]
unsafe fn recv_unusual(fd: c_int, buffer: *mut c_void, length: usize, flags: c_int) -> Route<ssize_t> {
    let length = length.min(MOST_BYTES);
    attempt!(super::access(buffer, length));
    if flags & libc::MSG_TRUNC != 0 {
        if is_datagram(fd) {
            // SAFETY: the caller's promise is the one asked for.
            return unsafe { datagram::recvfrom(fd, buffer, length, flags, null_mut(), null_mut()) };
        }
        return size(io::discard(fd, length, flags));
    }
    // SAFETY: the caller's promise is the one asked for.
    match unsafe { super::bytes_mut(buffer, length) } {
        Ok(into) => size(io::recv(fd, &mut [IoSliceMut::new(into)], flags)),
        Err(_) => size(fault::receiving(fd, flags)),
    }
}

/// send(2). Of more than the kernel would transfer by one call, so much is sent as there is: a length that is wrong, as that of an
/// error which was taken for one, is mostly as large as can be.
///
/// # Safety
/// Unless NULL, `buffer` must be good for reads of `length` bytes, or of what there is before memory that cannot be read.
#[inline(always)]
pub unsafe fn send(fd: c_int, buffer: *const c_void, length: usize, flags: c_int) -> Route<ssize_t> {
    if super::is_usual(buffer, length) {
        // SAFETY: neither bad nor nothing, so good for `length` bytes (the caller's promise).
        return size(io::send_one(fd, unsafe { core::slice::from_raw_parts(buffer.cast(), length) }, flags));
    }
    // SAFETY: the caller's promise is the one asked for.
    unsafe { send_unusual(fd, buffer, length, flags) }
}

#[inline(never)]
unsafe fn send_unusual(fd: c_int, buffer: *const c_void, length: usize, flags: c_int) -> Route<ssize_t> {
    attempt!(super::access(buffer, length.min(MOST_BYTES)));
    if length > MOST_BYTES {
        // SAFETY: the caller's promise is the one asked for.
        return size(unsafe { fault::send_what_there_is(fd, buffer, MOST_BYTES, flags) });
    }
    // SAFETY: the caller's promise is the one asked for.
    match unsafe { super::bytes(buffer, length) } {
        Ok(from) => size(io::send(fd, &[IoSlice::new(from)], flags)),
        Err(_) => size(fault::sending(fd, flags)),
    }
}

/// write(2), by the kernel, whatever the number is.
///
/// # Safety
/// Unless NULL, `buffer` must be good for reads of `length` bytes.
#[inline(always)]
pub unsafe fn write_kernel(fd: c_int, buffer: *const c_void, length: usize) -> ssize_t {
    // SAFETY: reads the caller's memory only.
    match unsafe { call!(libc::SYS_write, fd, buffer, length) } {
        Ok(count) => count as ssize_t,
        Err(errno) => {
            super::set_errno(errno.raw_os_error());
            -1
        }
    }
}

/// readv(2), preadv2(2) at the current position: `flags` are those of recv(2).
///
/// # Safety
/// Unless NULL, `vectors` must be an array of `count` that names memory good for writes.
pub unsafe fn readv(fd: c_int, vectors: *const iovec, count: c_int, flags: c_int) -> Route<ssize_t> {
    let count = attempt!(vector_count(count));
    let read = |into: &mut [IoSliceMut<'_>]| io::read(fd, into, flags);
    // SAFETY: the caller's promise is the one asked for.
    size(unsafe { vector::with(vectors, count, read, || fault::receiving(fd, flags)) })
}

/// writev(2), pwritev2(2) at the current position: `flags` are those of send(2).
///
/// # Safety
/// Unless NULL, `vectors` must be an array of `count` that names memory good for reads.
pub unsafe fn writev(fd: c_int, vectors: *const iovec, count: c_int, flags: c_int) -> Route<ssize_t> {
    let count = attempt!(vector_count(count));
    let write = |from: &mut [IoSlice<'_>]| io::write(fd, from, flags);
    // SAFETY: the caller's promise is the one asked for.
    unsafe { send_slices(fd, vectors, count, flags, write) }
}

/// recvfrom(2). "[The address] is not filled in" for a stream: its length becomes 0, as TCP has it.
///
/// # Safety
/// Unless NULL, `buffer` must be good for writes of `length` bytes, `room` for reads and writes, and `address` for writes of `*room` bytes.
pub unsafe fn recvfrom(
    fd: c_int,
    buffer: *mut c_void,
    length: usize,
    flags: c_int,
    address: *mut sockaddr,
    room: *mut socklen_t,
) -> Route<ssize_t> {
    if is_datagram(fd) {
        // SAFETY: the caller's promise is the one asked for.
        return unsafe { datagram::recvfrom(fd, buffer, length, flags, address, room) };
    }
    // SAFETY: the caller's promise is the one asked for.
    let out = attempt!(unsafe { address::Out::wanted(address, room) });
    // SAFETY: the caller's promise is the one asked for.
    map(unsafe { recv(fd, buffer, length, flags) }, |received| {
        if let Some(out) = out {
            out.write_none();
        }
        received
    })
}

/// sendto(2). A connected stream ignores the address, but not a bad one.
///
/// # Safety
/// Unless NULL, `buffer` must be good for reads of `length` bytes, and `address` of `address_length`.
pub unsafe fn sendto(
    fd: c_int,
    buffer: *const c_void,
    length: usize,
    flags: c_int,
    address: *const sockaddr,
    address_length: socklen_t,
) -> Route<ssize_t> {
    if !address.is_null() {
        if is_datagram(fd) {
            // SAFETY: the caller's promise is the one asked for.
            return unsafe { datagram::sendto(fd, buffer, length, flags, address, address_length) };
        }
        // SAFETY: the caller's promise is the one asked for.
        attempt!(unsafe { address::given(address, address_length) });
    }
    // SAFETY: the caller's promise is the one asked for.
    unsafe { send(fd, buffer, length, flags) }
}

/// recvmsg(2). A stream gives no address and no control data.
///
/// # Safety
/// Unless NULL, `message` must be good for reads and writes, and what it points to good for writes.
pub unsafe fn recvmsg(fd: c_int, message: *mut msghdr, flags: c_int) -> Route<ssize_t> {
    if is_datagram(fd) {
        // SAFETY: the caller's promise is the one asked for.
        return unsafe { datagram::recvmsg(fd, message, flags) };
    }
    attempt!(structure(message));
    // SAFETY: not bad, so good for reads and writes (the caller's promise).
    let Some(message) = (unsafe { message.as_mut() }) else { return Route::err(Errno::FAULT) };
    let count = attempt!(message_count(message));
    // SAFETY: the caller's promise is the one asked for.
    map(unsafe { recv_into(fd, message.msg_iov, count, flags) }, |received| {
        if !message.msg_name.is_null() {
            message.msg_namelen = 0;
        }
        message.msg_controllen = 0;
        message.msg_flags = flags & libc::MSG_CMSG_CLOEXEC;
        received
    })
}

/// sendmsg(2). A connected stream ignores the address; there is no control data that it would know.
///
/// # Safety
/// Unless NULL, `message` must be good for reads, and what it points to as well.
pub unsafe fn sendmsg(fd: c_int, message: *const msghdr, flags: c_int) -> Route<ssize_t> {
    if is_datagram(fd) {
        // SAFETY: the caller's promise is the one asked for.
        return unsafe { datagram::sendmsg(fd, message, flags) };
    }
    attempt!(structure(message));
    // SAFETY: not bad, so good for reads (the caller's promise).
    let Some(message) = (unsafe { message.as_ref() }) else { return Route::err(Errno::FAULT) };
    let count = attempt!(message_count(message));
    // SAFETY: the caller's promise is the one asked for.
    unsafe { send_from(fd, message.msg_iov, count, flags) }
}

/// recvmmsg(2): "The timeout … is checked only after the receipt of each datagram" (BUGS), as the kernel has it.
///
/// # Safety
/// Unless NULL, `messages` must be an array of `count`, each good as for [`recvmsg`], and `timeout` good for reads and writes.
pub unsafe fn recvmmsg(fd: c_int, messages: *mut mmsghdr, count: c_uint, flags: c_int, timeout: *mut timespec) -> Route<c_int> {
    // SAFETY: NULL or good for reads (the caller's promise).
    let limit = match unsafe { timeout.as_ref() } {
        Some(timeout) => Some((Instant::now(), attempt!(duration(timeout)))),
        None => None,
    };
    let mut each_flags = flags & !libc::MSG_WAITFORONE;
    let done = |message: &mut mmsghdr| {
        // SAFETY: the element is good as for recvmsg (the caller's promise).
        let route = unsafe { recvmsg(fd, &mut message.msg_hdr, each_flags) };
        // SAFETY: as above.
        let route = unsafe { datagram::or_kernel(route, libc::SYS_recvmsg, fd, &raw mut message.msg_hdr, each_flags) };
        // "MSG_WAITFORONE Turns on MSG_DONTWAIT after the first message has been received."
        if flags & libc::MSG_WAITFORONE != 0 {
            each_flags |= libc::MSG_DONTWAIT;
        }
        route
    };
    let late = || limit.is_some_and(|(start, limit)| start.elapsed() >= limit);
    // SAFETY: the caller's promise is the one asked for.
    let route = unsafe { each_message(messages, count, done, late) };
    if let (Route::Done(_), Some((start, limit))) = (&route, limit) {
        let left = limit.saturating_sub(start.elapsed());
        // SAFETY: not NULL, as there is a limit, so good for writes (the caller's promise).
        unsafe { *timeout = timespec { tv_sec: left.as_secs() as i64, tv_nsec: i64::from(left.subsec_nanos()) } };
    }
    route
}

/// sendmmsg(2).
///
/// # Safety
/// Unless NULL, `messages` must be an array of `count`, each good as for [`sendmsg`].
pub unsafe fn sendmmsg(fd: c_int, messages: *mut mmsghdr, count: c_uint, flags: c_int) -> Route<c_int> {
    let done = |message: &mut mmsghdr| {
        // SAFETY: the element is good as for sendmsg (the caller's promise).
        let route = unsafe { sendmsg(fd, &message.msg_hdr, flags) };
        // SAFETY: as above.
        unsafe { datagram::or_kernel(route, libc::SYS_sendmsg, fd, &raw mut message.msg_hdr, flags) }
    };
    // SAFETY: the caller's promise is the one asked for.
    unsafe { each_message(messages, count, done, || false) }
}

/// "If an error occurs after at least one message has been [transferred], the call succeeds, and returns the number of messages."
///
/// # Safety
/// Unless NULL, `messages` must be an array of `count`.
unsafe fn each_message(
    messages: *mut mmsghdr,
    count: c_uint,
    mut done: impl FnMut(&mut mmsghdr) -> Route<ssize_t>,
    late: impl Fn() -> bool,
) -> Route<c_int> {
    // "The value specified in vlen is capped to UIO_MAXIOV (1024)."
    let count = (count as usize).min(MOST_VECTORS);
    if count == 0 {
        return Route::ok(0);
    }
    if super::is_bad(messages.cast(), size_of::<mmsghdr>()) {
        return Route::err(Errno::FAULT);
    }
    // SAFETY: not bad, so an array of at least `count` (the caller's promise).
    let messages = unsafe { core::slice::from_raw_parts_mut(messages, count) };
    let mut transferred = 0;
    for message in messages {
        match done(message) {
            Route::Done(Ok(length)) => message.msg_len = length as c_uint,
            Route::Kernel if transferred == 0 => return Route::Kernel,
            Route::Done(Err(errno)) if transferred == 0 => return Route::err(errno),
            Route::Kernel | Route::Done(Err(_)) => break,
        }
        transferred += 1;
        if late() {
            break;
        }
    }
    Route::ok(transferred)
}

/// How much sendfile moves at a time.
const PIECE: usize = 128 << 10;

/// sendfile(2) to an rsocket: "If offset is NULL, then data will be read from in_fd starting at the file offset, and the file
/// offset will be updated by the call", else `*offset` is.
///
/// # Safety
/// Unless NULL, `offset` must be good for reads and writes.
pub unsafe fn sendfile(to: c_int, from: c_int, offset: *mut i64, count: usize) -> Route<ssize_t> {
    // SAFETY: NULL or good for reads and writes (the caller's promise).
    let offset = unsafe { offset.as_mut() };
    let start = match &offset {
        Some(offset) if **offset < 0 => return Route::err(Errno::INVAL),
        Some(offset) => **offset,
        None => attempt!(seek(from, 0, libc::SEEK_CUR)),
    };
    match copy_to_socket(to, from, start, count.min(MOST_BYTES)) {
        Route::Done(Ok(sent)) => {
            let end = start + sent as i64;
            match offset {
                Some(offset) => *offset = end,
                None => {
                    attempt!(seek(from, end, libc::SEEK_SET));
                }
            }
            Route::ok(sent as ssize_t)
        }
        Route::Done(Err(errno)) => Route::err(errno),
        Route::Kernel => Route::Kernel,
    }
}

fn copy_to_socket(to: c_int, from: c_int, start: i64, count: usize) -> Route<usize> {
    let mut buffer = vec![0; count.min(PIECE)];
    let mut sent = 0;
    while sent < count {
        let room = buffer.get_mut(..(count - sent).min(PIECE)).unwrap_or_default();
        let piece = match pread(from, room, start + sent as i64) {
            Ok(0) => break,
            Ok(read) => buffer.get(..read).unwrap_or_default(),
            // "ESPIPE offset is not NULL but the input file is not seekable", among others.
            Err(errno) if sent == 0 => return Route::err(errno),
            Err(_) => break,
        };
        match io::send(to, &[IoSlice::new(piece)], 0) {
            Route::Done(Ok(length)) => {
                sent += length;
                if length < piece.len() {
                    break;
                }
            }
            Route::Kernel if sent == 0 => return Route::Kernel,
            Route::Done(Err(errno)) if sent == 0 => return Route::err(errno),
            Route::Kernel | Route::Done(Err(_)) => break,
        }
    }
    Route::ok(sent)
}

fn pread(fd: c_int, into: &mut [u8], at: i64) -> Result<usize> {
    // SAFETY: writes at most the length of `into` into it.
    unsafe { call!(libc::SYS_pread64, fd, into.as_mut_ptr(), into.len(), at) }
}

/// "EINVAL … an mmap(2)-like operation is not available for in_fd": it must be something like a file.
fn seek(fd: c_int, offset: i64, whence: c_int) -> Result<i64> {
    // SAFETY: takes no pointer.
    match unsafe { call!(libc::SYS_lseek, fd, offset, whence) } {
        Ok(position) => Ok(position as i64),
        Err(Errno::SPIPE) => Err(Errno::INVAL),
        Err(errno) => Err(errno),
    }
}

/// lseek(2), pread(2), pwrite(2) and their kind.
pub fn seeking(fd: c_int) -> Route<i64> {
    io::seek(fd)
}

/// # Safety
/// Unless NULL, `vectors` must be an array of `count` that names memory good for writes.
unsafe fn recv_into(fd: c_int, vectors: *const iovec, count: usize, flags: c_int) -> Route<ssize_t> {
    if flags & libc::MSG_TRUNC != 0 {
        // SAFETY: the caller's promise is the one asked for.
        let length = attempt!(unsafe { vector::length(vectors, count) });
        return size(io::discard(fd, length, flags));
    }
    let read = |into: &mut [IoSliceMut<'_>]| io::recv(fd, into, flags);
    // SAFETY: the caller's promise is the one asked for.
    size(unsafe { vector::with(vectors, count, read, || fault::receiving(fd, flags)) })
}

/// # Safety
/// Unless NULL, `vectors` must be an array of `count` that names memory good for reads.
unsafe fn send_from(fd: c_int, vectors: *const iovec, count: usize, flags: c_int) -> Route<ssize_t> {
    // SAFETY: the caller's promise is the one asked for.
    unsafe { send_slices(fd, vectors, count, flags, |from: &mut [IoSlice<'_>]| io::send(fd, from, flags)) }
}

/// # Safety
/// As for [`send_from`].
unsafe fn send_slices(
    fd: c_int,
    vectors: *const iovec,
    count: usize,
    flags: c_int,
    send_them: impl FnOnce(&mut [IoSlice<'_>]) -> Route<usize>,
) -> Route<ssize_t> {
    // SAFETY: the caller's promise is the one asked for.
    if let Some((start, length)) = unsafe { vector::only_one(vectors, count) }
        && length > MOST_BYTES
        && isize::try_from(length).is_ok()
    {
        // SAFETY: the caller's promise is the one asked for.
        return unsafe { send(fd, start, length, flags) };
    }
    // SAFETY: the caller's promise is the one asked for.
    size(unsafe { vector::with(vectors, count, send_them, || fault::sending(fd, flags)) })
}

/// "EINVAL The vector count, iovcnt, is less than zero or greater than the permitted maximum."
fn vector_count(count: c_int) -> Result<usize> {
    usize::try_from(count).ok().filter(|count| *count <= MOST_VECTORS).ok_or(Errno::INVAL)
}

/// EFAULT for what is no place of a program's.
fn structure(message: *const msghdr) -> Result<()> {
    if super::is_bad(message.cast(), size_of::<msghdr>()) { Err(Errno::FAULT) } else { Ok(()) }
}

/// "EMSGSIZE The msg_iovlen member … is less than or equal to 0, or is greater than {IOV_MAX}" (0 is taken on Linux). A negative
/// namelen is EINVAL.
pub(super) fn message_count(message: &msghdr) -> Result<usize> {
    if !message.msg_name.is_null() && c_int::try_from(message.msg_namelen).is_err() {
        return Err(Errno::INVAL);
    }
    if message.msg_iovlen > MOST_VECTORS {
        return Err(Errno::MSGSIZE);
    }
    Ok(message.msg_iovlen)
}

/// A number of bytes transferred: at most [`MOST_BYTES`].
pub(super) fn size(route: Route<usize>) -> Route<ssize_t> {
    map(route, |length| length as ssize_t)
}

#[cfg(test)]
mod tests {
    use core::mem::zeroed;

    use super::*;

    #[test]
    fn counts() {
        assert_eq!(
            (vector_count(-1), vector_count(0), vector_count(1024), vector_count(1025)),
            (Err(Errno::INVAL), Ok(0), Ok(1024), Err(Errno::INVAL))
        );
        // SAFETY: a msghdr of zeros is a valid one.
        let mut message: msghdr = unsafe { zeroed() };
        message.msg_iovlen = 1025;
        assert_eq!(message_count(&message), Err(Errno::MSGSIZE));
    }

    fn messages(results: Vec<Route<ssize_t>>) -> Route<c_int> {
        // SAFETY: an mmsghdr of zeros is a valid one.
        let mut headers: [mmsghdr; 3] = unsafe { zeroed() };
        let mut results = results.into_iter();
        // SAFETY: an array of 3.
        unsafe { each_message(headers.as_mut_ptr(), 3, |_| results.next().unwrap(), || false) }
    }

    #[test]
    fn many_messages_end_at_an_error_but_count_what_went_before() {
        assert_eq!(messages(vec![Route::ok(1), Route::ok(2), Route::ok(3)]), Route::ok(3));
        assert_eq!(messages(vec![Route::ok(1), Route::err(Errno::AGAIN)]), Route::ok(1));
        assert_eq!(messages(vec![Route::err(Errno::AGAIN)]), Route::err(Errno::AGAIN));
        assert_eq!(messages(vec![Route::Kernel]), Route::Kernel);
        assert_eq!(messages(vec![Route::ok(0), Route::ok(0), Route::ok(0)]), Route::ok(3));
        // SAFETY: NULL is allowed.
        let null = unsafe { each_message(null_mut(), 1, |_| Route::ok(1), || false) };
        assert_eq!(null, Route::err(Errno::FAULT));
    }

    #[test]
    fn sendfile_looks_at_its_arguments() {
        let mut negative = -1;
        // SAFETY: the pointer is to a live variable.
        assert_eq!(unsafe { sendfile(0, 0, &mut negative, 1) }, Route::err(Errno::INVAL));
        // SAFETY: NULL is allowed.
        assert_eq!(unsafe { sendfile(0, -1, null_mut(), 1) }, Route::err(Errno::BADF));
    }
}
