//! A wrapper round any endpoint that logs what passes (`RSOCKET_LOG=trace`).
#![forbid(unsafe_code)]

use core::net::SocketAddr;
use std::os::fd::RawFd;

use super::{Endpoint, EndpointLimits, FabricKind, Outcome, Region, Token, forward};
use crate::{
    error::Result,
    log_debug, log_trace,
    work::{Completion, ExposedMemory, WorkRequest},
};

/// An endpoint whose calls are logged.
pub struct Traced {
    inner: Box<dyn Endpoint>,
    token: Token,
}

impl Traced {
    /// Wraps `inner`; lines carry `token` until another one is set.
    pub fn new(inner: Box<dyn Endpoint>, token: Token) -> Self {
        Traced { inner, token }
    }
}

impl Endpoint for Traced {
    forward!(kind, limits, areas, events);

    fn set_token(&mut self, token: Token) {
        log_debug!("{:?} is now {token:?}", self.token);
        self.token = token;
        self.inner.set_token(token);
    }

    fn connect(&mut self, private_data: &[u8]) -> Result<()> {
        let result = self.inner.connect(private_data);
        log_debug!("{:?} connect {:?}: {result:?}", self.token, self.inner.peer_addr());
        result
    }

    fn accept(&mut self, private_data: &[u8]) -> Result<()> {
        let result = self.inner.accept(private_data);
        log_debug!("{:?} accept {:?}: {result:?}", self.token, self.inner.peer_addr());
        result
    }

    fn reject(&mut self) {
        log_debug!("{:?} reject", self.token);
        self.inner.reject();
    }

    fn outcome(&mut self) -> Option<Outcome> {
        let outcome = self.inner.outcome();
        if let Some(outcome) = &outcome {
            log_debug!("{:?} outcome: {outcome:?}", self.token);
        }
        outcome
    }

    fn disconnect(&mut self) {
        log_debug!("{:?} disconnect", self.token);
        self.inner.disconnect();
    }

    fn reset(&mut self) {
        log_debug!("{:?} reset", self.token);
        self.inner.reset();
    }

    fn post_sends(&mut self, work: &[WorkRequest]) -> Result<()> {
        let result = self.inner.post_sends(work);
        for request in work {
            log_trace!("{:?} post {request:?}: {result:?}", self.token);
        }
        result
    }

    fn post_receives(&mut self, count: u32) -> Result<()> {
        let result = self.inner.post_receives(count);
        log_trace!("{:?} post {count} receives: {result:?}", self.token);
        result
    }

    fn poll(&mut self, out: &mut [Completion]) -> usize {
        let count = self.inner.poll(out);
        for completion in out.iter().take(count) {
            log_trace!("{:?} {completion:?}", self.token);
        }
        count
    }

    fn arm(&mut self) -> Result<()> {
        let result = self.inner.arm();
        log_trace!("{:?} arm: {result:?}", self.token);
        result
    }
}
