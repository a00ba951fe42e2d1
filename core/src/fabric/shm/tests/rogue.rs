//! A program that knows the rendezvous of shared memory and keeps to no rule: bare descriptors and mappings, no endpoint.

use core::{mem::MaybeUninit, net::SocketAddr, sync::atomic::Ordering};
use std::sync::Arc;

use rustix::{
    fd::{AsFd, BorrowedFd, OwnedFd},
    fs::{MemfdFlags, SealFlags},
    io::{IoSlice, IoSliceMut},
    net::{
        RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SendAncillaryBuffer, SendAncillaryMessage, SendFlags, Shutdown, SocketFlags,
    },
};

use super::super::{
    channel,
    greeting::{BYTES, Greeting, Verdict},
    memory::Layout,
    name,
};
use crate::{error::Result, fabric::Region, work::ExposedMemory};

/// Where what is in a memory (`memory`).
pub(crate) const ARMED: usize = 0;
pub(crate) const STARVED: usize = 4;
pub(crate) const POSTED: usize = 64;
pub(crate) const RING: usize = 128;

/// Bytes of a greeting.
pub(crate) const GREETING: usize = BYTES;

/// A mapped memory, its own or the other end's. It knows how long the mapping is and no more.
#[derive(Clone)]
pub(crate) struct Mapped {
    pub(crate) region: Arc<Region>,
    pub(crate) entries: u32,
    pub(crate) exposed: ExposedMemory,
}

impl Mapped {
    fn new(region: Region, layout: Layout, key: u32) -> Self {
        Mapped { region: Arc::new(region), entries: layout.entries(), exposed: layout.exposed(key) }
    }

    /// Writes a word, if it is there.
    pub(crate) fn set(&self, offset: usize, value: u32) {
        if let Some(word) = self.region.word(offset) {
            word.store(value, Ordering::Release);
        }
    }

    pub(crate) fn get(&self, offset: usize) -> u32 {
        self.region.word(offset).map_or(0, |word| word.load(Ordering::Acquire))
    }

    /// Where the ring has the message of this number.
    pub(crate) fn entry(&self, number: u32) -> usize {
        RING + 8 * (number & (self.entries - 1)) as usize
    }

    /// Writes an entry of the ring.
    pub(crate) fn put(&self, offset: usize, number: u32, message: u32) {
        if let Some(entry) = self.region.long(offset) {
            entry.store(u64::from(number) << 32 | u64::from(message), Ordering::Release);
        }
    }
}

/// A memory file that it hands over.
pub(crate) struct Handed {
    pub(crate) file: OwnedFd,
    pub(crate) mapped: Mapped,
    layout: Layout,
    key: u32,
}

impl Handed {
    /// One that keeps to the rules.
    pub(crate) fn good(entries: u32, targets: u32, receive: u32, key: u32) -> Self {
        let layout = Layout::new(entries, targets, receive).unwrap();
        Handed::sealed(layout, key, SealFlags::SHRINK | SealFlags::GROW | SealFlags::SEAL, MemfdFlags::ALLOW_SEALING).unwrap()
    }

    /// The same with other seals, or another kind of memory. Fails where the host has none of that kind.
    pub(crate) fn with(&self, seals: SealFlags, flags: MemfdFlags) -> Result<Self> {
        Handed::sealed(self.layout, self.key, seals, flags)
    }

    fn sealed(layout: Layout, key: u32, seals: SealFlags, flags: MemfdFlags) -> Result<Self> {
        let file = rustix::fs::memfd_create("rogue", flags | MemfdFlags::CLOEXEC)?;
        let page = if flags.contains(MemfdFlags::HUGETLB) { 2 << 20 } else { 1 };
        rustix::fs::ftruncate(&file, layout.len().next_multiple_of(page) as u64)?;
        let region = Region::shared(file.as_fd(), layout.len())?;
        if !seals.is_empty() {
            rustix::fs::fcntl_add_seals(&file, seals)?;
        }
        Ok(Handed { file, mapped: Mapped::new(region, layout, key), layout, key })
    }

