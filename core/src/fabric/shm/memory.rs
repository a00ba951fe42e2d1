//! The memory of one end that its peer may write: a sealed memory file, mapped by both.
//!
//! | offset | what | written by |
//! |---|---|---|
//! | 0 | `armed`: how the owner wants to be woken at the next message (bit 0: the bell, bit 1: this word) | owner, taken back by the peer |
//! | 4 | `starved`: the peer waits for receives to be posted | peer, taken back by the owner |
//! | 8 | `answered`: the peer's answer is on its way | peer |
//! | 12 | `ended`: the peer has ended the connection, and puts nothing more into the ring: 1, or 2 for a reset | peer |
//! | 64 | `posted`: how many receives the owner has posted, modulo 2^32 | owner |
//! | 68 | the processor on which the owner has last waited, and 1; 0: it has not | owner |
//! | 128 | ring of messages, 8 bytes each: its number, modulo 2^32, above the message | peer |
//! | | target list and iomap table | peer |
//! | next page | receive area | peer |
//! | | area for bytes that the owner sends to memory of its peer's program (`placing`), if it may ever do that | both |
//!
//! The peer can write anything anywhere at any time. So the owner never reads back what it has written itself, reads each entry once,
//! and the length of the file is sealed: who makes it shorter would kill those that look at it (SIGBUS).

use core::{
    cell::OnceCell,
    sync::atomic::{AtomicU32, AtomicU64, Ordering, fence},
};

use std::sync::Arc;

use rustix::{
    fd::{AsFd, BorrowedFd, OwnedFd},
    fs::{FallocateFlags, MemfdFlags, SealFlags},
    process::{Resource, getrlimit},
};

use super::{greeting::Greeting, placing};
use crate::{
    error::{Errno, Result},
    fabric::{EndpointConfig, Region, SleepWord},
    sys::{descriptor::OwnFd, futex, once::Once, small_file},
    wire::Sge,
    work::{ExposedMemory, RemoteAddress},
};

const ARMED: usize = 0;
/// What `armed` asks for.
const BELL: u32 = 1;
const WORD: u32 = 2;
const STARVED: usize = 4;
const ANSWERED: usize = 8;
const ENDED: usize = 12;
/// What `ended` says.
const ORDERLY: u32 = 1;
const RESET: u32 = 2;
const POSTED: usize = 64;
const PROCESSOR: usize = 68;
const RING: usize = 128;
/// Bytes of a ring entry.
const ENTRY: usize = 8;
/// The areas start at cache lines, the receive area at a page (of any architecture).
const LINE: u32 = 64;
const PAGE: u32 = 65_536;

/// Sizes that a peer may announce: those that socket options can ask for.
const MOST_ENTRIES: u32 = 1 << 17;
const MOST_BYTES: u32 = 1 << 30;

/// Where memory may run out, so much of it is not taken for connections: a program that can allocate nothing more ends.
const LEFT_TO_PROGRAM: usize = 16 << 20;

/// tmpfs, to which memory files belong; others (huge pages) can fail to give a page that was promised.
const TMPFS_MAGIC: u64 = 0x0102_1994;

/// Where what is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Layout {
    entries: u32,
    targets: u32,
    receive: u32,
    /// Whether there is an area for bytes that belong elsewhere.
    places: bool,
}

impl Layout {
    /// `None`: more than anybody needs, or a ring whose size is not a power of two.
    pub(super) fn new(entries: u32, targets: u32, receive: u32) -> Option<Self> {
        let fits = entries.is_power_of_two() && entries <= MOST_ENTRIES && targets <= MOST_BYTES && (1..=MOST_BYTES).contains(&receive);
        fits.then_some(Layout { entries, targets, receive, places: false })
    }

    /// The same, with or without an area for bytes that belong elsewhere.
    pub(super) fn with_placing(self, places: bool) -> Self {
        Layout { places, ..self }
    }

    pub(super) fn of(config: &EndpointConfig) -> Result<Self> {
        let entries = config.receive_queue.max(1).checked_next_power_of_two().ok_or(Errno::INVAL)?;
        let layout = Layout::new(entries, config.target_bytes, config.shm_receive_bytes).ok_or(Errno::INVAL)?;
        Ok(layout.with_placing(config.places))
    }

