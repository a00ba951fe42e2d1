//! Registered memory of one connection.
//!
//! One mapping with one registration holds all that the peer or the device writes: the receive area, behind it the target
//! list and iomap table, behind that the message slots of an iWARP endpoint. The send area is a mapping of its own, registered
//! when the first payload goes out that does not fit into a work request: an idle connection does not pin it.

use core::ffi::c_int;
use std::sync::Arc;

use rdma_sys::{ibv_access_flags, ibv_mr};

use super::{
    device::Device,
    libs::{self, Libs},
};
use crate::{
    error::{Errno, Result},
    fabric::{EndpointConfig, Region, Registered, Registrar},
    sys::{inside, program::Span},
    wire::Sge,
    work::{ExposedMemory, MessageMode, RemoteAddress},
};

/// Bytes of a message slot (iWARP).
const SLOT: usize = 4;

/// Bytes of a control slot: the largest record that a work request carries itself.
const CONTROL: usize = 24;

/// Alignment of the pieces within a mapping, so that the areas share no cache line.
const ALIGN: usize = 64;

/// What the application side of the endpoint writes and the device reads.
const LOCAL: c_int = 0;

/// What the device writes when a message comes.
pub(super) const RECEIVED: c_int = ibv_access_flags::IBV_ACCESS_LOCAL_WRITE.0 as c_int;

/// What the peer writes.
const REMOTE: c_int = (ibv_access_flags::IBV_ACCESS_LOCAL_WRITE.0 | ibv_access_flags::IBV_ACCESS_REMOTE_WRITE.0) as c_int;

/// One registration. It must be dropped before the memory that it covers, and after the queue pair that uses it.
pub(super) struct Registration {
    raw: *mut ibv_mr,
    pub(super) local_key: u32,
    remote_key: u32,
    libs: &'static Libs,
}

// SAFETY: a registration is a handle that libibverbs lets any thread use; only drop passes it on.
unsafe impl Send for Registration {}
// SAFETY: `&Registration` gives out plain numbers only.
unsafe impl Sync for Registration {}

impl Registration {
    /// Registers a region, which the caller keeps until after the registration is gone.
    pub(super) fn new(device: &Device, region: &Region, access: c_int) -> Result<Self> {
        // SAFETY: a live mapping that is never referred to, and that the caller keeps until after the registration is gone (see the
        // order of the fields of `Areas`, and of `datagram::VerbsQueue`).
        unsafe { Registration::of(device, region.addr(), region.mapped_len(), access) }
    }

    /// Registers any memory. The kernel keeps its pages as long as the registration lasts, whatever becomes of the mapping.
    ///
    /// # Safety
    /// Whoever has memory there must expect that it is read, and written if `access` allows that.
    unsafe fn of(device: &Device, start: *mut u8, len: usize, access: c_int) -> Result<Self> {
        let _inside = inside::enter_uncancelled();
        let libs = device.libs();
        // SAFETY: the protection domain lives as long as `device`; the rest is the caller's promise.
        let raw = unsafe { (libs.ibv_reg_mr)(device.pd(), start.cast(), len, access) };
        if raw.is_null() {
            return Err(libs::last_errno());
        }
        // SAFETY: not null, made just now, and not shared yet.
        let made = unsafe { &*raw };
        Ok(Registration { raw, local_key: made.lkey, remote_key: made.rkey, libs })
    }

    /// Ends it, once. False: the device would not.
    fn end(&mut self) -> bool {
        let _inside = inside::enter_uncancelled();
        let raw = core::mem::replace(&mut self.raw, core::ptr::null_mut());
        // SAFETY: made in `new`, ended once (null afterwards).
        raw.is_null() || unsafe { (self.libs.ibv_dereg_mr)(raw) } == 0
    }
}

impl Drop for Registration {
    fn drop(&mut self) {
        self.end();
    }
}

/// Registers memory of the program's on the device of a connection.
pub(super) struct ProgramMemory {
    device: Arc<Device>,
}

