//! Programs on this machine, plain or preloaded: no VM, no RDMA device, and no root unless a test says so. Whatever is started ends with
//! the test that started it.

use std::collections::BTreeMap;
use std::ffi::{OsStr, OsString};
use std::fs::{self, File};
use std::net::{Ipv4Addr, TcpListener};
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, WaitId, WaitIdOptions, kill_process, kill_process_group, waitid};

use super::programs::{artefact, build_c_program, target_dir};

/// How often something that is waited for is looked at.
const LOOK: Duration = Duration::from_millis(2);
/// How long: on an emulated processor languages take their time to start.
const PATIENCE: Duration = Duration::from_secs(60);

/// A folder for one test, removed with it.
pub struct Scratch(PathBuf);

impl Scratch {
    /// A folder in cargo's target folder.
    pub fn new() -> Self {
        Self::below(&target_dir().join("test-native"))
    }

    /// A folder that any user may read and write.
    pub fn public() -> Self {
        let scratch = Self::below(Path::new("/tmp"));
        chmod(&scratch.0, "1777");
        scratch
    }

    fn below(parent: &Path) -> Self {
        static SERIAL: AtomicU32 = AtomicU32::new(0);
        let name = format!("rsocket-test.{}.{}", std::process::id(), SERIAL.fetch_add(1, Ordering::Relaxed));
        let folder = parent.join(name);
        fs::create_dir_all(&folder).unwrap_or_else(|e| panic!("{}: {e}", folder.display()));
        Self(folder)
    }

    /// A file or folder in it.
    pub fn path(&self, name: &str) -> PathBuf {
        self.0.join(name)
    }

    /// A folder in it that any user may read.
    pub fn public_folder(&self, name: &str) -> PathBuf {
        let folder = self.path(name);
        fs::create_dir(&folder).unwrap_or_else(|e| panic!("{}: {e}", folder.display()));
        chmod(&folder, "755");
        folder
    }

    /// A copy of a file, that any user may read and run.
    pub fn copy(&self, file: &Path) -> PathBuf {
        let copy = self.0.join(file.file_name().expect("a file's name"));
        fs::copy(file, &copy).unwrap_or_else(|e| panic!("{}: {e}", file.display()));
        chmod(&copy, "755");
        copy
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

fn chmod(path: &Path, mode: &str) {
    let status = Command::new("chmod").arg(mode).arg(path).status();
    assert!(status.is_ok_and(|status| status.success()), "chmod {mode} {}", path.display());
}

/// A program to be started.
pub struct Program<'a> {
    scratch: &'a Scratch,
    name: String,
    wrapper: Vec<OsString>,
    words: Vec<OsString>,
    variables: Vec<(String, OsString)>,
    input: Option<PathBuf>,
    output: Option<PathBuf>,
}

impl<'a> Program<'a> {
    /// A program with its arguments, one a word. The name is for messages and files, and there once in a folder.
    pub fn new(scratch: &'a Scratch, name: &str, words: &[&str]) -> Self {
        let words = words.iter().map(OsString::from).collect();
        Self { scratch, name: name.to_owned(), wrapper: Vec::new(), words, variables: Vec::new(), input: None, output: None }
    }

    /// One of `tests/programs`.
    #[track_caller]
    pub fn test(scratch: &'a Scratch, name: &str, program: &str, arguments: &[&str]) -> Self {
        let mut built = Self::new(scratch, name, arguments);
        built.words.insert(0, build_c_program(program).into());
        built
    }

    /// Under the preload library, with counters.
    #[track_caller]
    pub fn preloaded(self) -> Self {
        let library = artefact("librspreload.so");
        self.preloaded_with(&library)
    }

    /// Under this copy of the preload library.
    pub fn preloaded_with(self, library: &Path) -> Self {
        let statistics = self.scratch.path(&format!("{}.stats.%p", self.name));
        // On a machine with much else to do an answer may take longer than connect waits by default before TCP connects.
        self.env("LD_PRELOAD", library).env("RSOCKET_STATS", statistics).env("RSOCKET_CONNECT_DEADLINE", "10000")
    }

    pub fn env(mut self, name: &str, value: impl AsRef<OsStr>) -> Self {
        self.variables.push((name.to_owned(), value.as_ref().to_owned()));
        self
    }

    /// Words that stand before the command: a program that becomes it by exec.
    pub fn within(mut self, words: &[&str]) -> Self {
        self.wrapper = words.iter().map(OsString::from).collect();
        self
    }

    /// Standard input; without it there is none.
    pub fn input(mut self, file: &Path) -> Self {
        self.input = Some(file.to_owned());
        self
    }

    /// Standard output, if it is not to be shown.
    pub fn output(mut self, file: &Path) -> Self {
        self.output = Some(file.to_owned());
        self
    }

