//! The Unix socket of a connection: rendezvous, the passing of memory, the bell that wakes a sleeping peer, and the sign of its death.
#![forbid(unsafe_code)]

use core::{mem::MaybeUninit, time::Duration};

use rustix::{
    fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd},
    io::{IoSlice, IoSliceMut},
    net::{
        AddressFamily, RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, ReturnFlags, SendAncillaryBuffer, SendAncillaryMessage,
        SendFlags, Shutdown, SocketAddrUnix, SocketFlags, SocketType, sockopt,
    },
};

use super::greeting::{BYTES, Greeting};
use crate::{
    error::{Errno, Result},
    sys::{
        descriptor::{self, OwnFd},
        own,
        ppoll::PollFd,
        signals,
    },
};

/// Connections that may wait for the listener's service thread; the kernel cuts it to net.core.somaxconn.
const BACKLOG: i32 = 4096;

const SPACE: usize = rustix::cmsg_space!(ScmRights(1));

fn socket() -> Result<OwnedFd> {
    rustix::net::socket_with(AddressFamily::UNIX, SocketType::SEQPACKET, SocketFlags::NONBLOCK | SocketFlags::CLOEXEC, None)
}

fn address(name: impl AsRef<[u8]>) -> Result<SocketAddrUnix> {
    SocketAddrUnix::new_abstract_name(name.as_ref())
}

/// Listens under a name. EADDRINUSE: somebody else does.
pub(super) fn listen(name: impl AsRef<[u8]>) -> Result<OwnFd> {
    let socket = descriptor::lift(socket()?);
    rustix::net::bind(&socket, &address(name)?)?;
    rustix::net::listen(&socket, BACKLOG)?;
    Ok(socket)
}

/// Listens as the user that the process is now, whom SO_PEERCRED tells those who connect from then on.
pub(super) fn listen_anew(socket: &OwnFd) -> Result<()> {
    rustix::net::listen(socket, BACKLOG)
}

/// Connects to whoever listens under one of the names, in their order. `None`: nobody. EMFILE: the library, which has `own` numbers, may
/// take no more.
pub(super) fn connect(names: &[impl AsRef<[u8]>], own: usize) -> Result<Option<OwnFd>> {
    let socket = socket()?;
    for name in names {
        match rustix::net::connect(&socket, &address(name)?) {
            Ok(()) => return descriptor::lift_sparingly(socket, own).map(Some),
            // EAGAIN: more connections wait there than the listener's queue takes.
            Err(Errno::CONNREFUSED | Errno::NOENT) => {}
            Err(errno) => return Err(errno),
        }
    }
    Ok(None)
}

/// A name that is there, and nothing else. EADDRINUSE: it is.
pub(super) fn mark(name: &str) -> Result<OwnFd> {
    let socket = rustix::net::socket_with(AddressFamily::UNIX, SocketType::DGRAM, SocketFlags::NONBLOCK | SocketFlags::CLOEXEC, None)?;
    rustix::net::bind(&socket, &address(name)?)?;
    let socket = descriptor::lift(socket);
    // They have the listener, too.
    own::keep_in_children(socket.as_raw_fd());
    Ok(socket)
}

/// Whether there is one of these names. Nobody is told: nothing is sent.
pub(super) fn is_marked(names: &[String]) -> bool {
    let flags = SocketFlags::NONBLOCK | SocketFlags::CLOEXEC;
    let Ok(socket) = rustix::net::socket_with(AddressFamily::UNIX, SocketType::DGRAM, flags, None) else { return false };
    names.iter().any(|name| address(name).is_ok_and(|address| rustix::net::connect(&socket, &address).is_ok()))
}

/// The next connection of a listener. EAGAIN: there is none.
pub(super) fn accept(listener: BorrowedFd<'_>) -> Result<OwnedFd> {
    rustix::net::accept_with(listener, SocketFlags::NONBLOCK | SocketFlags::CLOEXEC)
}

/// The user at the other end, when it connected or began to listen.
pub(super) fn peer_uid(channel: BorrowedFd<'_>) -> Option<u32> {
    sockopt::socket_peercred(channel).ok().map(|peer| peer.uid.as_raw())
}

/// That user in a sentence of the log.
pub(super) fn user(uid: Option<u32>) -> String {
    uid.map_or_else(|| String::from("a user that is not known"), |uid| format!("user {uid}"))
}

