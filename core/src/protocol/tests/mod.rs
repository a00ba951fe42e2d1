//! What strangers may send before anything is known of them, a million times (`scripts/fuzz`): the connect record, the header of what comes to
//! the UDP socket, and the header of a UD message. Nothing panics; a record that is taken grants what it says and no more; and no
//! datagram goes to a queue pair that its destination has not claimed itself.
//!
//! Inputs are those of `corpus.txt`, changed a little or much. `RSOCKET_RUNS=N` makes a hundred times N of each; `RSOCKET_SEED=N` begins
//! elsewhere.

use std::{
    collections::{HashMap, HashSet},
    env,
    net::{IpAddr, SocketAddr},
};

use super::{
    datagram::{Destinations, Resolve, Way},
    stream::{Config, Connection, State, TARGET_RECORDS, TargetList},
};
use crate::{
    fabric::sim::Random,
    wire::{ConnectRecord, Sge, UdHeader, UdpHeader},
    work::{ExposedMemory, MessageMode, Operation, RemoteAddress},
};

/// Inputs of each kind where nobody says how many.
const RUNS: u64 = 100;
/// So many for each run that is asked for.
const EACH: u64 = 100;
/// Destinations of one table, which is less than the sources there are.
const CAPACITY: usize = 8;

fn count() -> u64 {
    let runs = env::var("RSOCKET_RUNS").map_or(RUNS, |runs| runs.parse().expect("RSOCKET_RUNS is a number"));
    runs * EACH
}

fn seed() -> u64 {
    env::var("RSOCKET_SEED").ok().and_then(|seed| seed.split("..").next()?.parse().ok()).unwrap_or(1)
}

/// The inputs of a kind.
fn corpus(kind: &str) -> Vec<Vec<u8>> {
    let bytes = |line: &str| {
        let digits: Vec<u8> = line.bytes().filter(u8::is_ascii_hexdigit).collect();
        let pairs = digits.chunks(2).map(|pair| u8::from_str_radix(std::str::from_utf8(pair).unwrap(), 16).unwrap());
        pairs.collect::<Vec<u8>>()
    };
    let lines = include_str!("corpus.txt").lines().filter_map(|line| line.strip_prefix(kind)?.strip_prefix(':'));
    let all: Vec<_> = lines.map(bytes).collect();
    assert!(all.len() > 3, "no corpus of {kind}");
    all
}

/// Values that lie at borders.
const INTERESTING: [u8; 12] = [0, 1, 4, 6, 7, 8, 16, 24, 28, 0x55, 0x7f, 0xff];

/// One of them, with a few changes: bytes, bits, length, a part of another one.
fn mutated(corpus: &[Vec<u8>], random: &mut Random) -> Vec<u8> {
    let pick = |random: &mut Random, len: usize| (random.number() % len.max(1) as u64) as usize;
    let mut bytes = corpus[pick(random, corpus.len())].clone();
    for _ in 0..pick(random, 5) {
        let at = pick(random, bytes.len());
        match random.number() % 8 {
            0..=2 if !bytes.is_empty() => bytes[at] = INTERESTING[pick(random, INTERESTING.len())],
            3 if !bytes.is_empty() => bytes[at] ^= 1 << (random.number() % 8),
            4 if !bytes.is_empty() => bytes[at] = random.number() as u8,
            5 => bytes.truncate(at),
            6 => bytes.extend((0..pick(random, 40)).map(|_| random.number() as u8)),
            _ => {
                let other = &corpus[pick(random, corpus.len())];
                let from = pick(random, other.len());
                bytes.truncate(at);
                bytes.extend_from_slice(&other[from..]);
            }
        }
    }
    bytes
}

