//! epoll_ctl.

use libc::{c_int, epoll_event};
use rsocket::calls::epoll;

use super::hooks;
use crate::guard::ours;

hooks! {
    fn epoll_ctl(set: c_int, operation: c_int, fd: c_int, event: *mut epoll_event) -> c_int = ours(fd) => epoll::control(operation, fd);
}
