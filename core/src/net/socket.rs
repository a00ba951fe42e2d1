//! An rsocket that is closed when it is dropped, and what streams, listeners and datagram sockets have in common.

use std::{
    ffi::c_int,
    io::{Error, ErrorKind, IoSlice, IoSliceMut, Result},
    net::SocketAddr,
    os::fd::{AsFd, BorrowedFd, RawFd},
    time::Duration,
};

use crate::capi::safe;

/// Owns the number.
#[derive(Debug)]
pub(super) struct Socket(safe::Descriptor);

impl Socket {
    /// A new one of the address's family, close-on-exec.
    pub(super) fn new(address: &SocketAddr, kind: c_int) -> Result<Self> {
        let domain = if address.is_ipv4() { libc::AF_INET } else { libc::AF_INET6 };
        safe::socket(domain, kind | libc::SOCK_CLOEXEC).map(Socket)
    }

    pub(super) fn of(descriptor: safe::Descriptor) -> Self {
        Socket(descriptor)
    }

    pub(super) fn fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }

    pub(super) fn into_raw(self) -> RawFd {
        safe::release(self.0)
    }

    pub(super) fn try_clone(&self) -> Result<Self> {
        safe::duplicate(self.fd()).map(Socket)
    }

    pub(super) fn bind(&self, address: &SocketAddr) -> Result<()> {
        safe::bind(self.fd(), address)
    }

    pub(super) fn connect(&self, address: &SocketAddr) -> Result<()> {
        match safe::connect(self.fd(), address) {
            // connect(2): "EINTR … POLLOUT indicates that the connection is complete": it goes on by itself, and std waits for it.
            Err(error) if error.kind() == ErrorKind::Interrupted => self.await_connection(None),
            done => done,
        }
    }

    /// connect(2), but no longer than this.
    pub(super) fn connect_within(&self, address: &SocketAddr, time: Duration) -> Result<()> {
        if time.is_zero() {
            return Err(Error::new(ErrorKind::InvalidInput, "a time-out of 0"));
        }
        self.set_nonblocking(true)?;
        let done = match safe::connect(self.fd(), address) {
            Err(error) if error.raw_os_error() == Some(libc::EINPROGRESS) => self.await_connection(Some(time)),
            done => done,
        };
        self.set_nonblocking(false)?;
        done
    }

    fn await_connection(&self, time: Option<Duration>) -> Result<()> {
        let mut entry = [super::PollFd::new(self, super::Events::WRITABLE)];
        if super::poll(&mut entry, time)? == 0 {
            return Err(ErrorKind::TimedOut.into());
        }
        self.take_error()?.map_or(Ok(()), Err)
    }

    pub(super) fn send(&self, from: &[IoSlice<'_>]) -> Result<usize> {
        safe::send(self.fd(), from, libc::MSG_NOSIGNAL, None)
    }

    pub(super) fn receive(&self, into: &mut [IoSliceMut<'_>]) -> Result<usize> {
        safe::receive(self.fd(), into, 0)
    }

    pub(super) fn peek(&self, into: &mut [u8]) -> Result<usize> {
        safe::receive(self.fd(), &mut [IoSliceMut::new(into)], libc::MSG_PEEK)
    }

    pub(super) fn local_addr(&self) -> Result<SocketAddr> {
        safe::getsockname(self.fd())
    }

    pub(super) fn peer_addr(&self) -> Result<SocketAddr> {
        safe::getpeername(self.fd())
    }

    pub(super) fn set_nonblocking(&self, on: bool) -> Result<()> {
        let before = safe::status_flags(self.fd())?;
        let after = if on { before | libc::O_NONBLOCK } else { before & !libc::O_NONBLOCK };
        safe::set_status_flags(self.fd(), after)
    }

    pub(super) fn take_error(&self) -> Result<Option<Error>> {
        let errno = self.number(libc::SOL_SOCKET, libc::SO_ERROR)?;
        Ok((errno != 0).then(|| Error::from_raw_os_error(errno)))
    }

    /// An option that is an int.
    pub(super) fn number(&self, level: c_int, name: c_int) -> Result<c_int> {
        safe::option::<c_int>(self.fd(), level, name)
    }

    pub(super) fn set_number(&self, level: c_int, name: c_int, value: c_int) -> Result<()> {
        safe::set_option(self.fd(), level, name, &value)
    }

    pub(super) fn flag(&self, level: c_int, name: c_int) -> Result<bool> {
        Ok(self.number(level, name)? != 0)
    }

    pub(super) fn set_flag(&self, level: c_int, name: c_int, on: bool) -> Result<()> {
        self.set_number(level, name, c_int::from(on))
    }

    /// SO_RCVTIMEO or SO_SNDTIMEO: 0 is none.
    pub(super) fn time(&self, name: c_int) -> Result<Option<Duration>> {
        let time: libc::timeval = safe::option(self.fd(), libc::SOL_SOCKET, name)?;
        let microseconds = u64::try_from(time.tv_usec).unwrap_or(0);
        let time = Duration::from_secs(u64::try_from(time.tv_sec).unwrap_or(0)) + Duration::from_micros(microseconds);
        Ok(Some(time).filter(|time| !time.is_zero()))
    }

    pub(super) fn set_time(&self, name: c_int, time: Option<Duration>) -> Result<()> {
        if time.is_some_and(|time| time.is_zero()) {
            return Err(Error::new(ErrorKind::InvalidInput, "a time-out of 0"));
        }
        let time = time.unwrap_or_default();
        let seconds = libc::time_t::try_from(time.as_secs()).unwrap_or(libc::time_t::MAX);
        // Less than a microsecond is not none.
        let microseconds = if seconds == 0 { time.subsec_nanos().div_ceil(1000) } else { time.subsec_micros() };
        let (seconds, microseconds) = (seconds + libc::time_t::from(microseconds / 1_000_000), microseconds % 1_000_000);
        safe::set_option(self.fd(), libc::SOL_SOCKET, name, &libc::timeval { tv_sec: seconds, tv_usec: microseconds.into() })
    }

    /// The time to live of IPv4, the hop limit of IPv6.
    fn ttl_option(&self) -> Result<(c_int, c_int)> {
        let v6 = self.local_addr()?.is_ipv6();
        Ok(if v6 { (libc::IPPROTO_IPV6, libc::IPV6_UNICAST_HOPS) } else { (libc::IPPROTO_IP, libc::IP_TTL) })
    }

    pub(super) fn ttl(&self) -> Result<u32> {
        let (level, name) = self.ttl_option()?;
        Ok(u32::try_from(self.number(level, name)?).unwrap_or(0))
    }

    pub(super) fn set_ttl(&self, ttl: u32) -> Result<()> {
        let (level, name) = self.ttl_option()?;
        self.set_number(level, name, c_int::try_from(ttl).unwrap_or(c_int::MAX))
    }
}

impl AsFd for Socket {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.fd()
    }
}

