//! What is shared by all connections over one device: the protection domain and the device's limits.

use core::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::sync::Arc;

use rdma_sys::{ibv_context, ibv_device_attr, ibv_pd, ibv_transport_type};

use super::{
    cm,
    libs::{self, Libs},
};
use crate::{
    error::Result,
    sys::{inside, lock::Leaf},
    work::MessageMode,
};

/// A device as librdmacm opened it.
pub(super) struct Device {
    context: *mut ibv_context,
    pd: *mut ibv_pd,
    libs: &'static Libs,
    /// How messages travel on it.
    pub(super) mode: MessageMode,
    /// Entries of a send or receive queue.
    pub(super) max_queue: u32,
    /// Entries of a completion queue.
    pub(super) max_completions: u32,
    /// RDMA reads that a queue pair may have outstanding as responder and as initiator.
    pub(super) max_reads: u8,
    vectors: u32,
    next_vector: AtomicU32,
    /// Cleared once the device has refused receives without a buffer.
    bare_receives: AtomicBool,
}

// SAFETY: libibverbs and librdmacm let any thread use contexts and protection domains; the rest is plain or atomic.
unsafe impl Send for Device {}
// SAFETY: as above.
unsafe impl Sync for Device {}

impl Device {
    fn new(libs: &'static Libs, context: *mut ibv_context) -> Result<Self> {
        // SAFETY: a context stays valid for the life of the process once librdmacm has opened the device. This is its first
        // use, so nobody reads the descriptors meanwhile.
        let opened = unsafe { &mut *context };
        // librdmacm has opened the device at the lowest free numbers, which belong to the application.
        opened.cmd_fd = cm::high_descriptor(opened.cmd_fd);
        opened.async_fd = cm::high_descriptor(opened.async_fd);
        let mut attributes = core::mem::MaybeUninit::<ibv_device_attr>::zeroed();
        // SAFETY: the context belongs to a live id; the attributes are ours to write.
        libs::check_code(unsafe { (libs.ibv_query_device)(context, attributes.as_mut_ptr()) })?;
        // SAFETY: plain numbers, zeroed above and filled in by the call.
        let attributes = unsafe { attributes.assume_init() };
        // SAFETY: the device of an open context is valid.
        let transport = unsafe { (*opened.device).transport_type };
        // SAFETY: the context is valid.
        let pd = unsafe { (libs.ibv_alloc_pd)(context) };
        if pd.is_null() {
            return Err(libs::last_errno());
        }
        let positive = |value: i32| u32::try_from(value).unwrap_or(0);
        let reads = attributes.max_qp_rd_atom.min(attributes.max_qp_init_rd_atom).clamp(0, 255);
        Ok(Device {
            context,
            pd,
            libs,
            mode: if transport == ibv_transport_type::IBV_TRANSPORT_IWARP { MessageMode::Send } else { MessageMode::Immediate },
            max_queue: positive(attributes.max_qp_wr).min(65_534),
            max_completions: positive(attributes.max_cqe),
            max_reads: u8::try_from(reads).unwrap_or(0),
            vectors: positive(opened.num_comp_vectors).max(1),
            next_vector: AtomicU32::new(0),
            bare_receives: AtomicBool::new(true),
        })
    }

    /// The context, valid as long as the process lives.
    pub(super) fn context(&self) -> *mut ibv_context {
        self.context
    }

    /// The protection domain, valid as long as `self`.
    pub(super) fn pd(&self) -> *mut ibv_pd {
        self.pd
    }

    /// The function table.
    pub(super) fn libs(&self) -> &'static Libs {
        self.libs
    }

    /// Completion vectors in turn, so that interrupts of many connections spread over the processors.
    pub(super) fn vector(&self) -> i32 {
        let turn = self.next_vector.fetch_add(1, Ordering::Relaxed).checked_rem(self.vectors).unwrap_or(0);
        i32::try_from(turn).unwrap_or(0)
    }

    /// Scatter entries of a receive: none where messages are immediates and the device takes that.
    pub(super) fn receive_entries(&self) -> u32 {
        match self.mode {
            MessageMode::Immediate if self.bare_receives.load(Ordering::Relaxed) => 0,
            _ => 1,
        }
    }

    /// The device has refused receives without a buffer.
    pub(super) fn refuse_bare_receives(&self) {
        self.bare_receives.store(false, Ordering::Relaxed);
    }
}

impl Drop for Device {
    fn drop(&mut self) {
        let _inside = inside::enter_uncancelled();
        // SAFETY: made in `new`; every object in the domain holds an `Arc` of this device and is gone.
        let _ = unsafe { (self.libs.ibv_dealloc_pd)(self.pd) };
    }
}

/// The devices that have carried a connection. Lock: `found`, a leaf.
pub(super) struct Devices {
    libs: &'static Libs,
    found: Leaf<Vec<Arc<Device>>>,
}

impl Devices {
    pub(super) fn new(libs: &'static Libs) -> Self {
        Devices { libs, found: Leaf::new(Vec::new()) }
    }

    /// The device of a live id's context, which must not be null.
    pub(super) fn get(&self, context: *mut ibv_context) -> Result<Arc<Device>> {
        let mut found = self.found.lock();
        if let Some(device) = found.iter().find(|device| device.context == context) {
            return Ok(Arc::clone(device));
        }
        let _inside = inside::enter_uncancelled();
        let device = Arc::new(Device::new(self.libs, context)?);
        found.push(Arc::clone(&device));
        Ok(device)
    }
}