    /// Entries of the ring, a power of two.
    pub(super) fn entries(&self) -> u32 {
        self.entries
    }

    /// Bytes of the target list and the iomap table.
    pub(super) fn targets(&self) -> u32 {
        self.targets
    }

    /// Bytes of the receive area.
    pub(super) fn receive(&self) -> u32 {
        self.receive
    }

    fn targets_at(&self) -> u32 {
        (RING as u32 + self.entries * ENTRY as u32).next_multiple_of(LINE)
    }

    fn receive_at(&self) -> u32 {
        let end = self.targets_at() + self.targets;
        // Small rings share the first pages with the areas: 4 KiB are enough where pages are that small.
        if end <= 4096 { 4096 } else { end.next_multiple_of(PAGE) }
    }

    /// Whether there is an area for bytes that belong elsewhere.
    pub(super) fn places(&self) -> bool {
        self.places
    }

    fn placing_at(&self) -> u32 {
        (self.receive_at() + self.receive).next_multiple_of(LINE)
    }

    /// Bytes of it all: less than 2^32, as each part is at most 2^30.
    pub(super) fn len(&self) -> usize {
        if self.places { (self.placing_at() + placing::BYTES) as usize } else { self.receive_at() as usize + self.receive as usize }
    }

    /// What the owner exposes under `key`. Addresses are offsets: nobody learns where anything is mapped.
    pub(super) fn exposed(&self, key: u32) -> ExposedMemory {
        let sge = |at: u32, length: u32| Sge { addr: u64::from(at), key, length };
        ExposedMemory { receive: sge(self.receive_at(), self.receive), targets: sge(self.targets_at(), self.targets) }
    }
}

/// One end's view of a memory file: its own, or its peer's.
pub(super) struct Memory {
    region: Region,
    layout: Layout,
    key: u32,
    /// Where begins what is exposed: see [`Layout::targets_at`].
    exposed_at: u64,
    /// Of a peer that places bytes: they are read from here.
    file: Option<OwnFd>,
}

impl Memory {
    pub(super) fn layout(&self) -> Layout {
        self.layout
    }

    pub(super) fn key(&self) -> u32 {
        self.key
    }

