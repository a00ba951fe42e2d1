//! splice.
//!
//! tee, vmsplice and copy_file_range have no hook: what they say of a socket, they say of the kernel's under the number.

use libc::{c_int, c_uint, off64_t, size_t, ssize_t};
use rsocket::capi::boundary::splice as boundary;

use super::hooks;
use crate::guard::ours;

hooks! {
    fn splice(from: c_int, from_offset: *mut off64_t, to: c_int, to_offset: *mut off64_t, length: size_t, flags: c_uint) -> ssize_t
        = ours(from) || ours(to) => boundary::splice(from, from_offset, to, to_offset, length, flags);
}
