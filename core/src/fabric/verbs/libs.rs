//! The table of functions taken from librdmacm and libibverbs.
//!
//! Both libraries are opened at the first use and never linked, so that a program without rsockets does not pay for them
//! and a host without them works. They are never closed. Whoever calls through the table holds an
//! [`inside`](crate::sys::inside) guard: the libraries call `socket`, `read`, `close` and the like, which may be hooked.

use core::ffi::{CStr, c_int, c_uint, c_void};

use rdma_sys::{
    ibv_ah, ibv_ah_attr, ibv_comp_channel, ibv_context, ibv_cq, ibv_device, ibv_device_attr, ibv_gid, ibv_mr, ibv_pd, ibv_port_attr,
    ibv_qp, ibv_qp_attr, ibv_qp_init_attr, rdma_cm_event, rdma_cm_id, rdma_conn_param, rdma_event_channel, rdma_port_space,
};

use super::OpenError;
use crate::{
    error::Errno,
    sys::{inside, once::Once},
};

/// Opens a library and returns its handle.
fn open(name: &'static CStr) -> Result<*mut c_void, OpenError> {
    // SAFETY: the name is a terminated string; the libraries' constructors have no requirements.
    let handle = unsafe { libc::dlopen(name.as_ptr(), libc::RTLD_NOW | libc::RTLD_LOCAL) };
    if handle.is_null() { Err(OpenError::Library { name: name.to_str().unwrap_or_default() }) } else { Ok(handle) }
}

/// Looks up a symbol; null if it is not there.
fn symbol(handle: *mut c_void, name: &'static CStr) -> *mut c_void {
    // SAFETY: the handle came from dlopen and is never closed; the name is a terminated string.
    unsafe { libc::dlsym(handle, name.as_ptr()) }
}

macro_rules! table {
    ($($library:literal { $($name:ident: fn($($argument:ty),*) $(-> $result:ty)?;)* })*) => {
        /// Pointers to every function that is needed.
        pub(super) struct Libs {
            $($(pub(super) $name: unsafe extern "C" fn($($argument),*) $(-> $result)?,)*)*
            /// Makes registered memory survive fork on old kernels; absent in very old libraries.
            fork_init: Option<unsafe extern "C" fn() -> c_int>,
        }

        impl Libs {
            fn load() -> Result<Self, OpenError> {
                let fork_init = symbol(open(c"libibverbs.so.1")?, c"ibv_fork_init");
                Ok(Libs {
                    $($($name: {
                        const NAME: &CStr = match CStr::from_bytes_with_nul(concat!(stringify!($name), "\0").as_bytes()) {
                            Ok(name) => name,
                            Err(_) => c"",
                        };
                        let found = symbol(open($library)?, NAME);
                        if found.is_null() {
                            return Err(OpenError::Symbol { name: stringify!($name) });
                        }
                        // SAFETY: the library's ABI version (so name) fixes the function's type, which is the one declared in its
                        // public header; the pointer is not null and the library stays loaded.
                        unsafe { core::mem::transmute::<*mut c_void, unsafe extern "C" fn($($argument),*) $(-> $result)?>(found) }
                    },)*)*
                    // SAFETY: as above; a null pointer becomes None.
                    fork_init: unsafe { core::mem::transmute::<*mut c_void, Option<unsafe extern "C" fn() -> c_int>>(fork_init) },
                })
            }
        }
    };
}

