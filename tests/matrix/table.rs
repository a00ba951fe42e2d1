//! The table: each test puts down the rows that it has seen to be true, and compares them with those of the README.
//!
//! `RSOCKET_MATRIX=write` puts them into the README.

use std::env;
use std::fs;
use std::path::PathBuf;
use std::sync::{Mutex, PoisonError};

use crate::stage::{Mode, Way};
use crate::support::repository;
use crate::{languages, measuring, netcat, stores, web};

/// A test that has rows.
pub struct Family {
    pub name: &'static str,
    /// The programs that it is about.
    pub programs: &'static [&'static str],
    pub run: fn(),
}

const fn family(name: &'static str, programs: &'static [&'static str], run: fn()) -> Family {
    Family { name, programs, run }
}

/// All of them, in the order of the table.
pub static FAMILIES: [Family; 14] = [
    family("iperf", &["iperf", "iperf3"], measuring::iperf),
    family("sockperf", &["sockperf"], measuring::sockperf),
    family("qperf", &["qperf"], measuring::qperf),
    family("netcat", &["nc (OpenBSD)", "nc (traditional)", "socat"], netcat::netcat),
    family("redis", &["redis"], stores::redis),
    family("memcached", &["memcached"], stores::memcached),
    family("nginx", &["nginx"], web::nginx),
    family("haproxy", &["haproxy"], web::haproxy),
    family("lighttpd", &["lighttpd"], web::lighttpd),
    family("postgresql", &["PostgreSQL"], stores::postgresql),
    family("mariadb", &["MariaDB"], stores::mariadb),
    family("python", &["python3"], languages::python),
    family("java", &["java"], languages::java),
    family("node", &["node"], languages::node),
];

/// The family of this name.
#[track_caller]
pub fn named(name: &str) -> &'static Family {
    FAMILIES.iter().find(|family| family.name == name).unwrap_or_else(|| panic!("no family {name}"))
}

const HEAD: &str = "| program | what it did | over shared memory | over RDMA | what it said |\n| --- | --- | --- | --- | --- |\n";
const BEGIN: &str = "<!-- matrix: written by `RSOCKET_MATRIX=write cargo test --test matrix`, then `--test matrix_vm` -->\n";
const END: &str = "<!-- end of matrix -->\n";
/// Before the rows that a program in a VM tells the test that has started it.
pub const MARK: &str = "@@row ";

pub static TURN: Mutex<()> = Mutex::new(());

/// A row: which way the program went is known for one fabric, the other's cell is the README's.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Row {
    pub program: String,
    pub what: String,
    pub shm: String,
    pub verbs: String,
    pub said: String,
}

impl Row {
    pub fn parse(line: &str) -> Option<Self> {
        let cells: Vec<String> = line.trim().strip_prefix("| ")?.strip_suffix(" |")?.split(" | ").map(str::to_owned).collect();
        let [program, what, shm, verbs, said] = <[String; 5]>::try_from(cells).ok()?;
        Some(Self { program, what, shm, verbs, said })
    }

    fn line(&self) -> String {
        let Self { program, what, shm, verbs, said } = self;
        format!("| {program} | {what} | {shm} | {verbs} | {said} |\n")
    }
}

/// The rows of one test.
pub struct Table {
    family: &'static Family,
    rows: Vec<Row>,
}

impl Table {
    pub fn new(family: &'static str) -> Self {
        Self { family: named(family), rows: Vec::new() }
    }

    /// A row that has been seen to be true. Nothing in it may be another next time.
    pub fn row(&mut self, program: &str, what: &str, way: &Way, said: &str) {
        assert!(self.family.programs.contains(&program), "{program} is not of {}", self.family.name);
        let [program, what, said] = [program, what, said].map(str::to_owned);
        let (shm, verbs) = if Mode::get() == Mode::Verbs { (String::new(), way.cell()) } else { (way.cell(), String::new()) };
        self.rows.push(Row { program, what, shm, verbs, said });
    }

    /// Writes them down; fails if the README says something else.
    #[track_caller]
    pub fn publish(mut self) {
        match Mode::get() {
            Mode::Plain | Mode::Kernel => return,
            Mode::Verbs => return self.rows.iter().for_each(|row| print!("\n{MARK}{}", row.line())),
            Mode::Default => {}
        }
        let _turn = TURN.lock().unwrap_or_else(PoisonError::into_inner);
        let (before, known, after) = in_readme();
        for row in &mut self.rows {
            let same = known.iter().find(|known| known.program == row.program && known.what == row.what);
            row.verbs = same.map_or_else(String::new, |known| known.verbs.clone());
        }
        put(self.family, &self.rows, (&before, &known, &after));
    }
}

/// Puts the rows of a family in their place in the README, or fails if they are not those which are there.
#[track_caller]
pub fn put(family: &Family, rows: &[Row], (before, known, after): (&str, &[Row], &str)) {
    if env::var("RSOCKET_MATRIX").is_ok_and(|word| word == "write") {
        let mut table = String::from(HEAD);
        for other in &FAMILIES {
            let of = |row: &&Row| other.programs.contains(&row.program.as_str());
            let lines = if other.name == family.name {
                rows.iter().map(Row::line).collect()
            } else {
                known.iter().filter(of).map(Row::line).collect::<String>()
            };
            table.push_str(&lines);
        }
        fs::write(readme(), format!("{before}{BEGIN}{table}{END}{after}")).expect("the README");
        return;
    }
    let found: Vec<&Row> = known.iter().filter(|row| family.programs.contains(&row.program.as_str())).collect();
    assert_eq!(found, rows.iter().collect::<Vec<_>>(), "the README's rows and those of this run, which RSOCKET_MATRIX=write puts there");
}

/// The README before the table, its rows, and what comes after them.
pub fn in_readme() -> (String, Vec<Row>, String) {
    let text = fs::read_to_string(readme()).expect("the README");
    let (before, rest) = text.split_once(BEGIN).expect("the mark before the table");
    let (table, after) = rest.split_once(END).expect("the mark after the table");
    let lines = table.strip_prefix(HEAD).unwrap_or_else(|| panic!("the README's table has another head:\n{table}")).lines();
    let rows = lines.map(|line| Row::parse(line).unwrap_or_else(|| panic!("not a row: {line}"))).collect();
    (before.to_owned(), rows, after.to_owned())
}

fn readme() -> PathBuf {
    repository().join("README.md")
}
