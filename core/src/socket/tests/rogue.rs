//! A program that misbehaves over shared memory, as a seed says. Most of what it does is right, so that it comes far; each
//! step may be any of what must not be.

use core::net::{IpAddr, SocketAddr};
use std::{
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    thread::JoinHandle,
};

use rustix::{
    fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd},
    fs::{FallocateFlags, MemfdFlags, Mode, OFlags, SealFlags},
    net::Shutdown,
};

use crate::{
    error::Errno,
    fabric::{
        shm::tests::rogue::{self as raw, ANSWERED, ARMED, ENDED, FILES, GREETING, Handed, Heard, Mapped, POSTED, PROCESSOR, STARVED},
        sim::Random,
    },
    sys::descriptor::OwnFd,
    wire::{ByteOrder, ConnectRecord, Control, Message, Sge},
};

/// Its port. It takes more than a bit to make it that of a client of a stage.
pub(super) const PORT: u16 = 0x0a00;

/// Most connections of one program.
const CONNECTIONS: usize = 4;

/// Numbers at which something may go wrong.
const EDGES: [u32; 12] = [0, 1, 2, 63, 64, 128, 4096, 1 << 17, 1 << 30, 1 << 31, u32::MAX - 1, u32::MAX];

/// See the module.
pub(super) struct Program {
    random: Random,
    /// It connects to `server`, or it listens there itself.
    connects: bool,
    server: SocketAddr,
    client: SocketAddr,
    listener: Option<OwnFd>,
    lines: Vec<Line>,
    steps: u64,
    /// How often in a thousand a step is not what it should be.
    wild: u32,
    /// Writes into the other end's memory all the time.
    scribbles: bool,
    /// What it does when it has done everything else.
    leaves: bool,
    spoilt: bool,
}

/// One of its connections.
struct Line {
    channel: OwnFd,
    stage: Stage,
    own: Handed,
    other: Option<Heard>,
    /// The other end's record.
    record: Option<ConnectRecord>,
    /// Messages put into the other end's ring, receives posted for its messages, and those of them that are used up.
    put: u32,
    posted: u32,
    taken: u32,
    /// Where the next data go, how much, and how many messages may.
    data: Sge,
    credits: u16,
    /// Messages of data that came, and were granted.
    consumed: u16,
    scribbler: Option<(Arc<AtomicBool>, JoinHandle<()>)>,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Stage {
    /// Has not said anything.
    Mute,
    /// Has asked, and waits for the answer.
    Asked,
    Up,
}

impl Drop for Line {
    fn drop(&mut self) {
        if let Some((stop, thread)) = self.scribbler.take() {
            stop.store(true, Ordering::Relaxed);
            thread.join().unwrap();
        }
    }
}

impl Program {
    pub(super) fn connecting(server: SocketAddr, own: IpAddr, random: Random) -> Self {
        Program::new(true, server, SocketAddr::new(own, PORT), random)
    }

    pub(super) fn listening(own: IpAddr, random: Random) -> Self {
        let addr = SocketAddr::new(own, PORT);
        Program { listener: Some(raw::listen(addr)), ..Program::new(false, addr, addr, random) }
    }

    fn new(connects: bool, server: SocketAddr, client: SocketAddr, mut random: Random) -> Self {
        let most = pick(&mut random, &[5, 40, 150]);
        Program {
            connects,
            server,
            client,
            listener: None,
            lines: Vec::new(),
            steps: random.within(&(1..=most)),
            wild: pick(&mut random, &[30, 200, 800]),
            scribbles: random.chance(60),
            leaves: random.chance(500),
            spoilt: false,
            random,
        }
    }

    /// Whether it holds on to what it has at the end, and says nothing any more.
    pub(super) fn stalls(&self) -> bool {
        !self.leaves
    }

    /// One step, or a few. False: it has come to its end.
    pub(super) fn act(&mut self) -> bool {
        for _ in 0..=self.random.number() % 4 {
            if self.steps == 0 {
                self.end();
                return false;
            }
            self.steps -= 1;
            self.step();
        }
        true
    }

    /// The end, whatever is left to do.
    pub(super) fn end(&mut self) {
        self.steps = 0;
        if self.leaves {
            self.lines.clear();
            self.listener = None;
        } else {
            self.lines.iter_mut().for_each(Line::stop_scribbling);
        }
    }

