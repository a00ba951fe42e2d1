//! getsockopt and setsockopt. The kernel's socket keeps and checks every option (DESIGN: D1); what a fabric needs to know is
//! noted besides.

mod info;

use core::{ops::RangeInclusive, time::Duration};
use std::os::fd::RawFd;

use smallvec::SmallVec;

use super::{Route, datagram, deferred, inherited, ours};
use crate::{
    error::{Errno, Result},
    fabric::Path,
    fd::Held,
    socket::{Role, Socket, engine::Sizes, options::Options},
    sys::sockopt,
    wire::round_iomap_size,
};

/// An option's value, most of which are ints.
pub type Value = SmallVec<[u8; 8]>;

/// The level of the options that only rsockets have.
pub const SOL_RDMA: i32 = 0x10000;
/// Send queue entries.
pub const RDMA_SQSIZE: i32 = 0;
/// Receive queue entries.
pub const RDMA_RQSIZE: i32 = 1;
/// Inline size in bytes.
pub const RDMA_INLINE: i32 = 2;
/// Entries of the iomap table.
pub const RDMA_IOMAPSIZE: i32 = 3;

/// The path through an InfiniBand fabric: `struct ibv_path_data`, an array when it is set.
pub const RDMA_ROUTE: i32 = 4;
/// Bytes of RDMA_ROUTE that are looked at.
const ROUTE_MOST: usize = 16 * Path::BYTES;

/// Bounds of the queue sizes.
const QUEUE: RangeInclusive<u32> = 16..=65534;
/// Largest buffer, in bytes.
const BUFFER_MOST: u32 = 1 << 30;
/// Smallest buffer, in bytes (socket(7): the doubled minimum of SO_RCVBUF is 256).
const BUFFER_LEAST: u32 = 256;

/// getsockopt(2): the value, uncut. Whatever the kernel's socket knows itself is the kernel's to answer.
pub fn getsockopt(fd: RawFd, level: i32, name: i32) -> Route<Value> {
    let Some(held) = ours(fd) else {
        let lost = (level, name) == (libc::SOL_SOCKET, libc::SO_ERROR) && inherited::is_lost(fd);
        return if lost { Route::ok(int(Errno::CONNRESET.raw_os_error())) } else { Route::Kernel };
    };
    if (level, name) == (SOL_RDMA, RDMA_ROUTE) {
        return Route::ok(path(&held));
    }
    if level == SOL_RDMA {
        return rdma_value(&held, name).map(int).into();
    }
    if let (libc::IPPROTO_TCP, libc::TCP_DEFER_ACCEPT, Some(seconds)) = (level, name, held.socket.options.defer_accept()) {
        return Route::ok(int(seconds));
    }
    if let (libc::SOL_SOCKET, libc::SO_ACCEPTCONN, Some(listener)) = (level, name, held.socket.listener()) {
        return Route::ok(int(i32::from(!listener.is_closed())));
    }
    if let (libc::SOL_SOCKET, libc::SO_ERROR, Some(datagram)) = (level, name, held.socket.datagram()) {
        return datagram.take_error(fd).map(int).into();
    }
    let Some(stream) = held.socket.stream().filter(|stream| !stream.is_moving()) else { return Route::Kernel };
    match (level, name) {
        (libc::SOL_SOCKET, libc::SO_ERROR) => stream.take_error().map(|error| int(error.map_or(0, Errno::raw_os_error))).into(),
        (libc::IPPROTO_TCP, libc::TCP_INFO) => info::tcp_info(fd, &held, stream).into(),
        (libc::IPPROTO_TCP, libc::TCP_MAXSEG) => info::segment(&held, stream),
        (libc::IPPROTO_IP, libc::IP_MTU) => info::mtu(stream),
        (libc::IPPROTO_IPV6, libc::IPV6_MTU) if held.socket.domain == libc::AF_INET6 => info::mtu(stream),
        _ => Route::Kernel,
    }
}

fn int(value: i32) -> Value {
    Value::from_slice(&value.to_ne_bytes())
}

/// The path that was set, or that the connection has; nothing where there is none, as over shared memory.
fn path(held: &Held) -> Value {
    let path = held.socket.stream().and_then(|stream| stream.path()).or_else(|| held.socket.options.path());
    path.map_or_else(Value::new, |path| Value::from_slice(path.bytes()))
}

fn rdma_value(held: &Held, name: i32) -> Result<i32> {
    let sizes = held.socket.options.sizes();
    let value = match name {
        RDMA_SQSIZE => sizes.send_queue,
        RDMA_RQSIZE => sizes.receive_queue,
        RDMA_INLINE => sizes.inline,
        RDMA_IOMAPSIZE => sizes.iomap_entries,
        _ => return Err(Errno::NOPROTOOPT),
    };
    Ok(i32::try_from(value).unwrap_or(i32::MAX))
}

