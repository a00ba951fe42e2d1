//! The table: each test puts down the rows that it has seen to be true, and compares them with those of the README.
//!
//! `target/matrix.md` has the rows of the last run of each test. `RSOCKET_MATRIX=write` puts them into the README.

use std::env;
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};

use crate::stage::{Mode, Way};
use crate::support::{repository, target_dir};

/// All tests that have rows, in the order of the table, and the programs that these are about.
pub const FAMILIES: &[(&str, &[&str])] = &[
    ("iperf", &["iperf", "iperf3"]),
    ("sockperf", &["sockperf"]),
    ("qperf", &["qperf"]),
    ("netcat", &["nc (OpenBSD)", "nc (traditional)", "socat"]),
    ("redis", &["redis"]),
    ("memcached", &["memcached"]),
    ("nginx", &["nginx"]),
    ("haproxy", &["haproxy"]),
    ("lighttpd", &["lighttpd"]),
    ("postgresql", &["PostgreSQL"]),
    ("mariadb", &["MariaDB"]),
    ("python", &["python3"]),
    ("java", &["java"]),
    ("node", &["node"]),
];

const HEAD: &str = "| program | what it did | over shared memory | what it said |\n| --- | --- | --- | --- |\n";
const BEGIN: &str = "<!-- matrix: written by `RSOCKET_MATRIX=write cargo test --test matrix` -->\n";
const END: &str = "<!-- end of matrix -->\n";

static TURN: Mutex<()> = Mutex::new(());

/// The rows of one test.
pub struct Table {
    family: &'static str,
    programs: &'static [&'static str],
    rows: Vec<String>,
}

impl Table {
    pub fn new(family: &'static str) -> Self {
        let (_, programs) = FAMILIES.iter().find(|(name, _)| *name == family).expect("a family of the list");
        Self { family, programs, rows: Vec::new() }
    }

    /// A row that has been seen to be true. Nothing in it may be another next time.
    pub fn row(&mut self, program: &str, what: &str, way: &Way, result: &str) {
        assert!(self.programs.contains(&program), "{program} is not of {}", self.family);
        self.rows.push(format!("| {program} | {what} | {} | {result} |\n", way.cell()));
    }

    /// Writes them down; fails if the README says something else.
    #[track_caller]
    pub fn publish(self) {
        if Mode::get() != Mode::Default {
            return;
        }
        let _turn = TURN.lock().unwrap_or_else(PoisonError::into_inner);
        let folder = target_dir().join("matrix");
        fs::create_dir_all(&folder).unwrap_or_else(|e| panic!("{}: {e}", folder.display()));
        let rows = self.rows.concat();
        write(&folder.join(self.family), &rows);
        let table =
            HEAD.to_owned() + &FAMILIES.iter().filter_map(|(family, _)| fs::read_to_string(folder.join(family)).ok()).collect::<String>();
        write(&target_dir().join("matrix.md"), &table);
        if env::var("RSOCKET_MATRIX").is_ok_and(|word| word == "write") {
            let readme = read(&readme());
            let (before, _, after) = parts(&readme);
            write(&self::readme(), &format!("{before}{BEGIN}{table}{END}{after}"));
            return;
        }
        let (_, found) = in_readme().into_iter().partition::<Vec<_>, _>(|(program, _)| !self.programs.contains(&program.as_str()));
        let found: Vec<String> = found.into_iter().map(|(_, row)| row).collect();
        assert_eq!(found, self.rows, "the README's rows and those of this run, which RSOCKET_MATRIX=write puts there");
    }
}

/// The rows of the README, with their programs.
pub fn in_readme() -> Vec<(String, String)> {
    let readme = read(&readme());
    let (_, table, _) = parts(&readme);
    let rows = table.strip_prefix(HEAD).unwrap_or_else(|| panic!("the README's table has another head:\n{table}"));
    let program = |row: &str| row.split('|').nth(1).unwrap_or_default().trim().to_owned();
    rows.split_inclusive('\n').map(|row| (program(row), row.to_owned())).collect()
}

/// The README before the table, the table, and what comes after it.
fn parts(readme: &str) -> (&str, &str, &str) {
    let (before, rest) = readme.split_once(BEGIN).expect("the mark before the table");
    let (table, after) = rest.split_once(END).expect("the mark after the table");
    (before, table, after)
}

fn readme() -> PathBuf {
    repository().join("README.md")
}

fn read(path: &Path) -> String {
    fs::read_to_string(path).unwrap_or_else(|e| panic!("{}: {e}", path.display()))
}

fn write(path: &Path, text: &str) {
    fs::write(path, text).unwrap_or_else(|e| panic!("{}: {e}", path.display()));
}
