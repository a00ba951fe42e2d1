//! One connection: the [`Endpoint`] over queues, memory and id. It lives behind the engine lock of its socket.

use core::{
    mem::{ManuallyDrop, MaybeUninit},
    net::SocketAddr,
};
use std::{os::fd::RawFd, sync::Arc};

use rdma_sys::{ibv_wc, rdma_conn_param};

use super::{
    cm::Id,
    event::Shared,
    libs,
    memory::Located,
    post::{self, BATCH},
    queues::RETRIES,
    spare::{Parts, Remains},
};
use crate::{
    error::{Errno, Result},
    fabric::{Endpoint, EndpointLimits, FabricKind, Path, Region, Registrar, Token},
    sys::inside,
    work::{Completion, DataWrite, ExposedMemory, MessageMode, TransportError, WorkRequest},
};

/// Retries after "receiver not ready": 7 is for ever.
const RNR_RETRIES: u8 = 7;

/// RDMA reads of a connection, as the connect request of the peer asked for; nobody uses any.
#[derive(Clone, Copy, Default)]
pub(super) struct Reads {
    pub(super) responder_resources: u8,
    pub(super) initiator_depth: u8,
}

/// A connection over verbs.
pub(super) struct VerbsEndpoint {
    // Both are taken out when it is dropped.
    parts: ManuallyDrop<Parts>,
    id: ManuallyDrop<Id>,
    serial: u64,
    shared: Arc<Shared>,
    reads: Reads,
    limits: EndpointLimits,
    next_slot: u32,
    /// Requests for an event since the channel was last seen empty.
    armed: u32,
    /// A flush has been reported: the many that follow say nothing new.
    flushed: bool,
}

impl VerbsEndpoint {
    /// Puts an endpoint together.
    pub(super) fn new(shared: &Arc<Shared>, id: Id, serial: u64, parts: Parts, reads: Reads) -> Self {
        let granted = parts.queues.granted;
        let limits = EndpointLimits {
            send_queue: granted.send_queue,
            receive_queue: granted.receive_queue,
            inline: granted.inline,
            mode: parts.queues.device().mode,
        };
        let shared = Arc::clone(shared);
        let (parts, id) = (ManuallyDrop::new(parts), ManuallyDrop::new(id));
        VerbsEndpoint { parts, id, serial, shared, reads, limits, next_slot: 0, armed: 0, flushed: false }
    }

    fn parameters(&self, private_data: &[u8]) -> Result<rdma_conn_param> {
        Ok(rdma_conn_param {
            private_data: private_data.as_ptr().cast(),
            private_data_len: u8::try_from(private_data.len()).map_err(|_| Errno::INVAL)?,
            responder_resources: self.reads.responder_resources,
            initiator_depth: self.reads.initiator_depth,
            flow_control: 1,
            retry_count: RETRIES,
            rnr_retry_count: RNR_RETRIES,
            srq: 0,
            qp_num: self.parts.queues.number(),
        })
    }

    /// The completion queue itself fails. Once is enough.
    #[cold]
    fn queue_is_broken(&mut self, out: &mut [Completion]) -> usize {
        let [first, ..] = out else { return 0 };
        if core::mem::replace(&mut self.flushed, true) {
            return 0;
        }
        *first = Completion::Failed(TransportError::Other(u32::MAX));
        1
    }
}

impl Endpoint for VerbsEndpoint {
    fn kind(&self) -> FabricKind {
        FabricKind::Verbs
    }

    fn limits(&self) -> EndpointLimits {
        self.limits
    }

    fn set_token(&mut self, token: Token) {
        self.shared.entries().set_token(self.serial, token);
    }

    fn connect(&mut self, private_data: &[u8]) -> Result<()> {
        let mut parameters = self.parameters(private_data)?;
        if self.limits.mode == MessageMode::Send {
            // The transport reads once while it connects. siw connects its TCP connection within this call, so that a refusal
            // is its error (ECONNREFUSED).
            parameters.initiator_depth = 1;
        }
        self.id.connect(&mut parameters)
    }

    fn accept(&mut self, private_data: &[u8]) -> Result<()> {
        let mut parameters = self.parameters(private_data)?;
        self.parts.queues.ready(&self.id)?;
        self.id.accept(&mut parameters)
    }

    fn reject(&mut self) {
        self.id.reject();
    }

    fn disconnect(&mut self) {
        if !self.parts.queues.begin_end() {
            return;
        }
        if self.limits.mode == MessageMode::Immediate {
            // On iWARP the kernel ends the queue pair after what was posted.
            self.parts.queues.flush();
        }
        self.id.disconnect();
    }

    fn post_sends(&mut self, work: &[WorkRequest]) -> Result<()> {
        let _inside = inside::enter();
        let qp = self.parts.queues.qp();
        let inline = self.limits.inline;
        let areas = &mut self.parts.areas;
        if work.len() <= BATCH {
            return post::send(qp, areas, inline, work);
        }
        work.chunks(BATCH).try_for_each(|batch| post::send(qp, areas, inline, batch))
    }

