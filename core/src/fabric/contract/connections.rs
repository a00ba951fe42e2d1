//! How connections begin and end.

use super::{
    Harness,
    pair::{CLIENT, CONFIG, Pair, SERVER, await_event, await_failure, await_incoming, expect_refusal, listen, ready},
};
use crate::{
    fabric::{ConnectFailure, ConnectTo, Event, Started, Token},
    work::{Completion, Operation, Payload, RemoteAddress, TransportError},
};

pub(super) fn private_data_travels_both_ways(h: &mut dyn Harness) {
    let pair = Pair::connected(h);
    for (side, data) in [(&pair.server, &b"hello"[..]), (&pair.client, b"welcome")] {
        let padding = side.private_data.strip_prefix(data).expect("private data");
        assert!(padding.iter().all(|byte| *byte == 0));
    }
}

pub(super) fn limits_and_areas_are_as_asked(h: &mut dyn Harness) {
    let pair = Pair::connected(h);
    for side in [&pair.client, &pair.server] {
        let (endpoint, limits) = (&side.endpoint, side.endpoint.limits());
        assert!((1..=CONFIG.send_queue).contains(&limits.send_queue));
        assert!((1..=CONFIG.receive_queue).contains(&limits.receive_queue));
        assert_eq!(endpoint.receive_area().len(), CONFIG.receive_bytes as usize);
        assert_eq!(endpoint.send_area().len(), CONFIG.send_bytes as usize);
        assert_eq!(endpoint.target_area().len(), CONFIG.target_bytes as usize);
        assert_eq!(endpoint.exposed().receive.length, CONFIG.receive_bytes);
        assert_eq!(endpoint.exposed().targets.length, CONFIG.target_bytes);
    }
    assert_eq!(pair.client.endpoint.limits().mode, pair.server.endpoint.limits().mode);
}

pub(super) fn addresses_agree(h: &mut dyn Harness) {
    let pair = Pair::connected(h);
    let (client, server) = (&pair.client.endpoint, &pair.server.endpoint);
    assert_ne!(pair.listening.local_addr().port(), 0);
    assert_eq!(client.peer_addr(), pair.listening.local_addr());
    assert_eq!(client.peer_addr(), server.local_addr());
    assert_eq!(client.local_addr(), server.peer_addr());
    assert_ne!(client.local_addr().port(), 0);
}

pub(super) fn reject_is_refused(h: &mut dyn Harness) {
    let listening = listen(h);
    let mut client = ready(h, &*listening, CLIENT);
    client.endpoint.connect(b"").unwrap();
    let mut server = await_incoming(h, SERVER);
    server.endpoint.reject();
    assert_eq!(await_failure(h, &mut client, CLIENT), ConnectFailure::Refused);
}

pub(super) fn dropped_request_is_refused(h: &mut dyn Harness) {
    let listening = listen(h);
    let mut client = ready(h, &*listening, CLIENT);
    client.endpoint.connect(b"").unwrap();
    drop(await_incoming(h, SERVER));
    assert_eq!(await_failure(h, &mut client, CLIENT), ConnectFailure::Refused);
}

pub(super) fn nobody_listens_is_refused(h: &mut dyn Harness) {
    let mut peer = h.server_addr();
    peer.set_port(9);
    expect_refusal(h, peer, CLIENT);
}

pub(super) fn no_route_is_reported(h: &mut dyn Harness) {
    let Some(peer) = h.unrouted_addr() else { return };
    let reason = match h.client().connect(&ConnectTo::new(peer, CONFIG), CLIENT) {
        Err(reason) => reason,
        Ok(Started::Ready(_)) => panic!("a route to {peer}"),
        Ok(Started::Later) => await_event(h, false, |event| match event {
            Event::Failed { token: CLIENT, reason } => Some(reason),
            _ => None,
        }),
    };
    assert_eq!(reason, ConnectFailure::NoRoute);
}

pub(super) fn listening_ends_with_its_handle(h: &mut dyn Harness) {
    let pair = Pair::connected(h);
    let peer = pair.listening.local_addr();
    let Pair { mut client, mut server, listening } = pair;
    drop(listening);
    expect_refusal(h, peer, Token(9));
    // What came in before is not touched.
    client.send(&server, 0, Payload::Empty, 5, false);
    let received = loop {
        if let Some(completion) = server.poll() {
            break completion;
        }
        assert!(h.turn(), "no message");
    };
    assert_eq!(received, Completion::Received { message: 5 });
}

