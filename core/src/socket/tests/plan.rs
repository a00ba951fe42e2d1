//! What the two programs of a connection are to do.

use core::ops::RangeInclusive;

use crate::{fabric::sim::Random, socket::engine::Sizes, work::MessageMode};

/// What a program does when it has sent everything.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Then {
    /// Reads on; closes at the end of file.
    Read,
    /// shutdown(SHUT_WR), then as above.
    Shutdown,
    /// close(2) at once.
    Close,
}

/// What one program does.
#[derive(Clone, Debug)]
pub(super) struct Plan {
    /// Bytes to send.
    pub(super) send: u64,
    /// Bytes of a call.
    pub(super) write: RangeInclusive<u64>,
    /// Room of a call.
    pub(super) read: RangeInclusive<u64>,
    /// How often in a thousand reads the program does something else for a while.
    pub(super) pauses: u32,
    /// For how long, in nanoseconds.
    pub(super) pause: RangeInclusive<u64>,
    /// How often in a thousand calls it waits, for a moment of real time.
    pub(super) waits: u32,
    /// The peer sends what a party sends.
    pub(super) trusts: bool,
    /// Leaves it open when all is over.
    pub(super) keeps: bool,
    /// Starts to send at the end of file only.
    pub(super) answers: bool,
    /// What comes after the last byte sent.
    pub(super) then: Then,
}

impl Plan {
    /// Sends so many bytes and reads until the end of file.
    pub(super) fn new(send: u64, then: Then) -> Self {
        Plan { send, write: 1..=4096, read: 1..=4096, pauses: 0, pause: 0..=0, waits: 0, trusts: true, keeps: false, answers: false, then }
    }

    /// Chunks and pauses of all kinds.
    pub(super) fn random(random: &mut Random, send: u64, then: Then) -> Self {
        let size = |random: &mut Random| {
            let most = pick(random, &[1, 16, 700, 5000, 100_000]);
            1.max(most / 10)..=most
        };
        // Single bytes for long would take a long time.
        let send_size = if send > 2000 { 100..=20_000 } else { size(random) };
        let read_size = if send > 2000 { 50..=20_000 } else { size(random) };
        let pauses = pick(random, &[0, 10, 200]);
        Plan { write: send_size, read: read_size, pauses: u32::try_from(pauses).unwrap(), pause: 1000..=3_000_000, ..Plan::new(send, then) }
    }
}

/// One of these.
pub(super) fn pick(random: &mut Random, of: &[u64]) -> u64 {
    of[usize::try_from(random.number() % of.len() as u64).unwrap()]
}

/// Queues and buffers of moderate size.
pub(super) const SIZES: Sizes = Sizes {
    receive_bytes: 16_384,
    shm_receive_bytes: 16_384,
    send_bytes: 16_384,
    send_queue: 32,
    receive_queue: 32,
    inline: 64,
    iomap_entries: 0,
};

/// Queues and buffers from the smallest possible.
pub(super) fn random_sizes(random: &mut Random, mode: MessageMode) -> Sizes {
    let mut one = |of: &[u64]| u32::try_from(pick(random, of)).unwrap();
    let least_queue = if mode == MessageMode::Send { 10 } else { 6 };
    let receive_bytes = one(&[2, 64, 64, 130, 1024, 16_384, 131_072]);
    Sizes {
        receive_bytes,
        shm_receive_bytes: receive_bytes,
        send_bytes: one(&[1, 64, 64, 100, 1024, 16_384, 131_072]),
        send_queue: one(&[least_queue, 16, 17, 64, 384]),
        receive_queue: one(&[1, 2, 16, 16, 33, 384]),
        inline: one(&[0, 4, 64, 220]),
        iomap_entries: one(&[0, 0, 1, 8]),
    }
}

/// Bytes that a transfer over buffers of these sizes is worth.
pub(super) fn random_total(random: &mut Random, sizes: [&Sizes; 2]) -> u64 {
    let least = sizes.iter().flat_map(|sizes| [sizes.receive_bytes, sizes.send_bytes]).min().unwrap();
    let most = (u64::from(least) * 60).min(200_000);
    match random.number() % 8 {
        0 => 0,
        1 => 1,
        _ => random.within(&(1..=most)),
    }
}
