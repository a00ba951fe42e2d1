//! Two connections back to back: memory as byte arrays, a transport that delivers and completes when it is told to, and a
//! scheduler with a seed. The transport and both sides check what the protocol promises at every step.

use std::collections::VecDeque;

use super::maps::{MAP_KEY, MapPlan, Maps, Turn};
use crate::{
    protocol::stream::{CONTROL_MESSAGES, Config, Connection, RECEIVE_SLACK, State, TargetList},
    wire::{ByteOrder, Control, Message, Sge},
    work::{ExposedMemory, MessageMode, Operation, Payload, RemoteAddress, WorkRequest},
};

/// What a side does when it has written all it wants to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum End {
    Nothing,
    Shutdown,
    Close,
}

/// What one side is and does.
#[derive(Clone, Copy, Debug)]
pub(super) struct Plan {
    pub(super) big_endian: bool,
    pub(super) receive_queue: u16,
    pub(super) send_queue: u32,
    pub(super) send_bytes: u32,
    pub(super) receive_bytes: u32,
    pub(super) max_write: u32,
    /// Bytes to send, in pieces of 1 to `chunk`.
    pub(super) total: usize,
    pub(super) chunk: u32,
    pub(super) end: End,
    /// What is mapped, and written to mapped memory.
    pub(super) maps: MapPlan,
}

/// Small, fast and the same everywhere.
#[derive(Clone, Copy, Debug)]
pub(super) struct Random(u64);

impl Random {
    pub(super) fn new(seed: u64) -> Self {
        Random(seed | 1)
    }

    pub(super) fn below(&mut self, bound: u32) -> u32 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        (((self.0 >> 32) * u64::from(bound)) >> 32) as u32
    }
}

/// A stream of bytes that does not repeat within a buffer. A prime length keeps it out of step with powers of two.
const PATTERN_BYTES: usize = 65521;

fn pattern() -> &'static [u8] {
    static PATTERN: std::sync::OnceLock<Vec<u8>> = std::sync::OnceLock::new();
    PATTERN.get_or_init(|| {
        let mut random = Random::new(0x9e37_79b9_7f4a_7c15);
        let once: Vec<u8> = (0..PATTERN_BYTES).map(|_| random.below(256) as u8).collect();
        [&once[..], &once[..]].concat()
    })
}

/// `len` bytes of the stream at `at`; `len` is at most [`PATTERN_BYTES`].
fn stream(side: usize, at: usize, len: usize) -> &'static [u8] {
    assert!(len <= PATTERN_BYTES);
    let from = (at + side * 1000) % PATTERN_BYTES;
    &pattern()[from..from + len]
}

const RECEIVE_KEY: u32 = 0x4e9;
const TARGETS_KEY: u32 = 0x3b6;
const RECEIVE_ADDR: u64 = 0x7f00_0000_0000;
const TARGETS_ADDR: u64 = 0x7e00_0000_0000;

pub(super) fn config(plan: &Plan, mode: MessageMode) -> Config {
    Config {
        send_queue: plan.send_queue,
        receive_queue: plan.receive_queue,
        send_bytes: plan.send_bytes,
        receive_bytes: plan.receive_bytes,
        inline: 64,
        iomap_entries: plan.maps.table,
        mode,
        exposed: ExposedMemory {
            receive: Sge { addr: RECEIVE_ADDR, key: RECEIVE_KEY, length: plan.receive_bytes },
            targets: Sge { addr: TARGETS_ADDR, key: TARGETS_KEY, length: 32 + 24 * u32::from(plan.maps.table) },
        },
        max_write: plan.max_write,
        host_is_big_endian: plan.big_endian,
    }
}

/// One side with its memory and its half of the transport.
pub(super) struct Side {
    pub(super) connection: Connection,
    pub(super) plan: Plan,
    pub(super) order: ByteOrder,
    receive: Vec<u8>,
    pub(super) send: Vec<u8>,
    targets: TargetList,
    pub(super) maps: Maps,
    /// Posted, not delivered.
    wire: VecDeque<WorkRequest>,
    /// Delivered and signaled, not taken.
    completions: VecDeque<u64>,
    /// Messages delivered to this side, not taken.
    incoming: VecDeque<u32>,
    receives: u32,
    /// Parts of the receive area that the peer may write.
    granted: VecDeque<(u32, u32)>,
    /// Control messages and keep-alives, not known to be complete.
    controls: VecDeque<u64>,
    /// DATA messages posted, and the limit that was taken, without wrapping.
    pub(super) data_posted: u64,
    limit: u64,
    pub(super) written: usize,
    pub(super) read: usize,
    pub(super) reserved: Option<u32>,
    ended: bool,
}

