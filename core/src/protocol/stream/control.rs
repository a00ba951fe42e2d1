//! What is sent, in which order: grants first, as the peer waits for them; then data; then what ends the stream.

use super::{
    Connection,
    connection::Peer,
    queue::{Class, Signal},
    send::{Committed, What},
};
use crate::{
    wire::{Control, Message, Sge},
    work::{DataWrite, MessageMode, Operation, Payload, RemoteAddress, WorkRequest},
};

/// Control messages that wait for their turn. Grants are not among them: whether one is due can be seen from the receiver.
#[derive(Debug, Default)]
pub(super) struct Due {
    /// The message of the 4-byte SEND that follows the payload just handed out.
    second: Option<Second>,
    /// A keep-alive.
    keep_alive: bool,
    /// SHUTDOWN or DISCONNECT, after the data.
    pub(super) end: Option<Control>,
}

/// The second work request of a message.
#[derive(Clone, Copy, Debug)]
struct Second {
    message: Message,
    class: Class,
}

impl Due {
    /// Queue entries for data that are taken and not posted yet: the message whose payload was handed out.
    pub(super) fn data_entries(&self) -> u32 {
        u32::from(self.second.is_some_and(|second| second.class == Class::Data))
    }
}

impl Connection {
    /// Whether anything may be due besides data that is committed from now on. If not, there is nothing to post, and nothing that waits
    /// for its turn either.
    #[inline(always)]
    pub fn may_have_work(&self) -> bool {
        self.grant_is_due() || self.is_something_due()
    }

    /// As [`Connection::may_have_work`], grants apart.
    #[inline(always)]
    fn is_something_due(&self) -> bool {
        let Due { second, keep_alive, end } = &self.due;
        self.sender.committed() > 0 || *keep_alive || end.is_some() || second.is_some() || self.iomaps.due() > 0
    }

    /// A message of the next `len` bytes at [`Connection::write_at`], to be posted at once: what nearly every write is. `None`, and nothing
    /// is done, where they do not fit into one, or something goes before them: then [`Connection::commit`] knows what to do.
    #[inline(always)]
    #[must_use = "what is given is to be posted"]
    pub fn data_at_once(&mut self, len: usize) -> Option<DataWrite> {
        let free = self.state.may_send() && self.mode == MessageMode::Immediate && self.queue.data_entries() < self.data_queue;
        if !free || self.may_have_work() || len == 0 || len > self.sender.writable() as usize {
            return None;
        }
        let Committed { offset, to, .. } = self.sender.take(len as u32);
        let (id, signaled) = self.queue.number(to.length, Class::Data, Signal::WhenDue);
        let message = Message::Data(to.length);
        let to_address = RemoteAddress { addr: to.addr, key: to.key };
        Some(DataWrite { id, to: to_address, immediate: message.to_u32(), offset, len: to.length, signaled })
    }

    /// The next work request to post. They are to be posted in the order in which they come.
    #[inline]
    pub fn poll_work(&mut self) -> Option<WorkRequest> {
        if let Some(Second { message, class }) = self.due.second.take() {
            return Some(self.message(RemoteAddress::default(), Payload::Empty, message, class, Signal::WhenDue));
        }
        if self.grant_is_due()
            && !self.queue.control_is_full()
            && let Some(peer) = self.peer
        {
            return Some(self.grant(peer));
        }
        if self.iomap_is_ready()
            && let Some(work) = self.iomap_message()
        {
            return Some(work);
        }
        if let Some(committed) = self.sender.next() {
            return Some(self.data(committed));
        }
        if self.queue.control_is_full() {
            return None;
        }
        if core::mem::take(&mut self.due.keep_alive) {
            let to = RemoteAddress::default();
            return Some(self.queue.post(Operation::Write { to }, Payload::Empty, Class::KeepAlive, Signal::Yes));
        }
        let end = self.due.end.take()?;
        // What found no room before finds the peer deaf.
        self.iomaps.clear_due();
        Some(self.message(RemoteAddress::default(), Payload::Empty, Message::Ctrl(end), Class::Control, Signal::Yes))
    }

    /// Whether [`Connection::poll_work`] has something now.
    #[inline(never)]
    pub fn has_work(&self) -> bool {
        self.due.second.is_some()
            || self.sender.committed() > 0
            || self.iomap_is_ready()
            || (self.control_is_due() && !self.queue.control_is_full())
    }

