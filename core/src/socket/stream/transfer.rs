//! Data in and out: recv and send, with what they wait for.

use core::ops::Deref;
use std::io::{IoSlice, IoSliceMut};

use super::{Blocking, Phase, State, Stream};
use crate::{
    error::{Errno, Result},
    socket::{account, spin, wait::Interest},
};

/// Bytes in all slices.
#[inline]
fn total<T: Deref<Target = [u8]>>(slices: &[T]) -> usize {
    slices.iter().map(|slice| slice.len()).sum()
}

impl Stream {
    /// recv(2) with the flags MSG_PEEK and MSG_WAITALL.
    pub fn receive(&self, into: &mut [IoSliceMut<'_>], peek: bool, wait_all: bool, blocking: Blocking) -> Result<usize> {
        self.receive_as(into, peek, wait_all, || blocking)
    }

    /// [`Stream::receive`] into one slice, and without flags: what nearly every call wants, compiled for itself.
    #[inline(always)]
    pub fn receive_one(&self, into: &mut [u8], blocking: impl FnOnce() -> Blocking) -> Result<usize> {
        self.receive_as(&mut [IoSliceMut::new(into)], false, false, blocking)
    }

    #[inline(always)]
    fn receive_as(&self, into: &mut [IoSliceMut<'_>], peek: bool, wait_all: bool, blocking: impl FnOnce() -> Blocking) -> Result<usize> {
        let wanted = total(into);
        // recv(2), MSG_WAITALL; socket(7), SO_RCVLOWAT: what is there is taken, and then waited for more.
        let least = if wait_all { wanted } else { wanted.min(self.receive_low() as usize) };
        match self.receive_now(into, 0, wanted, peek)? {
            None => Ok(0),
            Some(done) if done >= least && done > 0 => Ok(done),
            Some(done) => match blocking() {
                Blocking::Never if done == 0 && wanted > 0 => Err(Errno::AGAIN),
                blocking => self.receive_rest(into, done, wanted, peek, blocking, least),
            },
        }
    }

    /// Waits for what is missing. Apart from the rest: most calls find what they want.
    #[inline(never)]
    fn receive_rest(
        &self,
        into: &mut [IoSliceMut<'_>],
        mut done: usize,
        wanted: usize,
        peek: bool,
        blocking: Blocking,
        least: usize,
    ) -> Result<usize> {
        loop {
            // A length of zero waits for data, and takes none.
            if wanted == 0 && self.has_arrived()? {
                return Ok(0);
            }
            // A peek sees the same bytes again: it waits for one more of them.
            let need = if peek { done + 1 } else { 1 };
            match self.wait(Interest::READ, blocking, done == 0, |state| state.can_receive(need)) {
                Ok(()) => {}
                Err(_) if done > 0 => return Ok(done),
                // Who wants nothing has it, however the wait ends: TCP reports only that it would have had to wait.
                Err(Errno::AGAIN | Errno::INTR) if wanted == 0 && blocking != Blocking::Never => return Ok(0),
                Err(errno) => return Err(errno),
            }
            let taken = if peek { 0 } else { done };
            let more = match self.receive_again(into, taken, wanted, peek) {
                Ok(Some(more)) => more,
                Ok(None) => return Ok(done),
                Err(_) if done > 0 => return Ok(done),
                Err(errno) => return Err(errno),
            };
            // A peek that was woken and finds nothing new has come to the end.
            if peek && more > 0 && more == done || taken + more >= least && taken + more > 0 {
                return Ok(taken + more);
            }
            done = taken + more;
        }
    }

    /// Whether there is something, or the end, to be received.
    fn has_arrived(&self) -> Result<bool> {
        let mut state = self.state.lock()?;
        self.pump(&mut state);
        Ok(state.can_receive(1))
    }

    /// [`Stream::receive_now`] for those who have waited.
    #[inline(never)]
    fn receive_again(&self, into: &mut [IoSliceMut<'_>], done: usize, wanted: usize, peek: bool) -> Result<Option<usize>> {
        self.receive_now(into, done, wanted, peek)
    }

    /// What is there: `None` at the end of file, `Some(0)` when there is nothing yet.
    #[inline(always)]
    fn receive_now(&self, into: &mut [IoSliceMut<'_>], done: usize, wanted: usize, peek: bool) -> Result<Option<usize>> {
        let mut guard = self.state.lock()?;
        let state = &mut *guard;
        if !state.may_transfer()? {
            self.undecided(state, false);
            return Ok(Some(0));
        }
        // After a failed connect there is nothing to read: end of file, as with TCP.
        let Some(engine) = state.engine.as_mut() else { return Ok(None) };
        if (engine.connection().readable() as usize) < wanted - done {
            if engine.is_on_its_heels() {
                spin::hold_back(engine.waits_beside_peer());
            }
            let changed = engine.take_in();
            self.sleepers.wake(changed);
            if engine.lags() {
                self.service.take_care(self.token);
            }
            if !changed.is_empty() && engine.connection().readable() == 0 {
                engine.transmit();
            }
        }
        let count = match &mut *into {
            [slice] if !peek => engine.take(slice.get_mut(done..).unwrap_or_default())?,
            slices => engine.read(slices, done, !peek)?,
        };
        if count > 0 {
            if !peek {
                engine.note_taken(count);
                account::received(engine.kind(), count);
                self.note_read();
            }
            if engine.connection().may_have_work() {
                engine.transmit();
                self.hand_over(state);
            } else {
                self.hand_over_if(engine.is_waiting(), state);
            }
            return Ok(Some(count));
        }
        if wanted == done {
            return Ok(Some(0));
        }
        // An error that comes after a part was taken is left for the next call, as with TCP.
        if done == 0
            && let Some(error) = engine.take_read_error()
        {
            return Err(error);
        }
        Ok(if engine.has_error() || engine.at_end() { None } else { Some(0) })
    }

    /// send(2) of bytes that can go as one message, and before which nothing waits: what nearly every call comes to. False: nothing was done,
    /// and [`Stream::send`] knows what to do.
    #[inline(always)]
    pub fn send_at_once(&self, from: &[u8]) -> bool {
        let Ok(mut guard) = self.state.lock() else { return false };
        let state = &mut *guard;
        if state.phase != Phase::Up {
            return false;
        }
        let Some(engine) = state.engine.as_mut().filter(|engine| !engine.has_error()) else { return false };
        if !engine.send_at_once(from) {
            return false;
        }
        engine.note_sent(from.len());
        account::sent(engine.kind(), from.len());
        engine.note_room(false);
        // The protocol has nothing else to send, or it would have gone before.
        self.hand_over_if(engine.is_waiting(), state);
        true
    }

    /// send(2). Gives what was taken; an error only if that is nothing.
    pub fn send(&self, from: &[IoSlice<'_>], blocking: Blocking) -> Result<usize> {
        let wanted = total(from);
        if wanted == 0 {
            // As much as anything, nothing is sent over a connection only.
            self.wait_until_connected(blocking)?;
        }
        let done = self.send_now(from, 0, wanted)?;
        if done == wanted { Ok(done) } else { self.send_rest(from, done, wanted, blocking) }
    }

    /// What can be sent at once, in one message, waiting until that is something. The errors are those that send would give; where there is
    /// neither, as after the peer's end, send knows what to do.
    pub fn room(&self, blocking: Blocking) -> Result<usize> {
        loop {
            if let Some(room) = self.room_now()? {
                return Ok(room);
            }
            self.wait(Interest::WRITE, blocking, true, State::can_send)?;
        }
    }

    fn room_now(&self) -> Result<Option<usize>> {
        let mut guard = self.state.lock()?;
        let state = &mut *guard;
        if !state.may_transfer()? {
            self.undecided(state, true);
            return Ok(None);
        }
        self.pump(state);
        let Some(engine) = state.engine.as_mut() else { return Err(Errno::PIPE) };
        if let Some(error) = engine.take_error() {
            return Err(error);
        }
        let connection = engine.connection();
        match (connection.can_write(), engine.write_shut()) {
            (true, _) => Ok(Some(connection.writable() as usize).filter(|room| *room > 0)),
            (false, true) => Err(Errno::PIPE),
            (false, false) => Ok(Some(usize::MAX)),
        }
    }

    #[cold]
    fn wait_until_connected(&self, blocking: Blocking) -> Result<()> {
        let stands = |state: &State| state.phase != Phase::Connecting;
        if stands(&*self.state.lock()?) { Ok(()) } else { self.wait(Interest::STATE, blocking, true, stands) }
    }

    /// Waits for room for what is left. Apart from the rest: most calls find room.
    #[inline(never)]
    fn send_rest(&self, from: &[IoSlice<'_>], mut done: usize, wanted: usize, blocking: Blocking) -> Result<usize> {
        let blocking = if blocking == Blocking::Never && done == 0 { self.first_send() } else { blocking };
        while done < wanted {
            let sent = self.wait(Interest::WRITE, blocking, done == 0, State::can_send).and_then(|()| self.send_now(from, done, wanted));
            match sent {
                Ok(more) => done += more,
                Err(_) if done > 0 => break,
                Err(errno) => return Err(errno),
            }
        }
        Ok(done)
    }

    /// What can be sent now. Gives how many bytes were taken.
    fn send_now(&self, from: &[IoSlice<'_>], done: usize, wanted: usize) -> Result<usize> {
        let mut guard = self.state.lock()?;
        let state = &mut *guard;
        if !state.may_transfer()? {
            self.undecided(state, true);
            return Ok(0);
        }
        let Some(engine) = state.engine.as_mut() else { return Err(Errno::PIPE) };
        let mut count = 0;
        // A second round with what the completions have freed.
        for round in 0..2 {
            if engine.has_error() || !engine.connection().can_write() {
                if count > 0 {
                    break;
                }
                // As in receive_now: a call that has taken a part reports that, and the next one the error.
                let error = if done == 0 { engine.take_error() } else { None };
                return match error {
                    Some(error) => Err(error),
                    None if done == 0 && engine.swallow(wanted) => {
                        // Both directions are over now.
                        self.sleepers.wake(Interest::all());
                        Ok(wanted)
                    }
                    None => Err(Errno::PIPE),
                };
            }
            let more = engine.write(from, done + count, wanted - done - count)?;
            count += more;
            if more > 0 && round > 0 || done + count == wanted {
                break;
            }
            let changed = engine.pump();
            self.sleepers.wake(changed);
        }
        if count > 0 {
            engine.note_sent(count);
            account::sent(engine.kind(), count);
        }
        engine.note_room(done + count < wanted);
        if done + count < wanted {
            engine.note_blocked();
        }
        self.hand_over(state);
        Ok(count)
    }
}
