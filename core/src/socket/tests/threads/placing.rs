//! Memory that one end maps and the other one writes to, by calls that block.

use core::ops::Range;

use super::*;
use crate::{error::Result, fabric::Region, sys::program::Span};

const PLACES: [(Over, MessageMode); 3] =
    [(Over::Sim, MessageMode::Immediate), (Over::Sim, MessageMode::Send), (Over::Shm, MessageMode::Immediate)];
/// Mappings of a connection, one after the other.
const TIMES: u64 = 12;

/// Memory of the program's, which nothing but the kernel touches.
struct Target {
    region: Region,
    len: usize,
}

impl Target {
    fn new(len: usize) -> Self {
        Target { region: Region::new(len).unwrap(), len }
    }

    fn span(&self) -> Span {
        Span::unused(self.region.addr().expose_provenance(), self.len)
    }

    fn bytes(&self) -> Vec<u8> {
        let mut bytes = vec![0; self.len];
        self.region.read(0, &mut bytes).unwrap();
        bytes
    }
}

/// Where bytes lie that are only read.
fn span_of(bytes: &[u8]) -> Span {
    Span::unused(bytes.as_ptr().expose_provenance(), bytes.len())
}

/// What the owner tells of a mapping.
#[derive(Clone, Copy, Debug)]
struct Notice {
    offset: u64,
    len: u64,
    /// Bytes before this one are left alone.
    from: u64,
}

fn tell(stream: &Stream, notice: Notice) {
    let words = [notice.offset, notice.len, notice.from].map(u64::to_ne_bytes);
    assert_eq!(stream.send(&[IoSlice::new(words.as_flattened())], patience()), Ok(24));
}

/// ENODATA: the owner has closed.
fn hear(stream: &Stream) -> Result<Notice> {
    let mut words = [[0; 8]; 3];
    let count = stream.receive(&mut [IoSliceMut::new(words.as_flattened_mut())], false, true, patience())?;
    let [offset, len, from] = words.map(u64::from_ne_bytes);
    if count == 24 { Ok(Notice { offset, len, from }) } else { Err(Errno::NODATA) }
}

/// Maps memory, lets the peer write to it, looks, and ends the mapping, again and again.
fn owns(stream: &Arc<Stream>, random: &mut Random) {
    for time in 0..TIMES {
        let most = if random.chance(500) { 300_000 } else { 3000 };
        let target = Target::new(usize::try_from(random.within(&(1..=most))).unwrap());
        let len = target.len as u64;
        let offset = if random.chance(100) { u64::MAX - len } else { random.number() >> 20 };
        stream.map(target.span(), Some(offset), patience()).unwrap();
        let from = random.within(&(0..=len - 1));
        tell(stream, Notice { offset, len, from });
        assert_eq!(stream.receive(&mut [IoSliceMut::new(&mut [0])], false, false, patience()), Ok(1));
        for (at, got) in target.bytes().into_iter().enumerate() {
            let expected = if (at as u64) < from { 0 } else { byte(at + 1) };
            assert_eq!(got, expected, "at {at} of {len}, from {from}, time {time}");
        }
        if time + 1 < TIMES {
            stream.unmap(target.span()).unwrap();
            assert_eq!(stream.unmap(target.span()), Err(Errno::INVAL));
        } else {
            stream.close(None, false);
        }
    }
}

/// Writes a part of what was mapped, from memory that is registered or not.
fn writes(stream: &Stream, offset: u64, part: Range<u64>, random: &mut Random) {
    let bytes: Vec<u8> = part.clone().map(|at| byte(at as usize + 1)).collect();
    let registered = random.chance(500) && !bytes.is_empty();
    if registered {
        stream.map(span_of(&bytes), None, patience()).unwrap();
    }
    let mut done = 0;
    while done < bytes.len() {
        let most = if random.chance(300) { bytes.len() } else { 5000 };
        let len = usize::try_from(random.within(&(1..=most as u64))).unwrap().min(bytes.len() - done);
        let piece = &bytes[done..done + len];
        assert_eq!(stream.place(piece, span_of(piece), offset + part.start + done as u64, patience()), Ok(len));
        done += len;
    }
    if registered {
        // Nobody reads it any more: the simulation tells who does.
        stream.unmap(span_of(&bytes)).unwrap();
    }
}

