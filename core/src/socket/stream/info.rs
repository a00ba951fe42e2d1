//! What a connection tells of itself.

use core::sync::atomic::Ordering;

use super::{Phase, State, Stream};
use crate::{
    error::Result,
    fabric::Path,
    protocol::stream::{Side, State as Flow},
};

/// The states of <netinet/tcp.h>.
const ESTABLISHED: u8 = 1;
const SYN_SENT: u8 = 2;
const FIN_WAIT2: u8 = 5;
const CLOSE: u8 = 7;
const CLOSE_WAIT: u8 = 8;

/// For TCP_INFO.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Info {
    /// As <netinet/tcp.h> numbers them.
    pub state: u8,
    /// There is, or was, a connection: the rest has a meaning.
    pub is_connected: bool,
    /// This end has asked for it.
    pub is_active: bool,
    /// Bytes that the program has handed over, and taken.
    pub sent: u64,
    /// See `sent`.
    pub received: u64,
    /// Bytes that are not known to have arrived.
    pub unacknowledged: u32,
    /// Bytes that can be under way at once.
    pub window: u32,
    /// Bytes that the receive area has room for.
    pub receive_space: u32,
    /// How long the peer took to answer, in microseconds: what TCP takes for the round-trip time, too, until there is more.
    pub round_trip: u32,
}

impl Stream {
    /// For RDMA_ROUTE: the path that the connection takes.
    pub fn path(&self) -> Option<Path> {
        let mut state = self.state.lock().ok()?;
        state.engine.as_mut()?.endpoint().path()
    }

    /// What TCP_INFO shows.
    pub fn info(&self) -> Result<Info> {
        let mut guard = self.state.lock()?;
        self.pump(&mut guard);
        let state = &*guard;
        let mut info = Info { state: tcp_state(state), is_active: self.listener.strong_count() == 0, ..Info::default() };
        if let (Phase::Up, Some(engine)) = (state.phase, &state.engine) {
            let connection = engine.connection();
            let micros = self.handshake.load(Ordering::Relaxed) / 1000;
            info.is_connected = true;
            (info.sent, info.received) = engine.moved();
            info.unacknowledged = connection.unacknowledged();
            info.window = connection.send_room();
            info.receive_space = engine.receive_space();
            info.round_trip = u32::try_from(micros).unwrap_or(u32::MAX).max(1);
        }
        Ok(info)
    }

    /// The answer has come: it has taken so long.
    pub(super) fn note_handshake(&self) {
        let begun = self.handshake.load(Ordering::Relaxed);
        self.handshake.store(self.service.now().saturating_sub(begun), Ordering::Relaxed);
    }

    /// Whether the connection is over, in both directions.
    pub fn is_over(&self) -> bool {
        let Ok(mut state) = self.state.lock() else { return false };
        // A reset, or the peer's end, may have come since anybody looked.
        self.pump(&mut state);
        tcp_state(&state) == CLOSE
    }
}

/// The state that TCP would be in.
fn tcp_state(state: &State) -> u8 {
    match (state.phase, &state.engine) {
        (Phase::Connecting, _) => SYN_SENT,
        (Phase::Up, Some(engine)) if engine.is_over() => CLOSE,
        // The peer has not ended it yet.
        (Phase::Up, Some(engine)) if engine.connection().state() == Flow::Disconnected(Side::Local) => FIN_WAIT2,
        (Phase::Up, Some(engine)) => match (engine.connection().state().peer_may_send(), engine.write_shut()) {
            (true, false) => ESTABLISHED,
            (true, true) => FIN_WAIT2,
            (false, false) => CLOSE_WAIT,
            (false, true) => CLOSE,
        },
        (Phase::Up, None) => ESTABLISHED,
        _ => CLOSE,
    }
}
