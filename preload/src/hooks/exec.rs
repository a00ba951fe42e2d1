//! Programs that start others by vfork and exec, or posix_spawn: what of theirs the others have.
//!
//! A process that becomes another program itself needs no hook: what is the library's is close-on-exec. After fork the child is known by
//! pthread_atfork's handler; a vfork child is not, and its parent's listeners may be meant for what it becomes. (execl and its kind take a
//! variable argument list: unseen.)

use libc::{c_char, c_int, pid_t, posix_spawn_file_actions_t, posix_spawnattr_t};
use rsocket::capi::boundary::descriptor as boundary;

use super::hooks;
use crate::guard::{free, ours, stranger};

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
}
