//! `preload_config`: which sockets of which programs are taken over (PROTOCOL.md 4).

use std::path::Path;

use crate::sys::once::Once;

use super::{
    directory,
    file::{self, Content, printable},
    warn,
};

/// Longest file in bytes; what is behind is ignored with a warning.
const LONGEST_FILE: usize = 64 << 10;

/// Most lines that are kept.
const MOST_LINES: usize = 1024;

/// The kernel cuts `/proc/self/comm` to this many bytes.
const LONGEST_NAME: usize = 15;

/// Programs that go on in one process with a connection that another one has begun to use, which TCP alone can: sshd has its first lines from the
/// process that has accepted, keys and the client's name from a child without rights, in a sandbox, and the session from a third one. (Before
/// OpenSSH 9.8 all of them are called sshd.) They are left to the kernel unless a line has their name.
const HANDS_ON: &[&str] = &["sshd", "sshd-session", "sshd-auth"];

/// Address family of InfiniBand addresses, which libc does not name.
const AF_IB: i32 = 27;

/// The flags that socket(2) takes with the type.
const TYPE_FLAGS: i32 = libc::SOCK_NONBLOCK | libc::SOCK_CLOEXEC;

/// The lines of `preload_config`. Without any line everything is allowed (but see [`HANDS_ON`]). A line that is wrong allows nothing, but it is a line: a list
/// that was made to keep programs out must not let them in for a typing mistake.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PreloadConfig {
    lines: Vec<Line>,
    restricts: bool,
}

/// One line; `None` is the wildcard.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Line {
    program: Option<String>,
    domain: Option<i32>,
    socktype: Option<i32>,
    protocol: Option<i32>,
}

impl PreloadConfig {
    /// Reads the file in `dir`. Missing or unreadable (a warning): everything is allowed.
    pub fn load(dir: &Path, warn: &mut dyn FnMut(String)) -> Self {
        let path = dir.join("preload_config");
        let Some(text) = file::text(&path, LONGEST_FILE, warn) else { return PreloadConfig::default() };
        PreloadConfig::parse(&text, &path.display().to_string(), warn)
    }

    /// Takes the lines of `text`; `name` is the file's, for warnings. Bad lines are skipped with a warning.
    pub fn parse(text: &[u8], name: &str, warn: &mut dyn FnMut(String)) -> Self {
        let (mut lines, mut restricts) = (Vec::new(), false);
        for (number, content) in file::lines(text) {
            restricts = true;
            match Line::parse(content) {
                Ok(_) if lines.len() >= MOST_LINES => {
                    warn(format!("{name}:{number}: only {MOST_LINES} lines are kept"));
                    break;
                }
                Ok(line) => lines.push(line),
                Err(why) => warn(format!("{name}:{number}: `{}`: {why}; the line is skipped", printable(content))),
            }
        }
        if restricts && lines.is_empty() {
            warn(format!("{name}: no line is left; no socket is taken over"));
        }
        PreloadConfig { lines, restricts }
    }

    /// Whether a socket with these arguments of socket(2) is taken over in a program with this short name. Flags in `socktype`
    /// do not count; a `protocol` of 0 means the usual one of the type.
    pub fn allows(&self, program: &str, domain: i32, socktype: i32, protocol: i32) -> bool {
        let socktype = socktype & !TYPE_FLAGS;
        let protocol = match (protocol, socktype) {
            (0, libc::SOCK_STREAM) => libc::IPPROTO_TCP,
            (0, libc::SOCK_DGRAM) => libc::IPPROTO_UDP,
            _ => protocol,
        };
        let by_name = |line: &&Line| !HANDS_ON.contains(&program) || line.program.as_deref() == Some(program);
        let allowing = |line: &Line| line.matches(program, domain, socktype, protocol);
        !self.restricts && !HANDS_ON.contains(&program) || self.lines.iter().filter(by_name).any(allowing)
    }

