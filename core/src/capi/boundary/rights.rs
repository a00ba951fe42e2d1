//! The C side of descriptors that travel over Unix sockets: unix(7), SCM_RIGHTS.

use core::ffi::c_int;

use libc::{cmsghdr, mmsghdr, msghdr, ssize_t};

use super::{attempt, is_bad, vector::MOST_VECTORS};
use crate::{
    calls::{Route, adopt},
    error::{Errno, Result},
    sys::{own, owner},
};

/// Whether a message has control data, where descriptors may be.
///
/// # Safety
/// Unless [bad](is_bad), `message` must be good for reads.
#[inline]
pub unsafe fn has_control(message: *const msghdr) -> bool {
    if is_bad(message.cast(), size_of::<msghdr>()) {
        return false;
    }
    // SAFETY: not bad, so good for reads (the caller's promise).
    let message = unsafe { &*message };
    message.msg_controllen >= size_of::<cmsghdr>() && !is_bad(message.msg_control, message.msg_controllen)
}

/// As [`has_control`], for one of several messages.
///
/// # Safety
/// Unless [bad](is_bad), `messages` must be an array of `count`.
#[inline]
pub unsafe fn have_control(messages: *const mmsghdr, count: usize) -> bool {
    // SAFETY: the caller's promise is the one asked for.
    let messages = unsafe { array(messages, count) };
    // SAFETY: a reference is good for reads.
    messages.iter().any(|message| unsafe { has_control(&message.msg_hdr) })
}

/// # Safety
/// Unless [bad](is_bad), `messages` must be an array of `count`, for `'a`.
unsafe fn array<'a>(messages: *const mmsghdr, count: usize) -> &'a [mmsghdr] {
    let count = count.min(MOST_VECTORS);
    if is_bad(messages.cast(), count * size_of::<mmsghdr>()) {
        return &[];
    }
    // SAFETY: not bad, so an array of `count` (the caller's promise).
    unsafe { core::slice::from_raw_parts(messages, count) }
}

/// Calls `then` for each descriptor that a message carries.
///
/// # Safety
/// Unless [bad](is_bad), `message` must be good for reads, and so must its control data.
pub unsafe fn each(message: *const msghdr, mut then: impl FnMut(c_int) -> Result<()>) -> Result<()> {
    // SAFETY: the caller's promise is the one asked for.
    if !unsafe { has_control(message) } {
        return Ok(());
    }
    // SAFETY: good for reads, as it has control data.
    let control = unsafe { &*message };
    let end = control.msg_control.addr() + control.msg_controllen;
    // SAFETY: there is control data of a header's length at least.
    let mut next = unsafe { libc::CMSG_FIRSTHDR(message) };
    // SAFETY: NULL, or a header within the control data.
    while let Some(header) = unsafe { next.as_ref() } {
        // SAFETY: the header is a live one.
        let start = unsafe { libc::CMSG_DATA(header) };
        let room = end.saturating_sub(start.addr());
        let length = header.cmsg_len.saturating_sub(start.addr() - next.addr()).min(room);
        if (header.cmsg_level, header.cmsg_type) == (libc::SOL_SOCKET, libc::SCM_RIGHTS) {
            for at in 0..length / size_of::<c_int>() {
                // SAFETY: within what the header says, which is within the control data.
                then(unsafe { start.cast::<c_int>().wrapping_add(at).read_unaligned() })?;
            }
        }
        // What goes beyond the control data is the last one, and the kernel's to refuse.
        if header.cmsg_len > end.saturating_sub(next.addr()) {
            break;
        }
        // SAFETY: the message and one of its headers.
        next = unsafe { libc::CMSG_NXTHDR(message, header) };
    }
    Ok(())
}

/// sendmsg(2) on a socket that is none of the library's, with control data: what is to go with it.
///
/// # Safety
/// As for [`each`].
pub unsafe fn sendmsg(message: *const msghdr) -> Route<ssize_t> {
    if owner::is_current() {
        // SAFETY: the caller's promise is the one asked for.
        attempt!(unsafe { each(message, give_away) });
    }
    Route::Kernel
}

