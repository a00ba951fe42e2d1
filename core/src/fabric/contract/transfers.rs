//! How requests travel and complete.

use super::{
    Harness,
    pair::{CONFIG, Pair},
};
use crate::work::{Completion, Operation, Payload, RemoteAddress, TransportError};

/// Room for messages with payload in the smallest send queue: two requests each where messages are SENDs.
const BATCH: u32 = 6;

fn fill(len: usize, seed: u8) -> Vec<u8> {
    (0..len).map(|index| (index as u8).wrapping_mul(7).wrapping_add(seed)).collect()
}

pub(super) fn message_comes_after_its_bytes(h: &mut dyn Harness) {
    let mut pair = Pair::connected(h);
    let data = fill(10_000, 1);
    pair.client.endpoint.send_area().write(100, &data).unwrap();
    let Pair { client, server, .. } = &mut pair;
    let id = client.send(server, 200, Payload::SendArea { offset: 100, len: 10_000 }, 0x8765_4321, true);
    assert_eq!(pair.message(h), 0x8765_4321);
    assert_eq!(pair.server.received(200, 10_000), data);
    assert_eq!(pair.server.received(0, 200), vec![0; 200]);
    assert_eq!(pair.completion(h, false), Completion::Sent { id });
}

pub(super) fn messages_keep_their_order(h: &mut dyn Harness) {
    let mut pair = Pair::connected(h);
    for batch in 0..20 {
        let Pair { client, server, .. } = &mut pair;
        let mut last = 0;
        for index in 0..BATCH {
            let message = batch * BATCH + index;
            last = client.send(server, 0, Payload::bytes(&message.to_le_bytes()), message, index == BATCH - 1);
        }
        for index in 0..BATCH {
            assert_eq!(pair.message(h), batch * BATCH + index);
            pair.server.endpoint.post_receives(1).unwrap();
        }
        assert_eq!(pair.server.received(0, 4), (batch * BATCH + BATCH - 1).to_le_bytes());
        assert_eq!(pair.completion(h, false), Completion::Sent { id: last });
    }
}

pub(super) fn both_directions_at_once(h: &mut dyn Harness) {
    let mut pair = Pair::connected(h);
    let Pair { client, server, .. } = &mut pair;
    for message in 0..BATCH {
        client.send(server, 0, Payload::bytes(b"there"), message, false);
        server.send(client, 0, Payload::bytes(b"back!"), message, false);
    }
    for message in 0..BATCH {
        assert_eq!(pair.completion(h, false), Completion::Received { message });
        assert_eq!(pair.completion(h, true), Completion::Received { message });
    }
    assert_eq!(pair.client.received(0, 5), b"back!");
    assert_eq!(pair.server.received(0, 5), b"there");
}

pub(super) fn plain_writes_are_silent(h: &mut dyn Harness) {
    let mut pair = Pair::connected(h);
    let receive = pair.server.endpoint.exposed().receive;
    let to = RemoteAddress { addr: receive.addr + 8, key: receive.key };
    let id = pair.client.post(Operation::Write { to }, Payload::bytes(b"quiet"), true);
    assert_eq!(pair.completion(h, false), Completion::Sent { id });
    let Pair { client, server, .. } = &mut pair;
    client.send(server, 0, Payload::Empty, 1, false);
    assert_eq!(pair.message(h), 1);
    assert_eq!(pair.server.received(8, 5), b"quiet");
    assert_eq!(pair.server.poll(), None);
}

pub(super) fn empty_write_needs_no_address(h: &mut dyn Harness) {
    let mut pair = Pair::connected(h);
    let id = pair.client.post(Operation::Write { to: RemoteAddress::default() }, Payload::Empty, true);
    assert_eq!(pair.completion(h, false), Completion::Sent { id });
}

pub(super) fn targets_are_written(h: &mut dyn Harness) {
    let mut pair = Pair::connected(h);
    let targets = pair.server.endpoint.exposed().targets;
    let to = RemoteAddress { addr: targets.addr + 16, key: targets.key };
    let id = pair.client.post(Operation::Write { to }, Payload::bytes(b"sixteen bytes ok"), true);
    assert_eq!(pair.completion(h, false), Completion::Sent { id });
    let mut record = [0; 16];
    pair.server.endpoint.target_area().read(16, &mut record).unwrap();
    assert_eq!(&record, b"sixteen bytes ok");
}

pub(super) fn sent_covers_lower_ids(h: &mut dyn Harness) {
    let mut pair = Pair::connected(h);
    let receive = pair.server.endpoint.exposed().receive;
    let mut last = 0;
    for index in 0..4_u64 {
        let to = RemoteAddress { addr: receive.addr + index, key: receive.key };
        last = pair.client.post(Operation::Write { to }, Payload::bytes(b"x"), index == 3);
    }
    assert_eq!(pair.completion(h, false), Completion::Sent { id: last });
    pair.settle(h);
    assert_eq!(pair.client.poll(), None, "what was not signaled completes silently");
}

pub(super) fn inline_bytes_are_free_at_once(h: &mut dyn Harness) {
    let mut pair = Pair::connected(h);
    let len = pair.client.endpoint.limits().inline;
    if len == 0 {
        return;
    }
    let area = fill(len as usize, 3);
    let Pair { client, server, .. } = &mut pair;
    client.endpoint.send_area().write(0, &area).unwrap();
    client.send(server, 0, Payload::SendArea { offset: 0, len }, 1, false);
    client.endpoint.send_area().write(0, &vec![0xff; len as usize]).unwrap();
    assert_eq!(pair.message(h), 1);
    assert_eq!(pair.server.received(0, len as usize), area);
}

