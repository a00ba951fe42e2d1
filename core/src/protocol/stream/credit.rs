//! The message limits of both directions: 16-bit counters that wrap (PROTOCOL.md 1.5).

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
}

impl SendCredit {
    pub(super) fn new(most: u16) -> Self {
        SendCredit { sent: 0, limit: most, most }
    }

    pub(super) fn available(&self) -> u16 {
        self.limit.wrapping_sub(self.sent)
    }

    pub(super) fn use_one(&mut self) {
        self.sent = self.sent.wrapping_add(1);
    }

    /// Takes the limit of an SGL message. It may only grow, and the peer has no more than `most` receives.
    pub(super) fn set_limit(&mut self, limit: u16) -> Result<(), PeerFault> {
        let available = limit.wrapping_sub(self.sent);
        if available < self.available() || available > self.most {
            return Err(PeerFault::BadLimit { limit, sent: self.sent });
        }
        self.limit = limit;
        Ok(())
    }
}

/// What the peer may send.
#[derive(Debug)]
pub(super) struct ReceiveCredit {
    /// The size of our receive queue.
    size: u16,
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
        ReceiveCredit { size, consumed: 0, granted_at: 0, left: size }
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

    fn since_grant(&self) -> u16 {
        self.consumed.wrapping_sub(self.granted_at)
    }

    /// Whether half of the queue was consumed since the last grant.
    pub(super) fn due(&self) -> bool {
        self.since_grant() >= (self.size / 2).max(1)
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
        let mut credit = SendCredit::new(384);
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
        let mut credit = SendCredit::new(10);
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
        let mut credit = SendCredit::new(65535);
        credit.use_one();
        assert_eq!(credit.available(), 65534);
        assert_eq!(credit.set_limit(0), Ok(()), "one consumed: 1 + 65535 wraps to 0");
        assert_eq!(credit.available(), 65535);
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
