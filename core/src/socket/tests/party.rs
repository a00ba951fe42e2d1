//! One program with one stream. Between its calls it sleeps as poll(2) lets it: on the stream's sleepers and event descriptor.

use core::time::Duration;
use std::{
    io::{IoSlice, IoSliceMut},
    sync::Arc,
};

use rustix::fd::RawFd;

use super::plan::{Plan, Then};
use crate::{
    error::Errno,
    fabric::sim::Random,
    socket::{
        readiness::Readiness,
        stream::{Blocking, Phase, Stream},
        wait::{self, Borrowed, Interest},
    },
    sys::{
        clock::{self, Nanos},
        ppoll::{PollFd, ppoll},
    },
};

/// Readiness that leads to nothing, so many times running, is a lie.
const LIES: u32 = 20;

/// How long a call waits that waits, in nanoseconds.
const MOMENT: Nanos = 20_000;

/// See the module.
pub(super) struct Party {
    stream: Option<Arc<Stream>>,
    waiter: Borrowed,
    random: Random,
    /// Which of the two it is.
    pub(super) is_client: bool,
    /// The client's port: names the connection at both ends.
    pub(super) key: u64,
    pub(super) plan: Option<Plan>,
    has_begun: bool,
    /// Where it ended up if not connected.
    pub(super) phase: Phase,
    pub(super) sent: u64,
    pub(super) received: u64,
    pub(super) end_of_file: bool,
    pub(super) errors: Vec<Errno>,
    sending_over: bool,
    /// Reads nothing before this time.
    pub(super) paused_until: Option<Nanos>,
    awake: bool,
    lies: u32,
    /// Time of the last change.
    pub(super) changed_at: Nanos,
}

/// The byte at a position of a direction of a connection.
fn byte(key: u64, from_client: bool, at: u64) -> u8 {
    let mixed = (at + 1).wrapping_mul(0x9e37_79b9_7f4a_7c15) ^ (key << 1 | u64::from(from_client)).wrapping_mul(0x2545_f491_4f6c_dd1d);
    (mixed >> 29) as u8
}

/// Whether these descriptors are readable.
pub(super) fn readable<const N: usize>(fds: [RawFd; N]) -> [bool; N] {
    let mut set = fds.map(|fd| PollFd { fd, events: libc::POLLIN, revents: 0 });
    ppoll(&mut set, Some(Duration::ZERO), None).unwrap();
    set.map(|entry| entry.revents != 0)
}

impl Party {
    pub(super) fn new(stream: Arc<Stream>, is_client: bool, seed: u64) -> Self {
        let waiter = wait::waiter();
        stream.sleepers().add(&waiter, Interest::all());
        Party {
            phase: stream.phase(),
            stream: Some(stream),
            waiter,
            random: Random::new(seed),
            is_client,
            key: 0,
            plan: None,
            has_begun: false,
            sent: 0,
            received: 0,
            end_of_file: false,
            errors: Vec::new(),
            sending_over: false,
            paused_until: None,
            awake: true,
            lies: 0,
            changed_at: 0,
        }
    }

    /// The program has closed it.
    pub(super) fn is_closed(&self) -> bool {
        self.stream.is_none()
    }

    pub(super) fn stream(&self) -> &Arc<Stream> {
        self.stream.as_ref().unwrap()
    }

    /// close(2), whatever the plan says.
    pub(super) fn close(&mut self, linger: Option<Duration>) {
        if let Some(stream) = self.stream.take() {
            stream.sleepers().remove(&self.waiter);
            stream.close(linger, false);
        }
    }

    /// The program has died: nothing is called any more.
    pub(super) fn die(&mut self) {
        self.stream = None;
    }

    /// Whether it does something now; where nothing is announced it always tries.
    pub(super) fn is_awake(&mut self, announced: bool, now: Nanos) -> bool {
        let Some(stream) = &self.stream else { return false };
        if self.paused_until.is_some_and(|until| now >= until) {
            self.paused_until = None;
            self.awake = true;
        }
        if announced && !self.awake {
            let [woken, event] = readable([self.waiter.event_fd(), stream.event_fd()]);
            if event {
                stream.look_after_sleep(&self.waiter).unwrap();
            }
            self.waiter.reset(woken);
            self.awake = woken || event;
        }
        self.awake || !announced
    }

    /// Does what can be done now, and falls asleep if that is nothing. True if something has changed.
    pub(super) fn act(&mut self, plans: &dyn Fn(u64) -> (Plan, Plan), now: Nanos) -> bool {
        let progress = self.step(plans, now);
        if progress {
            self.changed_at = now;
        }
        let Some(stream) = self.stream.clone() else { return progress };
        if progress {
            self.lies = 0;
            return true;
        }
        let Ok(Readiness::Events(events)) = stream.arm_and_look(&self.waiter) else { return false };
        let ready = events & self.interest() != 0;
        self.lies = if ready { self.lies + 1 } else { 0 };
        assert!(self.lies < LIES, "ready for {events:#x} and nothing can be done: {:?}", self.status());
        self.awake = ready;
        false
    }