/// Writes what the owner wants, by two threads at once.
fn serves(stream: &Arc<Stream>, seed: u64) {
    let mut random = Random::new(seed);
    let end = loop {
        let Notice { offset, len, from } = match hear(stream) {
            Ok(notice) => notice,
            Err(errno) => break errno,
        };
        let middle = random.within(&(from..=len));
        let seeds = [random.number(), random.number()];
        thread::scope(|scope| {
            scope.spawn(|| writes(stream, offset, from..middle, &mut Random::new(seeds[0])));
            writes(stream, offset, middle..len, &mut Random::new(seeds[1]));
        });
        // Behind its end there is nothing.
        let over = [0; 2];
        assert_eq!(stream.place(&over, span_of(&over), offset + len, patience()), Ok(0));
        assert_eq!(stream.send(&[IoSlice::new(&[1])], patience()), Ok(1));
    };
    assert_eq!(end, Errno::NODATA);
    stream.close(None, false);
}

#[test]
fn what_is_written_to_mapped_memory_is_there() {
    for (index, (over, mode)) in PLACES.into_iter().enumerate() {
        for seed in 0..2 * ROUNDS {
            let seed = 1000 * index as u64 + seed;
            let bytes = if seed.is_multiple_of(2) { 4096 } else { 131_072 };
            let sizes = Sizes { receive_bytes: bytes, shm_receive_bytes: bytes, send_bytes: bytes, iomap_entries: 4, ..SIZES };
            Two::new(over, mode, sizes, seed).run(|two| {
                let [client, server] = two.pair();
                together([
                    Box::new(move || owns(&client, &mut Random::new(seed))) as Box<dyn FnOnce() + Send>,
                    Box::new(move || serves(&server, seed + 100)),
                ]);
            });
        }
    }
}

/// The owner goes away while its peer writes: the call ends, and the memory that it was given is not read afterwards.
#[test]
fn an_owner_that_goes_ends_a_write() {
    for (index, (over, mode)) in PLACES.into_iter().enumerate() {
        for seed in 0..2 * ROUNDS {
            let seed = 1000 * index as u64 + seed;
            let sizes = Sizes { iomap_entries: 4, ..SIZES };
            Two::new(over, mode, sizes, seed).run(|two| {
                let [owner, writer] = two.pair();
                let owns = move || {
                    let target = Target::new(200_000);
                    owner.map(target.span(), Some(0), patience()).unwrap();
                    tell(&owner, Notice { offset: 0, len: target.len as u64, from: 0 });
                    let mut random = Random::new(seed);
                    thread::sleep(Duration::from_micros(random.within(&(0..=3000))));
                    let at_once = random.chance(500).then_some(Duration::ZERO);
                    owner.close(at_once, false);
                };
                let writes = move || {
                    // What an owner that resets the connection has said may be lost.
                    let refused = hear(&writer).and_then(|notice| {
                        let bytes = vec![7; usize::try_from(notice.len).unwrap()];
                        writer.map(span_of(&bytes), None, patience())?;
                        let mut refused = Ok(0);
                        while refused.is_ok() {
                            refused = writer.place(&bytes, span_of(&bytes), 0, patience());
                        }
                        writer.unmap(span_of(&bytes)).and(refused)
                    });
                    assert!([Err(Errno::PIPE), Err(Errno::CONNRESET)].contains(&refused), "{refused:?}");
                    writer.close(None, false);
                };
                together([Box::new(owns) as Box<dyn FnOnce() + Send>, Box::new(writes)]);
            });
        }
    }
}