impl Side {
    fn new(plan: &Plan, mode: MessageMode, peer: &Plan) -> Side {
        let connection = Connection::new(&config(plan, mode));
        let receives = connection.receives_initial();
        Side {
            connection,
            plan: *plan,
            order: if plan.big_endian { ByteOrder::Big } else { ByteOrder::Little },
            receive: vec![0; plan.receive_bytes as usize],
            send: vec![0; plan.send_bytes as usize],
            targets: TargetList::default(),
            maps: Maps::new(&plan.maps),
            wire: VecDeque::new(),
            completions: VecDeque::new(),
            incoming: VecDeque::new(),
            receives,
            granted: VecDeque::from([(0, plan.receive_bytes / 2)]),
            controls: VecDeque::new(),
            data_posted: 0,
            limit: u64::from(peer.receive_queue),
            written: 0,
            read: 0,
            reserved: None,
            ended: false,
        }
    }

    /// The peer writes here.
    fn written_by_peer(&mut self, to: RemoteAddress, bytes: &[u8]) {
        if bytes.is_empty() {
            return;
        }
        let len = bytes.len();
        if to.key >= MAP_KEY {
            return self.maps.written_by_peer(to, bytes);
        }
        if to.key == TARGETS_KEY {
            let offset = usize::try_from(to.addr - TARGETS_ADDR).unwrap();
            if let Some(at) = offset.checked_sub(32) {
                return self.maps.record_written(at, bytes);
            }
            assert!(len == 16 && offset % 16 == 0 && offset < 32, "a record is written as a whole");
            self.targets[offset / 16].copy_from_slice(bytes);
            return;
        }
        assert_eq!(to.key, RECEIVE_KEY);
        let offset = u32::try_from(to.addr - RECEIVE_ADDR).unwrap();
        let (at, room) = self.granted.front_mut().expect("a write without a grant");
        assert!(offset == *at && len as u32 <= *room, "a write of {len} at {offset}, granted are {room} at {at}");
        *at += len as u32;
        *room -= len as u32;
        if *room == 0 {
            self.granted.pop_front();
        }
        self.receive[offset as usize..][..len].copy_from_slice(bytes);
    }

    fn tell(&mut self, index: u32) {
        assert!(self.data_posted + self.maps.counted() < self.limit, "a message without credit");
        self.maps.told(index);
    }

    /// A work request of this side is posted.
    pub(super) fn post(&mut self, work: WorkRequest, mode: MessageMode, peer_order: ByteOrder, grants: &mut VecDeque<(u32, u32)>) {
        let message = match (work.operation, work.payload) {
            (Operation::WriteWithImmediate { immediate, .. }, _) => {
                assert_eq!(mode, MessageMode::Immediate);
                Some(immediate)
            }
            (Operation::Send, Payload::Bytes { bytes, len: 4 }) => {
                assert_eq!(mode, MessageMode::Send);
                Some(self.order.get_u32(*bytes.first_chunk().unwrap()))
            }
            (Operation::Send, _) => panic!("a message of another length than 4"),
            (Operation::Write { to }, _) if to.key >= MAP_KEY => {
                self.maps.posted(Turn::Placed(work.payload.len()));
                assert!(self.connection.outstanding() <= self.plan.send_queue, "the send queue overflows");
                self.wire.push_back(work);
                return;
            }
            (Operation::Write { .. }, _) => None,
        };
        match message.map(|message| Message::parse(message).unwrap()) {
            Some(Message::Data(len)) => {
                assert!(self.data_posted + self.maps.counted() < self.limit, "a message without credit");
                self.data_posted += 1;
                self.maps.posted(Turn::Data(len));
                self.maps.data_posted(self.data_posted);
            }
            Some(Message::Sgl(_)) => self.controls.push_back(work.id),
            Some(Message::Ctrl(control)) => {
                assert_ne!(control, Control::KeepAlive);
                assert!(work.signaled);
                self.controls.push_back(work.id);
            }
            Some(Message::Iomap(index)) if mode == MessageMode::Immediate => self.tell(index),
            // The record went before.
            Some(Message::Iomap(_)) => {}
            None if work.payload.is_empty() => {
                assert!(work.signaled);
                self.controls.push_back(work.id);
            }
            None => {
                assert!(mode == MessageMode::Send && !work.signaled, "a write that is no payload");
                if let (Operation::Write { to }, Payload::Bytes { len: 24, .. }) = (work.operation, work.payload) {
                    self.tell(u32::try_from((to.addr - TARGETS_ADDR - 32) / 24).unwrap());
                }
            }
        }
        // What is granted counts from the moment at which the peer can see it.
        if let (Operation::WriteWithImmediate { .. } | Operation::Write { .. }, Payload::Bytes { bytes, len: 16 }) =
            (work.operation, work.payload)
        {
            let record = Sge::parse(bytes.first_chunk().unwrap(), peer_order);
            assert_eq!((record.key, record.length), (RECEIVE_KEY, self.plan.receive_bytes / 2));
            grants.push_back(((record.addr - RECEIVE_ADDR) as u32, record.length));
        }
        assert!(self.controls.len() <= CONTROL_MESSAGES as usize, "too many control messages");
        assert!(self.connection.outstanding() <= self.plan.send_queue, "the send queue overflows");
        self.wire.push_back(work);
    }
}

