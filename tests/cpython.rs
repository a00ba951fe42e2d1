//! CPython's own tests of sockets and of what is built on them, with Debian's python3 on this machine, and `cpython/test_servers.py`, which is
//! of the same kind: each suite runs plain and preloaded, and each test has to come out the same. Counters tell that the preloaded ones were connected through shared memory.
//!
//! What does not come out the same stands in `cpython/differences.txt`, with its reason; what stands there and has vanished fails as well.
//! `RSOCKET_TEST_SUITES=test_ssl,test_socket` selects suites.

mod support;

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Mutex;
use std::time::Duration;
use std::{env, fs, thread};

use support::{Ended, Program, Scratch, repository};

/// Debian's: it has its tests in a package (scripts/setup).
const PYTHON: &str = "/usr/bin/python3";

/// No suite takes half of it.
const LIMIT: Duration = Duration::from_secs(150);

/// Suites at a time: nearly all of their time they wait.
const LANES: usize = 5;

/// Some of CPython's tests.
struct Suite {
    name: &'static str,
    /// More of the command line: which of its tests.
    options: &'static [&'static str],
    /// Whether it makes connections that can go over shared memory.
    connects: bool,
}

const fn suite(name: &'static str) -> Suite {
    Suite { name, options: &[], connects: true }
}

const fn part(name: &'static str, options: &'static [&'static str]) -> Suite {
    Suite { name, options, connects: true }
}

/// Nothing of it is a stream over IPv4 or IPv6 which is connected: that the library stays out of it is what is tested.
const fn aside(name: &'static str) -> Suite {
    Suite { name, options: &[], connects: false }
}

/// The longest ones first.
const SUITES: &[Suite] = &[
    suite("test_ssl"),
    // Of four loops that differ in the selector, the one that programs get. Each takes half a minute of processor time, and the selectors
    // have tests of their own.
    part("test_asyncio.test_events", &["-m", "test.test_asyncio.test_events.EPollEventLoopTests.*"]),
    // Where the machine is a virtual one whose host has no AF_VSOCK, these wait for ever.
    part("test_socket", &["-i", "test.test_socket.ThreadedVSOCKSocketStreamTest.*"]),
    suite("test_imaplib"),
    suite("test_xmlrpc"),
    suite("test_asyncio.test_ssl"),
    suite("test_asyncio.test_sendfile"),
    suite("test_asyncio.test_sock_lowlevel"),
    suite("test_asyncio.test_streams"),
    suite("test_asyncio.test_sslproto"),
    aside("test_selectors"),
    suite("test_ftplib"),
    aside("test_poll"),
    suite("test_poplib"),
    // Not without this resource, though it needs no other host.
    part("test_socketserver", &["-u", "network"]),
    aside("test_select"),
    suite("test_servers"),
    suite("test_asyncio.test_buffered_proto"),
    suite("test_asyncio.test_server"),
    suite("test_asyncio.test_unix_events"),
    suite("test_asyncore"),
    suite("test_asynchat"),
    suite("test_epoll"),
    suite("test_httplib"),
    suite("test_httpservers"),
    suite("test_docxmlrpc"),
    suite("test_smtplib"),
    aside("test_smtpd"),
    suite("test_nntplib"),
    suite("test_robotparser"),
    suite("test_telnetlib"),
    suite("test_urllib2_localnet"),
    suite("test_wsgiref"),
    // The rest has nothing to do with sockets.
    part("test_logging", &["-m", "test.test_logging.S*HandlerTest.*", "-m", "test.test_logging.HTTPHandlerTest.*"]),
    part("test_os", &["-m", "test.test_os.TestSendfile.*"]),
];

/// Each test's name with what came of it.
type Outcomes = BTreeMap<String, String>;

/// How a suite of this name ran.
struct Run {
    outcomes: Outcomes,
    ended: Ended,
}

impl Suite {
    fn run(&self, preloaded: bool) -> Result<Run, String> {
        // Below /tmp: the names of Unix sockets are short.
        let scratch = Scratch::public();
        let results = scratch.path("results.xml");
        let mut words = vec![PYTHON, "-m", "test", "-v", "--timeout", "100", "--junit-xml", results.to_str().expect("a name")];
        words.extend(self.options);
        let folder = repository().join("tests/cpython");
        let own = folder.join(format!("{}.py", self.name)).exists();
        if own {
            words.extend(["--testdir", folder.to_str().expect("a name")]);
        }
        words.push(self.name);
        let program = Program::new(&scratch, "python", &words).env("TMPDIR", scratch.path("")).env("PYTHONDONTWRITEBYTECODE", "1");
        let program = if preloaded { program.preloaded() } else { program };
        let ended = program.run(LIMIT);
        match outcomes(&results) {
            Some(outcomes) if !outcomes.is_empty() => Ok(Run { outcomes, ended }),
            _ => Err(format!("{}: no results: {}", self.name, ended.report())),
        }
    }

    /// What differs, as lines of the list without their reasons, and what is wrong beside that.
    fn compare(&self) -> Result<Vec<String>, String> {
        let (plain, preloaded) = (self.run(false)?, self.run(true)?);
        let of = |name| preloaded.ended.counters.get(name);
        let connected = of("connected_shm");
        let Self { name, connects, .. } = self;
        println!(
            "  {name}: {} tests, plain {:.1} s, preloaded {:.1} s; {connected} connections over shared memory, {} over TCP",
            preloaded.outcomes.len(),
            plain.ended.seconds,
            preloaded.ended.seconds,
            of("connected_kernel"),
        );
        if (connected > 0) != *connects {
            return Err(format!("{name}: {connected} connections over shared memory: {}", preloaded.ended.report()));
        }
        Ok(differences(&plain.outcomes, &preloaded.outcomes))
    }

    /// As [`Suite::compare`]; what is not as it is listed is looked at a second time, as the tests have little patience where the machine
    /// has much to do.
    fn judge(&self, listed: &[String]) -> Result<Vec<String>, String> {
        match self.compare() {
            Ok(found) if self.listed(listed).eq(found.iter()) => Ok(found),
            first => {
                println!("tried again: {first:?}");
                self.compare()
            }
        }
    }

    /// Those lines of the list that concern this suite.
    fn listed<'a>(&self, all: &'a [String]) -> impl Iterator<Item = &'a String> {
        let start = format!("{}.", self.name);
        all.iter().filter(move |line| line.strip_prefix("test.").unwrap_or(line).starts_with(&start))
    }
}