table! {
    c"librdmacm.so.1" {
        rdma_create_event_channel: fn() -> *mut rdma_event_channel;
        rdma_destroy_event_channel: fn(*mut rdma_event_channel);
        rdma_create_id: fn(*mut rdma_event_channel, *mut *mut rdma_cm_id, *mut c_void, rdma_port_space::Type) -> c_int;
        rdma_destroy_id: fn(*mut rdma_cm_id) -> c_int;
        rdma_bind_addr: fn(*mut rdma_cm_id, *mut libc::sockaddr) -> c_int;
        rdma_resolve_addr: fn(*mut rdma_cm_id, *mut libc::sockaddr, *mut libc::sockaddr, c_int) -> c_int;
        rdma_resolve_route: fn(*mut rdma_cm_id, c_int) -> c_int;
        rdma_connect: fn(*mut rdma_cm_id, *mut rdma_conn_param) -> c_int;
        rdma_establish: fn(*mut rdma_cm_id) -> c_int;
        rdma_listen: fn(*mut rdma_cm_id, c_int) -> c_int;
        rdma_accept: fn(*mut rdma_cm_id, *mut rdma_conn_param) -> c_int;
        rdma_reject: fn(*mut rdma_cm_id, *const c_void, u8) -> c_int;
        rdma_disconnect: fn(*mut rdma_cm_id) -> c_int;
        rdma_get_cm_event: fn(*mut rdma_event_channel, *mut *mut rdma_cm_event) -> c_int;
        rdma_ack_cm_event: fn(*mut rdma_cm_event) -> c_int;
        rdma_set_option: fn(*mut rdma_cm_id, c_int, c_int, *mut c_void, usize) -> c_int;
        rdma_init_qp_attr: fn(*mut rdma_cm_id, *mut ibv_qp_attr, *mut c_int) -> c_int;
    }
    c"libibverbs.so.1" {
        ibv_get_device_list: fn(*mut c_int) -> *mut *mut ibv_device;
        ibv_free_device_list: fn(*mut *mut ibv_device);
        ibv_query_device: fn(*mut ibv_context, *mut ibv_device_attr) -> c_int;
        ibv_alloc_pd: fn(*mut ibv_context) -> *mut ibv_pd;
        ibv_dealloc_pd: fn(*mut ibv_pd) -> c_int;
        ibv_reg_mr: fn(*mut ibv_pd, *mut c_void, usize, c_int) -> *mut ibv_mr;
        ibv_dereg_mr: fn(*mut ibv_mr) -> c_int;
        ibv_create_comp_channel: fn(*mut ibv_context) -> *mut ibv_comp_channel;
        ibv_destroy_comp_channel: fn(*mut ibv_comp_channel) -> c_int;
        ibv_create_cq: fn(*mut ibv_context, c_int, *mut c_void, *mut ibv_comp_channel, c_int) -> *mut ibv_cq;
        ibv_destroy_cq: fn(*mut ibv_cq) -> c_int;
        ibv_get_cq_event: fn(*mut ibv_comp_channel, *mut *mut ibv_cq, *mut *mut c_void) -> c_int;
        ibv_ack_cq_events: fn(*mut ibv_cq, c_uint);
        ibv_create_qp: fn(*mut ibv_pd, *mut ibv_qp_init_attr) -> *mut ibv_qp;
        ibv_modify_qp: fn(*mut ibv_qp, *mut ibv_qp_attr, c_int) -> c_int;
        ibv_destroy_qp: fn(*mut ibv_qp) -> c_int;
        ibv_query_port: fn(*mut ibv_context, u8, *mut ibv_port_attr) -> c_int;
        ibv_query_gid: fn(*mut ibv_context, u8, c_int, *mut ibv_gid) -> c_int;
        ibv_create_ah: fn(*mut ibv_pd, *mut ibv_ah_attr) -> *mut ibv_ah;
        ibv_destroy_ah: fn(*mut ibv_ah) -> c_int;
    }
}

/// The process's table. The first call opens the libraries; a failure is remembered too.
pub(super) fn get() -> Result<&'static Libs, OpenError> {
    static LIBS: Once<Result<Libs, OpenError>> = Once::new();
    let libs = LIBS.get_or_init(|| {
        let _inside = inside::enter_uncancelled();
        let libs = Libs::load()?;
        if let Some(fork_init) = libs.fork_init {
            // SAFETY: no preconditions; nothing has been registered yet. Its failure only means that old kernels lose a child's pages.
            let _ = unsafe { fork_init() };
        }
        Ok(libs)
    });
    libs.as_ref().map_err(OpenError::clone)
}

/// The errno of the call just made, where it returned -1 or null.
pub(super) fn last_errno() -> Errno {
    match std::io::Error::last_os_error().raw_os_error() {
        Some(code) if code > 0 => Errno::from_raw_os_error(code),
        _ => Errno::IO,
    }
}

/// Turns -1 into the errno.
pub(super) fn check(result: c_int) -> crate::error::Result<()> {
    if result == 0 { Ok(()) } else { Err(last_errno()) }
}

/// For functions that return an errno themselves, as most of libibverbs does.
pub(super) fn check_code(result: c_int) -> crate::error::Result<()> {
    match result {
        0 => Ok(()),
        1..=4095 => Err(Errno::from_raw_os_error(result)),
        _ => Err(last_errno()),
    }
}