const CONFIG: Config = Config {
    send_queue: 24,
    receive_queue: 16,
    send_bytes: 4096,
    receive_bytes: 4096,
    inline: 64,
    iomap_entries: 4,
    mode: MessageMode::Immediate,
    exposed: ExposedMemory {
        targets: Sge { addr: 0x1000, key: 1, length: TARGET_RECORDS },
        receive: Sge { addr: 0x2000, key: 1, length: 4096 },
    },
    max_write: 4096,
    host_is_big_endian: false,
};

#[test]
fn connect_records() {
    let (corpus, mut random) = (corpus("connect"), Random::new(seed()));
    let mut taken = 0;
    for _ in 0..count() {
        let bytes = mutated(&corpus, &mut random);
        let mut connection = Connection::new(&CONFIG);
        let established = connection.establish(&bytes);
        assert_eq!(connection.state(), if established.is_ok() { State::Open } else { State::Broken });
        let Ok(record) = ConnectRecord::parse(&bytes) else {
            assert!(established.is_err());
            continue;
        };
        assert_eq!(ConnectRecord::parse(&record.to_bytes()), Ok(record));
        if established.is_err() {
            continue;
        }
        taken += 1;
        writes_within(&mut connection, &record);
    }
    assert!(taken > count() / 50, "{taken}: the inputs are too wild to be of use");
}

/// As much is sent as the peer has room for by its record; what is written is all within the memory that it names.
fn writes_within(connection: &mut Connection, record: &ConnectRecord) {
    let data = record.data_buffer;
    let mut left = u64::from(data.length);
    let mut messages = 0_u32;
    for _ in 0..40 {
        let room = connection.writable();
        if room == 0 {
            break;
        }
        let Some(work) = connection.data_at_once(room.min(500) as usize).map(|at_once| at_once.request()) else { break };
        let (Operation::Write { to } | Operation::WriteWithImmediate { to, .. }) = work.operation else { continue };
        let len = work.payload.len();
        if to.key == data.key && to.addr >= data.addr && to.addr - data.addr < u64::from(data.length) {
            let at = RemoteAddress { addr: data.addr + (u64::from(data.length) - left), key: data.key };
            assert_eq!(to, at, "{record:?}");
            assert!(u64::from(len) <= left, "{record:?}");
            left -= u64::from(len);
            messages += 1;
        } else {
            let list = record.targets;
            assert!(to.key == list.key && to.addr >= list.addr, "{to:?} of {record:?}");
            assert!(to.addr + u64::from(len) <= list.addr + u64::from(list.length) * Sge::BYTES as u64, "{to:?} of {record:?}");
        }
    }
    assert!(messages <= u32::from(record.credits), "more messages than credits: {record:?}");
    // A grant of nothing, from a list of nothing.
    let _ = connection.received(4 << 29, &TargetList::default);
}

/// Where datagrams come from: addresses that the corpus names, and others.
fn sources() -> Vec<SocketAddr> {
    let ips: [IpAddr; 5] = ["10.0.0.1", "10.0.0.2", "127.0.0.1", "fd00::2", "::ffff:10.0.0.1"].map(|ip| ip.parse().unwrap());
    ips.iter().flat_map(|ip| [7001, 7002, 53].map(|port| SocketAddr::new(*ip, port))).collect()
}

/// A table, and beside it what it may believe.
struct Model {
    table: Destinations<u64>,
    /// Which path each handle was made for.
    paths: HashMap<u64, Resolve>,
    /// Who has claimed which queue pair, by what has come from its own address.
    claims: HashSet<(SocketAddr, u32)>,
    resolving: Vec<Resolve>,
    now: u64,
}

impl Model {
    fn receives(&mut self, source: SocketAddr, bytes: &[u8]) {
        let header = UdpHeader::parse(bytes);
        let arrival = self.table.datagram(source, bytes, self.now);
        if let Some(from) = arrival.deliver_from {
            assert!(from <= bytes.len() && (from == 0) == header.is_none(), "{header:?}");
        }
        assert!(header.is_some() || (!arrival.answer && arrival.resolve.is_none()), "a datagram that is the program's own");
        if let Some(header) = header
            && header.address.to_canonical() == source.ip().to_canonical()
        {
            self.claims.insert((source, header.queue_pair));
        }
        if let Some(resolve) = arrival.resolve {
            assert_eq!(resolve.destination, source, "somebody else's path");
            assert!(self.claims.contains(&(source, resolve.queue_pair)), "{resolve:?} of nobody");
            self.resolving.push(resolve);
        }
        assert!(self.table.len() <= CAPACITY);
    }

