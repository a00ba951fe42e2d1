//! Which way a connection goes (DESIGN: D8): the fabrics first, then the kernel.

use core::net::{IpAddr, SocketAddr};

use super::stream::{Fallback, Phase};
use crate::{
    error::Errno,
    stats::{self, Counter},
    sys::{
        clock::{self, Nanos},
        lock::Leaf,
        owner::Forked,
    },
};

/// How long a host that did not answer is not asked again, in nanoseconds.
const SILENT_TIME: Nanos = 60_000_000_000;
/// Silent hosts that are remembered at once.
const SILENT_MOST: usize = 64;

/// Peers that are remembered for a while, the latest of them.
struct Remembered<T>(Leaf<Vec<(T, Nanos)>>);

impl<T: Copy + PartialEq> Remembered<T> {
    const fn new() -> Self {
        Remembered(Leaf::new(Vec::new()))
    }

    fn add(&self, who: T) {
        let now = clock::now();
        let mut all = self.0.lock();
        all.retain(|(other, until)| *other != who && *until > now);
        if all.len() >= SILENT_MOST {
            all.remove(0);
        }
        all.push((who, now.saturating_add(SILENT_TIME)));
    }

    fn remove(&self, who: T) {
        self.0.lock().retain(|(other, _)| *other != who);
    }

    fn has(&self, who: T) -> bool {
        let now = clock::now();
        self.0.lock().iter().any(|(other, until)| *other == who && *until > now)
    }
}

static SILENT: Remembered<IpAddr> = Remembered::new();
static PLAIN: Remembered<SocketAddr> = Remembered::new();
static ASKED: Remembered<SocketAddr> = Remembered::new();

/// The host has not answered over a fabric: for a while it is left to the kernel.
pub fn remember_silent(host: IpAddr) {
    SILENT.add(host);
}

/// In a forked child: see [`Leaf::renew`].
pub fn renew(forked: &Forked) {
    SILENT.0.renew(forked, Vec::new());
    PLAIN.0.renew(forked, Vec::new());
    ASKED.0.renew(forked, Vec::new());
}

/// Whether the host is remembered as silent.
pub fn is_silent(host: IpAddr) -> bool {
    SILENT.has(host)
}

/// The server has stayed with TCP though the connection was free to move: for a while nobody waits for that.
pub fn remember_plain(server: SocketAddr) {
    PLAIN.add(server);
}

/// Whether the server is remembered as one that stays with TCP.
pub fn is_plain(server: SocketAddr) -> bool {
    PLAIN.has(server)
}

/// A datagram socket has asked a destination, which may be no peer of ours: while it has not answered, no other socket asks, as a program that tries
/// again may do so by a new one.
pub fn remember_asked(destination: SocketAddr) {
    ASKED.add(destination);
}

/// It has answered, or is gone.
pub fn forget_asked(destination: SocketAddr) {
    ASKED.remove(destination);
}

/// Whether it has been asked, and has not answered.
pub fn is_asked(destination: SocketAddr) -> bool {
    ASKED.has(destination)
}

/// Lets the kernel connect a nonblocking socket whose program waits for the outcome already.
pub fn kernel(fallback: &Fallback) -> (Phase, Option<Errno>) {
    // The program may have made the socket blocking since: the service must not wait for a peer.
    let flags = rustix::fs::fcntl_getfl(&fallback.socket);
    let blocking = flags.as_ref().is_ok_and(|flags| !flags.contains(rustix::fs::OFlags::NONBLOCK));
    if let (true, Ok(flags)) = (blocking, flags) {
        let _ = rustix::fs::fcntl_setfl(&fallback.socket, flags | rustix::fs::OFlags::NONBLOCK);
    }
    let result = rustix::net::connect(&fallback.socket, &fallback.peer);
    if let (true, Ok(flags)) = (blocking, flags) {
        let _ = rustix::fs::fcntl_setfl(&fallback.socket, flags);
    }
    match result {
        Ok(()) | Err(Errno::INPROGRESS | Errno::INTR) => {
            stats::add(Counter::ConnectedKernel, 1);
            (Phase::Kernel, None)
        }
        // The program has been told EINPROGRESS; it learns the error from SO_ERROR (connect(2)).
        Err(errno) => (Phase::Failed, Some(errno)),
    }
}

/// A connected or bound address without a meaning for a fabric: the wildcard with port 0 is "not bound".
pub fn bound(addr: Option<SocketAddr>) -> Option<SocketAddr> {
    addr.filter(|addr| addr.port() != 0 || !addr.ip().is_unspecified()).map(super::address::for_fabric)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_was_asked_is_asked_no_more_until_it_answers() {
        let one = SocketAddr::from(([198, 51, 100, 7], 53));
        assert!(!is_asked(one));
        remember_asked(one);
        assert!(is_asked(one));
        forget_asked(one);
        assert!(!is_asked(one));
    }

    #[test]
    fn remembers_a_bounded_number_of_hosts() {
        let host = |last: u8| IpAddr::from([198, 51, 100, last]);
        for last in 0..100 {
            remember_silent(host(last));
        }
        assert!(is_silent(host(99)) && !is_silent(host(0)));
        assert!(SILENT.0.lock().len() <= SILENT_MOST);
    }
}
