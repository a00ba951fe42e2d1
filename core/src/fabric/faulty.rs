//! A wrapper round any endpoint that injects seeded faults.
#![forbid(unsafe_code)]

use core::net::SocketAddr;
use std::os::fd::RawFd;

use super::{Endpoint, EndpointLimits, FabricKind, Region, Token, forward, sim::Random};
use crate::{
    error::{Errno, Result},
    work::{Completion, ExposedMemory, TransportError, WorkRequest},
};

/// How often something goes wrong, in times per thousand calls.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Faults {
    /// Posting sends fails with ENOMEM, and nothing is posted.
    pub post: u32,
    /// Polling yields [`Completion::Failed`], and flushed ones ever after: the queue pair is in its error state.
    pub transport: u32,
    /// Polling finds nothing, though there may be something. Never twice running, and never in the look after an arm, which
    /// would be a lost wake-up.
    pub late: u32,
}

/// An endpoint with faults.
pub struct Faulty {
    inner: Box<dyn Endpoint>,
    faults: Faults,
    random: Random,
    must_look: bool,
    broken: bool,
}

impl Faulty {
    /// Wraps `inner`; the faults follow from `seed` and the calls.
    pub fn new(inner: Box<dyn Endpoint>, faults: Faults, seed: u64) -> Self {
        Faulty { inner, faults, random: Random::new(seed), must_look: false, broken: false }
    }

    fn transport_error(&mut self) -> TransportError {
        if core::mem::replace(&mut self.broken, true) {
            return TransportError::Flushed;
        }
        match self.random.within(&(0..=2)) {
            0 => TransportError::RetryExceeded,
            1 => TransportError::RemoteAccess,
            _ => TransportError::Other(0),
        }
    }
}

impl Endpoint for Faulty {
    forward!(kind, limits, areas, events, setup);

    fn post_sends(&mut self, work: &[WorkRequest]) -> Result<()> {
        if self.random.chance(self.faults.post) { Err(Errno::NOMEM) } else { self.inner.post_sends(work) }
    }

    fn post_receives(&mut self, count: u32) -> Result<()> {
        self.inner.post_receives(count)
    }

    fn poll(&mut self, out: &mut [Completion]) -> usize {
        if self.random.chance(self.faults.late) && !self.must_look {
            self.must_look = true;
            return 0;
        }
        self.must_look = false;
        let count = self.inner.poll(out);
        // A real queue announces its failure like any completion: instead of one that is there.
        let fails = count > 0 && (self.broken || self.random.chance(self.faults.transport));
        if fails {
            let error = self.transport_error();
            for (index, slot) in out.iter_mut().take(count).enumerate() {
                *slot = Completion::Failed(if index == 0 { error } else { TransportError::Flushed });
            }
        }
        count
    }

    fn arm(&mut self) -> Result<()> {
        self.must_look = true;
        self.inner.arm()
    }
}
