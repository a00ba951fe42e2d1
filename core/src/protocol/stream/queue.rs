//! The send queue: numbers the work requests, decides which of them ask for a completion, and knows what a completion frees.
//!
//! Only some requests are signaled, as each completion costs a wake-up. A completion says that all earlier requests are done
//! too, so it is enough that a queue (or send area) that is full always has a signaled request in it: one is signaled whenever
//! a quarter of the entries, or of the bytes, went unsignaled before it. Control messages are few but have a limit of their
//! own: every second one is signaled.

use std::collections::VecDeque;

use super::CONTROL_MESSAGES;
use crate::work::{Operation, Payload, WorkRequest};

/// What a work request belongs to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Class {
    /// A DATA or IOMAP message or the payload ahead of it, or bytes for mapped memory.
    Data,
    /// Bytes for mapped memory, from registered memory.
    Registered,
    /// The record ahead of a control message.
    ControlRecord,
    /// A control message.
    Control,
    /// A keep-alive.
    KeepAlive,
}

/// Whether a work request asks for a completion.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Signal {
    /// Never: the message follows.
    No,
    /// As the queue needs it.
    WhenDue,
    /// Somebody waits for it.
    Yes,
}

/// Requests that complete together: one that is signaled, and those before it that are not.
#[derive(Debug, Default)]
struct Group {
    entries: u32,
    /// Bytes of the send area.
    bytes: u32,
    data_entries: u32,
    /// Control messages, keep-alives among them.
    controls: u32,
    /// Requests from registered memory.
    registered: u32,
    keep_alive: bool,
}

/// What may go unsignaled.
#[derive(Debug)]
struct Most {
    entries: u32,
    bytes: u32,
    controls: u32,
}

/// See the module.
#[derive(Debug)]
pub(super) struct SendQueue {
    /// Those that were posted and are not known to be done, in order.
    groups: VecDeque<Group>,
    /// Since the last signaled one.
    open: Group,
    /// The number of the next request.
    next_id: u64,
    /// All before this one are done.
    done: u64,
    /// Data entries that are not done.
    data_entries: u32,
    /// Control messages, keep-alives among them, that are not done.
    controls: u32,
    keep_alive: bool,
    /// Requests from registered memory in all: done, and posted.
    registered: (u64, u64),
    most_unsignaled: Most,
    signal_all: bool,
}

impl SendQueue {
    /// A queue with room for `data_entries` and the control messages; `send_bytes` is the size of the send area.
    pub(super) fn new(data_entries: u32, send_bytes: u32) -> Self {
        SendQueue {
            groups: VecDeque::new(),
            open: Group::default(),
            next_id: 0,
            done: 0,
            data_entries: 0,
            controls: 0,
            keep_alive: false,
            registered: (0, 0),
            most_unsignaled: Most { entries: data_entries / 4, bytes: send_bytes / 4, controls: CONTROL_MESSAGES / 2 },
            signal_all: false,
        }
    }

    /// Numbers a work request. `operation` and `payload` must be posted next.
    pub(super) fn post(&mut self, operation: Operation, payload: Payload, class: Class, signal: Signal) -> WorkRequest {
        let bytes = if let Payload::SendArea { len, .. } = payload { len } else { 0 };
        let (id, signaled) = self.number(bytes, class, signal);
        WorkRequest { id, operation, payload, signaled }
    }

    /// As [`SendQueue::post`], of a request with so many bytes of the send area: its number, and whether it is signaled.
    #[inline(always)]
    pub(super) fn number(&mut self, bytes: u32, class: Class, signal: Signal) -> (u64, bool) {
        let data = u32::from(matches!(class, Class::Data | Class::Registered));
        let control = u32::from(matches!(class, Class::Control | Class::KeepAlive));
        let registered = u32::from(class == Class::Registered);
        self.open.entries += 1;
        self.open.bytes = self.open.bytes.saturating_add(bytes);
        self.open.data_entries += data;
        self.open.controls += control;
        self.open.registered += registered;
        self.open.keep_alive |= class == Class::KeepAlive;
        self.data_entries += data;
        self.controls += control;
        self.registered.1 += u64::from(registered);
        self.keep_alive |= class == Class::KeepAlive;
        let signaled = match signal {
            Signal::No => false,
            Signal::WhenDue => self.signal_all || self.is_due(),
            Signal::Yes => true,
        };
        if signaled {
            self.close_group();
        }
        let id = self.next_id;
        self.next_id += 1;
        (id, signaled)
    }

    #[inline(never)]
    fn close_group(&mut self) {
        self.groups.push_back(core::mem::take(&mut self.open));
    }

    #[inline(always)]
    fn is_due(&self) -> bool {
        let (now, most) = (&self.open, &self.most_unsignaled);
        now.entries >= most.entries || now.bytes >= most.bytes || now.controls >= most.controls
    }

