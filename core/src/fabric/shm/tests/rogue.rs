//! What a program needs that knows the rendezvous of shared memory and keeps to no rule: bare descriptors and mappings, no endpoint.

use core::{mem::MaybeUninit, net::SocketAddr, sync::atomic::Ordering};
use std::sync::Arc;

use rustix::{
    fd::{AsFd, BorrowedFd, OwnedFd},
    fs::{MemfdFlags, SealFlags},
    io::{IoSlice, IoSliceMut},
    net::{RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SendAncillaryBuffer, SendAncillaryMessage, SendFlags, SocketFlags},
};

use super::super::{
    channel,
    greeting::{BYTES, Greeting, Verdict},
    memory::Layout,
    name,
};
use crate::{error::Errno, fabric::Region, sys::descriptor::OwnFd, work::ExposedMemory};

/// Where what is in a memory (`memory`).
pub(crate) const ARMED: usize = 0;
pub(crate) const STARVED: usize = 4;
pub(crate) const ANSWERED: usize = 8;
pub(crate) const ENDED: usize = 12;
pub(crate) const POSTED: usize = 64;
pub(crate) const PROCESSOR: usize = 68;
pub(crate) const RING: usize = 128;
/// Nobody writes there.
const UNUSED: [core::ops::Range<usize>; 2] = [ENDED + 4..POSTED, PROCESSOR + 4..RING];

/// Bytes of a greeting.
pub(crate) const GREETING: usize = BYTES;
/// Most descriptors that go with a message here.
pub(crate) const FILES: usize = 8;

/// A mapped memory, its own or the other end's.
#[derive(Clone)]
pub(crate) struct Mapped {
    /// To the end of the last page.
    region: Arc<Region>,
    pub(crate) len: usize,
    pub(crate) entries: u32,
    pub(crate) exposed: ExposedMemory,
}

impl Mapped {
    /// `None`: it is not what it should be.
    fn new(file: &OwnedFd, layout: Layout, key: u32) -> Option<Self> {
        let whole = layout.len().next_multiple_of(rustix::param::page_size());
        let size = rustix::fs::fstat(file).ok()?.st_size;
        let sealed = rustix::fs::fcntl_get_seals(file).ok()?.contains(SealFlags::SHRINK | SealFlags::GROW);
        if !sealed || usize::try_from(size) != Ok(layout.len()) {
            return None;
        }
        let region = Region::shared(file.as_fd(), whole).ok()?;
        Some(Mapped { region: Arc::new(region), len: layout.len(), entries: layout.entries(), exposed: layout.exposed(key) })
    }

    /// Writes a word, if it is there.
    pub(crate) fn set(&self, offset: usize, value: u32) {
        if let Some(word) = self.region.word(offset).filter(|_| offset + 4 <= self.len) {
            word.store(value, Ordering::Release);
        }
    }

    pub(crate) fn get(&self, offset: usize) -> u32 {
        self.region.word(offset).map_or(0, |word| word.load(Ordering::Acquire))
    }

    /// The message of this number, if the ring has it.
    pub(crate) fn message(&self, number: u32) -> Option<u32> {
        let entry = self.region.long(self.entry(number))?.load(Ordering::Acquire);
        ((entry >> 32) as u32 == number).then_some(entry as u32)
    }

    /// Where the ring has the message of this number.
    pub(crate) fn entry(&self, number: u32) -> usize {
        RING + 8 * (number & (self.entries - 1)) as usize
    }

    /// Writes an entry of the ring.
    pub(crate) fn put(&self, offset: usize, number: u32, message: u32) {
        if let Some(entry) = self.region.long(offset).filter(|_| offset + 8 <= self.len) {
            entry.store(u64::from(number) << 32 | u64::from(message), Ordering::Release);
        }
    }

    /// Writes bytes into the areas, as far as they fit.
    pub(crate) fn write(&self, offset: u64, bytes: &[u8]) {
        let Some(room) = usize::try_from(offset).ok().and_then(|offset| self.len.checked_sub(offset)) else { return };
        if offset >= self.exposed.targets.addr {
            let _ = self.region.write(offset as usize, &bytes[..bytes.len().min(room)]);
        }
    }

    pub(crate) fn read<const N: usize>(&self, offset: u64) -> [u8; N] {
        let mut bytes = [0; N];
        let _ = self.region.read(usize::try_from(offset).unwrap_or(usize::MAX), &mut bytes);
        bytes
    }

    /// Whether the bytes that belong to nobody are as they were: those between the words, and those behind the end.
    pub(crate) fn is_intact(&self) -> bool {
        UNUSED.into_iter().chain(core::iter::once(self.len..self.region.len())).all(|range| {
            let mut bytes = vec![1; range.len()];
            self.region.read(range.start, &mut bytes).is_ok() && bytes.iter().all(|byte| *byte == 0)
        })
    }
}

