//! How the programs of the matrix are started, under which library, and which way their connections went.

use std::env;
use std::fs;
use std::path::PathBuf;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;
use std::time::Duration;

use rustix::process::Signal;

use crate::support::{Ended, FORK_SAFE, Program, Running, Scratch, artefact};

/// What one client may take, on a machine with much else to do.
const LIMIT: Duration = Duration::from_secs(90);
/// What a server may take to end.
const END: Duration = Duration::from_secs(60);
/// What an idle server may use of one processor.
const IDLE_SHARE: f64 = 0.01;
/// The same on an emulated processor, where the timers of a language's own threads cost ten times and more.
const IDLE_SHARE_EMULATED: f64 = 0.1;
/// The most bytes that a packet of the device carries.
const PACKET: u64 = 4096;

/// How the programs are run.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Mode {
    /// Without the library: does the test itself work?
    Plain,
    /// Preloaded, everything left to TCP.
    Kernel,
    /// Preloaded, as it comes.
    Default,
    /// Preloaded, in a VM whose processor is emulated, with both ends of its one host kept on RDMA.
    Verbs,
}

impl Mode {
    pub fn get() -> Self {
        match env::var("RSOCKET_MATRIX_MODE").as_deref() {
            Ok("plain") => Self::Plain,
            Ok("kernel") => Self::Kernel,
            Ok("verbs") => Self::Verbs,
            Ok("default") | Err(_) => Self::Default,
            Ok(other) => panic!("RSOCKET_MATRIX_MODE is plain, kernel, default or verbs, not {other}"),
        }
    }
}

/// Which way the connections of a row went, as its counters must say.
pub enum Way {
    /// All over the fabric that is tried (shared memory, or RDMA), at both ends.
    Fabric,
    /// All over TCP, for this reason.
    Tcp(&'static str),
}

impl Way {
    /// Its words in the table.
    pub fn cell(&self) -> String {
        match self {
            Self::Fabric => "yes".to_owned(),
            Self::Tcp(why) => format!("TCP: {why}"),
        }
    }
}

/// Where programs run: a folder, and the library.
pub struct Stage {
    pub scratch: Scratch,
    pub mode: Mode,
    library: Option<PathBuf>,
    /// Words before each command.
    within: Vec<String>,
    host: String,
    /// What the device had sent when its packets were last compared with the programs' bytes.
    packets: AtomicU64,
    /// Whether connections move to a fabric in the process that uses them.
    forks: bool,
}

/// So many megabytes, in which no two parts are the same.
pub fn data(megabytes: u32) -> Vec<u8> {
    let part: Vec<u8> = (0..2_500_u32).flat_map(|number| number.wrapping_mul(0x9E37_79B1).to_le_bytes()).collect();
    (0..megabytes * 100).flat_map(|number| [number.to_be_bytes().to_vec(), part[4..].to_vec()].concat()).collect()
}

/// Packets that the RDMA devices have sent.
fn packets() -> u64 {
    let devices = fs::read_dir("/sys/class/infiniband").into_iter().flatten().flatten();
    let counts = devices.filter_map(|device| fs::read_to_string(device.path().join("ports/1/hw_counters/sent_pkts")).ok());
    counts.map(|text| text.trim().parse::<u64>().expect("a number of packets")).sum()
}

impl Stage {
    pub fn new() -> Self {
        let mode = Mode::get();
        let library = (mode != Mode::Plain).then(|| artefact("librspreload.so"));
        let host = if mode == Mode::Verbs { env::var("HOST_A").expect("HOST_A: the VM has it") } else { "127.0.0.1".to_owned() };
        Self { scratch: Scratch::new(), mode, library, within: Vec::new(), host, packets: packets().into(), forks: false }
    }

    /// The address of this host at which servers are to listen.
    pub fn host(&self) -> &str {
        &self.host
    }

    /// How much of something is done: `usual`, and where the processor is emulated `few`.
    pub fn amount<T>(&self, usual: T, few: T) -> T {
        if self.mode == Mode::Verbs { few } else { usual }
    }

    /// One whose programs run as this user, if the test is root.
    pub fn of_user(user: &str) -> Self {
        let mut stage = Self::new();
        stage.scratch = Scratch::public();
        stage.library = stage.library.map(|library| stage.scratch.copy(&library));
        if crate::support::is_root() {
            let words = ["setpriv", &format!("--reuid={user}"), &format!("--regid={user}"), "--clear-groups"];
            stage.within = words.map(str::to_owned).to_vec();
        }
        stage
    }

    /// One whose programs fork with connections, and say so.
    #[allow(dead_code)] // for tests/forking.rs
    pub fn forking(mut self) -> Self {
        self.forks = true;
        self
    }

