//! The error type of every call: the errno of the man page, and nothing else.
//!
//! Which errno a situation gets is decided in `calls`; what the fabrics and the protocol report is mapped there.

use core::fmt;

pub use rustix::io::Errno;

/// An errno in the words of strerror(3).
pub struct Text(pub Errno);

impl fmt::Display for Text {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let whole = std::io::Error::from_raw_os_error(self.0.raw_os_error()).to_string();
        f.write_str(whole.split_once(" (os error").map_or(&*whole, |(text, _)| text))
    }
}

/// The result of a call that fails with an errno.
pub type Result<T> = core::result::Result<T, Errno>;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_errno_is_told_in_words() {
        assert_eq!(Text(Errno::MFILE).to_string(), "Too many open files");
    }
}
