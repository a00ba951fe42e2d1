//! epoll_ctl: until epoll sets hold rsockets, what is put into one is left to the kernel, if it still can be.

use std::os::fd::RawFd;

use super::{Route, ours, socket::stop_listening};
use crate::{log, log_info, socket::Role, stats, stats::Counter};

/// epoll_ctl(2) with this number as the target.
pub fn control(operation: i32, fd: RawFd) -> Route<i32> {
    if operation == libc::EPOLL_CTL_ADD
        && let Some(held) = ours(fd)
    {
        match (held.socket.role(), held.socket.listener()) {
            (Role::Listener, Some(listener)) if listener.kernel_listens() => {
                log_info!("descriptor {fd} listens for TCP alone: epoll does not know of other connections");
                stats::add(Counter::FallbackPolicy, 1);
                stop_listening(&held.socket, listener);
            }
            (Role::Fresh, _) => {
                stats::add(Counter::FallbackPolicy, 1);
                held.socket.become_kernel();
            }
            (Role::Listener | Role::Stream, _) => {
                log::warn_once(
                    "epoll",
                    "epoll does not see connections over a fabric yet: the program may hang (RSOCKET_FABRIC=kernel helps)",
                );
            }
            (Role::Kernel, _) => {}
        }
    }
    Route::Kernel
}
