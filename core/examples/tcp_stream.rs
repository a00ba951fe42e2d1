//! Sends what it reads to an echo server, and writes what comes back: `cargo run --example tcp_stream -- 127.0.0.1:7000 < file > copy`
//!
//! One thread sends while the other receives: a server that waits for its answers to be read reads no more.

use std::{
    env, io,
    net::Shutdown,
    thread,
    time::{Duration, Instant},
};

use rsocket::net::TcpStream;

fn main() -> io::Result<()> {
    let address = env::args().nth(1).unwrap_or("127.0.0.1:7000".to_owned());
    let stream = TcpStream::connect(address)?;
    let peer = stream.peer_addr()?;
    stream.set_read_timeout(Some(Duration::from_secs(30)))?;
    let sending = stream.try_clone()?;
    let sender = thread::spawn(move || {
        let sent = io::copy(&mut io::stdin().lock(), &mut &sending)?;
        sending.shutdown(Shutdown::Write)?;
        Ok::<u64, io::Error>(sent)
    });
    let begin = Instant::now();
    let received = io::copy(&mut &stream, &mut io::stdout().lock())?;
    let sent = sender.join().map_err(|_| io::Error::other("the sender has failed"))??;
    eprintln!("{sent} bytes sent to {peer}, {received} received, in {:?}", begin.elapsed());
    Ok(())
}