    /// Its length in bytes.
    pub(crate) fn len(&self) -> usize {
        self.layout.len()
    }

    /// What an end says that asks (`true`) or agrees.
    pub(crate) fn greeting(&self, asks: bool, client: SocketAddr, server: SocketAddr, private_data: &[u8]) -> [u8; GREETING] {
        let verdict = if asks { Verdict::Request } else { Verdict::Accepted };
        Greeting { verdict, key: self.key, layout: self.layout, client, server, private_data: private_data.to_vec() }.to_bytes()
    }
}

/// What the other end has said.
pub(crate) struct Heard {
    pub(crate) client: SocketAddr,
    pub(crate) private_data: Vec<u8>,
    /// Its memory.
    pub(crate) mapped: Mapped,
    pub(crate) file: OwnedFd,
}

/// A listening socket of its own.
pub(crate) fn listen(addr: SocketAddr) -> OwnedFd {
    channel::listen(&name::of_listener(addr, false)).unwrap()
}

/// Connects to a listener, and says nothing. `None`: nobody listens.
pub(crate) fn connect(addr: SocketAddr) -> Option<OwnedFd> {
    channel::connect(&name::candidates(addr), 0).unwrap()
}

/// Whoever has come to a listening socket.
pub(crate) fn accept(listener: &OwnedFd) -> Option<OwnedFd> {
    rustix::net::accept_with(listener, SocketFlags::NONBLOCK | SocketFlags::CLOEXEC).ok()
}

/// Sends bytes, and descriptors with them; does not care whether that can be done.
pub(crate) fn say(channel: &OwnedFd, bytes: &[u8], files: &[BorrowedFd<'_>]) {
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(8))];
    let mut ancillary = SendAncillaryBuffer::new(&mut space);
    if !files.is_empty() {
        assert!(ancillary.push(SendAncillaryMessage::ScmRights(files)));
    }
    let _ = rustix::net::sendmsg(channel, &[IoSlice::new(bytes)], &mut ancillary, SendFlags::DONTWAIT | SendFlags::NOSIGNAL);
}

/// Takes whatever the other end has sent: how many bytes, if there was something. 0: its end.
pub(crate) fn take(channel: &OwnedFd) -> Option<usize> {
    let mut bytes = [0; 2 * GREETING];
    rustix::net::recv(channel, &mut bytes, RecvFlags::DONTWAIT).ok().map(|(_, len)| len)
}

/// Takes a greeting, if it has come. `Some(Err)`: there will be none.
pub(crate) fn hear(channel: &OwnedFd) -> Option<core::result::Result<Heard, ()>> {
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
    let mut ancillary = RecvAncillaryBuffer::new(&mut space);
    let mut bytes = [0; 2 * GREETING];
    let flags = RecvFlags::DONTWAIT | RecvFlags::CMSG_CLOEXEC;
    let len = match rustix::net::recvmsg(channel, &mut [IoSliceMut::new(&mut bytes)], &mut ancillary, flags) {
        Ok(received) => received.bytes,
        Err(crate::error::Errno::AGAIN) => return None,
        Err(_) => return Some(Err(())),
    };
    let file = ancillary.drain().find_map(|message| match message {
        RecvAncillaryMessage::ScmRights(mut files) => files.next(),
        _ => None,
    });
    let heard = Greeting::parse(&bytes[..len]).zip(file).map(|(greeting, file)| {
        let region = Region::shared(file.as_fd(), greeting.layout.len()).unwrap();
        let mapped = Mapped::new(region, greeting.layout, greeting.key);
        Heard { client: greeting.client, private_data: greeting.private_data, mapped, file }
    });
    Some(heard.ok_or(()))
}

/// shutdown(2).
pub(crate) fn shut(channel: &OwnedFd, how: Shutdown) {
    let _ = rustix::net::shutdown(channel, how);
}