/// setsockopt(2): `kernel` makes the call on the kernel's socket, `read` gives the value, up to so many bytes.
pub fn setsockopt<'a>(
    fd: RawFd,
    level: i32,
    name: i32,
    kernel: impl FnOnce() -> Result<()>,
    read: impl Fn(usize) -> Result<&'a [u8]>,
) -> Route<()> {
    let Some(held) = ours(fd) else { return Route::Kernel };
    if level == SOL_RDMA {
        let most = if name == RDMA_ROUTE { ROUTE_MOST } else { size_of::<i32>() };
        return read(most).and_then(|value| set_rdma(&held, name, value)).into();
    }
    if let Err(errno) = fits_state(&held, level, name, || read(size_of::<i32>()).map(integer)) {
        return Route::err(errno);
    }
    // The kernel checks value and length, and getsockopt shows what it has made of them.
    if let Err(errno) = kernel() {
        return Route::err(errno);
    }
    let Ok(value) = read(Options::length(level, name)) else { return Route::ok(()) };
    taken(fd, &held.socket, level, name, value);
    datagram::set(fd, &held, level, name, value);
    Route::ok(())
}

/// The kernel has taken this setting.
pub(super) fn taken(fd: RawFd, socket: &Socket, level: i32, name: i32, value: &[u8]) {
    socket.options.remember(level, name, value);
    note(fd, socket, level, name, value);
}

/// What the kernel's socket would take, which knows of no connection, and TCP does not in a socket that has one.
fn fits_state(held: &Held, level: i32, name: i32, value: impl Fn() -> Result<Option<i32>>) -> Result<()> {
    let Some(stream) = held.socket.stream() else { return Ok(()) };
    let refused = match (level, name) {
        // tcp(7): these are about the way a connection begins; and a window that is clamped to nothing would be one's last.
        (libc::IPPROTO_TCP, libc::TCP_FASTOPEN | libc::TCP_FASTOPEN_CONNECT) => !stream.is_over(),
        (libc::IPPROTO_TCP, libc::TCP_WINDOW_CLAMP) => value()? == Some(0) && !stream.is_over(),
        // ipv6(7): the address is bound.
        (libc::IPPROTO_IPV6, libc::IPV6_V6ONLY) => held.socket.domain == libc::AF_INET6,
        _ => false,
    };
    match (refused, level) {
        (false, _) => Ok(()),
        // The one that looks at the socket before it looks at the value.
        (true, libc::IPPROTO_IPV6) => Err(Errno::INVAL),
        (true, _) => value().and(Err(Errno::INVAL)),
    }
}

fn integer(value: &[u8]) -> Option<i32> {
    value.first_chunk().map(|bytes| i32::from_ne_bytes(*bytes))
}

fn set_rdma(held: &Held, name: i32, value: &[u8]) -> Result<()> {
    // The queues of a connection are made with it, its path is asked for; a listener's table is that of connections to come.
    let in_time = matches!((held.socket.role(), name), (Role::Fresh, _) | (Role::Listener, RDMA_IOMAPSIZE));
    if name == RDMA_ROUTE {
        let path = Path::choose(value)?;
        if !in_time {
            return Err(Errno::INVAL);
        }
        held.socket.options.set_path(path);
        return Ok(());
    }
    let wanted = integer(value).and_then(|value| u32::try_from(value).ok()).ok_or(Errno::INVAL)?;
    let change: fn(&mut Sizes, u32) = match name {
        RDMA_SQSIZE => |sizes, wanted| sizes.send_queue = wanted.clamp(*QUEUE.start(), *QUEUE.end()),
        RDMA_RQSIZE => |sizes, wanted| sizes.receive_queue = wanted.clamp(*QUEUE.start(), *QUEUE.end()),
        RDMA_INLINE => |sizes, wanted| sizes.inline = wanted.min(4096),
        RDMA_IOMAPSIZE => |sizes, wanted| sizes.iomap_entries = u32::from(round_iomap_size(u16::try_from(wanted).unwrap_or(u16::MAX))),
        _ => return Err(Errno::NOPROTOOPT),
    };
    if !in_time {
        return Err(Errno::INVAL);
    }
    held.socket.options.set_sizes(|sizes| change(sizes, wanted));
    if let Some(listener) = held.socket.listener() {
        listener.resize(held.socket.options.sizes());
    }
    Ok(())
}

