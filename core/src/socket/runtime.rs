//! The process's one service over RDMA verbs, made by the first socket that listens or connects.

use std::sync::{Arc, Mutex, PoisonError};

use crate::{
    config,
    fabric::verbs::Verbs,
    log_info,
    service::Service,
    stats::{self, Counter},
    sys::{
        clock::{self, Nanos},
        inside,
    },
};

/// How long the absence of a device is believed, in nanoseconds.
const ABSENT_TIME: Nanos = 5_000_000_000;

enum Runtime {
    Unknown,
    Absent(Nanos),
    Up(Arc<Service>),
}

static RUNTIME: Mutex<Runtime> = Mutex::new(Runtime::Unknown);

/// The service; `None` where no fabric can be used (counted by reason).
pub fn service() -> Option<Arc<Service>> {
    if !config::get().fabrics.any() {
        stats::add(Counter::FallbackPolicy, 1);
        return None;
    }
    let mut runtime = RUNTIME.lock().unwrap_or_else(PoisonError::into_inner);
    if let Runtime::Up(service) = &*runtime {
        return Some(Arc::clone(service));
    }
    let now = clock::now();
    let believed = matches!(&*runtime, Runtime::Absent(until) if *until > now);
    let service = if believed { None } else { open() };
    match &service {
        Some(service) => *runtime = Runtime::Up(Arc::clone(service)),
        None => {
            stats::add(Counter::FallbackNoDevice, 1);
            if !believed {
                *runtime = Runtime::Absent(now.saturating_add(ABSENT_TIME));
            }
        }
    }
    service
}

/// The service, if it runs already.
pub fn running() -> Option<Arc<Service>> {
    match &*RUNTIME.lock().unwrap_or_else(PoisonError::into_inner) {
        Runtime::Up(service) => Some(Arc::clone(service)),
        Runtime::Unknown | Runtime::Absent(_) => None,
    }
}

fn open() -> Option<Arc<Service>> {
    let _inside = inside::enter_uncancelled();
    let verbs = match Verbs::open() {
        Ok(verbs) => verbs,
        Err(error) => {
            log_info!("no RDMA: {error}");
            return None;
        }
    };
    let service = Service::new(verbs).ok()?;
    match service.start() {
        Ok(()) => Some(service),
        Err(errno) => {
            log_info!("the service thread did not start: {errno}");
            None
        }
    }
}

/// In a forked child: the parent's service is forgotten as it is, neither its locks nor its device are touched.
pub fn forget_in_child() {
    if let Ok(mut runtime) = RUNTIME.try_lock() {
        core::mem::forget(core::mem::replace(&mut *runtime, Runtime::Unknown));
    }
}
