//! What a connection tells of itself: TCP_INFO, TCP_MAXSEG, IP_MTU.

use std::os::fd::RawFd;

use super::{Route, Value, int};
use crate::{
    error::Result,
    fd::Held,
    socket::{
        address,
        stream::{Stream, info::Info},
    },
    sys::sockopt,
};

/// Room for the kernel's `struct tcp_info`, which grows.
const TCP_INFO_ROOM: usize = 512;

/// Places in `struct tcp_info` (<linux/tcp.h>).
mod place {
    pub(super) const STATE: usize = 0;
    pub(super) const OPTIONS: usize = 5;
    pub(super) const RTO: usize = 8;
    pub(super) const ATO: usize = RTO + 4;
    pub(super) const SND_MSS: usize = ATO + 4;
    pub(super) const RCV_MSS: usize = SND_MSS + 4;
    pub(super) const UNACKED: usize = RCV_MSS + 4;
    pub(super) const PMTU: usize = UNACKED + 9 * 4;
    pub(super) const RTT: usize = PMTU + 2 * 4;
    pub(super) const RTTVAR: usize = RTT + 4;
    pub(super) const SND_CWND: usize = RTTVAR + 2 * 4;
    pub(super) const ADVMSS: usize = SND_CWND + 4;
    pub(super) const RCV_SPACE: usize = ADVMSS + 3 * 4;
    pub(super) const BYTES_ACKED: usize = RCV_SPACE + 2 * 4 + 2 * 8;
    pub(super) const BYTES_RECEIVED: usize = BYTES_ACKED + 8;
    pub(super) const NOTSENT: usize = BYTES_RECEIVED + 8 + 2 * 4;
    pub(super) const MIN_RTT: usize = NOTSENT + 4;
    pub(super) const BYTES_SENT: usize = MIN_RTT + 4 + 2 * 4 + 4 * 8 + 2 * 4;
    pub(super) const SND_WND: usize = BYTES_SENT + 2 * 8 + 3 * 4;
}

/// TCPI_OPT_TIMESTAMPS, TCPI_OPT_SACK and TCPI_OPT_WSCALE: what two Linux hosts agree upon.
const OPTIONS: u8 = 1 | 2 | 4;
/// The shortest time that TCP waits before it sends again, in microseconds.
const RTO_LEAST: u32 = 200_000;
/// TCP_INIT_CWND.
const WINDOW_LEAST: u32 = 10;
/// Headers of IP and TCP, and TCP's timestamps.
const HEADERS_V4: u32 = 40;
const HEADERS_V6: u32 = 60;
const TIMESTAMPS: u32 = 12;
/// TCP sends no segment larger than half of the window that a peer opens with, which has 16 bits.
const SEGMENT_MOST: u32 = 1 << 15;
/// What the kernel assumes of a peer that it knows nothing of (TCP_MSS_DEFAULT).
const SEGMENT_UNKNOWN: u32 = 536;

/// The sizes of packets to the peer and of segments within them, as TCP would have them on the same way.
struct Sizes {
    mtu: u32,
    segment: u32,
}

fn sizes(held: &Held, stream: &Stream) -> Option<Sizes> {
    let (_, peer) = stream.addresses().ok()?;
    let peer = peer.map(address::for_fabric)?;
    let mtu = sockopt::path_mtu(peer)?;
    let headers = if peer.is_ipv4() { HEADERS_V4 } else { HEADERS_V6 };
    let asked = match held.socket.options.segment() {
        0 => u32::MAX,
        asked => asked,
    };
    let segment = mtu.saturating_sub(headers).min(asked).saturating_sub(TIMESTAMPS).min(SEGMENT_MOST);
    Some(Sizes { mtu, segment })
}

/// tcp(7): TCP_INFO. The kernel's socket fills the structure in and knows its size; the connection is not its own.
pub(super) fn tcp_info(fd: RawFd, held: &Held, stream: &Stream) -> Result<Value> {
    let mut raw = [0; TCP_INFO_ROOM];
    let length = sockopt::get(fd, libc::IPPROTO_TCP, libc::TCP_INFO, &mut raw)?;
    let info = stream.info()?;
    if let Some(state) = raw.get_mut(place::STATE) {
        *state = info.state;
    }
    if info.is_connected {
        describe(&mut raw, &info, &sizes(held, stream).unwrap_or(Sizes { mtu: 0, segment: SEGMENT_UNKNOWN }));
    }
    Ok(Value::from_slice(raw.get(..length).unwrap_or_default()))
}

fn describe(raw: &mut [u8], info: &Info, sizes: &Sizes) {
    if let Some(options) = raw.get_mut(place::OPTIONS) {
        *options = OPTIONS;
    }
    let segment = sizes.segment.max(1);
    let window = (info.window / segment).max(WINDOW_LEAST);
    let words = [
        (place::RTO, RTO_LEAST.saturating_add(info.round_trip)),
        (place::ATO, RTO_LEAST / 5),
        (place::SND_MSS, segment),
        (place::RCV_MSS, segment),
        (place::UNACKED, info.unacknowledged.div_ceil(segment)),
        (place::PMTU, sizes.mtu),
        (place::RTT, info.round_trip),
        (place::RTTVAR, info.round_trip / 2),
        (place::SND_CWND, window),
        (place::ADVMSS, segment),
        (place::RCV_SPACE, info.receive_space),
        (place::NOTSENT, 0),
        (place::MIN_RTT, info.round_trip),
        (place::SND_WND, info.window),
    ];
    for (at, word) in words {
        put(raw, at, &word.to_ne_bytes());
    }
    // As TCP counts, the request to connect was a byte as well.
    let acknowledged = info.sent.saturating_sub(u64::from(info.unacknowledged)).saturating_add(u64::from(info.is_active));
    let counts = [(place::BYTES_ACKED, acknowledged), (place::BYTES_RECEIVED, info.received), (place::BYTES_SENT, info.sent)];
    for (at, count) in counts {
        put(raw, at, &count.to_ne_bytes());
    }
}

fn put(raw: &mut [u8], at: usize, bytes: &[u8]) {
    for (to, from) in raw.iter_mut().skip(at).zip(bytes) {
        *to = *from;
    }
}

/// tcp(7): TCP_MAXSEG. Once there was a connection it is what its segments have, and the kernel's socket knows of none.
pub(super) fn segment(held: &Held, stream: &Stream) -> Route<Value> {
    if !stream.info().is_ok_and(|info| info.is_connected) {
        return Route::Kernel;
    }
    sizes(held, stream).map_or(Route::Kernel, |sizes| Route::ok(int(i32::try_from(sizes.segment).unwrap_or(i32::MAX))))
}

/// ip(7): IP_MTU "Retrieve the current known path MTU of the current socket. Returns an integer … valid only when the socket has been
/// connected".
pub(super) fn mtu(stream: &Stream) -> Route<Value> {
    let peer = stream.addresses().ok().and_then(|(_, peer)| peer).map(address::for_fabric);
    let mtu = peer.filter(|_| !stream.is_over()).and_then(sockopt::path_mtu);
    mtu.map_or(Route::Kernel, |mtu| Route::ok(int(i32::try_from(mtu).unwrap_or(i32::MAX))))
}
