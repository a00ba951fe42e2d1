//! How requests travel between the two sides of a simulated connection, and how they complete.

use super::world::{Action, End, FIRST_WORD, Flight, Phase, Role, World};
use crate::{
    error::{Errno, Result},
    sys::descriptor,
    wire::Sge,
    work::{Completion, MessageMode, Operation, Payload, RemoteAddress, TransportError, WorkRequest},
};

impl World {
    pub(super) fn post_sends(&mut self, end: End, work: &[WorkRequest]) -> Result<()> {
        let side = self.side(end).filter(|side| !side.gone).ok_or(Errno::NODEV)?;
        let (phase, room) = (side.phase, side.limits.send_queue);
        if side.broken {
            work.iter().for_each(|_| self.complete(end, Completion::Failed(TransportError::Flushed)));
            return Ok(());
        }
        if phase != Phase::Established {
            self.violation(end, format_args!("posted in {phase:?}"));
            return Err(Errno::INVAL);
        }
        let speaks_first = end.role == Role::Passive && side.limits.mode == MessageMode::Send && !side.heard;
        let (up_at, outstanding) = (side.up_at, side.outstanding.len() + work.len());
        if speaks_first && self.settings.first_word && self.now < up_at + FIRST_WORD {
            self.violation(end, format_args!("an acceptor on iWARP sends before its peer has"));
        }
        if outstanding > usize::try_from(room).unwrap_or(usize::MAX) {
            self.violation(end, format_args!("{outstanding} requests outstanding, the queue has {room}"));
            return Err(Errno::NOMEM);
        }
        if let Some(fault) = self.fault_of(end, work) {
            self.violation(end, format_args!("{fault}"));
            return Err(Errno::INVAL);
        }
        for request in work {
            self.post(end, *request)?;
        }
        Ok(())
    }

    /// What is wrong with these requests.
    fn fault_of(&mut self, end: End, work: &[WorkRequest]) -> Option<String> {
        let side = self.side(end)?;
        let area = u64::try_from(side.memory.send.len()).unwrap_or(u64::MAX);
        let mut last = side.last_id;
        for request in work {
            if last.is_some_and(|last| request.id <= last) {
                return Some(format!("id {} after {last:?}", request.id));
            }
            last = Some(request.id);
            if let Payload::SendArea { offset, len } = request.payload {
                let outside = u64::from(offset) + u64::from(len) > area;
                if outside || len == 0 {
                    return Some(format!("payload {offset}+{len} of a send area of {area}"));
                }
            }
        }
        None
    }

    fn post(&mut self, end: End, work: WorkRequest) -> Result<()> {
        self.note(format_args!("{end:?} post {work:?}"));
        let side = self.side(end).ok_or(Errno::NODEV)?;
        side.last_id = Some(work.id);
        side.outstanding.push_back(work.id);
        let limits = side.limits;
        let mode = limits.mode;
        let inline = if work.payload.len() <= limits.inline { Some(self.bytes_of(end, &work.payload)?) } else { None };
        let other_mode = match work.operation {
            Operation::Write { .. } => false,
            Operation::WriteWithImmediate { .. } => mode == MessageMode::Send,
            Operation::Send => mode == MessageMode::Immediate,
        };
        if other_mode {
            self.violation(end, format_args!("{:?} in mode {mode:?}", work.operation));
        }
        self.send(end, Flight::Work { work, inline });
        Ok(())
    }

    /// Puts something on the way; it arrives after what was sent before.
    pub(super) fn send(&mut self, end: End, flight: Flight) {
        let delay = self.random.within(&self.settings.timing.wire.clone());
        let now = self.now;
        let Some(side) = self.side(end) else { return };
        let time = side.lane_last.max(now + delay);
        side.lane_last = time;
        side.lane.push_back((time, flight));
        self.schedule(time, Action::Advance(end));
    }

