//! Which path bytes took: the lines of the guest's `counters` command.

use std::ops::Sub;

/// One line of the guest command `counters`, or the difference of two.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counters {
    /// Packets of all soft-RoCE devices of the VM.
    pub rxe_sent: i64,
    pub rxe_rcvd: i64,
    /// Work requests soft-iWARP took up, and chunks of stream it was given (a chunk is at most 64 KiB).
    pub siw_sent: i64,
    pub siw_rcvd: i64,
    /// TCP segments of the network namespace `counters` ran in; soft-iWARP's own are among them.
    pub tcp_out: i64,
    pub tcp_in: i64,
}

impl Counters {
    /// Reads one line; `None` when it is not one of `counters`.
    pub fn parse(line: &str) -> Option<Self> {
        let mut counters = Self::default();
        let mut seen = 0;
        for field in line.split_whitespace() {
            let (name, value) = field.split_once('=')?;
            let value = value.parse().ok()?;
            match name {
                "rxe_sent" => counters.rxe_sent = value,
                "rxe_rcvd" => counters.rxe_rcvd = value,
                "siw_sent" => counters.siw_sent = value,
                "siw_rcvd" => counters.siw_rcvd = value,
                "tcp_out" => counters.tcp_out = value,
                "tcp_in" => counters.tcp_in = value,
                _ => return None,
            }
            seen += 1;
        }
        (seen == 6).then_some(counters)
    }

    /// All lines of `counters` in an output, in order.
    pub fn all(output: &str) -> Vec<Self> {
        output.lines().filter_map(Self::parse).collect()
    }

    /// The first and the last line of `counters` in an output that has at least two.
    pub fn first_and_last(output: &str) -> (Self, Self) {
        let all = Self::all(output);
        assert!(all.len() >= 2, "the output has {} lines of `counters`, not two:\n{output}", all.len());
        (all[0], all[all.len() - 1])
    }
}

impl Sub for Counters {
    type Output = Self;

    fn sub(self, before: Self) -> Self {
        Self {
            rxe_sent: self.rxe_sent - before.rxe_sent,
            rxe_rcvd: self.rxe_rcvd - before.rxe_rcvd,
            siw_sent: self.siw_sent - before.siw_sent,
            siw_rcvd: self.siw_rcvd - before.siw_rcvd,
            tcp_out: self.tcp_out - before.tcp_out,
            tcp_in: self.tcp_in - before.tcp_in,
        }
    }
}

/// The most an RDMA packet and a TCP segment (over `lo`) or soft-iWARP chunk carry.
const PACKET: i64 = 4096;
const SEGMENT: i64 = 65_536;

fn size(min_bytes: u64) -> i64 {
    i64::try_from(min_bytes).expect("a sensible number of bytes")
}

/// Fails unless at least `min_bytes` went over RDMA between the two readings, and not over kernel TCP.
/// Meaningful from about 1 MiB on: below, TCP is allowed the 20 segments that control connections need.
#[track_caller]
pub fn assert_over_rdma(before: Counters, after: Counters, min_bytes: u64) {
    let (moved, bytes) = (after - before, size(min_bytes));
    let rxe = moved.rxe_sent >= (bytes / PACKET).max(1);
    let siw = moved.siw_rcvd >= (bytes / SEGMENT).max(1);
    assert!(rxe || siw, "{min_bytes} bytes did not go over RDMA: {moved:?}");
    let tcp = moved.tcp_out.max(moved.tcp_in);
    assert!(siw || tcp <= (bytes / SEGMENT / 2).max(20), "kernel TCP carried data as well: {moved:?}");
}

/// Fails unless at least `min_bytes` went over kernel TCP between the two readings, and not over RDMA (a few packets of
/// connection set-up apart). Only where no soft-iWARP device is in use.
#[track_caller]
pub fn assert_over_tcp(before: Counters, after: Counters, min_bytes: u64) {
    let (moved, bytes) = (after - before, size(min_bytes));
    let tcp = moved.tcp_out.max(moved.tcp_in);
    assert!(tcp >= (bytes / SEGMENT).max(1), "{min_bytes} bytes did not go over kernel TCP: {moved:?}");
    let rdma = moved.rxe_sent.max(moved.siw_rcvd);
    assert!(rdma <= (bytes / PACKET / 2).clamp(20, 200), "RDMA carried data as well: {moved:?}");
}
