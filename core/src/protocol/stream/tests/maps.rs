//! Direct placement between two sides: memory is mapped and unmapped at any time, overlapping as it likes, and written to. What a side sends
//! is held against what it was asked for, in its order; what it believes to be mapped against what it was told.

use std::collections::VecDeque;

use proptest::prelude::*;

use super::pair::{End, Pair, Plan, Side, Step};
use crate::{
    protocol::stream::{Config, Connection, DEFAULT_MAX_WRITE, MapError, Mapped, PeerFault, State, Tables, TargetList},
    wire::{ByteOrder, ConnectRecord, IomapRecord, Message, Sge},
    work::{MessageMode, Operation, Payload, RemoteAddress},
};

/// Keys of mapped memory begin here; each has its own.
pub(super) const MAP_KEY: u32 = 0x10_0000;
const MAP_ADDR: u64 = 0x7d00_0000_0000;

/// What a side maps and writes.
#[derive(Clone, Copy, Debug)]
pub(super) struct MapPlan {
    /// Entries of its table.
    pub(super) table: u16,
    /// How often it maps memory, and writes to the peer's.
    pub(super) maps: u32,
    pub(super) places: u32,
    /// It grants anew what IOMAP messages take.
    pub(super) counts: bool,
}

impl MapPlan {
    pub(super) const NONE: MapPlan = MapPlan { table: 0, maps: 0, places: 0, counts: true };
}

/// What was committed, in order.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Turn {
    Data(u32),
    Placed(u32),
}

struct Mine {
    key: u32,
    entry: u16,
    bytes: Vec<u8>,
}

/// What a side has mapped, and what it knows of the other's.
pub(super) struct Maps {
    plan: MapPlan,
    pub(super) peer_counts: bool,
    mine: Vec<Mine>,
    next_key: u32,
    /// Entries that the peer must be told of, and how many DATA messages were committed before each.
    untold: VecDeque<(u32, u64)>,
    /// Entries of which the peer knows something.
    known: Vec<u32>,
    iomaps_posted: u64,
    data_committed: u64,
    turns: VecDeque<Turn>,
    /// Bytes for the peer's memory, on their way.
    placed: VecDeque<(RemoteAddress, Vec<u8>)>,
    table: Vec<[u8; 24]>,
    theirs: Vec<IomapRecord>,
}

impl Maps {
    pub(super) fn new(plan: &MapPlan) -> Self {
        Maps {
            plan: *plan,
            peer_counts: true,
            mine: Vec::new(),
            next_key: MAP_KEY,
            untold: VecDeque::new(),
            known: Vec::new(),
            iomaps_posted: 0,
            data_committed: 0,
            turns: VecDeque::new(),
            placed: VecDeque::new(),
            table: vec![[0; 24]; usize::from(plan.table)],
            theirs: vec![IomapRecord::default(); usize::from(plan.table)],
        }
    }

    /// IOMAP messages that the peer's limit is about.
    pub(super) fn counted(&self) -> u64 {
        if self.peer_counts { self.iomaps_posted } else { 0 }
    }

    pub(super) fn committed(&mut self, turn: Turn) {
        self.data_committed += u64::from(matches!(turn, Turn::Data(_)));
        self.turns.push_back(turn);
    }

    pub(super) fn posted(&mut self, turn: Turn) {
        assert_eq!(self.turns.pop_front(), Some(turn), "another order than that of the program");
    }

    /// The peer knows of mappings before it gets data that was committed later.
    pub(super) fn data_posted(&self, number: u64) {
        if let Some((entry, before)) = self.untold.front() {
            assert!(number <= *before, "message {number} goes before the record of entry {entry}, mapped after {before}");
        }
    }

    pub(super) fn told(&mut self, entry: u32) {
        self.iomaps_posted += 1;
        assert_eq!(self.untold.pop_front().map(|(untold, _)| untold), Some(entry));
        self.known.retain(|known| *known != entry);
        if self.mine.iter().any(|mine| u32::from(mine.entry) == entry) {
            self.known.push(entry);
        }
    }

