//! The C API: what `<rdma/rsocket.h>` declares. The header is generated from these files (`build.rs`).
//!
//! Pointers become slices in [`boundary`]; what the library does not do, the kernel does, by a system call: libc's functions
//! are the program's, and the preload library's hooks stand in them.

pub mod boundary;
pub mod descriptor;
pub mod epoll;
pub mod io;
pub mod lifecycle;
pub mod option;
pub mod poll;
pub mod safe;
pub mod select;
pub mod socket;

use crate::error::{Errno, Result};

/// A function of the C API: what the library answers, else what the kernel does.
macro_rules! serve {
    ($call:expr, $kernel:expr) => {{
        // SAFETY: the C caller's promises are those of the function's man page, which are the ones asked for.
        #[allow(unused_unsafe)]
        let answer = $crate::capi::boundary::answer(|| unsafe { $call });
        match answer {
            Some(answer) => answer,
            // SAFETY: the C caller's promises are those of the system call.
            None => $crate::capi::kernel_answer(unsafe { $kernel }) as _,
        }
    }};
}
use serve;

/// A system call's result, as its C function gives it.
fn kernel_answer(result: Result<usize>) -> isize {
    match result {
        Ok(value) => value as isize,
        Err(errno) => {
            boundary::set_errno(Errno::raw_os_error(errno));
            -1
        }
    }
}