    /// The request `id` and all before it are done: a signaled one. Returns the bytes of the send area that are free now.
    pub(super) fn done(&mut self, id: u64) -> u32 {
        let mut bytes = 0;
        // An id that was never given out would be an error of the fabric: it frees no more than there is.
        while let Some(group) = self.groups.front()
            && self.done + u64::from(group.entries) <= id.saturating_add(1)
            && let Some(group) = self.groups.pop_front()
        {
            bytes += self.free(&group);
        }
        bytes
    }

    fn free(&mut self, group: &Group) -> u32 {
        self.done += u64::from(group.entries);
        self.data_entries -= group.data_entries;
        self.controls -= group.controls;
        self.registered.0 += u64::from(group.registered);
        self.keep_alive &= !group.keep_alive;
        group.bytes
    }

    /// The connection is over: nothing completes any more.
    pub(super) fn clear(&mut self) {
        self.close_group();
        let _ = self.done(self.next_id);
    }

    pub(super) fn outstanding(&self) -> u32 {
        (self.next_id - self.done) as u32
    }

    pub(super) fn data_entries(&self) -> u32 {
        self.data_entries
    }

    /// Requests from registered memory in all: done, and posted.
    pub(super) fn registered(&self) -> (u64, u64) {
        self.registered
    }

    pub(super) fn control_is_full(&self) -> bool {
        self.controls >= CONTROL_MESSAGES
    }

    pub(super) fn keep_alive(&self) -> bool {
        self.keep_alive
    }

    /// Whether a completion is on its way. The requests after the last one of these may be done or not.
    pub(super) fn completion_is_due(&self) -> bool {
        !self.groups.is_empty()
    }

    /// Whether the latest request will complete only together with a later one.
    pub(super) fn ends_unsignaled(&self) -> bool {
        self.open.entries > 0
    }

    pub(super) fn set_signal_all(&mut self, on: bool) {
        self.signal_all = on;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::work::RemoteAddress;

    const WRITE: Operation = Operation::Write { to: RemoteAddress { addr: 0, key: 0 } };

    fn data(len: u32) -> Payload {
        Payload::SendArea { offset: 0, len }
    }

    #[test]
    fn a_quarter_of_the_entries_goes_unsignaled() {
        let mut queue = SendQueue::new(16, 1 << 20);
        let signaled: Vec<bool> = (0..8).map(|_| queue.post(WRITE, data(1), Class::Data, Signal::WhenDue).signaled).collect();
        assert_eq!(signaled, [false, false, false, true, false, false, false, true]);
        assert_eq!(queue.done(3), 4);
        assert_eq!((queue.outstanding(), queue.data_entries()), (4, 4));
        assert!(queue.completion_is_due() && !queue.ends_unsignaled());
    }

    #[test]
    fn a_quarter_of_the_bytes_goes_unsignaled() {
        let mut queue = SendQueue::new(1000, 100);
        assert!(!queue.post(WRITE, data(24), Class::Data, Signal::WhenDue).signaled);
        assert!(queue.ends_unsignaled());
        assert!(queue.post(WRITE, data(1), Class::Data, Signal::WhenDue).signaled);
        assert!(!queue.post(WRITE, data(1), Class::Data, Signal::WhenDue).signaled);
    }

    #[test]
    fn every_second_control_message_is_signaled() {
        let mut queue = SendQueue::new(1000, 1000);
        let signaled: Vec<bool> = (0..4).map(|_| queue.post(WRITE, Payload::Empty, Class::Control, Signal::WhenDue).signaled).collect();
        assert_eq!(signaled, [false, true, false, true]);
        assert!(queue.control_is_full());
        assert_eq!(queue.done(1), 0);
        assert!(!queue.control_is_full());
    }

    #[test]
    fn the_smallest_queue_signals_everything() {
        let mut queue = SendQueue::new(1, 1);
        assert!(queue.post(WRITE, data(1), Class::Data, Signal::WhenDue).signaled);
        assert!(queue.post(WRITE, Payload::Empty, Class::Data, Signal::WhenDue).signaled);
    }

    #[test]
    fn ids_that_were_never_given_out_free_nothing_else() {
        let mut queue = SendQueue::new(16, 100);
        let _ = queue.post(WRITE, data(7), Class::Data, Signal::Yes);
        assert_eq!(queue.done(u64::MAX), 7);
        assert_eq!(queue.done(0), 0);
        let next = queue.post(WRITE, data(5), Class::Data, Signal::Yes);
        assert_eq!(next.id, 1);
        assert_eq!(queue.done(0), 0, "done before");
        assert_eq!(queue.done(1), 5);
    }
}
