//! Tests of the whole machine.

mod golden;
