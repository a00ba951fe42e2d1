//! Unconnected queue pairs (UD), for datagrams: [`VerbsQueue`].
//!
//! `path` has the port and address handles, `search` finds them. One mapping with one registration holds all messages: those that may come,
//! each behind the 40 bytes of its global routing header, and those that are on their way.

mod path;
mod search;

use core::{
    ffi::c_int,
    mem::MaybeUninit,
    net::{IpAddr, SocketAddr},
};
use std::{collections::VecDeque, io::IoSlice, os::fd::RawFd, sync::Arc};

use path::{Address, Port};
use rdma_sys::{
    bind_mw_t, bind_mw_tso_union_t, ibv_cq, ibv_mw_bind_info, ibv_qp, ibv_qp_attr, ibv_qp_attr_mask, ibv_qp_cap, ibv_qp_init_attr,
    ibv_qp_state, ibv_qp_type, ibv_recv_wr, ibv_send_flags, ibv_send_wr, ibv_sge, ibv_wc, ibv_wc_status, ibv_wr_opcode,
    imm_data_invalidated_rkey_union_t, qp_type_t, ud_t, wr_t, xrc_t,
};
pub(super) use search::Search;
use search::{Origin, Outcomes};

use super::{
    cm::{Id, PortSpace},
    device::Device,
    event::Shared,
    libs,
    memory::{self, Registration},
    post::BATCH,
    queues::{self, CompletionQueue, QueuePair, flag},
};
use crate::{
    error::{Errno, Result},
    fabric::{
        Region,
        datagram::{Found, Handle, Paths, Posted, Queue},
    },
    log_debug,
    sys::inside,
    wire::{MAX_MESSAGE, QUEUE_KEY},
    work::MessageMode,
};

/// Bytes that the device writes in front of a message, with or without a global routing header.
const ROUTING: usize = 40;
/// Bytes of a receive, a whole number of cache lines.
const RECEIVE: usize = 2112;
/// Messages that may come without being looked at, and that may be on their way: as many as the kernel's socket has room for by default.
const RECEIVES: u32 = 256;
const SENDS: u32 = 64;
/// Messages up to this size are copied by the processor, where the device takes that much.
const INLINE: u32 = 128;
/// The work request is a receive; the rest of its id is the slot. (That of a send is its number.)
const IS_RECEIVE: u64 = 1 << 63;

/// The queue pair of one local address.
pub(super) struct VerbsQueue {
    // The queue pair goes before all that it uses, registrations before their memory.
    qp: QueuePair,
    completions: CompletionQueue,
    registration: Registration,
    memory: Region,
    paths: Paths<Address>,
    /// Released, but perhaps still in use.
    released: Vec<Address>,
    outcomes: Arc<Outcomes>,
    origin: Arc<Origin>,
    id: Id,
    shared: Arc<Shared>,
    number: u32,
    sizes: Sizes,
    /// Messages that were sent ever, and those of them that have left for certain.
    sent: u64,
    left: u64,
    /// Slots of messages that have come, and their length.
    come: VecDeque<(u32, usize)>,
    arrivals: u32,
    /// An event was asked for, and has not been taken.
    armed: bool,
    /// The device takes no more.
    is_broken: bool,
}

/// What the device has granted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Sizes {
    receives: u32,
    sends: u32,
    inline: u32,
}

impl Sizes {
    /// Within the limits of a device, whose completion queue has room for both.
    fn within(max_queue: u32, max_completions: u32) -> Self {
        let sends = SENDS.min(max_queue).min(max_completions / 2).max(1);
        Sizes { receives: RECEIVES.min(max_queue).min(max_completions.saturating_sub(sends)).max(1), sends, inline: INLINE }
    }

    fn sends_at(self) -> usize {
        RECEIVE.saturating_mul(self.receives as usize)
    }

    fn bytes(self) -> usize {
        MAX_MESSAGE.saturating_mul(self.sends as usize).saturating_add(self.sends_at())
    }

    /// Where the message of this number is while it is on its way.
    fn send_at(self, number: u64) -> usize {
        let slot = usize::try_from(number.checked_rem(u64::from(self.sends)).unwrap_or(0)).unwrap_or(0);
        slot.saturating_mul(MAX_MESSAGE).saturating_add(self.sends_at())
    }

    /// Whether its completion is asked for: a quarter of the queue went without.
    fn is_signaled(self, number: u64) -> bool {
        number.is_multiple_of(u64::from((self.sends / 4).max(1)))
    }
}

