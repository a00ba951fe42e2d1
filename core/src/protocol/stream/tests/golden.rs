//! The bytes and messages of a capture of the shipped implementation.

use crate::{
    protocol::stream::{Config, Connection, DEFAULT_MAX_WRITE, State, Tables, TargetList},
    wire::Sge,
    work::{ExposedMemory, MessageMode, Operation, Payload, RemoteAddress},
};

/// The private data of both sides: the request of the capture.
const RECORD: [u8; 40] = [
    0x01, 0x02, 0x01, 0x80, 0, 0, 0, 0, //
    0x00, 0x00, 0x55, 0x64, 0xbb, 0x41, 0xc0, 0x00, 0x00, 0x00, 0x03, 0xb6, 0x00, 0x00, 0x00, 0x02, //
    0x00, 0x00, 0x55, 0x64, 0xbb, 0x41, 0xe0, 0x00, 0x00, 0x00, 0x04, 0xe9, 0x00, 0x01, 0x00, 0x00,
];
const TARGETS: u64 = 0x5564_bb41_c000;
const BUFFER: u64 = 0x5564_bb41_e000;

fn config() -> Config {
    Config {
        send_queue: 384,
        receive_queue: 384,
        send_bytes: 128 << 10,
        receive_bytes: 128 << 10,
        inline: 64,
        iomap_entries: 0,
        mode: MessageMode::Immediate,
        exposed: ExposedMemory {
            receive: Sge { addr: BUFFER, key: 0x4e9, length: 128 << 10 },
            targets: Sge { addr: TARGETS, key: 0x3b6, length: 32 },
        },
        max_write: DEFAULT_MAX_WRITE,
        host_is_big_endian: false,
    }
}

const NO_TARGETS: &dyn Tables = &|| TargetList::default();

#[test]
fn the_capture_is_replayed() {
    let mut connection = Connection::new(&config());
    let mut ours = RECORD;
    ours[1] |= 1 << 2;
    assert_eq!(connection.connect_record(), ours, "and IOMAP messages are counted");
    assert_eq!(connection.receives_initial(), 384 + 32);
    connection.establish(&RECORD).unwrap();

    assert_eq!(connection.poll_work(), None, "the shipped implementation advertises the second half now");

    for (len, addr) in [(16, BUFFER), (100, BUFFER + 16)] {
        assert!(connection.writable() >= len);
        assert_eq!(u64::from(connection.write_at()), addr - BUFFER);
        connection.commit(len);
        let data = connection.poll_work().unwrap();
        let to = RemoteAddress { addr, key: 0x4e9 };
        assert_eq!(data.operation, Operation::WriteWithImmediate { to, immediate: len });
        assert_eq!(data.payload, Payload::SendArea { offset: (addr - BUFFER) as u32, len });
        assert_eq!(connection.received(len, NO_TARGETS).map(|taken| taken.is_empty()), Ok(true));
    }
    assert_eq!((connection.readable(), connection.read_at()), (116, Some((0, 116))));
    assert_eq!(connection.peek_at(16), Some((16, 100)));
    connection.consume(116);

    connection.disconnect();
    let end = connection.poll_work().unwrap();
    assert!(matches!(end.operation, Operation::WriteWithImmediate { immediate: 0xe000_0000, .. }));
    assert!(end.payload.is_empty() && end.signaled);
    assert!(!connection.all_sent());
    connection.sent(end.id);
    assert!(connection.all_sent());
}

#[test]
fn the_second_half_is_advertised_when_a_quarter_of_the_first_is_used() {
    let mut connection = Connection::new(&config());
    connection.establish(&RECORD).unwrap();
    let _ = connection.received((16 << 10) - 1, NO_TARGETS).unwrap();
    assert_eq!(connection.poll_work(), None);
    let _ = connection.received(1, NO_TARGETS).unwrap();
    // As in the capture.
    let update = connection.poll_work().unwrap();
    let to = RemoteAddress { addr: TARGETS + 16, key: 0x3b6 };
    assert_eq!(update.operation, Operation::WriteWithImmediate { to, immediate: 0x8000_0180 });
    let half = [0, 0xe0, 0x42, 0xbb, 0x64, 0x55, 0, 0, 0xe9, 4, 0, 0, 0, 0, 1, 0];
    assert_eq!(update.payload, Payload::bytes(&half));
    assert_eq!(connection.poll_work(), None);
}

#[test]
fn the_peers_disconnect_is_the_end_after_its_data() {
    let mut connection = Connection::new(&config());
    connection.establish(&RECORD).unwrap();
    let _ = connection.received(5, NO_TARGETS).unwrap();
    let _ = connection.received(0xe000_0000, NO_TARGETS).unwrap();
    assert!(connection.peer_disconnected() && !connection.can_write() && !connection.end_of_file());
    connection.consume(5);
    assert!(connection.end_of_file());
    assert_eq!(connection.state(), State::Disconnected(crate::protocol::stream::Side::Peer));
    assert_eq!(connection.poll_work(), None);
}