    pub(super) fn record_written(&mut self, at: usize, bytes: &[u8]) {
        assert_eq!((at % 24, bytes.len()), (0, 24), "a record is written as a whole");
        self.table[at / 24].copy_from_slice(bytes);
    }

    /// An IOMAP message was processed.
    pub(super) fn taken(&mut self, entry: u32, order: ByteOrder) {
        self.theirs[entry as usize] = IomapRecord::parse(&self.table[entry as usize], order);
    }

    pub(super) fn delivered(&mut self, to: RemoteAddress, bytes: &[u8]) {
        assert_eq!(self.placed.pop_front(), Some((to, bytes.to_vec())), "other bytes than the program's, or another place");
    }

    pub(super) fn written_by_peer(&mut self, to: RemoteAddress, bytes: &[u8]) {
        // What comes late, for memory that is mapped no longer, is lost. (A device would end the connection.)
        let Some(mine) = self.mine.iter_mut().find(|mine| mine.key == to.key) else { return assert!(to.key < self.next_key) };
        let at = usize::try_from(to.addr - MAP_ADDR).unwrap();
        mine.bytes[at..][..bytes.len()].copy_from_slice(bytes);
    }

    fn expected(&self, offset: u64) -> Option<Mapped> {
        let of = |record: &IomapRecord| (record.offset, u64::from(record.memory.length), record.memory);
        let mut hits = self.theirs.iter().map(of).filter(|(start, len, _)| (*start..start + len).contains(&offset));
        let (start, len, memory) = hits.next()?;
        let to = RemoteAddress { addr: memory.addr + (offset - start), key: memory.key };
        Some(Mapped { to, room: start + len - offset })
    }
}

impl Tables for (TargetList, &Maps) {
    fn target_list(&self) -> TargetList {
        self.0
    }

    fn iomap_record(&self, index: u32) -> [u8; 24] {
        self.1.table[index as usize]
    }
}

/// Offsets are few, so that mappings overlap.
const OFFSETS: u32 = 96;

impl Pair {
    pub(super) fn map(&mut self, me: usize) -> bool {
        let entries = self.sides[1 - me].plan.maps.table;
        let (offset, length) = (self.random.below(OFFSETS), 1 + self.random.below(40));
        let Side { connection, maps, reserved, .. } = &mut self.sides[me];
        // What was reserved counts on the credit that is there.
        if maps.plan.maps == 0 || reserved.is_some() {
            return false;
        }
        maps.plan.maps -= 1;
        let memory = Sge { addr: MAP_ADDR, key: maps.next_key, length };
        match connection.map(u64::from(offset), memory) {
            Ok(entry) => {
                assert!(entry < entries && maps.mine.iter().all(|mine| mine.entry != entry), "entry {entry} is not free");
                assert!(!connection.has_due_iomaps() || connection.has_work() || connection.writable() == 0);
                maps.mine.push(Mine { key: memory.key, entry, bytes: vec![0; length as usize] });
                maps.next_key += 1;
                if !maps.untold.iter().any(|(untold, _)| *untold == u32::from(entry)) {
                    maps.untold.push_back((u32::from(entry), maps.data_committed));
                }
            }
            Err(MapError::TableFull) => assert_eq!(maps.mine.len(), usize::from(entries)),
            Err(MapError::TooManyAtOnce) => assert!(!maps.peer_counts && self.mode == MessageMode::Send),
            Err(MapError::Ended) => assert!(!connection.can_write()),
        }
        true
    }

    pub(super) fn unmap(&mut self, me: usize) -> bool {
        let Side { connection, maps, reserved, .. } = &mut self.sides[me];
        // As long as there is more to map.
        if maps.plan.maps == 0 || reserved.is_some() || maps.mine.is_empty() {
            return false;
        }
        let at = self.random.below(maps.mine.len() as u32) as usize;
        let entry = u32::from(maps.mine.remove(at).entry);
        connection.unmap(maps_entry(entry));
        if !maps.known.contains(&entry) {
            maps.untold.retain(|(untold, _)| *untold != entry);
        } else if !maps.untold.iter().any(|(untold, _)| *untold == entry) && connection.iomaps.due() > maps.untold.len() {
            maps.untold.push_back((entry, maps.data_committed));
        }
        true
    }

