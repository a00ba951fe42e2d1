//! Queue pair, completion queue and completion channel of one connection.
//!
//! The queue pair is not attached to the connection manager's id: its transitions are made here, which lets both sides bound
//! what the peer asked for. A peer that asks for 7 retries would make a queue pair on rxe that never notices a dead host, and
//! the manager's default makes a receiver-not-ready wait 655 ms.
//!
//! Measured between two VMs over rxe (Linux 6.1, acknowledge time-out 17, 6 retries, a message every 100 ms, then
//! `tc qdisc replace dev eth0 root netem loss 100%`; examples/verbs_pingpong.rs watch): the first failed completion comes 3.5 s to
//! 3.8 s after the cut, on the passive side too where the peer asked for 7 retries. A cut of 2 s heals. A peer that is killed is
//! noticed within 50 ms, by the connection manager.

use core::{
    ffi::c_int,
    mem::MaybeUninit,
    sync::atomic::{AtomicBool, AtomicU32, AtomicUsize, Ordering},
};
use std::{os::fd::RawFd, sync::Arc};

use rdma_sys::{
    ibv_access_flags, ibv_comp_channel, ibv_cq, ibv_qp, ibv_qp_attr, ibv_qp_attr_mask, ibv_qp_cap, ibv_qp_init_attr, ibv_qp_state,
    ibv_qp_type, ibv_wc,
};

use super::{
    cm::{self, Handle},
    device::Device,
    libs,
};
use crate::{
    error::{Errno, Result},
    fabric::EndpointConfig,
    sys::{descriptor, inside, own},
    work::MessageMode,
};

/// The acknowledge time-out of our queue pairs and, through the connect request, of the peer's: 4.096 us × 2^17 = 0.54 s.
/// The manager's default of 19 or 20 costs more than 2 s for each lost packet.
pub(super) const ACK_TIMEOUT: u8 = 17;

/// How often a packet is sent again before the connection is given up. rxe takes 7 for "for ever".
pub(super) const RETRIES: u8 = 6;

/// How long a peer waits that found no receive posted: code 12 is 0.64 ms.
const RECEIVER_NOT_READY: u8 = 12;

/// The queues, destroyed when the last owner lets go: the endpoint, and for a moment the thread that handles its event.
pub(super) struct Queues {
    // Before the completion queue that it uses.
    qp: QueuePair,
    number: u32,
    cq: CompletionQueue,
    device: Arc<Device>,
    /// The end has been begun, here or by the peer.
    over: AtomicBool,
    /// What was granted.
    pub(super) granted: EndpointConfig,
}

impl Queues {
    /// Makes queues, with the completion queue of an earlier connection if there is one that fits. The queue pair is in RESET.
    pub(super) fn new(device: &Arc<Device>, wanted: &EndpointConfig, used: Option<CompletionQueue>) -> Result<Self> {
        let _inside = inside::enter_uncancelled();
        let config = clamp(device, wanted);
        let entries = config.send_queue.saturating_add(config.receive_queue);
        let cq = match used.filter(|cq| cq.entries == entries && Arc::ptr_eq(&cq.channel.device, device)) {
            Some(cq) => cq,
            None => CompletionQueue::new(device, entries)?,
        };
        let (raw, inline) = create_queue_pair(device, cq.raw, &config)?;
        // SAFETY: the queue pair was made just now and is not shared yet.
        let number = unsafe { (*raw).qp_num };
        let granted = EndpointConfig { inline, ..config };
        let qp = QueuePair::new(raw, device);
        Ok(Queues { qp, number, cq, device: Arc::clone(device), over: AtomicBool::new(false), granted })
    }

    /// Destroys the queue pair. What stays is the completion queue, empty, as if it had not been used; `None` if that cannot be.
    pub(super) fn retire(self) -> Option<CompletionQueue> {
        let _inside = inside::enter_uncancelled();
        let Queues { mut qp, mut cq, .. } = self;
        (qp.destroy() && cq.clear()).then_some(cq)
    }

