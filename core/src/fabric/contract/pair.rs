//! A connected pair of endpoints, and functions that move it.

use core::net::SocketAddr;
use std::time::Duration;

use super::Harness;
use crate::{
    fabric::{ConnectFailure, ConnectTo, Endpoint, EndpointConfig, Event, Fabric, ListenOn, Listening, Started, Token},
    work::{Completion, MessageMode, Operation, Payload, RemoteAddress, WorkRequest},
};

/// Small queues and areas: tests fill them.
pub(super) const CONFIG: EndpointConfig = EndpointConfig {
    send_queue: 16,
    receive_queue: 16,
    inline: 64,
    receive_bytes: 16_384,
    shm_receive_bytes: 16_384,
    send_bytes: 16_384,
    target_bytes: 128,
};

pub(super) const LISTENER: Token = Token(1);
pub(super) const CLIENT: Token = Token(2);
pub(super) const SERVER: Token = Token(3);

/// One end and what has happened to it.
pub(super) struct Side {
    pub(super) endpoint: Box<dyn Endpoint>,
    pub(super) established: bool,
    pub(super) disconnected: bool,
    pub(super) failed: Option<ConnectFailure>,
    pub(super) private_data: Vec<u8>,
    pub(super) next_id: u64,
}

impl Side {
    fn new(endpoint: Box<dyn Endpoint>) -> Self {
        Side { endpoint, established: false, disconnected: false, failed: None, private_data: Vec::new(), next_id: 1 }
    }

    fn establish(&mut self, token: Token, private_data: Vec<u8>) {
        self.established = true;
        if token == CLIENT {
            self.private_data = private_data;
        }
    }

    /// Takes one completion.
    pub(super) fn poll(&mut self) -> Option<Completion> {
        let mut out = [Completion::Sent { id: 0 }];
        (self.endpoint.poll(&mut out) == 1).then_some(out[0])
    }

    /// A message with a payload, as the fabric's mode wants it, to `offset` in the peer's receive area. Returns the last request's id.
    pub(super) fn send(&mut self, peer: &Side, offset: u64, payload: Payload, message: u32, signaled: bool) -> u64 {
        let receive = peer.endpoint.exposed().receive;
        let to = RemoteAddress { addr: receive.addr + offset, key: receive.key };
        match self.endpoint.limits().mode {
            MessageMode::Immediate => self.post(Operation::WriteWithImmediate { to, immediate: message }, payload, signaled),
            MessageMode::Send => {
                if !payload.is_empty() {
                    self.post(Operation::Write { to }, payload, false);
                }
                self.post(Operation::Send, Payload::bytes(&message.to_ne_bytes()), signaled)
            }
        }
    }

    /// Posts one request and returns its id.
    pub(super) fn post(&mut self, operation: Operation, payload: Payload, signaled: bool) -> u64 {
        let id = self.next_id;
        self.next_id += 1;
        self.endpoint.post_sends(&[WorkRequest { id, operation, payload, signaled }]).expect("post");
        id
    }

    pub(super) fn received(&self, offset: usize, len: usize) -> Vec<u8> {
        let mut bytes = vec![0; len];
        self.endpoint.receive_area().read(offset, &mut bytes).unwrap();
        bytes
    }
}

/// Two ends; the listener lives as long.
pub(super) struct Pair {
    pub(super) client: Side,
    pub(super) server: Side,
    pub(super) listening: Box<dyn Listening>,
}

pub(super) fn listen(h: &dyn Harness) -> Box<dyn Listening> {
    let on = ListenOn { addr: h.server_addr(), v6_only: false, backlog: 8, only: None, endpoint: CONFIG };
    h.server().listen(&on, LISTENER).expect("listen")
}

/// Starts to connect to a listener, and gives the endpoint with its receives posted.
pub(super) fn ready(h: &mut dyn Harness, to: &dyn Listening, token: Token) -> Side {
    let to = ConnectTo::new(to.local_addr(), CONFIG);
    match h.client().connect(&to, token) {
        Ok(started) => await_ready(h, started, token),
        Err(reason) => panic!("connect: {reason}"),
    }
}

/// Connects to where nobody listens.
pub(super) fn expect_refusal(h: &mut dyn Harness, peer: SocketAddr, token: Token) {
    let reason = match h.client().connect(&ConnectTo::new(peer, CONFIG), token) {
        Err(reason) => reason,
        Ok(started) => {
            let mut client = await_ready(h, started, token);
            client.endpoint.connect(b"").unwrap();
            await_failure(h, &mut client, token)
        }
    };
    assert_eq!(reason, ConnectFailure::Refused);
}

/// Takes events of a fabric and lets time pass until `wanted` takes one out.
pub(super) fn await_event<T>(h: &mut dyn Harness, server: bool, mut wanted: impl FnMut(Event) -> Option<T>) -> T {
    loop {
        let fabric: &dyn Fabric = if server { h.server() } else { h.client() };
        for event in fabric.events(1) {
            if let Some(found) = wanted(event) {
                return found;
            }
        }
        assert!(h.turn(), "an event does not come");
    }
}