    fn step(&mut self) {
        self.enter();
        if self.lines.is_empty() {
            return;
        }
        let at = (self.random.number() % self.lines.len() as u64) as usize;
        if self.random.chance(self.wild / 40) {
            self.lines.swap_remove(at);
            return;
        }
        let line = &mut self.lines[at];
        match line.stage {
            Stage::Mute if self.connects => {
                if !self.random.chance(self.wild / 10) {
                    greet(line, true, self.client, self.server, &mut self.random, self.wild);
                }
            }
            Stage::Mute => match raw::hear(&line.channel) {
                Err(Errno::AGAIN) => {}
                Err(_) => drop(self.lines.swap_remove(at)),
                Ok(heard) => {
                    if self.random.chance(self.wild / 10) {
                        line.own = heard.mirror();
                    }
                    let client = heard.client;
                    line.heard(heard);
                    greet(line, false, client, self.server, &mut self.random, self.wild);
                    if self.scribbles {
                        line.scribble(self.random.number());
                    }
                }
            },
            Stage::Asked => match raw::hear(&line.channel) {
                Err(Errno::AGAIN) if self.random.chance(self.wild) => line.misbehave(&mut self.random),
                Err(Errno::AGAIN) => {}
                Err(_) => drop(self.lines.swap_remove(at)),
                Ok(heard) => {
                    line.heard(heard);
                    if self.scribbles {
                        line.scribble(self.random.number());
                    }
                }
            },
            Stage::Up if self.random.chance(self.wild) => line.misbehave(&mut self.random),
            Stage::Up => line.behave(&mut self.random),
        }
        self.spoilt |= self.lines.iter().any(|line| !line.is_intact());
    }

    /// Bytes were changed that belong to nobody.
    pub(super) fn is_spoilt(&self) -> bool {
        self.spoilt
    }

    /// A new connection, sometimes.
    fn enter(&mut self) {
        let channel = if self.connects {
            let wanted = self.lines.is_empty() || self.lines.len() < CONNECTIONS && self.random.chance(self.wild / 10);
            if wanted { raw::connect(self.server) } else { None }
        } else {
            self.listener.as_ref().and_then(raw::accept)
        };
        let Some(channel) = channel else { return };
        let entries = 1 << self.random.within(&(0..=8));
        let receive = pick(&mut self.random, &[2, 64, 130, 4096, 65_536]);
        let targets = if self.random.chance(900) { 32 } else { self.random.within(&(0..=100)) as u32 };
        let own = Handed::good(entries, targets, receive, self.random.number() as u32);
        self.lines.push(Line {
            channel,
            stage: Stage::Mute,
            own,
            other: None,
            record: None,
            put: 0,
            posted: 0,
            taken: 0,
            data: Sge::default(),
            credits: 0,
            consumed: 0,
            scribbler: None,
        });
    }
}

/// A number, most often one at which something may go wrong.
fn number(random: &mut Random) -> u32 {
    match random.number() % 4 {
        0 => random.number() as u32,
        1 => random.within(&(0..=300)) as u32,
        2 => pick(random, &EDGES).wrapping_add(random.within(&(0..=16)) as u32).wrapping_sub(8),
        _ => pick(random, &EDGES),
    }
}

fn pick<T: Copy>(random: &mut Random, of: &[T]) -> T {
    of[(random.number() % of.len() as u64) as usize]
}

fn bytes(random: &mut Random, most: u64) -> Vec<u8> {
    (0..random.within(&(0..=most))).map(|_| random.number() as u8).collect()
}

fn change(what: &mut [u8], random: &mut Random) {
    for _ in 0..=random.number() % 4 {
        let at = (random.number() % what.len() as u64) as usize;
        if random.chance(500) {
            what[at] ^= 1 << (random.number() % 8);
        } else {
            let value = number(random).to_ne_bytes();
            what.iter_mut().skip(at / 4 * 4).zip(value).for_each(|(to, from)| *to = from);
        }
    }
}

/// Asks, or answers, and hands memory over; what is wrong with it follows from the seed.
fn greet(line: &mut Line, asks: bool, client: SocketAddr, server: SocketAddr, random: &mut Random, wild: u32) {
    line.stage = if asks { Stage::Asked } else { Stage::Up };
    let mut record: Vec<u8> = line.own_record(random).to_bytes().into();
    if random.chance(wild / 4) {
        match random.number() % 3 {
            0 => record.truncate((random.number() % 41) as usize),
            1 => record = bytes(random, 80),
            _ => change(&mut record, random),
        }
    }
    let mut greeting: Vec<u8> = line.own.greeting(asks, client, server, &record).into();
    if random.chance(wild / 4) {
        match random.number() % 5 {
            0 => greeting.truncate((random.number() % GREETING as u64) as usize),
            1 => greeting = bytes(random, 2 * GREETING as u64),
            2 => greeting.extend(bytes(random, 3000)),
            3 => greeting = line.own.greeting(!asks, client, server, &record).into(),
            _ => change(&mut greeting, random),
        }
    }
    if random.chance(wild / 4) {
        let file = odd_file(&line.own, random);
        line.own.replace(file);
    }
    let files: Vec<BorrowedFd<'_>> = match random.chance(wild / 8) {
        false => vec![line.own.file.as_fd()],
        true => (0..random.within(&(0..=FILES as u64)))
            .map(|_| if random.chance(500) { line.own.file.as_fd() } else { line.channel.as_fd() })
            .collect(),
    };
    raw::say(&line.channel, &greeting, &files);
    if let Some(other) = &line.other {
        other.mapped.set(ANSWERED, 1);
    }
}

