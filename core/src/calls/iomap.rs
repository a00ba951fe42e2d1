//! riomap, riounmap, riowrite. What is no connection over a fabric has nothing that could be mapped: the callers of these say so.

use std::os::fd::RawFd;

use super::{Route, deferred, inherited, io};
use crate::{
    error::{Errno, Result},
    fd::Held,
    sys::program::Span,
};

/// An offset that stands for the address of the memory.
const ADDRESS: i64 = -1;

/// Maps memory of the program's for the peer to write to (PROT_WRITE), or for this end to write from (PROT_NONE). Gives the offset.
pub fn riomap(fd: RawFd, memory: Span, protection: i32, offset: i64) -> Route<i64> {
    let remote = protection & libc::PROT_WRITE != 0;
    let offset = match checked(memory, protection, remote, offset) {
        Ok(offset) => offset,
        Err(errno) => return Route::err(errno),
    };
    let Some(held) = deferred::used(fd) else { return inherited::transfer(fd) };
    let Some(stream) = held.socket.live_stream() else { return no_stream(&held) };
    let blocking = io::blocking(&held, 0, || held.socket.options.send_timeout());
    let mapped = stream.map(memory, remote.then_some(offset.cast_unsigned()), blocking);
    io::route(stream, mapped.map(|()| offset))
}

/// The offset, if all can be.
fn checked(memory: Span, protection: i32, remote: bool, offset: i64) -> Result<i64> {
    // PROT_NONE is 0.
    if protection & !libc::PROT_WRITE != 0 || memory.is_empty() {
        return Err(Errno::INVAL);
    }
    let offset = if offset == ADDRESS { i64::try_from(memory.start()).map_err(|_| Errno::FAULT)? } else { offset };
    let end = i64::try_from(memory.len()).ok().and_then(|len| offset.checked_add(len));
    // A record has 32 bits for the length.
    let fits = !remote || u32::try_from(memory.len()).is_ok();
    if offset < 0 || end.is_none() || !fits { Err(Errno::INVAL) } else { Ok(offset) }
}

/// Ends the mapping that was made of exactly this memory: the oldest, if there are several.
pub fn riounmap(fd: RawFd, memory: Span) -> Route<()> {
    let Some(held) = deferred::used(fd) else { return inherited::transfer(fd) };
    let Some(stream) = held.socket.live_stream() else { return no_stream(&held) };
    io::route(stream, stream.unmap(memory))
}

/// ENOTCONN, unless the kernel has it.
fn no_stream<T>(held: &Held) -> Route<T> {
    if held.socket.is_kernel() { Route::Kernel } else { Route::err(Errno::NOTCONN) }
}

/// Writes to what the peer has mapped at `offset`. Gives how many bytes were taken: 0 where nothing is mapped. `bytes` are at `memory`.
pub fn riowrite(fd: RawFd, bytes: &[u8], memory: Span, offset: i64, flags: i32) -> Route<usize> {
    let Some(held) = deferred::used(fd) else { return inherited::transfer(fd) };
    let Some(stream) = held.socket.live_stream() else { return no_stream(&held) };
    let Ok(offset) = u64::try_from(offset) else { return Route::err(Errno::INVAL) };
    let blocking = io::blocking(&held, flags, || held.socket.options.send_timeout());
    io::route(stream, stream.place(bytes, memory, offset, blocking))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_can_be_mapped() {
        let span = Span::unused;
        let (memory, write, none) = (span(0x1000, 16), libc::PROT_WRITE, libc::PROT_NONE);
        let ask = |memory, protection, offset| checked(memory, protection, protection & libc::PROT_WRITE != 0, offset);
        assert_eq!(ask(memory, write, -1), Ok(0x1000));
        assert_eq!(ask(memory, none, 0), Ok(0));
        assert_eq!(ask(memory, write, i64::MAX - 16), Ok(i64::MAX - 16));
        for (memory, protection, offset) in [
            (memory, libc::PROT_READ, 0),
            (memory, libc::PROT_READ | write, 0),
            (memory, write, -2),
            (memory, write, i64::MAX - 15),
            (span(0x1000, 0), write, 0),
            (span(0x1000, 1 << 32), write, 0),
        ] {
            assert_eq!(ask(memory, protection, offset), Err(Errno::INVAL), "{memory:?} {protection} {offset}");
        }
        assert_eq!(ask(span(0x1000, 1 << 32), none, 0), Ok(0));
    }
}
