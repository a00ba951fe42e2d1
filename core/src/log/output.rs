//! Where lines go: descriptors of the library's own, out of the program's way, and never something that the program put there.

use core::fmt;
use std::{ffi::OsStr, os::unix::ffi::OsStrExt};

use rustix::{
    event::{PollFd, PollFlags},
    fd::AsRawFd,
    fs::{Mode, OFlags},
};

use super::line::Line;
use crate::{
    error::{Errno, Result},
    sys::own::{self, OwnFd},
};

/// Never higher: the kernel's table of a process grows with its highest descriptor.
const HIGHEST_BASE: u64 = 16_384;

/// A descriptor with a high number, and the file that it was when it was made.
pub(crate) struct Output {
    file: OwnFd,
    identity: (u64, u64),
    stderr: bool,
}

impl Output {
    /// Opens what `name` says: a file to append to (`%p` stands for the process id), or standard error where it is empty or `-`.
    /// Fails with the errno of open(2) or fcntl(2), EBADF where standard error is not usable.
    pub(crate) fn open(name: &OsStr) -> Result<Self> {
        let stderr = name.is_empty() || name == "-";
        let file = if stderr { own_stderr()? } else { append_to(&expanded(name))? };
        let identity = identity(&file)?;
        Ok(Output { file, identity, stderr })
    }

    /// Forked children write there, too.
    pub(super) fn keep_in_children(&self) {
        own::keep_in_children(self.file.as_raw_fd());
    }

    pub(crate) fn is_stderr(&self) -> bool {
        self.stderr
    }

    /// Writes `bytes`, as far as the file takes them at once. False: the number is not the library's any more (the program closed
    /// what it does not know, and perhaps opened something else), and must not be used again.
    pub(crate) fn write(&self, bytes: &[u8]) -> bool {
        if identity(&self.file) != Ok(self.identity) {
            return false;
        }
        while let Err(Errno::INTR) = rustix::io::write(&self.file, bytes) {}
        true
    }

    /// Whether a write neither blocks nor raises SIGPIPE.
    pub(crate) fn is_ready(&self) -> bool {
        let mut poll = [PollFd::new(&self.file, PollFlags::OUT)];
        let now = rustix::time::Timespec { tv_sec: 0, tv_nsec: 0 };
        let polled = rustix::event::poll(&mut poll, Some(&now));
        polled.is_ok() && poll.iter().all(|fd| fd.revents() == PollFlags::OUT)
    }
}

/// Writes a warning to standard error, if there is one that takes it at once.
pub(super) fn warn(text: fmt::Arguments<'_>) {
    let Ok(output) = Output::open(OsStr::new("")) else { return };
    if !output.is_ready() {
        return;
    }
    let mut line = Line::new();
    line.text(format_args!("rsocket: warning: {text}"));
    let _ = output.write(line.finish());
}

fn identity(file: &OwnFd) -> Result<(u64, u64)> {
    let stat = rustix::fs::fstat(file)?;
    Ok((stat.st_dev, stat.st_ino))
}

/// A duplicate of standard error. EBADF if it is a network connection: a program that has closed standard error got the number for a socket.
fn own_stderr() -> Result<OwnFd> {
    let base = high_base();
    let file: OwnFd = crate::sys::stderr::duplicate(base).or_else(|_| crate::sys::stderr::duplicate(3))?.into();
    match rustix::net::sockopt::socket_domain(&file) {
        Ok(domain) if domain != rustix::net::AddressFamily::UNIX => Err(Errno::BADF),
        Ok(_) | Err(_) => Ok(file),
    }
}

fn append_to(path: &[u8]) -> Result<OwnFd> {
    let flags = OFlags::WRONLY | OFlags::APPEND | OFlags::CREATE | OFlags::CLOEXEC | OFlags::NOCTTY | OFlags::NONBLOCK;
    let file = rustix::fs::open(path, flags, Mode::from_raw_mode(0o644))?;
    rustix::io::fcntl_dupfd_cloexec(&file, high_base()).or(Ok(file)).map(OwnFd::from)
}

/// Three quarters of the descriptors that the process may have.
fn high_base() -> i32 {
    let limit = rustix::process::getrlimit(rustix::process::Resource::Nofile).current.unwrap_or(HIGHEST_BASE);
    i32::try_from((limit / 4 * 3).min(HIGHEST_BASE)).unwrap_or(0).max(3)
}

fn expanded(name: &OsStr) -> Vec<u8> {
    let mut bytes = Vec::new();
    let mut rest = name.as_bytes();
    while let Some((first, behind)) = rest.split_first() {
        match behind.split_first() {
            Some((b'p', after)) if *first == b'%' => {
                bytes.extend_from_slice(rustix::process::getpid().as_raw_nonzero().to_string().as_bytes());
                rest = after;
            }
            _ => {
                bytes.push(*first);
                rest = behind;
            }
        }
    }
    bytes
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn never_writes_to_what_the_program_opened_instead() {
        let path = std::env::temp_dir().join(format!("rsocket-output-{}", std::process::id()));
        let output = Output::open(path.as_os_str()).unwrap();
        assert!(output.is_ready() && output.write(b"one\n"));
        let other = append_to(&[path.as_os_str().as_bytes(), b".other"].concat()).unwrap();
        crate::sys::kernel::dup3(other.as_raw_fd(), output.file.as_raw_fd(), 0).unwrap();
        assert!(!output.write(b"two\n"));
        assert_eq!(std::fs::read(&path).unwrap(), b"one\n");
        std::fs::remove_file(&path).unwrap();
        std::fs::remove_file(path.with_extension("other")).unwrap();
    }

    #[test]
    fn process_id_in_names() {
        let pid = std::process::id();
        assert_eq!(expanded(OsStr::new("/a%p/%%p%")), format!("/a{pid}/%{pid}%").into_bytes());
    }
}
