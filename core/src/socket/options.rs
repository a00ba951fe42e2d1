//! What setsockopt has left on a socket: the values that matter to a fabric, and the settings that an accepted socket inherits.
//!
//! Every option is set on the kernel's socket too, which also answers getsockopt: types, ranges and errors are the kernel's.

use core::{
    sync::atomic::{AtomicI32, AtomicU32, AtomicU64, Ordering},
    time::Duration,
};

use super::{engine::Sizes, stream::care::Patience};
use crate::{
    config,
    fabric::Path,
    sys::lock::{Leaf, LeafGuard},
};

/// Most settings that are kept for accepted sockets.
const INHERITED_MOST: usize = 64;
/// tcp(7): tcp_keepalive_time, in seconds.
const KEEP_ALIVE_IDLE: u32 = 7200;
/// tcp(7): tcp_keepalive_intvl, in seconds.
const KEEP_ALIVE_INTERVAL: u32 = 75;
/// tcp(7): tcp_keepalive_probes.
const KEEP_ALIVE_COUNT: u32 = 9;

/// One setsockopt call.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Setting {
    /// Its level.
    pub level: i32,
    /// Its name.
    pub name: i32,
    /// Its value.
    pub value: Vec<u8>,
}

/// What decides when a peer is asked whether it lives, and when it is given up.
#[derive(Clone, Copy, Debug)]
pub struct KeepAlive {
    /// SO_KEEPALIVE.
    pub on: bool,
    /// TCP_KEEPIDLE, in seconds.
    pub idle: u32,
    /// TCP_KEEPINTVL, in seconds.
    pub interval: u32,
    /// TCP_KEEPCNT.
    pub count: u32,
    /// TCP_USER_TIMEOUT, in milliseconds; 0 for none.
    pub user: u32,
}

impl Default for KeepAlive {
    fn default() -> Self {
        KeepAlive { on: false, idle: KEEP_ALIVE_IDLE, interval: KEEP_ALIVE_INTERVAL, count: KEEP_ALIVE_COUNT, user: 0 }
    }
}

impl From<KeepAlive> for Patience {
    fn from(of: KeepAlive) -> Self {
        Patience {
            keep_alive: of.on.then(|| Duration::from_secs(u64::from(of.idle.max(1)))),
            probes: Duration::from_secs(u64::from(of.interval.max(1)) * u64::from(of.count.max(1))),
            user: (of.user != 0).then(|| Duration::from_millis(u64::from(of.user))),
        }
    }
}

struct Kept {
    sizes: Sizes,
    path: Option<Path>,
    linger: Option<Duration>,
    patience: KeepAlive,
    inherited: Vec<Setting>,
}

/// The options of a socket.
pub struct Options {
    kept: Leaf<Kept>,
    receive_timeout: AtomicU64,
    send_timeout: AtomicU64,
    tos: AtomicU32,
    receive_low: AtomicU32,
    segment: AtomicU32,
    defer_accept: AtomicI32,
}

impl Default for Options {
    fn default() -> Self {
        let defaults = config::get();
        let sizes = Sizes {
            receive_bytes: defaults.receive_bytes,
            shm_receive_bytes: defaults.shm_receive_bytes,
            send_bytes: defaults.send_bytes,
            send_queue: defaults.send_queue,
            receive_queue: defaults.receive_queue,
            inline: defaults.inline,
            iomap_entries: defaults.iomap_entries,
        };
        let kept = Kept { sizes, path: None, linger: None, patience: KeepAlive::default(), inherited: Vec::new() };
        Options {
            kept: Leaf::new(kept),
            receive_timeout: AtomicU64::new(0),
            send_timeout: AtomicU64::new(0),
            tos: AtomicU32::new(0),
            receive_low: AtomicU32::new(1),
            segment: AtomicU32::new(0),
            defer_accept: AtomicI32::new(0),
        }
    }
}

fn nanos(time: Option<Duration>) -> u64 {
    time.map_or(0, |time| u64::try_from(time.as_nanos()).unwrap_or(u64::MAX))
}

fn duration(nanos: u64) -> Option<Duration> {
    (nanos != 0).then(|| Duration::from_nanos(nanos))
}