/// The two sides.
pub(super) struct Pair {
    pub(super) sides: [Side; 2],
    pub(super) mode: MessageMode,
    pub(super) random: Random,
}

/// What can happen to a side.
#[derive(Clone, Copy, Debug)]
pub(super) enum Step {
    Map,
    Unmap,
    Place,
    Reserve,
    Commit,
    Read,
    Post,
    Deliver,
    Complete,
    Process,
}

pub(super) const STEPS: [Step; 10] = [
    Step::Map,
    Step::Unmap,
    Step::Place,
    Step::Reserve,
    Step::Commit,
    Step::Read,
    Step::Post,
    Step::Deliver,
    Step::Complete,
    Step::Process,
];

impl Pair {
    pub(super) fn new(plans: [Plan; 2], mode: MessageMode, seed: u64) -> Pair {
        let [a, b] = &plans;
        let mut sides = [Side::new(a, mode, b), Side::new(b, mode, a)];
        let mut records = [sides[0].connection.connect_record(), sides[1].connection.connect_record()];
        for (record, plan) in records.iter_mut().zip(&plans) {
            if !plan.maps.counts {
                record[1] &= !(1 << 2);
            }
        }
        let [one, other] = &mut sides;
        (one.maps.peer_counts, other.maps.peer_counts) = (plans[1].maps.counts, plans[0].maps.counts);
        sides[0].connection.establish(&records[1]).unwrap();
        sides[1].connection.establish(&[&records[0][..], &[0; 16]].concat()).unwrap();
        Pair { sides, mode, random: Random::new(seed) }
    }

    /// Does one thing, if it can be done.
    pub(super) fn step(&mut self, side: usize, step: Step) -> bool {
        match step {
            Step::Map => self.map(side),
            Step::Unmap => self.unmap(side),
            Step::Place => self.place(side),
            Step::Reserve => self.reserve(side),
            Step::Commit => self.commit(side),
            Step::Read => self.read(side),
            Step::Post => self.post(side),
            Step::Deliver => self.deliver(side),
            Step::Complete => self.complete(side),
            Step::Process => self.process(side),
        }
    }

    fn reserve(&mut self, me: usize) -> bool {
        let side = &mut self.sides[me];
        let left = side.plan.total - side.written;
        let writable = side.connection.writable();
        if side.reserved.is_some() || left == 0 || writable == 0 {
            return false;
        }
        assert!(side.connection.can_write());
        let chunk = 1 + self.random.below(side.plan.chunk);
        let len = writable.min(chunk).min(left as u32);
        let at = side.connection.write_at() as usize;
        side.send[at..][..len as usize].copy_from_slice(stream(me, side.written, len as usize));
        side.reserved = Some(len);
        true
    }

