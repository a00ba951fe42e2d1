//! The contract over shared memory, and what is special about it.

use core::net::SocketAddr;
use std::{
    os::fd::RawFd,
    sync::Arc,
    time::{Duration, Instant},
};

use super::*;
use crate::{
    fabric::contract::{self, Harness},
    sys::ppoll::{PollFd, ppoll},
};

/// Two fabrics of this host; time passes by itself.
struct Two {
    client: Arc<Shm>,
    server: Arc<Shm>,
    started: Instant,
}

impl Two {
    fn new() -> Self {
        Two { client: Shm::open().unwrap(), server: Shm::open().unwrap(), started: Instant::now() }
    }
}

impl Harness for Two {
    fn client(&self) -> &dyn Fabric {
        &*self.client
    }

    fn server(&self) -> &dyn Fabric {
        &*self.server
    }

    fn server_addr(&self) -> SocketAddr {
        SocketAddr::from(([127, 0, 0, 1], 0))
    }

    fn unrouted_addr(&self) -> Option<SocketAddr> {
        Some(SocketAddr::from(([192, 0, 2, 1], 9)))
    }

    fn turn(&mut self) -> bool {
        std::thread::sleep(Duration::from_micros(200));
        self.started.elapsed() < Duration::from_secs(10)
    }

    fn is_readable(&self, fd: RawFd) -> bool {
        let mut set = [PollFd { fd, events: libc::POLLIN, revents: 0 }];
        ppoll(&mut set, Some(Duration::ZERO), None) == Ok(1)
    }
}

#[test]
fn keeps_the_contract() {
    for (name, test) in contract::ALL {
        println!("{name}");
        test(&mut Two::new());
    }
}
