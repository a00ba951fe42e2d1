//! An echo server: `cargo run --example tcp_listener -- 127.0.0.1:7000`
//!
//! Each connection has a thread. The server says who comes, and which way: over RDMA, shared memory or TCP (the library's counters).

use std::{
    env,
    io::{self, Read, Write},
    thread,
};

use rsocket::{
    net::{TcpListener, TcpStream},
    stats,
};

fn serve(mut stream: TcpStream) -> io::Result<usize> {
    let mut bytes = vec![0; 1 << 16];
    let mut total = 0;
    loop {
        let count = stream.read(&mut bytes)?;
        let Some(read) = bytes.get(..count).filter(|read| !read.is_empty()) else { return Ok(total) };
        stream.write_all(read)?;
        total += count;
    }
}

fn main() -> io::Result<()> {
    let address = env::args().nth(1).unwrap_or("127.0.0.1:7000".to_owned());
    let listener = TcpListener::bind(address)?;
    println!("listening at {}", listener.local_addr()?);
    loop {
        let (stream, peer) = listener.accept()?;
        thread::spawn(move || {
            match serve(stream) {
                Ok(count) => println!("{peer}: {count} bytes"),
                Err(error) => println!("{peer}: {error}"),
            }
            for (counter, value) in stats::snapshot().into_iter().filter(|(counter, _)| counter.starts_with("bytes_")) {
                println!("  {counter} {value}");
            }
        });
    }
}