    #[track_caller]
    pub fn start(self) -> Running {
        let prefix = self.scratch.path(&self.name);
        let [output, errors] = ["out", "err"].map(|end| self.scratch.path(&format!("{}.{end}", self.name)));
        let output = self.output.unwrap_or(output);
        // It ends with the thread that starts it, and becomes the program: the process stays the same one.
        let mut words = [&["setpriv".into(), "--pdeathsig".into(), "KILL".into()][..], &self.wrapper, &self.words].concat().into_iter();
        let mut command = Command::new(words.next().expect("a word"));
        command.args(words).process_group(0);
        for (name, _) in std::env::vars_os() {
            if name.to_str().is_some_and(|name| name.starts_with("RS") || name == "LD_PRELOAD") {
                command.env_remove(name);
            }
        }
        let input = self.input.map_or_else(Stdio::null, |file| open(&file).into());
        command.envs(self.variables).stdin(input).stdout(create(&output)).stderr(create(&errors));
        let child = command.spawn().unwrap_or_else(|e| panic!("setpriv does not start ({e}): util-linux is wanted"));
        Running { name: self.name, child, prefix, output, errors, begun: Instant::now(), reaped: false }
    }

    /// Starts it and waits for its end.
    #[track_caller]
    pub fn run(self, limit: Duration) -> Ended {
        self.start().wait(limit)
    }
}

fn open(path: &Path) -> File {
    File::open(path).unwrap_or_else(|e| panic!("{}: {e}", path.display()))
}

fn create(path: &Path) -> File {
    File::create(path).unwrap_or_else(|e| panic!("{}: {e}", path.display()))
}

fn read(path: &Path) -> String {
    fs::read(path).map(|bytes| String::from_utf8_lossy(&bytes).into_owned()).unwrap_or_default()
}

/// What there is room for in a message.
fn end_of(text: &str) -> &str {
    const LINES: usize = 40;
    let start = text.rmatch_indices('\n').nth(LINES).map_or(0, |(at, _)| at + 1);
    text.get(start..).unwrap_or_default()
}

/// A program that runs. Dropped, it is killed with its children.
pub struct Running {
    name: String,
    child: Child,
    prefix: PathBuf,
    output: PathBuf,
    errors: PathBuf,
    begun: Instant,
    /// Its number may be somebody else's by now.
    reaped: bool,
}

impl Running {
    fn number(&self) -> Pid {
        i32::try_from(self.child.id()).ok().and_then(Pid::from_raw).expect("a process's number")
    }

    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    /// Sends it a signal, its children none.
    #[track_caller]
    pub fn signal(&self, signal: Signal) {
        kill_process(self.number(), signal).unwrap_or_else(|e| panic!("{}: {signal:?}: {e}", self.name));
    }

    pub fn has_ended(&self) -> bool {
        // Its number stays its own meanwhile.
        let look = WaitIdOptions::EXITED | WaitIdOptions::NOHANG | WaitIdOptions::NOWAIT;
        waitid(WaitId::Pid(self.number()), look).is_ok_and(|ended| ended.is_some())
    }

    /// Ends what is left of it.
    fn reap(&mut self) -> Option<ExitStatus> {
        let _ = kill_process_group(self.number(), Signal::KILL);
        self.reaped = true;
        self.child.wait().ok()
    }

    /// What it has put out so far.
    pub fn output(&self) -> String {
        read(&self.output)
    }

    /// What is shown when something goes wrong.
    fn report(&self) -> String {
        format!("{}: output:\n{}errors:\n{}", self.name, end_of(&self.output()), end_of(&read(&self.errors)))
    }

    /// Waits until it has put out this line.
    #[track_caller]
    pub fn wait_for_line(&self, line: &str) {
        self.wait_until(&format!("the line `{line}`"), |running| running.output().lines().any(|found| found == line));
    }

    /// Waits until somebody in the program's network listens at this port.
    #[track_caller]
    pub fn wait_until_listening(&self, port: u16) {
        let until = Instant::now() + PATIENCE;
        // Also where it has ended, and left that to another one.
        while !listens(if self.has_ended() { std::process::id() } else { self.pid() }, port) {
            assert!(Instant::now() < until, "a listener at port {port} did not come\n{}", self.report());
            // files of /proc are dear where the processor is emulated
            thread::sleep(5 * LOOK);
        }
    }

    /// Waits until all threads of the program sleep in the kernel.
    #[track_caller]
    pub fn wait_until_asleep(&self) {
        let mut seen = 0;
        self.wait_until("sleep", move |running| {
            seen = if sleeps(running.pid()) { seen + 1 } else { 0 };
            seen > 20
        });
    }

    /// Waits until it has ended by itself.
    #[track_caller]
    pub fn wait_until_ended(&self) {
        let until = Instant::now() + PATIENCE;
        while !self.has_ended() {
            assert!(Instant::now() < until, "it does not end\n{}", self.report());
            thread::sleep(LOOK);
        }
    }

