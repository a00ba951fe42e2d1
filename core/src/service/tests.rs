use core::sync::atomic::AtomicUsize;

use super::*;
use crate::fabric::sim::{Settings, Sim};

fn service() -> Arc<Service> {
    let sim = Sim::new(Settings::new(1));
    let host = sim.host(&[]);
    Service::new(Arc::new(sim.fabric(host))).unwrap()
}

/// Asks for care while it is in care, as a program's thread may that closes the socket at that moment.
struct Asks {
    token: Token,
    service: Arc<Service>,
    turns: AtomicUsize,
}

impl Handler for Asks {
    fn event(self: Arc<Self>, _: Event, _: Nanos) {}

    fn care(self: Arc<Self>, _: Nanos) -> Care {
        if self.turns.fetch_add(1, Ordering::Relaxed) == 0 {
            self.service.take_care(self.token);
        }
        Care::Release
    }

    fn event_fd(&self) -> Option<RawFd> {
        None
    }

    fn finish(self: Arc<Self>) {}

    fn is_finishing(&self) -> bool {
        false
    }
}

#[test]
fn care_that_is_asked_for_during_care_comes() {
    let service = service();
    let asks = Arc::new(Asks { token: service.token(), service: Arc::clone(&service), turns: AtomicUsize::new(0) });
    service.register(asks.token, Arc::clone(&asks) as Arc<dyn Handler>);
    service.take_care(asks.token);
    for _ in 0..3 {
        assert_eq!(service.turn(0), None);
    }
    assert_eq!(asks.turns.load(Ordering::Relaxed), 2);
    drop(service.forget(asks.token));
    service.take_care(asks.token);
    service.turn(0);
    assert!(lock(&service.care).is_empty());
}