    /// Whether a line asks by name for the datagrams of this program: a wildcard is no such wish, as what comes first to a plain peer may be
    /// none of its protocol.
    pub fn asks_for_datagrams(&self, program: &str, domain: i32) -> bool {
        let by_name = |line: &&Line| line.socktype == Some(libc::SOCK_DGRAM) || line.protocol == Some(libc::IPPROTO_UDP);
        self.lines.iter().filter(by_name).any(|line| line.matches(program, domain, libc::SOCK_DGRAM, libc::IPPROTO_UDP))
    }
}

impl Line {
    fn parse(content: &[u8]) -> Result<Self, &'static str> {
        let text = core::str::from_utf8(content).map_err(|_| "not text")?;
        let mut words = text.split_ascii_whitespace();
        let mut next = || words.next().ok_or("four words are needed: program domain type protocol");
        let (program, domain, socktype, protocol) = (next()?, next()?, next()?, next()?);
        if words.next().is_some() {
            return Err("more than four words");
        }
        let program = program.trim_end_matches('*');
        Ok(Line {
            program: Some(program).filter(|program| !program.is_empty()).map(str::to_owned),
            domain: word(domain, &["AF_", "PF_"], &[("INET", libc::AF_INET), ("INET6", libc::AF_INET6), ("IB", AF_IB)])
                .ok_or("the domain is not INET, INET6, IB or *")?,
            socktype: word(socktype, &["SOCK_"], &[("STREAM", libc::SOCK_STREAM), ("DGRAM", libc::SOCK_DGRAM)])
                .ok_or("the type is not STREAM, DGRAM or *")?,
            protocol: word(protocol, &["IPPROTO_"], &[("TCP", libc::IPPROTO_TCP), ("UDP", libc::IPPROTO_UDP)])
                .ok_or("the protocol is not TCP, UDP or *")?,
        })
    }

    fn matches(&self, program: &str, domain: i32, socktype: i32, protocol: i32) -> bool {
        let same = |wanted: Option<i32>, given: i32| wanted.is_none_or(|wanted| wanted == given);
        let named = self.program.as_deref().is_none_or(|wanted| is_named(wanted, program));
        named && same(self.domain, domain) && same(self.socktype, socktype) && same(self.protocol, protocol)
    }
}

/// Whether the short name of a program begins with what a line says.
pub(super) fn is_named(wanted: &str, program: &str) -> bool {
    // A name that the kernel has cut can only be compared as far as it goes.
    program.starts_with(wanted) || (program.len() >= LONGEST_NAME && wanted.starts_with(program))
}

/// `Some(None)` for the wildcard, `Some(value)` for a known word in any case, with or without a prefix.
fn word(text: &str, prefixes: &[&str], known: &[(&str, i32)]) -> Option<Option<i32>> {
    if text == "*" {
        return Some(None);
    }
    let text = text.to_ascii_uppercase();
    let bare = prefixes.iter().find_map(|prefix| text.strip_prefix(prefix)).unwrap_or(&text);
    known.iter().find(|(name, _)| *name == bare).map(|(_, value)| Some(*value))
}

/// The policy of this process. The first call reads the file.
pub fn preload() -> &'static PreloadConfig {
    static CONFIG: Once<PreloadConfig> = Once::new();
    CONFIG.get_or_init(|| PreloadConfig::load(&directory(), &mut warn))
}

/// Short name of this program (`/proc/self/comm`), read at the first call; empty where /proc is missing.
pub fn program() -> &'static str {
    static NAME: Once<String> = Once::new();
    NAME.get_or_init(|| match file::read(Path::new("/proc/self/comm"), LONGEST_NAME + 1) {
        Ok(Content::Whole(name) | Content::Cut(name)) => String::from_utf8_lossy(name.trim_ascii_end()).into_owned(),
        Ok(Content::Missing) | Err(_) => String::new(),
    })
}
