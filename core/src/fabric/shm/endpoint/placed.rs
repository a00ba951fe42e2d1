//! Bytes for memory of the programs' (`placing`), and the bell that tells of them.
#![forbid(unsafe_code)]

use std::sync::Arc;

use super::{super::placing::Look, ShmEndpoint};
use crate::{
    error::Errno,
    fabric::Region,
    log_debug,
    work::{Payload, RemoteAddress, TransportError, WorkRequest},
};

/// Rings that a peer may send besides those that were asked for: some cross with what they answer.
const NEEDLESS_RINGS: u32 = 64;

/// Looks at what the peer has sent for the program's memory, in one poll; more has to wait for the next.
const TURNS: u32 = 64;

impl ShmEndpoint {
    /// Sends bytes for memory of the peer's program. False: they have to wait until the peer has taken others.
    pub(super) fn place(&mut self, request: &WorkRequest, to: RemoteAddress, bytes: Option<&[u8]>) -> bool {
        let len = request.payload.len();
        let memory = Arc::clone(self.own.memory());
        let put = match (memory.placing(), bytes, &request.payload) {
            (Some(area), Some(bytes), _) => self.writer.put(area, to, len, |region, at| region.write(at, bytes)),
            (Some(area), None, Payload::SendArea { offset, .. }) => {
                let send = self.kept.send.get();
                let copy = |region: &Region, at| send.ok_or(Errno::NOMEM)?.copy_to(*offset as usize, len as usize, region, at);
                self.writer.put(area, to, len, copy)
            }
            _ => None,
        };
        match put {
            Some(true) => self.placed = true,
            Some(false) => return false,
            None => {
                self.fail(TransportError::RemoteAccess);
                return true;
            }
        }
        if request.signaled {
            self.done = Some(request.id);
        }
        true
    }

    /// Takes bytes for memory of the program's, after a look for messages: what was sent before them has come.
    pub(super) fn take_placed(&mut self) {
        self.lags = false;
        for _ in 0..TURNS {
            let Some(peer) = &self.peer else { return };
            match self.owner.take(peer, self.own.memory().key(), &mut self.rings_due) {
                Look::Nothing => return,
                Look::Placed { starved, more } => {
                    if starved {
                        self.ring();
                    }
                    if !more {
                        return;
                    }
                }
                Look::Breach => {
                    log_debug!("{:?}: bytes for memory that is not registered", self.token);
                    return self.fail(TransportError::RemoteAccess);
                }
            }
        }
        self.lags = true;
    }

    pub(super) fn count_ring(&mut self) {
        match self.rings_due.checked_sub(1) {
            Some(due) => self.rings_due = due,
            None => {
                self.needless_rings += 1;
                if self.needless_rings > NEEDLESS_RINGS {
                    log_debug!("{:?}: the peer rings without end", self.token);
                    self.fail(TransportError::Other(0));
                }
            }
        }
    }
}
