//! One rule of the protocol a test, step by step.

use super::{
    maps::MapPlan,
    pair::{End, Plan, config},
};
use crate::{
    protocol::stream::{Connection, DEFAULT_MAX_WRITE, FIRST_WRITE, PeerFault, Side, State, Taken, TargetList},
    wire::{ByteOrder, Control, Message, Sge},
    work::{MessageMode, Operation, Payload, RemoteAddress, WorkRequest},
};

const PLAN: Plan = Plan {
    big_endian: false,
    receive_queue: 16,
    send_queue: 24,
    send_bytes: 1 << 20,
    receive_bytes: 1 << 20,
    max_write: DEFAULT_MAX_WRITE,
    total: 0,
    chunk: 1,
    end: End::Nothing,
    maps: MapPlan::NONE,
};

const EMPTY: TargetList = [[0; 16]; 2];

/// A connection to a peer of the same kind.
fn open(plan: &Plan, mode: MessageMode) -> Connection {
    let mut connection = Connection::new(&config(plan, mode));
    let record = connection.connect_record();
    assert_eq!(connection.state(), State::Connecting);
    assert!(!connection.has_work() && connection.writable() == 0);
    connection.establish(&record).unwrap();
    assert!(!connection.has_work(), "a peer that sends little needs the first half only");
    connection
}

fn take(connection: &mut Connection, message: Message) -> Result<Taken, PeerFault> {
    connection.received(message.to_u32(), &|| EMPTY)
}

/// Everything there is to post.
fn work(connection: &mut Connection) -> Vec<WorkRequest> {
    core::iter::from_fn(|| connection.poll_work()).collect()
}

/// The messages in it.
fn messages(connection: &mut Connection) -> Vec<Message> {
    let message = |work: WorkRequest| match (work.operation, work.payload) {
        (Operation::WriteWithImmediate { immediate, .. }, _) => Some(Message::parse(immediate).unwrap()),
        (Operation::Send, Payload::Bytes { bytes, .. }) => Some(Message::parse(u32::from_le_bytes(*bytes.first_chunk().unwrap())).unwrap()),
        _ => None,
    };
    work(connection).into_iter().filter_map(message).collect()
}

#[test]
fn half_close_then_half_close() {
    let mut connection = open(&PLAN, MessageMode::Immediate);
    connection.commit(10);
    connection.shutdown_write();
    assert_eq!((connection.state(), connection.writable(), connection.can_read()), (State::WriteShut, 0, true));
    assert_eq!(messages(&mut connection), [Message::Data(10), Message::Ctrl(Control::Shutdown)]);
    let _ = take(&mut connection, Message::Data(7)).unwrap();
    let _ = take(&mut connection, Message::Ctrl(Control::Shutdown)).unwrap();
    assert_eq!(connection.state(), State::Disconnected(Side::Both));
    assert!(!connection.end_of_file());
    connection.consume(7);
    assert!(connection.end_of_file());
    connection.disconnect();
    assert!(!connection.has_work(), "both directions are over already");
}

#[test]
fn the_second_half_close_is_a_disconnect() {
    let mut connection = open(&PLAN, MessageMode::Immediate);
    let _ = take(&mut connection, Message::Ctrl(Control::Shutdown)).unwrap();
    assert_eq!((connection.state(), connection.can_write()), (State::ReadShut, true));
    connection.commit(10);
    connection.shutdown_write();
    assert_eq!(messages(&mut connection), [Message::Data(10), Message::Ctrl(Control::Disconnect)]);
    assert_eq!(connection.state(), State::Disconnected(Side::Both));
}

#[test]
fn grants_flow_after_our_half_close_but_not_to_a_peer_that_has_ended() {
    let mut connection = open(&PLAN, MessageMode::Immediate);
    connection.shutdown_write();
    let _ = work(&mut connection);
    for _ in 0..8 {
        let _ = take(&mut connection, Message::Data(1)).unwrap();
    }
    assert!(!connection.has_work());
    connection.consume(8);
    assert_eq!(messages(&mut connection), [Message::Sgl(24)]);
    for _ in 0..8 {
        let _ = take(&mut connection, Message::Data(1)).unwrap();
    }
    let _ = take(&mut connection, Message::Ctrl(Control::Shutdown)).unwrap();
    connection.consume(8);
    assert!(!connection.has_work() && !connection.wants_to_send_control());
}

