//! What integration tests share: programs on this machine, the VM of `scripts/vm`, the built artefacts, C test programs, packet counters.
//!
//! One boot takes about 5 seconds: put what belongs together into one [`VmSession`] of several steps.
//!
//! ```ignore
//! mod support;
//! use support::{Vm, VmSession, Rdma, Topology, artefact};
//!
//! let lib = artefact("librspreload.so");
//! let outcome = VmSession::new(Vm::new().topology(Topology::One).rdma(Rdma::Rxe).env("LIB", &lib))
//!     .step("server", "LD_PRELOAD=$LIB iperf3 -s -1 & rwait 5201; LD_PRELOAD=$LIB iperf3 -c $HOST_B -n 1M; wait")
//!     .step("other", "true")
//!     .run();
//! assert!(outcome.step("server").ok().contains("sender"));
//! ```
#![allow(dead_code)]

mod counters;
mod linked;
mod native;
mod programs;
mod transcripts;
mod vm;

#[allow(unused_imports)]
pub use counters::{Counters, assert_over_rdma, assert_over_tcp};
#[allow(unused_imports)]
pub use linked::{example, installed};
#[allow(unused_imports)]
pub use native::{Ended, Program, Running, Scratch, Statistics, free_port, is_root, needs_root, own_address};
#[allow(unused_imports)]
pub use programs::{artefact, build_c_program, repository, target_dir};
#[allow(unused_imports)]
pub use transcripts::{DEFERRED, FORK_SAFE, NO_DATA, ON_LOOPBACK, difference, programs};
#[allow(unused_imports)]
pub use vm::{Outcome, Rdma, Step, Topology, Vm, VmSession};