    pub(super) fn post_receives(&mut self, end: End, count: u32) -> Result<()> {
        let side = self.side(end).filter(|side| !side.gone).ok_or(Errno::NODEV)?;
        if side.broken {
            (0..count).for_each(|_| self.complete(end, Completion::Failed(TransportError::Flushed)));
            return Ok(());
        }
        let outstanding = side.receives.saturating_add(side.unpolled).saturating_add(count);
        let room = side.limits.receive_queue;
        if outstanding > room {
            self.violation(end, format_args!("{outstanding} receives outstanding, the queue has {room}"));
            return Err(Errno::NOMEM);
        }
        side.receives += count;
        if let Some(sender) = self.side(end.other()).filter(|sender| sender.starved) {
            sender.starved = false;
            let time = self.now + self.random.within(&self.settings.timing.receiver_not_ready.clone());
            self.schedule(time, Action::Advance(end.other()));
        }
        Ok(())
    }

    pub(super) fn poll(&mut self, end: End, out: &mut [Completion]) -> usize {
        let Some(side) = self.side(end) else { return 0 };
        let mut count = 0;
        for slot in out {
            let Some(completion) = side.completions.pop_front() else { break };
            match completion {
                Completion::Received { .. } | Completion::ReceivedMalformed { .. } => side.unpolled = side.unpolled.saturating_sub(1),
                Completion::Sent { id } => {
                    while side.outstanding.front().is_some_and(|first| *first <= id) {
                        side.outstanding.pop_front();
                    }
                }
                Completion::Failed(_) => {}
            }
            *slot = completion;
            count += 1;
        }
        count
    }

    /// Lets arrive what is due, as far as the other side takes it.
    pub(super) fn advance(&mut self, end: End) {
        while let Some(flight) = self.due(end) {
            match flight {
                Flight::Disconnect => self.disconnect_arrives(end),
                Flight::Work { work, inline } => self.deliver(end, &work, inline),
            }
        }
    }

    /// Takes the first request off the lane, if it can be delivered now.
    fn due(&mut self, end: End) -> Option<Flight> {
        let reaches = self.linked(end) && self.side(end.other()).is_some_and(|side| !side.gone);
        let receives = self.side(end.other()).map_or(0, |side| side.receives);
        let (now, retry) = (self.now, self.settings.timing.retry);
        let side = self.side(end).filter(|side| !side.gone && !side.starved)?;
        let (_, flight) = side.lane.front().filter(|(time, _)| *time <= now)?;
        if !reaches {
            if !core::mem::replace(&mut side.retrying, true) {
                self.schedule(now + retry, Action::RetryTimeout(end));
            }
            return None;
        }
        let needs_receive = matches!(flight, Flight::Work { work, .. } if !matches!(work.operation, Operation::Write { .. }));
        if needs_receive && receives == 0 {
            side.starved = true;
            self.not_ready += 1;
            self.note(format_args!("{end:?} finds no receive"));
            return None;
        }
        side.lane.pop_front().map(|(_, flight)| flight)
    }

    fn deliver(&mut self, end: End, work: &WorkRequest, inline: Option<Vec<u8>>) {
        let Some(sender) = self.side(end) else { return };
        let mode = sender.limits.mode;
        // Not before now: who has changed the bytes meanwhile has changed what arrives.
        let Ok(bytes) = inline.map_or_else(|| self.bytes_of(end, &work.payload), Ok) else { return };
        let len = work.payload.len();
        let (placed, message) = match work.operation {
            Operation::Write { to } => (self.place(end.other(), to, &bytes), None),
            Operation::WriteWithImmediate { to, immediate } => {
                let received = Completion::Received { message: immediate };
                let malformed = Completion::ReceivedMalformed { len };
                (self.place(end.other(), to, &bytes), Some(if mode == MessageMode::Immediate { received } else { malformed }))
            }
            Operation::Send => {
                let message = <[u8; 4]>::try_from(bytes.as_slice()).ok().filter(|_| mode == MessageMode::Send);
                let received = message.map(|message| Completion::Received { message: u32::from_ne_bytes(message) });
                (true, Some(received.unwrap_or(Completion::ReceivedMalformed { len })))
            }
        };
        let sum = bytes.iter().fold(0_u64, |sum, byte| sum.wrapping_mul(31).wrapping_add(u64::from(*byte)));
        self.note(format_args!("{end:?} arrived {} placed {placed} {len} bytes {sum:x}", work.id));
        if !placed {
            self.break_off(end, Some(TransportError::RemoteAccess));
            return self.break_off(end.other(), None);
        }
        if let Some(message) = message {
            if let Some(receiver) = self.side(end.other()) {
                receiver.receives = receiver.receives.saturating_sub(1);
                receiver.unpolled += 1;
                receiver.heard = true;
            }
            self.complete(end.other(), message);
        }
        if work.signaled {
            self.complete(end, Completion::Sent { id: work.id });
        }
    }