    #[track_caller]
    pub fn wait_until(&self, what: &str, mut comes: impl FnMut(&Self) -> bool) {
        let until = Instant::now() + PATIENCE;
        while !comes(self) {
            assert!(!self.has_ended(), "{} ended before {what} came\n{}", self.name, self.report());
            assert!(Instant::now() < until, "{what} did not come\n{}", self.report());
            thread::sleep(LOOK);
        }
    }

    /// Processor time of all threads until now.
    pub fn cpu_time(&self) -> Duration {
        let text = read(Path::new(&format!("/proc/{}/stat", self.pid())));
        let fields = text.rsplit(')').next().unwrap_or_default().split_whitespace();
        let ticks: u64 = fields.skip(11).take(2).filter_map(|field| field.parse::<u64>().ok()).sum();
        Duration::from_millis(ticks * 10) // USER_HZ is 100 wherever glibc runs
    }

    /// Waits for its end; past the limit it is killed, and its status is none.
    pub fn wait(mut self, limit: Duration) -> Ended {
        let until = Instant::now() + limit;
        while !self.has_ended() && Instant::now() < until {
            thread::sleep(LOOK);
        }
        let (in_time, seconds) = (self.has_ended(), self.begun.elapsed().as_secs_f64());
        let status = self.reap().filter(|_| in_time);
        let each = Statistics::read(&self.prefix);
        let counters = Statistics::sum(each.values());
        let (pid, name, errors) = (self.pid(), self.name.clone(), read(&self.errors));
        Ended { name, pid, status, output: self.output(), errors, counters, each, seconds }
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        if !self.reaped {
            self.reap();
        }
    }
}

fn listens(pid: u32, port: u16) -> bool {
    const LISTEN: &str = "0A";
    let port = format!(":{port:04X}");
    ["tcp", "tcp6"].iter().any(|table| {
        let text = read(Path::new(&format!("/proc/{pid}/net/{table}")));
        let mut lines = text.lines().map(|line| line.split_whitespace().collect::<Vec<_>>());
        lines.any(|fields| fields.get(1).is_some_and(|address| address.ends_with(&port)) && fields.get(3) == Some(&LISTEN))
    })
}

fn sleeps(pid: u32) -> bool {
    let threads = fs::read_dir(format!("/proc/{pid}/task")).into_iter().flatten().flatten();
    let mut states = threads.map(|thread| {
        let text = read(&thread.path().join("stat"));
        text.rsplit(')').next().unwrap_or_default().trim_start().chars().next()
    });
    states.all(|state| state == Some('S'))
}

/// A program that has ended.
#[derive(Debug)]
pub struct Ended {
    pub name: String,
    pub pid: u32,
    /// None: its time was over.
    pub status: Option<ExitStatus>,
    pub output: String,
    pub errors: String,
    /// Of all its processes together, those that were killed left out.
    pub counters: Statistics,
    /// Of each of these, by its number.
    pub each: BTreeMap<u32, Statistics>,
    pub seconds: f64,
}

impl Ended {
    pub fn code(&self) -> Option<i32> {
        self.status?.code()
    }

    /// Everything there is to show of it.
    pub fn report(&self) -> String {
        let end = match self.status {
            None => "did not end in time".to_owned(),
            Some(status) => status.code().map_or(format!("signal {:?}", status.signal()), |code| format!("exit status {code}")),
        };
        let Self { name, output, errors, counters, seconds, .. } = self;
        let [output, errors] = [output, errors].map(|text| end_of(text));
        format!("{name}: {end}, {seconds:.1} s\noutput:\n{output}errors:\n{errors}counters: {counters:?}")
    }

    /// Fails unless it exited with 0. Returns its output.
    #[track_caller]
    pub fn ok(&self) -> &str {
        assert_eq!(self.code(), Some(0), "{}", self.report());
        &self.output
    }

    /// The number behind a word at the beginning of a line of its output.
    #[track_caller]
    pub fn number(&self, name: &str) -> f64 {
        let lines = self.output.lines().filter_map(|line| line.strip_prefix(name)?.strip_prefix(' ')?.split(' ').next());
        let number = lines.filter_map(|text| text.parse().ok()).next_back();
        number.unwrap_or_else(|| panic!("no {name} in {}", self.report()))
    }

    /// Fails unless all its connections were over shared memory, one at least, and moved so many bytes.
    #[track_caller]
    pub fn was_over_shm(&self, bytes: u64) {
        self.was_over("shm", bytes);
    }

    /// The same over RDMA.
    #[track_caller]
    pub fn was_over_verbs(&self, bytes: u64) {
        self.was_over("verbs", bytes);
    }

