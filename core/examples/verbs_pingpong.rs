//! The verbs fabric by itself, without sockets: two programs that send messages to and fro.
//!
//!     verbs_pingpong server ADDR:PORT
//!     verbs_pingpong ping ADDR:PORT COUNT SIZE        round trips, spinning
//!     verbs_pingpong block ADDR:PORT COUNT SIZE       round trips, sleeping on the descriptors
//!     verbs_pingpong connect ADDR:PORT COUNT          connections one after the other
//!     verbs_pingpong hold ADDR:PORT COUNT SECONDS     memory and descriptors of idle connections
//!     verbs_pingpong watch ADDR:PORT SECONDS          a message every 100 ms, until the link breaks
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::indexing_slicing)]

use std::{
    collections::BTreeMap,
    net::SocketAddr,
    os::fd::RawFd,
    sync::Arc,
    time::{Duration, Instant},
};

use rsocket::{
    fabric::{ConnectTo, Endpoint, EndpointConfig, Event, Fabric, ListenOn, Token, verbs::Verbs},
    work::{Completion, MessageMode, Operation, Payload, RemoteAddress, WorkRequest},
};

const LISTENER: Token = Token(1);
/// Sizes of every endpoint; INLINE in the environment changes one.
fn config() -> EndpointConfig {
    let inline = std::env::var("INLINE").ok().and_then(|text| text.parse().ok()).unwrap_or(64);
    EndpointConfig {
        send_queue: 384,
        receive_queue: 384,
        inline,
        receive_bytes: 128 << 10,
        shm_receive_bytes: 128 << 10,
        send_bytes: 128 << 10,
        target_bytes: 32,
    }
}

/// A connection that knows where the peer's receive area is.
struct Connection {
    endpoint: Box<dyn Endpoint>,
    peer: RemoteAddress,
    next_id: u64,
}

impl Connection {
    /// `endpoint`, with all receives posted.
    fn new(mut endpoint: Box<dyn Endpoint>) -> Self {
        endpoint.post_receives(endpoint.limits().receive_queue).unwrap();
        Connection { endpoint, peer: RemoteAddress::default(), next_id: 1 }
    }

    /// A connect record as a stream would send it.
    fn record(&self) -> [u8; 40] {
        let exposed = self.endpoint.exposed();
        let mut record = [0; 40];
        record[0] = 1;
        record[2..4].copy_from_slice(&(self.endpoint.limits().receive_queue as u16).to_be_bytes());
        for (at, area, length) in [(8, exposed.targets, 2), (24, exposed.receive, exposed.receive.length)] {
            record[at..at + 8].copy_from_slice(&area.addr.to_be_bytes());
            record[at + 8..at + 12].copy_from_slice(&area.key.to_be_bytes());
            record[at + 12..at + 16].copy_from_slice(&length.to_be_bytes());
        }
        record
    }

    fn learn(&mut self, record: &[u8]) {
        self.peer.addr = u64::from_be_bytes(record[24..32].try_into().unwrap());
        self.peer.key = u32::from_be_bytes(record[32..36].try_into().unwrap());
    }

    /// Sends the first `len` bytes of the send area; the message is their number.
    fn send(&mut self, len: u32) -> rsocket::error::Result<()> {
        let payload = if len == 0 { Payload::Empty } else { Payload::SendArea { offset: 0, len } };
        let id = self.next_id;
        self.next_id += 2;
        let signaled = true;
        match self.endpoint.limits().mode {
            MessageMode::Immediate => {
                let operation = Operation::WriteWithImmediate { to: self.peer, immediate: len };
                self.endpoint.post_sends(&[WorkRequest { id, operation, payload, signaled }])
            }
            MessageMode::Send => {
                let data = WorkRequest { id, operation: Operation::Write { to: self.peer }, payload, signaled: false };
                let message = Payload::bytes(&len.to_ne_bytes());
                self.endpoint.post_sends(&[data, WorkRequest { id: id + 1, operation: Operation::Send, payload: message, signaled }])
            }
        }
    }

    fn poll(&mut self) -> Vec<Completion> {
        let mut out = [Completion::Sent { id: 0 }; 32];
        let count = self.endpoint.poll(&mut out);
        out[..count].to_vec()
    }