impl VerbsQueue {
    /// For a local address. ENODEV: no device has it, or none that knows datagrams.
    pub(super) fn new(shared: &Arc<Shared>, local: IpAddr) -> Result<Self> {
        let _inside = inside::enter_uncancelled();
        let local = SocketAddr::new(local, 0);
        let id = Id::new(shared.channel(), shared.serial(), PortSpace::Datagrams)?;
        id.bind(local)?;
        if local.ip().is_unspecified() || id.verbs().is_null() {
            return Err(Errno::NODEV);
        }
        let device = shared.devices().get(id.verbs())?;
        if device.mode == MessageMode::Send {
            // iWARP.
            return Err(Errno::NODEV);
        }
        if !queues::may_make_more() {
            return Err(Errno::MFILE);
        }
        let port = Port::new(&device, id.port())?;
        let wanted = Sizes::within(device.max_queue, device.max_completions);
        let completions = CompletionQueue::new(&device, wanted.receives.saturating_add(wanted.sends))?;
        let (raw, sizes) = create(&device, completions.raw(), wanted)?;
        let qp = QueuePair::new(raw, &device);
        // SAFETY: the queue pair was made just now and is not shared yet.
        let number = unsafe { (*raw).qp_num };
        let memory = Region::new(sizes.bytes())?;
        let registration = Registration::new(&device, &memory, memory::RECEIVED)?;
        let origin = Arc::new(Origin { local, device, port });
        let mut queue = VerbsQueue {
            qp,
            completions,
            registration,
            memory,
            paths: Paths::default(),
            released: Vec::new(),
            outcomes: Arc::default(),
            origin,
            shared: Arc::clone(shared),
            number,
            sizes,
            sent: 0,
            left: 0,
            come: VecDeque::with_capacity(sizes.receives as usize),
            arrivals: 0,
            armed: false,
            is_broken: false,
            id,
        };
        queue.open()?;
        log_debug!("datagrams of {} over RDMA: queue pair {number}, at most {} bytes, {sizes:?}", local.ip(), queue.largest());
        Ok(queue)
    }

    /// Brings the queue pair up, with all receives.
    fn open(&mut self) -> Result<()> {
        let (mut attributes, mask) = self.id.queue_attributes(ibv_qp_state::IBV_QPS_INIT)?;
        attributes.qkey = QUEUE_KEY;
        self.qp.modify(&mut attributes, mask | flag(ibv_qp_attr_mask::IBV_QP_QKEY))?;
        for slot in 0..self.sizes.receives {
            self.post_receive(slot)?;
        }
        // SAFETY: all-zero is a valid value of this plain structure.
        let mut attributes: ibv_qp_attr = unsafe { MaybeUninit::zeroed().assume_init() };
        attributes.qp_state = ibv_qp_state::IBV_QPS_RTR;
        self.qp.modify(&mut attributes, flag(ibv_qp_attr_mask::IBV_QP_STATE))?;
        attributes.qp_state = ibv_qp_state::IBV_QPS_RTS;
        self.qp.modify(&mut attributes, flag(ibv_qp_attr_mask::IBV_QP_STATE) | flag(ibv_qp_attr_mask::IBV_QP_SQ_PSN))
    }

    fn post_receive(&mut self, slot: u32) -> Result<()> {
        let at = RECEIVE.saturating_mul(slot as usize);
        let length = (ROUTING + MAX_MESSAGE) as u32;
        let mut entry = ibv_sge { addr: memory::address(&self.memory, at), length, lkey: self.registration.local_key };
        let wr_id = IS_RECEIVE | u64::from(slot);
        let mut request = ibv_recv_wr { wr_id, next: core::ptr::null_mut(), sg_list: &mut entry, num_sge: 1 };
        let mut bad = core::ptr::null_mut();
        // SAFETY: the queue pair is valid; request and entry live until the call returns; the slot lies in registered memory.
        libs::check_code(unsafe { rdma_sys::ibv_post_recv(self.qp.raw(), &mut request, &mut bad) })
    }

    /// Takes completions, until some messages have come or there are no more.
    fn poll(&mut self) {
        let _inside = inside::enter();
        loop {
            let mut done = [const { MaybeUninit::<ibv_wc>::uninit() }; BATCH];
            // SAFETY: the completion queue is valid; the array has so many elements.
            let got = unsafe { rdma_sys::ibv_poll_cq(self.completions.raw(), BATCH as c_int, done.as_mut_ptr().cast()) };
            let Ok(got) = usize::try_from(got) else {
                self.is_broken = true;
                return;
            };
            for done in done.iter().take(got) {
                // SAFETY: the call filled in the first `got` elements.
                self.complete(unsafe { done.assume_init_ref() });
            }
            if got < BATCH || !self.come.is_empty() {
                break;
            }
        }
        let left = self.left;
        self.released.retain(|address| address.last > left);
    }