pub(super) fn cancelled_connect_is_silent(h: &mut dyn Harness) {
    let listening = listen(h);
    drop(h.client().connect(&ConnectTo::new(listening.local_addr(), CONFIG), CLIENT).unwrap_or_else(|reason| panic!("{reason}")));
    h.client().cancel(CLIENT);
    for _ in 0..50 {
        for event in h.client().events(8) {
            // Only what was under way may still come.
            assert!(matches!(event, Event::Ready { token: CLIENT, .. }));
        }
        assert!(h.server().events(8).iter().all(|event| matches!(event, Event::Declined { .. })), "nobody has asked");
        if !h.turn() {
            break;
        }
    }
}

pub(super) fn two_connections_keep_apart(h: &mut dyn Harness) {
    let mut pair = Pair::connected(h);
    let other = {
        let mut client = ready(h, &*pair.listening, Token(12));
        client.endpoint.connect(b"").unwrap();
        let mut server = await_incoming(h, Token(13));
        server.endpoint.accept(b"").unwrap();
        (client, server)
    };
    let (one, two) = (pair.client.endpoint.exposed().receive, other.0.endpoint.exposed().receive);
    assert_ne!((one.addr, one.key), (two.addr, two.key));
    assert_ne!(pair.client.endpoint.local_addr(), other.0.endpoint.local_addr());
    drop(other);
    // Events of the second pair have no owner any more, but must not end the first.
    for _ in 0..50 {
        let events = h.client().events(8).into_iter().chain(h.server().events(8));
        for event in events {
            assert!(!matches!(event, Event::Disconnected { token: CLIENT | SERVER }));
        }
        if !h.turn() {
            break;
        }
    }
    let Pair { client, server, .. } = &mut pair;
    client.send(server, 0, Payload::Empty, 3, false);
    assert_eq!(pair.message(h), 3);
}

pub(super) fn disconnect_comes_after_messages(h: &mut dyn Harness) {
    let mut pair = Pair::connected(h);
    let Pair { client, server, .. } = &mut pair;
    let mut last = 0;
    for message in 0..5 {
        last = client.send(server, 0, Payload::bytes(b"bye"), message, message == 4);
    }
    // As a program that loses nothing does: what was posted has completed before the end.
    assert_eq!(pair.completion(h, false), Completion::Sent { id: last });
    pair.client.endpoint.disconnect();
    pair.client.endpoint.disconnect();
    pair.until(h, "disconnected", |pair| pair.server.disconnected);
    for message in 0..5 {
        assert_eq!(pair.message(h), message);
    }
    assert_eq!(pair.server.received(0, 3), b"bye");
    pair.server.endpoint.disconnect();
    while let Some(completion) = pair.server.poll() {
        assert!(matches!(completion, Completion::Failed(TransportError::Flushed)), "{completion:?}");
    }
}

pub(super) fn both_may_disconnect(h: &mut dyn Harness) {
    let mut pair = Pair::connected(h);
    pair.client.endpoint.disconnect();
    pair.server.endpoint.disconnect();
    pair.until(h, "disconnected", |pair| pair.server.disconnected && pair.client.disconnected);
    pair.settle(h);
}

pub(super) fn drop_kills(h: &mut dyn Harness) {
    let Pair { client, mut server, listening: _listening } = Pair::connected(h);
    drop(client);
    await_event(h, true, |event| matches!(event, Event::Disconnected { token: SERVER }).then_some(()));
    while let Some(completion) = server.poll() {
        assert!(matches!(completion, Completion::Failed(_)), "{completion:?}");
    }
}

pub(super) fn broken_connection_disconnects(h: &mut dyn Harness) {
    let mut pair = Pair::connected(h);
    let nowhere = RemoteAddress { addr: 8, key: 0x0bad_0bad };
    pair.client.post(Operation::Write { to: nowhere }, Payload::bytes(b"x"), true);
    assert!(matches!(pair.completion(h, false), Completion::Failed(_)));
    pair.client.endpoint.disconnect();
    pair.until(h, "disconnected", |pair| pair.server.disconnected);
}
