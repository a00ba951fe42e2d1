//! Work requests and completions in the device's form.

use core::{ffi::c_int, mem::MaybeUninit};

use rdma_sys::{
    bind_mw_tso_union_t, ibv_mw_bind_info, ibv_qp, ibv_recv_wr, ibv_send_flags, ibv_send_wr, ibv_sge, ibv_wc, ibv_wc_opcode, ibv_wc_status,
    ibv_wr_opcode, imm_data_invalidated_rkey_union_t, qp_type_t, rdma_t, wr_t, xrc_t,
};

use super::{
    libs,
    memory::{Areas, Located},
};
use crate::{
    error::Result,
    work::{Completion, DataWrite, MessageMode, Operation, Payload, RemoteAddress, TransportError, WorkRequest},
};

/// Work requests that go to the device in one call, and completions that are taken in one.
pub(super) const BATCH: usize = 16;

/// Posts a batch of at most [`BATCH`] work requests; longer input is cut off.
pub(super) fn send(qp: *mut ibv_qp, areas: &mut Areas, inline: u32, work: &[WorkRequest]) -> Result<()> {
    // Neither is filled in beforehand: 2 KiB, of which one request uses an eighth of a KiB.
    let mut entries = [const { MaybeUninit::<ibv_sge>::uninit() }; BATCH];
    let mut requests = [const { MaybeUninit::<ibv_send_wr>::uninit() }; BATCH];
    let first = requests.as_mut_ptr();
    let count = work.len().min(BATCH);
    if count == 0 {
        return Ok(());
    }
    for (index, (work, entry)) in work.iter().zip(entries.iter_mut()).enumerate() {
        let next = if index + 1 == count { core::ptr::null_mut() } else { first.wrapping_add(index + 1).cast() };
        // SAFETY: the index is below BATCH, since `entries` ends the loop there; nothing else refers to the element.
        let request = unsafe { &mut *first.wrapping_add(index) };
        translate(areas, inline, work, entry, next, request)?;
    }
    let mut bad = core::ptr::null_mut();
    // SAFETY: the queue pair is valid; one request at least is written, all are chained, the last ends the chain; requests, entries
    // and inline payloads live until the call returns, other payloads lie in registered memory.
    libs::check_code(unsafe { rdma_sys::ibv_post_send(qp, first.cast(), &mut bad) })
}

/// Posts a message with bytes, which lie at `from`: there until the call returns if they go `inline`, else until it has completed.
#[inline(always)]
pub(super) fn data(qp: *mut ibv_qp, data: &DataWrite, from: Located, inline: bool) -> Result<()> {
    let mut entry = ibv_sge { addr: from.addr, length: data.len, lkey: from.key };
    let mut flags = if data.signaled { ibv_send_flags::IBV_SEND_SIGNALED.0 } else { 0 };
    if inline {
        flags |= ibv_send_flags::IBV_SEND_INLINE.0;
    }
    let what = (ibv_wr_opcode::IBV_WR_RDMA_WRITE_WITH_IMM, data.to, data.immediate);
    let mut request = request(data.id, core::ptr::null_mut(), (&raw mut entry, 1), flags, what);
    let mut bad = core::ptr::null_mut();
    // SAFETY: as in `send`; what goes inline is a live slice, other bytes lie in registered memory.
    libs::check_code(unsafe { rdma_sys::ibv_post_send(qp, &raw mut request, &mut bad) })
}

/// Posts `count` receives, at most [`BATCH`]; `slot` names the message slot of each (iWARP).
pub(super) fn receive(qp: *mut ibv_qp, areas: &Areas, mode: MessageMode, count: u32, mut slot: impl FnMut() -> u32) -> Result<()> {
    let mut entries = [ibv_sge { addr: 0, length: 0, lkey: 0 }; BATCH];
    let mut requests = [const { MaybeUninit::<ibv_recv_wr>::uninit() }; BATCH];
    let first: *mut ibv_recv_wr = requests.as_mut_ptr().cast();
    let count = usize::try_from(count).unwrap_or(BATCH).min(BATCH);
    for (index, entry) in entries.iter_mut().take(count).enumerate() {
        let next = if index + 1 == count { core::ptr::null_mut() } else { first.wrapping_add(index + 1) };
        let request = match mode {
            MessageMode::Immediate => ibv_recv_wr { wr_id: 0, next, sg_list: core::ptr::null_mut(), num_sge: 0 },
            MessageMode::Send => {
                let slot = slot();
                let Located { addr, key } = areas.slot(slot);
                *entry = ibv_sge { addr, length: 4, lkey: key };
                ibv_recv_wr { wr_id: u64::from(slot), next, sg_list: entry, num_sge: 1 }
            }
        };
        // SAFETY: the index is below BATCH.
        unsafe { first.wrapping_add(index).write(request) };
    }
    if count == 0 {
        return Ok(());
    }
    let mut bad = core::ptr::null_mut();
    // SAFETY: as in `send`; the slots lie in registered memory.
    libs::check_code(unsafe { rdma_sys::ibv_post_recv(qp, first, &mut bad) })
}