/// The same for sendmmsg(2). Where one of the messages cannot go, none does.
///
/// # Safety
/// Unless [bad](is_bad), `messages` must be an array of `count`, whose control data are good for reads.
pub unsafe fn sendmmsg(messages: *const mmsghdr, count: usize) -> Route<c_int> {
    // SAFETY: the caller's promise is the one asked for.
    for message in unsafe { array(messages, count) } {
        // SAFETY: the caller's promise is the one asked for.
        if let Route::Done(Err(errno)) = unsafe { sendmsg(&message.msg_hdr) } {
            return Route::err(errno);
        }
    }
    Route::Kernel
}

fn give_away(fd: c_int) -> Result<()> {
    // The library's own descriptors are as if they were not open.
    if own::is_own(fd) { Err(Errno::BADF) } else { adopt::give_away(fd) }
}

/// recvmmsg(2) has filled so many messages: calls `then` for each descriptor that came.
///
/// # Safety
/// `messages` must be an array of `count`, with the control data that the kernel has written.
pub unsafe fn each_of(messages: *const mmsghdr, count: usize, mut then: impl FnMut(c_int)) {
    // SAFETY: the caller's promise is the one asked for.
    for message in unsafe { array(messages, count) } {
        let one = |fd| {
            then(fd);
            Ok(())
        };
        // SAFETY: the caller's promise is the one asked for.
        let _ = unsafe { each(&message.msg_hdr, one) };
    }
}

#[cfg(test)]
mod tests {
    use core::{mem::zeroed, ptr::null};

    use super::*;

    #[repr(align(8))]
    struct Control([u8; 64]);

    /// Control data with these numbers in a header that says it is so long.
    fn found(numbers: &[c_int], kind: c_int, length: usize, cut: usize) -> Vec<c_int> {
        let mut control = Control([0; 64]);
        // SAFETY: a msghdr of zeros is a valid one.
        let mut message: msghdr = unsafe { zeroed() };
        message.msg_control = control.0.as_mut_ptr().cast();
        message.msg_controllen = control.0.len();
        // SAFETY: a live message.
        let header = unsafe { libc::CMSG_FIRSTHDR(&message) };
        // SAFETY: there is room for a header.
        let header = unsafe { &mut *header };
        (header.cmsg_level, header.cmsg_type, header.cmsg_len) = (libc::SOL_SOCKET, kind, length);
        // SAFETY: the header is a live one.
        let start = unsafe { libc::CMSG_DATA(header) }.cast::<c_int>();
        for (at, number) in numbers.iter().enumerate() {
            // SAFETY: there is room for twelve of them.
            unsafe { start.wrapping_add(at).write_unaligned(*number) };
        }
        message.msg_controllen = cut;
        let mut found = Vec::new();
        let each_one = |fd| {
            found.push(fd);
            Ok(())
        };
        // SAFETY: a live message with its control data.
        unsafe { each(&message, each_one) }.unwrap();
        found
    }

    #[test]
    fn descriptors_are_found_where_they_are_and_no_further() {
        let header = size_of::<cmsghdr>();
        assert_eq!(found(&[5, 6, 7], libc::SCM_RIGHTS, header + 12, 64), [5, 6, 7]);
        assert_eq!(found(&[5, 6, 7], libc::SCM_RIGHTS, header + 12, header + 8), [5, 6], "cut short");
        assert_eq!(found(&[5], libc::SCM_CREDENTIALS, header + 4, 64), []);
        assert_eq!(found(&[5], libc::SCM_RIGHTS, header + 4, header - 1), [], "no header");
        assert_eq!(found(&[5], libc::SCM_RIGHTS, 3, header), [], "shorter than itself");
        assert_eq!(found(&[5; 11], libc::SCM_RIGHTS, usize::MAX, header + 8).len(), 2);
    }

    #[test]
    fn messages_that_are_none() {
        // SAFETY: what is bad is allowed.
        assert!(unsafe { !has_control(null()) });
        // SAFETY: what is bad is allowed.
        assert!(unsafe { !have_control(null(), 3) });
        // SAFETY: what is bad is allowed.
        assert_eq!(unsafe { sendmmsg(null(), 1) }, Route::Kernel);
    }
}