    pub(super) fn place(&mut self, me: usize) -> bool {
        let offset = u64::from(self.random.below(OFFSETS + 40));
        let most = 1 + self.random.below(40);
        let at_once = self.random.below(2) == 0;
        let [one, other] = &mut self.sides;
        let (side, peer) = if me == 0 { (one, other) } else { (other, one) };
        if side.maps.plan.places == 0 || side.reserved.is_some() {
            return false;
        }
        side.maps.plan.places -= 1;
        let mapped = side.connection.mapped_at(offset);
        assert_eq!(mapped, side.maps.expected(offset), "at {offset}");
        let may = side.connection.placeable();
        let Some(Mapped { to, room }) = mapped.filter(|_| may > 0) else { return true };
        let len = most.min(may).min(u32::try_from(room).unwrap());
        let bytes: Vec<u8> = (0..len).map(|at| (at + side.maps.plan.places) as u8).collect();
        let at = side.connection.write_at() as usize;
        side.send[at..][..bytes.len()].copy_from_slice(&bytes);
        side.maps.committed(Turn::Placed(len));
        side.maps.placed.push_back((to, bytes));
        if at_once {
            let nothing_waits = !side.connection.has_work();
            let work = side.connection.place_and_poll(len, to);
            assert_eq!(work.is_some(), nothing_waits);
            if let Some(work) = work {
                assert!(matches!(work.operation, Operation::Write { to: there } if there == to), "{work:?}");
                side.post(work, self.mode, peer.order, &mut VecDeque::new());
            }
        } else {
            side.connection.place(len, to);
        }
        true
    }

    /// What must be true of maps when nothing more can happen.
    pub(super) fn check_maps(&self, me: usize) {
        let (side, peer) = (&self.sides[me], &self.sides[1 - me]);
        if (side.plan.end, peer.plan.end) != (End::Nothing, End::Nothing) {
            return;
        }
        let maps = &side.maps;
        assert!(maps.untold.is_empty() && !side.connection.has_due_iomaps(), "the peer is not told of {:?}", maps.untold);
        assert!(maps.turns.is_empty() && maps.placed.is_empty());
        for mine in &maps.mine {
            assert_eq!(peer.maps.theirs[usize::from(mine.entry)].memory.key, mine.key);
        }
    }
}

fn maps_entry(entry: u32) -> u16 {
    u16::try_from(entry).unwrap()
}

fn map_plan() -> impl Strategy<Value = MapPlan> {
    let table = prop_oneof![1 => Just(0_u16), 4 => 1_u16..=6, 1 => 100_u16..=128];
    (table, 0_u32..=60, 0_u32..=60, prop_oneof![3 => Just(true), 1 => Just(false)]).prop_map(|(table, maps, places, counts)| MapPlan {
        table,
        maps,
        places,
        counts,
    })
}

fn plan() -> impl Strategy<Value = Plan> {
    let sizes = (prop_oneof![32_u32..=200, 4096_u32..=65536], 32_u32..=2048, prop_oneof![Just(DEFAULT_MAX_WRITE), 1_u32..=1000]);
    let end = prop_oneof![4 => Just(End::Nothing), 1 => Just(End::Shutdown), 1 => Just(End::Close)];
    (any::<bool>(), 16_u16..=40, 16_u32..=64, sizes, 0_usize..=3000, end, map_plan()).prop_map(
        |(big_endian, receive_queue, send_queue, (send_bytes, half, max_write), total, end, maps)| {
            let receive_bytes = 2 * half;
            Plan { big_endian, receive_queue, send_queue, send_bytes, receive_bytes, max_write, total, chunk: 30, end, maps }
        },
    )
}

fn run(plans: [Plan; 2], mode: MessageMode, seed: u64) {
    let mut pair = Pair::new(plans, mode, seed);
    pair.run_random(900);
    pair.run_to_the_end();
    pair.check_end();
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 3_000, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn maps_by_writes_with_immediate(a in plan(), b in plan(), seed: u64) {
        run([a, b], MessageMode::Immediate, seed);
    }

    #[test]
    fn maps_by_writes_and_sends(a in plan(), b in plan(), seed: u64) {
        run([a, b], MessageMode::Send, seed);
    }
}