    /// Whether a control message is due that has to wait until others have completed.
    #[inline]
    pub fn wants_to_send_control(&self) -> bool {
        self.queue.control_is_full() && self.control_is_due()
    }

    /// Whether everything that was given to send is known to have arrived (see [`Connection::flush_needed`]), or the peer is gone, so
    /// that there is nothing to wait for.
    pub fn all_sent(&self) -> bool {
        self.state.peer_is_gone() || (!self.has_work() && !self.control_is_due() && self.outstanding() == 0)
    }

    /// Whether no data that was given to send waits for its turn.
    pub fn all_posted(&self) -> bool {
        self.due.second.is_none() && self.sender.committed() == 0
    }

    /// Sends a zero-length write that needs nothing from the peer, signaled. False if one is under way, or there is nobody to send to.
    pub fn keep_alive(&mut self) -> bool {
        if self.peer.is_none() || self.state.peer_is_gone() || self.due.keep_alive || self.queue.keep_alive() {
            return false;
        }
        self.due.keep_alive = true;
        true
    }

    /// Whether a keep-alive is under way.
    pub fn is_probing(&self) -> bool {
        self.due.keep_alive || self.queue.keep_alive()
    }

    /// The peer is gone: nothing goes out any more.
    pub(super) fn drop_work(&mut self) {
        self.due = Due::default();
        self.sender.clear();
        self.iomaps.clear_due();
    }

    #[inline]
    fn control_is_due(&self) -> bool {
        self.grant_is_due() || self.due.keep_alive || self.due.end.is_some()
    }

    /// A peer that sends nothing more needs no grant.
    #[inline(always)]
    fn grant_is_due(&self) -> bool {
        self.receiver.grant_due() && self.state.peer_may_send() && self.peer.is_some()
    }

    /// An SGL message: always the newest limit, and the next half of the ring if it is free.
    fn grant(&mut self, peer: Peer) -> WorkRequest {
        let message = Message::Sgl(self.receiver.grant());
        let Some(offset) = self.receiver.advertise() else {
            return self.message(RemoteAddress::default(), Payload::Empty, message, Class::Control, Signal::WhenDue);
        };
        let half = Sge {
            addr: self.exposed.receive.addr.wrapping_add(u64::from(offset)),
            key: self.exposed.receive.key,
            length: self.receiver.half(),
        };
        let Peer { order, targets, next_record } = peer;
        let next = if next_record + 1 < targets.length { next_record + 1 } else { 0 };
        self.peer = Some(Peer { next_record: next, ..peer });
        let addr = targets.addr.wrapping_add(u64::from(next_record) * Sge::BYTES as u64);
        let payload = Payload::bytes(&half.to_bytes(order));
        self.message(RemoteAddress { addr, key: targets.key }, payload, message, Class::Control, Signal::WhenDue)
    }

    fn data(&mut self, committed: Committed) -> WorkRequest {
        let (to, payload) = committed.transfer();
        match committed.what {
            What::Data => self.data_message(to, payload, Message::Data(committed.to.length)),
            What::Placed => self.queue.post(Operation::Write { to }, payload, Class::Data, Signal::WhenDue),
            // Somebody waits for the memory.
            What::PlacedFrom(_) => self.queue.post(Operation::Write { to }, payload, Class::Registered, Signal::Yes),
        }
    }

    /// The work request of a message that takes a credit; the first of two where a payload cannot take the message along.
    pub(super) fn data_message(&mut self, to: RemoteAddress, payload: Payload, message: Message) -> WorkRequest {
        self.message(to, payload, message, Class::Data, Signal::WhenDue)
    }

    /// The work request of a message; the first of two where a payload cannot take the message along.
    fn message(&mut self, to: RemoteAddress, payload: Payload, message: Message, class: Class, signal: Signal) -> WorkRequest {
        if self.mode == MessageMode::Immediate {
            return self.queue.post(Operation::WriteWithImmediate { to, immediate: message.to_u32() }, payload, class, signal);
        }
        if payload.is_empty() {
            let bytes = Payload::bytes(&self.order.put_u32(message.to_u32()));
            return self.queue.post(Operation::Send, bytes, class, signal);
        }
        self.due.second = Some(Second { message, class });
        let class = if class == Class::Control { Class::ControlRecord } else { class };
        self.queue.post(Operation::Write { to }, payload, class, Signal::No)
    }
}
