//! A throw-away VM with software RDMA: `scripts/vm/run` and `scripts/vm/run2` for Rust tests.

use std::ffi::{OsStr, OsString};
use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Condvar, Mutex, OnceLock};
use std::thread;
use std::time::{Duration, Instant};

use super::programs::{repository, target_dir};

/// The network in the VM. Everywhere `$HOST_A`, `$HOST_B` (and `$HOST_A6`, `$HOST_B6`) are the addresses to use.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Topology {
    /// No network but `lo`.
    None,
    /// One host, 10.9.0.1 and fd09::1; `$HOST_A` and `$HOST_B` are the same.
    One,
    /// Hosts A and B as two network namespaces of one VM (`A COMMAND`, `B COMMAND`); with [`Rdma::Siw`] or [`Rdma::None`] only.
    Two,
    /// Two VMs, machines A and B, each with a kernel of its own; see [`Vm::script_b`] and [`VmSession::step_both`].
    TwoMachines,
}

/// The kind of RDMA device of each host.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Rdma {
    None,
    /// Soft-RoCE.
    Rxe,
    /// Soft-iWARP.
    Siw,
}

/// A VM to be run once. It sees this machine's files at the same paths; what it writes is lost, `$OUT` apart.
///
/// `RSOCKET_FABRIC` is `verbs` there: both ends are mostly on one host, and by default would meet in shared memory. See
/// [`Vm::default_fabrics`].
#[derive(Clone, Debug)]
pub struct Vm {
    topology: Topology,
    rdma: Rdma,
    cpus: usize,
    memory: usize,
    limit: Duration,
    env: Vec<(String, OsString)>,
    icount: bool,
    out: Option<PathBuf>,
    script: String,
    script_b: String,
}

impl Default for Vm {
    fn default() -> Self {
        Self::new()
    }
}

impl Vm {
    /// One host, soft-RoCE, 1 CPU, 512 MiB, 60 seconds, no script.
    pub fn new() -> Self {
        Self {
            topology: Topology::One,
            rdma: Rdma::Rxe,
            cpus: 1,
            memory: 512,
            limit: Duration::from_secs(60),
            env: vec![("RSOCKET_FABRIC".to_owned(), "verbs".into())],
            icount: false,
            out: None,
            script: String::new(),
            script_b: String::new(),
        }
    }

    pub fn topology(mut self, topology: Topology) -> Self {
        self.topology = topology;
        self
    }

    pub fn rdma(mut self, rdma: Rdma) -> Self {
        self.rdma = rdma;
        self
    }

    /// CPUs of each machine. Two find more races, and cost up to three times the time on a busy host.
    pub fn cpus(mut self, cpus: usize) -> Self {
        self.cpus = cpus;
        self
    }

    /// Memory of each machine in MiB.
    pub fn memory(mut self, mebibytes: usize) -> Self {
        self.memory = mebibytes;
        self
    }

    /// Time for the script, boot not included.
    pub fn limit(mut self, limit: Duration) -> Self {
        self.limit = limit;
        self
    }

    /// A variable of the script's environment (on both machines).
    pub fn env(mut self, name: &str, value: impl AsRef<OsStr>) -> Self {
        self.env.push((name.to_owned(), value.as_ref().to_owned()));
        self
    }

    /// `RSOCKET_FABRIC` is not set.
    pub fn default_fabrics(mut self) -> Self {
        self.env.retain(|(name, _)| name != "RSOCKET_FABRIC");
        self
    }

    /// One CPU with a virtual clock of 1 ns an instruction: CPU times are instruction counts.
    pub fn icount(mut self) -> Self {
        self.icount = true;
        self
    }

    /// Keep what the guest puts into `$OUT`, core files, dmesg and console in this folder (two machines: in A and B below it).
    pub fn out(mut self, folder: impl AsRef<Path>) -> Self {
        self.out = Some(folder.as_ref().to_owned());
        self
    }

    /// The bash script to run; with [`Topology::TwoMachines`], machine A's.
    pub fn script(mut self, script: &str) -> Self {
        script.clone_into(&mut self.script);
        self
    }

