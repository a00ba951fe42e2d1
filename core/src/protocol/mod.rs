//! The protocol, without any input or output of its own: machines that take commands and completions, and yield work
//! requests and readiness. No descriptor, lock, clock or thread; no fabric by name.
#![forbid(unsafe_code)]

pub mod datagram;
pub mod stream;
#[cfg(test)]
mod tests;
