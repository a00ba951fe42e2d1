//! rgetsockopt, rsetsockopt, and the options that only rsockets have.

use libc::{c_int, c_void, socklen_t};

use super::{boundary::option, serve};
use crate::sys::kernel::call;

/// The level of the options that only rsockets have.
pub const SOL_RDMA: c_int = 0x10000;
/// Send queue size: int.
pub const RDMA_SQSIZE: c_int = 0;
/// Receive queue size: int.
pub const RDMA_RQSIZE: c_int = 1;
/// Most bytes sent inline: int.
pub const RDMA_INLINE: c_int = 2;
/// Entries of the remote iomapping table: int.
pub const RDMA_IOMAPSIZE: c_int = 3;
/// The route: `struct ibv_path_data` array.
pub const RDMA_ROUTE: c_int = 4;

/// setsockopt(2).
///
/// # Safety
/// `optval` must be good for reads of `optlen` bytes.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rsetsockopt(socket: c_int, level: c_int, optname: c_int, optval: *const c_void, optlen: socklen_t) -> c_int {
    serve!(option::setsockopt(socket, level, optname, optval, optlen), call!(libc::SYS_setsockopt, socket, level, optname, optval, optlen))
}

/// getsockopt(2).
///
/// # Safety
/// `optlen` must be good for reads and writes, and `optval` for writes of `*optlen` bytes.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rgetsockopt(socket: c_int, level: c_int, optname: c_int, optval: *mut c_void, optlen: *mut socklen_t) -> c_int {
    serve!(option::getsockopt(socket, level, optname, optval, optlen), call!(libc::SYS_getsockopt, socket, level, optname, optval, optlen))
}
