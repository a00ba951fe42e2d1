//! librspreload.so: libc's socket calls, interposed.
//!
//! A hook is one expression: is the number an rsocket's and this thread not inside the library? Then the call is
//! `rsocket::capi::boundary`'s, whose pointers become slices there; when it is not that, or the boundary says it is the
//! kernel's, the real function does it. Nothing on the way to the real function allocates, locks, looks up a symbol, or
//! calls into std: hooks run inside malloc's start-up, in signal handlers and in vfork children.
//!
//! The symbols are exported without a version (a version node would stop the interposition of normal calls), and the list
//! of them is checked by `tests/exports.rs`. `librsocket.so`'s r* functions are exported here too, so that a preloaded
//! program that calls them has one copy of the state.

mod guard;
mod hooks;
mod real;

use rsocket::{calls, capi};

/// Runs before any constructor of the program or of its libraries, except those of other preloaded ones.
#[used]
#[unsafe(link_section = ".init_array")]
static AT_START: extern "C" fn() = at_start;

extern "C" fn at_start() {
    real::resolve_all();
    capi::lifecycle::register();
    capi::lifecycle::end_last();
    capi::lifecycle::before_exit(hooks::stream::flush);
    calls::adopt::note_inherited();
}

/// What `rsocket run` looks for in a file, to tell this library from others of its name.
#[used]
static MARK: [u8; 40] = *b"librspreload.so of the rsocket package\0\0";
