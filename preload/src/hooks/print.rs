//! dprintf and its kind: the C library writes past the hooks what it has formatted, so that this is done in two steps here.
//!
//! A function with a variable argument list can be called from Rust, not written in it: the two that have one gather their arguments as the
//! machine's calling convention says, and go on as those that take a `va_list`.

use core::{
    arch::naked_asm,
    ffi::{c_char, c_int, c_void},
    ptr::null_mut,
};

use super::{io, real};
use crate::guard::ours;

unsafe extern "C" {
    // A va_list is passed as a pointer, on x86_64 (an array of one structure) and aarch64 (a large structure).
    fn vasprintf(text: *mut *mut c_char, format: *const c_char, arguments: *mut c_void) -> c_int;
    fn __vasprintf_chk(text: *mut *mut c_char, flag: c_int, format: *const c_char, arguments: *mut c_void) -> c_int;
}

/// dprintf(3), with a va_list.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn vdprintf(fd: c_int, format: *const c_char, arguments: *mut c_void) -> c_int {
    if ours(fd) {
        let mut text = null_mut();
        // SAFETY: the caller's promises to vdprintf are those to vasprintf.
        let length = unsafe { vasprintf(&mut text, format, arguments) };
        return print(fd, text, length);
    }
    real!(vdprintf(fd: c_int, format: *const c_char, arguments: *mut c_void) -> c_int)
}

/// The same, fortified.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn __vdprintf_chk(fd: c_int, flag: c_int, format: *const c_char, arguments: *mut c_void) -> c_int {
    if ours(fd) {
        let mut text = null_mut();
        // SAFETY: the caller's promises to vdprintf are those to vasprintf.
        let length = unsafe { __vasprintf_chk(&mut text, flag, format, arguments) };
        return print(fd, text, length);
    }
    real!(__vdprintf_chk(fd: c_int, flag: c_int, format: *const c_char, arguments: *mut c_void) -> c_int)
}

/// Writes all of a text that vasprintf has made, or none if `length` is negative, and frees it. "If an output error is encountered, a
/// negative value is returned" (printf(3)).
#[cold]
fn print(fd: c_int, text: *mut c_char, length: c_int) -> c_int {
    let Ok(wanted) = usize::try_from(length) else { return -1 };
    let mut done = 0;
    while done < wanted {
        // SAFETY: the text has `wanted` bytes, of which `done` are written.
        match unsafe { io::write(fd, text.wrapping_add(done).cast(), wanted - done) } {
            written @ 1.. => done += written as usize,
            _ => break,
        }
    }
    // SAFETY: made by vasprintf, and not used any more.
    unsafe { libc::free(text.cast()) };
    if done == wanted { length } else { -1 }
}

/// The register of an argument.
#[cfg(target_arch = "x86_64")]
macro_rules! register {
    (third) => {
        "rdx"
    };
    (fourth) => {
        "rcx"
    };
}

#[cfg(target_arch = "aarch64")]
macro_rules! register {
    (third) => {
        "x2"
    };
    (fourth) => {
        "x3"
    };
}

/// Gathers the arguments of a variable list, of which the first `$fixed` are others, and calls `$then` with a `va_list` for its last argument.
#[cfg(target_arch = "x86_64")]
macro_rules! variable {
    ($fixed:literal, $list:ident, $then:path) => {
        // "System V Application Binary Interface", 3.5.7: rsp + 32: the registers, rsp: gp_offset, fp_offset, overflow_arg_area and
        // reg_save_area.
        naked_asm!(
            ".cfi_startproc",
            "sub rsp, 216",
            ".cfi_def_cfa_offset 224",
            "mov [rsp + 48], rdx",
            "mov [rsp + 56], rcx",
            "mov [rsp + 64], r8",
            "mov [rsp + 72], r9",
            "test al, al",
            "je 2f",
            "movaps [rsp + 80], xmm0",
            "movaps [rsp + 96], xmm1",
            "movaps [rsp + 112], xmm2",
            "movaps [rsp + 128], xmm3",
            "movaps [rsp + 144], xmm4",
            "movaps [rsp + 160], xmm5",
            "movaps [rsp + 176], xmm6",
            "movaps [rsp + 192], xmm7",
            "2:",
            "mov dword ptr [rsp], {fixed} * 8",
            "mov dword ptr [rsp + 4], 48",
            "lea rax, [rsp + 224]",
            "mov [rsp + 8], rax",
            "lea rax, [rsp + 32]",
            "mov [rsp + 16], rax",
            concat!("mov ", register!($list), ", rsp"),
            "call {then}",
            "add rsp, 216",
            ".cfi_def_cfa_offset 8",
            "ret",
            ".cfi_endproc",
            fixed = const $fixed,
            then = sym $then,
        )
    };
}

#[cfg(target_arch = "aarch64")]
macro_rules! variable {
    ($fixed:literal, $list:ident, $then:path) => {
        // "Procedure Call Standard for the Arm 64-bit Architecture", 10.1.5: sp + 64: q0 to q7, sp + 192: x2 to x7, sp + 16: __stack, __gr_top,
        // __vr_top, __gr_offs, __vr_offs.
        naked_asm!(
            ".cfi_startproc",
            "sub sp, sp, #256",
            ".cfi_def_cfa_offset 256",
            "stp x29, x30, [sp]",
            ".cfi_offset 29, -256",
            ".cfi_offset 30, -248",
            "stp q0, q1, [sp, #64]",
            "stp q2, q3, [sp, #96]",
            "stp q4, q5, [sp, #128]",
            "stp q6, q7, [sp, #160]",
            "stp x2, x3, [sp, #192]",
            "stp x4, x5, [sp, #208]",
            "stp x6, x7, [sp, #224]",
            "add x9, sp, #256",
            "add x10, sp, #240",
            "add x11, sp, #192",
            "stp x9, x10, [sp, #16]",
            "str x11, [sp, #32]",
            "mov w9, #-(8 - {fixed}) * 8",
            "mov w10, #-128",
            "stp w9, w10, [sp, #40]",
            concat!("add ", register!($list), ", sp, #16"),
            "bl {then}",
            "ldp x29, x30, [sp]",
            "add sp, sp, #256",
            ".cfi_def_cfa_offset 0",
            "ret",
            ".cfi_endproc",
            fixed = const $fixed,
            then = sym $then,
        )
    };
}

/// dprintf(3).
#[unsafe(no_mangle)]
#[unsafe(naked)]
pub(crate) unsafe extern "C" fn dprintf(_fd: c_int, _format: *const c_char) -> c_int {
    variable!(2, third, vdprintf)
}

/// The same, fortified.
#[unsafe(no_mangle)]
#[unsafe(naked)]
pub(crate) unsafe extern "C" fn __dprintf_chk(_fd: c_int, _flag: c_int, _format: *const c_char) -> c_int {
    variable!(3, fourth, __vdprintf_chk)
}
