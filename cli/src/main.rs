//! The `rsocket` command.
fn main() {}
