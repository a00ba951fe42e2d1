//! The handles that a stack holds: they own no state but their memory, and pass everything to the world.

use core::net::SocketAddr;
use std::{
    os::fd::RawFd,
    sync::{Arc, Mutex},
};

use rustix::fd::{AsRawFd, OwnedFd};

use super::{
    lent::SimRegistrar,
    lock,
    world::{End, Memory, Side, World},
};
use crate::{
    error::Result,
    fabric::{Endpoint, EndpointLimits, FabricKind, Listening, Region, Registrar, Token},
    sys::descriptor,
    work::{Completion, ExposedMemory, WorkRequest},
};

/// One end of a simulated connection.
pub(super) struct SimEndpoint {
    world: Arc<Mutex<World>>,
    end: End,
    memory: Arc<Memory>,
    limits: EndpointLimits,
    exposed: ExposedMemory,
    local: SocketAddr,
    peer: SocketAddr,
    event: Option<Arc<OwnedFd>>,
}

impl SimEndpoint {
    pub(super) fn new(world: &Arc<Mutex<World>>, end: End, side: &Side) -> Self {
        SimEndpoint {
            world: Arc::clone(world),
            end,
            memory: Arc::clone(&side.memory),
            limits: side.limits,
            exposed: side.exposed,
            local: side.local,
            peer: side.peer,
            event: side.event.clone(),
        }
    }
}

impl Endpoint for SimEndpoint {
    fn kind(&self) -> FabricKind {
        FabricKind::Sim
    }

    fn limits(&self) -> EndpointLimits {
        self.limits
    }

    fn set_token(&mut self, token: Token) {
        lock(&self.world).set_token(self.end, token);
    }

    fn connect(&mut self, private_data: &[u8]) -> Result<()> {
        lock(&self.world).request(self.end, private_data)
    }

    fn accept(&mut self, private_data: &[u8]) -> Result<()> {
        lock(&self.world).accept(self.end, private_data)
    }

    fn reject(&mut self) {
        lock(&self.world).reject(self.end);
    }

    fn disconnect(&mut self) {
        lock(&self.world).disconnect(self.end);
    }

    fn post_sends(&mut self, work: &[WorkRequest]) -> Result<()> {
        lock(&self.world).post_sends(self.end, work)
    }

    fn registrar(&self) -> Option<Arc<dyn Registrar>> {
        Some(Arc::new(SimRegistrar { world: Arc::clone(&self.world), end: self.end }))
    }

    fn post_receives(&mut self, count: u32) -> Result<()> {
        lock(&self.world).post_receives(self.end, count)
    }

    fn poll(&mut self, out: &mut [Completion]) -> usize {
        lock(&self.world).poll(self.end, out)
    }

    fn arm(&mut self) -> Result<()> {
        lock(&self.world).arm(self.end, true);
        Ok(())
    }

    fn event_fd(&self) -> Option<RawFd> {
        self.event.as_ref().map(|event| event.as_raw_fd())
    }

    fn clear_events(&mut self) {
        if let Some(event) = &self.event {
            lock(&self.world).arm(self.end, false);
            descriptor::drain(&**event);
        }
    }

    fn exposed(&self) -> ExposedMemory {
        self.exposed
    }

    fn receive_area(&self) -> &Region {
        &self.memory.receive
    }

    fn send_area(&self) -> &Region {
        &self.memory.send
    }

    fn target_area(&self) -> &Region {
        &self.memory.targets
    }

    fn local_addr(&self) -> SocketAddr {
        self.local
    }

    fn peer_addr(&self) -> SocketAddr {
        self.peer
    }
}

impl Drop for SimEndpoint {
    fn drop(&mut self) {
        let mut world = lock(&self.world);
        world.held = world.held.saturating_sub(1);
        world.leave(self.end);
    }
}

/// A simulated listener.
pub(super) struct SimListening {
    pub(super) world: Arc<Mutex<World>>,
    pub(super) id: u64,
    pub(super) local: SocketAddr,
}

impl Listening for SimListening {
    fn local_addr(&self) -> SocketAddr {
        self.local
    }
}

impl Drop for SimListening {
    fn drop(&mut self) {
        lock(&self.world).stop_listening(self.id);
    }
}