/// Sends a message, and a file with it.
pub(super) fn send(channel: BorrowedFd<'_>, bytes: &[u8], file: Option<BorrowedFd<'_>>) -> Result<()> {
    let mut space = [MaybeUninit::uninit(); SPACE];
    let mut ancillary = SendAncillaryBuffer::new(&mut space);
    let files: Vec<BorrowedFd<'_>> = file.into_iter().collect();
    if !files.is_empty() && !ancillary.push(SendAncillaryMessage::ScmRights(&files)) {
        return Err(Errno::NOBUFS);
    }
    rustix::net::sendmsg(channel, &[IoSlice::new(bytes)], &mut ancillary, SendFlags::DONTWAIT | SendFlags::NOSIGNAL).map(drop)
}

/// Receives a message of at most `bytes.len()` bytes, and a file if one came with it. EAGAIN: there is none yet. A length of 0: the end.
/// More files than one are closed.
pub(super) fn receive(channel: BorrowedFd<'_>, bytes: &mut [u8]) -> Result<(usize, Option<OwnedFd>)> {
    let mut space = [MaybeUninit::uninit(); SPACE];
    let mut ancillary = RecvAncillaryBuffer::new(&mut space);
    let flags = RecvFlags::DONTWAIT | RecvFlags::CMSG_CLOEXEC;
    let received = rustix::net::recvmsg(channel, &mut [IoSliceMut::new(bytes)], &mut ancillary, flags)?;
    let mut file = None;
    for message in ancillary.drain() {
        if let RecvAncillaryMessage::ScmRights(files) = message {
            file = files.last();
        }
    }
    // recvmsg(2): "some control data was discarded": a file for which this process has no number.
    if file.is_none() && received.flags.contains(ReturnFlags::CTRUNC) {
        return Err(Errno::MFILE);
    }
    Ok((received.bytes, file))
}

/// Waits until the other end says something, or the time is over. EINTR: a signal has come whose handler does not restart calls.
pub(super) fn await_word(channel: BorrowedFd<'_>, most: Duration) -> Result<()> {
    let mut set = [PollFd { fd: channel.as_raw_fd(), events: libc::POLLIN, revents: 0 }];
    signals::sleep(&mut set, Some(most)).map(drop)
}

/// What a channel says before its connection stands.
pub(super) enum Heard {
    /// Nothing yet.
    Silence,
    /// The other end has gone.
    End,
    /// Something that is no greeting.
    Nonsense,
    /// A greeting, and the file that came with it.
    Greeting(Greeting, Option<OwnedFd>),
}

/// Takes a greeting.
pub(super) fn hear(channel: BorrowedFd<'_>) -> Heard {
    // One byte more than a greeting has: what is longer is none.
    let mut bytes = [0; BYTES + 1];
    match receive(channel, &mut bytes) {
        Err(Errno::AGAIN | Errno::INTR) => Heard::Silence,
        Err(_) | Ok((0, _)) => Heard::End,
        Ok((len, file)) => match bytes.get(..len).and_then(Greeting::parse) {
            Some(greeting) => Heard::Greeting(greeting, file),
            None => Heard::Nonsense,
        },
    }
}

/// Rings: the channel of the peer becomes readable. EAGAIN: it is, and has been for long.
#[inline]
pub(super) fn ring(channel: BorrowedFd<'_>) -> Result<()> {
    match rustix::net::send(channel, &[1], SendFlags::DONTWAIT | SendFlags::NOSIGNAL) {
        Ok(_) | Err(Errno::AGAIN) => Ok(()),
        Err(errno) => Err(errno),
    }
}

/// What taking a bell off a channel found.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Bell {
    Rung,
    Silent,
    /// The peer has ended the connection, or is dead.
    End,
}

/// Takes one ring off.
#[inline]
pub(super) fn take_ring(channel: BorrowedFd<'_>) -> Bell {
    let mut byte = [0_u8; 1];
    match rustix::net::recv(channel, &mut byte, RecvFlags::DONTWAIT) {
        Ok((0, _)) => Bell::End,
        Ok(_) => Bell::Rung,
        Err(Errno::AGAIN | Errno::INTR) => Bell::Silent,
        Err(_) => Bell::End,
    }
}

/// Both ends learn that it is over, whoever else holds the descriptor.
pub(super) fn end(channel: impl AsFd) {
    let _ = rustix::net::shutdown(channel, Shutdown::Both);
}
