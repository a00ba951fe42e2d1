//! Data in and out. read, readv, recv, recvfrom, recvmsg and their `_chk` forms all come here as [`recv`], the writing
//! ones as [`send`].

use core::time::Duration;
use std::{
    io::{IoSlice, IoSliceMut},
    os::fd::RawFd,
};

use super::{Route, datagram, deferred, inherited, known, ours};
use crate::{
    error::Errno,
    fd::{self, Held},
    log,
    socket::{
        Role,
        stream::{Blocking, Phase, Stream},
    },
    sys::{clock, signals},
};

pub(super) fn blocking(held: &Held, flags: i32, timeout: impl FnOnce() -> Option<Duration>) -> Blocking {
    if flags & libc::MSG_DONTWAIT != 0 || held.is_nonblocking() {
        return Blocking::Never;
    }
    // Most sockets have no time-out: they need no look at the clock.
    Blocking::Until(timeout().and_then(|timeout| clock::deadline(clock::now(), Some(timeout))))
}

/// Not a stream over a fabric, or none any more: the call is the kernel's. True: it is to be looked at again.
#[cold]
fn no_stream(fd: RawFd, held: &Held) -> bool {
    if held.socket.role() == Role::Deferred {
        deferred::begin(fd, held);
        return held.socket.role() != Role::Deferred;
    }
    if held.socket.is_kernel() {
        fd::forget(fd);
    }
    false
}

/// A stream that the kernel has taken over in the meantime answers ENOTCONN: then the kernel is to be asked.
pub(super) fn route<T>(stream: &Stream, result: crate::error::Result<T>) -> Route<T> {
    match result {
        Err(Errno::NOTCONN) if stream.phase() == Phase::Kernel => Route::Kernel,
        result => result.into(),
    }
}

/// Bytes that are thrown away at a time.
const DISCARD_PIECE: usize = 1 << 16;
/// Bytes that can be looked at: no receive buffer has more.
const PEEK_MOST: usize = 1 << 30;

