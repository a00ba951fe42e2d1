//! splice(2) between a stream, or a socket of datagrams, and a pipe: what moves is copied once more than the kernel would, and nothing that was taken from the one
//! is lost on the way to the other.
#![forbid(unsafe_code)]

use core::time::Duration;
use std::{
    io::{IoSlice, IoSliceMut},
    os::fd::RawFd,
};

use super::{
    Route,
    datagram::{self, is_datagram},
    deferred, inherited, io, known,
};
use crate::{
    error::{Errno, Result},
    socket::{Role, stream::Stream},
    sys::{
        descriptor,
        ppoll::{PollFd, ppoll},
        signals,
    },
};

/// Bytes that are moved at a time.
const PIECE: usize = 1 << 16;

/// What a pipe that has room takes without waiting (pipe(7): PIPE_BUF).
const LEAST_ROOM: usize = 4096;

/// One end of a pipe, which is the program's and the kernel's.
#[derive(Clone, Copy)]
pub struct Pipe {
    fd: RawFd,
    capacity: usize,
    /// It is not waited for.
    nonblocking: bool,
}

impl Pipe {
    /// The end of a pipe that data can be read from, or written to. `None`: it is something else.
    pub fn open(number: RawFd, writing: bool, nonblocking: bool) -> Option<Pipe> {
        let fd = descriptor::borrow(number)?;
        let capacity = rustix::pipe::fcntl_getpipe_size(fd).ok()?;
        let flags = rustix::fs::fcntl_getfl(fd).ok()?;
        let access = flags & rustix::fs::OFlags::RWMODE;
        let wrong = if writing { rustix::fs::OFlags::RDONLY } else { rustix::fs::OFlags::WRONLY };
        let nonblocking = nonblocking || flags.contains(rustix::fs::OFlags::NONBLOCK);
        (access != wrong).then_some(Pipe { fd: number, capacity, nonblocking })
    }

    fn queued(&self) -> Result<usize> {
        let fd = descriptor::borrow(self.fd).ok_or(Errno::BADF)?;
        rustix::io::ioctl_fionread(fd).map(|count| usize::try_from(count).unwrap_or(usize::MAX))
    }

    /// Waits for an event, and gives those that came: none only if it is not to wait.
    fn wait(&self, events: i16, nonblocking: bool) -> Result<i16> {
        let mut one = [PollFd { fd: self.fd, events, revents: 0 }];
        loop {
            match ppoll(&mut one, nonblocking.then_some(Duration::ZERO), None) {
                Err(Errno::INTR) if signals::restarts() => {}
                Err(errno) => return Err(errno),
                Ok(_) => return one.first().map(|one| one.revents).ok_or(Errno::BADF),
            }
        }
    }

    /// How much can be written without waiting. EAGAIN: nothing. pipe(7): "If all file descriptors referring to the read end of a pipe have
    /// been closed, then a write(2) will cause a SIGPIPE signal to be generated".
    fn room(&self, nonblocking: bool) -> Result<usize> {
        let events = self.wait(libc::POLLOUT, nonblocking)?;
        if events & libc::POLLERR != 0 {
            signals::raise_sigpipe();
            return Err(Errno::PIPE);
        }
        if events & libc::POLLOUT == 0 {
            return Err(Errno::AGAIN);
        }
        Ok(if self.queued()? == 0 { self.capacity } else { LEAST_ROOM })
    }

    /// Writes all. The pipe had room for it: it waits only for what others have written meanwhile.
    fn write_all(&self, mut bytes: &[u8]) -> Result<()> {
        while !bytes.is_empty() {
            let fd = descriptor::borrow(self.fd).ok_or(Errno::BADF)?;
            match rustix::io::write(fd, bytes) {
                Ok(written) => bytes = bytes.get(written..).unwrap_or_default(),
                Err(Errno::INTR) => {}
                Err(Errno::AGAIN) => {
                    let _ = self.wait(libc::POLLOUT, false);
                }
                Err(errno) => return Err(errno),
            }
        }
        Ok(())
    }

    /// How much there is to read. `Ok(0)`: no more, and nobody will write. EAGAIN: nothing yet.
    fn available(&self, nonblocking: bool) -> Result<usize> {
        let events = self.wait(libc::POLLIN, nonblocking)?;
        match self.queued()? {
            0 if events & libc::POLLHUP != 0 => Ok(0),
            0 => Err(Errno::AGAIN),
            queued => Ok(queued),
        }
    }

    fn read(&self, into: &mut [u8]) -> Result<usize> {
        rustix::io::read(descriptor::borrow(self.fd).ok_or(Errno::BADF)?, into)
    }
}