/// Writes `to_device`, and `entry` if it has a payload.
#[inline(always)]
fn translate(
    areas: &mut Areas,
    inline: u32,
    work: &WorkRequest,
    entry: &mut MaybeUninit<ibv_sge>,
    next: *mut ibv_send_wr,
    to_device: &mut MaybeUninit<ibv_send_wr>,
) -> Result<()> {
    let mut flags = if work.signaled { ibv_send_flags::IBV_SEND_SIGNALED.0 } else { 0 };
    let len = work.payload.len();
    let fits = len <= inline && !matches!(work.payload, Payload::Registered { .. });
    if fits && len > 0 {
        flags |= ibv_send_flags::IBV_SEND_INLINE.0;
    }
    let located = match &work.payload {
        Payload::Empty => None,
        Payload::SendArea { offset, len } => Some(areas.locate(*offset, *len, !fits)?),
        Payload::Registered { addr, key, .. } => Some(Located { addr: *addr, key: *key }),
        Payload::Bytes { bytes, .. } if fits => Some(Located { addr: bytes.as_ptr().addr() as u64, key: 0 }),
        Payload::Bytes { bytes, len } => Some(areas.control(bytes.get(..usize::from(*len)).unwrap_or(bytes))?),
    };
    let (sg_list, num_sge): (*mut ibv_sge, c_int) = match located {
        Some(Located { addr, key }) if len > 0 => (entry.write(ibv_sge { addr, length: len, lkey: key }), 1),
        _ => (core::ptr::null_mut(), 0),
    };
    let (opcode, to, immediate) = match work.operation {
        Operation::Write { to } => (ibv_wr_opcode::IBV_WR_RDMA_WRITE, to, 0),
        Operation::WriteWithImmediate { to, immediate } => (ibv_wr_opcode::IBV_WR_RDMA_WRITE_WITH_IMM, to, immediate),
        Operation::Send => (ibv_wr_opcode::IBV_WR_SEND, RemoteAddress::default(), 0),
    };
    let to = if num_sge == 0 { RemoteAddress::default() } else { to };
    to_device.write(request(work.id, next, (sg_list, num_sge), flags, (opcode, to, immediate)));
    Ok(())
}

/// A request in the device's form, with the opcode, the address and the message for the peer.
#[inline(always)]
fn request(
    id: u64,
    next: *mut ibv_send_wr,
    (sg_list, num_sge): (*mut ibv_sge, c_int),
    flags: u32,
    (opcode, to, immediate): (ibv_wr_opcode::Type, RemoteAddress, u32),
) -> ibv_send_wr {
    let none = ibv_mw_bind_info { mr: core::ptr::null_mut(), addr: 0, length: 0, mw_access_flags: 0 };
    ibv_send_wr {
        wr_id: id,
        next,
        sg_list,
        num_sge,
        opcode,
        send_flags: flags,
        imm_data_invalidated_rkey_union: imm_data_invalidated_rkey_union_t { imm_data: immediate.to_be() },
        wr: wr_t { rdma: rdma_t { remote_addr: to.addr, rkey: to.key } },
        qp_type: qp_type_t { xrc: xrc_t { remote_srqn: 0 } },
        bind_mw_tso_union: bind_mw_tso_union_t { bind_mw: rdma_sys::bind_mw_t { mw: core::ptr::null_mut(), rkey: 0, bind_info: none } },
    }
}

/// What a work completion says.
pub(super) fn completion(areas: &Areas, mode: MessageMode, done: &ibv_wc) -> Completion {
    if done.status != ibv_wc_status::IBV_WC_SUCCESS {
        return Completion::Failed(failure(done.status));
    }
    match (done.opcode, mode) {
        (ibv_wc_opcode::IBV_WC_RECV_RDMA_WITH_IMM, MessageMode::Immediate) => {
            // SAFETY: both members of the union are 32-bit numbers; this completion carries an immediate.
            let immediate = unsafe { done.imm_data_invalidated_rkey_union.imm_data };
            Completion::Received { message: u32::from_be(immediate) }
        }
        (ibv_wc_opcode::IBV_WC_RECV, MessageMode::Send) if done.byte_len == 4 => {
            Completion::Received { message: areas.message(done.wr_id) }
        }
        (ibv_wc_opcode::IBV_WC_RECV | ibv_wc_opcode::IBV_WC_RECV_RDMA_WITH_IMM, _) => Completion::ReceivedMalformed { len: done.byte_len },
        _ => Completion::Sent { id: done.wr_id },
    }
}

fn failure(status: ibv_wc_status::Type) -> TransportError {
    match status {
        ibv_wc_status::IBV_WC_RETRY_EXC_ERR | ibv_wc_status::IBV_WC_RNR_RETRY_EXC_ERR | ibv_wc_status::IBV_WC_RESP_TIMEOUT_ERR => {
            TransportError::RetryExceeded
        }
        ibv_wc_status::IBV_WC_WR_FLUSH_ERR => TransportError::Flushed,
        ibv_wc_status::IBV_WC_LOC_LEN_ERR
        | ibv_wc_status::IBV_WC_LOC_ACCESS_ERR
        | ibv_wc_status::IBV_WC_REM_INV_REQ_ERR
        | ibv_wc_status::IBV_WC_REM_ACCESS_ERR
        | ibv_wc_status::IBV_WC_REM_OP_ERR
        | ibv_wc_status::IBV_WC_REM_ABORT_ERR => TransportError::RemoteAccess,
        other => TransportError::Other(other),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn statuses_are_sorted() {
        assert_eq!(failure(ibv_wc_status::IBV_WC_WR_FLUSH_ERR), TransportError::Flushed);
        assert_eq!(failure(ibv_wc_status::IBV_WC_RETRY_EXC_ERR), TransportError::RetryExceeded);
        assert_eq!(failure(ibv_wc_status::IBV_WC_REM_ACCESS_ERR), TransportError::RemoteAccess);
        assert_eq!(failure(ibv_wc_status::IBV_WC_FATAL_ERR), TransportError::Other(19));
    }
}