/// writev(2), pwritev2(2): as [`send`], except that of nothing the kernel tells no socket.
pub fn write(fd: RawFd, from: &[IoSlice<'_>], flags: i32) -> Route<usize> {
    let nothing = from.iter().all(|slice| slice.is_empty());
    if nothing { of_nothing(fd) } else { None }.unwrap_or_else(|| send(fd, from, flags))
}

/// A read or write of nothing, which is no use of a connection that may still move. `None`: as any other.
fn of_nothing(fd: RawFd) -> Option<Route<usize>> {
    let held = ours(fd)?;
    match held.socket.role() {
        Role::Deferred => Some(Route::Kernel),
        Role::Datagram => Some(Route::ok(0)),
        _ => held.socket.stream().map(|_| Route::ok(0)),
    }
}

/// send(2), sendto(2), sendmsg(2), write(2), writev(2). `flags` as in send(2). Raises SIGPIPE where TCP would.
/// (sendto on a connected stream ignores its address: pass none.)
pub fn send(fd: RawFd, from: &[IoSlice<'_>], flags: i32) -> Route<usize> {
    let Some(held) = known(fd) else { return inherited::transfer(fd) };
    let Some(stream) = held.socket.live_stream() else {
        if held.socket.role() == Role::Datagram {
            return datagram::send(fd, from, None, flags);
        }
        return if no_stream(fd, &held) { send(fd, from, flags) } else { Route::Kernel };
    };
    if flags & libc::MSG_OOB != 0 {
        return Route::err(urgent());
    }
    let result = stream.send(from, blocking(&held, flags, || held.socket.options.send_timeout()));
    // send(2): EPIPE: "In this case, the process will also receive a SIGPIPE unless MSG_NOSIGNAL is set."
    if result == Err(Errno::PIPE) && flags & libc::MSG_NOSIGNAL == 0 {
        signals::raise_sigpipe();
    }
    route(stream, result)
}

/// [`send`] of one buffer. Nearly always it goes at once.
#[inline(always)]
pub fn send_one(fd: RawFd, from: &[u8], flags: i32) -> Route<usize> {
    if flags & libc::MSG_OOB == 0
        && let Some(held) = fd::get(fd)
        && let Some(stream) = held.socket.live_stream()
        && stream.send_at_once(from)
    {
        return Route::ok(from.len());
    }
    send(fd, &[IoSlice::new(from)], flags)
}

/// send(2): EOPNOTSUPP: "Some bit in the flags argument is inappropriate for the socket type." Among the rest of the data an urgent byte would
/// be one too many for the peer, whom nothing tells which one it is.
#[cold]
fn urgent() -> Errno {
    log::warn_once("urgent", "urgent data (MSG_OOB) does not go over RDMA or shared memory (RSOCKET_FABRIC=kernel: it goes over TCP)");
    Errno::OPNOTSUPP
}

/// read(2), readv(2), preadv2(2): as [`recv`], except that a length of zero does not wait: read(2): "If count is zero, read() may detect
/// the errors described below. In the absence of any errors, … returns zero".
pub fn read(fd: RawFd, into: &mut [IoSliceMut<'_>], flags: i32) -> Route<usize> {
    let nothing = into.iter().all(|slice| slice.is_empty());
    if nothing { of_nothing(fd) } else { None }.unwrap_or_else(|| recv(fd, into, flags))
}

/// recv(2) and all the others that read. `flags` as in recv(2). A stream gives no source address.
pub fn recv(fd: RawFd, into: &mut [IoSliceMut<'_>], flags: i32) -> Route<usize> {
    let Some(held) = known(fd) else { return inherited::transfer(fd) };
    let Some(stream) = held.socket.live_stream() else {
        if held.socket.role() == Role::Datagram {
            return match datagram::receive(fd, into, &mut [], flags) {
                Route::Kernel => Route::Kernel,
                Route::Done(received) => received.map(|received| received.len).into(),
            };
        }
        return if no_stream(fd, &held) { recv(fd, into, flags) } else { Route::Kernel };
    };
    // The queue of errors is the kernel's socket's.
    if flags & libc::MSG_ERRQUEUE != 0 {
        return Route::Kernel;
    }
    // tcp(7): without urgent data a read of it is EINVAL.
    if flags & libc::MSG_OOB != 0 {
        return Route::err(Errno::INVAL);
    }
    let blocking = blocking(&held, flags, || held.socket.options.receive_timeout());
    let (peek, wait_all) = (flags & libc::MSG_PEEK != 0, flags & libc::MSG_WAITALL != 0);
    route(stream, stream.receive(into, peek, wait_all, blocking))
}

/// [`recv`] into one buffer of at least a byte. Nearly always without a flag that would change anything.
#[inline(always)]
pub fn recv_one(fd: RawFd, into: &mut [u8], flags: i32) -> Route<usize> {
    if flags & !libc::MSG_DONTWAIT == 0
        && let Some(held) = fd::get(fd)
        && let Some(stream) = held.socket.live_stream()
    {
        return match stream.receive_one(into, || blocking(&held, flags, || held.socket.options.receive_timeout())) {
            Ok(count) => Route::ok(count),
            failed => route(stream, failed),
        };
    }
    recv(fd, &mut [IoSliceMut::new(into)], flags)
}

/// recv(2) with MSG_TRUNC. tcp(7): it "causes the received bytes of data to be discarded, rather than passed back in a caller-supplied
/// buffer". With MSG_PEEK they are only counted.
pub fn discard(fd: RawFd, wanted: usize, flags: i32) -> Route<usize> {
    let piece = if flags & libc::MSG_PEEK != 0 { PEEK_MOST } else { DISCARD_PIECE };
    let mut sink = vec![0; wanted.min(piece)];
    let mut done = 0;
    loop {
        let asked = sink.len().min(wanted - done);
        let part = sink.get_mut(..asked).unwrap_or_default();
        // Who has some waits no more, unless all are wanted.
        let how = if done > 0 && flags & libc::MSG_WAITALL == 0 { flags | libc::MSG_DONTWAIT } else { flags };
        match recv(fd, &mut [IoSliceMut::new(part)], how & !libc::MSG_TRUNC) {
            Route::Done(Ok(count)) => {
                done += count;
                if count < asked || done == wanted || flags & libc::MSG_PEEK != 0 {
                    return Route::ok(done);
                }
            }
            _ if done > 0 => return Route::ok(done),
            other => return other,
        }
    }
}

/// ioctl(FIONREAD): bytes that can be read without blocking. EINVAL on a listener (tcp(7)).
pub fn readable_bytes(fd: RawFd) -> Route<i32> {
    if datagram::is_datagram(fd) {
        return known(fd).map_or(Route::Kernel, |held| datagram::readable_bytes(fd, &held));
    }
    count(fd, Stream::readable)
}

/// ioctl(SIOCOUTQ): bytes handed to send that the peer's side has not acknowledged.
pub fn unsent_bytes(fd: RawFd) -> Route<i32> {
    count(fd, Stream::unsent)
}

fn count(fd: RawFd, what: impl Fn(&Stream) -> crate::error::Result<u32>) -> Route<i32> {
    let Some(held) = deferred::used(fd) else { return Route::Kernel };
    let Some(stream) = held.socket.stream() else { return Route::Kernel };
    what(stream).map(|count| i32::try_from(count).unwrap_or(i32::MAX)).into()
}

/// pread, pwrite, preadv, pwritev, lseek …: a socket cannot seek; the kernel's own socket says ESPIPE.
pub fn seek(_fd: RawFd) -> Route<i64> {
    Route::Kernel
}
