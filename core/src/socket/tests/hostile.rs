//! A peer that breaks the protocol: an endpoint without a stack behind it, that does what the test says. The socket at the other end
//! gets ECONNRESET, the breach is counted, nobody waits for ever, and the connections beside it go on.

use core::net::SocketAddr;
use std::{
    io::{IoSlice, IoSliceMut},
    sync::{Arc, Mutex},
};

use super::{
    BOTH, Over, Stage, for_seeds,
    plan::{Plan, SIZES, Then, pick},
    stage::{LATE, settings},
};
use crate::{
    error::Errno,
    fabric::{ConnectTo, Endpoint, EndpointConfig, Event, Fabric, ListenOn, Listening, Started, Token},
    socket::{
        engine::Sizes,
        stream::{Blocking, Phase},
    },
    stats::{self, Counter},
    wire::{ByteOrder, ConnectRecord, Control, Message, Sge},
    work::{MessageMode, Operation, Payload, RemoteAddress, WorkRequest},
};

/// The hostile program's port is not one that others get.
const PORT: u16 = 3;
/// Messages that it grants.
const CREDITS: u16 = 16;
/// All it posts fits in.
const CONFIG: EndpointConfig = EndpointConfig { send_queue: 128, receive_queue: 64, ..EMPTY };
const EMPTY: EndpointConfig = EndpointConfig {
    send_queue: 0,
    receive_queue: 0,
    inline: 64,
    receive_bytes: 16_384,
    shm_receive_bytes: 16_384,
    send_bytes: 64,
    target_bytes: 32,
};
/// When everybody is connected, in nanoseconds.
const CONNECTED: u64 = 5_000_000;

/// What it makes of a good record.
type Record = fn(ConnectRecord) -> Vec<u8>;
/// What it does once it is connected.
type Misdeed = fn(&mut Hostile);

/// The program. It never reads, and takes no completions.
struct Hostile {
    addr: SocketAddr,
    fabric: Arc<dyn Fabric>,
    endpoint: Option<Box<dyn Endpoint>>,
    /// Only held.
    _listening: Option<Box<dyn Listening>>,
    /// The peer's record.
    peer: Option<ConnectRecord>,
    record: Record,
    misdeed: Option<Misdeed>,
    next_id: u64,
    /// It was told what has become of its connect, or its accept.
    decided: bool,
    happened: Vec<&'static str>,
}

impl Hostile {
    /// Connects to the stage's server, or listens; does its misdeed at once when it is `hasty`, else later.
    fn enter(stage: &mut Stage, connects: bool, record: Record, misdeed: Misdeed, hasty: bool) -> Arc<Mutex<Self>> {
        let server = SocketAddr::new(stage.nodes[1].place.addr, 7);
        let (place, fabric) = stage.world.enter(3);
        let addr = SocketAddr::new(place.addr, PORT);
        let (now, later) = if hasty { (Some(misdeed), None) } else { (None, Some(misdeed)) };
        let mut program = Hostile {
            addr,
            fabric,
            endpoint: None,
            _listening: None,
            peer: None,
            record,
            misdeed: now,
            next_id: 1,
            decided: false,
            happened: Vec::new(),
        };
        if connects {
            let to = ConnectTo { local: Some(addr), ..ConnectTo::new(server, CONFIG) };
            if let Started::Ready(endpoint) = program.fabric.connect(&to, Token(1)).unwrap() {
                program.ready(endpoint);
            }
        } else {
            let on = ListenOn { addr, v6_only: false, backlog: 1, only: None, endpoint: CONFIG };
            program._listening = Some(program.fabric.listen(&on, Token(1)).unwrap());
        }
        let program = Arc::new(Mutex::new(program));
        let (acts, strikes) = (Arc::clone(&program), Arc::clone(&program));
        stage.others.push(Box::new(move || acts.lock().unwrap().act()));
        if let Some(misdeed) = later {
            stage.at(CONNECTED, move |_| misdeed(&mut strikes.lock().unwrap()));
        }
        program
    }