/// What each of the types has, with the words of its own.
macro_rules! common {
    ($kind:ident) => {
        impl $kind {
            /// Another descriptor of the same socket (dup(2)).
            pub fn try_clone(&self) -> io::Result<Self> {
                self.0.try_clone().map($kind)
            }

            /// The address of this end (getsockname(2)).
            pub fn local_addr(&self) -> io::Result<SocketAddr> {
                self.0.local_addr()
            }

            /// Whether calls return [`WouldBlock`](io::ErrorKind::WouldBlock) where they would wait (O_NONBLOCK).
            pub fn set_nonblocking(&self, nonblocking: bool) -> io::Result<()> {
                self.0.set_nonblocking(nonblocking)
            }

            /// The error that is pending, which is gone then (SO_ERROR).
            pub fn take_error(&self) -> io::Result<Option<io::Error>> {
                self.0.take_error()
            }

            /// IP_TTL, or IPV6_UNICAST_HOPS.
            pub fn ttl(&self) -> io::Result<u32> {
                self.0.ttl()
            }

            /// Sets what [`Self::ttl`] gives. It has a meaning for the kernel's connections.
            pub fn set_ttl(&self, ttl: u32) -> io::Result<()> {
                self.0.set_ttl(ttl)
            }
        }

        impl AsFd for $kind {
            fn as_fd(&self) -> BorrowedFd<'_> {
                self.0.fd()
            }
        }

        impl AsRawFd for $kind {
            fn as_raw_fd(&self) -> RawFd {
                self.0.fd().as_raw_fd()
            }
        }

        impl FromRawFd for $kind {
            /// # Safety
            /// The number must be that of an rsocket of this kind, and owned by nobody else: see [`FromRawFd::from_raw_fd`].
            unsafe fn from_raw_fd(number: RawFd) -> Self {
                // SAFETY: the caller's promise is the one asked for.
                $kind(Socket::of(unsafe { safe::Descriptor::from_raw(number) }))
            }
        }

        /// To be closed by rclose, or by what [`FromRawFd`] makes of it.
        impl IntoRawFd for $kind {
            fn into_raw_fd(self) -> RawFd {
                self.0.into_raw()
            }
        }
    };
}
pub(super) use common;

/// What those have that carry data.
macro_rules! carries_data {
    ($kind:ident) => {
        impl $kind {
            /// How long a read waits before it fails with [`WouldBlock`](io::ErrorKind::WouldBlock) (SO_RCVTIMEO); `None`: for ever.
            pub fn read_timeout(&self) -> io::Result<Option<Duration>> {
                self.0.time(libc::SO_RCVTIMEO)
            }

            /// Sets what [`Self::read_timeout`] gives. A time of 0 is [`InvalidInput`](io::ErrorKind::InvalidInput).
            pub fn set_read_timeout(&self, time: Option<Duration>) -> io::Result<()> {
                self.0.set_time(libc::SO_RCVTIMEO, time)
            }

            /// The same for writes (SO_SNDTIMEO).
            pub fn write_timeout(&self) -> io::Result<Option<Duration>> {
                self.0.time(libc::SO_SNDTIMEO)
            }

            /// Sets what [`Self::write_timeout`] gives. A time of 0 is [`InvalidInput`](io::ErrorKind::InvalidInput).
            pub fn set_write_timeout(&self, time: Option<Duration>) -> io::Result<()> {
                self.0.set_time(libc::SO_SNDTIMEO, time)
            }

            /// The address of the other end (getpeername(2)).
            pub fn peer_addr(&self) -> io::Result<SocketAddr> {
                self.0.peer_addr()
            }

            /// Reads what stays to be read (MSG_PEEK).
            pub fn peek(&self, into: &mut [u8]) -> io::Result<usize> {
                self.0.peek(into)
            }
        }
    };
}
pub(super) use carries_data;
