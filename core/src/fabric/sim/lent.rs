//! Memory that programs of the simulation have registered.

use std::{
    collections::BTreeMap,
    sync::{Arc, Mutex},
};

use rustix::fd::{AsFd, OwnedFd};

use super::{
    lock,
    world::{ADDRESS_STEP, End, World},
};
use crate::{
    error::{Errno, Result},
    fabric::{Registered, Registrar},
    sys::program::Span,
    work::RemoteAddress,
};

/// What is registered, by its key. The program's bytes pass through a file: only the kernel touches the memory itself.
#[derive(Default)]
pub(super) struct Lent {
    table: BTreeMap<u32, Entry>,
    file: Option<OwnedFd>,
}

struct Entry {
    /// At this end only it is known.
    end: End,
    memory: Span,
    /// What the peer calls its first byte, if that may write there.
    remote: Option<u64>,
}

impl Lent {
    fn file(&mut self) -> Result<&OwnedFd> {
        if self.file.is_none() {
            self.file = Some(rustix::fs::memfd_create("simulated", rustix::fs::MemfdFlags::CLOEXEC)?);
        }
        self.file.as_ref().ok_or(Errno::NOMEM)
    }

    /// Registrations that are left.
    pub(super) fn count(&self) -> usize {
        self.table.len()
    }

    /// The bytes that an end sends from memory of its own. EACCES: they are not registered (any more).
    pub(super) fn read(&mut self, end: End, from: RemoteAddress, len: u32) -> Result<Vec<u8>> {
        let entry = self.table.get(&from.key).filter(|entry| entry.end == end).ok_or(Errno::ACCESS)?;
        let offset = from.addr.checked_sub(entry.memory.start() as u64).ok_or(Errno::ACCESS)?;
        let part = entry.memory.part(offset, len).ok_or(Errno::ACCESS)?;
        let mut bytes = vec![0; part.len()];
        let file = self.file()?;
        part.pour_into(file.as_fd(), 0)?;
        rustix::io::pread(file, &mut bytes, 0)?;
        Ok(bytes)
    }

    /// Writes to what an end lets its peer write to. EACCES: not there.
    pub(super) fn write(&mut self, end: End, to: RemoteAddress, bytes: &[u8]) -> Result<()> {
        let entry = self.table.get(&to.key).filter(|entry| entry.end == end).ok_or(Errno::ACCESS)?;
        let offset = entry.remote.and_then(|base| to.addr.checked_sub(base)).ok_or(Errno::ACCESS)?;
        let part = u32::try_from(bytes.len()).ok().and_then(|len| entry.memory.part(offset, len)).ok_or(Errno::ACCESS)?;
        let file = self.file()?;
        rustix::io::pwrite(file, bytes, 0)?;
        part.fill_from(file.as_fd(), 0);
        Ok(())
    }
}

/// What registers memory at one end.
pub(super) struct SimRegistrar {
    pub(super) world: Arc<Mutex<World>>,
    pub(super) end: End,
}

impl Registrar for SimRegistrar {
    fn register(&self, memory: Span, remote: bool) -> Result<Box<dyn Registered>> {
        memory.populate(remote)?;
        let mut world = lock(&self.world);
        // Real addresses would make runs differ.
        let base = world.fresh_id() * ADDRESS_STEP;
        let key = loop {
            let key = u32::try_from(world.random.number() >> 32).unwrap_or_default();
            if !world.lent.table.contains_key(&key) {
                break key;
            }
        };
        world.lent.table.insert(key, Entry { end: self.end, memory, remote: remote.then_some(base) });
        Ok(Box::new(SimRegistered { world: Arc::clone(&self.world), remote: RemoteAddress { addr: base, key } }))
    }
}

/// Ends when it is dropped.
struct SimRegistered {
    world: Arc<Mutex<World>>,
    remote: RemoteAddress,
}

impl Registered for SimRegistered {
    fn remote(&self) -> RemoteAddress {
        self.remote
    }

    fn local_key(&self) -> Option<u32> {
        Some(self.remote.key)
    }
}

impl Drop for SimRegistered {
    fn drop(&mut self) {
        lock(&self.world).lent.table.remove(&self.remote.key);
    }
}