    fn interest(&self) -> i16 {
        let Some(plan) = &self.plan else { return libc::POLLOUT };
        let reads = self.paused_until.is_none() && !self.end_of_file;
        let writes = !self.sending_over && (!plan.answers || self.end_of_file);
        let mut interest = 0;
        if reads {
            interest |= libc::POLLIN;
        }
        if writes {
            interest |= libc::POLLOUT;
        }
        interest
    }

    fn step(&mut self, plans: &dyn Fn(u64) -> (Plan, Plan), now: Nanos) -> bool {
        let stream = Arc::clone(self.stream());
        let phase = stream.phase();
        if !self.has_begun {
            if phase == Phase::Connecting {
                return false;
            }
            self.has_begun = true;
            self.phase = phase;
            if phase != Phase::Up {
                self.close(None);
                return true;
            }
            let (local, peer) = stream.addresses().unwrap();
            self.key = u64::from(if self.is_client { local } else { peer }.unwrap().port());
            let (client, server) = plans(self.key);
            self.plan.get_or_insert(if self.is_client { client } else { server });
        }
        let Some(plan) = self.plan.clone() else { return false };
        let mut progress = self.paused_until.is_none() && !self.end_of_file && self.read(&stream, &plan, now);
        if !self.sending_over && (!plan.answers || self.end_of_file) {
            progress |= self.write(&stream, &plan);
        }
        if self.stream.is_some() && self.end_of_file && self.sending_over && !plan.keeps {
            self.close(None);
            return true;
        }
        progress
    }

    fn read(&mut self, stream: &Stream, plan: &Plan, now: Nanos) -> bool {
        let room = self.random.within(&plan.read);
        let mut bytes = vec![0xa5; usize::try_from(room).unwrap()];
        let split = if self.random.chance(500) { 0 } else { usize::try_from(self.random.number() % (room + 1)).unwrap() };
        let (first, second) = bytes.split_at_mut(split);
        let (peek, all, blocking) = (self.random.chance(50), self.random.chance(50), self.blocking(plan));
        let received = if !peek && !all && split == 0 {
            stream.receive_one(second, || blocking)
        } else {
            stream.receive(&mut [IoSliceMut::new(first), IoSliceMut::new(second)], peek, all, blocking)
        };
        match received {
            Ok(0) => self.end_of_file = true,
            Ok(count) => {
                for (at, got) in (self.received..).zip(&bytes[..count]).filter(|_| plan.trusts) {
                    assert_eq!(*got, byte(self.key, !self.is_client, at), "at {at} of {:?}", self.status());
                }
                if !peek {
                    self.received += u64::try_from(count).unwrap();
                }
                if self.random.chance(plan.pauses) {
                    self.paused_until = Some(now + self.random.within(&plan.pause));
                }
            }
            Err(Errno::AGAIN) => return false,
            Err(errno) => {
                self.errors.push(errno);
                self.end_of_file = true;
                self.sending_over = true;
            }
        }
        true
    }

    fn blocking(&mut self, plan: &Plan) -> Blocking {
        if self.random.chance(plan.waits) { Blocking::Until(Some(clock::now() + MOMENT)) } else { Blocking::Never }
    }

    fn write(&mut self, stream: &Stream, plan: &Plan) -> bool {
        let len = self.random.within(&plan.write).min(plan.send - self.sent);
        if len > 0 {
            let bytes: Vec<u8> = (self.sent..self.sent + len).map(|at| byte(self.key, self.is_client, at)).collect();
            let split = usize::try_from(self.random.number() % (len + 1)).unwrap();
            let (first, second) = bytes.split_at(split);
            let blocking = self.blocking(plan);
            let at_once = split % 2 == 0 && stream.send_at_once(&bytes);
            let slices = [IoSlice::new(first), IoSlice::new(second)];
            match if at_once { Ok(bytes.len()) } else { stream.send(&slices, blocking) } {
                Ok(count) => {
                    assert!(count > 0, "nothing was sent and nothing was wrong");
                    self.sent += u64::try_from(count).unwrap();
                }
                Err(Errno::AGAIN) => return false,
                Err(errno) => {
                    self.errors.push(errno);
                    self.sending_over = true;
                    return true;
                }
            }
        }
        if self.sent == plan.send {
            self.sending_over = true;
            match plan.then {
                Then::Read => {}
                Then::Shutdown => match stream.shutdown(false, true) {
                    Ok(()) | Err(Errno::NOTCONN) => {}
                    Err(errno) => self.errors.push(errno),
                },
                Then::Close => self.close(None),
            }
        }
        true
    }

    /// For messages.
    pub(super) fn status(&self) -> String {
        let side = if self.is_client { "client" } else { "server" };
        let (sent, received, errors) = (self.sent, self.received, &self.errors);
        let (eof, over, closed) = (self.end_of_file, self.sending_over, self.is_closed());
        format!(
            "{side} {}: {sent} sent, {received} received, end of file {eof}, sending over {over}, closed {closed}, {errors:?}",
            self.key
        )
    }
}

impl Drop for Party {
    fn drop(&mut self) {
        if let Some(stream) = &self.stream {
            stream.sleepers().remove(&self.waiter);
        }
    }
}
