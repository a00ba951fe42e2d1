//! How many processors this process may use.

use core::sync::atomic::{AtomicU8, Ordering};

static MAY_SPIN: AtomicU8 = AtomicU8::new(0);

/// Whether spinning can help: the one that is waited for needs a processor of its own. Looked up once.
pub fn may_spin() -> bool {
    match MAY_SPIN.load(Ordering::Relaxed) {
        0 => {
            let spin = rustix::thread::sched_getaffinity(None).map_or(1, |set| set.count()) > 1;
            MAY_SPIN.store(if spin { 2 } else { 1 }, Ordering::Relaxed);
            spin
        }
        known => known == 2,
    }
}
