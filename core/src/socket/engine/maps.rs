//! Direct placement: memory that the program has mapped, and its bytes for memory that the peer has.

use std::sync::Arc;

use super::Engine;
use crate::{
    error::{Errno, Result},
    fabric::{FabricKind, Region, Registered, Registrar},
    protocol::stream::{MapError, Mapped, Tables, TargetList},
    sys::program::Span,
    wire::{IomapRecord, Sge},
    work::RemoteAddress,
};

/// Where the iomap table begins in the target area: behind the target list.
const TABLE_AT: usize = size_of::<TargetList>();

/// Readings of a record before a peer that keeps writing is taken at its last word.
const READS: usize = 4;

/// Memory that the program has mapped.
struct Map {
    memory: Span,
    registered: Box<dyn Registered>,
    /// The entry in the peer's table, unless the memory is for this end alone.
    entry: Option<u16>,
}

/// All of it, by age.
#[derive(Default)]
pub(super) struct Maps {
    maps: Vec<Map>,
    /// Unmapped while the device may be reading it: until nobody does.
    leaving: Vec<Box<dyn Registered>>,
}

/// Registrations to be dropped without the engine lock, which may take a while.
#[must_use]
#[derive(Default)]
pub struct Ended(#[allow(dead_code, reason = "to be dropped")] Vec<Box<dyn Registered>>);

/// What a write to mapped memory came to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Placement {
    /// Bytes that were taken.
    pub taken: usize,
    /// The peer has nothing mapped where it stopped.
    pub at_end: bool,
    /// The device reads the program's memory until this number is reached: see [`Engine::is_placed`].
    pub number: Option<u64>,
}

/// The peer-written memory of an endpoint.
pub(super) struct Written<'a>(pub(super) &'a Region);

impl Tables for Written<'_> {
    fn target_list(&self) -> TargetList {
        agreed(|list: &mut TargetList| {
            for (index, record) in list.iter_mut().enumerate() {
                let _ = self.0.read(index * Sge::BYTES, record);
            }
        })
    }

    fn iomap_record(&self, index: u32) -> [u8; IomapRecord::BYTES] {
        let at = TABLE_AT.saturating_add((index as usize).saturating_mul(IomapRecord::BYTES));
        agreed(|record: &mut [u8; IomapRecord::BYTES]| {
            let _ = self.0.read(at, record);
        })
    }
}

/// Reads until two readings agree: the peer may be writing there.
fn agreed<T: Default + PartialEq>(read: impl Fn(&mut T)) -> T {
    let mut last = T::default();
    for _ in 0..READS {
        let mut again = T::default();
        read(&mut again);
        if again == last {
            break;
        }
        last = again;
    }
    last
}

impl Engine {
    /// What registers memory for this connection. EOPNOTSUPP: nothing does.
    pub fn registrar(&self) -> Result<Arc<dyn Registrar>> {
        self.endpoint.registrar().ok_or(Errno::OPNOTSUPP)
    }

    /// Maps registered memory, at `offset` of what the peer may write to, if it may. ENOMEM, ENOBUFS, EPIPE: see [`MapError`].
    pub fn map(&mut self, memory: Span, registered: Box<dyn Registered>, offset: Option<u64>) -> core::result::Result<(), (Errno, Ended)> {
        let entry = match offset.map(|offset| self.expose(memory, &*registered, offset)).transpose() {
            Ok(entry) => entry,
            Err(errno) => {
                registered.revoke();
                return Err((errno, Ended(vec![registered])));
            }
        };
        self.maps.maps.push(Map { memory, registered, entry });
        self.transmit();
        Ok(())
    }

    fn expose(&mut self, memory: Span, registered: &dyn Registered, offset: u64) -> Result<u16> {
        let RemoteAddress { addr, key } = registered.remote();
        let length = u32::try_from(memory.len()).map_err(|_| Errno::INVAL)?;
        self.connection.map(offset, Sge { addr, key, length }).map_err(|error| match error {
            MapError::TableFull => Errno::NOMEM,
            MapError::TooManyAtOnce => Errno::NOBUFS,
            MapError::Ended => Errno::PIPE,
        })
    }

