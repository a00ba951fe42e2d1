//! Paths of datagrams: the device's port, and address handles.

use core::{
    ffi::{CStr, c_int},
    mem::MaybeUninit,
};
use std::{ffi::OsStr, os::unix::ffi::OsStrExt, path::Path, sync::Arc};

use rdma_sys::{ibv_ah, ibv_ah_attr, ibv_gid, ibv_global_route, ibv_port_attr};

use crate::{
    error::{Errno, Result},
    fabric::{
        path::Record,
        verbs::{device::Device, libs},
    },
    sys::inside,
};

/// IBV_LINK_LAYER_ETHERNET.
const ETHERNET: u8 = 2;
/// Entries of a port's table that an address handle can name.
const GIDS: c_int = 256;
/// The MTU is a code in path records and attributes: 1 is 256 bytes, 2 is 512, up to 5.
const LARGEST_CODE: u8 = 5;
/// Routers that a packet may pass where the record does not say, on Ethernet: 0 would not leave the host.
const HOPS: u8 = 64;

/// Bytes of a code of the MTU; the least there is for a code that is none.
fn mtu(code: u8) -> usize {
    if code <= LARGEST_CODE { 128 << code.max(1) } else { 256 }
}

/// A port of a device.
pub(super) struct Port {
    /// Its number.
    pub(super) number: u8,
    /// Bytes of the longest message.
    pub(super) largest: usize,
    is_ethernet: bool,
    gids: c_int,
}

impl Port {
    pub(super) fn new(device: &Device, number: u8) -> Result<Self> {
        let _inside = inside::enter_uncancelled();
        let mut attributes = MaybeUninit::<ibv_port_attr>::zeroed();
        // SAFETY: the context is valid; the attributes are ours to write.
        libs::check_code(unsafe { (device.libs().ibv_query_port)(device.context(), number, attributes.as_mut_ptr()) })?;
        // SAFETY: plain numbers, zeroed above and filled in by the call.
        let attributes = unsafe { attributes.assume_init() };
        Ok(Port {
            number,
            largest: mtu(u8::try_from(attributes.active_mtu).unwrap_or(0)),
            is_ethernet: attributes.link_layer == ETHERNET,
            gids: attributes.gid_tbl_len.clamp(0, GIDS),
        })
    }

    /// Where a GID stands in the port's table. On Ethernet it stands there once for each version of RoCE, of which 2 is what the connection
    /// manager speaks.
    fn index(&self, device: &Device, gid: &[u8; 16]) -> Option<u8> {
        let mut entries = (0..self.gids).filter(|index| gid_at(device, self.number, *index).is_some_and(|at| at == *gid));
        let index = if self.is_ethernet {
            let first = entries.next()?;
            let second = |index: &c_int| is_version_2(&gid_type(device, self.number, *index));
            if second(&first) { first } else { entries.find(second).unwrap_or(first) }
        } else {
            entries.next()?
        };
        u8::try_from(index).ok()
    }
}

fn gid_at(device: &Device, port: u8, index: c_int) -> Option<[u8; 16]> {
    let mut gid = ibv_gid { raw: [0; 16] };
    // SAFETY: the context is valid; the GID is ours to write.
    libs::check(unsafe { (device.libs().ibv_query_gid)(device.context(), port, index, &mut gid) }).ok()?;
    // SAFETY: a union of 16 bytes, all of which are written above.
    Some(unsafe { gid.raw })
}

/// What the kernel says of an entry, empty if it says nothing.
fn gid_type(device: &Device, port: u8, index: c_int) -> String {
    // SAFETY: the context is valid, and its device does not change.
    let of = unsafe { (*device.context()).device };
    // SAFETY: the device of an open context is valid.
    let of = unsafe { &*of };
    // SAFETY: the library terminates the name.
    let name = unsafe { CStr::from_ptr(of.name.as_ptr()) };
    let types = Path::new("/sys/class/infiniband").join(OsStr::from_bytes(name.to_bytes())).join(format!("ports/{port}/gid_attrs/types"));
    std::fs::read_to_string(types.join(index.to_string())).unwrap_or_default()
}

/// "IB/RoCE v1" or "RoCE v2".
fn is_version_2(name: &str) -> bool {
    name.trim_end() == "RoCE v2"
}

/// Where messages go that are sent with it. Destroyed after those have left: see [`Address::last`].
pub(super) struct Address {
    raw: *mut ibv_ah,
    /// Bytes of the longest message.
    pub(super) largest: usize,
    /// The latest message that was sent with it, 0 for none.
    pub(super) last: u64,
    device: Arc<Device>,
}

// SAFETY: libibverbs lets any thread use an address handle.
unsafe impl Send for Address {}

