//! The message limits of both directions: 16-bit counters that wrap (PROTOCOL.md 1.5).

use std::collections::VecDeque;

use super::PeerFault;

/// What we may send.
#[derive(Debug, Default)]
pub(super) struct SendCredit {
    /// DATA and IOMAP messages sent.
    sent: u16,
    /// We may send while `sent != limit`.
    limit: u16,
    /// The size of the peer's receive queue: never more than this is granted ahead.
    most: u16,
    /// Of a peer that grants nothing for IOMAP messages: how those that take a credit are known to have been received.
    uncounted: Option<Uncounted>,
}

/// What is known of a peer that counts DATA messages alone. An IOMAP message takes a receive of its all the same, until it is
/// processed. Where a message that finds no receive is sent again, as control messages are, no more is to be done than not to count
/// it. Where it would end the connection, it keeps its credit until a DATA message that came after it has been read.
#[derive(Debug, Default)]
struct Uncounted {
    /// Nothing is sent again.
    strict: bool,
    /// DATA messages sent, and of these those that are known to have been read.
    sent: u64,
    read: u64,
    /// IOMAP messages that may not have been received yet: how many DATA messages had been sent before each.
    waiting: VecDeque<u64>,
    /// IOMAP messages that take no credit, or no longer.
    given_back: u16,
}

impl SendCredit {
    /// `counts_iomaps`: the peer grants anew what IOMAP messages have taken. `strict`: a message that finds no receive ends the connection.
    pub(super) fn new(most: u16, counts_iomaps: bool, strict: bool) -> Self {
        let uncounted = (!counts_iomaps).then(|| Uncounted { strict, ..Uncounted::default() });
        SendCredit { sent: 0, limit: most, most, uncounted }
    }

    pub(super) fn available(&self) -> u16 {
        self.limit.wrapping_sub(self.sent)
    }

    /// For a DATA message.
    pub(super) fn use_one(&mut self) {
        self.sent = self.sent.wrapping_add(1);
        if let Some(uncounted) = &mut self.uncounted {
            uncounted.sent += 1;
        }
    }

    /// For an IOMAP message.
    pub(super) fn use_one_for_iomap(&mut self) {
        match &mut self.uncounted {
            Some(uncounted) if !uncounted.strict => {
                uncounted.given_back = uncounted.given_back.wrapping_add(1);
                return;
            }
            Some(uncounted) => uncounted.waiting.push_back(uncounted.sent),
            None => {}
        }
        self.sent = self.sent.wrapping_add(1);
    }

    /// Whether `waiting` IOMAP messages and one more may be under way. Where only DATA messages that follow can bring their credit back,
    /// enough of it is left for those: a peer grants when half of its queue has been used.
    pub(super) fn has_room_for_iomap(&self, waiting: usize) -> bool {
        self.uncounted.as_ref().is_none_or(|uncounted| !uncounted.strict || uncounted.waiting.len() + waiting < usize::from(self.most / 4))
    }

    /// Takes the limit of an SGL message. It may only grow, and the peer has no more than `most` receives.
    pub(super) fn set_limit(&mut self, limit: u16) -> Result<(), PeerFault> {
        let grown = limit.wrapping_sub(self.limit);
        if grown > self.most {
            return Err(PeerFault::BadLimit { limit, sent: self.sent });
        }
        self.give_back(grown);
        let available = limit.wrapping_sub(self.sent);
        if available < self.available() || available > self.most {
            return Err(PeerFault::BadLimit { limit, sent: self.sent });
        }
        self.limit = limit;
        Ok(())
    }

    /// The peer has read so many more messages.
    fn give_back(&mut self, read: u16) {
        let Some(uncounted) = &mut self.uncounted else { return };
        uncounted.read += u64::from(read);
        if uncounted.read > uncounted.sent {
            // It counts IOMAP messages, and has not said so.
            self.sent = self.sent.wrapping_add(uncounted.given_back);
            self.uncounted = None;
            return;
        }
        while uncounted.waiting.front().is_some_and(|before| *before < uncounted.read) {
            uncounted.waiting.pop_front();
            uncounted.given_back = uncounted.given_back.wrapping_add(1);
            self.sent = self.sent.wrapping_sub(1);
        }
    }
}

/// What the peer may send.
#[derive(Debug)]
pub(super) struct ReceiveCredit {
    /// The size of our receive queue.
    size: u16,
    /// So many messages that were consumed make a grant due.
    due_at: u16,
    /// DATA messages read completely by the application, and IOMAP messages.
    consumed: u16,
    /// `consumed` at the time of the last grant.
    granted_at: u16,
    /// DATA and IOMAP messages that may still arrive under that grant.
    left: u16,
}

impl ReceiveCredit {
    pub(super) fn new(size: u16) -> Self {
        let size = size.max(1);
        ReceiveCredit { size, due_at: (size / 2).max(1), consumed: 0, granted_at: 0, left: size }
    }

    pub(super) fn size(&self) -> u16 {
        self.size
    }

    /// How many messages may still arrive.
    pub(super) fn left(&self) -> u16 {
        self.left
    }

    /// A message arrived.
    pub(super) fn arrived(&mut self) -> Result<(), PeerFault> {
        self.left = self.left.checked_sub(1).ok_or(PeerFault::NoCreditLeft)?;
        Ok(())
    }

    /// Messages need their credit no longer.
    pub(super) fn consumed(&mut self, messages: u16) {
        self.consumed = self.consumed.wrapping_add(messages);
    }

