//! The error type of every call: the errno of the man page, and nothing else.
//!
//! Which errno a situation gets is decided in `calls`; what the fabrics and the protocol report is mapped there.

pub use rustix::io::Errno;

/// The result of a call that fails with an errno.
pub type Result<T> = core::result::Result<T, Errno>;
