//! One line of text in a buffer on the stack.

use core::fmt::{self, Write};

use super::Level;

/// Longest line in bytes, with its end.
pub(crate) const LONGEST: usize = 512;

/// What the end of a line that was too long looks like.
const CUT: &[u8] = b"...\n";

/// A line that is being written; what does not fit is cut off.
pub(crate) struct Line {
    bytes: [u8; LONGEST],
    len: usize,
    cut: bool,
}

impl Line {
    pub(crate) fn new() -> Self {
        Line { bytes: [0; LONGEST], len: 0, cut: false }
    }

    /// Seconds of the monotonic clock, process and thread, level, module.
    pub(crate) fn stamp(&mut self, level: Level, module: &str) {
        let now = rustix::time::clock_gettime(rustix::time::ClockId::Monotonic);
        let process = rustix::process::getpid().as_raw_nonzero();
        let thread = rustix::thread::gettid().as_raw_nonzero();
        let name = match level {
            Level::Error => "error",
            Level::Warn => "warn",
            Level::Info => "info",
            Level::Debug => "debug",
            Level::Trace => "trace",
        };
        let micros = now.tv_nsec / 1000;
        self.text(format_args!("rsocket {}.{micros:06} {process}/{thread} {name} {module}: ", now.tv_sec));
    }

    /// Adds formatted text.
    pub(crate) fn text(&mut self, text: fmt::Arguments<'_>) {
        // An error means that the line is full, or that a Display failed: what is there is written.
        let _ = self.write_fmt(text);
    }

    /// Ends the line.
    pub(crate) fn finish(&mut self) -> &[u8] {
        let end = if self.cut { CUT } else { b"\n" };
        self.len = self.len.min(LONGEST - end.len());
        if let Some(room) = self.bytes.get_mut(self.len..self.len + end.len()) {
            room.copy_from_slice(end);
            self.len += end.len();
        }
        self.bytes.get(..self.len).unwrap_or_default()
    }
}

impl Write for Line {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        let room = self.bytes.get_mut(self.len..LONGEST - 1).unwrap_or_default();
        let fits = text.len().min(room.len());
        if let (Some(to), Some(from)) = (room.get_mut(..fits), text.as_bytes().get(..fits)) {
            to.copy_from_slice(from);
            self.len += fits;
        }
        self.cut = fits < text.len();
        if self.cut { Err(fmt::Error) } else { Ok(()) }
    }
}