    /// Machine B's script of [`Topology::TwoMachines`].
    pub fn script_b(mut self, script: &str) -> Self {
        script.clone_into(&mut self.script_b);
        self
    }

    /// Boots, runs, and powers off. Never panics on what happens in the VM, nor hangs: it has a deadline of its own.
    pub fn run(self) -> Outcome {
        static SERIAL: AtomicUsize = AtomicUsize::new(0);

        make_image(self.rdma);
        let machines = if self.topology == Topology::TwoMachines { 2 } else { 1 };
        let _share = Share::take(self.cpus * machines);

        let serial = SERIAL.fetch_add(1, Ordering::Relaxed);
        let scratch = target_dir().join(format!("test-vm/{}.{serial}", std::process::id()));
        fs::create_dir_all(&scratch).unwrap_or_else(|e| panic!("{}: {e}", scratch.display()));
        let out = self.out.clone().unwrap_or_else(|| scratch.join("out"));
        let (stdout, stderr) = (scratch.join("stdout"), scratch.join("stderr"));

        let started = Instant::now();
        let mut child = dies_with_us(&repository().join("scripts/vm").join(if machines == 2 { "run2" } else { "run" }))
            .args(self.options(&out))
            .args(self.scripts(&scratch))
            .current_dir(repository())
            .stdin(Stdio::null())
            .stdout(create(&stdout))
            .stderr(create(&stderr))
            .spawn()
            .unwrap_or_else(|e| panic!("scripts/vm does not start: {e}"));
        let ended = wait(&mut child, self.limit + Duration::from_secs(150));

        let status = ended.and_then(|s| s.code()).unwrap_or(124);
        let mut outcome = if machines == 2 {
            let (mut a, b) = (Outcome::of_machine(&out.join("A")), Outcome::of_machine(&out.join("B")));
            a.b = Some(Box::new(b));
            a
        } else {
            Outcome::new(status, &read(&stdout), read(&out.join("diag.txt")))
        };
        outcome.messages = read(&stderr);
        if machines == 2 && outcome.output.is_empty() {
            outcome.messages.push_str(&read(&stdout));
        }
        outcome.timed_out |= ended.is_none();
        outcome.seconds = started.elapsed().as_secs_f64();
        let _ = fs::remove_dir_all(&scratch);
        outcome
    }

    fn options(&self, out: &Path) -> Vec<OsString> {
        let mut options: Vec<OsString> = Vec::new();
        let mut option = |name: &str, value: &OsStr| options.extend([OsString::from(name), value.to_owned()]);
        match self.topology {
            Topology::None => option("--topo", OsStr::new("none")),
            Topology::One => option("--topo", OsStr::new("one")),
            Topology::Two => option("--topo", OsStr::new("two")),
            Topology::TwoMachines => {}
        }
        let rdma = match self.rdma {
            Rdma::None => "none",
            Rdma::Rxe => "rxe",
            Rdma::Siw => "siw",
        };
        option("--rdma", OsStr::new(rdma));
        option("--smp", OsStr::new(&self.cpus.to_string()));
        option("--mem", OsStr::new(&self.memory.to_string()));
        option("-t", OsStr::new(&self.limit.as_secs().max(1).to_string()));
        option("--out", out.as_os_str());
        for (name, value) in &self.env {
            let mut pair = OsString::from(format!("{name}="));
            pair.push(value);
            option("-e", &pair);
        }
        if self.icount {
            options.push("--icount".into());
        }
        options
    }

    /// The scripts as files: one argument of a program takes 128 KiB only, and a session of many steps is longer.
    fn scripts(&self, scratch: &Path) -> Vec<PathBuf> {
        let texts = [Some(&self.script), (self.topology == Topology::TwoMachines).then_some(&self.script_b)];
        let files = texts.into_iter().flatten().zip(["script", "script_b"]).map(|(text, name)| {
            let file = scratch.join(name);
            fs::write(&file, text).unwrap_or_else(|e| panic!("{}: {e}", file.display()));
            file
        });
        files.collect()
    }
}

