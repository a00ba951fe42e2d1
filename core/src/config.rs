//! Configuration: the files of `/etc/rdma/rsocket` and the environment, read once, at the first rsocket (PROTOCOL.md 4).
//!
//! Nothing here is called on the path of a descriptor that is not the library's: it allocates and reads files.
//! Whatever is wrong with a setting costs a warning that names it, and the default is used.
#![forbid(unsafe_code)]

mod deferral;
mod fabrics;
mod file;
mod policy;

use std::{
    ffi::OsString,
    ops::RangeInclusive,
    os::unix::ffi::OsStrExt,
    path::{Path, PathBuf},
    time::Duration,
};

use crate::{error::Text, sys::once::Once};
pub use deferral::{Deferral, deferral, is_deferral_on};
pub use fabrics::FabricChoice;
use file::{Content, printable};
pub use policy::{PreloadConfig, preload, program};

/// Where the files are, unless `RSOCKET_CONFIG_DIR` names another directory.
const DIRECTORY: &str = "/etc/rdma/rsocket";

/// No number is longer, in bytes.
const LONGEST_NUMBER: usize = 64;

/// Sizes of the areas, in bytes. Smaller than a cache line makes no progress, larger than 1 GiB does not fit the wire's 29 bits.
const AREA_BYTES: RangeInclusive<u64> = 64..=1 << 30;

/// Queue sizes that the protocol can announce (PROTOCOL.md 1.10).
const QUEUE: RangeInclusive<u64> = 16..=65534;

/// Inline sizes in bytes; the device lowers them further.
const INLINE: RangeInclusive<u64> = 0..=4096;

/// iomap entries; the largest number that survives the 8-bit scaling of the connect record (PROTOCOL.md 1.7).
const IOMAP: RangeInclusive<u64> = 0..=127 << 8;

/// Busy polling, at most 10 seconds, in microseconds.
const POLLING: RangeInclusive<u64> = 0..=10_000_000;

/// Longest sleep, at most a day, in milliseconds; 0 is no limit.
const WAKE_UP: RangeInclusive<u64> = 0..=86_400_000;

/// Connect deadline, at most an hour, in milliseconds.
const DEADLINE: RangeInclusive<u64> = 1..=3_600_000;

/// Events that an epoll set may give at once.
const EVENTS: RangeInclusive<u64> = 1..=1 << 20;

/// No and yes.
const FLAG: RangeInclusive<u64> = 0..=1;

/// What a new socket starts with, and process-wide settings.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Defaults {
    /// Receive area in bytes, even (`mem_default`).
    pub receive_bytes: u32,
    /// Receive area over shared memory in bytes, even (`shm_mem_default`): only what is used of it takes memory.
    pub shm_receive_bytes: u32,
    /// Send area in bytes (`wmem_default`).
    pub send_bytes: u32,
    /// Send queue entries (`sqsize_default`, `RS_SQ_SIZE`).
    pub send_queue: u32,
    /// Receive queue entries (`rqsize_default`, `RS_RQ_SIZE`).
    pub receive_queue: u32,
    /// Inline size in bytes (`inline_default`, `RS_INLINE`).
    pub inline: u32,
    /// Entries of the iomap table, a number that survives the scaling of PROTOCOL.md 1.7 (`iomap_size`, rounded up).
    pub iomap_entries: u32,
    /// How long a wait spins before it sleeps (`polling_time`, microseconds).
    pub polling_time: Duration,
    /// The longest sleep without a look, a safeguard (`wake_up_interval`, milliseconds; 0 or no file: none).
    pub wake_up_interval: Option<Duration>,
    /// How many events one epoll_wait gives at most, however many the program has room for (`max_events`; no file: as many).
    pub max_events: Option<usize>,
    /// How long a client waits for an answer over a fabric before the kernel connects (`RSOCKET_CONNECT_DEADLINE`, milliseconds).
    pub connect_deadline: Duration,
    /// Which fabrics connections may take (`RSOCKET_FABRIC`, a list of `shm`, `verbs` and `kernel`).
    pub fabrics: FabricChoice,
    /// Whether shared memory may connect programs of different users (`shm_any_uid`, 0 or 1).
    pub shm_any_uid: bool,
    /// Whether datagram sockets of unmodified programs are taken over (`RSOCKET_DGRAM`, 0 or 1).
    pub datagrams: bool,
}

