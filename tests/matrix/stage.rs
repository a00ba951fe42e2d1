//! How the programs of the matrix are started, under which library, and which way their connections went.

use std::env;
use std::path::PathBuf;
use std::thread;
use std::time::Duration;

use rustix::process::Signal;

use crate::support::{Ended, FORK_SAFE, Program, Running, Scratch, artefact};

/// What one client may take, on a machine with much else to do.
const LIMIT: Duration = Duration::from_secs(60);
/// What a server may take to end.
const END: Duration = Duration::from_secs(20);
/// What an idle server may use of one processor.
const IDLE_SHARE: f64 = 0.01;

/// How the programs are run.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Mode {
    /// Without the library: does the test itself work?
    Plain,
    /// Preloaded, everything left to TCP.
    Kernel,
    /// Preloaded, as it comes.
    Default,
}

impl Mode {
    pub fn get() -> Self {
        match env::var("RSOCKET_MATRIX_MODE").as_deref() {
            Ok("plain") => Self::Plain,
            Ok("kernel") => Self::Kernel,
            Ok("default") | Err(_) => Self::Default,
            Ok(other) => panic!("RSOCKET_MATRIX_MODE is plain, kernel or default, not {other}"),
        }
    }
}

/// Which way the connections of a row went, as its counters must say.
pub enum Way {
    /// All over shared memory, at both ends.
    Shm,
    /// All over TCP, for this reason.
    Tcp(&'static str),
}

impl Way {
    /// Its words in the table.
    pub fn cell(&self) -> String {
        match self {
            Self::Shm => "yes".to_owned(),
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
    /// Whether connections move to a fabric in the process that uses them.
    forks: bool,
}

impl Stage {
    pub fn new() -> Self {
        let mode = Mode::get();
        let library = (mode != Mode::Plain).then(|| artefact("librspreload.so"));
        Self { scratch: Scratch::new(), mode, library, within: Vec::new(), forks: false }
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
        if self.mode == Mode::Kernel { program.env("RSOCKET_FABRIC", "kernel") } else { program }
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
        let ended = self.program(name, line).run(LIMIT);
        ended.ok();
        ended
    }

    /// The same, with a file as its standard input.
    #[track_caller]
    pub fn run_with(&self, name: &str, line: &str, input: &str) -> Ended {
        let file = self.write(&format!("{name}.in"), input);
        let ended = self.program(name, line).input(&file).run(LIMIT);
        ended.ok();
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
                (Mode::Kernel, _) | (Mode::Default, Way::Tcp(_)) => assert_no_fabric(ended),
                (Mode::Default, Way::Shm) => ended.was_over_shm(1),
            }
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
        let seconds = env::var("RSOCKET_MATRIX_IDLE").ok().and_then(|text| text.parse().ok()).unwrap_or(10.0);
        // what it does after the load is none of this
        thread::sleep(Duration::from_secs(1));
        let before = server.cpu_time();
        thread::sleep(Duration::from_secs_f64(seconds));
        let used = (server.cpu_time() - before).as_secs_f64();
        assert!(used < (seconds * IDLE_SHARE).max(0.02), "idle, it has used the processor for {used:.2} of {seconds} s");
    }
}

#[track_caller]
fn assert_no_fabric(ended: &Ended) {
    for counter in ["connected_shm", "accepted_shm", "bytes_sent_shm", "connected_verbs", "accepted_verbs", "bytes_sent_verbs"] {
        assert_eq!(ended.counters.get(counter), 0, "{counter}: {}", ended.report());
    }
}
