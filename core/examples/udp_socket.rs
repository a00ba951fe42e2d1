//! Datagrams. A server that answers each with its bytes reversed: `cargo run --example udp_socket -- serve 127.0.0.1:7000`;
//! a client that asks: `cargo run --example udp_socket -- ask 127.0.0.1:7000 hello`
//!
//! A datagram may be lost, so the client asks again.

use std::{env, io, time::Duration};

use rsocket::net::UdpSocket;

/// How often the client asks.
const TRIES: u32 = 5;

fn serve(address: &str) -> io::Result<()> {
    let socket = UdpSocket::bind(address)?;
    println!("serving at {}", socket.local_addr()?);
    let mut bytes = vec![0; 1 << 16];
    loop {
        let (count, peer) = socket.recv_from(&mut bytes)?;
        let answer: Vec<u8> = bytes.iter().take(count).rev().copied().collect();
        if let Err(error) = socket.send_to(&answer, peer) {
            println!("{peer}: {error}");
        }
    }
}

fn ask(address: &str, question: &str) -> io::Result<()> {
    // The wildcard address of the server's family.
    let own = if address.starts_with('[') { "[::]:0" } else { "0.0.0.0:0" };
    let socket = UdpSocket::bind(own)?;
    socket.connect(address)?;
    socket.set_read_timeout(Some(Duration::from_secs(1)))?;
    let mut bytes = vec![0; 1 << 16];
    for _ in 0..TRIES {
        socket.send(question.as_bytes())?;
        match socket.recv(&mut bytes) {
            Ok(count) => {
                println!("{}", String::from_utf8_lossy(bytes.get(..count).unwrap_or_default()));
                return Ok(());
            }
            Err(error) if matches!(error.kind(), io::ErrorKind::WouldBlock | io::ErrorKind::TimedOut) => {}
            Err(error) => return Err(error),
        }
    }
    Err(io::Error::new(io::ErrorKind::TimedOut, format!("no answer from {address}")))
}

fn main() -> io::Result<()> {
    let words: Vec<String> = env::args().skip(1).collect();
    match words.iter().map(String::as_str).collect::<Vec<_>>().as_slice() {
        ["serve", address] => serve(address),
        ["ask", address, question] => ask(address, question),
        _ => Err(io::Error::new(io::ErrorKind::InvalidInput, "usage: udp_socket serve ADDRESS | ask ADDRESS QUESTION")),
    }
}
