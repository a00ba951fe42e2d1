//! `rsocket run`: becomes the program, with the library preloaded.

use std::{
    env,
    ffi::{OsStr, OsString},
    fmt, io,
    os::unix::process::CommandExt,
    path::{Path, PathBuf},
    process::Command,
};

use crate::library::{self, Missing};

/// What to run, and how.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct Request {
    pub(crate) program: OsString,
    pub(crate) arguments: Vec<OsString>,
    pub(crate) stats: Option<PathBuf>,
    pub(crate) log: Option<String>,
}

/// Why the program does not run.
#[derive(Debug)]
pub(crate) enum Failure {
    /// No library.
    Library(Missing),
    /// The program's counters cannot be written there.
    Stats(PathBuf, io::Error),
    /// No program.
    Program(OsString, io::Error),
}

impl Failure {
    /// As env(1), nohup(1) and others have it.
    pub(crate) fn exit_code(&self) -> u8 {
        match self {
            Failure::Program(_, error) if error.kind() == io::ErrorKind::NotFound => 127,
            Failure::Program(..) => 126,
            Failure::Library(_) | Failure::Stats(..) => crate::FAILED,
        }
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Failure::Library(missing) => missing.fmt(f),
            Failure::Stats(path, error) => write!(f, "--stats {}: {}", path.display(), reason(error)),
            Failure::Program(program, error) => write!(f, "{}: {}", program.display(), reason(error)),
        }
    }
}

/// What strerror(3) says of an error, without the number that Rust adds.
pub(crate) fn reason(error: &io::Error) -> String {
    let text = error.to_string();
    let number = error.raw_os_error().map(|number| format!(" (os error {number})"));
    number.and_then(|number| text.strip_suffix(&number).map(str::to_owned)).unwrap_or(text)
}

/// Becomes the program. Returns only when that fails.
pub(crate) fn run(request: &Request) -> Failure {
    match prepare(request) {
        Ok(mut command) => Failure::Program(request.program.clone(), command.exec()),
        Err(failure) => failure,
    }
}

fn prepare(request: &Request) -> Result<Command, Failure> {
    let library = library::find().map_err(Failure::Library)?;
    let mut command = Command::new(&request.program);
    command.args(&request.arguments).env("LD_PRELOAD", prepended(&library, env::var_os("LD_PRELOAD").as_deref()));
    if let Some(stats) = &request.stats {
        command.env("RSOCKET_STATS", stats_target(stats).map_err(|error| Failure::Stats(stats.clone(), error))?);
    }
    if let Some(log) = &request.log {
        command.env("RSOCKET_LOG", log);
    }
    Ok(command)
}

/// The value of RSOCKET_STATS: a file by its absolute path, since the program may change its directory. `-` and nothing at all mean
/// standard error, and stay as they are.
fn stats_target(stats: &Path) -> io::Result<PathBuf> {
    match stats.as_os_str().as_encoded_bytes() {
        b"" | b"-" => Ok(stats.to_owned()),
        _ => std::path::absolute(stats),
    }
}

/// LD_PRELOAD with the library first: its hooks are the ones called.
fn prepended(library: &Path, before: Option<&OsStr>) -> OsString {
    let mut value = library.as_os_str().to_owned();
    if let Some(before) = before.filter(|before| !before.is_empty()) {
        value.push(":");
        value.push(before);
    }
    value
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn first_in_ld_preload() {
        let library = Path::new("/l/librspreload.so");
        assert_eq!(prepended(library, None), "/l/librspreload.so");
        assert_eq!(prepended(library, Some(OsStr::new(""))), "/l/librspreload.so");
        assert_eq!(prepended(library, Some(OsStr::new("/j.so /k.so"))), "/l/librspreload.so:/j.so /k.so");
    }

    #[test]
    fn counters_go_to_standard_error_or_an_absolute_path() {
        let target = |stats: &str| stats_target(Path::new(stats)).unwrap();
        assert_eq!((target("-"), target("")), (PathBuf::from("-"), PathBuf::new()));
        assert_eq!(target("/tmp/s.%p"), PathBuf::from("/tmp/s.%p"));
        let here = env::current_dir().unwrap();
        assert_eq!((target("s.%p"), target("./-")), (here.join("s.%p"), here.join("-")));
    }

    #[test]
    fn messages_have_no_error_number() {
        let error = || io::Error::from_raw_os_error(2);
        assert_eq!(reason(&error()), "No such file or directory");
        assert_eq!(reason(&io::Error::other("odd (os error 2)")), "odd (os error 2)");
        assert_eq!(Failure::Program("x".into(), error()).to_string(), "x: No such file or directory");
        assert_eq!(Failure::Stats("x".into(), error()).to_string(), "--stats x: No such file or directory");
        let named = Failure::Library(Missing::Named("/x".into(), error()));
        assert_eq!(named.to_string(), "RSOCKET_PRELOAD=/x: No such file or directory");
    }

    #[test]
    fn exit_codes() {
        let program = |kind| Failure::Program("x".into(), io::Error::from(kind)).exit_code();
        assert_eq!((program(io::ErrorKind::NotFound), program(io::ErrorKind::PermissionDenied)), (127, 126));
        assert_eq!(Failure::Library(Missing::Nowhere(vec![])).exit_code(), 125);
    }
}
