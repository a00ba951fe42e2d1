//! Which counters a stream adds to.

use crate::{
    fabric::{ConnectFailure, FabricKind, warn_of_limit},
    stats::{self, Counter},
};

fn add(counter: Counter, bytes: usize) {
    stats::add(counter, u64::try_from(bytes).unwrap_or(0));
}

/// Bytes that the program has handed over.
pub fn sent(kind: FabricKind, bytes: usize) {
    match kind {
        FabricKind::Verbs => add(Counter::BytesSentVerbs, bytes),
        FabricKind::Shm => add(Counter::BytesSentShm, bytes),
        FabricKind::Sim => add(Counter::BytesSentSim, bytes),
    }
}

/// Bytes that the program has taken.
pub fn received(kind: FabricKind, bytes: usize) {
    match kind {
        FabricKind::Verbs => add(Counter::BytesReceivedVerbs, bytes),
        FabricKind::Shm => add(Counter::BytesReceivedShm, bytes),
        FabricKind::Sim => add(Counter::BytesReceivedSim, bytes),
    }
}

/// A connection is established.
pub fn connected(kind: FabricKind, accepted: bool) {
    let counter = match (kind, accepted) {
        (FabricKind::Verbs, false) => Counter::ConnectedVerbs,
        (FabricKind::Verbs, true) => Counter::AcceptedVerbs,
        (FabricKind::Shm, false) => Counter::ConnectedShm,
        (FabricKind::Shm, true) => Counter::AcceptedShm,
        (FabricKind::Sim, false) => Counter::ConnectedSim,
        (FabricKind::Sim, true) => Counter::AcceptedSim,
    };
    stats::add(counter, 1);
}

/// A connection is left to the kernel.
pub fn fallback(failure: ConnectFailure) {
    let counter = match failure {
        ConnectFailure::NoDevice => Counter::FallbackNoDevice,
        ConnectFailure::Silent => Counter::FallbackUnreachable,
        ConnectFailure::NoRoute => Counter::FallbackNoRoute,
        ConnectFailure::Refused | ConnectFailure::Deferred | ConnectFailure::Plain => Counter::FallbackRefused,
        ConnectFailure::TimedOut => Counter::FallbackTimedOut,
        ConnectFailure::Limit(errno) => {
            warn_of_limit(errno);
            Counter::FallbackLimit
        }
        ConnectFailure::Other(crate::error::Errno::PROTO) => Counter::FallbackVersion,
        ConnectFailure::Other(_) => Counter::FallbackOther,
    };
    stats::add(counter, 1);
}

/// A connection that TCP has made stays there.
pub fn stayed(client: bool) {
    stats::add(if client { Counter::ConnectedKernel } else { Counter::AcceptedKernel }, 1);
}

/// A listener is left to the kernel.
pub fn no_listener(errno: crate::error::Errno) {
    match errno {
        crate::error::Errno::NODEV | crate::error::Errno::ADDRNOTAVAIL => stats::add(Counter::FallbackNoRoute, 1),
        // No limit: another socket that shares the port (SO_REUSEPORT) has the fabric's clients.
        crate::error::Errno::ADDRINUSE => stats::add(Counter::FallbackOther, 1),
        errno => fallback(ConnectFailure::Limit(errno)),
    }
}