    fn resolves(&mut self, random: &mut Random) {
        if self.resolving.is_empty() {
            return;
        }
        let at = (random.number() % self.resolving.len() as u64) as usize;
        let resolve = self.resolving.swap_remove(at);
        let handle = self.paths.len() as u64;
        self.paths.insert(handle, resolve);
        self.table.resolved(resolve, random.chance(900).then_some(handle), self.now);
    }

    fn sends(&mut self, destination: SocketAddr) {
        if let Way::Queue(handle, queue_pair) = self.table.send(destination, 100, 2048, self.now) {
            assert_eq!(self.paths[&handle], Resolve { destination, queue_pair }, "another destination's path");
        }
        assert!(self.table.len() <= CAPACITY);
    }
}

#[test]
fn headers_of_the_udp_socket() {
    let (corpus, mut random, sources) = (corpus("udp"), Random::new(seed()), sources());
    let mut model =
        Model { table: Destinations::new(CAPACITY), paths: HashMap::new(), claims: HashSet::new(), resolving: Vec::new(), now: 0 };
    let mut by_queue_pair = 0;
    for _ in 0..count() {
        let peer = sources[(random.number() % sources.len() as u64) as usize];
        model.now += random.number() % 100_000_000;
        match random.number() % 8 {
            0 => model.sends(peer),
            1 => model.resolves(&mut random),
            2 => {
                let named = model.paths.len() as u64;
                while let Some(handle) = model.table.released() {
                    assert!(handle < named, "a handle of nobody");
                }
            }
            _ => {
                let bytes = mutated(&corpus, &mut random);
                if let Some(header) = UdpHeader::parse(&bytes) {
                    let mut room = [0; UdpHeader::V6_BYTES];
                    let len = header.emit(&mut room);
                    assert_eq!(UdpHeader::parse(&room[..len]), Some(header));
                }
                // Mostly from whom it says.
                let named = UdpHeader::parse(&bytes).filter(|_| random.chance(800)).map(|header| header.address.to_canonical());
                let peer = sources.iter().copied().find(|source| Some(source.ip().to_canonical()) == named).unwrap_or(peer);
                model.receives(peer, &bytes);
                by_queue_pair += u64::from(matches!(model.table.send(peer, 1, 2048, model.now), Way::Queue(..)));
            }
        }
    }
    assert!(by_queue_pair > count() / 100, "{by_queue_pair}: the inputs are too wild to be of use");
}

#[test]
fn headers_of_ud_messages() {
    let (corpus, mut random) = (corpus("ud"), Random::new(seed()));
    let mut table: Destinations<u64> = Destinations::new(CAPACITY);
    let mut taken = 0;
    for now in 0..count() {
        let bytes = mutated(&corpus, &mut random);
        let header = UdHeader::parse(&bytes);
        match table.message(&bytes, now) {
            Some((source, from)) => {
                let header = header.expect("a message without a header was taken");
                assert_eq!((header.source, header.len()), (source, from));
                assert!(from <= bytes.len() && source.port() != 0);
                let mut room = [0; UdHeader::V6_BYTES];
                let len = header.emit(&mut room);
                assert_eq!(room[..len], bytes[..len]);
                taken += 1;
            }
            None => assert!(header.is_none_or(|header| header.source.port() == 0)),
        }
        assert!(table.is_empty(), "what comes by a queue pair says nothing of another");
    }
    assert!(taken > count() / 50 && table.faults().malformed == count() - taken, "{taken}");
}