impl Default for Defaults {
    /// The built-in values. The queues are shorter than the shipped library's 384: making them is the greatest part of a connection's
    /// cost, and rings are rounded up to powers of two (docs/decisions/0006-queue-sizes.md).
    fn default() -> Self {
        Defaults {
            receive_bytes: 128 << 10,
            shm_receive_bytes: 512 << 10,
            send_bytes: 128 << 10,
            send_queue: 120,
            receive_queue: 192,
            inline: 64,
            iomap_entries: 0,
            polling_time: Duration::from_micros(10),
            wake_up_interval: None,
            max_events: None,
            connect_deadline: Duration::from_millis(300),
            fabrics: FabricChoice::default(),
            shm_any_uid: false,
            datagrams: false,
        }
    }
}

impl Defaults {
    /// Reads the files of `dir` and the variables of `env`; `warn` gets a sentence for each setting that is wrong.
    pub fn load(dir: &Path, env: &dyn Fn(&str) -> Option<OsString>, warn: &mut dyn FnMut(String)) -> Self {
        let mut source = Source { dir, env, warn };
        let built_in = Defaults::default();
        Defaults {
            receive_bytes: source.number("mem_default", &AREA_BYTES, built_in.receive_bytes) & !1,
            shm_receive_bytes: source.number("shm_mem_default", &AREA_BYTES, built_in.shm_receive_bytes) & !1,
            send_bytes: source.number("wmem_default", &AREA_BYTES, built_in.send_bytes),
            send_queue: source.queue("sqsize_default", "RS_SQ_SIZE", built_in.send_queue),
            receive_queue: source.queue("rqsize_default", "RS_RQ_SIZE", built_in.receive_queue),
            inline: source.inline(built_in.inline),
            iomap_entries: scalable(source.number("iomap_size", &IOMAP, built_in.iomap_entries)),
            polling_time: source.file("polling_time", &POLLING).map_or(built_in.polling_time, Duration::from_micros),
            wake_up_interval: source.file("wake_up_interval", &WAKE_UP).filter(|ms| *ms > 0).map(Duration::from_millis),
            max_events: source.file("max_events", &EVENTS).and_then(|most| usize::try_from(most).ok()),
            connect_deadline: source
                .variable("RSOCKET_CONNECT_DEADLINE", &DEADLINE)
                .map_or(built_in.connect_deadline, Duration::from_millis),
            fabrics: source.fabrics(),
            shm_any_uid: source.file("shm_any_uid", &FLAG).map_or(built_in.shm_any_uid, |flag| flag == 1),
            datagrams: source.variable("RSOCKET_DGRAM", &FLAG).map_or(built_in.datagrams, |flag| flag == 1),
        }
    }
}

/// The settings of this process. The first call reads them, so it belongs where a socket is made, never on a foreign descriptor's path.
pub fn get() -> &'static Defaults {
    static DEFAULTS: Once<Defaults> = Once::new();
    DEFAULTS.get_or_init(|| Defaults::load(&directory(), &variable, &mut warn))
}

/// A variable of the environment. None in a program that runs with more rights than its caller: the caller must not
/// choose the files that it reads and writes.
pub(crate) fn variable(name: &str) -> Option<OsString> {
    let plain = rustix::process::getuid() == rustix::process::geteuid() && rustix::process::getgid() == rustix::process::getegid();
    if plain { std::env::var_os(name) } else { None }
}

fn directory() -> PathBuf {
    let Some(dir) = variable("RSOCKET_CONFIG_DIR").filter(|dir| !dir.is_empty()).map(PathBuf::from) else {
        return PathBuf::from(DIRECTORY);
    };
    if !dir.is_dir() {
        warn(format!("RSOCKET_CONFIG_DIR: {} is no folder; the defaults are used", dir.display()));
    }
    dir
}

fn warn(text: String) {
    crate::log::warn_once(&text, &text);
}