/// A memory file that is handed over.
pub(crate) struct Handed {
    pub(crate) file: OwnedFd,
    /// Where it is what it should be.
    pub(crate) mapped: Option<Mapped>,
    layout: Layout,
    key: u32,
}

impl Handed {
    /// One that keeps to the rules.
    pub(crate) fn good(entries: u32, targets: u32, receive: u32, key: u32) -> Self {
        let layout = Layout::new(entries, targets, receive).unwrap();
        let file = memory(layout.len(), SealFlags::SHRINK | SealFlags::GROW | SealFlags::SEAL, MemfdFlags::empty());
        Handed { mapped: Mapped::new(&file, layout, key), file, layout, key }
    }

    /// Something else instead.
    pub(crate) fn replace(&mut self, file: OwnedFd) {
        self.mapped = Mapped::new(&file, self.layout, self.key);
        self.file = file;
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

/// A memory file of any length, seals and kind.
pub(crate) fn memory(len: usize, seals: SealFlags, kind: MemfdFlags) -> OwnedFd {
    let file = rustix::fs::memfd_create("rogue", kind | MemfdFlags::ALLOW_SEALING | MemfdFlags::CLOEXEC).unwrap();
    // Huge pages may be too few, or their size may not fit.
    let _ = rustix::fs::ftruncate(&file, len as u64);
    if !seals.is_empty() {
        rustix::fs::fcntl_add_seals(&file, seals).unwrap();
    }
    file
}

/// What the other end has said.
pub(crate) struct Heard {
    pub(crate) client: SocketAddr,
    pub(crate) private_data: Vec<u8>,
    /// Its memory.
    pub(crate) mapped: Mapped,
    pub(crate) file: OwnedFd,
    layout: Layout,
    key: u32,
}

impl Heard {
    /// The other end's own memory, to be handed back to it.
    pub(crate) fn mirror(&self) -> Handed {
        let file = rustix::io::fcntl_dupfd_cloexec(&self.file, 0).unwrap();
        Handed { file, mapped: Some(self.mapped.clone()), layout: self.layout, key: self.key }
    }
}

/// A listening socket of its own.
pub(crate) fn listen(addr: SocketAddr) -> OwnFd {
    channel::listen(name::of_listener(addr, false)).unwrap()
}

/// Connects to a listener, and says nothing. `None`: nobody listens, or too many wait there.
pub(crate) fn connect(addr: SocketAddr) -> Option<OwnFd> {
    channel::connect(&name::candidates(addr), 0).ok().flatten()
}

/// Whoever has come to a listening socket.
pub(crate) fn accept(listener: &OwnFd) -> Option<OwnFd> {
    rustix::net::accept_with(listener, SocketFlags::NONBLOCK | SocketFlags::CLOEXEC).ok().map(OwnFd::from)
}

/// Sends bytes, and descriptors with them; does not care whether that can be done.
pub(crate) fn say(channel: &OwnFd, bytes: &[u8], files: &[BorrowedFd<'_>]) {
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(FILES))];
    let mut ancillary = SendAncillaryBuffer::new(&mut space);
    if !files.is_empty() {
        assert!(ancillary.push(SendAncillaryMessage::ScmRights(files)));
    }
    let _ = rustix::net::sendmsg(channel, &[IoSlice::new(bytes)], &mut ancillary, SendFlags::DONTWAIT | SendFlags::NOSIGNAL);
}

/// Takes one message of the other end off. False: there is none.
pub(crate) fn take(channel: &OwnFd) -> bool {
    let mut bytes = [0; 2 * GREETING];
    rustix::net::recv(channel, &mut bytes, RecvFlags::DONTWAIT).is_ok_and(|(_, len)| len > 0)
}

/// Takes a greeting. EAGAIN: it has not come yet. EPROTO: what came is none. The end is ECONNRESET.
pub(crate) fn hear(channel: &OwnFd) -> Result<Heard, Errno> {
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
    let mut ancillary = RecvAncillaryBuffer::new(&mut space);
    let mut bytes = [0; 2 * GREETING];
    let flags = RecvFlags::DONTWAIT | RecvFlags::CMSG_CLOEXEC;
    let len = rustix::net::recvmsg(channel, &mut [IoSliceMut::new(&mut bytes)], &mut ancillary, flags)?.bytes;
    if len == 0 {
        return Err(Errno::CONNRESET);
    }
    let file = ancillary.drain().find_map(|message| match message {
        RecvAncillaryMessage::ScmRights(mut files) => files.next(),
        _ => None,
    });
    let (greeting, file) = Greeting::parse(&bytes[..len]).zip(file).ok_or(Errno::PROTO)?;
    let Greeting { client, private_data, layout, key, .. } = greeting;
    let mapped = Mapped::new(&file, layout, key).ok_or(Errno::PROTO)?;
    Ok(Heard { client, private_data, mapped, file, layout, key })
}