    /// The next message; sleeps if `block`.
    fn receive(&mut self, block: bool) -> Option<u32> {
        loop {
            let mut message = None;
            for completion in self.poll() {
                match completion {
                    Completion::Received { message: arrived } => {
                        self.endpoint.post_receives(1).unwrap();
                        message = Some(arrived);
                    }
                    Completion::Sent { .. } => {}
                    other => {
                        println!("{other:?}");
                        return None;
                    }
                }
            }
            if message.is_some() {
                return message;
            }
            if block {
                self.endpoint.arm().unwrap();
                let early = self.poll();
                if early.is_empty() {
                    sleep_on(&[self.endpoint.event_fd().unwrap()], -1);
                }
                self.endpoint.clear_events();
                for completion in early {
                    if let Completion::Received { message } = completion {
                        self.endpoint.post_receives(1).unwrap();
                        return Some(message);
                    }
                }
            }
        }
    }
}

/// Waits until a descriptor is readable.
fn sleep_on(fds: &[RawFd], milliseconds: i32) {
    let mut polled: Vec<libc::pollfd> = fds.iter().map(|&fd| libc::pollfd { fd, events: libc::POLLIN, revents: 0 }).collect();
    // SAFETY: the array has the given length.
    unsafe { libc::poll(polled.as_mut_ptr(), polled.len() as libc::nfds_t, milliseconds) };
}

fn serve(fabric: &Arc<Verbs>, addr: SocketAddr) {
    let on = ListenOn { addr, v6_only: false, backlog: 128, only: None, endpoint: config() };
    let listening = fabric.listen(&on, LISTENER).unwrap();
    println!("listening on {}", listening.local_addr());
    let mut connections: BTreeMap<Token, Connection> = BTreeMap::new();
    let mut next = 2;
    loop {
        let mut fds = fabric.event_fds().to_vec();
        fds.extend(connections.values().map(|connection| connection.endpoint.event_fd().unwrap()));
        sleep_on(&fds, -1);
        for event in fabric.events(16) {
            match event {
                Event::Incoming { mut endpoint, private_data, .. } => {
                    let token = Token(next);
                    next += 1;
                    endpoint.set_token(token);
                    let mut connection = Connection::new(endpoint);
                    connection.learn(&private_data);
                    let record = connection.record();
                    connection.endpoint.arm().unwrap();
                    match connection.endpoint.accept(&record) {
                        Ok(()) => drop(connections.insert(token, connection)),
                        Err(errno) => println!("accept: {errno}"),
                    }
                }
                Event::Disconnected { token } | Event::Failed { token, .. } => drop(connections.remove(&token)),
                _ => {}
            }
        }
        for connection in connections.values_mut() {
            connection.endpoint.clear_events();
            connection.endpoint.arm().unwrap();
            for completion in connection.poll() {
                match completion {
                    Completion::Received { message } => {
                        connection.endpoint.post_receives(1).unwrap();
                        // The top bits of a message name what is not data.
                        if message >> 29 == 0 {
                            connection.send(message).unwrap();
                        }
                    }
                    Completion::Failed(error) => println!("{error:?}"),
                    _ => {}
                }
            }
        }
    }
}

/// A connection, and how long it took to be ready and established.
fn connect(fabric: &Arc<Verbs>, peer: SocketAddr, token: Token) -> (Connection, Duration, Duration) {
    let start = Instant::now();
    fabric.connect(&ConnectTo::new(peer, config()), token).expect("connect");
    let mut connection: Option<Connection> = None;
    let mut ready = Duration::ZERO;
    loop {
        sleep_on(&fabric.event_fds(), -1);
        for event in fabric.events(16) {
            match event {
                Event::Ready { token: whose, endpoint } if whose == token => {
                    ready = start.elapsed();
                    let mut made = Connection::new(endpoint);
                    let record = made.record();
                    made.endpoint.connect(&record).unwrap();
                    connection = Some(made);
                }
                Event::Established { token: whose, private_data } if whose == token => {
                    let mut made = connection.take().unwrap();
                    made.learn(&private_data);
                    return (made, ready, start.elapsed());
                }
                Event::Failed { token: whose, reason } if whose == token => panic!("{reason:?} after {:?}", start.elapsed()),
                _ => {}
            }
        }
    }
}