    fn ready(&mut self, mut endpoint: Box<dyn Endpoint>) {
        endpoint.post_receives(64).unwrap();
        endpoint.connect(&(self.record)(good_record(&*endpoint))).unwrap();
        self.endpoint = Some(endpoint);
    }

    /// What has happened: on some fabrics the endpoint says how the connection has begun.
    fn events(&mut self) -> Vec<Event> {
        let outcome = self.endpoint.as_mut().filter(|_| !self.decided).and_then(|endpoint| {
            endpoint.clear_events();
            endpoint.outcome()
        });
        self.decided |= outcome.is_some();
        let token = Token::default();
        let decided = outcome.map(|outcome| match outcome {
            Ok(private_data) => Event::Established { token, private_data },
            Err(reason) => Event::Failed { token, reason },
        });
        decided.into_iter().chain(self.fabric.events(8)).collect()
    }

    /// Does what its events ask for.
    fn act(&mut self) -> bool {
        let events = self.events();
        let progress = !events.is_empty();
        for event in events {
            self.happened.push(event.name());
            match event {
                Event::Ready { endpoint, .. } => self.ready(endpoint),
                Event::Incoming { mut endpoint, private_data, .. } => {
                    self.peer = Some(ConnectRecord::parse(&private_data).unwrap());
                    endpoint.set_token(Token(2));
                    endpoint.post_receives(64).unwrap();
                    endpoint.accept(&(self.record)(good_record(&*endpoint))).unwrap();
                    self.endpoint = Some(endpoint);
                }
                Event::Established { private_data, .. } => {
                    if self.peer.is_none() {
                        self.peer = Some(ConnectRecord::parse(&private_data).unwrap());
                    }
                    if let Some(misdeed) = self.misdeed.take() {
                        misdeed(self);
                    }
                }
                Event::Failed { .. } | Event::Disconnected { .. } | Event::Declined { .. } => {}
            }
        }
        progress
    }

    fn mode(&self) -> MessageMode {
        self.endpoint.as_ref().unwrap().limits().mode
    }

    fn post(&mut self, operation: Operation, payload: Payload) {
        let work = WorkRequest { id: self.next_id, operation, payload, signaled: true };
        self.next_id += 1;
        self.endpoint.as_mut().unwrap().post_sends(&[work]).unwrap();
    }

    /// Any message.
    fn say(&mut self, message: u32) {
        match self.mode() {
            MessageMode::Immediate => {
                self.post(Operation::WriteWithImmediate { to: RemoteAddress::default(), immediate: message }, Payload::Empty);
            }
            MessageMode::Send => self.post(Operation::Send, Payload::bytes(&message.to_ne_bytes())),
        }
    }

    /// Fills in the peer's next record.
    fn advertise(&mut self, record: Sge) {
        let targets = self.peer.unwrap().targets;
        let to = RemoteAddress { addr: targets.addr + 16, key: targets.key };
        self.post(Operation::Write { to }, Payload::bytes(&record.to_bytes(ByteOrder::HOST)));
    }
}

/// Where it listens.
fn addr_of(program: &Mutex<Hostile>) -> SocketAddr {
    program.lock().unwrap().addr
}

fn good_record(endpoint: &dyn Endpoint) -> ConnectRecord {
    let exposed = endpoint.exposed();
    ConnectRecord {
        order: ByteOrder::HOST,
        has_iomap: true,
        credits: CREDITS,
        iomap_size: 0,
        targets: Sge { length: 2, ..exposed.targets },
        data_buffer: Sge { length: 8192, ..exposed.receive },
    }
}

