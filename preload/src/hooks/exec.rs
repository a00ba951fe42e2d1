//! Programs that start others by vfork and exec, posix_spawn, system or popen: what of theirs the others have.
//!
//! A process that becomes another program itself needs no hook: what is the library's is close-on-exec. After fork the child is known by
//! pthread_atfork's handler; a vfork child is not, and its parent's listeners may be meant for what it becomes. The C library itself starts
//! programs past its symbols.

use core::{arch::naked_asm, ffi::c_void};

use libc::{FILE, c_char, c_int, pid_t, posix_spawn_file_actions_t, posix_spawnattr_t};
use rsocket::capi::boundary::{self as calls, descriptor as boundary};

use super::{hooks, real};
use crate::{
    guard::{free, ours, stranger},
    real::{Symbol, function},
};

hooks! {
    fn execve(path: *const c_char, arguments: *const *const c_char, environment: *const *const c_char) -> c_int
        = stranger() => boundary::child_execs();
    fn execv(path: *const c_char, arguments: *const *const c_char) -> c_int
        = stranger() => boundary::child_execs();
    fn execvp(file: *const c_char, arguments: *const *const c_char) -> c_int
        = stranger() => boundary::child_execs();
    fn execvpe(file: *const c_char, arguments: *const *const c_char, environment: *const *const c_char) -> c_int
        = stranger() => boundary::child_execs();
    fn fexecve(fd: c_int, arguments: *const *const c_char, environment: *const *const c_char) -> c_int
        = stranger() => boundary::child_execs();
    fn execveat(folder: c_int, path: *const c_char, arguments: *const *const c_char, environment: *const *const c_char, flags: c_int) -> c_int
        = stranger() => boundary::child_execs();
    fn posix_spawn(
        child: *mut pid_t, path: *const c_char, actions: *const posix_spawn_file_actions_t, attributes: *const posix_spawnattr_t,
        arguments: *const *mut c_char, environment: *const *mut c_char
    ) -> c_int
        = free() => boundary::child_execs();
    fn posix_spawnp(
        child: *mut pid_t, file: *const c_char, actions: *const posix_spawn_file_actions_t, attributes: *const posix_spawnattr_t,
        arguments: *const *mut c_char, environment: *const *mut c_char
    ) -> c_int
        = free() => boundary::child_execs();
    fn posix_spawn_file_actions_adddup2(actions: *mut posix_spawn_file_actions_t, fd: c_int, new: c_int) -> c_int
        = ours(fd) => boundary::spawned_with(fd);
    fn system(command: *const c_char) -> c_int
        = free() => boundary::child_execs();
}

/// popen(3).
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn popen(command: *const c_char, kind: *const c_char) -> *mut FILE {
    if free() {
        calls::answer(boundary::child_execs);
    }
    real!(popen(command: *const c_char, kind: *const c_char) -> *mut FILE)
}

/// What those do that have their arguments in a variable list, before the real function, which this gives.
extern "C" fn list(symbol: usize) -> *mut c_void {
    if stranger() {
        calls::answer(boundary::child_execs);
    }
    function(match symbol {
        LIST => Symbol::execl,
        LIST_PATH => Symbol::execlp,
        _ => Symbol::execle,
    })
}

const LIST: usize = 0;
const LIST_PATH: usize = 1;
const LIST_ENVIRONMENT: usize = 2;

/// Asks [`list`], and goes on in the real function with all arguments where they are.
#[cfg(target_arch = "x86_64")]
macro_rules! pass_on {
    ($which:ident) => {
        naked_asm!(
            ".cfi_startproc",
            "push rdi",
            "push rsi",
            "push rdx",
            "push rcx",
            "push r8",
            "push r9",
            "push rax",
            ".cfi_def_cfa_offset 64",
            "mov edi, {which}",
            "call {list}",
            "mov r11, rax",
            "pop rax",
            "pop r9",
            "pop r8",
            "pop rcx",
            "pop rdx",
            "pop rsi",
            "pop rdi",
            ".cfi_def_cfa_offset 8",
            "jmp r11",
            ".cfi_endproc",
            which = const $which,
            list = sym list,
        )
    };
}

#[cfg(target_arch = "aarch64")]
macro_rules! pass_on {
    ($which:ident) => {
        naked_asm!(
            ".cfi_startproc",
            "sub sp, sp, #80",
            ".cfi_def_cfa_offset 80",
            "stp x29, x30, [sp]",
            ".cfi_offset 29, -80",
            ".cfi_offset 30, -72",
            "stp x0, x1, [sp, #16]",
            "stp x2, x3, [sp, #32]",
            "stp x4, x5, [sp, #48]",
            "stp x6, x7, [sp, #64]",
            "mov x0, #{which}",
            "bl {list}",
            "mov x16, x0",
            "ldp x29, x30, [sp]",
            "ldp x0, x1, [sp, #16]",
            "ldp x2, x3, [sp, #32]",
            "ldp x4, x5, [sp, #48]",
            "ldp x6, x7, [sp, #64]",
            "add sp, sp, #80",
            ".cfi_def_cfa_offset 0",
            "br x16",
            ".cfi_endproc",
            which = const $which,
            list = sym list,
        )
    };
}

/// execl(3).
#[unsafe(no_mangle)]
#[unsafe(naked)]
pub(crate) unsafe extern "C" fn execl(_path: *const c_char, _argument: *const c_char) -> c_int {
    pass_on!(LIST)
}

/// execlp(3).
#[unsafe(no_mangle)]
#[unsafe(naked)]
pub(crate) unsafe extern "C" fn execlp(_file: *const c_char, _argument: *const c_char) -> c_int {
    pass_on!(LIST_PATH)
}

/// execle(3).
#[unsafe(no_mangle)]
#[unsafe(naked)]
pub(crate) unsafe extern "C" fn execle(_path: *const c_char, _argument: *const c_char) -> c_int {
    pass_on!(LIST_ENVIRONMENT)
}
