//! The process's one service over its fabrics, made by the first socket that listens or connects.

use std::sync::Arc;

use super::account;
use crate::{
    config,
    error::Errno,
    fabric::{ConnectFailure, choice::Fabrics},
    service::{self, Service},
    stats::{self, Counter},
    sys::{
        clock::{self, Nanos},
        descriptor, inside,
        lock::Leaf,
        owner::Forked,
    },
};

/// How long it is believed that there is no fabric, in nanoseconds.
const ABSENT_TIME: Nanos = 5_000_000_000;

/// Descriptors that a service needs, whatever it does.
const OWN: usize = 6;

enum Runtime {
    Unknown,
    /// Until when that is believed, and why it is so.
    Absent(Nanos, ConnectFailure),
    Up(Arc<Service>),
}

static RUNTIME: Leaf<Runtime> = Leaf::new(Runtime::Unknown);

/// The service; `None` where no fabric can be used (counted by reason). Its thread does not run before a connection or a listener
/// needs it.
pub fn service() -> Option<Arc<Service>> {
    if !config::get().fabrics.any() {
        stats::add(Counter::FallbackPolicy, 1);
        return None;
    }
    let mut runtime = RUNTIME.lock();
    if let Runtime::Up(service) = &*runtime {
        return Some(Arc::clone(service));
    }
    let now = clock::now();
    if let Runtime::Absent(until, failure) = &*runtime
        && *until > now
    {
        account::fallback(*failure);
        return None;
    }
    if !descriptor::may_take_more(OWN) {
        account::fallback(ConnectFailure::Limit(Errno::MFILE));
        return None;
    }
    match open() {
        Ok(service) => {
            service.announce();
            *runtime = Runtime::Up(Arc::clone(&service));
            Some(service)
        }
        Err(failure) => {
            account::fallback(failure);
            *runtime = Runtime::Absent(now.saturating_add(ABSENT_TIME), failure);
            None
        }
    }
}

/// The service, if it is in use.
pub fn running() -> Option<Arc<Service>> {
    match &*RUNTIME.lock() {
        Runtime::Up(service) => Some(Arc::clone(service)),
        Runtime::Unknown | Runtime::Absent(..) => None,
    }
}

/// What [`look`] has found.
pub enum Found {
    /// The service.
    Service(Arc<Service>),
    /// There is none.
    Nothing,
    /// That cannot be said now.
    Locked,
}

/// As [`running`], without waiting.
pub fn look() -> Found {
    match RUNTIME.try_lock().as_deref() {
        Some(Runtime::Up(service)) => Found::Service(Arc::clone(service)),
        Some(Runtime::Unknown | Runtime::Absent(..)) => Found::Nothing,
        None => Found::Locked,
    }
}

fn open() -> core::result::Result<Arc<Service>, ConnectFailure> {
    let _inside = inside::enter_uncancelled();
    Service::new(Fabrics::open(config::get().fabrics)?).map_err(ConnectFailure::Limit)
}

/// After fork in the parent, for its listeners: see `service::forks`. Neither waits nor allocates.
pub fn forked() {
    if let Some(runtime) = RUNTIME.try_lock()
        && let Runtime::Up(service) = &*runtime
    {
        service.pause();
    }
    service::note_fork();
}

/// In a forked child: the parent's service is forgotten as it is, neither its locks nor its device are touched.
pub fn renew(forked: &Forked) {
    RUNTIME.renew(forked, Runtime::Unknown);
}
