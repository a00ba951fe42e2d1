//! Of each header: bytes in, bytes out over 0xa5, parse, emit, malformed; and what comes back is what went.

use proptest::prelude::*;

use super::*;

const UDP_V4: [u8; 16] = [0x55, 0x55, 0x55, 0x55, 4, 0, 16, 0, 0x00, 0x12, 0x34, 0x56, 10, 0, 0, 1];
const UDP_V6: [u8; 28] = [
    0x55, 0x55, 0x55, 0x55, 6, 7, 28, 0, 0x00, 0x00, 0x00, 0x11, //
    0xfd, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 2,
];
const UD_V4: [u8; 8] = [4, 8, 0x1b, 0x59, 10, 0, 0, 1];
const UD_V6: [u8; 24] = [
    6, 24, 0x1b, 0x59, 0, 1, 2, 3, //
    0xfd, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 2,
];

fn ask() -> UdpHeader {
    UdpHeader { operation: Operation::Data, queue_pair: 0x12_3456, address: "10.0.0.1".parse().unwrap() }
}

fn answer() -> UdpHeader {
    UdpHeader { operation: Operation::Control, queue_pair: 0x11, address: "fd00::2".parse().unwrap() }
}

fn v4() -> UdHeader {
    UdHeader { source: "10.0.0.1:7001".parse().unwrap() }
}

fn v6() -> UdHeader {
    UdHeader { source: SocketAddrV6::new("fd00::2".parse().unwrap(), 7001, 0x10203, 0).into() }
}

#[test]
fn udp_bytes_in() {
    let header = UdpHeader::parse(&UDP_V4).unwrap();
    assert_eq!((header.operation, header.queue_pair, header.address.to_string()), (Operation::Data, 0x12_3456, "10.0.0.1".into()));
    let header = UdpHeader::parse(&UDP_V6).unwrap();
    assert_eq!((header.operation, header.queue_pair, header.address.to_string()), (Operation::Control, 0x11, "fd00::2".into()));
}

#[test]
fn udp_bytes_out() {
    let mut bytes = [0xa5; 28];
    assert_eq!(ask().emit(&mut bytes), 16);
    assert_eq!((&bytes[..16], &bytes[16..]), (&UDP_V4[..], &[0xa5; 12][..]));
    assert_eq!(answer().emit(&mut bytes), 28);
    assert_eq!(bytes, UDP_V6);
}

#[test]
fn udp_parse() {
    assert_eq!(UdpHeader::parse(&[&UDP_V4[..], b"data"].concat()), Some(ask()), "the program's bytes follow");
    assert_eq!(UdpHeader::parse(&UDP_V6), Some(answer()));
    let mut bytes = UDP_V4;
    (bytes[7], bytes[8]) = (9, 0xff);
    assert_eq!(UdpHeader::parse(&bytes), Some(ask()), "reserved bits are ignored");
}

#[test]
fn udp_emit() {
    let wide = UdpHeader { queue_pair: 0xff00_0001, ..ask() };
    let mut bytes = [0; 28];
    wide.emit(&mut bytes);
    assert_eq!(bytes[8..12], [0, 0, 0, 1], "a queue pair has 24 bits");
    assert_eq!((ask().len(), answer().len()), (16, 28));
}

#[test]
fn udp_malformed_is_the_programs() {
    for (whole, at) in [(&UDP_V4[..], 4), (&UDP_V6[..], 4)] {
        for len in 0..whole.len() {
            assert_eq!(UdpHeader::parse(&whole[..len]), None, "{len} bytes");
        }
        for (at, values) in [(0, 0x56..=0x57), (3, 0..=0x54), (at, 7..=255), (5, 1..=6), (5, 8..=255), (6, 0..=15), (6, 29..=255)] {
            for value in values {
                let mut bytes = whole.to_vec();
                bytes[at] = value;
                assert_eq!(UdpHeader::parse(&bytes), None, "{value} at {at}");
            }
        }
    }
    let mut mixed = UDP_V6;
    mixed[4] = 4;
    assert_eq!(UdpHeader::parse(&mixed), None);
}

#[test]
fn ud_bytes_in() {
    assert_eq!(UdHeader::parse(&UD_V4).unwrap().source.to_string(), "10.0.0.1:7001");
    assert_eq!(UdHeader::parse(&UD_V6).unwrap().source, v6().source);
}

#[test]
fn ud_bytes_out() {
    let mut bytes = [0xa5; 24];
    assert_eq!(v4().emit(&mut bytes), 8);
    assert_eq!((&bytes[..8], &bytes[8..]), (&UD_V4[..], &[0xa5; 16][..]));
    assert_eq!(v6().emit(&mut bytes), 24);
    assert_eq!(bytes, UD_V6);
}

#[test]
fn ud_parse() {
    assert_eq!(UdHeader::parse(&[&UD_V4[..], b"data"].concat()), Some(v4()));
    assert_eq!(UdHeader::parse(&[&UD_V6[..], b"data"].concat()), Some(v6()));
}

#[test]
fn ud_emit() {
    let mut bytes = [0; 24];
    let scoped = UdHeader { source: "[fe80::1%7]:9".parse().unwrap() };
    scoped.emit(&mut bytes);
    assert_eq!(UdHeader::parse(&bytes).unwrap().source, "[fe80::1]:9".parse().unwrap(), "a scope does not travel");
    assert_eq!((v4().len(), v6().len()), (8, 24));
}

#[test]
fn ud_malformed_is_dropped() {
    for whole in [&UD_V4[..], &UD_V6[..]] {
        for len in 0..whole.len() {
            assert_eq!(UdHeader::parse(&whole[..len]), None, "{len} bytes");
        }
        for at in [0, 1] {
            for value in (0..=255).filter(|value| *value != whole[at]) {
                let mut bytes = whole.to_vec();
                bytes[at] = value;
                assert_eq!(UdHeader::parse(&bytes), None, "{value} at {at}");
            }
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn udp_headers_come_back(data: bool, queue_pair in 0..=MAX_QUEUE_PAIR, address: IpAddr, follows: Vec<u8>) {
        let header = UdpHeader { operation: if data { Operation::Data } else { Operation::Control }, queue_pair, address };
        let mut bytes = [0; 28];
        let len = header.emit(&mut bytes);
        prop_assert_eq!(UdpHeader::parse(&[&bytes[..len], &follows[..]].concat()), Some(header));
    }

    #[test]
    fn ud_headers_come_back(source: SocketAddr, follows: Vec<u8>) {
        let source = match source {
            SocketAddr::V6(v6) => SocketAddrV6::new(*v6.ip(), v6.port(), v6.flowinfo(), 0).into(),
            v4 => v4,
        };
        let mut bytes = [0; 24];
        let len = UdHeader { source }.emit(&mut bytes);
        prop_assert_eq!(UdHeader::parse(&[&bytes[..len], &follows[..]].concat()), Some(UdHeader { source }));
    }

    #[test]
    fn any_bytes_are_a_header_or_none(mut bytes: Vec<u8>, tagged: bool) {
        if tagged {
            bytes.splice(..0, [0x55; 4]);
        }
        if let Some(header) = UdpHeader::parse(&bytes) {
            prop_assert!(header.len() <= bytes.len() && header.queue_pair <= MAX_QUEUE_PAIR);
        }
        if let Some(header) = UdHeader::parse(&bytes) {
            prop_assert!(header.len() <= bytes.len());
        }
    }
}
