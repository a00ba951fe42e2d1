//! A peer that sends anything: nothing panics, and nothing is written outside of what it has granted.

use std::collections::VecDeque;

use proptest::prelude::*;

use super::{
    maps::{MAP_KEY, MapPlan},
    pair::{End, Plan, Random, config},
};
use crate::{
    protocol::stream::{Connection, Mapped, State, Tables, Taken, TargetList},
    wire::{ByteOrder, ConnectRecord, IomapRecord, Message, Sge, decode_iomap_size},
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
    maps: MapPlan { table: 3, ..MapPlan::NONE },
};

/// What the peer has granted: records in the order in which they are to be used.
struct Granted {
    data: VecDeque<Sge>,
    targets: Sge,
    /// The record that is to be taken over next.
    expected: u32,
    /// Entries of its iomap table, and what it has put into ours.
    entries: u16,
    maps: [IomapRecord; 3],
}

/// What it has written to our memory.
struct Written(TargetList, IomapRecord);

impl Tables for Written {
    fn target_list(&self) -> TargetList {
        self.0
    }

    fn iomap_record(&self, index: u32) -> [u8; 24] {
        assert!(index < 3, "there is no entry {index}");
        self.1.to_bytes(ByteOrder::Little)
    }
}

impl Granted {
    fn check(&mut self, work: &WorkRequest) {
        let (Operation::Write { to } | Operation::WriteWithImmediate { to, .. }) = work.operation else { return };
        match work.payload {
            Payload::Empty => {}
            Payload::SendArea { offset, len } => {
                assert!(len > 0 && offset + len <= PLAN.send_bytes);
                if to.key >= MAP_KEY {
                    return;
                }
                let record = self.data.front_mut().expect("data without a record");
                assert!(to == RemoteAddress { addr: record.addr, key: record.key } && len <= record.length, "data outside of the record");
                record.addr += u64::from(len);
                record.length -= len;
                if record.length == 0 {
                    self.data.pop_front();
                }
            }
            Payload::Registered { .. } => panic!("nothing is registered"),
            Payload::Bytes { len, .. } => {
                let end = self.targets.addr + 16 * u64::from(self.targets.length) + 24 * u64::from(self.entries);
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

fn iomap_record(random: &mut Random) -> IomapRecord {
    let high = if random.below(16) == 0 { u64::MAX - u64::from(random.below(64)) } else { 0 };
    let memory =
        Sge { addr: high | u64::from(random.below(1 << 20)), key: MAP_KEY + random.below(9), length: random.below(3) * random.below(200) };
    IomapRecord { offset: high.rotate_left(random.below(64)) | u64::from(random.below(200)), memory }
}

/// Maps, unmaps, or writes to what the peer has mapped: there, and nowhere else.
fn use_maps(connection: &mut Connection, granted: &Granted, random: &mut Random) {
    match random.below(4) {
        0 => drop(connection.map(u64::from(random.below(99)), Sge { addr: 1, key: 2, length: 3 })),
        1 => connection.unmap(random.below(5) as u16),
        _ => {
            let offset = if random.below(8) == 0 { u64::MAX - u64::from(random.below(9)) } else { u64::from(random.below(500)) };
            let Some(Mapped { to, room }) = connection.mapped_at(offset) else { return };
            let within = |record: &IomapRecord| {
                let end = record.memory.addr + u64::from(record.memory.length);
                to.key == record.memory.key && to.addr >= record.memory.addr && to.addr.checked_add(room).is_some_and(|last| last <= end)
            };
            assert!(room > 0 && granted.maps.iter().any(within), "{to:?} and {room} bytes of {:?}", granted.maps);
            connection.place(random.below(connection.placeable() + 2), to);
        }
    }
}

/// Drives a connection that was established with `record`, until it breaks or `steps` are done.
fn drive(connection: &mut Connection, record: &ConnectRecord, random: &mut Random, steps: u32) {
    let entries = if record.has_iomap { decode_iomap_size(record.iomap_size) } else { 0 };
    let mut granted =
        Granted { data: VecDeque::from([record.data_buffer]), targets: record.targets, expected: 1, entries, maps: Default::default() };
    let mut limit = record.credits;
    for _ in 0..steps {
        match random.below(9) {
            0..3 => {
                let (message, list) = (message(random, limit), target_list(random));
                let written = Written(list, iomap_record(random));
                let received = connection.received(message, &written);
                let taken = *received.as_ref().unwrap_or(&Taken::NONE);
                if let (Ok(Message::Iomap(index)), Ok(_)) = (Message::parse(message), received)
                    && connection.state() != State::Broken
                    && !connection.peer_disconnected()
                {
                    granted.maps[index as usize] = written.1;
                }
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
            8 => use_maps(connection, &granted, random),
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
            counts_iomaps: seed & 4 == 0,
            credits,
            iomap_size: (seed >> 8) as u8,
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
