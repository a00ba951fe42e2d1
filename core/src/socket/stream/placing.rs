//! riomap, riounmap and riowrite on a stream.

use std::sync::Arc;

use super::{Blocking, Phase, State, Stream};
use crate::{
    error::{Errno, Result},
    fabric::Registrar,
    socket::{account, engine::Placement, wait::Interest},
    sys::{owner::Process, program::Span},
};

/// From so many bytes on the device reads registered memory itself, and the call waits until it has (docs/decisions/0013).
const LASTING: usize = 64 << 10;

impl Stream {
    /// Maps memory: at `offset` for the peer to write to, or for this end alone.
    pub fn map(&self, memory: Span, offset: Option<u64>, blocking: Blocking) -> Result<()> {
        let registered = self.registrar(blocking)?.register(memory, offset.is_some())?;
        let mapped = {
            let mut state = self.state.lock()?;
            state.connected()?;
            let Some(engine) = state.engine.as_mut() else { return Err(Errno::PIPE) };
            let mapped = engine.map(memory, registered, offset);
            // Where somebody has to look after it, that begins with a look.
            self.pump(&mut state);
            self.hand_over(&state);
            if state.engine.as_ref().is_some_and(|engine| engine.is_exposed()) {
                self.service.take_care(self.token);
            }
            mapped
        };
        mapped.map_err(|(errno, ended)| {
            drop(ended);
            errno
        })
    }

    fn registrar(&self, blocking: Blocking) -> Result<Arc<dyn Registrar>> {
        loop {
            {
                let mut guard = self.state.lock()?;
                let state = &mut *guard;
                if state.may_transfer()? {
                    self.pump(state);
                    return state.engine.as_mut().ok_or(Errno::NOTCONN)?.registrar();
                }
                self.undecided(state, true);
            }
            self.wait(Interest::STATE, blocking, true, |state| state.phase != Phase::Connecting)?;
        }
    }

    /// Ends the oldest mapping of this memory.
    pub fn unmap(&self, memory: Span) -> Result<()> {
        let ended = {
            let mut state = self.state.lock()?;
            let ended = state.engine.as_mut().ok_or(Errno::INVAL)?.unmap(memory)?;
            self.pump(&mut state);
            self.hand_over(&state);
            ended
        };
        drop(ended);
        Ok(())
    }

    /// Writes to what the peer has mapped at `offset`, as far as that goes. `memory` is where the bytes are.
    pub fn place(&self, bytes: &[u8], memory: Span, offset: u64, blocking: Blocking) -> Result<usize> {
        let lasting = Some(memory).filter(|_| blocking != Blocking::Never && bytes.len() >= LASTING);
        let (mut done, mut number, mut first) = (0, None, true);
        let outcome = loop {
            match self.place_now(bytes, done, offset, lasting) {
                Ok(None) => {}
                Ok(Some(placement)) => {
                    done += placement.taken;
                    number = placement.number.or(number);
                    if placement.at_end || done == bytes.len() {
                        break Ok(());
                    }
                }
                Err(errno) => break Err(errno),
            }
            let blocking = if core::mem::take(&mut first) && blocking == Blocking::Never { self.first_send() } else { blocking };
            if let Err(errno) = self.wait(Interest::WRITE, blocking, done == 0, State::can_place) {
                break Err(errno);
            }
        };
        if let Some(number) = number {
            self.wait_until_placed(number)?;
        }
        match outcome {
            Err(errno) if done == 0 => Err(errno),
            _ => Ok(done),
        }
    }

    /// What can be placed at once. `None`: it is not connected yet.
    fn place_now(&self, bytes: &[u8], done: usize, offset: u64, lasting: Option<Span>) -> Result<Option<Placement>> {
        let mut guard = self.state.lock()?;
        let state = &mut *guard;
        if !state.may_transfer()? {
            self.undecided(state, true);
            return Ok(None);
        }
        // The peer may have told of mappings, and requests may be done.
        self.pump(state);
        let Some(engine) = state.engine.as_mut() else { return Err(Errno::PIPE) };
        if engine.has_error() || !engine.connection().can_write() {
            let error = if done == 0 { engine.take_error() } else { None };
            return Err(error.unwrap_or(Errno::PIPE));
        }
        let rest = bytes.get(done..).unwrap_or_default();
        let from = lasting.and_then(|memory| memory.part(done as u64, u32::try_from(rest.len()).ok()?));
        let placement = engine.place(rest, offset.saturating_add(done as u64), from)?;
        if placement.taken > 0 {
            engine.note_sent(placement.taken);
            account::sent(engine.kind(), placement.taken);
        }
        engine.note_room(!placement.at_end && placement.taken < rest.len());
        if !placement.at_end && placement.taken < rest.len() {
            engine.note_blocked();
        }
        self.hand_over(state);
        Ok(Some(placement))
    }

    /// The device reads the caller's memory: nothing but that it has done so, or that the connection is over, ends the wait.
    fn wait_until_placed(&self, number: u64) -> Result<()> {
        let process = Process::this();
        loop {
            let placed = |state: &State| state.engine.as_ref().is_none_or(|engine| engine.is_placed(number));
            match self.wait(Interest::WRITE, Blocking::Until(None), false, placed) {
                Err(Errno::INTR) if !process.has_forked() => {}
                outcome => return outcome,
            }
        }
    }
}

impl State {
    fn can_place(&self) -> bool {
        if self.phase != Phase::Up {
            return self.phase != Phase::Connecting;
        }
        let Some(engine) = &self.engine else { return true };
        let connection = engine.connection();
        engine.has_error() || !connection.can_write() || connection.placeable() > 0
    }
}