impl Address {
    /// Of a path from this port.
    pub(super) fn new(device: &Arc<Device>, port: &Port, path: &Record) -> Result<Self> {
        let _inside = inside::enter_uncancelled();
        let mut attributes = attributes(port, path, || port.index(device, &path.source))?;
        // SAFETY: the domain lives as long as the device; the attributes are valid for the call.
        let raw = unsafe { (device.libs().ibv_create_ah)(device.pd(), &mut attributes) };
        if raw.is_null() {
            return Err(libs::last_errno());
        }
        Ok(Address { raw, largest: mtu(path.mtu.1), last: 0, device: Arc::clone(device) })
    }

    /// The handle, valid as long as `self`.
    pub(super) fn raw(&self) -> *mut ibv_ah {
        self.raw
    }
}

impl Drop for Address {
    fn drop(&mut self) {
        let _inside = inside::enter_uncancelled();
        // SAFETY: made in `new`, dropped once; its owner keeps it until the device has sent what was posted with it.
        let _ = unsafe { (self.device.libs().ibv_destroy_ah)(self.raw) };
    }
}

/// On Ethernet every handle has a global route, also that to oneself: there is no other way to say an address there.
fn attributes(port: &Port, path: &Record, source: impl FnOnce() -> Option<u8>) -> Result<ibv_ah_attr> {
    let is_global = port.is_ethernet || path.hop_limit > 1;
    let mut route = ibv_global_route { dgid: ibv_gid { raw: [0; 16] }, flow_label: 0, sgid_index: 0, hop_limit: 0, traffic_class: 0 };
    if is_global {
        route = ibv_global_route {
            dgid: ibv_gid { raw: path.destination },
            flow_label: path.flow_label & 0xf_ffff,
            sgid_index: source().ok_or(Errno::ADDRNOTAVAIL)?,
            hop_limit: if path.hop_limit == 0 { HOPS } else { path.hop_limit },
            traffic_class: path.traffic_class,
        };
    }
    Ok(ibv_ah_attr {
        grh: route,
        dlid: path.destination_lid,
        sl: path.service_level,
        src_path_bits: u8::try_from(path.source_lid & 0x7f).unwrap_or(0),
        static_rate: path.rate.1,
        is_global: u8::from(is_global),
        port_num: port.number,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    const PATH: Record = Record {
        destination: [0xd; 16],
        source: [5; 16],
        destination_lid: 0x1234,
        source_lid: 0x5681,
        flow_label: 0xff_abcde,
        hop_limit: 1,
        traffic_class: 0x20,
        reversible: true,
        paths: 1,
        partition: 0xffff,
        service_level: 3,
        mtu: (2, 4),
        rate: (2, 3),
        life_time: (2, 18),
    };

    fn port(is_ethernet: bool) -> Port {
        Port { number: 2, largest: 1024, is_ethernet, gids: 16 }
    }

    fn destination(attributes: &ibv_ah_attr) -> [u8; 16] {
        // SAFETY: a union of 16 bytes.
        unsafe { attributes.grh.dgid.raw }
    }

    #[test]
    fn codes_are_sizes() {
        assert_eq!([1, 2, 3, 4, 5].map(mtu), [256, 512, 1024, 2048, 4096]);
        assert_eq!([0, 6, 255].map(mtu), [256; 3]);
    }

    #[test]
    fn names_of_versions() {
        assert!(is_version_2("RoCE v2\n") && is_version_2("RoCE v2"));
        assert!(!is_version_2("IB/RoCE v1\n") && !is_version_2(""));
    }

    #[test]
    fn ethernet_has_a_global_route() {
        let made = attributes(&port(true), &PATH, || Some(7)).unwrap();
        assert_eq!((made.is_global, made.port_num, made.grh.sgid_index, made.grh.hop_limit), (1, 2, 7, 1));
        assert_eq!((destination(&made), made.grh.flow_label, made.grh.traffic_class), ([0xd; 16], 0xa_bcde, 0x20));
        let silent = attributes(&port(true), &Record { hop_limit: 0, ..PATH }, || Some(7)).unwrap();
        assert_eq!((silent.is_global, silent.grh.hop_limit), (1, HOPS));
        assert_eq!(attributes(&port(true), &PATH, || None).err(), Some(Errno::ADDRNOTAVAIL));
    }

    #[test]
    fn elsewhere_only_beyond_a_router() {
        let near = attributes(&port(false), &PATH, || panic!("not asked")).unwrap();
        assert_eq!((near.is_global, near.dlid, near.sl, near.src_path_bits, near.static_rate), (0, 0x1234, 3, 1, 3));
        let far = attributes(&port(false), &Record { hop_limit: 2, ..PATH }, || Some(0)).unwrap();
        assert_eq!((far.is_global, far.grh.hop_limit, destination(&far)), (1, 2, [0xd; 16]));
    }
}
