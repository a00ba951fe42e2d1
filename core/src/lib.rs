//! rsockets: the socket API over RDMA, and over shared memory on one host.
//!
//! Programs in Rust use [`net`]; those in C the functions of [`capi`]. All else is the inside of the library, and changes without notice.
//!
//! The layers, highest first; a module imports only from lower ones:
//! `net` → `capi` and `calls` → `fd` → `poll` → `socket` → `protocol`, `fabric`, `service` → `wire`, `work` → `error`, `config`, `log`, `stats`, `sys`.
#![cfg_attr(test, allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::indexing_slicing))]

pub mod calls;
pub mod capi;
pub mod config;
pub mod error;
pub mod fabric;
pub mod fd;
pub mod log;
pub mod net;
pub mod poll;
pub mod protocol;
pub mod service;
pub mod socket;
pub mod stats;
pub mod sys;
pub mod wire;
pub mod work;