/// Rounds up to a number of iomap entries that survives the scaling of PROTOCOL.md 1.7.
fn scalable(entries: u32) -> u32 {
    if entries <= 128 { entries } else { entries.next_multiple_of(256) }
}

/// Why a text is not the number that was wanted.
enum Wrong {
    NotANumber,
    /// The number, where it fits 64 bits.
    OutOfRange(Option<u64>),
}

fn parse(text: &[u8], range: &RangeInclusive<u64>) -> Result<u64, Wrong> {
    let digits = text.trim_ascii();
    if digits.is_empty() || !digits.iter().all(u8::is_ascii_digit) {
        return Err(Wrong::NotANumber);
    }
    let value = core::str::from_utf8(digits).ok().and_then(|digits| digits.parse::<u64>().ok());
    value.filter(|value| range.contains(value)).ok_or(Wrong::OutOfRange(value))
}

/// Where settings come from, and where complaints go.
struct Source<'a> {
    dir: &'a Path,
    env: &'a dyn Fn(&str) -> Option<OsString>,
    warn: &'a mut dyn FnMut(String),
}

impl Source<'_> {
    /// A file with one number. `None`: missing, or wrong (then it has been complained about).
    fn file(&mut self, name: &str, range: &RangeInclusive<u64>) -> Option<u64> {
        let path = self.dir.join(name);
        let (text, cut) = match file::read(&path, LONGEST_NUMBER) {
            Ok(Content::Missing) => return None,
            Ok(Content::Whole(text)) => (text, false),
            Ok(Content::Cut(text)) => (text, true),
            Err(error) => {
                (self.warn)(format!("{}: cannot be read ({}); the default is used", path.display(), Text(error)));
                return None;
            }
        };
        let parsed = if cut { Err(Wrong::NotANumber) } else { parse(&text, range) };
        self.judged(&path.display().to_string(), &text, parsed, range)
    }

    /// A variable with one number. `None`: not set, or wrong (then it has been complained about).
    fn variable(&mut self, name: &str, range: &RangeInclusive<u64>) -> Option<u64> {
        let text = (self.env)(name)?;
        self.judged(name, text.as_bytes(), parse(text.as_bytes(), range), range)
    }

    /// Complains about what is wrong. Queue sizes out of range are clamped, everything else gets its default.
    fn judged(&mut self, name: &str, text: &[u8], parsed: Result<u64, Wrong>, range: &RangeInclusive<u64>) -> Option<u64> {
        let text = printable(text.trim_ascii());
        let (low, high) = (*range.start(), *range.end());
        match parsed {
            Ok(value) => Some(value),
            Err(Wrong::OutOfRange(value)) if *range == QUEUE => {
                let clamped = value.unwrap_or(high).clamp(low, high);
                (self.warn)(format!("{name}: `{text}` is not in {low}..{high}; {clamped} is used"));
                Some(clamped)
            }
            Err(Wrong::OutOfRange(_)) => {
                (self.warn)(format!("{name}: `{text}` is not in {low}..{high}; the default is used"));
                None
            }
            Err(Wrong::NotANumber) => {
                (self.warn)(format!("{name}: `{text}` is not a number; the default is used"));
                None
            }
        }
    }

    fn number(&mut self, name: &str, range: &RangeInclusive<u64>, default: u32) -> u32 {
        self.file(name, range).and_then(|value| u32::try_from(value).ok()).unwrap_or(default)
    }

    /// The variable goes before the file.
    fn either(&mut self, name: &str, variable: &str, range: &RangeInclusive<u64>, default: u32) -> u32 {
        let from_file = self.number(name, range, default);
        self.variable(variable, range).and_then(|value| u32::try_from(value).ok()).unwrap_or(from_file)
    }

    fn queue(&mut self, name: &str, variable: &str, default: u32) -> u32 {
        self.either(name, variable, &QUEUE, default)
    }

    fn inline(&mut self, default: u32) -> u32 {
        self.either("inline_default", "RS_INLINE", &INLINE, default)
    }

    fn fabrics(&mut self) -> FabricChoice {
        (self.env)("RSOCKET_FABRIC").map_or_else(FabricChoice::default, |list| FabricChoice::parse(list.as_bytes(), self.warn))
    }
}

#[cfg(test)]
mod tests;
