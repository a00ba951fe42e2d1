//! repoll_create, repoll_ctl, repoll_wait.

use libc::{c_int, epoll_event};

use super::{boundary, kernel_answer, serve};
use crate::sys::kernel::call;

/// epoll_create(2): a set of rsockets and any other descriptors. `size` is greater than zero, and not looked at otherwise.
#[unsafe(no_mangle)]
pub extern "C" fn repoll_create(size: c_int) -> c_int {
    // "EINVAL size is not positive."
    if size <= 0 {
        boundary::set_errno(libc::EINVAL);
        return -1;
    }
    // SAFETY: takes no pointer.
    let set = kernel_answer(unsafe { call!(libc::SYS_epoll_create1, 0) }) as c_int;
    boundary::epoll::created(set);
    set
}

/// epoll_ctl(2) with a set of [`repoll_create`].
///
/// # Safety
/// Unless NULL, `event` must be good for reads.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn repoll_ctl(repfd: c_int, op: c_int, fd: c_int, event: *mut epoll_event) -> c_int {
    serve!(boundary::epoll::control(repfd, op, fd, event), call!(libc::SYS_epoll_ctl, repfd, op, fd, event))
}

/// epoll_wait(2) in a set of [`repoll_create`].
///
/// # Safety
/// `events` must be an array of `maxevents`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn repoll_wait(repfd: c_int, events: *mut epoll_event, maxevents: c_int, timeout: c_int) -> c_int {
    loop {
        // SAFETY: the caller's promises are those of epoll_wait(2), which are the ones asked for.
        if let Some(found) = boundary::answer(|| unsafe { boundary::epoll::wait(repfd, events, maxevents, timeout) }) {
            return found;
        }
        let no_mask = core::ptr::null::<u8>();
        // SAFETY: the kernel writes at most `maxevents` events there.
        let found = unsafe { call!(libc::SYS_epoll_pwait, repfd, events, maxevents, timeout, no_mask, 8usize) };
        // SAFETY: so many events were written there.
        if let Some(found) = unsafe { boundary::epoll::sift(repfd, events, kernel_answer(found) as c_int) } {
            return found;
        }
    }
}
