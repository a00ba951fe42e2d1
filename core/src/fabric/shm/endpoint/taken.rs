//! What has come: messages first, then what else there is to say.

use super::{Entry, ShmEndpoint};
use crate::{
    log_debug,
    work::{Completion, TransportError},
};

impl ShmEndpoint {
    /// As many messages as there are, and places and receives for them.
    #[inline(always)]
    pub(super) fn messages(&mut self, out: &mut [Completion]) -> usize {
        let mut count = 0;
        let ring = self.own.memory().ring();
        for slot in out {
            if self.taken == self.posted {
                break;
            }
            let next = self.taken.wrapping_add(1);
            match ring.get(next) {
                Entry::Message(message) => *slot = Completion::Received { message },
                Entry::Empty => break,
                Entry::Nonsense => {
                    log_debug!("{:?}: nonsense in the ring", self.token);
                    self.fail(TransportError::Other(0));
                    break;
                }
            }
            self.taken = next;
            count += 1;
        }
        count
    }

    /// Whether the peer may send bytes for memory of the program's.
    #[inline(always)]
    pub(super) fn peer_places(&self) -> bool {
        self.peer.as_ref().is_some_and(|peer| peer.layout().places())
    }

    /// What there is besides messages, of which there are so many.
    #[inline(never)]
    pub(super) fn poll_rest(&mut self, out: &mut [Completion], mut count: usize) -> usize {
        if count < out.len() && !self.hung_up && self.own.memory().has_ended() {
            self.hung_up = true;
            // What it had put there before may have come since.
            count += self.messages(out.get_mut(count..).unwrap_or_default());
        }
        if self.peer_places() && self.broken.is_none() {
            self.take_placed();
        }
        if self.hung_up && count < out.len() {
            self.fail(TransportError::Flushed);
        }
        for slot in out.iter_mut().skip(count) {
            let Some(next) = self.other_completion() else { break };
            *slot = next;
            count += 1;
        }
        count
    }

    /// The next completion that is not a message.
    fn other_completion(&mut self) -> Option<Completion> {
        if let Some(id) = self.done.take() {
            return Some(Completion::Sent { id });
        }
        match &mut self.broken {
            Some(broken) if !broken.reported => {
                broken.reported = true;
                Some(Completion::Failed(broken.error))
            }
            _ => None,
        }
    }
}
