//! What touches the machine below everything else: per-thread state that is safe before constructors and in signal handlers.

pub mod allocator;
pub mod cgroup;
pub mod clock;
pub mod cpus;
pub mod descriptor;
pub mod epoll;
pub mod futex;
pub mod inside;
pub mod kernel;
mod last_heap;
pub mod listeners;
pub mod lock;
pub mod memory;
pub mod message;
pub mod neighbour;
pub mod once;
pub mod own;
pub mod owner;
pub mod ppoll;
pub mod program;
pub mod signals;
pub mod slab;
pub mod small_file;
pub mod sockopt;
pub mod stderr;
pub mod threads;