const RECORDS: [(&str, Record); 9] = [
    ("another version", |record| [&[2], &record.to_bytes()[1..]].concat()),
    ("version 0", |record| [&[0], &record.to_bytes()[1..]].concat()),
    ("no credits", |record| ConnectRecord { credits: 0, ..record }.to_bytes().into()),
    ("no buffer", |record| ConnectRecord { data_buffer: Sge { length: 0, ..record.data_buffer }, ..record }.to_bytes().into()),
    ("no target list", |record| ConnectRecord { targets: Sge { length: 0, ..record.targets }, ..record }.to_bytes().into()),
    ("a buffer beyond all memory", |record| {
        ConnectRecord { data_buffer: Sge { addr: u64::MAX - 9, ..record.data_buffer }, ..record }.to_bytes().into()
    }),
    ("a target list beyond all memory", |record| {
        ConnectRecord { targets: Sge { addr: u64::MAX - 9, ..record.targets }, ..record }.to_bytes().into()
    }),
    ("half a record", |record| record.to_bytes()[..20].into()),
    ("nothing", |_| Vec::new()),
];

const MISDEEDS: [(&str, Misdeed); 11] = [
    ("reserved operation 1", |program| program.say(1 << 29 | 1)),
    ("reserved operation 2", |program| program.say(2 << 29)),
    ("reserved operation 3", |program| program.say(3 << 29 | 0xffff)),
    ("reserved operation 5", |program| program.say(5 << 29)),
    ("unknown control value", |program| program.say(Message::Ctrl(Control::Disconnect).to_u32() | 3)),
    ("data longer than advertised", |program| program.say(Message::Data(8193).to_u32())),
    ("data without end", |program| program.say(Message::Data(u32::MAX).to_u32())),
    ("credits that go back", |program| program.say(Message::Sgl(CREDITS - 1).to_u32())),
    ("credits beyond its queue", |program| program.say(Message::Sgl(40_000).to_u32())),
    ("a record beyond all memory", |program| {
        program.advertise(Sge { addr: u64::MAX - 9, key: 1, length: 100 });
        program.say(Message::Sgl(CREDITS).to_u32());
    }),
    ("a message of two bytes", |program| match program.mode() {
        MessageMode::Send => program.post(Operation::Send, Payload::bytes(&[0, 0])),
        MessageMode::Immediate => program.say(6 << 28),
    }),
];

/// Whoever is connected sends so much and shuts down; reads once, does something else for long, reads on.
fn stage(over: Over, seed: u64, send: u64) -> Stage {
    let mut stage = Stage::new(over, settings(seed));
    stage.plans = Box::new(move |_| {
        let plan = Plan { pauses: 1000, pause: 50_000_000..=50_000_000, read: 1..=32_768, ..Plan::new(send, Then::Shutdown) };
        (plan.clone(), plan)
    });
    stage
}

/// The breach was counted, the hostile program was told that it is over, and everybody else is served.
fn ends_well(name: &str, mut stage: Stage, program: &Mutex<Hostile>, faults_before: u64, ends: &[&str]) {
    assert!(stats::get(Counter::PeerFaults) > faults_before, "{name}: is not counted");
    let happened = {
        let mut program = program.lock().unwrap();
        program.endpoint = None;
        program._listening = None;
        program.happened.clone()
    };
    assert!(happened.last().is_some_and(|last| ends.contains(last)), "{name}: {happened:?}");
    stage.plans = Box::new(|_| (Plan::new(1000, Then::Shutdown), Plan::new(1000, Then::Shutdown)));
    stage.listen(8, SIZES, 0);
    stage.connect(8, SIZES, LATE).unwrap();
    stage.run();
    assert!(stage.parties.len() >= 2, "{name}: {}", stage.status());
    stage.assert_complete();
    stage.finish();
}

/// A server refuses whoever comes with a bad record, and has its place in the queue again.
#[test]
fn bad_record_of_a_client() {
    for_seeds("bad_record_of_a_client", BOTH, 7000..7004, |over, seed| {
        for (name, record) in RECORDS {
            let faults = stats::get(Counter::PeerFaults);
            let mut stage = stage(over, seed, 1000);
            stage.listen(7, SIZES, 0);
            let program = Hostile::enter(&mut stage, true, record, |_| {}, true);
            stage.run();
            assert!(stage.parties.is_empty(), "{name}: {}", stage.status());
            stage.connect(7, SIZES, LATE).unwrap();
            stage.run();
            ends_well(name, stage, &program, faults, &["failed"]);
        }
    });
}

