//! What touches the machine below everything else: per-thread state that is safe before constructors and in signal handlers.

pub mod inside;
pub mod kernel;
pub mod owner;