    #[track_caller]
    fn was_over(&self, fabric: &str, bytes: u64) {
        let of = |name: &str, fabric: &str| self.counters.get(&format!("{name}_{fabric}"));
        assert!(of("connected", fabric) + of("accepted", fabric) > 0, "no connection over {fabric}: {}", self.report());
        let moved = of("bytes_sent", fabric) + of("bytes_received", fabric);
        assert!(moved >= bytes, "{moved} bytes over {fabric}, not {bytes}: {}", self.report());
        for other in ["kernel", "shm", "verbs"].into_iter().filter(|other| *other != fabric) {
            assert_eq!(of("connected", other) + of("accepted", other), 0, "{other}: {}", self.report());
        }
    }

    /// Fails unless all its connections were the kernel's, one at least.
    #[track_caller]
    pub fn was_over_the_kernel(&self) {
        let of = |name| self.counters.get(name);
        assert!(of("connected_kernel") + of("accepted_kernel") > 0, "no connection over the kernel: {}", self.report());
        self.assert_no_fabric();
    }

    /// Fails if one of its connections was not the kernel's.
    #[track_caller]
    pub fn assert_no_fabric(&self) {
        for counter in ["connected_shm", "accepted_shm", "bytes_sent_shm", "connected_verbs", "accepted_verbs", "bytes_sent_verbs"] {
            assert_eq!(self.counters.get(counter), 0, "{counter}: {}", self.report());
        }
    }
}

/// What `RSOCKET_STATS` has said, added up over the processes of a program.
#[derive(Debug, Default)]
pub struct Statistics(BTreeMap<String, u64>);

impl Statistics {
    /// Those of each process.
    fn read(prefix: &Path) -> BTreeMap<u32, Self> {
        let name = prefix.file_name().and_then(OsStr::to_str).unwrap_or_default();
        let start = format!("{name}.stats.");
        let files = fs::read_dir(prefix.parent().unwrap_or(prefix)).into_iter().flatten().flatten();
        let of_process = |file: fs::DirEntry| Some((file.file_name().to_str()?.strip_prefix(&start)?.parse().ok()?, file.path()));
        files.filter_map(of_process).map(|(pid, path)| (pid, Self::parse(&read(&path)))).collect()
    }

    fn sum<'a>(all: impl Iterator<Item = &'a Self>) -> Self {
        let mut sums = BTreeMap::new();
        for (name, value) in all.flat_map(|each| &each.0) {
            *sums.entry(name.clone()).or_default() += value;
        }
        Self(sums)
    }

    /// Those of a program that writes them to its standard error, as `RSOCKET_STATS=-` has it.
    pub fn parse(text: &str) -> Self {
        let mut sums = BTreeMap::new();
        Self::add(&mut sums, text);
        Self(sums)
    }

    fn add(sums: &mut BTreeMap<String, u64>, text: &str) {
        for (name, value) in text.lines().filter_map(|line| line.split_once(' ')) {
            *sums.entry(name.to_owned()).or_default() += value.parse::<u64>().unwrap_or_else(|e| panic!("{name} {value}: {e}"));
        }
    }

    /// A counter; 0 where a process had counted nothing at all, and so said nothing.
    #[track_caller]
    pub fn get(&self, name: &str) -> u64 {
        assert!(self.0.is_empty() || self.0.contains_key(name), "no counter {name} in {self:?}");
        self.0.get(name).copied().unwrap_or(0)
    }
}

/// Fails, where the test cannot do without the rights of root.
#[track_caller]
pub fn needs_root(why: &str) {
    assert!(is_root(), "this test {why}, for which it has to be root: run it by sudo");
}

pub fn is_root() -> bool {
    rustix::process::geteuid().is_root()
}

/// A port at which nobody listens, and which the kernel does not give out by itself.
pub fn free_port() -> u16 {
    static NEXT: AtomicU32 = AtomicU32::new(0);
    const FIRST: u32 = 10_000;
    const MANY: u32 = 20_000;
    loop {
        let step = NEXT.fetch_add(1, Ordering::Relaxed);
        assert!(step < MANY, "no free port");
        // Other processes that test at the same time begin elsewhere.
        let place = std::process::id().wrapping_mul(0x9E37_79B1) % MANY;
        let port = u16::try_from(FIRST + (place + step) % MANY).expect("a port");
        if TcpListener::bind(("0.0.0.0", port)).is_ok() && TcpListener::bind(("::", port)).is_ok() {
            return port;
        }
    }
}

/// An IPv4 address of this machine that is not its loopback's.
#[track_caller]
pub fn own_address() -> Ipv4Addr {
    let output = Command::new("hostname").arg("-I").output().expect("hostname starts");
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    let found = text.split_whitespace().find_map(|word| word.parse().ok());
    found.unwrap_or_else(|| panic!("this machine has no IPv4 address but loopback's, and the test wants one (`hostname -I`: {text:?})"))
}