impl Registrar for ProgramMemory {
    fn register(&self, memory: Span, remote: bool) -> Result<Box<dyn Registered>> {
        let start = core::ptr::with_exposed_provenance_mut(memory.start());
        // SAFETY: that is what a span stands for.
        let registration = unsafe { Registration::of(&self.device, start, memory.len(), if remote { REMOTE } else { LOCAL }) }?;
        Ok(Box::new(Lent { registration, start: memory.start() as u64, _device: Arc::clone(&self.device) }))
    }
}

/// Memory of the program's that is registered. The device's domain outlives it: the order of the fields.
struct Lent {
    registration: Registration,
    start: u64,
    _device: Arc<Device>,
}

impl Registered for Lent {
    fn remote(&self) -> RemoteAddress {
        RemoteAddress { addr: self.start, key: self.registration.remote_key }
    }

    fn local_key(&self) -> Option<u32> {
        Some(self.registration.local_key)
    }
}

/// The mappings of a connection that is over, for one that is made alike.
pub(super) struct Mappings {
    exposed: Region,
    sendable: Region,
}

/// Where a piece of payload lies for the device.
pub(super) struct Located {
    /// Its address.
    pub(super) addr: u64,
    /// The key that lets the device read it; 0 where it goes inline.
    pub(super) key: u32,
}

/// All memory of one connection.
pub(super) struct Areas {
    // Windows before the mappings that they look into, registrations before the memory that they cover.
    receive: Region,
    targets: Region,
    send: Region,
    exposed_key: Registration,
    send_key: Option<Registration>,
    exposed: Region,
    slots_at: usize,
    sendable: Region,
    control_slots: u32,
    next_control: u32,
    device: Arc<Device>,
}

impl Areas {
    /// Maps and registers what `config` asks for; the mappings may be used ones, if they fit.
    pub(super) fn new(device: &Arc<Device>, config: &EndpointConfig, mode: MessageMode, used: Option<Mappings>) -> Result<Self> {
        let receive_bytes = to_usize(config.receive_bytes)?;
        let target_bytes = to_usize(config.target_bytes)?;
        let send_bytes = to_usize(config.send_bytes)?;
        let slot_bytes = match mode {
            MessageMode::Immediate => 0,
            MessageMode::Send => to_usize(config.receive_queue)?.checked_mul(SLOT).ok_or(Errno::NOMEM)?,
        };
        let targets_at = aligned(receive_bytes)?;
        let slots_at = aligned(targets_at.checked_add(target_bytes).ok_or(Errno::NOMEM)?)?;
        let exposed_bytes = slots_at.checked_add(slot_bytes).ok_or(Errno::NOMEM)?;
        let control_at = aligned(send_bytes)?;
        let control_bytes = to_usize(config.send_queue)?.checked_mul(CONTROL).ok_or(Errno::NOMEM)?;
        let sendable_bytes = control_at.checked_add(control_bytes).ok_or(Errno::NOMEM)?;

        let fits = |used: &Mappings| used.exposed.len() == exposed_bytes && used.sendable.len() == sendable_bytes;
        let Mappings { exposed, sendable } = match used.filter(fits) {
            Some(used) => used,
            None => Mappings { exposed: Region::new(exposed_bytes)?, sendable: Region::new(sendable_bytes)? },
        };

        let exposed_key = Registration::new(device, &exposed, REMOTE)?;
        Ok(Areas {
            // SAFETY: the window is declared before `exposed`, so it is dropped first, and it is lent out only with the whole.
            receive: unsafe { exposed.window(0, receive_bytes) }?,
            // SAFETY: as above.
            targets: unsafe { exposed.window(targets_at, target_bytes) }?,
            // SAFETY: as above, with `sendable`.
            send: unsafe { sendable.window(0, send_bytes) }?,
            exposed_key,
            send_key: None,
            exposed,
            slots_at,
            sendable,
            control_slots: config.send_queue,
            next_control: 0,
            device: Arc::clone(device),
        })
    }