    /// The area for bytes that belong elsewhere.
    #[inline]
    pub(super) fn placing(&self) -> Option<placing::Area<'_>> {
        self.layout.places.then(|| placing::Area::new(&self.region, self.layout.placing_at() as usize))
    }

    /// The file with that area, if it is the peer's.
    pub(super) fn file(&self) -> Option<BorrowedFd<'_>> {
        self.file.as_ref().map(AsFd::as_fd)
    }

    #[inline(always)]
    fn word(&self, offset: usize) -> &AtomicU32 {
        static NOWHERE: AtomicU32 = AtomicU32::new(0);
        // Every layout has these words.
        self.region.word(offset).unwrap_or(&NOWHERE)
    }

    /// Owner: wants the bell to be rung. A look at the ring must follow.
    #[inline]
    pub(super) fn arm(&self) {
        self.word(ARMED).fetch_or(BELL, Ordering::SeqCst);
    }

    /// Owner: wants to be woken on the word itself, which holds what is given now. A look at the ring must follow.
    pub(super) fn arm_word(&self) -> u32 {
        self.word(ARMED).fetch_or(WORD, Ordering::SeqCst) | WORD
    }

    /// Peer: wakes the owner on the word if it wanted that, after something was put into its memory. True: it wants the bell to be rung.
    /// Either once.
    #[inline(always)]
    pub(super) fn wake(&self) -> bool {
        fence(Ordering::SeqCst);
        self.word(ARMED).load(Ordering::Relaxed) != 0 && self.wake_now()
    }

    #[inline(never)]
    fn wake_now(&self) -> bool {
        let wanted = self.word(ARMED).swap(0, Ordering::Relaxed);
        if wanted & WORD != 0 {
            futex::wake_shared(self.word(ARMED));
        }
        wanted & BELL != 0
    }

    /// Owner: waits on this processor.
    #[inline]
    pub(super) fn wait_on(&self, processor: u32) {
        self.word(PROCESSOR).store(processor.wrapping_add(1), Ordering::Relaxed);
    }

    /// Peer: the processor on which the owner has last waited, if it ever has.
    #[inline]
    pub(super) fn waited_on(&self) -> Option<u32> {
        self.word(PROCESSOR).load(Ordering::Relaxed).checked_sub(1)
    }

    /// Peer: waits for receives. A look at [`Memory::posted`] must follow.
    pub(super) fn starve(&self) {
        self.word(STARVED).store(1, Ordering::Relaxed);
        fence(Ordering::SeqCst);
    }

    /// Owner: so many receives were posted in all. True: the peer waits for them.
    pub(super) fn post(&self, posted: u32) -> bool {
        self.word(POSTED).store(posted, Ordering::Release);
        fence(Ordering::SeqCst);
        self.word(STARVED).load(Ordering::Relaxed) != 0 && self.word(STARVED).swap(0, Ordering::Relaxed) != 0
    }

    /// Peer: how many receives were posted in all.
    pub(super) fn posted(&self) -> u32 {
        self.word(POSTED).load(Ordering::Acquire)
    }

    /// Peer: the answer has been sent. Whoever spins need not ask the kernel before.
    pub(super) fn answer(&self) {
        self.word(ANSWERED).store(1, Ordering::Release);
    }

    /// Owner: whether the peer says that it has answered.
    pub(super) fn is_answered(&self) -> bool {
        self.word(ANSWERED).load(Ordering::Acquire) != 0
    }

    /// Peer: has ended the connection. The channel says so too, but to a thread that has to wake first.
    pub(super) fn end(&self, orderly: bool) {
        self.word(ENDED).store(if orderly { ORDERLY } else { RESET }, Ordering::Release);
    }

    /// Owner: whether the peer has. If so, all that it has put into the ring can be seen.
    #[inline]
    pub(super) fn has_ended(&self) -> bool {
        self.word(ENDED).load(Ordering::Acquire) != 0
    }

    /// Owner: whether it has, and in disorder.
    pub(super) fn is_reset(&self) -> bool {
        self.word(ENDED).load(Ordering::Acquire) == RESET
    }

    /// The ring of messages.
    #[inline(always)]
    pub(super) fn ring(&self) -> Ring<'_> {
        // Every layout has it.
        Ring(self.region.longs(RING, self.layout.entries as usize).unwrap_or_default())
    }

    /// Peer: copies bytes to an address of the owner's. False: that is not memory that it exposes.
    #[inline(always)]
    pub(super) fn write(&self, to: RemoteAddress, bytes: &[u8]) -> bool {
        self.offset(to).is_some_and(|at| self.region.write(at, bytes).is_ok())
    }

    /// As [`Memory::write`], of `len` bytes at `offset` of `from`.
    pub(super) fn write_from(&self, to: RemoteAddress, from: &Region, offset: u32, len: u32) -> bool {
        self.offset(to).is_some_and(|at| from.copy_to(offset as usize, len as usize, &self.region, at).is_ok())
    }

    #[inline(always)]
    fn offset(&self, to: RemoteAddress) -> Option<usize> {
        let exposed = to.key == self.key && to.addr >= self.exposed_at;
        if exposed { usize::try_from(to.addr).ok() } else { None }
    }

    /// As [`Memory::of_peer`], of the file that came with a greeting. EPROTO without one.
    pub(super) fn that_came(file: Option<OwnedFd>, greeting: &Greeting) -> Result<Self> {
        let file = file.ok_or(Errno::PROTO)?;
        let mut memory = Memory::of_peer(file.as_fd(), greeting.layout, greeting.key)?;
        memory.file = memory.layout.places.then(|| OwnFd::from(file).lifted());
        Ok(memory)
    }

    /// Maps what a peer has handed over. Fails where its length can change, or is not what `layout` needs.
    pub(super) fn of_peer(file: BorrowedFd<'_>, layout: Layout, key: u32) -> Result<Self> {
        Ok(Memory { region: map_sealed(file, layout.len())?, layout, key, exposed_at: layout.targets_at().into(), file: None })
    }
}

/// The ring of messages of a [`Memory`], whose length is a power of two.
#[derive(Clone, Copy)]
pub(super) struct Ring<'a>(&'a [AtomicU64]);