const PLAIN: Plan = Plan {
    big_endian: false,
    receive_queue: 384,
    send_queue: 384,
    send_bytes: 128 << 10,
    receive_bytes: 128 << 10,
    max_write: DEFAULT_MAX_WRITE,
    total: 0,
    chunk: 1,
    end: End::Nothing,
    maps: MapPlan { table: 8, maps: 0, places: 0, counts: true },
};

/// A connection whose peer is of another mind than ours.
fn connected(plan: &Plan, change: impl Fn(&mut ConnectRecord)) -> Connection {
    let config = Config { ..super::pair::config(plan, MessageMode::Immediate) };
    let mut connection = Connection::new(&config);
    let mut record = ConnectRecord::parse(&connection.connect_record()).unwrap();
    change(&mut record);
    connection.establish(&record.to_bytes()).unwrap();
    connection
}

const MEMORY: Sge = Sge { addr: MAP_ADDR, key: MAP_KEY, length: 100 };

struct Table(IomapRecord);

impl Tables for Table {
    fn target_list(&self) -> TargetList {
        TargetList::default()
    }

    fn iomap_record(&self, _: u32) -> [u8; 24] {
        self.0.to_bytes(ByteOrder::Little)
    }
}

/// The bytes of a mapping on the wire, as PROTOCOL.md 1.7 has them.
#[test]
fn a_mapping_is_a_record_behind_the_target_list_and_a_message() {
    let mut connection = connected(&PLAIN, |record| record.order = ByteOrder::Big);
    let targets = connection.peer.unwrap().targets;
    assert_eq!(connection.map(0x1_0000, MEMORY), Ok(0));
    assert_eq!(connection.map(0, Sge { key: MAP_KEY + 1, ..MEMORY }), Ok(1));
    for index in 0..2 {
        let work = connection.poll_work().unwrap();
        let to = RemoteAddress { addr: targets.addr + 32 + 24 * u64::from(index), key: targets.key };
        assert_eq!(work.operation, Operation::WriteWithImmediate { to, immediate: 6 << 29 | index });
        let Payload::Bytes { bytes, len: 24 } = work.payload else { panic!("{work:?}") };
        let offset: [u8; 8] = if index == 0 { [0, 0, 0, 0, 0, 1, 0, 0] } else { [0; 8] };
        assert_eq!(bytes[..8], offset);
        assert_eq!(bytes[8..], [&MAP_ADDR.to_be_bytes()[..], &(MAP_KEY + index).to_be_bytes(), &100_u32.to_be_bytes()].concat());
    }
    assert_eq!(connection.poll_work(), None);
}

#[test]
fn a_table_that_is_full_or_not_there() {
    let mut none = connected(&PLAIN, |record| record.iomap_size = 0);
    assert_eq!(none.map(0, MEMORY), Err(MapError::TableFull));
    let mut not_said = connected(&PLAIN, |record| record.has_iomap = false);
    assert_eq!(not_said.map(0, MEMORY), Err(MapError::TableFull));
    let mut connection = connected(&PLAIN, |_| {});
    for entry in 0..8 {
        assert_eq!(connection.map(7, MEMORY), Ok(entry));
    }
    assert_eq!(connection.map(7, MEMORY), Err(MapError::TableFull));
    connection.unmap(5);
    assert_eq!(connection.map(7, MEMORY), Ok(5), "an entry is used again");
    connection.shutdown_write();
    assert_eq!(connection.map(7, MEMORY), Err(MapError::Ended));
}

/// An unmapped entry is told, once the peer knew of it; one that it never knew of is not.
#[test]
fn the_peer_is_told_that_a_mapping_is_gone() {
    let mut connection = connected(&PLAIN, |_| {});
    let _ = connection.map(7, MEMORY).unwrap();
    connection.unmap(0);
    assert_eq!(connection.poll_work(), None);
    let _ = connection.map(7, MEMORY).unwrap();
    let _ = connection.poll_work().unwrap();
    connection.unmap(0);
    let Some(Payload::Bytes { bytes, len: 24 }) = connection.poll_work().map(|work| work.payload) else { panic!("nothing is said") };
    assert_eq!(bytes, [0; 24]);
    assert_eq!(connection.poll_work(), None);
}

