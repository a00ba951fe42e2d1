//! Tests of the whole machine.

mod golden;
mod hostile;
mod pair;
mod scenarios;
mod streams;