pub(super) fn completions_fill_what_is_given(h: &mut dyn Harness) {
    let mut pair = Pair::connected(h);
    let Pair { client, server, .. } = &mut pair;
    assert_eq!(server.endpoint.poll(&mut []), 0);
    let mut last = 0;
    for message in 0..BATCH {
        last = client.send(server, 0, Payload::Empty, message, message == BATCH - 1);
    }
    assert_eq!(pair.completion(h, false), Completion::Sent { id: last });
    let mut taken = Vec::new();
    pair.until(h, "all messages", |pair| {
        let mut out = [Completion::Sent { id: 0 }; 4];
        loop {
            let count = pair.server.endpoint.poll(&mut out);
            assert!(count <= out.len());
            taken.extend_from_slice(&out[..count]);
            if count == 0 {
                return taken.len() == BATCH as usize;
            }
        }
    });
    let expected: Vec<Completion> = (0..BATCH).map(|message| Completion::Received { message }).collect();
    assert_eq!(taken, expected);
}

pub(super) fn late_receives_only_delay(h: &mut dyn Harness) {
    let mut pair = Pair::connected(h);
    let granted = pair.server.endpoint.limits().receive_queue;
    let total = granted + 3;
    let mut taken = 0;
    for message in 0..total {
        let Pair { client, server, .. } = &mut pair;
        let id = client.send(server, 0, Payload::Empty, message, true);
        if message < granted {
            assert_eq!(pair.completion(h, false), Completion::Sent { id });
        }
    }
    while taken < granted {
        assert_eq!(pair.message(h), taken);
        taken += 1;
    }
    pair.settle(h);
    assert_eq!((pair.server.poll(), pair.client.poll()), (None, None), "no receive, no message");
    pair.server.endpoint.post_receives(granted).unwrap();
    while taken < total {
        // What waited may go on only when its end is looked at.
        while pair.client.poll().is_some() {}
        assert_eq!(pair.message(h), taken);
        taken += 1;
    }
}

pub(super) fn queues_can_be_filled_again_and_again(h: &mut dyn Harness) {
    let mut pair = Pair::connected(h);
    let receive = pair.server.endpoint.exposed().receive;
    let to = RemoteAddress { addr: receive.addr, key: receive.key };
    let full = pair.client.endpoint.limits().send_queue;
    for _ in 0..10 {
        let mut last = 0;
        for index in 0..full {
            last = pair.client.post(Operation::Write { to }, Payload::bytes(b"full"), index == full - 1);
        }
        assert_eq!(pair.completion(h, false), Completion::Sent { id: last });
    }
}

fn refused(h: &mut dyn Harness, address: impl Fn(&Pair) -> RemoteAddress, len: u32) {
    let mut pair = Pair::connected(h);
    pair.client.endpoint.send_area().write(0, &vec![0xee; len as usize]).unwrap();
    let to = address(&pair);
    pair.client.post(Operation::Write { to }, Payload::SendArea { offset: 0, len }, true);
    assert_eq!(pair.completion(h, false), Completion::Failed(TransportError::RemoteAccess));
    let size = CONFIG.receive_bytes as usize;
    assert_eq!(pair.server.received(0, size), vec![0; size]);
    // Posting goes on without harm: everything is flushed.
    pair.client.post(Operation::Write { to }, Payload::bytes(b"x"), true);
    assert_eq!(pair.completion(h, false), Completion::Failed(TransportError::Flushed));
}

pub(super) fn wrong_key_is_refused(h: &mut dyn Harness) {
    let address = |pair: &Pair| {
        let receive = pair.server.endpoint.exposed().receive;
        RemoteAddress { addr: receive.addr, key: receive.key ^ 0x55aa }
    };
    refused(h, address, 16);
}

pub(super) fn outside_access_is_refused(h: &mut dyn Harness) {
    let address = |pair: &Pair| {
        let receive = pair.server.endpoint.exposed().receive;
        RemoteAddress { addr: receive.addr + u64::from(receive.length) - 8, key: receive.key }
    };
    // Beyond the page-rounded area as well.
    refused(h, address, 8192);
}

pub(super) fn armed_queue_is_announced_once(h: &mut dyn Harness) {
    let mut pair = Pair::connected(h);
    let Some(fd) = pair.server.endpoint.event_fd() else { return };
    pair.server.endpoint.arm().unwrap();
    assert_eq!(pair.server.poll(), None);
    assert!(!h.is_readable(fd));
    for message in 0..3 {
        let Pair { client, server, .. } = &mut pair;
        let id = client.send(server, 0, Payload::Empty, message, true);
        assert_eq!(pair.completion(h, false), Completion::Sent { id });
    }
    pair.until(h, "readable", |_| true);
    while !h.is_readable(fd) {
        assert!(h.turn(), "not announced");
    }
    pair.server.endpoint.clear_events();
    assert!(!h.is_readable(fd));
    for message in 0..3 {
        assert_eq!(pair.message(h), message);
    }
    // Unarmed: nothing is announced.
    let Pair { client, server, .. } = &mut pair;
    client.send(server, 0, Payload::Empty, 3, false);
    assert_eq!(pair.message(h), 3);
    assert!(!h.is_readable(fd));
}
