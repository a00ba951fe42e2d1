//! The program's bytes: from its buffers into the send area, and out of the receive area.

use std::io::{IoSlice, IoSliceMut};

use super::Engine;
use crate::{error::Result, work::WorkRequest};

impl Engine {
    /// Copies queued bytes into the slices behind their first `filled` bytes; `take` frees them. Gives how many.
    pub fn read(&mut self, into: &mut [IoSliceMut<'_>], filled: usize, take: bool) -> Result<usize> {
        let (mut skip, mut done) = (filled, 0);
        for slice in into.iter_mut() {
            let mut at = skip.min(slice.len());
            skip -= at;
            while at < slice.len() {
                let ahead = if take { 0 } else { done };
                let Some((offset, contiguous)) = self.connection.peek_at(u32::try_from(ahead).unwrap_or(u32::MAX)) else {
                    return Ok(done);
                };
                let part = slice.len().saturating_sub(at).min(contiguous as usize);
                let Some(target) = slice.get_mut(at..at + part) else { return Ok(done) };
                self.endpoint.receive_area().read(offset as usize, target)?;
                if take {
                    self.connection.consume(u32::try_from(part).unwrap_or(0));
                }
                at += part;
                done += part;
            }
        }
        Ok(done)
    }

    /// Moves queued bytes into the slice: what [`Engine::read`] does in the common case. Gives how many.
    #[inline(always)]
    pub fn take(&mut self, into: &mut [u8]) -> Result<usize> {
        let Some((offset, contiguous)) = self.connection.read_at() else { return Ok(0) };
        let (first, rest) = into.split_at_mut(into.len().min(contiguous as usize));
        self.endpoint.receive_area().read(offset as usize, first)?;
        self.connection.consume(first.len() as u32);
        if rest.is_empty() || self.connection.readable() == 0 {
            return Ok(first.len());
        }
        self.take_rest(rest).map(|more| first.len() + more)
    }

    /// What lies at the start of the ring.
    #[inline(never)]
    fn take_rest(&mut self, into: &mut [u8]) -> Result<usize> {
        self.take(into)
    }

    /// Takes at most `wanted` bytes from `skip` bytes into `from` on, as much as can be posted now, and posts it. Gives how many.
    pub fn write(&mut self, from: &[IoSlice<'_>], skip: usize, wanted: usize) -> Result<usize> {
        let mut done = 0;
        while done < wanted {
            let part = (self.connection.writable() as usize).min(wanted - done);
            if part == 0 {
                break;
            }
            match contiguous(from, skip + done, part) {
                Some(bytes) => self.send(bytes)?,
                None => self.send_gathered(from, skip + done, part)?,
            }
            done += part;
        }
        Ok(done)
    }

    /// Sends bytes of the program's, as many as can be posted as one message.
    fn send(&mut self, bytes: &[u8]) -> Result<()> {
        if self.send_at_once(bytes) {
            return Ok(());
        }
        self.endpoint.send_area().write(self.connection.write_at() as usize, bytes)?;
        self.connection.commit(bytes.len() as u32);
        self.transmit();
        Ok(())
    }

    /// Sends bytes of the program's as one message. False: nothing was done, as they do not fit into one, or something goes before them.
    #[inline(always)]
    pub fn send_at_once(&mut self, bytes: &[u8]) -> bool {
        let Some(data) = self.connection.data_at_once(bytes.len()) else { return false };
        if let Err(errno) = self.endpoint.post_data(&data, bytes) {
            self.post_failed(errno);
        }
        true
    }

    /// Posts the request for these bytes or, where others come first, keeps them at their place in the send area.
    pub(super) fn post_or_keep(&mut self, work: Option<WorkRequest>, at: usize, bytes: &[u8]) -> Result<()> {
        match work {
            Some(work) => {
                if let Err(errno) = self.endpoint.post_bytes(&work, bytes) {
                    self.post_failed(errno);
                }
            }
            None => {
                self.endpoint.send_area().write(at, bytes)?;
                self.transmit();
            }
        }
        Ok(())
    }

    /// As [`Engine::send`], of bytes that lie in several slices.
    fn send_gathered(&mut self, from: &[IoSlice<'_>], skip: usize, len: usize) -> Result<()> {
        let at = self.connection.write_at() as usize;
        gather(from, skip, len, |offset, bytes| self.endpoint.send_area().write(at + offset, bytes))?;
        match self.connection.data_at_once(len) {
            Some(data) => {
                self.post(core::slice::from_ref(&data.request()));
            }
            None => {
                self.connection.commit(len as u32);
                self.transmit();
            }
        }
        Ok(())
    }
}

/// `len` bytes from `skip` bytes into the slices on, where one slice has them all.
fn contiguous<'a>(from: &'a [IoSlice<'_>], skip: usize, len: usize) -> Option<&'a [u8]> {
    let mut skip = skip;
    for slice in from {
        if skip < slice.len() {
            return slice.get(skip..skip.checked_add(len)?);
        }
        skip -= slice.len();
    }
    None
}

/// Hands out `len` bytes from `skip` bytes into the slices, piece by piece, with each piece's offset.
#[inline]
fn gather(from: &[IoSlice<'_>], skip: usize, len: usize, mut put: impl FnMut(usize, &[u8]) -> Result<()>) -> Result<()> {
    let (mut skip, mut done) = (skip, 0);
    for slice in from {
        if skip >= slice.len() {
            skip -= slice.len();
            continue;
        }
        let part = (slice.len() - skip).min(len - done);
        let Some(bytes) = slice.get(skip..skip + part) else { break };
        put(done, bytes)?;
        done += part;
        skip = 0;
        if done == len {
            break;
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn finds_what_lies_together() {
        let slices = [IoSlice::new(b"ab"), IoSlice::new(b""), IoSlice::new(b"cdef")];
        assert_eq!(contiguous(&slices, 0, 2), Some(&b"ab"[..]));
        assert_eq!(contiguous(&slices, 2, 4), Some(&b"cdef"[..]));
        assert_eq!(contiguous(&slices, 3, 2), Some(&b"de"[..]));
        assert_eq!(contiguous(&slices, 1, 2), None);
        assert_eq!(contiguous(&slices, 3, 4), None);
        assert_eq!(contiguous(&slices, 6, 0), None);
    }

    #[test]
    fn gathers_across_slices() {
        let slices = [IoSlice::new(b"ab"), IoSlice::new(b""), IoSlice::new(b"cdef"), IoSlice::new(b"gh")];
        let mut out = vec![0; 5];
        gather(&slices, 1, 5, |at, bytes| {
            out[at..at + bytes.len()].copy_from_slice(bytes);
            Ok(())
        })
        .unwrap();
        assert_eq!(out, b"bcdef");
    }
}
