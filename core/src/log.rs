//! Logging and warnings, safe where the library runs: in signal handlers, destructors, fork children and inside malloc's start-up.
//!
//! A line that is off costs one relaxed load. A line that is on is formatted into a buffer on the stack (cut at 512 bytes) and
//! written by one raw system call: no lock, no allocation, no thread-local storage. The environment is read at the first call
//! of [`prepare`] or the first line; the caller makes that the making of the first socket.
//!
//! `RSOCKET_LOG`: `error`, `warn`, `info`, `debug` or `trace`; `off` silences the warnings too. `RSOCKET_LOG_FILE`: a file to append to
//! instead of standard error; `%p` stands for the process id.
#![forbid(unsafe_code)]

mod line;
pub(crate) mod output;

use core::{
    fmt,
    hash::{BuildHasher, BuildHasherDefault, Hasher},
    sync::atomic::{AtomicBool, AtomicU8, AtomicU64, Ordering},
};

use crate::{error::Text, sys::once::Once};
use line::Line;
use output::Output;

/// How important a line is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
#[repr(u8)]
pub enum Level {
    /// Something is broken.
    Error = 1,
    /// Something works worse than it could.
    Warn = 2,
    /// What happens to connections.
    Info = 3,
    /// What happens inside.
    Debug = 4,
    /// Every message.
    Trace = 5,
}

const OFF: u8 = 0;
/// Not even warnings.
const MUTE: u8 = u8::MAX - 1;
/// The environment has not been read.
const UNSET: u8 = u8::MAX;

/// OFF, a [`Level`], MUTE or UNSET.
static LEVEL: AtomicU8 = AtomicU8::new(UNSET);

/// Set by the thread that reads the environment; nobody waits for it.
static CLAIMED: AtomicBool = AtomicBool::new(false);

/// Where lines go; set before LEVEL lets any through.
static OUTPUT: Once<Output> = Once::new();

/// Whether lines of this level are written.
#[inline(always)]
pub fn enabled(level: Level) -> bool {
    match LEVEL.load(Ordering::Relaxed) {
        OFF | MUTE => false,
        UNSET => prepared_level() >= level as u8,
        most => most >= level as u8,
    }
}

/// Reads the environment, if that has not been done. Allocates and takes locks: call it where the first socket is made.
pub fn prepare() {
    prepared_level();
}

#[cold]
fn prepared_level() -> u8 {
    if !CLAIMED.swap(true, Ordering::Relaxed) {
        let level = configured_level();
        LEVEL.store(level, Ordering::Release);
    }
    match LEVEL.load(Ordering::Acquire) {
        // Another thread, or what a signal handler has interrupted, is just reading it: lines get lost meanwhile.
        MUTE | UNSET => OFF,
        level => level,
    }
}

/// In a forked child: a thread that is not there may have been about to read the environment.
pub fn renew() {
    if LEVEL.load(Ordering::Relaxed) == UNSET {
        CLAIMED.store(false, Ordering::Relaxed);
    }
}

fn configured_level() -> u8 {
    let Some(wanted) = crate::config::variable("RSOCKET_LOG") else { return OFF };
    let level = match wanted.to_str().map(str::trim).map(str::to_ascii_lowercase).as_deref() {
        Some("") => return OFF,
        Some("off" | "0" | "none") => return MUTE,
        Some("error") => Level::Error,
        Some("warn") => Level::Warn,
        Some("info") => Level::Info,
        Some("debug") => Level::Debug,
        Some("trace") => Level::Trace,
        _ => {
            let given = wanted.display();
            output::warn(format_args!("RSOCKET_LOG: `{given}` is not one of off, error, warn, info, debug, trace; warn is used"));
            Level::Warn
        }
    };
    let file = crate::config::variable("RSOCKET_LOG_FILE").unwrap_or_default();
    match Output::open(&file) {
        Ok(output) => OUTPUT.set(Box::new(output)).map_or(OFF, |output| {
            output.keep_in_children();
            level as u8
        }),
        Err(error) => {
            let (file, text) = (file.display(), Text(error));
            output::warn(format_args!("RSOCKET_LOG_FILE: {file}: cannot be opened ({text}); nothing is logged"));
            OFF
        }
    }
}

/// Writes one line. For the macros, which ask [`enabled`] first.
#[cold]
pub fn write(level: Level, module: &str, text: fmt::Arguments<'_>) {
    let Some(output) = OUTPUT.get() else { return };
    let mut line = Line::new();
    line.stamp(level, module);
    line.text(text);
    if !output.write(line.finish()) {
        // The program has closed the number, and may be using it for something else.
        LEVEL.store(OFF, Ordering::Relaxed);
    }
}

/// Warnings whose key has been seen, as hashes; 0 is a free slot.
static SEEN: [AtomicU64; 64] = [const { AtomicU64::new(0) }; 64];

/// Tells the user something, once a process and `key`: to standard error, whether logging is on or not, unless `RSOCKET_LOG=off`.
/// When 64 different keys have been seen, further ones are dropped.
pub fn warn_once(key: &str, text: impl fmt::Display) {
    prepare();
    if LEVEL.load(Ordering::Relaxed) == MUTE || !first_time(key) {
        return;
    }
    output::warn(format_args!("{text}"));
    if OUTPUT.get().is_some_and(|output| !output.is_stderr()) {
        crate::log_warn!("{text}");
    }
}

fn first_time(key: &str) -> bool {
    let hash = BuildHasherDefault::<Fnv>::default().hash_one(key).max(1);
    for slot in &SEEN {
        match slot.compare_exchange(0, hash, Ordering::Relaxed, Ordering::Relaxed) {
            Ok(_) => return true,
            Err(seen) if seen == hash => return false,
            Err(_) => {}
        }
    }
    false
}

/// FNV-1a, 64 bits: the standard hasher's keys stand in thread-local storage.
struct Fnv(u64);

impl Default for Fnv {
    fn default() -> Self {
        Fnv(0xcbf2_9ce4_8422_2325)
    }
}

impl Hasher for Fnv {
    fn write(&mut self, bytes: &[u8]) {
        for byte in bytes {
            self.0 = (self.0 ^ u64::from(*byte)).wrapping_mul(0x0100_0000_01b3);
        }
    }

    fn finish(&self) -> u64 {
        self.0
    }
}

/// Writes a line of the given [`Level`], formatted like `format!`.
#[macro_export]
macro_rules! log_at {
    ($level:expr, $($text:tt)+) => {
        if $crate::log::enabled($level) {
            $crate::log::write($level, ::core::module_path!(), ::core::format_args!($($text)+));
        }
    };
}

/// Something is broken.
#[macro_export]
macro_rules! log_error {
    ($($text:tt)+) => { $crate::log_at!($crate::log::Level::Error, $($text)+) };
}

/// Something works worse than it could.
#[macro_export]
macro_rules! log_warn {
    ($($text:tt)+) => { $crate::log_at!($crate::log::Level::Warn, $($text)+) };
}

/// What happens to connections.
#[macro_export]
macro_rules! log_info {
    ($($text:tt)+) => { $crate::log_at!($crate::log::Level::Info, $($text)+) };
}

/// What happens inside.
#[macro_export]
macro_rules! log_debug {
    ($($text:tt)+) => { $crate::log_at!($crate::log::Level::Debug, $($text)+) };
}

/// Every message.
#[macro_export]
macro_rules! log_trace {
    ($($text:tt)+) => { $crate::log_at!($crate::log::Level::Trace, $($text)+) };
}

#[cfg(test)]
mod tests;