    fn commit(&mut self, me: usize) -> bool {
        let [a, b] = &mut self.sides;
        let (side, peer) = if me == 0 { (a, b) } else { (b, a) };
        let mut progress = false;
        if let Some(len) = side.reserved.take() {
            if side.connection.can_write() {
                side.maps.committed(Turn::Data(len));
                let connection = &side.connection;
                let nothing_waits = !connection.has_work() && !connection.wants_to_send_control() && !connection.has_due_iomaps();
                // The room may have shrunk in between: then only `commit` keeps what was promised.
                if len <= side.connection.writable() && self.random.below(2) == 0 {
                    let data = side.connection.data_at_once(len as usize);
                    assert_eq!(data.is_some(), nothing_waits && self.mode == MessageMode::Immediate);
                    match data {
                        Some(data) => side.post(data.request(), self.mode, peer.order, &mut VecDeque::new()),
                        None => side.connection.commit(len),
                    }
                } else {
                    side.connection.commit(len);
                }
                side.written += len as usize;
            }
            progress = true;
        }
        if side.written == side.plan.total && !side.ended {
            side.ended = true;
            match side.plan.end {
                End::Nothing => {}
                End::Shutdown => side.connection.shutdown_write(),
                End::Close => side.connection.disconnect(),
            }
            progress = true;
        }
        progress
    }

    fn read(&mut self, me: usize) -> bool {
        let most = 1 + self.random.below(2 * self.sides[1 - me].plan.chunk);
        let side = &mut self.sides[me];
        let readable = side.connection.readable();
        let Some((at, len)) = side.connection.read_at() else {
            assert_eq!(readable, 0);
            return false;
        };
        assert!(readable >= len && !side.connection.end_of_file());
        if len < readable {
            let (next, rest) = side.connection.peek_at(len).unwrap();
            assert_eq!((next, rest), (0, readable - len), "the ring wraps at its end only");
        }
        let len = len.min(most);
        assert!(side.receive[at as usize..][..len as usize] == *stream(1 - me, side.read, len as usize), "the stream differs");
        side.connection.consume(len);
        side.read += len as usize;
        true
    }

    fn post(&mut self, me: usize) -> bool {
        let [a, b] = &mut self.sides;
        let (side, peer) = if me == 0 { (a, b) } else { (b, a) };
        let most = 1 + self.random.below(4);
        let mut grants = VecDeque::new();
        for count in 0..most {
            let expected = side.connection.has_work();
            let work = side.connection.poll_work();
            assert_eq!(expected, work.is_some());
            let Some(work) = work else { return count > 0 };
            side.post(work, self.mode, peer.order, &mut grants);
            side.granted.append(&mut grants);
        }
        true
    }

    fn deliver(&mut self, me: usize) -> bool {
        let [a, b] = &mut self.sides;
        let (side, peer) = if me == 0 { (a, b) } else { (b, a) };
        let Some(work) = side.wire.pop_front() else { return false };
        // The message is sent again.
        let needs_receive = matches!(work.operation, Operation::WriteWithImmediate { .. });
        if needs_receive && peer.receives == 0 && !peer.plan.maps.counts {
            side.wire.push_front(work);
            return false;
        }
        // Only now: the bytes have to stay in the send area until the request completes.
        let bytes = match &work.payload {
            Payload::Empty => &[][..],
            Payload::SendArea { offset, len } => &side.send[*offset as usize..][..*len as usize],
            Payload::Bytes { bytes, len } => &bytes[..usize::from(*len)],
            Payload::Registered { .. } => panic!("nothing is registered"),
        };
        if let Operation::Write { to } = work.operation
            && to.key >= MAP_KEY
        {
            side.maps.delivered(to, bytes);
        }
        let message = match work.operation {
            Operation::Write { to } => {
                peer.written_by_peer(to, bytes);
                None
            }
            Operation::WriteWithImmediate { to, immediate } => {
                peer.written_by_peer(to, bytes);
                Some(immediate)
            }
            // As the receiver's processor loads the 4 bytes.
            Operation::Send => Some(peer.order.get_u32(bytes.try_into().unwrap())),
        };
        if let Some(message) = message {
            peer.receives = peer.receives.checked_sub(1).expect("no receive is posted");
            peer.incoming.push_back(message);
        }
        if work.signaled {
            side.completions.push_back(work.id);
        }
        true
    }