    fn post_data(&mut self, data: &DataWrite, bytes: &[u8]) -> Result<()> {
        let areas = &mut self.parts.areas;
        let inline = data.len <= self.limits.inline;
        let from = if inline {
            // The provider copies them before it returns.
            Located { addr: bytes.as_ptr().expose_provenance() as u64, key: 0 }
        } else {
            areas.send().write(data.offset as usize, bytes)?;
            areas.locate(data.offset, data.len, true)?
        };
        let _inside = inside::enter();
        post::data(self.parts.queues.qp(), data, from, inline)
    }

    fn post_receives(&mut self, count: u32) -> Result<()> {
        let _inside = inside::enter();
        let qp = self.parts.queues.qp();
        let slots = self.limits.receive_queue;
        let next_slot = &mut self.next_slot;
        // Receives are used up in order, so the slot that is taken next is free again.
        let mut slot = || {
            let slot = *next_slot;
            *next_slot = match slot.checked_add(1) {
                Some(next) if next < slots => next,
                _ => 0,
            };
            slot
        };
        let mut left = count;
        while left > 0 {
            let now = left.min(BATCH as u32);
            post::receive(qp, &self.parts.areas, self.limits.mode, now, &mut slot)?;
            left -= now;
        }
        Ok(())
    }

    fn poll(&mut self, out: &mut [Completion]) -> usize {
        let _inside = inside::enter();
        let cq = self.parts.queues.completions().raw();
        let wanted = out.len().min(BATCH);
        let mut taken = 0;
        loop {
            let mut done = [const { MaybeUninit::<ibv_wc>::uninit() }; BATCH];
            // SAFETY: the completion queue is valid; `wanted` is at most the array's length.
            let got = unsafe { rdma_sys::ibv_poll_cq(cq, wanted as i32, done.as_mut_ptr().cast()) };
            if got < 0 {
                return self.queue_is_broken(out);
            }
            for done in done.iter().take(got as usize) {
                // SAFETY: the call filled in the first `got` elements.
                let done = unsafe { done.assume_init_ref() };
                let completion = post::completion(&self.parts.areas, self.limits.mode, done);
                if completion == Completion::Failed(TransportError::Flushed) && core::mem::replace(&mut self.flushed, true) {
                    continue;
                }
                if let Some(to) = out.get_mut(taken) {
                    *to = completion;
                    taken += 1;
                }
            }
            // A full batch of flushes that say nothing new is not yet the end.
            if taken > 0 || got == 0 || (got as usize) < wanted {
                return taken;
            }
        }
    }

    fn arm(&mut self) -> Result<()> {
        let _inside = inside::enter();
        let cq = self.parts.queues.completions().raw();
        // SAFETY: the completion queue is valid.
        libs::check_code(unsafe { rdma_sys::ibv_req_notify_cq(cq, 0) })?;
        self.armed = self.armed.saturating_add(1);
        Ok(())
    }

    fn registrar(&self) -> Option<Arc<dyn Registrar>> {
        Some(self.parts.areas.registrar())
    }

    fn event_fd(&self) -> Option<RawFd> {
        Some(self.parts.queues.completions().event_fd())
    }

    fn clear_events(&mut self) {
        // There are at most as many events as requests for one, so that one read is enough as a rule.
        loop {
            if !self.parts.queues.completions().take_event() {
                // Requests that found the queue armed made no event of their own.
                self.armed = self.armed.min(1);
                return;
            }
            self.armed = self.armed.saturating_sub(1);
            if self.armed == 0 {
                return;
            }
        }
    }

    fn exposed(&self) -> ExposedMemory {
        self.parts.areas.exposed()
    }

    fn receive_area(&self) -> &Region {
        self.parts.areas.receive()
    }

    fn send_area(&self) -> &Region {
        self.parts.areas.send()
    }

    fn target_area(&self) -> &Region {
        self.parts.areas.targets()
    }

    fn local_addr(&self) -> SocketAddr {
        self.id.local_addr()
    }

    fn peer_addr(&self) -> SocketAddr {
        self.id.peer_addr()
    }

    fn path(&self) -> Option<Path> {
        self.id.path()
    }
}

impl Drop for VerbsEndpoint {
    fn drop(&mut self) {
        // Before the id and the queues go: an event that comes from now on finds nobody.
        let gone = self.shared.entries().remove(self.serial);
        drop(gone);
        // SAFETY: taken once, as the value is being dropped; nothing uses the field afterwards.
        let parts = unsafe { ManuallyDrop::take(&mut self.parts) };
        // SAFETY: as above.
        let id = unsafe { ManuallyDrop::take(&mut self.id) };
        self.shared.spares().put_away(Remains { parts, id });
    }
}