    /// The latest message is not counted.
    #[cfg(test)]
    pub(super) fn forget_one(&mut self) {
        self.left += 1;
        self.consumed = self.consumed.wrapping_sub(1);
    }

    fn since_grant(&self) -> u16 {
        self.consumed.wrapping_sub(self.granted_at)
    }

    /// Whether half of the queue was consumed since the last grant.
    #[inline(always)]
    pub(super) fn due(&self) -> bool {
        self.since_grant() >= self.due_at
    }

    /// The limit to grant now. The caller sends it.
    pub(super) fn grant(&mut self) -> u16 {
        self.left = self.left.saturating_add(self.since_grant());
        self.granted_at = self.consumed;
        self.consumed.wrapping_add(self.size)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_send_limit_wraps() {
        let mut credit = SendCredit::new(384, true, true);
        for round in 0..2_000_u32 {
            for _ in 0..credit.available() {
                credit.use_one();
            }
            assert_eq!(credit.available(), 0);
            let sent = (384 * (round + 1)) as u16;
            credit.set_limit(sent.wrapping_add(384)).unwrap();
            assert_eq!(credit.available(), 384);
        }
    }

    #[test]
    fn a_limit_that_goes_back_or_too_far_is_a_fault() {
        let mut credit = SendCredit::new(10, true, true);
        credit.use_one();
        assert_eq!(credit.set_limit(9), Err(PeerFault::BadLimit { limit: 9, sent: 1 }));
        assert_eq!(credit.set_limit(12), Err(PeerFault::BadLimit { limit: 12, sent: 1 }));
        assert_eq!(credit.set_limit(0), Err(PeerFault::BadLimit { limit: 0, sent: 1 }));
        assert_eq!(credit.set_limit(10), Ok(()));
        assert_eq!(credit.set_limit(11), Ok(()));
        assert_eq!(credit.available(), 10);
    }

    #[test]
    fn the_largest_queue_keeps_limits_apart() {
        let mut credit = SendCredit::new(65535, true, true);
        credit.use_one();
        assert_eq!(credit.available(), 65534);
        assert_eq!(credit.set_limit(0), Ok(()), "one consumed: 1 + 65535 wraps to 0");
        assert_eq!(credit.available(), 65535);
    }

    /// The shipped library: its grants tell of DATA messages alone.
    #[test]
    fn a_peer_that_does_not_count_iomap_messages_keeps_its_window() {
        let mut credit = SendCredit::new(16, false, true);
        let mut read = 0_u16;
        for round in 0..70_000_u32 {
            assert!(credit.has_room_for_iomap(0), "round {round}");
            credit.use_one_for_iomap();
            (0..8).for_each(|_| credit.use_one());
            assert_eq!(credit.available(), 7);
            read = read.wrapping_add(8);
            credit.set_limit(read.wrapping_add(16)).unwrap();
            assert_eq!(credit.available(), 16);
        }
    }

    #[test]
    fn an_iomap_message_keeps_its_credit_until_a_later_message_is_read() {
        let mut credit = SendCredit::new(16, false, true);
        credit.use_one();
        credit.use_one_for_iomap();
        credit.set_limit(17).unwrap();
        assert_eq!(credit.available(), 15, "it may not have been received");
        credit.use_one();
        credit.set_limit(18).unwrap();
        assert_eq!(credit.available(), 16);
        assert_eq!(credit.set_limit(17), Err(PeerFault::BadLimit { limit: 17, sent: 2 }));
    }

    #[test]
    fn few_iomap_messages_at_once_go_to_such_a_peer() {
        let mut credit = SendCredit::new(16, false, true);
        (0..3).for_each(|_| credit.use_one_for_iomap());
        assert!(credit.has_room_for_iomap(0) && !credit.has_room_for_iomap(1));
        credit.use_one_for_iomap();
        assert!(!credit.has_room_for_iomap(0));
        assert!(SendCredit::new(16, true, true).has_room_for_iomap(1000));
    }

    #[test]
    fn an_iomap_message_takes_no_credit_where_it_is_sent_again() {
        let mut credit = SendCredit::new(16, false, false);
        for _ in 0..70_000 {
            assert!(credit.has_room_for_iomap(1000));
            credit.use_one_for_iomap();
        }
        credit.use_one();
        assert_eq!(credit.available(), 15);
        credit.set_limit(17).unwrap();
        assert_eq!(credit.available(), 16);
    }

    #[test]
    fn a_peer_that_counts_without_saying_so_is_found_out() {
        let mut credit = SendCredit::new(16, false, true);
        credit.use_one_for_iomap();
        credit.use_one();
        credit.set_limit(17).unwrap();
        assert_eq!(credit.available(), 16, "as if the DATA message had been read");
        credit.set_limit(18).unwrap();
        assert_eq!(credit.available(), 16);
        credit.use_one_for_iomap();
        credit.set_limit(19).unwrap();
        assert_eq!(credit.available(), 16);
    }

    #[test]
    fn grants_are_due_at_half_the_queue() {
        let mut credit = ReceiveCredit::new(16);
        for _ in 0..16 {
            credit.arrived().unwrap();
        }
        assert_eq!(credit.arrived(), Err(PeerFault::NoCreditLeft));
        credit.consumed(7);
        assert!(!credit.due());
        credit.consumed(1);
        assert!(credit.due());
        assert_eq!(credit.grant(), 24);
        assert!(!credit.due());
        for _ in 0..8 {
            credit.arrived().unwrap();
        }
        assert_eq!(credit.arrived(), Err(PeerFault::NoCreditLeft));
    }
}