/// What came of a [`Vm`] or [`VmSession`].
#[derive(Clone, Debug)]
pub struct Outcome {
    /// The script's exit status; 124: its time was over; 125: no VM, or a kernel panic. Two machines: A's, B's is in [`Outcome::b`].
    pub status: i32,
    /// What the script wrote (both to standard output and to standard error).
    pub output: String,
    /// What the harness said.
    pub messages: String,
    /// What every process was doing when the time was over; else empty.
    pub diagnosis: String,
    pub timed_out: bool,
    /// How long it all took, boot included.
    pub seconds: f64,
    /// The steps of a session, in order.
    pub steps: Vec<Step>,
    b: Option<Box<Outcome>>,
}

impl Outcome {
    fn new(status: i32, output: &str, diagnosis: String) -> Self {
        Self {
            status,
            output: output.to_owned(),
            messages: String::new(),
            diagnosis,
            timed_out: status == 124,
            seconds: 0.0,
            steps: Step::parse(output),
            b: None,
        }
    }

    fn of_machine(folder: &Path) -> Self {
        let status = read(&folder.join("status")).trim().parse().unwrap_or(125);
        Self::new(status, &read(&folder.join("output")), read(&folder.join("diag.txt")))
    }

    /// Machine B's side of [`Topology::TwoMachines`].
    #[track_caller]
    pub fn b(&self) -> &Outcome {
        self.b.as_deref().expect("this was not a run of two machines")
    }

    /// A step of a session by its name; fails, with the output, when it was never begun.
    #[track_caller]
    pub fn step(&self, name: &str) -> &Step {
        let step = self.steps.iter().find(|step| step.name == name);
        step.unwrap_or_else(|| panic!("the VM never came to step {name}:\n{}", self.report()))
    }

    /// Fails unless the script (and, with two machines, each script) exited with 0. Returns the output.
    #[track_caller]
    pub fn ok(&self) -> &str {
        let both = self.status == 0 && self.b.as_ref().is_none_or(|b| b.status == 0);
        assert!(both, "{}", self.report());
        &self.output
    }

    /// Everything there is to show of it, for a failure's message.
    pub fn report(&self) -> String {
        let mut text = format!("exit status {}{}\n", self.status, if self.timed_out { ", timed out" } else { "" });
        for (title, part) in [("output", &self.output), ("harness", &self.messages), ("diagnosis", &self.diagnosis)] {
            if !part.is_empty() {
                text.push_str(&format!("--- {title}\n{}\n", part.trim_end()));
            }
        }
        if let Some(b) = &self.b {
            text.push_str(&format!("--- machine B: {}", b.report()));
        }
        text
    }
}

/// One step of a [`VmSession`].
#[derive(Clone, Debug, PartialEq)]
pub struct Step {
    pub name: String,
    /// Its exit status; 124: its time was over; 125: the VM ended before the step did.
    pub status: i32,
    pub output: String,
    pub seconds: f64,
}

impl Step {
    /// Fails unless it exited with 0. Returns its output.
    #[track_caller]
    pub fn ok(&self) -> &str {
        assert!(self.status == 0, "step {}: exit status {} after {:.1} s:\n{}", self.name, self.status, self.seconds, self.output);
        &self.output
    }

    /// Reads the marks of the guest command `step`.
    fn parse(output: &str) -> Vec<Self> {
        let mut steps = Vec::new();
        for part in format!("\n{output}").split("\n@@step begin ").skip(1) {
            let (name, rest) = part.split_once('\n').unwrap_or((part, ""));
            let end = format!("\n@@step end {name} ");
            let mut step = Self { name: name.to_owned(), status: 125, output: rest.to_owned(), seconds: 0.0 };
            if let Some((text, mark)) = rest.split_once(&end) {
                let mut fields = mark.split_whitespace();
                step.status = fields.next().and_then(|f| f.parse().ok()).unwrap_or(125);
                step.seconds = fields.next().and_then(|f| f.parse().ok()).unwrap_or(0.0);
                text.clone_into(&mut step.output);
            }
            steps.push(step);
        }
        steps
    }
}