/// Notes what a fabric needs to know of an option that the kernel has taken.
fn note(fd: RawFd, socket: &Socket, level: i32, name: i32, value: &[u8]) {
    let options = &socket.options;
    match (level, name) {
        (libc::SOL_SOCKET, libc::SO_RCVBUF) => {
            let size = buffer(fd, name, value) & !1;
            options.set_sizes(|sizes| (sizes.receive_bytes, sizes.shm_receive_bytes) = (size, size));
            if let Some(listener) = socket.listener() {
                listener.resize(options.sizes());
            }
        }
        (libc::SOL_SOCKET, libc::SO_SNDBUF) => {
            let size = buffer(fd, name, value);
            options.set_sizes(|sizes| sizes.send_bytes = size);
        }
        (libc::SOL_SOCKET, libc::SO_RCVTIMEO) => options.set_receive_timeout(time(value)),
        (libc::SOL_SOCKET, libc::SO_SNDTIMEO) => options.set_send_timeout(time(value)),
        (libc::SOL_SOCKET, libc::SO_LINGER) => {
            options.set_linger(linger(value));
            if let Some(stream) = socket.stream() {
                stream.set_resets(options.linger());
            }
        }
        (libc::SOL_SOCKET, libc::SO_KEEPALIVE)
        | (libc::IPPROTO_TCP, libc::TCP_KEEPIDLE | libc::TCP_KEEPINTVL | libc::TCP_KEEPCNT | libc::TCP_USER_TIMEOUT) => {
            set_patience(socket, level, name, integer(value).unwrap_or(0))
        }
        (libc::IPPROTO_TCP, libc::TCP_MAXSEG) if socket.role() != Role::Stream => {
            options.set_segment(integer(value).and_then(|value| u32::try_from(value).ok()).unwrap_or(0));
        }
        // The client says nothing before the server has come: the kernel would keep them apart.
        (libc::IPPROTO_TCP, libc::TCP_DEFER_ACCEPT) if deferred::is_wanted(socket) => {
            let mut kept = [0; 4];
            let kept = sockopt::get(fd, level, name, &mut kept).map_or(0, |_| i32::from_ne_bytes(kept));
            options.set_defer_accept(kept);
            let _ = sockopt::set(fd, level, name, &0_i32.to_ne_bytes());
        }
        (libc::SOL_SOCKET, libc::SO_RCVLOWAT) => {
            // The kernel limits it to what its buffer may hold.
            let mut kept = [0; 4];
            let kept = sockopt::get(fd, level, name, &mut kept).map_or(1, |_| i32::from_ne_bytes(kept));
            options.set_receive_low(kept);
            if let Some(stream) = socket.stream() {
                stream.set_receive_low(options.receive_low());
            }
        }
        (libc::IPPROTO_IP, libc::IP_TOS) | (libc::IPPROTO_IPV6, libc::IPV6_TCLASS) => {
            let tos = integer(value).or_else(|| value.first().map(|byte| i32::from(*byte)));
            options.set_tos(tos.and_then(|tos| u8::try_from(tos).ok()).unwrap_or(0));
        }
        _ => {}
    }
}

/// Notes for how long a peer may be silent.
fn set_patience(socket: &Socket, level: i32, name: i32, value: i32) {
    let options = &socket.options;
    let number = u32::try_from(value).unwrap_or(0);
    options.set_patience(|of| match (level, name) {
        (libc::SOL_SOCKET, _) => of.on = value != 0,
        (_, libc::TCP_KEEPIDLE) => of.idle = number,
        (_, libc::TCP_KEEPINTVL) => of.interval = number,
        (_, libc::TCP_KEEPCNT) => of.count = number,
        _ => of.user = number,
    });
    if let Some(stream) = socket.stream() {
        stream.set_patience(options.patience());
    }
}

/// socket(7): "The kernel doubles this value (to allow space for bookkeeping overhead)". A negative one is the largest that the kernel
/// allows.
fn buffer(fd: RawFd, name: i32, value: &[u8]) -> u32 {
    let unsigned = |value: &[u8]| integer(value).and_then(|value| u32::try_from(value).ok());
    let doubled = unsigned(value).map(|value| value.saturating_mul(2)).or_else(|| {
        let mut kernels = [0; 4];
        sockopt::get(fd, libc::SOL_SOCKET, name, &mut kernels).ok()?;
        unsigned(&kernels)
    });
    doubled.unwrap_or(0).clamp(BUFFER_LEAST, BUFFER_MOST)
}

/// A `struct timeval`; zero means none, and negative seconds, as for the kernel, that nothing is waited for.
fn time(value: &[u8]) -> Option<Duration> {
    let seconds = i64::from_ne_bytes(*value.first_chunk()?);
    let micros = i64::from_ne_bytes(*value.get(8..)?.first_chunk()?);
    let Ok(seconds) = u64::try_from(seconds) else { return Some(Duration::from_nanos(1)) };
    let time = Duration::from_secs(seconds) + Duration::from_micros(u64::try_from(micros).unwrap_or(0));
    (!time.is_zero()).then_some(time)
}

/// A `struct linger`: seconds, if it is on.
fn linger(value: &[u8]) -> Option<Duration> {
    let on = i32::from_ne_bytes(*value.first_chunk()?);
    let seconds = i32::from_ne_bytes(*value.get(4..)?.first_chunk()?);
    (on != 0).then(|| Duration::from_secs(u64::try_from(seconds).unwrap_or(0)))
}