#[test]
fn what_a_peer_may_not_map() {
    let good = IomapRecord { offset: 7, memory: MEMORY };
    let beyond = IomapRecord { memory: Sge { addr: u64::MAX - 98, ..MEMORY }, ..good };
    let far = IomapRecord { offset: u64::MAX - 98, ..good };
    for (index, record, fault) in [
        (8, good, PeerFault::NoSuchEntry { index: 8, entries: 8 }),
        (0x1fff_ffff, good, PeerFault::NoSuchEntry { index: 0x1fff_ffff, entries: 8 }),
        (0, beyond, PeerFault::RecordOverflow),
        (0, far, PeerFault::RecordOverflow),
    ] {
        let mut connection = connected(&PLAIN, |_| {});
        assert_eq!(connection.received(Message::Iomap(index).to_u32(), &Table(record)), Err(fault));
        assert_eq!((connection.state(), connection.mapped_at(7)), (State::Broken, None));
    }
    let mut connection = connected(&PLAIN, |_| {});
    for index in [7, 0] {
        let _ = connection.received(Message::Iomap(index).to_u32(), &Table(good)).unwrap();
    }
    let mapped = |into: u64| Some(Mapped { to: RemoteAddress { addr: MAP_ADDR + into, key: MAP_KEY }, room: 100 - into });
    assert_eq!((connection.mapped_at(7), connection.mapped_at(106)), (mapped(0), mapped(99)));
    assert_eq!((connection.mapped_at(6), connection.mapped_at(107), connection.mapped_at(u64::MAX)), (None, None, None));
}

/// A peer as the shipped library: its window does not shrink, however many mappings it is sent.
#[test]
fn many_mappings_towards_a_peer_that_does_not_count_them() {
    let with = |maps| Plan { total: 20_000, receive_queue: 32, maps, ..PLAIN };
    let maps = MapPlan { table: 8, maps: 2_000, places: 0, counts: true };
    let shipped = MapPlan { counts: false, ..maps };
    for mode in [MessageMode::Immediate, MessageMode::Send] {
        let mut pair = Pair::new([with(maps), with(shipped)], mode, 3);
        const REST: [Step; 7] = [Step::Reserve, Step::Commit, Step::Post, Step::Deliver, Step::Complete, Step::Process, Step::Read];
        for _ in 0..maps.maps {
            pair.step(0, Step::Map);
            REST.iter().for_each(|step| {
                pair.step(0, *step);
                pair.step(1, *step);
            });
            pair.step(0, Step::Unmap);
        }
        pair.run_to_the_end();
        pair.check_end();
        let told = pair.sides[0].maps.iomaps_posted;
        assert!(told > 160, "{told} IOMAP messages: five times the window");
    }
}

/// Memory that is given to the device is the program's again when the request is done.
#[test]
fn registered_memory_is_read_until_its_request_is_done() {
    let mut connection = connected(&PLAIN, |_| {});
    let to = RemoteAddress { addr: 5, key: 6 };
    let numbers = [9, 10].map(|addr| connection.place_from(RemoteAddress { addr, key: 3 }, 70_000, to));
    assert!(connection.reads_registered() && !connection.is_placed(numbers[0]));
    for addr in [9, 10] {
        let work = connection.poll_work().unwrap();
        assert_eq!(
            (work.operation, work.payload, work.signaled),
            (Operation::Write { to }, Payload::Registered { addr, key: 3, len: 70_000 }, true)
        );
    }
    connection.sent(0);
    assert!(connection.is_placed(numbers[0]) && !connection.is_placed(numbers[1]));
    connection.sent(1);
    assert!(connection.is_placed(numbers[1]) && !connection.reads_registered());
    let last = connection.place_from(to, 1, to);
    connection.broken();
    assert!(connection.is_placed(last), "nothing reads it any more");
}