#[test]
fn a_disconnect_takes_the_place_of_a_shutdown_not_sent() {
    let mut connection = open(&PLAN, MessageMode::Immediate);
    connection.commit(1);
    connection.shutdown_write();
    connection.disconnect();
    assert_eq!(messages(&mut connection), [Message::Data(1), Message::Ctrl(Control::Disconnect)]);
    assert_eq!(connection.state(), State::Disconnected(Side::Local));
    let _ = take(&mut connection, Message::Data(3)).unwrap();
    let _ = take(&mut connection, Message::Ctrl(Control::Disconnect)).unwrap();
    assert_eq!(connection.state(), State::Disconnected(Side::Both));
    assert_eq!(take(&mut connection, Message::Data(1)), Ok(Taken::NONE), "ignored after the end");
    assert_eq!(connection.readable(), 3);
}

#[test]
fn a_broken_transport_leaves_what_arrived() {
    let mut connection = open(&PLAN, MessageMode::Immediate);
    let _ = take(&mut connection, Message::Data(3)).unwrap();
    connection.commit(10);
    connection.broken();
    assert_eq!((connection.state(), connection.outstanding(), connection.writable()), (State::Broken, 0, 0));
    assert!(connection.all_sent() && !connection.has_work() && !connection.keep_alive());
    connection.commit(10);
    assert!(!connection.has_work());
    assert_eq!(connection.read_at(), Some((0, 3)));
    connection.consume(3);
    assert!(connection.end_of_file());
}

#[test]
fn a_grant_and_an_advertisement_go_together() {
    let mut connection = open(&PLAN, MessageMode::Immediate);
    for _ in 0..8 {
        let _ = take(&mut connection, Message::Data(64 << 10)).unwrap();
    }
    assert_eq!(messages(&mut connection), [Message::Sgl(16)], "the second half");
    connection.consume((512 << 10) - 1);
    assert!(!connection.has_work(), "7 messages, and a byte less than half of the ring");
    connection.consume(1);
    let sent = work(&mut connection);
    assert_eq!(sent.len(), 1);
    let to = RemoteAddress { addr: 0x7e00_0000_0000, key: 0x3b6 };
    assert_eq!(sent[0].operation, Operation::WriteWithImmediate { to, immediate: Message::Sgl(24).to_u32() });
    let half = Sge { addr: 0x7f00_0000_0000, key: 0x4e9, length: 512 << 10 };
    assert_eq!(sent[0].payload, Payload::bytes(&half.to_bytes(ByteOrder::Little)));
}

#[test]
fn at_most_four_control_messages_are_outstanding() {
    let mut connection = open(&PLAN, MessageMode::Immediate);
    let mut grants = 0;
    for _ in 0..5 {
        for _ in 0..8 {
            let _ = take(&mut connection, Message::Data(0)).unwrap();
        }
        grants += work(&mut connection).len();
    }
    assert_eq!(grants, 4);
    assert!(connection.wants_to_send_control() && !connection.has_work());
    connection.sent(1);
    assert!(!connection.wants_to_send_control() && connection.has_work());
    assert_eq!(messages(&mut connection), [Message::Sgl(16 + 40)], "the newest limit stands for the ones before");
}

#[test]
fn the_send_queue_keeps_a_reserve_and_a_signal() {
    for (mode, entries) in [(MessageMode::Immediate, 16), (MessageMode::Send, 16)] {
        let plan = Plan { send_queue: 28, ..PLAN };
        let mut connection = open(&plan, mode);
        let (mut posted, mut signaled) = (0, 0);
        while connection.writable() > 0 {
            connection.commit(1);
            let sent = work(&mut connection);
            posted += sent.len();
            signaled += sent.iter().filter(|work| work.signaled).count();
        }
        assert!(posted >= entries && posted <= 24, "{posted}");
        assert!(signaled >= 2, "{signaled}");
    }
}