    /// Says that the end has begun. True for the first who says so: it is his to end the connection.
    pub(super) fn begin_end(&self) -> bool {
        !self.over.swap(true, Ordering::AcqRel)
    }

    /// Whether [`Queues::begin_end`] was called.
    pub(super) fn is_over(&self) -> bool {
        self.over.load(Ordering::Acquire)
    }

    /// The queue pair, valid as long as `self`.
    pub(super) fn qp(&self) -> *mut ibv_qp {
        self.qp.raw
    }

    /// The queue pair's number, for the connection manager.
    pub(super) fn number(&self) -> u32 {
        self.number
    }

    /// The completion queue.
    pub(super) fn completions(&self) -> &CompletionQueue {
        &self.cq
    }

    /// The device.
    pub(super) fn device(&self) -> &Arc<Device> {
        &self.device
    }

    /// RESET to INIT: port and partition from the id, remote writes allowed. Receives may be posted then.
    pub(super) fn initialise(&self, id: &Handle) -> Result<()> {
        let _inside = inside::enter_uncancelled();
        let (mut attributes, mut mask) = id.queue_attributes(ibv_qp_state::IBV_QPS_INIT)?;
        attributes.qp_access_flags = ibv_access_flags::IBV_ACCESS_LOCAL_WRITE.0 | ibv_access_flags::IBV_ACCESS_REMOTE_WRITE.0;
        mask |= flag(ibv_qp_attr_mask::IBV_QP_ACCESS_FLAGS);
        self.modify(&mut attributes, mask)
    }

    /// INIT to RTS by way of RTR, once the peer is known. Nothing to do on iWARP, where the kernel does it.
    pub(super) fn ready(&self, id: &Handle) -> Result<()> {
        if self.device.mode == MessageMode::Send {
            return Ok(());
        }
        let _inside = inside::enter_uncancelled();
        let (mut attributes, mask) = id.queue_attributes(ibv_qp_state::IBV_QPS_RTR)?;
        attributes.min_rnr_timer = RECEIVER_NOT_READY;
        attributes.max_dest_rd_atomic = attributes.max_dest_rd_atomic.min(self.device.max_reads);
        attributes.qp_access_flags = ibv_access_flags::IBV_ACCESS_LOCAL_WRITE.0 | ibv_access_flags::IBV_ACCESS_REMOTE_WRITE.0;
        self.modify(&mut attributes, mask)?;
        let (mut attributes, mask) = id.queue_attributes(ibv_qp_state::IBV_QPS_RTS)?;
        attributes.timeout = attributes.timeout.min(ACK_TIMEOUT);
        attributes.retry_cnt = attributes.retry_cnt.min(RETRIES);
        attributes.max_rd_atomic = attributes.max_rd_atomic.min(self.device.max_reads);
        self.modify(&mut attributes, mask)
    }

    /// Ends the queue pair: all that is posted completes with an error, which wakes whoever waits for a completion.
    pub(super) fn flush(&self) {
        let _inside = inside::enter_uncancelled();
        // SAFETY: all-zero is a valid value of this plain structure.
        let mut attributes: ibv_qp_attr = unsafe { MaybeUninit::zeroed().assume_init() };
        attributes.qp_state = ibv_qp_state::IBV_QPS_ERR;
        // It fails where the queue pair is in that state already.
        let _ = self.modify(&mut attributes, flag(ibv_qp_attr_mask::IBV_QP_STATE));
    }

    fn modify(&self, attributes: &mut ibv_qp_attr, mask: c_int) -> Result<()> {
        self.qp.modify(attributes, mask)
    }
}

/// A queue pair. It goes before its completion queue.
pub(super) struct QueuePair {
    raw: *mut ibv_qp,
    device: Arc<Device>,
}

// SAFETY: libibverbs lets any thread use queue pairs; each verb locks what it needs.
unsafe impl Send for QueuePair {}
// SAFETY: as above.
unsafe impl Sync for QueuePair {}

impl QueuePair {
    /// Owns a queue pair of the device that was made just now.
    pub(super) fn new(raw: *mut ibv_qp, device: &Arc<Device>) -> Self {
        QueuePair { raw, device: Arc::clone(device) }
    }