    fn complete(&mut self, me: usize) -> bool {
        let side = &mut self.sides[me];
        let Some(id) = side.completions.pop_front() else { return false };
        side.connection.sent(id);
        side.controls.retain(|control| *control > id);
        true
    }

    fn process(&mut self, me: usize) -> bool {
        let most = 1 + self.random.below(8);
        let foreign = self.mode == MessageMode::Send && self.sides[0].order != self.sides[1].order;
        let side = &mut self.sides[me];
        for count in 0..most {
            let Some(message) = side.incoming.pop_front() else {
                return count > 0 && self.repost(me);
            };
            let tables = (side.targets, &side.maps);
            let taken = side.connection.received(message, &tables).unwrap();
            if let Message::Iomap(index) = Message::parse(if foreign { message.swap_bytes() } else { message }).unwrap() {
                side.maps.taken(index, side.order);
                if !side.plan.maps.counts {
                    side.connection.receiver.forget_iomap();
                }
            }
            for index in 0..2 {
                if taken.contains(index) {
                    side.targets[index as usize] = [0; 16];
                }
            }
            if let Message::Sgl(limit) = Message::parse(if foreign { message.swap_bytes() } else { message }).unwrap() {
                side.limit += u64::from(limit.wrapping_sub(side.limit as u16));
            }
        }
        self.repost(me)
    }

    fn repost(&mut self, me: usize) -> bool {
        let side = &mut self.sides[me];
        let due = side.connection.receives_due();
        side.receives += due;
        side.connection.receives_posted(due);
        assert!(side.receives <= u32::from(side.plan.receive_queue) + RECEIVE_SLACK, "more receives than there is room for");
        true
    }

    /// `count` random steps, some kinds rarer than others.
    pub(super) fn run_random(&mut self, count: u32) {
        let weights: [[u32; STEPS.len()]; 2] = core::array::from_fn(|_| core::array::from_fn(|_| self.random.below(9)));
        for _ in 0..count {
            let me = self.random.below(2) as usize;
            let step = self.random.below(STEPS.len() as u32) as usize;
            if self.random.below(8) < weights[me][step] {
                let _ = self.step(me, STEPS[step]);
            }
            match self.random.below(256) {
                0 => drop(self.sides[me].connection.keep_alive()),
                1 => self.sides[me].connection.set_signal_all(true),
                2..8 => self.sides[me].connection.set_signal_all(false),
                _ => {}
            }
        }
    }

    /// Everything in turn, until nothing more can happen.
    pub(super) fn run_to_the_end(&mut self) {
        loop {
            let mut progress = false;
            for me in 0..2 {
                for step in STEPS {
                    while self.step(me, step) {
                        progress = true;
                        // Reading and writing take turns with the rest, as a program that waits would.
                        if matches!(step, Step::Reserve | Step::Commit | Step::Map | Step::Unmap | Step::Place) {
                            break;
                        }
                    }
                }
            }
            if !progress {
                // Only for whoever is done: a writer must never need this to go on.
                let flush = self.sides.iter_mut().any(|side| {
                    let done = side.written == side.plan.total || !side.connection.can_write();
                    done && side.connection.flush_needed() && side.connection.keep_alive()
                });
                if !flush {
                    return;
                }
            }
        }
    }

    /// What must be true when nothing more can happen.
    pub(super) fn check_end(&self) {
        for me in 0..2 {
            let (side, peer) = (&self.sides[me], &self.sides[1 - me]);
            let connection = &side.connection;
            assert!(connection.all_sent(), "side {me} waits: {connection:?}");
            self.check_maps(me);
            if peer.plan.end != End::Close {
                assert_eq!(side.written, side.plan.total, "side {me} is stuck: {connection:?}");
            }
            if side.plan.end != End::Close {
                assert_eq!(side.read, peer.written, "side {me} misses data");
                assert_eq!(connection.end_of_file(), peer.plan.end != End::Nothing, "side {me}");
            }
            if (side.plan.end, peer.plan.end) == (End::Nothing, End::Nothing) {
                assert_eq!(connection.state(), State::Open);
            }
            if (side.plan.end, peer.plan.end) == (End::Shutdown, End::Shutdown) {
                assert!(matches!(connection.state(), State::Disconnected(_)) && connection.peer_disconnected());
            }
        }
    }
}