#[test]
fn the_ramp_doubles_and_starts_again() {
    let plan = Plan { send_queue: 384, receive_queue: 100, max_write: 48 << 10, ..PLAN };
    let mut connection = open(&plan, MessageMode::Immediate);
    let mut pieces = Vec::new();
    let mut last = 0;
    for _ in 0..4 {
        pieces.push(connection.writable());
        connection.commit(connection.writable());
        last = work(&mut connection).last().unwrap().id;
    }
    assert_eq!(pieces, [FIRST_WRITE, 32 << 10, 48 << 10, 48 << 10]);
    connection.sent(last);
    assert_eq!(connection.writable(), FIRST_WRITE);
}

#[test]
fn what_was_writable_stays_so() {
    let mut connection = open(&PLAN, MessageMode::Immediate);
    connection.set_signal_all(true);
    connection.commit(connection.writable());
    let id = work(&mut connection).last().unwrap().id;
    let told = connection.writable();
    assert_eq!(told, 2 * FIRST_WRITE);
    connection.sent(id);
    assert_eq!(connection.writable(), FIRST_WRITE);
    connection.commit(told);
    assert_eq!(messages(&mut connection), [Message::Data(told)]);
}

#[test]
fn a_keep_alive_tells_when_all_is_sent() {
    let mut connection = open(&PLAN, MessageMode::Immediate);
    connection.commit(1);
    assert!(!connection.flush_needed(), "there is work to post first");
    assert!(work(&mut connection).iter().all(|work| !work.signaled));
    assert!(connection.flush_needed() && connection.keep_alive() && !connection.keep_alive());
    let sent = work(&mut connection);
    assert_eq!(sent.len(), 1);
    assert_eq!(sent[0].operation, Operation::Write { to: RemoteAddress::default() });
    assert!(sent[0].payload.is_empty() && sent[0].signaled && !connection.keep_alive() && !connection.flush_needed());
    connection.sent(sent[0].id);
    assert!(connection.all_sent() && connection.keep_alive());
}

#[test]
fn records_and_sends_are_in_the_right_byte_order() {
    let big = Plan { big_endian: true, ..PLAN };
    let mut connection = Connection::new(&config(&PLAN, MessageMode::Send));
    connection.establish(&Connection::new(&config(&big, MessageMode::Send)).connect_record()).unwrap();
    let quarter = 128 << 10;
    let _ = connection.received(Message::Data(quarter).to_u32().swap_bytes(), &|| EMPTY).unwrap();
    assert_eq!(connection.readable(), quarter, "a message, in the order of its sender");
    let sent = work(&mut connection);
    let half = Sge { addr: 0x7f00_0008_0000, key: 0x4e9, length: 512 << 10 };
    assert_eq!(sent[0].payload, Payload::bytes(&half.to_bytes(ByteOrder::Big)), "a record, in the order of its owner");
    assert_eq!((sent[1].operation, sent[1].payload), (Operation::Send, Payload::bytes(&[16, 0, 0, 0x80])));
    let mut list = EMPTY;
    list[1] = Sge { addr: 1, key: 2, length: 3 }.to_bytes(ByteOrder::Little);
    let taken = connection.received(Message::Sgl(16).to_u32().swap_bytes(), &|| list);
    assert_eq!(taken, Ok(Taken(2)), "our list is in our order");
}

#[test]
fn receives_are_posted_in_batches() {
    let plan = Plan { receive_queue: 384, ..PLAN };
    let mut connection = open(&plan, MessageMode::Immediate);
    assert_eq!(connection.receives_initial(), 416);
    for _ in 0..15 {
        let _ = take(&mut connection, Message::Data(1)).unwrap();
        assert_eq!(connection.receives_due(), 0);
    }
    let _ = take(&mut connection, Message::Ctrl(Control::KeepAlive)).unwrap();
    assert_eq!(connection.receives_due(), 16);
    connection.receives_posted(16);
    assert_eq!(connection.receives_due(), 0);
}

#[test]
fn messages_without_data_are_consumed_at_once() {
    let plan = Plan { maps: MapPlan { table: 1, ..MapPlan::NONE }, ..PLAN };
    let mut connection = open(&plan, MessageMode::Immediate);
    for _ in 0..4 {
        let _ = take(&mut connection, Message::Data(0)).unwrap();
        let _ = take(&mut connection, Message::Iomap(0)).unwrap();
    }
    assert_eq!(connection.readable(), 0);
    assert_eq!(messages(&mut connection), [Message::Sgl(24)]);
}