    fn complete(&mut self, done: &ibv_wc) {
        let is_good = done.status == ibv_wc_status::IBV_WC_SUCCESS;
        if done.wr_id & IS_RECEIVE == 0 {
            self.left = self.left.max(done.wr_id);
            // One that fails ends the sending, of all.
            self.is_broken |= !is_good;
            return;
        }
        let slot = u32::try_from(done.wr_id & !IS_RECEIVE).unwrap_or(0);
        let len = (done.byte_len as usize).checked_sub(ROUTING).filter(|len| *len <= MAX_MESSAGE);
        match len.filter(|_| is_good) {
            Some(len) => {
                self.arrivals = self.arrivals.wrapping_add(1);
                self.come.push_back((slot, len));
            }
            None if done.status == ibv_wc_status::IBV_WC_WR_FLUSH_ERR => self.is_broken = true,
            None => self.repost(slot),
        }
    }

    fn repost(&mut self, slot: u32) {
        self.is_broken |= self.post_receive(slot).is_err();
    }

    /// Copies a message to where the device reads it.
    fn gather(&self, at: usize, header: &[u8], from: &[IoSlice<'_>]) -> Result<()> {
        self.memory.write(at, header)?;
        let mut at = at.saturating_add(header.len());
        for slice in from {
            self.memory.write(at, slice)?;
            at = at.saturating_add(slice.len());
        }
        Ok(())
    }
}

impl Queue for VerbsQueue {
    fn local(&self) -> IpAddr {
        self.origin.local.ip()
    }

    fn number(&self) -> u32 {
        self.number
    }

    fn largest(&self) -> usize {
        self.origin.port.largest.min(MAX_MESSAGE)
    }

    fn find(&mut self, request: u64, peer: SocketAddr) -> Result<()> {
        if self.is_broken {
            return Err(Errno::NODEV);
        }
        Search::begin(&self.shared, request, peer, &self.origin, &self.outcomes)
    }

    fn found(&mut self) -> Option<Found> {
        let (request, address) = self.outcomes.take()?;
        Some(Found { request, handle: address.map(|address| self.paths.insert(address)) })
    }

    fn release(&mut self, path: Handle) {
        if let Some(address) = self.paths.remove(path).filter(|address| address.last > self.left) {
            self.released.push(address);
        }
    }

