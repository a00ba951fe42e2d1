//! The generated header.
#[test]
fn placeholder() {}
