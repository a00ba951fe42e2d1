//! Which programs fork with connections, so that these begin on TCP and move to a fabric when they are first used: `RDMAV_FORK_SAFE`
//! (PROTOCOL.md 3), `RSOCKET_DEFER` and the file `fork_programs`.

use std::{ffi::OsString, os::unix::ffi::OsStrExt, path::Path};

use super::{
    directory,
    file::{self, printable},
    policy::is_named,
    program, variable, warn,
};
use crate::sys::once::Once;

/// Longest `fork_programs` in bytes; what is behind is ignored with a warning.
const LONGEST_FILE: usize = 64 << 10;

/// When a connection takes its way.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Deferral {
    /// In connect and accept.
    #[default]
    Off,
    /// When it is first used, if the peer is this library.
    Own,
    /// Also if the peer is the shipped library, which finds out by four zero bytes.
    Shipped,
}

impl Deferral {
    /// Whether connections begin on TCP.
    pub fn is_on(self) -> bool {
        self != Deferral::Off
    }

    /// What the variables of `env` say, and the file in `dir` of the program.
    pub fn load(dir: &Path, env: &dyn Fn(&str) -> Option<OsString>, program: &str, warn: &mut dyn FnMut(String)) -> Self {
        let mut flag = |name: &str, any_number: bool| {
            let value = env(name)?;
            match value.as_bytes().trim_ascii() {
                b"" | b"0" => Some(false),
                b"1" => Some(true),
                digits if any_number && digits.iter().all(u8::is_ascii_digit) => Some(digits.iter().any(|digit| *digit != b'0')),
                text => {
                    warn(format!("{name}: `{}` is neither 0 nor 1; it is ignored", printable(text)));
                    None
                }
            }
        };
        // The shipped library takes any other number for 1.
        let (own, shipped) = (flag("RSOCKET_DEFER", false), flag("RDMAV_FORK_SAFE", true));
        match (own, shipped) {
            (Some(false), _) => Deferral::Off,
            (_, Some(true)) => Deferral::Shipped,
            (Some(true), _) => Deferral::Own,
            (None, _) if is_listed(&dir.join("fork_programs"), program, warn) => Deferral::Own,
            (None, _) => Deferral::Off,
        }
    }
}

/// Whether a line of the file names the program.
fn is_listed(path: &Path, program: &str, warn: &mut dyn FnMut(String)) -> bool {
    let Some(text) = file::text(path, LONGEST_FILE, warn) else { return false };
    let mut listed = false;
    for (number, line) in file::lines(&text) {
        match core::str::from_utf8(line).ok().filter(|name| !name.contains(char::is_whitespace)) {
            Some(name) => listed |= is_named(name.trim_end_matches('*'), program),
            None => warn(format!("{}:{number}: `{}` is not one word; the line is skipped", path.display(), printable(line))),
        }
    }
    listed
}

static DEFERRAL: Once<Deferral> = Once::new();

/// When the connections of this process take their way. The first call reads the settings.
pub fn deferral() -> Deferral {
    *DEFERRAL.get_or_init(|| Deferral::load(&directory(), &variable, program(), &mut warn))
}

/// Whether they begin on TCP, as far as it is known: reads nothing.
pub fn is_deferral_on() -> bool {
    DEFERRAL.get().is_some_and(|deferral| deferral.is_on())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::tests::Dir;

    fn load(variables: &[(&str, &str)], file: Option<&[u8]>) -> (Deferral, usize) {
        let dir = Dir::new(&format!("deferral-{}", std::thread::current().name().unwrap().replace(':', "-")));
        if let Some(text) = file {
            dir.put("fork_programs", text);
        }
        let env = |name: &str| variables.iter().find(|(known, _)| *known == name).map(|(_, value)| OsString::from(value));
        let mut warnings = 0;
        (Deferral::load(dir.path(), &env, "postgres", &mut |_| warnings += 1), warnings)
    }

    #[test]
    fn variables() {
        let (fork_safe, defer) = ("RDMAV_FORK_SAFE", "RSOCKET_DEFER");
        assert_eq!(load(&[], None), (Deferral::Off, 0));
        assert_eq!(load(&[(fork_safe, "1")], None), (Deferral::Shipped, 0));
        assert_eq!(load(&[(fork_safe, "0")], None), (Deferral::Off, 0));
        assert_eq!(load(&[(fork_safe, "")], None), (Deferral::Off, 0));
        assert_eq!(load(&[(defer, "1")], None), (Deferral::Own, 0));
        assert_eq!(load(&[(defer, "1"), (fork_safe, "1")], None), (Deferral::Shipped, 0));
        assert_eq!(load(&[(defer, "0"), (fork_safe, "1")], Some(b"*")), (Deferral::Off, 0));
        assert_eq!(load(&[(fork_safe, "2")], None), (Deferral::Shipped, 0));
        assert_eq!(load(&[(fork_safe, "00")], None), (Deferral::Off, 0));
        for wrong in ["yes", "2", "-1", "1 1"] {
            assert_eq!(load(&[(defer, wrong)], None), (Deferral::Off, 1), "{wrong}");
        }
    }

    #[test]
    fn programs() {
        assert_eq!(load(&[], Some(b"# servers\napache2\npostgres  # all of them\n")), (Deferral::Own, 0));
        assert_eq!(load(&[], Some(b"post*\n")), (Deferral::Own, 0));
        assert_eq!(load(&[], Some(b"*")), (Deferral::Own, 0));
        assert_eq!(load(&[], Some(b"nginx\nsshd\n")), (Deferral::Off, 0));
        assert_eq!(load(&[], Some(b"two words\n\xff\n")).1, 2);
    }
}