fn ping(connection: &mut Connection, count: u32, size: u32, block: bool) {
    let text: Vec<u8> = (0..size).map(|byte| byte as u8).collect();
    connection.endpoint.send_area().write(0, &text).unwrap();
    let start = Instant::now();
    for _ in 0..count {
        connection.send(size).unwrap();
        assert_eq!(connection.receive(block), Some(size));
    }
    let each = start.elapsed() / count;
    println!("{count} round trips of {size} bytes: {each:?} each");
}

fn median(mut times: Vec<Duration>) -> Duration {
    times.sort();
    times[times.len() / 2]
}

fn connect_many(fabric: &Arc<Verbs>, peer: SocketAddr, count: u64) {
    let start = Instant::now();
    let (mut ready, mut established, mut dropped) = (Vec::new(), Vec::new(), Vec::new());
    for token in 2..count + 2 {
        let (connection, to_ready, to_established) = connect(fabric, peer, Token(token));
        ready.push(to_ready);
        established.push(to_established);
        let end = Instant::now();
        drop(connection);
        dropped.push(end.elapsed());
    }
    let rate = count as f64 / start.elapsed().as_secs_f64();
    println!("{rate:.0} connections/s; p50: ready {:?}, established {:?}, drop {:?}", median(ready), median(established), median(dropped));
}

fn usage() -> (usize, usize) {
    let maps = std::fs::read_to_string("/proc/self/smaps_rollup").unwrap();
    let rss = maps.lines().find_map(|line| line.strip_prefix("Rss:")).unwrap();
    let rss = rss.trim().trim_end_matches(" kB").parse().unwrap();
    (rss, std::fs::read_dir("/proc/self/fd").unwrap().count())
}

fn hold(fabric: &Arc<Verbs>, peer: SocketAddr, count: u64, seconds: u64) {
    let first = connect(fabric, peer, Token(2));
    let before = usage();
    let held: Vec<_> = (3..count + 3).map(|token| connect(fabric, peer, Token(token))).collect();
    let after = usage();
    let each = |from: usize, to: usize| (to - from) as f64 / count as f64;
    println!("{:.0} KiB RSS and {:.2} descriptors a connection", each(before.0, after.0), each(before.1, after.1));
    std::thread::sleep(Duration::from_secs(seconds));
    drop((first, held));
}

fn watch(fabric: &Arc<Verbs>, connection: &mut Connection, seconds: u64) {
    let start = Instant::now();
    let mut last = Instant::now();
    let mut slowest = Duration::ZERO;
    while start.elapsed() < Duration::from_secs(seconds) {
        if let Err(errno) = connection.send(8) {
            println!("send: {errno} after {:?} without an answer", last.elapsed());
            break;
        }
        sleep_on(&fabric.event_fds(), 100);
        for event in fabric.events(16) {
            if let Event::Disconnected { .. } = event {
                println!("disconnected after {:?} without an answer", last.elapsed());
                return;
            }
        }
        for completion in connection.poll() {
            match completion {
                Completion::Received { .. } => {
                    connection.endpoint.post_receives(1).unwrap();
                    slowest = slowest.max(last.elapsed());
                    last = Instant::now();
                }
                Completion::Failed(error) => {
                    println!("{error:?} after {:?} without an answer", last.elapsed());
                    return;
                }
                _ => {}
            }
        }
    }
    println!("longest wait {slowest:?}");
}

fn main() {
    let arguments: Vec<String> = std::env::args().collect();
    let number = |index: usize| arguments[index].parse::<u64>().unwrap();
    let fabric = match Verbs::open() {
        Ok(fabric) => fabric,
        Err(error) => {
            eprintln!("{error}");
            std::process::exit(1);
        }
    };
    let addr: SocketAddr = arguments[2].parse().unwrap();
    match arguments[1].as_str() {
        "server" => serve(&fabric, addr),
        "connect" => connect_many(&fabric, addr, number(3)),
        "hold" => hold(&fabric, addr, number(3), number(4)),
        "watch" => watch(&fabric, &mut connect(&fabric, addr, Token(2)).0, number(3)),
        how => {
            let (mut connection, ready, established) = connect(&fabric, addr, Token(2));
            println!("{} -> {}: ready after {ready:?}, established after {established:?}", connection.endpoint.local_addr(), addr);
            println!("{:?}", connection.endpoint.limits());
            ping(&mut connection, number(3) as u32, number(4) as u32, how == "block");
            connection.endpoint.disconnect();
        }
    }
}