/// Several named steps in one boot. Each has its own time limit (20 seconds if none is given), and what it leaves running is killed
/// when it ends, so that a hang costs only its own step. Every step is run, whatever became of those before it.
#[derive(Clone, Debug)]
pub struct VmSession {
    vm: Vm,
    setup: String,
    steps: Vec<(String, Duration, String, Option<String>)>,
    lanes: usize,
}

const STEP_LIMIT: Duration = Duration::from_secs(20);

impl VmSession {
    pub fn new(vm: Vm) -> Self {
        Self { vm, setup: String::new(), steps: Vec::new(), lanes: 1 }
    }

    /// Bash text that stands before every step (functions, variables).
    pub fn prelude(mut self, text: &str) -> Self {
        self.setup = format!("{text}\n");
        self
    }

    /// So many steps at a time: none has to do with another, nor asks for the device's counters. (One machine only.)
    pub fn lanes(mut self, lanes: usize) -> Self {
        self.lanes = lanes;
        self
    }

    /// A step of 20 seconds at most; with two machines, on machine A.
    #[track_caller]
    pub fn step(self, name: &str, text: &str) -> Self {
        self.step_within(name, STEP_LIMIT, text)
    }

    /// A step with a time limit of its own.
    #[track_caller]
    pub fn step_within(self, name: &str, limit: Duration, text: &str) -> Self {
        self.add(name, limit, text, None)
    }

    /// With two machines: a step on both, begun at the same time. B's side is `outcome.b().step(name)`.
    #[track_caller]
    pub fn step_both(self, name: &str, limit: Duration, text_a: &str, text_b: &str) -> Self {
        assert_eq!(self.vm.topology, Topology::TwoMachines, "step_both is for two machines");
        self.add(name, limit, text_a, Some(text_b))
    }

    #[track_caller]
    fn add(mut self, name: &str, limit: Duration, text: &str, text_b: Option<&str>) -> Self {
        let plain = name.chars().all(|c| c.is_ascii_alphanumeric() || "_-.".contains(c));
        assert!(plain && !name.is_empty(), "a step's name is of letters, digits and _-. only: {name:?}");
        assert!(self.steps.iter().all(|step| step.0 != name), "two steps named {name}");
        self.steps.push((name.to_owned(), limit, text.to_owned(), text_b.map(str::to_owned)));
        self
    }

    /// Runs all steps in one boot. The outcome's status is 0 when every step's is, else 1.
    pub fn run(self) -> Outcome {
        let limits: Duration = self.steps.iter().map(|step| step.1 + Duration::from_secs(3)).sum();
        let two = self.vm.topology == Topology::TwoMachines;
        if self.lanes > 1 {
            assert!(!two, "lanes are for one machine");
            let script = self.in_lanes();
            return self.vm.limit(limits + Duration::from_secs(15)).script(&script).run();
        }
        let (mut a, mut b) = (String::from("failed=0\n"), String::from("failed=0\n"));
        let mut before = 0;
        for (number, (name, limit, text, text_b)) in self.steps.iter().enumerate() {
            let seconds = limit.as_secs().max(1);
            let line = |text: &str| format!("step {name} {seconds} {} || failed=1\n", quoted(&format!("{}{text}", self.setup)));
            if two {
                // the two wait for each other before each step
                let meet = |own, other| format!("tell {number}.{own}; await {number}.{other} {}\n", before + 10);
                a.push_str(&meet("A", "B"));
                b.push_str(&meet("B", "A"));
                b.push_str(&text_b.as_deref().map_or_else(String::new, line));
            }
            a.push_str(&line(text));
            before = seconds;
        }
        a.push_str("exit $failed\n");
        b.push_str("exit $failed\n");
        self.vm.limit(limits + Duration::from_secs(15)).script(&a).script_b(&b).run()
    }
}