impl Ring<'_> {
    #[inline(always)]
    fn entry(&self, number: u32) -> Option<&AtomicU64> {
        self.0.get(number as usize & self.0.len().wrapping_sub(1))
    }

    /// Peer: puts the message of this number into the ring. What was written before is there for whoever sees it.
    #[inline(always)]
    pub(super) fn put(&self, number: u32, message: u32) {
        if let Some(entry) = self.entry(number) {
            entry.store(u64::from(number) << 32 | u64::from(message), Ordering::Release);
        }
    }

    /// Owner: the message of this number, if it is there.
    #[inline(always)]
    pub(super) fn get(&self, number: u32) -> Entry {
        let entry = self.entry(number).map_or(0, |entry| entry.load(Ordering::Acquire));
        let found = (entry >> 32) as u32;
        if found == number {
            Entry::Message(entry as u32)
        } else if found == number.wrapping_sub(self.0.len() as u32) || entry == 0 {
            Entry::Empty
        } else {
            Entry::Nonsense
        }
    }
}

impl SleepWord for Memory {
    fn word(&self) -> &AtomicU32 {
        Memory::word(self, ARMED)
    }
}

/// What a place of the ring holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Entry {
    /// Nothing new.
    Empty,
    /// The message.
    Message(u32),
    /// Something that no peer writes which keeps to the rules.
    Nonsense,
}

/// The own memory of an end, with its file until that has been handed over.
pub(super) struct Own {
    // The windows go first: they must not outlive what they look at.
    receive: Region,
    targets: Region,
    memory: Arc<Memory>,
    file: Option<OwnFd>,
}

impl Own {
    /// Makes the memory that `layout` describes, all zeros.
    pub(super) fn new(layout: Layout, key: u32) -> Result<Self> {
        let file = sealed_file(layout.len())?;
        let region = Region::shared(file.as_fd(), layout.len())?;
        let memory = Arc::new(Memory { region, layout, key, exposed_at: layout.targets_at().into(), file: None });
        let (targets_at, receive_at) = (layout.targets_at() as usize, layout.receive_at() as usize);
        // SAFETY: the windows are dropped before the region (the order of the fields).
        let targets = unsafe { memory.region.window(targets_at, layout.targets as usize) }?;
        // SAFETY: as above.
        let receive = unsafe { memory.region.window(receive_at, layout.receive as usize) }?;
        Ok(Own { receive, targets, memory, file: Some(file.into()) })
    }

    pub(super) fn memory(&self) -> &Arc<Memory> {
        &self.memory
    }

    pub(super) fn receive(&self) -> &Region {
        &self.receive
    }

    pub(super) fn targets(&self) -> &Region {
        &self.targets
    }

    /// The file, to be handed over once.
    pub(super) fn take_file(&mut self) -> Option<OwnFd> {
        self.file.take()
    }

    /// It will be used later: its file makes room for the program's descriptors.
    pub(super) fn lay_aside(mut self) -> Self {
        self.file = self.file.map(OwnFd::lifted);
        self
    }
}

/// Maps a file that a peer has handed over. Fails where its length can change, or is not this one.
pub(super) fn map_sealed(file: BorrowedFd<'_>, len: usize) -> Result<Region> {
    let seals = rustix::fs::fcntl_get_seals(file)?;
    if !seals.contains(SealFlags::SHRINK | SealFlags::GROW) {
        return Err(Errno::PERM);
    }
    let stat = rustix::fs::fstat(file)?;
    if usize::try_from(stat.st_size) != Ok(len) {
        return Err(Errno::INVAL);
    }
    if !is_plain(file, stat.st_dev)? {
        return Err(Errno::PERM);
    }
    Region::shared(file, len)
}

/// Whether a file is of pages as all others. Those of huge pages are of another file system, and a page that was promised there may be
/// missing when it is touched.
fn is_plain(file: BorrowedFd<'_>, device: u64) -> Result<bool> {
    /// The device of a file that has been looked at closely: memory files are all of one.
    static KNOWN: AtomicU64 = AtomicU64::new(u64::MAX);
    if KNOWN.load(Ordering::Relaxed) == device {
        return Ok(true);
    }
    let plain = rustix::fs::fstatfs(file)?.f_type as u64 == TMPFS_MAGIC;
    if plain {
        KNOWN.store(device, Ordering::Relaxed);
    }
    Ok(plain)
}