#[test]
fn a_peer_with_a_single_record_is_advertised_to_when_it_is_used_up() {
    let mut connection = Connection::new(&config(&PLAN, MessageMode::Immediate));
    let mut record = connection.connect_record();
    record[20..24].copy_from_slice(&1_u32.to_be_bytes());
    connection.establish(&record).unwrap();
    assert!(!connection.has_work());
    let _ = take(&mut connection, Message::Data(512 << 10)).unwrap();
    let sent = work(&mut connection);
    let to = RemoteAddress { addr: 0x7e00_0000_0000, key: 0x3b6 };
    assert!(matches!(sent[..], [WorkRequest { operation: Operation::WriteWithImmediate { to: at, .. }, .. }] if at == to));
}

#[test]
fn faults_of_the_connect_record() {
    let good = Connection::new(&config(&PLAN, MessageMode::Immediate)).connect_record();
    let with = |at: usize, bytes: &[u8]| {
        let mut record = good;
        record[at..at + bytes.len()].copy_from_slice(bytes);
        record
    };
    let cases = [
        (with(0, &[2]), PeerFault::Version(2)),
        (with(2, &[0; 2]), PeerFault::NoCredits),
        (with(20, &[0; 4]), PeerFault::NoTargets),
        (with(36, &[0; 4]), PeerFault::NoBuffer),
        (with(8, &[0xff; 8]), PeerFault::RecordOverflow),
        (with(24, &[0xff; 8]), PeerFault::RecordOverflow),
    ];
    for (record, fault) in cases {
        let mut connection = Connection::new(&config(&PLAN, MessageMode::Immediate));
        assert_eq!(connection.establish(&record), Err(fault));
        assert_eq!((connection.state(), connection.has_work()), (State::Broken, false));
        assert!(!fault.name().is_empty() && !fault.to_string().is_empty());
    }
    let mut connection = Connection::new(&config(&PLAN, MessageMode::Immediate));
    assert_eq!(connection.establish(&good[..39]), Err(PeerFault::RecordTooShort(39)));
    let mut connection = Connection::new(&config(&PLAN, MessageMode::Immediate));
    assert_eq!(take(&mut connection, Message::Data(1)), Err(PeerFault::NotEstablished));
}

#[test]
fn faults_of_messages() {
    let half = 512 << 10;
    let cases: [(&[u32], PeerFault); 9] = [
        (&[0x2000_0000], PeerFault::ReservedOperation(1)),
        (&[0x4000_0000], PeerFault::ReservedOperation(2)),
        (&[0xe000_0007], PeerFault::UnknownControl(7)),
        (&[half + 1], PeerFault::DataTooLong { len: half + 1, room: half }),
        (&[half - 1, 2], PeerFault::DataTooLong { len: 2, room: 1 }),
        (&[half, half, 1], PeerFault::DataTooLong { len: 1, room: 0 }),
        (&[1; 17], PeerFault::NoCreditLeft),
        (&[0x8000_000f], PeerFault::BadLimit { limit: 15, sent: 0 }),
        (&[0xe000_0002, 1], PeerFault::DataAfterEnd),
    ];
    for (immediates, fault) in cases {
        let mut connection = open(&PLAN, MessageMode::Immediate);
        let take = |immediate: &u32| {
            let _ = work(&mut connection);
            connection.received(*immediate, &|| EMPTY)
        };
        let results: Vec<_> = immediates.iter().map(take).collect();
        let (last, before) = results.split_last().unwrap();
        assert!(before.iter().all(Result::is_ok), "{fault}");
        assert_eq!(*last, Err(fault));
        assert_eq!((connection.state(), connection.can_write(), connection.has_work()), (State::Broken, false, false));
    }
    let mut connection = open(&PLAN, MessageMode::Send);
    assert_eq!(connection.received_malformed(3), PeerFault::MalformedMessage(3));
    assert_eq!(connection.state(), State::Broken);
}
