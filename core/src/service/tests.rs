use core::{sync::atomic::AtomicUsize, time::Duration};

use super::*;
use crate::fabric::sim::{Random, Settings, Sim};

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

    fn end(&self, _: Nanos) -> Ending {
        Ending::Over
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
    assert!(service.care.lock().is_empty());
}

#[test]
fn a_late_signal_wakes_once() {
    let service = service();
    // A nudge whose flag was seen before its signal came.
    descriptor::signal(&service.wake);
    assert!(service.wait(Some(Duration::ZERO)));
    assert!(!service.wait(Some(Duration::ZERO)));
}

/// Counts its turns.
struct Counts(AtomicUsize);

impl Handler for Counts {
    fn event(self: Arc<Self>, _: Event, _: Nanos) {}

    fn care(self: Arc<Self>, _: Nanos) -> Care {
        self.0.fetch_add(1, Ordering::Release);
        Care::Release
    }

    fn event_fd(&self) -> Option<RawFd> {
        None
    }

    fn end(&self, _: Nanos) -> Ending {
        Ending::Over
    }
}

/// Two that ask for care shortly after one another: the second may come at any moment of the service's waking up.
#[test]
fn no_nudge_is_lost() {
    const ROUNDS: usize = 4000;
    let service = service();
    let counts = [(); 2].map(|()| {
        let counts = Arc::new(Counts(AtomicUsize::new(0)));
        let token = service.token();
        service.register(token, Arc::clone(&counts) as Arc<dyn Handler>);
        (token, counts)
    });
    let lost = std::thread::scope(|scope| {
        let runner = scope.spawn(|| {
            let done = || counts.iter().all(|(_, counts)| counts.0.load(Ordering::Acquire) >= ROUNDS);
            while !done() {
                service.turn(0);
                if !done() && !service.wait(Some(Duration::from_secs(5))) {
                    // Ends the other thread.
                    counts.iter().for_each(|(_, counts)| counts.0.store(usize::MAX / 2, Ordering::Release));
                    return true;
                }
            }
            false
        });
        let mut random = Random::new(1);
        for round in 0..ROUNDS {
            for (token, _) in &counts {
                service.take_care(*token);
                let until = clock::now() + random.within(&(0..=30_000));
                while clock::now() < until {}
            }
            while counts.iter().any(|(_, counts)| counts.0.load(Ordering::Acquire) <= round) {
                std::thread::yield_now();
            }
        }
        runner.join().unwrap()
    });
    assert!(!lost);
}
