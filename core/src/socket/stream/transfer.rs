//! Data in and out: recv and send, with what they wait for.

use std::io::{IoSlice, IoSliceMut};

use super::{Blocking, State, Stream};
use crate::{
    error::{Errno, Result},
    socket::{account, wait::Interest},
};

impl Stream {
    /// recv(2) with the flags MSG_PEEK and MSG_WAITALL.
    pub fn receive(&self, into: &mut [IoSliceMut<'_>], peek: bool, wait_all: bool, blocking: Blocking) -> Result<usize> {
        let wanted: usize = into.iter().map(|slice| slice.len()).sum();
        let mut done = 0;
        loop {
            match self.receive_now(into, done, wanted, peek) {
                Ok(Some(more)) => done += more,
                Ok(None) => return Ok(done),
                Err(_) if done > 0 => return Ok(done),
                Err(errno) => return Err(errno),
            }
            let enough = if wait_all && !peek { done == wanted } else { done > 0 };
            if enough || (wait_all && peek && done == wanted) {
                return Ok(done);
            }
            if peek {
                done = 0;
            }
            // A length of zero waits for data, and takes none.
            if wanted == 0 && self.state.lock()?.can_receive(1) {
                return Ok(0);
            }
            let need = if wait_all && peek { wanted } else { 1 };
            match self.wait(Interest::READ, blocking, done == 0, |state| state.can_receive(need)) {
                Ok(()) => {}
                Err(_) if done > 0 => return Ok(done),
                Err(errno) => return Err(errno),
            }
        }
    }

    /// What is there: `None` at the end of file, `Some(0)` when there is nothing yet.
    pub(super) fn receive_now(&self, into: &mut [IoSliceMut<'_>], done: usize, wanted: usize, peek: bool) -> Result<Option<usize>> {
        let mut guard = self.state.lock()?;
        let state = &mut *guard;
        if !state.may_transfer()? {
            return Ok(Some(0));
        }
        // After a failed connect there is nothing to read: end of file, as with TCP.
        let Some(engine) = state.engine.as_mut() else { return Ok(None) };
        if (engine.connection().readable() as usize) < wanted - done {
            let changed = engine.pump();
            self.sleepers.wake(changed);
        }
        let count = engine.read(into, done, !peek)?;
        if count > 0 {
            if !peek {
                engine.transmit();
                account::received(engine.endpoint().kind(), count);
            }
            self.hand_over(state);
            return Ok(Some(count));
        }
        if wanted == done {
            return Ok(Some(0));
        }
        // An error that comes after a part was taken is left for the next call, as with TCP.
        if done == 0
            && let Some(error) = engine.take_error()
        {
            return Err(error);
        }
        Ok(if engine.has_error() || engine.at_end() { None } else { Some(0) })
    }

    /// send(2). Gives what was taken; an error only if that is nothing.
    pub fn send(&self, from: &[IoSlice<'_>], blocking: Blocking) -> Result<usize> {
        let wanted: usize = from.iter().map(|slice| slice.len()).sum();
        let mut done = 0;
        loop {
            match self.send_now(from, done, wanted) {
                Ok(more) => done += more,
                Err(_) if done > 0 => return Ok(done),
                Err(errno) => return Err(errno),
            }
            if done == wanted {
                return Ok(done);
            }
            match self.wait(Interest::WRITE, blocking, done == 0, State::can_send) {
                Ok(()) => {}
                Err(_) if done > 0 => return Ok(done),
                Err(errno) => return Err(errno),
            }
        }
    }

    pub(super) fn send_now(&self, from: &[IoSlice<'_>], done: usize, wanted: usize) -> Result<usize> {
        let mut guard = self.state.lock()?;
        let state = &mut *guard;
        if !state.may_transfer()? {
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
                    None if done == 0 && engine.swallow() => Ok(wanted),
                    None => Err(Errno::PIPE),
                };
            }
            let more = engine.write(from, done + count)?;
            count += more;
            if more > 0 && round > 0 || done + count == wanted {
                break;
            }
            let changed = engine.pump();
            self.sleepers.wake(changed);
        }
        if count > 0 {
            account::sent(engine.endpoint().kind(), count);
        }
        self.hand_over(state);
        Ok(count)
    }
}
