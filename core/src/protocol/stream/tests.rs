//! Tests of the whole machine.

mod golden;
mod hostile;
mod maps;
mod pair;
mod scenarios;
mod streams;