    /// Writes into the memory that this end exposes. False: the access is not allowed, nothing was written.
    fn place(&mut self, end: End, to: RemoteAddress, bytes: &[u8]) -> bool {
        let Some(side) = self.side(end) else { return false };
        let offset_in = |area: &Sge| {
            let offset = to.addr.checked_sub(area.addr).filter(|_| to.key == area.key)?;
            let stop = offset.checked_add(u64::try_from(bytes.len()).ok()?)?;
            if stop <= u64::from(area.length) { usize::try_from(offset).ok() } else { None }
        };
        let written = match (offset_in(&side.exposed.receive), offset_in(&side.exposed.targets)) {
            // Hardware does not look at address and key of an empty write.
            _ if bytes.is_empty() => Ok(()),
            (Some(offset), _) => side.memory.receive.write(offset, bytes),
            (None, Some(offset)) => side.memory.targets.write(offset, bytes),
            (None, None) => self.lent.write(end, to, bytes),
        };
        written.is_ok()
    }

    /// Schedules a completion, after those before.
    pub(super) fn complete(&mut self, end: End, completion: Completion) {
        let delay = self.random.within(&self.settings.timing.completion.clone());
        let now = self.now;
        let Some(side) = self.side(end).filter(|side| !side.gone) else { return };
        let time = side.completion_last.max(now + delay);
        side.completion_last = time;
        self.schedule(time, Action::Complete(end, completion));
    }

    pub(super) fn completed(&mut self, end: End, completion: Completion) {
        self.note(format_args!("{end:?} {completion:?}"));
        if let Some(side) = self.side(end) {
            side.completions.push_back(completion);
            if let Some(event) = side.event.as_ref().filter(|_| core::mem::take(&mut side.armed)) {
                descriptor::signal(&**event);
            }
        }
    }

    /// Puts the queue pair into its error state: a request fails with `error`, everything else that is posted is flushed.
    pub(super) fn break_off(&mut self, end: End, error: Option<TransportError>) {
        let Some(side) = self.side(end).filter(|side| !side.broken && !side.gone) else { return };
        side.broken = true;
        let receives = usize::try_from(core::mem::take(&mut side.receives)).unwrap_or(usize::MAX);
        if error == Some(TransportError::RetryExceeded) && matches!(side.lane.front(), Some((_, Flight::Work { .. }))) {
            side.lane.pop_front();
        }
        let requests = side.lane.iter().filter(|(_, flight)| matches!(flight, Flight::Work { .. })).count();
        // The connection manager gets through where the queue pair does not.
        side.lane.retain(|(_, flight)| matches!(flight, Flight::Disconnect));
        side.starved = false;
        self.note(format_args!("{end:?} broken {error:?}"));
        if let Some(error) = error {
            self.complete(end, Completion::Failed(error));
        }
        for _ in 0..requests + receives {
            self.complete(end, Completion::Failed(TransportError::Flushed));
        }
    }

    /// The bytes of a payload as they are now.
    fn bytes_of(&mut self, end: End, payload: &Payload) -> Result<Vec<u8>> {
        match *payload {
            Payload::Empty => Ok(Vec::new()),
            Payload::Bytes { bytes, len } => Ok(bytes.get(..usize::from(len)).unwrap_or(&bytes).to_vec()),
            Payload::Registered { addr, key, len } => {
                let bytes = self.lent.read(end, RemoteAddress { addr, key }, len);
                if let Err(errno) = bytes {
                    self.violation(end, format_args!("{len} bytes of memory {key:#x} are not to be had: {errno}"));
                }
                bytes
            }
            Payload::SendArea { offset, len } => {
                let size = |value: u32| usize::try_from(value).map_err(|_| Errno::FAULT);
                let mut bytes = vec![0; size(len)?];
                self.side(end).ok_or(Errno::NODEV)?.memory.send.read(size(offset)?, &mut bytes)?;
                Ok(bytes)
            }
        }
    }
}