/// Moves up to `wanted` bytes from a stream to a pipe. As for recv(2), what is there is enough; a full pipe ends it, too.
pub fn to_pipe(from: RawFd, to: Pipe, wanted: usize) -> Route<usize> {
    if is_datagram(from) {
        return one_to_pipe(from, to, wanted);
    }
    if !is_stream(from) {
        return inherited::transfer(from);
    }
    let mut buffer = Vec::new();
    let mut moved = 0;
    while moved < wanted {
        let room = match to.room(to.nonblocking || moved > 0) {
            Ok(room) => room,
            Err(_) if moved > 0 => break,
            Err(errno) => return Route::err(errno),
        };
        let asked = room.min(wanted - moved).min(PIECE);
        if buffer.len() < asked {
            buffer.resize(asked, 0);
        }
        let into = buffer.get_mut(..asked).unwrap_or_default();
        let flags = if moved > 0 { libc::MSG_DONTWAIT } else { 0 };
        let got = match io::recv(from, &mut [IoSliceMut::new(into)], flags) {
            Route::Done(Ok(0)) => break,
            Route::Done(Ok(got)) => got,
            _ if moved > 0 => break,
            other => return other,
        };
        if let Err(errno) = to.write_all(into.get(..got).unwrap_or_default()) {
            return if moved > 0 { Route::ok(moved) } else { Route::err(errno) };
        }
        moved += got;
    }
    Route::ok(moved)
}

/// Moves one datagram, cut off as by recv(2), to a pipe.
fn one_to_pipe(from: RawFd, to: Pipe, wanted: usize) -> Route<usize> {
    let room = match to.room(to.nonblocking) {
        Ok(room) => room,
        Err(errno) => return Route::err(errno),
    };
    let mut buffer = vec![0; room.min(wanted).min(PIECE)];
    match datagram::receive(from, &mut [IoSliceMut::new(&mut buffer)], &mut [], 0) {
        Route::Done(Ok(received)) => {
            let written = to.write_all(buffer.get(..received.len).unwrap_or_default());
            Route::Done(written.map(|()| received.len))
        }
        Route::Done(Err(errno)) => Route::err(errno),
        Route::Kernel => Route::Kernel,
    }
}

/// Moves up to `wanted` bytes from a pipe to a stream. What the stream does not take stays in the pipe.
pub fn from_pipe(from: Pipe, to: RawFd, wanted: usize) -> Route<usize> {
    let Some(held) = deferred::used(to) else { return inherited::transfer(to) };
    let Some(stream) = held.socket.live_stream() else { return Route::Kernel };
    let mut buffer = Vec::new();
    let mut moved = 0;
    while moved < wanted {
        let asked = match from.available(from.nonblocking || moved > 0) {
            Ok(0) => break,
            Ok(available) => available.min(wanted - moved).min(PIECE),
            Err(_) if moved > 0 => break,
            Err(errno) => return Route::err(errno),
        };
        let blocking = io::blocking(&held, if moved > 0 { libc::MSG_DONTWAIT } else { 0 }, || held.socket.options.send_timeout());
        let asked = match stream.room(blocking) {
            Ok(room) => room.min(asked),
            Err(_) if moved > 0 => break,
            Err(errno) => {
                if errno == Errno::PIPE {
                    signals::raise_sigpipe();
                }
                return io::route(stream, Err(errno));
            }
        };
        if buffer.len() < asked {
            buffer.resize(asked, 0);
        }
        match from.read(buffer.get_mut(..asked).unwrap_or_default()) {
            Ok(0) => break,
            Ok(got) => match send_all(to, stream, buffer.get(..got).unwrap_or_default()) {
                Ok(()) => moved += got,
                Err(_) if moved > 0 => break,
                Err(errno) => return Route::err(errno),
            },
            Err(_) if moved > 0 => break,
            Err(errno) => return Route::err(errno),
        }
    }
    Route::ok(moved)
}

/// Sends all. There was room for it: it waits only for what others have sent meanwhile.
fn send_all(to: RawFd, stream: &Stream, mut bytes: &[u8]) -> Result<()> {
    while !bytes.is_empty() {
        match io::send(to, &[IoSlice::new(bytes)], 0) {
            Route::Done(Ok(sent)) => bytes = bytes.get(sent..).unwrap_or_default(),
            Route::Done(Err(Errno::AGAIN | Errno::INTR)) => {
                let _ = stream.room(crate::socket::stream::Blocking::Until(None));
            }
            Route::Done(Err(errno)) => return Err(errno),
            Route::Kernel => return Err(Errno::PIPE),
        }
    }
    Ok(())
}

fn is_stream(number: RawFd) -> bool {
    // One that may become a stream is not used yet.
    known(number).is_some_and(|held| held.socket.live_stream().is_some() || held.socket.role() == Role::Deferred)
}
