//! Streams between two sides of every kind, in every order of events.

use proptest::prelude::*;

use super::{
    maps::MapPlan,
    pair::{End, Pair, Plan},
};
use crate::{protocol::stream::DEFAULT_MAX_WRITE, work::MessageMode};

/// Cases of each property.
const CASES: u32 = 5_000;

fn queue() -> impl Strategy<Value = u16> {
    prop_oneof![4 => 16_u16..=40, 2 => 16_u16..=400, 1 => 400_u16..=65534]
}

fn size() -> impl Strategy<Value = u32> {
    prop_oneof![4 => 32_u32..=200, 2 => 32_u32..=4096, 1 => 4096_u32..=65536].prop_map(|half| 2 * half)
}

fn end() -> impl Strategy<Value = End> {
    prop_oneof![3 => Just(End::Nothing), 3 => Just(End::Shutdown), 1 => Just(End::Close)]
}

fn plan() -> impl Strategy<Value = Plan> {
    let sizes = (size(), size(), prop_oneof![Just(DEFAULT_MAX_WRITE), 1_u32..=1000]);
    let amount = (prop_oneof![1_u32..=4, 1_u32..=100, 1_u32..=20_000], 0_usize..=200);
    (any::<bool>(), queue(), 16_u32..=64, sizes, amount, end()).prop_map(|(big_endian, receive_queue, send_queue, sizes, amount, end)| {
        let (send_bytes, receive_bytes, max_write) = sizes;
        let (chunk, messages) = amount;
        // Bytes in so many messages, of half the chunk on average.
        let total = messages * (chunk.min(max_write).min(send_bytes) as usize).div_ceil(2);
        Plan { big_endian, receive_queue, send_queue, send_bytes, receive_bytes, max_write, total, chunk, end, maps: MapPlan::NONE }
    })
}

fn run(plans: [Plan; 2], mode: MessageMode, seed: u64) {
    let mut pair = Pair::new(plans, mode, seed);
    pair.run_random(600);
    pair.run_to_the_end();
    pair.check_end();
}

proptest! {
    #![proptest_config(ProptestConfig { cases: CASES, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn streams_by_writes_with_immediate(a in plan(), b in plan(), seed: u64) {
        run([a, b], MessageMode::Immediate, seed);
    }

    #[test]
    fn streams_by_writes_and_sends(a in plan(), b in plan(), seed: u64) {
        run([a, b], MessageMode::Send, seed);
    }
}

const PLAIN: Plan = Plan {
    big_endian: false,
    receive_queue: 384,
    send_queue: 384,
    send_bytes: 128 << 10,
    receive_bytes: 128 << 10,
    max_write: DEFAULT_MAX_WRITE,
    total: 0,
    chunk: 1,
    end: End::Shutdown,
    maps: MapPlan::NONE,
};

#[test]
fn message_counters_wrap() {
    for (receive_queue, mode) in [(16, MessageMode::Immediate), (384, MessageMode::Send), (65534, MessageMode::Immediate)] {
        let sender = Plan { total: 150_000, receive_queue, ..PLAIN };
        let receiver = Plan { total: 70_000, receive_queue, big_endian: true, ..PLAIN };
        let mut pair = Pair::new([sender, receiver], mode, 7);
        pair.run_to_the_end();
        pair.check_end();
        assert_eq!(pair.sides[0].data_posted, 150_000, "one byte a message, twice round");
    }
}

#[test]
fn bulk_data_flows() {
    let sender = Plan { total: 8 << 20, chunk: 1 << 20, ..PLAIN };
    let mut pair = Pair::new([sender, PLAIN], MessageMode::Immediate, 1);
    pair.run_to_the_end();
    pair.check_end();
    assert!(pair.sides[0].data_posted < 512, "{} messages for 128 buffers", pair.sides[0].data_posted);
}