/// A memory file of zeros that keeps its length.
pub(super) fn sealed_file(len: usize) -> Result<OwnedFd> {
    let bytes = u64::try_from(len).map_err(|_| Errno::FBIG)?;
    // setrlimit(2), RLIMIT_FSIZE: "Attempts to extend a file beyond this limit result in delivery of a SIGXFSZ signal."
    if getrlimit(Resource::Fsize).current.is_some_and(|most| most < bytes) {
        return Err(Errno::FBIG);
    }
    let file = memory_file()?;
    rustix::fs::ftruncate(&file, bytes)?;
    if promises_are_kept() {
        fill(file.as_fd(), bytes)?;
    }
    rustix::fs::fcntl_add_seals(&file, SealFlags::SHRINK | SealFlags::GROW | SealFlags::SEAL)?;
    Ok(file)
}

/// Whether the kernel gives no more memory than it has (proc(5), overcommit_memory 2). A page of a memory file is asked for only when it
/// is touched: what is missing then is a SIGBUS, so that all of them are asked for before.
pub(super) fn promises_are_kept() -> bool {
    static STRICT: Once<bool> = Once::new();
    *STRICT.get_or_init(|| small_file::read(c"/proc/sys/vm/overcommit_memory", &mut [0; 16]).and_then(small_file::number) == Some(2))
}

/// Asks for all pages of a file; ENOMEM where there are not so many.
fn fill(file: BorrowedFd<'_>, bytes: u64) -> Result<()> {
    // A signal throws away what one call has done: so there are several.
    const PIECE: u64 = 64 << 10;
    let mut done = 0;
    while done < bytes {
        match rustix::fs::fallocate(file, FallocateFlags::empty(), done, PIECE.min(bytes - done)) {
            Ok(()) => done += PIECE,
            Err(Errno::INTR) => {}
            Err(Errno::NOSPC) => return Err(Errno::NOMEM),
            Err(errno) => return Err(errno),
        }
    }
    Ok(())
}

/// What a connection has to have later, where memory may run out meanwhile.
#[derive(Default)]
pub(super) struct Kept {
    /// The send area.
    pub(super) send: OnceCell<Region>,
    /// Room for the peer's memory, thought to be as large as the own.
    room: Option<Region>,
}

impl Kept {
    /// What is made ready for an end: nothing where memory is plenty.
    pub(super) fn new(send_bytes: u32, room: Option<Layout>) -> Result<Self> {
        let limited = getrlimit(Resource::As).current.is_some();
        let kept = Kept { send: OnceCell::new(), room: room.filter(|_| limited).map(|layout| Region::new(layout.len())).transpose()? };
        if limited || promises_are_kept() {
            let _ = kept.send.set(Region::new(send_bytes as usize)?);
            // The rest is the program's.
            drop(Region::new(LEFT_TO_PROGRAM)?);
        }
        Ok(kept)
    }

    /// The peer's memory comes.
    pub(super) fn make_room(&mut self) {
        self.room = None;
    }
}

fn memory_file() -> Result<OwnedFd> {
    const NAME: &str = "rsocket";
    let flags = MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING;
    // memfd_create(2): MFD_NOEXEC_SEAL is of Linux 6.3; where vm.memfd_noexec is 2 nothing else is allowed.
    match rustix::fs::memfd_create(NAME, flags | MemfdFlags::NOEXEC_SEAL) {
        Err(Errno::INVAL) => rustix::fs::memfd_create(NAME, flags),
        made => made,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_that_is_filled_has_all_its_pages() {
        for bytes in [1_u64, 64 << 10, (1 << 20) + 5] {
            let file = memory_file().unwrap();
            rustix::fs::ftruncate(&file, bytes).unwrap();
            assert_eq!(rustix::fs::fstat(&file).unwrap().st_blocks, 0);
            fill(file.as_fd(), bytes).unwrap();
            let stat = rustix::fs::fstat(&file).unwrap();
            assert!(stat.st_blocks * 512 >= i64::try_from(bytes).unwrap(), "{stat:?}");
            assert_eq!(stat.st_size, i64::try_from(bytes).unwrap());
        }
    }
}
