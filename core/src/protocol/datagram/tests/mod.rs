mod network;
mod scenarios;

use super::*;

const SECOND: Nanos = 1_000_000_000;

fn addr(text: &str) -> SocketAddr {
    text.parse().unwrap()
}

/// A datagram of the UDP socket.
fn tagged(operation: Operation, queue_pair: u32, address: SocketAddr, bytes: &[u8]) -> Vec<u8> {
    let header = UdpHeader { operation, queue_pair, address: address.ip() };
    let mut room = [0; UdpHeader::V6_BYTES];
    let len = header.emit(&mut room);
    [&room[..len], bytes].concat()
}

/// A UD message.
fn message(source: SocketAddr, bytes: &[u8]) -> Vec<u8> {
    let mut room = [0; UdHeader::V6_BYTES];
    let len = UdHeader { source }.emit(&mut room);
    [&room[..len], bytes].concat()
}
