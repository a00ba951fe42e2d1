//! `struct sockaddr` and its length, in and out.

use core::{
    ffi::{c_int, c_void},
    mem::size_of,
    net::SocketAddr,
};

use libc::{sockaddr, sockaddr_in, sockaddr_in6, socklen_t};

use crate::error::{Errno, Result};

/// The kernel takes no longer address: `sizeof(struct sockaddr_storage)`.
const MOST: usize = size_of::<libc::sockaddr_storage>();

/// The bytes of an address that is passed in.
///
/// # Safety
/// Unless NULL, `address` must be good for reads of `length` bytes for `'a`.
pub(super) unsafe fn given<'a>(address: *const sockaddr, length: socklen_t) -> Result<&'a [u8]> {
    let length = length as usize;
    if length > MOST {
        return Err(Errno::INVAL);
    }
    // SAFETY: the caller's promise is the one asked for.
    unsafe { super::bytes(address.cast(), length) }
}

/// Where an address goes: the buffer of accept(2), getsockname(2), recvfrom(2).
pub(in crate::capi) struct Out {
    address: *mut sockaddr,
    length: *mut socklen_t,
    room: usize,
}

impl Out {
    /// Looks at the pointers before anything is done: EFAULT, and "EINVAL addrlen is invalid (e.g., is negative)".
    ///
    /// # Safety
    /// Unless bad, `length` must be good for reads and writes until the `Out` has been used, and `address` for writes of `*length` bytes.
    pub(in crate::capi) unsafe fn new(address: *mut sockaddr, length: *mut socklen_t) -> Result<Self> {
        if super::is_bad(length.cast(), size_of::<socklen_t>()) {
            return Err(Errno::FAULT);
        }
        // SAFETY: not bad, so good for reads (the caller's promise).
        let room = unsafe { *length };
        let room = c_int::try_from(room).map_err(|_| Errno::INVAL)?;
        if room > 0 && super::is_bad(address.cast(), room as usize) {
            return Err(Errno::FAULT);
        }
        Ok(Out { address, length, room: room as usize })
    }

    /// The same, where NULL means that no address is wanted.
    ///
    /// # Safety
    /// As for [`Out::new`].
    pub(super) unsafe fn wanted(address: *mut sockaddr, length: *mut socklen_t) -> Result<Option<Self>> {
        if address.is_null() {
            return Ok(None);
        }
        // SAFETY: the caller's promise is the one asked for.
        unsafe { Out::new(address, length) }.map(Some)
    }

    /// "The returned address is truncated if the buffer provided is too small; in this case, addrlen will return a value
    /// greater than was supplied to the call."
    pub(in crate::capi) fn write(self, address: &SocketAddr) {
        match address {
            SocketAddr::V4(address) => {
                let raw = sockaddr_in {
                    sin_family: libc::AF_INET as u16,
                    sin_port: address.port().to_be(),
                    sin_addr: libc::in_addr { s_addr: u32::from_ne_bytes(address.ip().octets()) },
                    sin_zero: [0; 8],
                };
                self.copy(&raw);
            }
            SocketAddr::V6(address) => {
                let raw = sockaddr_in6 {
                    sin6_family: libc::AF_INET6 as u16,
                    sin6_port: address.port().to_be(),
                    sin6_flowinfo: address.flowinfo(),
                    sin6_addr: libc::in6_addr { s6_addr: address.ip().octets() },
                    sin6_scope_id: address.scope_id(),
                };
                self.copy(&raw);
            }
        }
    }

    /// There is no address: its length is 0.
    pub(in crate::capi) fn write_none(self) {
        // SAFETY: `new` was promised that it is good for writes.
        unsafe { *self.length = 0 };
    }

    fn copy<T>(self, raw: &T) {
        let size = size_of::<T>();
        let from: *const c_void = core::ptr::from_ref(raw).cast();
        // SAFETY: reads at most the size of `raw` and writes at most `room` bytes, for which `new` was promised that `address`
        // is good; a caller's buffer does not overlap a value on this stack.
        unsafe { core::ptr::copy_nonoverlapping(from, self.address.cast(), size.min(self.room)) };
        // SAFETY: `new` was promised that it is good for writes.
        unsafe { *self.length = size as socklen_t };
    }
}

#[cfg(test)]
mod tests {
    use core::{net::Ipv6Addr, ptr::null_mut};

    use super::*;

    fn write(address: &str, room: u32) -> (Vec<u8>, u32) {
        let mut bytes = [0xa5u8; 40];
        let mut length = room;
        // SAFETY: both pointers are to live variables, and `room` is at most the buffer's size.
        let out = unsafe { Out::new(bytes.as_mut_ptr().cast(), &mut length) }.unwrap();
        out.write(&address.parse().unwrap());
        assert!(bytes.iter().skip(room as usize).all(|byte| *byte == 0xa5), "wrote past the caller's buffer");
        (bytes.into_iter().take(room as usize).collect(), length)
    }

    #[test]
    fn ipv4() {
        let (bytes, length) = write("10.1.2.3:4660", 16);
        assert_eq!(length, 16);
        assert_eq!(bytes, [2, 0, 0x12, 0x34, 10, 1, 2, 3, 0, 0, 0, 0, 0, 0, 0, 0]);
    }

    #[test]
    fn ipv6_and_the_mapped_form() {
        let (bytes, length) = write("[::ffff:10.1.2.3]:4660", 40);
        assert_eq!(length, 28);
        assert_eq!(&bytes[..8], [10, 0, 0x12, 0x34, 0, 0, 0, 0]);
        assert_eq!(&bytes[8..24], "::ffff:10.1.2.3".parse::<Ipv6Addr>().unwrap().octets());
        assert_eq!(&bytes[24..28], [0; 4]);
    }

    #[test]
    fn truncated_with_the_full_length_reported() {
        let (bytes, length) = write("10.1.2.3:4660", 6);
        assert_eq!((bytes.as_slice(), length), (&[2, 0, 0x12, 0x34, 10, 1][..], 16));
        assert_eq!(write("[::1]:1", 0), (vec![], 28));
    }

    #[test]
    fn bad_pointers_and_lengths() {
        let mut address = [0u8; 16];
        let mut negative = u32::MAX;
        let address: *mut sockaddr = address.as_mut_ptr().cast();
        let error = |address, length: *mut socklen_t| {
            // SAFETY: NULL is allowed, and a negative length allows nothing to be written.
            unsafe { Out::new(address, length) }.err()
        };
        assert_eq!(error(null_mut(), &mut 1), Some(Errno::FAULT));
        assert_eq!(error(null_mut(), &mut 0), None);
        assert_eq!(error(null_mut(), &mut negative), Some(Errno::INVAL));
        assert_eq!(error(address, null_mut()), Some(Errno::FAULT));
        assert_eq!(error(address, &mut negative), Some(Errno::INVAL));
        // SAFETY: NULL is allowed.
        assert!(unsafe { Out::wanted(null_mut(), null_mut()) }.unwrap().is_none());
        // SAFETY: too long: nothing is read.
        assert_eq!(unsafe { given(address, 129) }, Err(Errno::INVAL));
        // SAFETY: NULL is allowed.
        assert_eq!(unsafe { given(core::ptr::null(), 16) }, Err(Errno::FAULT));
    }
}