/// A client leaves a server with a bad record to the kernel, as any that speaks another language.
#[test]
fn bad_record_of_a_server() {
    for_seeds("bad_record_of_a_server", BOTH, 7100..7104, |over, seed| {
        for (name, record) in RECORDS {
            let faults = stats::get(Counter::PeerFaults);
            let mut stage = stage(over, seed, 1000);
            let program = Hostile::enter(&mut stage, false, record, |_| {}, true);
            stage.connect_to(addr_of(&program), SIZES, LATE).unwrap();
            stage.run();
            let (_, victim) = stage.parties.remove(0);
            assert_eq!(victim.phase, Phase::Kernel, "{name}: {}", victim.status());
            // Whether it has heard before that it was connected is a matter of time.
            ends_well(name, stage, &program, faults, &["failed", "disconnected"]);
        }
    });
}

/// One end of a connection misbehaves, at once or later; the other waits to read, or to write. Another connection stands beside it.
#[test]
fn misdeeds() {
    for_seeds("misdeeds", BOTH, 7200..7216, |over, seed| {
        for (name, misdeed) in MISDEEDS {
            let faults = stats::get(Counter::PeerFaults);
            let mut stage = stage(over, seed, if seed & 4 == 0 { 100_000 } else { 3000 });
            let (hasty, connects) = (seed & 8 == 0, pick(&mut stage.random, &[0, 1]) == 0);
            let backlog = 4;
            stage.listen(7, Sizes { receive_queue: 16, ..SIZES }, backlog);
            let program = Hostile::enter(&mut stage, connects, |record| record.to_bytes().into(), misdeed, hasty);
            if !connects {
                stage.connect_to(addr_of(&program), SIZES, LATE).unwrap();
            }
            stage.connect(7, SIZES, LATE).unwrap();
            stage.run();
            assert_eq!(stage.parties.len(), 3, "{name}: {}", stage.status());
            let alone = (0..3).find(|at| stage.peer_of(&stage.parties[*at].1).is_none()).unwrap();
            let (_, victim) = stage.parties.remove(alone);
            assert_eq!(victim.errors, [Errno::CONNRESET], "{name}: {}", victim.status());
            assert!(victim.is_closed(), "{name}: {}", victim.status());
            ends_well(name, stage, &program, faults, &["disconnected"]);
        }
    });
}

/// The same after so many bytes of data.
const AFTER_DATA: [(usize, Misdeed); 2] = [
    (10, |program| {
        program.say(Message::Data(10).to_u32());
        program.say(1 << 29);
    }),
    // Without credit: one message more than the socket has granted.
    (32, |program| (0..33).for_each(|_| program.say(Message::Data(1).to_u32()))),
];

/// An error that comes while a call has taken a part already is reported by the next one.
#[test]
fn an_error_after_a_part() {
    for_seeds("an_error_after_a_part", BOTH, 7300..7308, |over, seed| {
        for (bytes, misdeed) in AFTER_DATA {
            let mut stage = stage(over, seed, 0);
            let door = stage.listen(7, SIZES, 0);
            stage.accepts(door, false);
            let program = Hostile::enter(&mut stage, true, |record| record.to_bytes().into(), misdeed, false);
            stage.run();
            let stream = stage.listener(door).pop().unwrap();
            let mut room = [0; 100];
            let mut receive = || stream.receive(&mut [IoSliceMut::new(&mut room)], false, true, Blocking::Never);
            let send = || stream.send(&[IoSlice::new(&[0; 50_000])], Blocking::Never);
            if seed & 4 == 0 {
                assert!(send().is_ok_and(|count| count > 0 && count < 50_000));
                assert_eq!(send(), Err(Errno::CONNRESET));
                assert_eq!(receive(), Ok(bytes));
            } else {
                assert_eq!(receive(), Ok(bytes));
                assert_eq!(receive(), Err(Errno::CONNRESET));
            }
            assert_eq!(send(), Err(Errno::PIPE));
            assert_eq!(receive(), Ok(0));
            stream.close(None, false);
            drop(stream);
            program.lock().unwrap().endpoint = None;
            stage.finish();
        }
    });
}
