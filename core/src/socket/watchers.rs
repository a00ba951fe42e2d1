//! Who watches a socket for as long as it lives. What they see of a stream or a listener they are told by its
//! [`Sleepers`](super::wait::Sleepers); here they learn what the socket becomes.
//!
//! The list is a leaf lock, and held while nobody is told.

use core::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Weak};

use super::wait::Watcher;
use crate::sys::lock::{Leaf, LeafGuard};

/// See the module.
#[derive(Default)]
pub(super) struct Watchers {
    /// There was one once: others need no lock to see that nobody is there.
    any: AtomicBool,
    list: Leaf<Vec<Weak<dyn Watcher>>>,
}

impl Watchers {
    fn list(&self) -> LeafGuard<'_, Vec<Weak<dyn Watcher>>> {
        self.list.lock()
    }

    /// One more. Those that are gone are forgotten.
    pub(super) fn add(&self, watcher: &Arc<dyn Watcher>) {
        let mut list = self.list();
        list.retain(|other| other.strong_count() > 0);
        list.push(Arc::downgrade(watcher));
        self.any.store(true, Ordering::SeqCst);
    }

    /// Tells all of them.
    pub(super) fn tell(&self, what: impl Fn(&dyn Watcher)) {
        if self.any.load(Ordering::SeqCst) {
            let all: Vec<_> = self.list().iter().filter_map(Weak::upgrade).collect();
            all.iter().for_each(|watcher| what(&**watcher));
        }
    }
}