/// Reads what `--junit-xml` has written: elements `testcase` with a name, and within one an element that tells if it has not passed. Text
/// within has no `<`.
fn outcomes(file: &Path) -> Option<Outcomes> {
    let text = fs::read_to_string(file).ok()?;
    let mut outcomes = Outcomes::new();
    for case in text.split("<testcase ").skip(1) {
        let name = case.split("name=\"").nth(1)?.split('"').next()?;
        let failures = [("<error", "error"), ("<failure", "failure"), ("<skipped", "skipped")];
        let outcome = failures.iter().find(|(element, _)| case.contains(element)).map_or("passed", |(_, outcome)| outcome);
        // A test with parts may be there several times.
        let of_name = outcomes.entry(name.to_owned()).or_default();
        if !of_name.is_empty() {
            of_name.push('+');
        }
        of_name.push_str(outcome);
    }
    Some(outcomes)
}

fn differences(plain: &Outcomes, preloaded: &Outcomes) -> Vec<String> {
    let mut names: Vec<&String> = plain.keys().chain(preloaded.keys()).collect();
    names.sort();
    names.dedup();
    let of = |outcomes: &Outcomes, name: &String| outcomes.get(name).cloned().unwrap_or_else(|| "absent".to_owned());
    let pairs = names.into_iter().map(|name| (name, of(plain, name), of(preloaded, name)));
    pairs
        .filter(|(_, plain, preloaded)| plain != preloaded)
        .map(|(name, plain, preloaded)| format!("{name}: {plain}, {preloaded}"))
        .collect()
}

/// The lines of the list without their reasons, sorted. Each has one.
fn listed() -> Vec<String> {
    let path = repository().join("tests/cpython/differences.txt");
    let text = fs::read_to_string(&path).unwrap_or_else(|e| panic!("{}: {e}", path.display()));
    let lines = text.lines().filter(|line| !line.is_empty() && !line.starts_with('#'));
    let split = |line: &str| {
        let (difference, reason) = line.split_once(" - ").unwrap_or_else(|| panic!("no reason in {line:?}"));
        assert!(!reason.trim().is_empty(), "no reason in {line:?}");
        difference.trim().to_owned()
    };
    let mut listed: Vec<String> = lines.map(split).collect();
    listed.sort();
    listed
}

fn selected() -> Vec<&'static Suite> {
    let only = env::var("RSOCKET_TEST_SUITES").unwrap_or_default();
    let selected: Vec<_> = SUITES.iter().filter(|suite| only.is_empty() || only.split(',').any(|name| name == suite.name)).collect();
    assert!(!selected.is_empty(), "no suite is named so: {only}");
    selected
}

#[test]
fn tests_of_cpython_come_out_the_same() {
    let (listed, suites) = (listed(), selected());
    let queue = Mutex::new(suites.iter());
    let next = || queue.lock().expect("the queue").next();
    let judge = |suite: &&&Suite| match suite.judge(&listed) {
        Err(wrong) => vec![wrong],
        Ok(found) => {
            let vanished = suite.listed(&listed).filter(|line| !found.contains(line)).map(|line| format!("is no more: {line}"));
            let new = found.iter().filter(|line| !listed.contains(line)).map(|line| format!("is not listed: {line}"));
            vanished.chain(new).collect()
        }
    };
    let lane = || std::iter::from_fn(next).flat_map(|suite| judge(&suite)).collect::<Vec<_>>();
    let complaints: Vec<String> = thread::scope(|scope| {
        let lanes: Vec<_> = (0..LANES).map(|_| scope.spawn(lane)).collect();
        lanes.into_iter().flat_map(|lane| lane.join().expect("a lane")).collect()
    });
    assert!(complaints.is_empty(), "plain, preloaded:\n{}", complaints.join("\n"));
}

#[test]
fn every_listed_difference_is_of_a_suite_that_runs() {
    let strays: Vec<String> =
        listed().into_iter().filter(|line| SUITES.iter().all(|suite| suite.listed(std::slice::from_ref(line)).next().is_none())).collect();
    assert!(strays.is_empty(), "no suite has these: {strays:?}");
}
