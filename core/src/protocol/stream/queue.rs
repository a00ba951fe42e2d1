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

#[derive(Debug)]
struct Posted {
    /// Bytes of the send area.
    bytes: u32,
    class: Class,
    signaled: bool,
}

/// See the module.
#[derive(Debug)]
pub(super) struct SendQueue {
    /// In order; the last one has number `next_id - 1`.
    posted: VecDeque<Posted>,
    next_id: u64,
    /// Signaled requests in `posted`.
    signaled: u32,
    /// Data entries in `posted`.
    data_entries: u32,
    /// Control messages, keep-alives among them, in `posted`.
    controls: u32,
    keep_alive: bool,
    /// Requests from registered memory in all: done, and posted.
    registered: (u64, u64),
    /// Since the last signaled one.
    unsignaled: Unsignaled,
    most_unsignaled: Unsignaled,
    signal_all: bool,
}

#[derive(Debug, Default)]
struct Unsignaled {
    entries: u32,
    bytes: u32,
    controls: u32,
}

impl SendQueue {
    /// A queue with room for `data_entries` and the control messages; `send_bytes` is the size of the send area.
    pub(super) fn new(data_entries: u32, send_bytes: u32) -> Self {
        SendQueue {
            posted: VecDeque::new(),
            next_id: 0,
            signaled: 0,
            data_entries: 0,
            controls: 0,
            keep_alive: false,
            registered: (0, 0),
            unsignaled: Unsignaled::default(),
            most_unsignaled: Unsignaled { entries: data_entries / 4, bytes: send_bytes / 4, controls: CONTROL_MESSAGES / 2 },
            signal_all: false,
        }
    }

    /// Numbers a work request. `operation` and `payload` must be posted next.
    #[inline(always)]
    pub(super) fn post(&mut self, operation: Operation, payload: Payload, class: Class, signal: Signal) -> WorkRequest {
        let bytes = if let Payload::SendArea { len, .. } = payload { len } else { 0 };
        let control = matches!(class, Class::Control | Class::KeepAlive);
        self.unsignaled.entries += 1;
        self.unsignaled.bytes = self.unsignaled.bytes.saturating_add(bytes);
        self.unsignaled.controls += u32::from(control);
        let signaled = match signal {
            Signal::No => false,
            Signal::WhenDue => self.signal_all || self.is_due(),
            Signal::Yes => true,
        };
        if signaled {
            self.unsignaled = Unsignaled::default();
            self.signaled += 1;
        }
        self.data_entries += u32::from(matches!(class, Class::Data | Class::Registered));
        self.registered.1 += u64::from(class == Class::Registered);
        self.controls += u32::from(control);
        self.keep_alive |= class == Class::KeepAlive;
        self.posted.push_back(Posted { bytes, class, signaled });
        let id = self.next_id;
        self.next_id += 1;
        WorkRequest { id, operation, payload, signaled }
    }

    fn is_due(&self) -> bool {
        let (now, most) = (&self.unsignaled, &self.most_unsignaled);
        now.entries >= most.entries || now.bytes >= most.bytes || now.controls >= most.controls
    }

    /// The request `id` and all before it are done. Returns the bytes of the send area that are free now.
    pub(super) fn done(&mut self, id: u64) -> u32 {
        let first = self.next_id - self.posted.len() as u64;
        let mut bytes = 0;
        // An id that was never given out would be an error of the fabric: it frees no more than there is.
        for _ in first..id.saturating_add(1).min(self.next_id) {
            let Some(done) = self.posted.pop_front() else { break };
            bytes += done.bytes;
            self.signaled -= u32::from(done.signaled);
            match done.class {
                Class::Data => self.data_entries -= 1,
                Class::Registered => {
                    self.data_entries -= 1;
                    self.registered.0 += 1;
                }
                Class::ControlRecord => {}
                Class::Control => self.controls -= 1,
                Class::KeepAlive => {
                    self.controls -= 1;
                    self.keep_alive = false;
                }
            }
        }
        bytes
    }

    /// The connection is over: nothing completes any more.
    pub(super) fn clear(&mut self) {
        let _ = self.done(self.next_id);
        self.unsignaled = Unsignaled::default();
    }

    pub(super) fn outstanding(&self) -> u32 {
        self.posted.len() as u32
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
        self.signaled > 0
    }

    /// Whether the latest request will complete only together with a later one.
    pub(super) fn ends_unsignaled(&self) -> bool {
        self.posted.back().is_some_and(|last| !last.signaled)
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
