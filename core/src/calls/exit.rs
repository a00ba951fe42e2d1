//! The end of the process: what was handed to send reaches the peers first, within a bounded time.
//!
//! The thread that ends the process does all of it, and waits for no lock: it may be a signal handler that has interrupted a holder, and
//! other threads go on meanwhile. (They have not closed anything: what they call waits for the end, as on the kernel's sockets they would
//! not live to see an error.)

use core::{
    sync::atomic::{AtomicU64, AtomicUsize, Ordering},
    time::Duration,
};
use std::sync::Arc;

use crate::{
    fd,
    service::{Ending, Service},
    socket::runtime::{self, Found},
    stats,
    sys::{
        clock::{self, Nanos},
        inside, owner, threads,
    },
};

/// Longest time that the end waits for data to leave, in nanoseconds.
const EXIT_TIME: Nanos = 3_000_000_000;
/// So many looks, one after the other, at what is in use by others: by then it is not used, but held by what a signal handler has
/// interrupted.
const HELD_LOOKS: u32 = 100;
/// How much longer others wait for the end.
const GRACE: Nanos = 1_000_000_000;
/// Looks before the thread sleeps in between, and how long.
const LOOKS: u32 = 50;
const PAUSE: Duration = Duration::from_micros(500);

/// The thread that ends the process, 0: none does.
static ENDER: AtomicUsize = AtomicUsize::new(0);
/// Until when it has time.
static UNTIL: AtomicU64 = AtomicU64::new(0);

/// Before the process ends: waits, a bounded time, until what was handed to send has reached the peers. Anywhere, also in signal handlers.
/// A child that shares memory with the sockets' owner leaves them alone, and so does one that has them by a fork unseen.
pub fn end() {
    // The library's own threads, and what it calls.
    if inside::is_set() || !owner::is_current() {
        return;
    }
    let now = clock::now();
    // A signal handler has interrupted the library in the middle of something: what is to be done, the service does.
    let busy = inside::is_busy();
    let most = now.saturating_add(EXIT_TIME);
    if let Some(service) = service(most) {
        let until = UNTIL.compare_exchange(0, most, Ordering::AcqRel, Ordering::Acquire).map_or_else(|until| until, |_| most);
        if let Err(ender) = ENDER.compare_exchange(0, inside::thread(), Ordering::AcqRel, Ordering::Acquire)
            && ender != inside::thread()
        {
            // The first one's status is the process's.
            wait_for_end();
            return;
        }
        fd::look_at_end(true);
        finish(&service, until, busy);
    }
    if !busy {
        stats::dump_if_asked();
    }
}

/// The service, if there is one.
fn service(until: Nanos) -> Option<Arc<Service>> {
    let mut pace = Pace::default();
    for _ in 0..HELD_LOOKS {
        match runtime::look() {
            Found::Service(service) => return Some(service),
            Found::Nothing => return None,
            // It is being made, or looked at.
            Found::Locked => {}
        }
        if !pace.goes_on(until) {
            break;
        }
    }
    None
}

/// Until all connections have been ended in good order, but for those that nobody can end. (What these have sent is with their peers over
/// shared memory, and with the device over RDMA, which has a moment for it.)
fn finish(service: &Service, until: Nanos, by_service: bool) {
    let mut pace = Pace::default();
    let mut held = 0;
    loop {
        let ending = if by_service { service.ask_to_end() } else { service.end_all(service.now()) };
        held = if ending == Ending::Held { held + 1 } else { 0 };
        if ending == Ending::Over || held > HELD_LOOKS || !pace.goes_on(until) {
            return;
        }
    }
}

/// What passes between two looks.
#[derive(Default)]
struct Pace {
    looks: u32,
}

impl Pace {
    /// Waits for the next look. False: the time is over.
    fn goes_on(&mut self, until: Nanos) -> bool {
        self.looks = self.looks.saturating_add(1);
        if self.looks < LOOKS {
            rustix::thread::sched_yield();
        } else {
            clock::sleep(PAUSE);
        }
        clock::now() < until
    }
}

/// Whether the process ends, by another thread than this one.
pub fn is_ending() -> bool {
    let ender = ENDER.load(Ordering::Acquire);
    ender != 0 && ender != inside::thread() && !inside::is_set()
}

/// A call of another thread, at the end of the process: it does not come back, unless the end does not come.
#[cold]
pub fn wait_for_end() {
    let mut pace = Pace { looks: LOOKS };
    let until = UNTIL.load(Ordering::Acquire).saturating_add(GRACE);
    while pace.goes_on(until) {}
}

/// exit(2) of the calling thread alone: whether it is the program's last one, though the library's still runs. The process has to be ended
/// then.
pub fn is_last_thread() -> bool {
    !inside::is_set() && owner::is_current() && threads::is_alone()
}

/// In a forked child: it does not end because its parent does.
pub fn after_fork_in_child() {
    ENDER.store(0, Ordering::Relaxed);
    UNTIL.store(0, Ordering::Relaxed);
    fd::look_at_end(false);
}