    /// Ends the oldest mapping of exactly this memory. EINVAL: there is none.
    pub fn unmap(&mut self, memory: Span) -> Result<Ended> {
        let at = self.maps.maps.iter().position(|map| map.memory == memory).ok_or(Errno::INVAL)?;
        let map = self.maps.maps.remove(at);
        let ended = self.end_map(map);
        self.transmit();
        Ok(ended)
    }

    fn end_map(&mut self, map: Map) -> Ended {
        map.registered.revoke();
        if let Some(entry) = map.entry {
            self.connection.unmap(entry);
        }
        if self.connection.reads_registered() {
            self.maps.leaving.push(map.registered);
            return Ended::default();
        }
        let mut ended = core::mem::take(&mut self.maps.leaving);
        ended.push(map.registered);
        Ended(ended)
    }

    /// The program closes the connection: the peer writes to its memory no more.
    pub fn unmap_all(&mut self) -> Ended {
        let mut ended = Vec::new();
        let read = self.connection.reads_registered();
        for map in core::mem::take(&mut self.maps.maps) {
            map.registered.revoke();
            // What the device reads stays until the connection goes. The peer writes to none of that.
            let list = if read && map.entry.is_none() { &mut self.maps.leaving } else { &mut ended };
            list.push(map.registered);
        }
        Ended(ended)
    }

    /// Whether the peer's bytes get to mapped memory only when somebody looks after the connection.
    pub fn is_exposed(&self) -> bool {
        self.kind == FabricKind::Shm && self.endpoint.is_exposed()
    }

    /// Whether somebody has to look after it soon: see [`crate::fabric::Endpoint::lags`].
    #[inline]
    pub fn lags(&self) -> bool {
        self.kind == FabricKind::Shm && self.endpoint.lags()
    }

    /// Writes bytes to what the peer has mapped at `offset`, as many as can be posted now. `lasting`: they stay as they are until
    /// [`Engine::is_placed`], so that they need not be copied where they are registered.
    pub fn place(&mut self, bytes: &[u8], offset: u64, lasting: Option<Span>) -> Result<Placement> {
        let source = lasting.and_then(|span| self.source(span));
        let mut placement = Placement { taken: 0, at_end: false, number: None };
        while let Some(rest) = bytes.get(placement.taken..).filter(|rest| !rest.is_empty()) {
            let at = offset.checked_add(placement.taken as u64);
            let Some(Mapped { to, room }) = at.and_then(|at| self.connection.mapped_at(at)) else {
                placement.at_end = true;
                break;
            };
            let may = if source.is_some() { self.connection.placeable_from() } else { self.connection.placeable() };
            let part = rest.len().min(usize::try_from(room).unwrap_or(usize::MAX)).min(may as usize);
            let Some(part_bytes) = rest.get(..part).filter(|part| !part.is_empty()) else { break };
            match source {
                Some(RemoteAddress { addr, key }) => {
                    let from = RemoteAddress { addr: addr + placement.taken as u64, key };
                    placement.number = Some(self.connection.place_from(from, part as u32, to));
                    self.transmit();
                }
                None => self.send_placed(part_bytes, to)?,
            }
            placement.taken += part;
        }
        Ok(placement)
    }

    fn send_placed(&mut self, bytes: &[u8], to: RemoteAddress) -> Result<()> {
        let at = self.connection.write_at() as usize;
        // On iWARP the peer may have the first word.
        if self.listens_until.is_some() {
            self.endpoint.send_area().write(at, bytes)?;
            self.connection.place(bytes.len() as u32, to);
            return Ok(());
        }
        let work = self.connection.place_and_poll(bytes.len() as u32, to);
        self.post_or_keep(work, at, bytes)
    }

    /// Where the device finds registered memory itself, if it does.
    fn source(&self, span: Span) -> Option<RemoteAddress> {
        self.maps.maps.iter().find_map(|map| {
            map.memory.position_of(span)?;
            Some(RemoteAddress { addr: span.start() as u64, key: map.registered.local_key()? })
        })
    }

    /// Whether nobody reads the program's memory for this number any more.
    pub fn is_placed(&self, number: u64) -> bool {
        self.connection.is_placed(number)
    }
}