impl VmSession {
    /// The script of steps that are run several at a time. A lane takes the next step that none has taken; the output of each is shown as
    /// a whole when it has ended. (A file that must not exist yet is a claim that costs no process.)
    fn in_lanes(&self) -> String {
        let mut script = String::from("one() { case $1 in\n");
        for (number, (name, limit, text, _)) in self.steps.iter().enumerate() {
            let text = quoted(&format!("{}{text}", self.setup));
            script.push_str(&format!("{number}) step {name} {} {text};;\n", limit.as_secs().max(1)));
        }
        script.push_str(&format!(
            "esac; }}
lane() {{
  local n
  for ((n = 0; n < {}; n++)); do
    {{ set -C; : > /run/claim.$n; }} 2>/dev/null || continue
    one $n > /run/output.$n 2>&1 || : >| /run/failed
    flock /run/shown cat /run/output.$n
  done
}}
for ((l = 0; l < {}; l++)); do lane & done
wait
[ ! -e /run/failed ]
",
            self.steps.len(),
            self.lanes
        ));
        script
    }
}

/// A word for the shell.
fn quoted(text: &str) -> String {
    format!("'{}'", text.replace('\'', r"'\''"))
}

fn read(path: &Path) -> String {
    fs::read(path).map(|bytes| String::from_utf8_lossy(&bytes).into_owned()).unwrap_or_default()
}

fn create(path: &Path) -> File {
    File::create(path).unwrap_or_else(|e| panic!("{}: {e}", path.display()))
}

/// A command that gets SIGTERM when the thread that starts it ends.
fn dies_with_us(program: &Path) -> Command {
    let mut command = Command::new("setpriv");
    command.args(["--pdeathsig", "TERM"]).arg(program);
    command
}

/// Waits for the child; past the deadline ends it and returns `None`.
fn wait(child: &mut Child, deadline: Duration) -> Option<ExitStatus> {
    let until = Instant::now() + deadline;
    let ended_by = |child: &mut Child, until: Instant| loop {
        if let Some(status) = child.try_wait().expect("waiting for a child") {
            return Some(status);
        }
        if Instant::now() >= until {
            return None;
        }
        thread::sleep(Duration::from_millis(20));
    };
    if let Some(status) = ended_by(child, until) {
        return Some(status);
    }
    let _ = Command::new("kill").arg(child.id().to_string()).status();
    if ended_by(child, Instant::now() + Duration::from_secs(10)).is_none() {
        let _ = child.kill();
        let _ = child.wait();
    }
    None
}

/// Makes the VM's image once, before any deadline runs: on a fresh machine it is downloaded.
fn make_image(rdma: Rdma) {
    static PLAIN: OnceLock<()> = OnceLock::new();
    static SIW: OnceLock<()> = OnceLock::new();

    let (once, option) = if rdma == Rdma::Siw { (&SIW, Some("--siw")) } else { (&PLAIN, None) };
    once.get_or_init(|| {
        let made = Command::new(repository().join("scripts/vm/mkimage")).args(option).stdin(Stdio::null()).output();
        let made = made.unwrap_or_else(|e| panic!("scripts/vm/mkimage does not start: {e}"));
        assert!(made.status.success(), "no VM image:\n{}", String::from_utf8_lossy(&made.stderr));
    });
}

/// A share of this machine's CPUs: tests run at the same time boot no more VMs than it has CPUs for.
struct Share(usize);

static TAKEN: Mutex<usize> = Mutex::new(0);
static GIVEN_BACK: Condvar = Condvar::new();

impl Share {
    fn take(cpus: usize) -> Self {
        let all = thread::available_parallelism().map_or(1, usize::from);
        let cpus = cpus.min(all);
        let taken = TAKEN.lock().unwrap_or_else(|e| e.into_inner());
        let mut taken = GIVEN_BACK.wait_while(taken, |taken| *taken + cpus > all).unwrap_or_else(|e| e.into_inner());
        *taken += cpus;
        Self(cpus)
    }
}

impl Drop for Share {
    fn drop(&mut self) {
        *TAKEN.lock().unwrap_or_else(|e| e.into_inner()) -= self.0;
        GIVEN_BACK.notify_all();
    }
}