impl Options {
    fn kept(&self) -> LeafGuard<'_, Kept> {
        self.kept.lock()
    }

    /// What an accepted socket starts with, and the settings to repeat on its kernel socket.
    pub fn inherit(&self) -> (Options, Vec<Setting>) {
        let kept = self.kept();
        let settings = kept.inherited.clone();
        let copy = Kept { sizes: kept.sizes, path: None, linger: kept.linger, patience: kept.patience, inherited: settings.clone() };
        let options = Options {
            kept: Leaf::new(copy),
            receive_timeout: AtomicU64::new(self.receive_timeout.load(Ordering::Relaxed)),
            send_timeout: AtomicU64::new(self.send_timeout.load(Ordering::Relaxed)),
            tos: AtomicU32::new(self.tos.load(Ordering::Relaxed)),
            receive_low: AtomicU32::new(self.receive_low.load(Ordering::Relaxed)),
            segment: AtomicU32::new(self.segment.load(Ordering::Relaxed)),
            defer_accept: AtomicI32::new(0),
        };
        (options, settings)
    }

    /// How many bytes of an option's value matter; none of one that points to others.
    pub fn length(level: i32, name: i32) -> usize {
        match (level, name) {
            (libc::SOL_SOCKET, libc::SO_RCVTIMEO | libc::SO_SNDTIMEO | libc::SO_BINDTODEVICE) => 16,
            (libc::SOL_SOCKET, libc::SO_LINGER) => 8,
            (libc::IPPROTO_TCP, libc::TCP_CONGESTION) => 16,
            (libc::SOL_SOCKET, libc::SO_ATTACH_FILTER | libc::SO_ATTACH_REUSEPORT_CBPF) => 0,
            _ => 4,
        }
    }

    /// Whether accepted sockets have it from the listener, as most of what is set: these are a listener's own, or each packet's.
    fn is_inherited(level: i32, name: i32) -> bool {
        let own = [libc::TCP_FASTOPEN, libc::TCP_DEFER_ACCEPT];
        (level != libc::IPPROTO_TCP || !own.contains(&name)) && (level, name) != (libc::SOL_SOCKET, libc::SO_PRIORITY)
    }

    /// Notes a setting that the kernel has taken.
    pub fn remember(&self, level: i32, name: i32, value: &[u8]) {
        if !Self::is_inherited(level, name) {
            return;
        }
        let mut kept = self.kept();
        let new = Setting { level, name, value: value.to_vec() };
        let at = kept.inherited.iter().position(|setting| setting.level == level && setting.name == name);
        if let Some(setting) = at.and_then(|at| kept.inherited.get_mut(at)) {
            *setting = new;
        } else if kept.inherited.len() < INHERITED_MOST {
            kept.inherited.push(new);
        }
    }

    /// Sizes of queues and buffers.
    pub fn sizes(&self) -> Sizes {
        self.kept().sizes
    }

    /// Changes the sizes of queues and buffers.
    pub fn set_sizes(&self, change: impl FnOnce(&mut Sizes)) {
        change(&mut self.kept().sizes);
    }

    /// RDMA_ROUTE.
    pub fn path(&self) -> Option<Path> {
        self.kept().path
    }

    /// Sets RDMA_ROUTE.
    pub fn set_path(&self, path: Path) {
        self.kept().path = Some(path);
    }

    /// SO_LINGER.
    pub fn linger(&self) -> Option<Duration> {
        self.kept().linger
    }

    /// Sets SO_LINGER.
    pub fn set_linger(&self, linger: Option<Duration>) {
        self.kept().linger = linger;
    }

    /// How long a peer may go without an answer, and when it is asked for one.
    pub fn patience(&self) -> Patience {
        self.kept().patience.into()
    }

    /// Changes what that comes from.
    pub fn set_patience(&self, change: impl FnOnce(&mut KeepAlive)) {
        change(&mut self.kept().patience);
    }

    /// SO_RCVTIMEO.
    pub fn receive_timeout(&self) -> Option<Duration> {
        duration(self.receive_timeout.load(Ordering::Relaxed))
    }

    /// Sets SO_RCVTIMEO.
    pub fn set_receive_timeout(&self, time: Option<Duration>) {
        self.receive_timeout.store(nanos(time), Ordering::Relaxed);
    }

    /// SO_SNDTIMEO.
    pub fn send_timeout(&self) -> Option<Duration> {
        duration(self.send_timeout.load(Ordering::Relaxed))
    }

    /// Sets SO_SNDTIMEO.
    pub fn set_send_timeout(&self, time: Option<Duration>) {
        self.send_timeout.store(nanos(time), Ordering::Relaxed);
    }

    /// IP_TOS.
    pub fn tos(&self) -> u8 {
        u8::try_from(self.tos.load(Ordering::Relaxed)).unwrap_or(0)
    }

    /// Sets IP_TOS.
    pub fn set_tos(&self, tos: u8) {
        self.tos.store(u32::from(tos), Ordering::Relaxed);
    }

    /// SO_RCVLOWAT: bytes that a read waits for, and poll tells of.
    #[inline]
    pub fn receive_low(&self) -> u32 {
        self.receive_low.load(Ordering::Relaxed)
    }

    /// Sets SO_RCVLOWAT: 0 means 1, a negative value as much as there can be.
    pub fn set_receive_low(&self, bytes: i32) {
        self.receive_low.store(u32::try_from(bytes).unwrap_or(i32::MAX.cast_unsigned()).max(1), Ordering::Relaxed);
    }

    /// TCP_DEFER_ACCEPT in seconds, where the kernel does not have it.
    pub fn defer_accept(&self) -> Option<i32> {
        Some(self.defer_accept.load(Ordering::Relaxed)).filter(|seconds| *seconds != 0)
    }

    /// Sets TCP_DEFER_ACCEPT.
    pub fn set_defer_accept(&self, seconds: i32) {
        self.defer_accept.store(seconds, Ordering::Relaxed);
    }

    /// TCP_MAXSEG as it was set before the connection, 0 for not at all.
    pub fn segment(&self) -> u32 {
        self.segment.load(Ordering::Relaxed)
    }

    /// Sets TCP_MAXSEG.
    pub fn set_segment(&self, bytes: u32) {
        self.segment.store(bytes, Ordering::Relaxed);
    }
}