/// Something else than the memory that is expected.
fn odd_file(own: &Handed, random: &mut Random) -> OwnedFd {
    let (shrink, grow) = (SealFlags::SHRINK, SealFlags::GROW);
    let plain = MemfdFlags::empty();
    let len = own.len();
    let open = |path: &str, flags| rustix::fs::open(path, flags | OFlags::CLOEXEC, Mode::RUSR | Mode::WUSR).unwrap();
    match random.number() % 16 {
        0 => raw::memory(len, SealFlags::empty(), plain),
        1 => raw::memory(len, shrink, plain),
        2 => raw::memory(len, grow, plain),
        3 => raw::memory(len, shrink | grow | SealFlags::WRITE, plain),
        4 => raw::memory(len, shrink | grow | SealFlags::FUTURE_WRITE, plain),
        5 => raw::memory(len - 1, shrink | grow, plain),
        6 => raw::memory(len + 1, shrink | grow, plain),
        7 => raw::memory(0, shrink | grow, plain),
        8 => raw::memory(len.next_multiple_of(2 << 20), shrink | grow, MemfdFlags::HUGETLB | MemfdFlags::HUGE_2MB),
        9 => rustix::pipe::pipe_with(rustix::pipe::PipeFlags::CLOEXEC).unwrap().0,
        10 => open("/dev/zero", OFlags::RDWR),
        11 => open("/", OFlags::DIRECTORY),
        12 => open(&format!("/proc/self/fd/{}", own.file.as_raw_fd()), OFlags::RDONLY),
        13 => open(&format!("/proc/self/fd/{}", own.file.as_raw_fd()), OFlags::PATH),
        14 => on_disk(len, std::env::temp_dir().to_str().unwrap()),
        _ => on_disk(len, "/dev/shm"),
    }
}

/// A file that can be made shorter at any time.
fn on_disk(len: usize, directory: &str) -> OwnedFd {
    let file = rustix::fs::open(directory, OFlags::TMPFILE | OFlags::RDWR | OFlags::CLOEXEC, Mode::RUSR | Mode::WUSR).unwrap();
    rustix::fs::ftruncate(&file, len as u64).unwrap();
    file
}

impl Line {
    fn own_record(&self, random: &mut Random) -> ConnectRecord {
        let entries = 1 << random.within(&(0..=5));
        let exposed = self.own.mapped.as_ref().map(|mapped| mapped.exposed).unwrap();
        ConnectRecord {
            order: ByteOrder::HOST,
            has_iomap: true,
            counts_iomaps: false,
            credits: entries,
            iomap_size: 0,
            targets: Sge { length: 2, ..exposed.targets },
            data_buffer: Sge { length: (exposed.receive.length / 2).max(1), ..exposed.receive },
        }
    }

    /// The other end has said what it has.
    fn heard(&mut self, heard: Heard) {
        self.record = ConnectRecord::parse(&heard.private_data).ok();
        if let Some(record) = &self.record {
            self.data = record.data_buffer;
            self.credits = record.credits;
        }
        self.other = Some(heard);
        self.stage = Stage::Up;
        self.post(64);
    }

    fn is_intact(&self) -> bool {
        let other = self.other.as_ref().map(|other| &other.mapped);
        self.own.mapped.as_ref().into_iter().chain(other).all(Mapped::is_intact)
    }

    fn stop_scribbling(&mut self) {
        if let Some((stop, thread)) = self.scribbler.take() {
            stop.store(true, Ordering::Relaxed);
            thread.join().unwrap();
        }
    }

