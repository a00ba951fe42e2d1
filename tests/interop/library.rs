//! The preload library under test.
#![allow(dead_code)]

use std::env;
use std::path::PathBuf;

use super::support::{Counters, artefact, assert_over_rdma};

/// `RSOCKET_TEST_LIBRARY=PATH`: another library than ours, to see what it makes of the same tests.
pub fn other() -> Option<PathBuf> {
    env::var_os("RSOCKET_TEST_LIBRARY").map(PathBuf::from)
}

/// The library to preload.
#[track_caller]
pub fn library() -> PathBuf {
    other().unwrap_or_else(|| artefact("librspreload.so"))
}

/// The first and last line of `counters` in an output say that so many bytes went over RDMA. Of another library it is only shown.
#[track_caller]
pub fn went_over_rdma(what: &str, output: &str, bytes: u64) {
    let (before, after) = Counters::first_and_last(output);
    println!("{what}: {bytes} bytes, {:?}", after - before);
    if other().is_none() {
        assert_over_rdma(before, after, bytes);
    }
}