    /// The queue pair, valid as long as `self`.
    pub(super) fn raw(&self) -> *mut ibv_qp {
        self.raw
    }

    /// Changes its state.
    pub(super) fn modify(&self, attributes: &mut ibv_qp_attr, mask: c_int) -> Result<()> {
        // SAFETY: the queue pair lives as long as `self`; the attributes are valid for the call.
        libs::check_code(unsafe { (self.device.libs().ibv_modify_qp)(self.raw, attributes, mask) })
    }

    /// Destroys it, once. False: the device would not.
    fn destroy(&mut self) -> bool {
        let raw = core::mem::replace(&mut self.raw, core::ptr::null_mut());
        // SAFETY: made with the queues, destroyed once (null afterwards), and nobody else has the pointer now.
        raw.is_null() || unsafe { (self.device.libs().ibv_destroy_qp)(raw) } == 0
    }
}

impl Drop for QueuePair {
    fn drop(&mut self) {
        let _inside = inside::enter_uncancelled();
        self.destroy();
    }
}

/// Completion channels of the process: a descriptor each.
static CHANNELS: AtomicUsize = AtomicUsize::new(0);

/// Whether there are descriptors for one more connection.
pub(super) fn may_make_more() -> bool {
    descriptor::may_take_more(CHANNELS.load(Ordering::Relaxed))
}

/// A completion queue with a channel of its own.
pub(super) struct CompletionQueue {
    raw: *mut ibv_cq,
    entries: u32,
    channel: CompletionChannel,
    /// Events taken and not acknowledged yet: acknowledged in one go at the end.
    taken: AtomicU32,
}

// SAFETY: libibverbs lets any thread use completion queues and channels; each verb locks what it needs.
unsafe impl Send for CompletionQueue {}
// SAFETY: as above.
unsafe impl Sync for CompletionQueue {}

impl CompletionQueue {
    /// A queue of so many entries.
    pub(super) fn new(device: &Arc<Device>, entries: u32) -> Result<Self> {
        let channel = CompletionChannel::new(device)?;
        let wanted = c_int::try_from(entries).unwrap_or(c_int::MAX);
        // SAFETY: context and channel are valid; the queue is destroyed before the channel.
        let raw = unsafe { (device.libs().ibv_create_cq)(device.context(), wanted, core::ptr::null_mut(), channel.raw, device.vector()) };
        if raw.is_null() {
            return Err(libs::last_errno());
        }
        Ok(CompletionQueue { raw, entries, channel, taken: AtomicU32::new(0) })
    }

    /// Throws away all completions and announcements. Only when the queue pair that made them is gone: no more can come then.
    /// False: the queue is broken.
    fn clear(&mut self) -> bool {
        const BATCH: usize = 16;
        let mut left = self.entries;
        loop {
            let mut done = [const { MaybeUninit::<ibv_wc>::uninit() }; BATCH];
            // SAFETY: the queue is valid; the array has so many elements.
            let got = unsafe { rdma_sys::ibv_poll_cq(self.raw, BATCH as c_int, done.as_mut_ptr().cast()) };
            let Ok(got) = u32::try_from(got) else { return false };
            if got == 0 {
                break;
            }
            left = match left.checked_sub(got) {
                Some(left) => left,
                None => return false,
            };
        }
        while self.take_event() {}
        true
    }

    /// The queue, valid as long as `self`.
    pub(super) fn raw(&self) -> *mut ibv_cq {
        self.raw
    }

    /// The descriptor that announces completions.
    pub(super) fn event_fd(&self) -> RawFd {
        self.channel.fd
    }

    /// Takes one announcement off the channel, without blocking. False: there is none.
    pub(super) fn take_event(&self) -> bool {
        let _inside = inside::enter_uncancelled();
        let mut cq = core::ptr::null_mut();
        let mut context = core::ptr::null_mut();
        // SAFETY: the channel is valid and does not block; both results are ours to write.
        let result = unsafe { (self.channel.device.libs().ibv_get_cq_event)(self.channel.raw, &mut cq, &mut context) };
        if result == 0 {
            self.taken.fetch_add(1, Ordering::Relaxed);
        }
        result == 0
    }
}