    fn scribble(&mut self, seed: u64) {
        let Some(mapped) = self.other.as_ref().map(|other| other.mapped.clone()) else { return };
        let own = self.own.mapped.clone();
        let stop = Arc::new(AtomicBool::new(false));
        let stopped = Arc::clone(&stop);
        let thread = std::thread::spawn(move || {
            let mut random = Random::new(seed);
            while !stopped.load(Ordering::Relaxed) {
                scribble_once(&mapped, &mut random);
                if let Some(own) = &own {
                    scribble_once(own, &mut random);
                }
            }
        });
        self.scribbler = Some((stop, thread));
    }

    fn ring(&self) {
        let Some(other) = &self.other else { return };
        if other.mapped.get(ARMED) != 0 {
            other.mapped.set(ARMED, 0);
            raw::say(&self.channel, &[1], &[]);
        }
    }

    /// Puts a message into the other end's ring.
    fn tell(&mut self, message: u32) {
        let Some(other) = &self.other else { return };
        self.put = self.put.wrapping_add(1);
        other.mapped.put(other.mapped.entry(self.put), self.put, message);
        self.ring();
    }

    fn post(&mut self, count: u32) {
        let Some(mapped) = &self.own.mapped else { return };
        let free = mapped.entries.saturating_sub(self.posted.wrapping_sub(self.taken));
        self.posted = self.posted.wrapping_add(count.min(free));
        mapped.set(POSTED, self.posted);
        if mapped.get(STARVED) != 0 {
            mapped.set(STARVED, 0);
            self.ring();
        }
    }

    /// Does something that a program does which keeps to the rules.
    fn behave(&mut self, random: &mut Random) {
        let Some(other) = &self.other else { return };
        let room = other.mapped.get(POSTED) != self.put;
        match random.number() % 8 {
            0 => while raw::take(&self.channel) {},
            1..4 => self.take_messages(),
            4 => self.post(random.within(&(1..=16)) as u32),
            5 if room => self.advertise(random),
            _ if room && self.credits > 0 && self.data.length > 0 => {
                let len = (random.within(&(1..=5000)) as u32).min(self.data.length);
                other.mapped.write(self.data.addr, &bytes(random, u64::from(len)));
                self.data.addr = self.data.addr.wrapping_add(u64::from(len));
                self.data.length -= len;
                self.credits -= 1;
                self.tell(Message::Data(len).to_u32());
            }
            _ => {}
        }
    }

    fn take_messages(&mut self) {
        let Some(mapped) = self.own.mapped.clone() else { return };
        while let Some(message) = mapped.message(self.taken.wrapping_add(1)) {
            self.taken = self.taken.wrapping_add(1);
            match Message::parse(message) {
                Ok(Message::Data(_)) => self.consumed = self.consumed.wrapping_add(1),
                Ok(Message::Sgl(_)) => {
                    self.credits = self.credits.saturating_add(8);
                    let targets = mapped.exposed.targets.addr;
                    let records = [16, 0].map(|at| Sge::parse(&mapped.read(targets + at), ByteOrder::HOST));
                    if self.data.length == 0 {
                        self.data = records.into_iter().find(|record| record.length > 0).unwrap_or_default();
                    }
                }
                _ => {}
            }
        }
        self.post(mapped.entries);
    }

    /// Grants, and sometimes advertises.
    fn advertise(&mut self, random: &mut Random) {
        let (Some(record), Some(other), Some(mapped)) = (&self.record, &self.other, &self.own.mapped) else { return };
        if random.chance(500) {
            let half = mapped.exposed.receive.length / 2;
            let offset = u64::from(half) * (random.number() % 2);
            let sge = Sge { addr: mapped.exposed.receive.addr + offset, length: half, ..mapped.exposed.receive };
            other.mapped.write(record.targets.addr + 16 * (random.number() % 2), &sge.to_bytes(ByteOrder::HOST));
        }
        let limit = self.consumed.wrapping_add(random.within(&(1..=32)) as u16);
        self.tell(Message::Sgl(limit).to_u32());
    }

    /// Does something that no program may do.
    fn misbehave(&mut self, random: &mut Random) {
        let (own, other) = (self.own.mapped.clone(), self.other.as_ref().map(|other| other.mapped.clone()));
        match random.number() % 12 {
            0 => self.cry(random),
            1 => self.abuse_files(random),
            2 => {
                let how = pick(random, &[Shutdown::Read, Shutdown::Write, Shutdown::Both]);
                if random.chance(300) {
                    let _ = rustix::net::shutdown(&self.channel, how);
                }
            }
            3..6 => self.lie(random),
            6 => {
                if let Some(other) = &other {
                    for _ in 0..=random.number() % 8 {
                        scribble_once(other, random);
                    }
                    self.ring();
                }
            }
            7 => {
                if let Some(own) = &own {
                    scribble_once(own, random);
                }
            }
            8 => {
                if let Some(own) = &own {
                    own.set(POSTED, if random.chance(500) { number(random) } else { own.get(POSTED).wrapping_add(number(random)) });
                }
            }
            9 => {
                let words = own.iter().chain(&other);
                words.for_each(|mapped| mapped.set(pick(random, &[ARMED, STARVED, ANSWERED, ENDED, PROCESSOR]), number(random)));
            }
            10 => self.misadvertise(random),
            _ => (0..random.within(&(1..=300))).for_each(|_| raw::say(&self.channel, &[0], &[])),
        }
    }

