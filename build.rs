//! Generates `rdma/rsocket.h` from the C API in `core/src/capi`.
fn main() {}