    fn send(&mut self, path: Handle, number: u32, header: &[u8], from: &[IoSlice<'_>]) -> Result<Posted> {
        if self.is_broken {
            return Err(Errno::NODEV);
        }
        let len = from.iter().map(|slice| slice.len()).fold(header.len(), usize::saturating_add);
        let largest = self.largest();
        let address = self.paths.get(path)?;
        if len > address.largest.min(largest) {
            return Ok(Posted::TooLong);
        }
        let ah = address.raw();
        if self.sent - self.left >= u64::from(self.sizes.sends) {
            self.poll();
        }
        if self.sent - self.left >= u64::from(self.sizes.sends) {
            return Ok(Posted::Full);
        }
        let _inside = inside::enter();
        let message = self.sent + 1;
        let at = self.sizes.send_at(message);
        self.gather(at, header, from)?;
        let length = u32::try_from(len).map_err(|_| Errno::MSGSIZE)?;
        let mut entry = ibv_sge { addr: memory::address(&self.memory, at), length, lkey: self.registration.local_key };
        let mut request = send_request(message, &mut entry, ud_t { ah, remote_qpn: number, remote_qkey: QUEUE_KEY });
        if self.sizes.is_signaled(message) {
            request.send_flags |= ibv_send_flags::IBV_SEND_SIGNALED.0;
        }
        if length <= self.sizes.inline {
            request.send_flags |= ibv_send_flags::IBV_SEND_INLINE.0;
        }
        let mut bad = core::ptr::null_mut();
        // SAFETY: the queue pair is valid; request and entry live until the call returns; the message lies in registered memory that is not
        // used again, and the address handle is kept, until it has left.
        libs::check_code(unsafe { rdma_sys::ibv_post_send(self.qp.raw(), &mut request, &mut bad) })?;
        self.sent = message;
        if let Ok(address) = self.paths.get(path) {
            address.last = message;
        }
        Ok(Posted::Done)
    }

    fn arrivals(&mut self) -> u32 {
        self.poll();
        self.arrivals
    }

    fn next_len(&mut self) -> Option<usize> {
        if self.come.is_empty() {
            self.poll();
        }
        self.come.front().map(|(_, len)| *len)
    }

    fn read(&self, offset: usize, into: &mut [u8]) -> Result<()> {
        let (slot, len) = self.come.front().ok_or(Errno::FAULT)?;
        if offset.checked_add(into.len()).is_none_or(|end| end > *len) {
            return Err(Errno::FAULT);
        }
        let at = RECEIVE.saturating_mul(*slot as usize).saturating_add(ROUTING);
        self.memory.read(at.saturating_add(offset), into)
    }

    fn take(&mut self) {
        if let Some((slot, _)) = self.come.pop_front() {
            let _inside = inside::enter();
            self.repost(slot);
        }
    }

    fn arm(&mut self) -> Result<()> {
        if !self.armed {
            let _inside = inside::enter();
            // SAFETY: the completion queue is valid.
            libs::check_code(unsafe { rdma_sys::ibv_req_notify_cq(self.completions.raw(), 0) })?;
            self.armed = true;
        }
        Ok(())
    }

    fn event_fd(&self) -> Option<RawFd> {
        Some(self.completions.event_fd())
    }

    fn clear_events(&mut self) -> bool {
        // There are as many events as requests for one.
        let taken = self.armed && self.completions.take_event();
        self.armed &= !taken;
        taken
    }
}

/// A message to `to`.
fn send_request(wr_id: u64, entry: &mut ibv_sge, to: ud_t) -> ibv_send_wr {
    let none = ibv_mw_bind_info { mr: core::ptr::null_mut(), addr: 0, length: 0, mw_access_flags: 0 };
    ibv_send_wr {
        wr_id,
        next: core::ptr::null_mut(),
        sg_list: entry,
        num_sge: 1,
        opcode: ibv_wr_opcode::IBV_WR_SEND,
        send_flags: 0,
        imm_data_invalidated_rkey_union: imm_data_invalidated_rkey_union_t { imm_data: 0 },
        wr: wr_t { ud: to },
        qp_type: qp_type_t { xrc: xrc_t { remote_srqn: 0 } },
        bind_mw_tso_union: bind_mw_tso_union_t { bind_mw: bind_mw_t { mw: core::ptr::null_mut(), rkey: 0, bind_info: none } },
    }
}

/// Makes the queue pair with as much inline data as the device grants: what is wanted, or half, or a quarter, and so on.
fn create(device: &Device, cq: *mut ibv_cq, wanted: Sizes) -> Result<(*mut ibv_qp, Sizes)> {
    let Sizes { receives, sends, mut inline } = wanted;
    loop {
        let cap = ibv_qp_cap { max_send_wr: sends, max_recv_wr: receives, max_send_sge: 1, max_recv_sge: 1, max_inline_data: inline };
        let mut attributes = ibv_qp_init_attr {
            qp_context: core::ptr::null_mut(),
            send_cq: cq,
            recv_cq: cq,
            srq: core::ptr::null_mut(),
            cap,
            qp_type: ibv_qp_type::IBV_QPT_UD,
            sq_sig_all: 0,
        };
        // SAFETY: domain and completion queue are valid and outlive the queue pair; the attributes are valid for the call.
        let raw = unsafe { (device.libs().ibv_create_qp)(device.pd(), &mut attributes) };
        if !raw.is_null() {
            return Ok((raw, Sizes { inline: attributes.cap.max_inline_data, ..wanted }));
        }
        match libs::last_errno() {
            Errno::INVAL | Errno::OPNOTSUPP if inline > 0 => inline /= 2,
            error => return Err(error),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_keep_to_the_limits() {
        assert_eq!(Sizes::within(65_534, 65_534), Sizes { receives: RECEIVES, sends: SENDS, inline: INLINE });
        assert_eq!(Sizes::within(16, 65_534), Sizes { receives: 16, sends: 16, inline: INLINE });
        for (max_queue, max_completions) in [(1, 2), (256, 20), (100, 300), (3, 7)] {
            let sizes = Sizes::within(max_queue, max_completions);
            assert!(sizes.receives <= max_queue && sizes.sends <= max_queue, "{sizes:?}");
            assert!(sizes.receives + sizes.sends <= max_completions && sizes.receives > 0 && sizes.sends > 0, "{sizes:?}");
        }
    }

    #[test]
    fn messages_have_places_of_their_own() {
        let sizes = Sizes { receives: 3, sends: 4, inline: 0 };
        let mut places: Vec<usize> = (1..=4).map(|message| sizes.send_at(message)).collect();
        assert_eq!(sizes.send_at(5), places[0]);
        places.sort_unstable();
        assert!(places.windows(2).all(|pair| pair[1] - pair[0] == MAX_MESSAGE));
        assert!(places[0] >= 3 * RECEIVE && places[3] + MAX_MESSAGE == sizes.bytes());
        const { assert!(RECEIVE >= ROUTING + MAX_MESSAGE && RECEIVE.is_multiple_of(64)) };
    }

    /// Else a full queue would stay full.
    #[test]
    fn every_full_queue_has_a_completion_to_come() {
        for sends in [1, 2, 3, 4, 5, 63, 64] {
            let sizes = Sizes { receives: 1, sends, inline: 0 };
            for first in 1..200 {
                assert!((first..first + u64::from(sends)).any(|message| sizes.is_signaled(message)), "{sends}");
            }
        }
    }
}