pub(super) fn await_failure(h: &mut dyn Harness, side: &mut Side, token: Token) -> ConnectFailure {
    loop {
        side.endpoint.clear_events();
        match side.endpoint.outcome() {
            Some(Ok(_)) => panic!("established"),
            Some(Err(reason)) => return reason,
            None => {}
        }
        for event in h.client().events(1) {
            match event {
                Event::Failed { token: of, reason } if of == token => return reason,
                Event::Established { .. } => panic!("established"),
                _ => {}
            }
        }
        assert!(h.turn(), "a failure does not come");
    }
}

fn await_ready(h: &mut dyn Harness, started: Started, token: Token) -> Side {
    let mut endpoint = match started {
        Started::Ready(endpoint) => endpoint,
        Started::Later => await_event(h, false, |event| match event {
            Event::Ready { token: of, endpoint } => {
                assert_eq!(of, token);
                Some(endpoint)
            }
            Event::Failed { reason, .. } => panic!("no route: {reason:?}"),
            _ => None,
        }),
    };
    endpoint.post_receives(endpoint.limits().receive_queue).expect("receives");
    Side::new(endpoint)
}

/// An incoming request, with its private data.
pub(super) fn await_incoming(h: &mut dyn Harness, token: Token) -> Side {
    let (mut endpoint, private_data) = await_event(h, true, |event| match event {
        Event::Incoming { listener, endpoint, private_data } => {
            assert_eq!(listener, LISTENER);
            Some((endpoint, private_data))
        }
        _ => None,
    });
    endpoint.set_token(token);
    endpoint.post_receives(endpoint.limits().receive_queue).expect("receives");
    Side { private_data, ..Side::new(endpoint) }
}

impl Pair {
    pub(super) fn connected(h: &mut dyn Harness) -> Pair {
        let listening = listen(h);
        let mut client = ready(h, &*listening, CLIENT);
        client.endpoint.connect(b"hello").expect("connect");
        let mut server = await_incoming(h, SERVER);
        server.endpoint.accept(b"welcome").expect("accept");
        let mut pair = Pair { client, server, listening };
        pair.until(h, "established", |pair| pair.client.established && pair.server.established);
        pair
    }

    /// Takes events and lets time pass until `done`.
    pub(super) fn until(&mut self, h: &mut dyn Harness, what: &str, mut done: impl FnMut(&mut Pair) -> bool) {
        loop {
            self.take_events(h);
            if done(self) {
                return;
            }
            assert!(h.turn(), "does not happen: {what}");
        }
    }

    /// Lets some time pass, to show that nothing happens.
    pub(super) fn settle(&mut self, h: &mut dyn Harness) {
        for _ in 0..20 {
            self.take_events(h);
            if !h.turn() {
                break;
            }
        }
        std::thread::sleep(Duration::from_millis(u64::from(self.client.endpoint.event_fd().is_some())));
    }

    fn take_events(&mut self, h: &mut dyn Harness) {
        for token in [CLIENT, SERVER] {
            let side = self.named(token);
            if !side.established {
                side.endpoint.clear_events();
            }
            match side.endpoint.outcome() {
                Some(Ok(private_data)) => side.establish(token, private_data),
                Some(Err(reason)) => side.failed = Some(reason),
                None => {}
            }
        }
        let events = h.client().events(64).into_iter().chain(h.server().events(64));
        for event in events {
            match event {
                Event::Established { token, private_data } => self.named(token).establish(token, private_data),
                Event::Failed { token, reason } => self.named(token).failed = Some(reason),
                Event::Disconnected { token } => {
                    let side = self.named(token);
                    assert!(!side.disconnected, "disconnected twice");
                    side.disconnected = true;
                }
                Event::Ready { .. } | Event::Incoming { .. } | Event::Declined { .. } => panic!("a connection from nowhere"),
            }
        }
    }

    fn named(&mut self, token: Token) -> &mut Side {
        match token {
            CLIENT => &mut self.client,
            SERVER => &mut self.server,
            _ => panic!("an event for {token:?}"),
        }
    }

    /// The next completion of the server (or client).
    pub(super) fn completion(&mut self, h: &mut dyn Harness, server: bool) -> Completion {
        let mut found = None;
        self.until(h, "a completion", |pair| {
            found = if server { pair.server.poll() } else { pair.client.poll() };
            found.is_some()
        });
        found.unwrap()
    }

    /// A message from the client, which must come next.
    pub(super) fn message(&mut self, h: &mut dyn Harness) -> u32 {
        match self.completion(h, true) {
            Completion::Received { message } => message,
            other => panic!("{other:?}"),
        }
    }
}