    /// A program, whose name is another's never: its counters are found by it. Its words between blanks, '' for an empty one.
    #[track_caller]
    pub fn program(&self, name: &str, line: &str) -> Program<'_> {
        let words: Vec<&str> = line.split_whitespace().map(|word| if word == "''" { "" } else { word }).collect();
        let within: Vec<&str> = self.within.iter().map(String::as_str).collect();
        let program = Program::new(&self.scratch, name, &words).within(&within);
        let Some(library) = &self.library else { return program };
        let program = program.preloaded_with(library);
        let program = if self.forks { program.env(FORK_SAFE.0, FORK_SAFE.1) } else { program };
        match self.mode {
            Mode::Kernel => program.env("RSOCKET_FABRIC", "kernel"),
            Mode::Verbs => program.env("RSOCKET_FABRIC", "verbs").env("RSOCKET_CONNECT_DEADLINE", "20000"),
            Mode::Plain | Mode::Default => program,
        }
    }

    /// Starts a server, and waits until it listens.
    #[track_caller]
    pub fn serve(&self, name: &str, line: &str, port: u16) -> Running {
        let server = self.program(name, line).start();
        server.wait_until_listening(port);
        server
    }

    /// Runs a client to its good end.
    #[track_caller]
    pub fn run(&self, name: &str, line: &str) -> Ended {
        let ended = self.program(name, line).run(self.limit());
        ended.ok();
        println!("{name}: {:.1} s", ended.seconds);
        ended
    }

    fn limit(&self) -> Duration {
        self.amount(LIMIT, 2 * LIMIT)
    }

    /// The same, with a file as its standard input.
    #[track_caller]
    pub fn run_with(&self, name: &str, line: &str, input: &str) -> Ended {
        let file = self.write(&format!("{name}.in"), input);
        let ended = self.program(name, line).input(&file).run(self.limit());
        ended.ok();
        println!("{name}: {:.1} s", ended.seconds);
        ended
    }

    /// Ends a server by this signal, on which it must exit with one of these.
    #[track_caller]
    pub fn stop(&self, server: Running, signal: Signal, statuses: &[i32]) -> Ended {
        server.signal(signal);
        let ended = server.wait(END);
        assert!(ended.code().is_some_and(|code| statuses.contains(&code)), "{}", ended.report());
        ended
    }

    /// A file of its folder.
    #[track_caller]
    pub fn write(&self, name: &str, text: impl AsRef<[u8]>) -> PathBuf {
        let path = self.scratch.path(name);
        std::fs::write(&path, text).unwrap_or_else(|e| panic!("{}: {e}", path.display()));
        path
    }

    /// Fails unless the counters of all these programs say that their connections went this way.
    #[track_caller]
    pub fn assert_way(&self, way: &Way, programs: &[&Ended]) {
        for ended in programs {
            match (self.mode, way) {
                (Mode::Plain, _) => {}
                (Mode::Kernel, _) | (_, Way::Tcp(_)) => ended.assert_no_fabric(),
                (Mode::Default, Way::Fabric) => ended.was_over_shm(1),
                (Mode::Verbs, Way::Fabric) => ended.was_over_verbs(1),
            }
        }
        if self.mode == Mode::Verbs {
            let bytes: u64 = programs.iter().map(|ended| ended.counters.get("bytes_sent_verbs")).sum();
            let (now, before) = (packets(), self.packets.load(Ordering::Relaxed));
            self.packets.store(now, Ordering::Relaxed);
            assert!((now - before) * PACKET >= bytes, "{bytes} bytes, but {} packets of the device", now - before);
        }
        if self.mode != Mode::Plain && (self.mode == Mode::Kernel || matches!(way, Way::Tcp(_))) {
            let mut ends = programs.iter().flat_map(|ended| ["connected_kernel", "accepted_kernel"].map(|name| ended.counters.get(name)));
            assert!(ends.any(|number| number > 0), "no connection that is known to the library: {programs:#?}");
        }
    }

    /// Fails if a server whose clients have gone, or are silent, uses the processor. `RSOCKET_MATRIX_IDLE`: for how many seconds (10).
    #[track_caller]
    pub fn assert_idle(&self, server: &Running) {
        if self.mode == Mode::Plain {
            return;
        }
        let seconds = env::var("RSOCKET_MATRIX_IDLE").ok().and_then(|text| text.parse().ok()).unwrap_or(self.amount(10.0, 2.0));
        let share = self.amount(IDLE_SHARE, IDLE_SHARE_EMULATED);
        // what it does after the load is none of this
        thread::sleep(Duration::from_secs(1));
        let before = server.cpu_time();
        thread::sleep(Duration::from_secs_f64(seconds));
        let used = (server.cpu_time() - before).as_secs_f64();
        println!("idle: {used:.2} of {seconds} s");
        assert!(used < (seconds * share).max(0.02), "idle, it has used the processor for {used:.2} of {seconds} s");
    }
}
