//! A peer that sends anything: nothing panics, and nothing is written outside of what it has granted.

use std::collections::VecDeque;

use proptest::prelude::*;

use super::pair::{End, Plan, Random, config};
use crate::{
    protocol::stream::{Connection, State, Taken, TargetList},
    wire::{ByteOrder, ConnectRecord, Message, Sge},
    work::{MessageMode, Operation, Payload, RemoteAddress, WorkRequest},
};

/// Cases of each property.
const CASES: u32 = 5_000;

const PLAN: Plan = Plan {
    big_endian: false,
    receive_queue: 16,
    send_queue: 24,
    send_bytes: 300,
    receive_bytes: 256,
    max_write: 100,
    total: 0,
    chunk: 1,
    end: End::Nothing,
};

/// What the peer has granted: records in the order in which they are to be used.
struct Granted {
    data: VecDeque<Sge>,
    targets: Sge,
    /// The record that is to be taken over next.
    expected: u32,
}

impl Granted {
    fn check(&mut self, work: &WorkRequest) {
        let (Operation::Write { to } | Operation::WriteWithImmediate { to, .. }) = work.operation else { return };
        match work.payload {
            Payload::Empty => {}
            Payload::SendArea { offset, len } => {
                assert!(len > 0 && offset + len <= PLAN.send_bytes);
                let record = self.data.front_mut().expect("data without a record");
                assert!(to == RemoteAddress { addr: record.addr, key: record.key } && len <= record.length, "data outside of the record");
                record.addr += u64::from(len);
                record.length -= len;
                if record.length == 0 {
                    self.data.pop_front();
                }
            }
            Payload::Bytes { len, .. } => {
                let end = self.targets.addr + 16 * u64::from(self.targets.length);
                assert!(to.key == self.targets.key && to.addr >= self.targets.addr && to.addr + u64::from(len) <= end);
            }
        }
    }
}

/// A message that often makes sense.
fn message(random: &mut Random, limit: u16) -> u32 {
    match random.below(16) {
        0 => (random.below(1 << 16) << 16) | random.below(1 << 16),
        1 => 7 << 29 | random.below(4),
        2 => Message::Iomap(random.below(4)).to_u32(),
        3..9 => Message::Sgl(limit.wrapping_add(random.below(4) as u16).wrapping_sub(u16::from(random.below(16) == 0))).to_u32(),
        9 => Message::Data(random.below(300)).to_u32(),
        _ => Message::Data(random.below(32)).to_u32(),
    }
}

fn target_list(random: &mut Random) -> TargetList {
    core::array::from_fn(|_| {
        let addr = if random.below(8) == 0 { u64::MAX - u64::from(random.below(64)) } else { u64::from(random.below(1 << 20)) };
        let record = Sge { addr, key: random.below(9), length: random.below(3) * random.below(200) };
        record.to_bytes(ByteOrder::Little)
    })
}

/// Drives a connection that was established with `record`, until it breaks or `steps` are done.
fn drive(connection: &mut Connection, record: &ConnectRecord, random: &mut Random, steps: u32) {
    let mut granted = Granted { data: VecDeque::from([record.data_buffer]), targets: record.targets, expected: 1 };
    let mut limit = record.credits;
    for _ in 0..steps {
        match random.below(8) {
            0..3 => {
                let (message, list) = (message(random, limit), target_list(random));
                let taken = connection.received(message, &|| list).unwrap_or(Taken::NONE);
                for _ in 0..taken.0.count_ones() {
                    assert!(taken.contains(granted.expected), "records are taken in rotation");
                    granted.data.push_back(Sge::parse(&list[granted.expected as usize], ByteOrder::Little));
                    granted.expected ^= 1;
                }
                if let Ok(Message::Sgl(new)) = Message::parse(message) {
                    limit = new;
                }
                connection.receives_posted(connection.receives_due());
            }
            3 => connection.commit(random.below(connection.writable() + 2)),
            4 => connection.consume(random.below(connection.readable() + 2)),
            5 => connection.sent(u64::from(random.below(64))),
            6 => {
                for _ in 0..16 {
                    let Some(work) = connection.poll_work() else { break };
                    granted.check(&work);
                }
            }
            _ => match random.below(64) {
                0 => connection.shutdown_write(),
                1 => connection.disconnect(),
                2 => connection.broken(),
                _ => drop(connection.keep_alive()),
            },
        }
        assert!(connection.readable() <= PLAN.receive_bytes);
        let (at, len) = connection.read_at().unwrap_or_default();
        assert!(at + len <= PLAN.receive_bytes);
        assert!(connection.write_at() + connection.writable() <= PLAN.send_bytes);
        assert!(connection.outstanding() <= PLAN.send_queue);
        if connection.state() == State::Broken {
            assert!(!connection.has_work() && connection.writable() == 0);
        }
    }
}

fn mode() -> impl Strategy<Value = MessageMode> {
    prop_oneof![Just(MessageMode::Immediate), Just(MessageMode::Send)]
}

proptest! {
    #![proptest_config(ProptestConfig { cases: CASES, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn any_peer(mode in mode(), credits in 1_u16..=40, lengths in (1_u32..=3, 1_u32..=200), addr: u64, seed: u64) {
        let mut connection = Connection::new(&config(&PLAN, mode));
        let record = ConnectRecord {
            order: if seed & 2 == 0 { ByteOrder::Little } else { ByteOrder::Big },
            has_iomap: true,
            credits,
            iomap_size: 0,
            targets: Sge { addr, key: 100, length: lengths.0 },
            data_buffer: Sge { addr: addr ^ 0x5555, key: 50, length: lengths.1 },
        };
        if connection.establish(&record.to_bytes()).is_ok() {
            drive(&mut connection, &record, &mut Random::new(seed), 300);
        }
    }

    #[test]
    fn any_private_data(mut bytes in prop::collection::vec(any::<u8>(), 0..64), valid_version: bool, mode in mode(), seed: u64) {
        if valid_version && let Some(version) = bytes.first_mut() {
            *version = 1;
        }
        let mut connection = Connection::new(&config(&PLAN, mode));
        match connection.establish(&bytes) {
            Ok(()) => {
                let record = ConnectRecord::parse(&bytes).unwrap();
                drive(&mut connection, &record, &mut Random::new(seed), 50);
            }
            Err(_) => {
                prop_assert_eq!(connection.state(), State::Broken);
                prop_assert!(connection.poll_work().is_none());
            }
        }
    }
}
