//! Counters of the process: relaxed atomics, cheap enough for every message.
//!
//! They show which path bytes took. With `RSOCKET_STATS` set to a file (`%p` stands for the process id; `-` or empty: standard
//! error) they are appended to it at exit, one `name value` line each.
#![forbid(unsafe_code)]

use core::{
    fmt::{self, Write},
    sync::atomic::{AtomicI32, AtomicU64, Ordering},
};
use std::ffi::OsString;

use crate::{
    error::Text,
    log::{self, output::Output},
    sys::once::Once,
};

macro_rules! counters {
    ($($(#[$doc:meta])* $name:ident = $text:literal,)+) => {
        /// What is counted.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
        #[repr(usize)]
        pub enum Counter { $($(#[$doc])* $name,)+ }

        impl Counter {
            /// Every counter, in the order of the output.
            pub const ALL: &'static [Counter] = &[$(Counter::$name),+];

            /// The name in the output.
            pub const fn name(self) -> &'static str {
                match self { $(Counter::$name => $text,)+ }
            }
        }
    };
}

counters! {
    /// Payload bytes posted to verbs endpoints.
    BytesSentVerbs = "bytes_sent_verbs",
    /// Payload bytes that arrived over verbs.
    BytesReceivedVerbs = "bytes_received_verbs",
    /// Payload bytes posted to shared-memory endpoints.
    BytesSentShm = "bytes_sent_shm",
    /// Payload bytes that arrived over shared memory.
    BytesReceivedShm = "bytes_received_shm",
    /// Payload bytes posted to simulated endpoints.
    BytesSentSim = "bytes_sent_sim",
    /// Payload bytes that arrived over the simulation.
    BytesReceivedSim = "bytes_received_sim",
    /// Connections made by this process over verbs.
    ConnectedVerbs = "connected_verbs",
    /// Connections made by this process over shared memory.
    ConnectedShm = "connected_shm",
    /// Connections made by this process over the simulation.
    ConnectedSim = "connected_sim",
    /// Connections made by this process over the kernel, by sockets that could have taken a fabric.
    ConnectedKernel = "connected_kernel",
    /// Connections accepted over verbs.
    AcceptedVerbs = "accepted_verbs",
    /// Connections accepted over shared memory.
    AcceptedShm = "accepted_shm",
    /// Connections accepted over the simulation.
    AcceptedSim = "accepted_sim",
    /// Connections accepted over the kernel, by listeners that also take a fabric.
    AcceptedKernel = "accepted_kernel",
    /// Kernel instead of fabric: there is no device, or no library for it.
    FallbackNoDevice = "fallback_no_device",
    /// Kernel instead of fabric: no device has a route.
    FallbackNoRoute = "fallback_no_route",
    /// Kernel instead of fabric: the peer refused.
    FallbackRefused = "fallback_refused",
    /// Kernel instead of fabric: the peer did not answer within the deadline.
    FallbackTimedOut = "fallback_timed_out",
    /// Kernel instead of fabric: locked memory, queue pairs, descriptors, permission.
    FallbackLimit = "fallback_limit",
    /// Kernel instead of fabric: `preload_config` or `RSOCKET_FABRIC` says so.
    FallbackPolicy = "fallback_policy",
    /// Kernel instead of fabric: the host did not answer a short while ago.
    FallbackUnreachable = "fallback_unreachable",
    /// Kernel instead of fabric: the peer speaks another version or nonsense.
    FallbackVersion = "fallback_version",
    /// Kernel instead of fabric: anything else.
    FallbackOther = "fallback_other",
    /// Connections ended because the peer broke the protocol.
    PeerFaults = "peer_faults",
    /// Connections broken by the transport.
    TransportErrors = "transport_errors",
    /// Datagrams sent through shared memory.
    DatagramsSentShm = "datagrams_sent_shm",
    /// Datagrams received through shared memory.
    DatagramsReceivedShm = "datagrams_received_shm",
    /// Datagrams sent over RDMA.
    DatagramsSentVerbs = "datagrams_sent_verbs",
    /// Datagrams received over RDMA.
    DatagramsReceivedVerbs = "datagrams_received_verbs",
    /// Datagrams left to the kernel to send, of sockets that were taken over.
    DatagramsSentKernel = "datagrams_sent_kernel",
    /// Datagrams received from the kernel, by such sockets.
    DatagramsReceivedKernel = "datagrams_received_kernel",
    /// Datagrams dropped as the receiver's queue was full.
    DatagramsDropped = "datagrams_dropped",
    /// Waits that went to sleep.
    WaitsSlept = "waits_slept",
    /// Sleepers woken by another thread of the process.
    WakeUps = "wake_ups",
    /// Incoming connections refused because the listener's queue was full.
    BacklogFull = "backlog_full",
}

impl Counter {
    /// Whether the simulated fabric alone counts here.
    const fn is_simulated(self) -> bool {
        matches!(self, Counter::BytesSentSim | Counter::BytesReceivedSim | Counter::ConnectedSim | Counter::AcceptedSim)
    }

    /// Whether it is in the output: programs never meet the simulation.
    const fn is_shown(self) -> bool {
        cfg!(test) || !self.is_simulated()
    }
}

static VALUES: [AtomicU64; Counter::ALL.len()] = [const { AtomicU64::new(0) }; Counter::ALL.len()];

/// Adds `count`. Wraps at 2^64.
#[inline(always)]
pub fn add(counter: Counter, count: u64) {
    if let Some(value) = VALUES.get(counter as usize) {
        value.fetch_add(count, Ordering::Relaxed);
    }
}

/// The value now.
pub fn get(counter: Counter) -> u64 {
    VALUES.get(counter as usize).map_or(0, |value| value.load(Ordering::Relaxed))
}

/// All names and values, in the order of [`Counter::ALL`].
pub fn snapshot() -> Vec<(&'static str, u64)> {
    Counter::ALL.iter().map(|counter| (counter.name(), get(*counter))).collect()
}

/// Starts from zero: for a fork child, which has not done what its parent did.
pub fn reset() {
    for value in &VALUES {
        value.store(0, Ordering::Relaxed);
    }
}

static ASKED: Once<Option<OsString>> = Once::new();

/// Reads the environment, if that has not been done: where the first socket is made, so that the exit of a fork child needs no lock.
pub fn prepare() {
    ASKED.get_or_init(|| crate::config::variable("RSOCKET_STATS"));
}

/// Appends the counters to what `RSOCKET_STATS` names, by one write, once a process. Does nothing where it is not set, or standard error
/// does not take it at once.
pub fn dump_if_asked() {
    // The process, not a flag: a vfork child that exits shares the memory of its parent.
    static DONE: AtomicI32 = AtomicI32::new(0);
    // Nothing was ever counted: a program without sockets, as most under an exported preload are. (And no environment is looked into in a
    // signal handler that ends it.)
    if Counter::ALL.iter().all(|counter| get(*counter) == 0) {
        return;
    }
    prepare();
    let Some(Some(name)) = ASKED.get() else { return };
    let process = rustix::process::getpid().as_raw_nonzero().get();
    if DONE.swap(process, Ordering::Relaxed) == process {
        return;
    }
    let output = match Output::open(name) {
        Ok(output) => output,
        Err(error) => {
            let (name, text) = (name.display(), Text(error));
            log::warn_once("RSOCKET_STATS", format_args!("RSOCKET_STATS: {name}: cannot be opened ({text}); the counters are lost"));
            return;
        }
    };
    if output.is_ready() {
        let mut page = Page { bytes: [0; LONGEST], len: 0 };
        // Fails where the page is full, which a test shows it never is.
        let _ = page.fill();
        let _ = output.write(page.bytes.get(..page.len).unwrap_or_default());
    }
}

/// Bytes for all lines: names up to 25 bytes, numbers up to 20.
const LONGEST: usize = Counter::ALL.len() * 48;

struct Page {
    bytes: [u8; LONGEST],
    len: usize,
}

impl Page {
    fn fill(&mut self) -> fmt::Result {
        for counter in Counter::ALL.iter().filter(|counter| counter.is_shown()) {
            writeln!(self, "{} {}", counter.name(), get(*counter))?;
        }
        Ok(())
    }
}

impl Write for Page {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        let room = self.bytes.get_mut(self.len..self.len + text.len()).ok_or(fmt::Error)?;
        room.copy_from_slice(text.as_bytes());
        self.len += text.len();
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use std::process::Command;

    use super::*;

    #[test]
    fn names_are_snake_case_unique_and_fit() {
        for (index, counter) in Counter::ALL.iter().enumerate() {
            assert_eq!(*counter as usize, index);
            let name = counter.name();
            let camel = name.split('_').map(|word| word[..1].to_uppercase() + &word[1..]).collect::<String>();
            assert_eq!(format!("{counter:?}"), camel);
            assert!(name.len() + 22 <= 48, "{name}");
            assert_eq!(counter.is_simulated(), name.ends_with("_sim"), "{name}");
        }
    }

    #[test]
    #[ignore = "a program for the test below"]
    fn program_counts() {
        add(Counter::BytesSentVerbs, 7);
        add(Counter::BytesSentVerbs, 5);
        add(Counter::WakeUps, 1);
        assert_eq!(snapshot()[0], ("bytes_sent_verbs", 12));
        dump_if_asked();
        reset();
        assert!(snapshot().iter().all(|(_, value)| *value == 0));
    }

    fn program(name: Option<&str>) -> String {
        let mut command = Command::new(std::env::current_exe().unwrap());
        command.args(["--exact", "--ignored", "--nocapture", "stats::tests::program_counts"]).env_remove("RSOCKET_STATS");
        let output = command.envs(name.map(|name| ("RSOCKET_STATS", name))).output().unwrap();
        assert!(output.status.success());
        String::from_utf8(output.stderr).unwrap()
    }

    #[test]
    fn dumped_at_exit_where_asked() {
        assert_eq!(program(None), "");
        let text = program(Some("-"));
        assert_eq!(text.lines().count(), Counter::ALL.len());
        assert!(text.starts_with("bytes_sent_verbs 12\nbytes_received_verbs 0\n") && text.contains("\nwake_ups 1\n"), "{text}");
        let path = std::env::temp_dir().join(format!("rsocket-stats-{}", std::process::id()));
        let name = path.to_str().unwrap();
        assert_eq!(program(Some(name)) + &program(Some(name)), "");
        assert_eq!(std::fs::read_to_string(&path).unwrap(), text.repeat(2));
        std::fs::remove_file(path).unwrap();
        let lost = program(Some("/nowhere/counters"));
        assert!(lost.contains("RSOCKET_STATS: /nowhere/counters: cannot be opened") && lost.lines().count() == 1, "{lost}");
    }
}
