//! Reading small text files by raw system calls: `std::fs` would go through the library's own hooks.

use std::{os::unix::ffi::OsStrExt, path::Path};

use rustix::fs::{Mode, OFlags};

use crate::error::{Errno, Result, Text};

/// What a bounded read found.
pub(super) enum Content {
    /// There is no such file.
    Missing,
    /// The whole content, not longer than the bound.
    Whole(Vec<u8>),
    /// The file is longer: its first bytes, as many as the bound.
    Cut(Vec<u8>),
}

/// Reads at most `bound` bytes of a file. Never blocks (a FIFO reads as empty). Fails with the errno of open(2) or read(2);
/// EISDIR for a directory.
pub(super) fn read(path: &Path, bound: usize) -> Result<Content> {
    let flags = OFlags::RDONLY | OFlags::CLOEXEC | OFlags::NONBLOCK | OFlags::NOCTTY;
    let file = match rustix::fs::open(path.as_os_str().as_bytes(), flags, Mode::empty()) {
        Ok(file) => file,
        Err(Errno::NOENT) => return Ok(Content::Missing),
        Err(error) => return Err(error),
    };
    // One byte more than the bound tells a longer file.
    let mut bytes = vec![0; bound.saturating_add(1)];
    let mut filled = 0;
    while let Some(rest) = bytes.get_mut(filled..).filter(|rest| !rest.is_empty()) {
        match rustix::io::read(&file, rest) {
            Ok(0) => break,
            Ok(count) => filled += count,
            Err(Errno::INTR) => {}
            Err(error) => return Err(error),
        }
    }
    let cut = filled > bound;
    bytes.truncate(filled.min(bound));
    Ok(if cut { Content::Cut(bytes) } else { Content::Whole(bytes) })
}

/// The content of a file of lines, of which no more than `bound` bytes are read. `None`: there is none, or it cannot be read, and is ignored.
pub(super) fn text(path: &Path, bound: usize, warn: &mut dyn FnMut(String)) -> Option<Vec<u8>> {
    match read(path, bound) {
        Ok(Content::Missing) => None,
        Ok(Content::Whole(text)) => Some(text),
        Ok(Content::Cut(text)) => {
            warn(format!("{}: only the first {bound} bytes are read", path.display()));
            Some(text)
        }
        Err(error) => {
            warn(format!("{}: cannot be read ({}); it is ignored", path.display(), Text(error)));
            None
        }
    }
}

/// The lines that say something, without their comments and the blanks around, and their numbers.
pub(super) fn lines(text: &[u8]) -> impl Iterator<Item = (usize, &[u8])> {
    let content = |raw: &'_ [u8]| raw.iter().position(|byte| *byte == b'#').unwrap_or(raw.len());
    let all = text.split(|byte| *byte == b'\n').enumerate();
    all.map(move |(index, raw)| (index + 1, raw.get(..content(raw)).unwrap_or_default().trim_ascii())).filter(|(_, line)| !line.is_empty())
}

/// Foreign bytes for a warning: printable, at most 40 characters.
pub(super) fn printable(bytes: &[u8]) -> String {
    const MOST: usize = 40;
    let text = String::from_utf8_lossy(bytes.get(..MOST.min(bytes.len())).unwrap_or_default());
    text.escape_debug().take(MOST).collect()
}