    /// Ends the registrations. What stays is mappings for a connection that is made alike: zeros where a peer may write, so that
    /// nobody reads there what another peer wrote. `None` if that cannot be.
    pub(super) fn retire(self) -> Option<Mappings> {
        let Areas { receive, targets, send, mut exposed_key, send_key, exposed, sendable, .. } = self;
        drop((receive, targets, send));
        if !exposed_key.end() {
            return None;
        }
        if let Some(mut key) = send_key {
            if !key.end() {
                return None;
            }
            sendable.keep_from_children().ok()?;
        }
        exposed.clear();
        Some(Mappings { exposed, sendable })
    }

    /// What registers memory of the program's.
    pub(super) fn registrar(&self) -> Arc<ProgramMemory> {
        Arc::new(ProgramMemory { device: Arc::clone(&self.device) })
    }

    /// The receive area.
    pub(super) fn receive(&self) -> &Region {
        &self.receive
    }

    /// The target list and iomap table.
    pub(super) fn targets(&self) -> &Region {
        &self.targets
    }

    /// The send area.
    pub(super) fn send(&self) -> &Region {
        &self.send
    }

    /// What the peer may write.
    pub(super) fn exposed(&self) -> ExposedMemory {
        let key = self.exposed_key.remote_key;
        let of = |region: &Region| Sge { addr: address(region, 0), key, length: u32::try_from(region.len()).unwrap_or(u32::MAX) };
        ExposedMemory { receive: of(&self.receive), targets: of(&self.targets) }
    }

    /// Where `len` bytes at `offset` of the send area lie; `keyed` says that the device will read them itself.
    pub(super) fn locate(&mut self, offset: u32, len: u32, keyed: bool) -> Result<Located> {
        let offset = to_usize(offset)?;
        let end = offset.checked_add(to_usize(len)?).ok_or(Errno::INVAL)?;
        if end > self.send.len() {
            return Err(Errno::INVAL);
        }
        let key = if keyed { self.send_key()? } else { 0 };
        Ok(Located { addr: address(&self.send, offset), key })
    }

    /// Puts a record that is too long for the device's inline size into the next control slot. There are as many slots as
    /// work requests may be outstanding, so the slot is free.
    pub(super) fn control(&mut self, record: &[u8]) -> Result<Located> {
        let key = self.send_key()?;
        let index = to_usize(self.next_control)?;
        let offset = index.checked_mul(CONTROL).and_then(|at| at.checked_add(aligned(self.send.len()).ok()?)).ok_or(Errno::INVAL)?;
        self.sendable.write(offset, record)?;
        self.next_control = match self.next_control.checked_add(1) {
            Some(next) if next < self.control_slots => next,
            _ => 0,
        };
        Ok(Located { addr: address(&self.sendable, offset), key })
    }

    /// The message slot `index`, for a receive.
    pub(super) fn slot(&self, index: u32) -> Located {
        Located { addr: address(&self.exposed, self.slot_offset(u64::from(index))), key: self.exposed_key.local_key }
    }

    /// The message in slot `index`, in the sender's byte order. Zero for a slot that does not exist.
    pub(super) fn message(&self, index: u64) -> u32 {
        let mut bytes = [0; SLOT];
        // A failure leaves the zeros: only this module makes indices.
        let _ = self.exposed.read(self.slot_offset(index), &mut bytes);
        u32::from_ne_bytes(bytes)
    }

    fn slot_offset(&self, index: u64) -> usize {
        usize::try_from(index).unwrap_or(usize::MAX).saturating_mul(SLOT).saturating_add(self.slots_at)
    }

    fn send_key(&mut self) -> Result<u32> {
        if let Some(registration) = &self.send_key {
            return Ok(registration.local_key);
        }
        let registration = Registration::new(&self.device, &self.sendable, LOCAL)?;
        let key = registration.local_key;
        self.send_key = Some(registration);
        Ok(key)
    }
}

/// What the device calls a byte of a region.
pub(super) fn address(region: &Region, offset: usize) -> u64 {
    region.addr().wrapping_add(offset).addr() as u64
}

fn to_usize(value: u32) -> Result<usize> {
    usize::try_from(value).map_err(|_| Errno::NOMEM)
}

fn aligned(len: usize) -> Result<usize> {
    len.checked_next_multiple_of(ALIGN).ok_or(Errno::NOMEM)
}
