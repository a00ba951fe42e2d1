use core::{sync::atomic::AtomicU64, time::Duration};

use super::*;
use crate::{
    fabric::sim::Random,
    sys::{
        clock,
        ppoll::{PollFd, ppoll},
    },
};

fn readable(waiter: &Borrowed) -> bool {
    let event = waiter.event_fd();
    let event = descriptor::borrow(event).unwrap();
    let mut set = [rustix::event::PollFd::new(&event, rustix::event::PollFlags::IN)];
    rustix::event::poll(&mut set, Some(&rustix::event::Timespec::default())).unwrap() == 1
}

#[test]
fn wakes_the_interested_only() {
    let sleepers = Sleepers::default();
    let (reader, writer) = (waiter(), waiter());
    sleepers.add(&reader, Interest::READ);
    sleepers.add(&writer, Interest::WRITE | Interest::STATE);
    sleepers.wake(Interest::READ);
    assert!(readable(&reader) && !readable(&writer));
    reader.reset(true);
    assert!(!readable(&reader));
    sleepers.remove(&reader);
    sleepers.wake(Interest::all());
    assert!(!readable(&reader) && readable(&writer));
    sleepers.remove(&writer);
    assert!(!sleepers.any());
}

#[test]
fn a_late_signal_ends_one_sleep_only() {
    let waiter = waiter();
    // Its flag was seen and taken back before the signal came.
    descriptor::signal(waiter.event().unwrap());
    assert!(readable(&waiter));
    waiter.reset(true);
    assert!(!readable(&waiter));
}

/// A poller that stays registered while it sleeps again and again, as in poll(2), and somebody who wakes it twice running: the
/// second time may come at any moment of its waking up.
#[test]
fn no_wake_up_is_lost_and_none_repeats() {
    const ROUNDS: u64 = 4000;
    let sleepers = Sleepers::default();
    let (given, seen) = (AtomicU64::new(0), AtomicU64::new(0));
    let waiter = waiter();
    sleepers.add(&waiter, Interest::READ);
    let mut sleeps = 0;
    let lost = std::thread::scope(|scope| {
        scope.spawn(|| {
            let mut random = Random::new(1);
            for round in 1..=ROUNDS {
                given.store(2 * round - 1, Ordering::Release);
                sleepers.wake(Interest::READ);
                let until = clock::now() + random.within(&(0..=30_000));
                while clock::now() < until {}
                given.store(2 * round, Ordering::Release);
                sleepers.wake(Interest::READ);
                while seen.load(Ordering::Acquire) < 2 * round {
                    std::thread::yield_now();
                }
            }
        });
        loop {
            let mut set = [PollFd { fd: waiter.event_fd(), events: libc::POLLIN, revents: 0 }];
            let woken = ppoll(&mut set, Some(Duration::from_secs(5)), None).unwrap() > 0;
            sleeps += 1;
            waiter.reset(set[0].revents != 0);
            let now = given.load(Ordering::Acquire);
            // An absurd number ends the other thread.
            seen.store(if woken { now } else { u64::MAX }, Ordering::Release);
            if !woken || now == 2 * ROUNDS {
                return !woken;
            }
        }
    });
    assert!(!lost, "a wake-up was lost");
    sleepers.remove(&waiter);
    assert!(sleeps <= 3 * ROUNDS, "{sleeps} sleeps");
}