impl Drop for CompletionQueue {
    fn drop(&mut self) {
        let _inside = inside::enter_uncancelled();
        let libs = self.channel.device.libs();
        // SAFETY: the queue is valid, and so many events of it were taken: destroying waits until all are acknowledged.
        unsafe { (libs.ibv_ack_cq_events)(self.raw, *self.taken.get_mut()) };
        // SAFETY: made in `new`, dropped once; the queue pair that used it is gone.
        let _ = unsafe { (libs.ibv_destroy_cq)(self.raw) };
    }
}

struct CompletionChannel {
    raw: *mut ibv_comp_channel,
    fd: RawFd,
    device: Arc<Device>,
}

impl CompletionChannel {
    fn new(device: &Arc<Device>) -> Result<Self> {
        // SAFETY: the context is valid.
        let raw = unsafe { (device.libs().ibv_create_comp_channel)(device.context()) };
        if raw.is_null() {
            return Err(libs::last_errno());
        }
        CHANNELS.fetch_add(1, Ordering::Relaxed);
        let mut channel = CompletionChannel { raw, fd: -1, device: Arc::clone(device) };
        // SAFETY: made just now and not shared yet.
        let fd = unsafe { &mut (*raw).fd };
        *fd = cm::high_descriptor(*fd);
        channel.fd = *fd;
        cm::set_nonblocking(channel.fd)?;
        Ok(channel)
    }
}

impl Drop for CompletionChannel {
    fn drop(&mut self) {
        let _inside = inside::enter_uncancelled();
        CHANNELS.fetch_sub(1, Ordering::Relaxed);
        // SAFETY: made in `new`, dropped once; its completion queue is gone (or was never made). Closes the descriptor.
        let _ = unsafe { (self.device.libs().ibv_destroy_comp_channel)(self.raw) };
        own::unmark(self.fd);
    }
}

/// Sizes within the device's limits. The completion queue takes as many entries as both queues together.
fn clamp(device: &Device, wanted: &EndpointConfig) -> EndpointConfig {
    let half = (device.max_completions / 2).max(1);
    let limit = device.max_queue.max(1).min(half);
    EndpointConfig { send_queue: wanted.send_queue.clamp(1, limit), receive_queue: wanted.receive_queue.clamp(1, limit), ..*wanted }
}

/// Makes the queue pair with as much inline data as the device grants: what was asked, or half, or a quarter, and so on.
fn create_queue_pair(device: &Device, cq: *mut ibv_cq, config: &EndpointConfig) -> Result<(*mut ibv_qp, u32)> {
    let mut inline = config.inline;
    loop {
        let mut attributes = ibv_qp_init_attr {
            qp_context: core::ptr::null_mut(),
            send_cq: cq,
            recv_cq: cq,
            srq: core::ptr::null_mut(),
            cap: ibv_qp_cap {
                max_send_wr: config.send_queue,
                max_recv_wr: config.receive_queue,
                max_send_sge: 1,
                max_recv_sge: device.receive_entries(),
                max_inline_data: inline,
            },
            qp_type: ibv_qp_type::IBV_QPT_RC,
            sq_sig_all: 0,
        };
        // SAFETY: domain and completion queue are valid and outlive the queue pair; the attributes are valid for the call.
        let qp = unsafe { (device.libs().ibv_create_qp)(device.pd(), &mut attributes) };
        if !qp.is_null() {
            return Ok((qp, attributes.cap.max_inline_data));
        }
        match libs::last_errno() {
            Errno::INVAL | Errno::OPNOTSUPP if inline > 0 => inline /= 2,
            Errno::INVAL | Errno::OPNOTSUPP if device.receive_entries() == 0 => {
                device.refuse_bare_receives();
                inline = config.inline;
            }
            error => return Err(error),
        }
    }
}

/// A bit of the mask that says which attributes count.
pub(super) fn flag(mask: ibv_qp_attr_mask) -> c_int {
    c_int::try_from(mask.0).unwrap_or(0)
}
