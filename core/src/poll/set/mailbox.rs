//! Who in a set has to be looked at: sockets post the names of members here, under locks of their own.

use core::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::{
    os::fd::RawFd,
    sync::{Arc, OnceLock, Weak},
};

use rustix::fd::AsRawFd;

use super::Set;
use crate::{
    error::Result,
    socket::{Socket, wait::Watcher},
    stats::{self, Counter},
    sys::{
        descriptor::{self, OwnFd},
        lock::{Leaf, LeafGuard},
        own,
    },
};

/// See the module. A leaf lock.
#[derive(Default)]
pub(super) struct Mailbox {
    mail: Leaf<Mail>,
    /// Threads in waits that were left to the kernel, when there was no member.
    in_kernel: AtomicU32,
    /// Readable while somebody who sleeps, or polls the set, should look.
    wake: OnceLock<OwnFd>,
}

#[derive(Default)]
struct Mail {
    /// Members to look at, each once.
    names: Vec<u64>,
    /// Threads that sleep in the set.
    sleeping: u32,
    /// Those who poll the set, and sets that it is in.
    watching: u32,
    /// `wake` is readable, or will be at once.
    signalled: bool,
}

impl Mailbox {
    /// The descriptor that is readable when there is mail for somebody who sleeps.
    pub(super) fn open(&self) -> Result<RawFd> {
        if self.wake.get().is_none() {
            let event = descriptor::own_event()?;
            let _ = self.wake.set(event);
        }
        Ok(self.wake.get().map_or(-1, AsRawFd::as_raw_fd))
    }

    /// See [`Set::let_go`].
    pub(super) fn let_go(&self) {
        if let Some(wake) = self.wake.get() {
            own::close(wake.as_raw_fd());
        }
    }

    fn mail(&self) -> LeafGuard<'_, Mail> {
        self.mail.lock()
    }

    fn signal(&self, mail: &mut Mail) {
        if !core::mem::replace(&mut mail.signalled, true)
            && let Some(wake) = self.wake.get()
        {
            stats::add(Counter::WakeUps, 1);
            descriptor::signal(wake);
        }
    }

    /// This member is to be looked at, unless that is known.
    pub(super) fn post(&self, member: &Member) {
        if member.queued.swap(true, Ordering::AcqRel) {
            return;
        }
        let mut mail = self.mail();
        mail.names.push(member.name);
        if self.wakes_somebody(&mail) {
            self.signal(&mut mail);
        }
    }

    fn wakes_somebody(&self, mail: &Mail) -> bool {
        mail.sleeping > 0 || mail.watching > 0 || self.in_kernel.load(Ordering::SeqCst) > 0
    }

    /// A wait is left to the kernel, or comes back from there. Whoever cares whether there are members looks after the first.
    pub(super) fn kernel_waits(&self, waits: bool) {
        if waits {
            self.in_kernel.fetch_add(1, Ordering::SeqCst);
        } else {
            // Not below none: the number may have been given to another set meanwhile.
            let _ = self.in_kernel.fetch_update(Ordering::SeqCst, Ordering::SeqCst, |waits| waits.checked_sub(1));
        }
    }

    /// Takes all names.
    pub(super) fn take(&self, into: &mut impl Extend<u64>) {
        let mut mail = self.mail();
        if !mail.names.is_empty() {
            into.extend(mail.names.drain(..));
        }
    }

    /// A thread goes to sleep, unless there is mail.
    pub(super) fn go_to_sleep(&self) -> bool {
        let mut mail = self.mail();
        let sleeps = mail.names.is_empty();
        mail.sleeping += u32::from(sleeps);
        sleeps
    }

    /// It has woken up.
    pub(super) fn wake_up(&self) {
        let mut mail = self.mail();
        mail.sleeping = mail.sleeping.saturating_sub(1);
    }

    /// Somebody polls the set, or no longer.
    pub(super) fn watched(&self, on: bool) {
        let mut mail = self.mail();
        mail.watching = if on { mail.watching + 1 } else { mail.watching.saturating_sub(1) };
    }

    /// Whether others than the caller rely on being woken.
    pub(super) fn is_relied_on(&self) -> bool {
        self.wakes_somebody(&self.mail())
    }

    /// There is, or is not, something for those who sleep or poll.
    pub(super) fn show(&self, ready: bool) {
        let mut mail = self.mail();
        if ready {
            // Once more for those who were woken by the last signal and have left it: the set's own is edge-triggered.
            mail.signalled = false;
            self.signal(&mut mail);
        } else if mail.names.is_empty() {
            self.unsignal(&mut mail);
        }
    }

    /// The signal was seen: a look at the mail follows.
    pub(super) fn seen(&self) {
        self.unsignal(&mut self.mail());
    }

    fn unsignal(&self, mail: &mut Mail) {
        if core::mem::take(&mut mail.signalled)
            && let Some(wake) = self.wake.get()
        {
            descriptor::drain(wake);
        }
    }
}

/// A member, as its socket knows it.
pub(super) struct Member {
    /// Its name in the set, never used again.
    pub(super) name: u64,
    /// Its name is in the mailbox or among the hot ones.
    pub(super) queued: AtomicBool,
    /// Its socket was closed by a signal handler that had interrupted its thread at work on the set: the next look takes it out.
    pub(super) gone: AtomicBool,
    mailbox: Arc<Mailbox>,
    set: Weak<Set>,
}

impl Member {
    pub(super) fn new(name: u64, mailbox: &Arc<Mailbox>, set: Weak<Set>) -> Self {
        Member { name, queued: AtomicBool::new(false), gone: AtomicBool::new(false), mailbox: Arc::clone(mailbox), set }
    }
}

impl Watcher for Member {
    fn changed(&self) {
        self.mailbox.post(self);
    }

    fn became(&self, socket: &Socket) {
        if let Some(set) = self.set.upgrade() {
            set.became(self.name, socket);
        }
    }

    fn number_closed(&self, fd: RawFd) {
        if let Some(set) = self.set.upgrade() {
            set.number_closed(self.name, fd);
        }
    }

    fn closed(&self) {
        if let Some(set) = self.set.upgrade()
            && set.closed(self.name).is_err()
        {
            self.gone.store(true, Ordering::Release);
            self.mailbox.post(self);
        }
    }
}