    /// Messages that make no sense, or come under a number that is not theirs.
    fn lie(&mut self, random: &mut Random) {
        let message = match random.number() % 6 {
            0 => Message::Data(number(random)),
            1 => Message::Data(0),
            2 => Message::Sgl(number(random) as u16),
            3 => Message::Iomap(number(random)),
            4 => Message::Ctrl(pick(random, &[Control::Disconnect, Control::Shutdown, Control::KeepAlive])),
            _ => return self.misnumber(random),
        };
        let count = if random.chance(100) { random.within(&(1..=600)) } else { 1 };
        (0..count).for_each(|_| self.tell(message.to_u32()));
    }

    fn misnumber(&mut self, random: &mut Random) {
        let Some(other) = self.other.as_ref().map(|other| other.mapped.clone()) else { return };
        let (number, message) = (number(random), number(random));
        match random.number() % 3 {
            0 => self.tell(message),
            1 => other.put(other.entry(self.put.wrapping_add(1)), number, message),
            _ => other.put(other.entry(number), self.put.wrapping_add(number), message),
        }
        self.ring();
    }

    /// Records that lead elsewhere.
    fn misadvertise(&mut self, random: &mut Random) {
        let (Some(record), Some(other), Some(own)) = (&self.record, &self.other, &self.own.mapped) else { return };
        let key = if random.chance(500) { own.exposed.receive.key } else { random.number() as u32 };
        let addr = match random.number() % 3 {
            0 => u64::from(number(random)),
            1 => u64::MAX - u64::from(number(random)),
            _ => own.len as u64 + u64::from(number(random)) % 8192 - 4096,
        };
        let sge = Sge { addr, key, length: number(random) };
        other.mapped.write(record.targets.addr + 16 * (random.number() % 3), &sge.to_bytes(ByteOrder::HOST));
        let limit = self.consumed.wrapping_add(random.within(&(1..=32)) as u16);
        self.tell(Message::Sgl(limit).to_u32());
    }

    /// Something on the channel that does not belong there.
    fn cry(&mut self, random: &mut Random) {
        let files: Vec<BorrowedFd<'_>> = (0..random.within(&(0..=FILES as u64))).map(|_| self.own.file.as_fd()).collect();
        let text = match random.number() % 4 {
            0 => Vec::new(),
            1 => {
                let addr = SocketAddr::from(([127, 0, 0, 1], PORT));
                self.own.greeting(random.chance(500), addr, addr, &[]).to_vec()
            }
            2 => bytes(random, 200),
            _ => vec![0; random.within(&(1..=65_536)) as usize],
        };
        raw::say(&self.channel, &text, &files);
    }

    /// What must not be possible, or must not matter: other lengths, and holes.
    fn abuse_files(&mut self, random: &mut Random) {
        let holes = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
        for file in [Some(&self.own.file), self.other.as_ref().map(|other| &other.file)].into_iter().flatten() {
            if random.chance(500) {
                let _ = rustix::fs::ftruncate(file, u64::from(number(random) % 100_000));
            }
            if random.chance(500) {
                let _ = rustix::fs::fallocate(file, holes, random.number() % 100_000, 1 + random.number() % 100_000);
            }
        }
    }
}

/// Writes something somewhere: where something is read, most often. Never where nobody may.
fn scribble_once(mapped: &Mapped, random: &mut Random) {
    let targets = mapped.exposed.targets.addr as usize;
    let at = match random.number() % 6 {
        0 => POSTED,
        1 => pick(random, &[ARMED, STARVED, ANSWERED, ENDED, PROCESSOR]),
        2 | 3 => mapped.entry(random.number() as u32) + 4 * (random.number() % 2) as usize,
        4 => targets + 4 * (random.number() % 8) as usize,
        _ => targets + (random.number() as usize % (mapped.len - targets).max(1)) / 4 * 4,
    };
    mapped.set(at, number(random));
}
