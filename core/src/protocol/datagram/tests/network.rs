//! Hosts on a network that loses, doubles and delays, with plain peers, and with forgers that may say anything in their own name, and
//! headers of anybody's.

use std::collections::{HashMap, HashSet};

use proptest::prelude::*;

use super::*;

const HOSTS: u8 = 4;
const PLAIN_HOST: u8 = 3;
const FORGER: u8 = 9;
const CAPACITY: usize = 3;

fn host(number: u8) -> SocketAddr {
    SocketAddr::from(([10, 0, 0, number], 7000 + u16::from(number)))
}

/// A handle is made for a path to an address.
type Handle = SocketAddr;

struct Host {
    known: Destinations<Handle>,
    queue_pair: u32,
    living: usize,
}

#[derive(Clone)]
struct Flying {
    from: SocketAddr,
    to: u8,
    /// A UD message, and to which queue pair.
    queue_pair: Option<u32>,
    bytes: Vec<u8>,
}

#[derive(Clone, Debug)]
enum Step {
    Send(u8, u8, u16),
    Deliver(usize),
    Lose(usize),
    Double(usize),
    Resolve(bool),
    Restart(u8),
    Forge(u8, u8, u32, bool),
    Noise(u8, Vec<u8>, bool),
    Wait(u64),
}

fn step() -> impl Strategy<Value = Step> {
    let any_host = || 0..HOSTS;
    prop_oneof![
        6 => (any_host(), any_host(), prop_oneof![Just(10_u16), any::<u16>()]).prop_map(|(a, b, len)| Step::Send(a, b, len)),
        8 => any::<usize>().prop_map(Step::Deliver),
        1 => any::<usize>().prop_map(Step::Lose),
        1 => any::<usize>().prop_map(Step::Double),
        4 => any::<bool>().prop_map(Step::Resolve),
        1 => any_host().prop_map(Step::Restart),
        2 => (any_host(), 0..=FORGER, any::<u32>(), any::<bool>()).prop_map(|(to, name, queue, data)| Step::Forge(to, name, queue, data)),
        1 => (any_host(), any::<Vec<u8>>(), any::<bool>()).prop_map(|(to, bytes, ud)| Step::Noise(to, bytes, ud)),
        1 => (0..30 * SECOND).prop_map(Step::Wait),
    ]
}

struct Network {
    hosts: Vec<Host>,
    flying: Vec<Flying>,
    resolving: Vec<(u8, Resolve)>,
    /// Every queue pair that a host has ever had.
    pairs: HashMap<u32, u8>,
    /// Headers that the plain host has got from each.
    headers: HashMap<SocketAddr, u32>,
    now: Nanos,
}

impl Network {
    fn new() -> Self {
        let mut network = Network {
            hosts: Vec::new(),
            flying: Vec::new(),
            resolving: Vec::new(),
            pairs: HashMap::new(),
            headers: HashMap::new(),
            now: 0,
        };
        for number in 0..HOSTS {
            let queue_pair = network.pair(number);
            network.hosts.push(Host { known: Destinations::new(CAPACITY), queue_pair, living: 0 });
        }
        network
    }

    fn pair(&mut self, number: u8) -> u32 {
        let pair = 100 + self.pairs.len() as u32;
        self.pairs.insert(pair, number);
        pair
    }

    fn send(&mut self, from: u8, to: u8, len: usize) {
        let now = self.now;
        let (source, destination) = (host(from), host(to));
        let Some(sender) = self.hosts.get_mut(from as usize) else { return };
        let way = if from == PLAIN_HOST { Way::Plain } else { sender.known.send(destination, len, 2048, now) };
        let data = vec![7; len];
        let (queue_pair, bytes) = match way {
            Way::Plain => (None, data),
            Way::Asking => (None, tagged(Operation::Data, sender.queue_pair, source, &data)),
            Way::Queue(handle, queue_pair) => {
                assert_eq!(handle, destination, "the path of another destination");
                assert!(len + 8 <= 2048);
                // Only the destination itself names its queue pairs.
                assert_eq!(self.pairs.get(&queue_pair), Some(&to), "somebody else's queue pair");
                (Some(queue_pair), message(source, &data))
            }
        };
        self.flying.push(Flying { from: source, to, queue_pair, bytes });
    }

    fn deliver(&mut self, at: usize) {
        let Flying { from, to, queue_pair, bytes } = self.flying.remove(at);
        let now = self.now;
        if to == PLAIN_HOST {
            *self.headers.entry(from).or_default() += u32::from(UdpHeader::parse(&bytes).is_some());
            return;
        }
        let host_of = host(to);
        let receiver = &mut self.hosts[to as usize];
        if let Some(queue_pair) = queue_pair {
            // Queue pairs of before a restart are gone.
            if queue_pair == receiver.queue_pair || queue_pair == 0 {
                let got = receiver.known.message(&bytes, now);
                assert!(got.is_none_or(|(_, from)| from <= bytes.len()));
            }
            return;
        }
        let arrival = receiver.known.datagram(from, &bytes, now);
        assert!(arrival.deliver_from.is_none_or(|from| from <= bytes.len()));
        if let Some(resolve) = arrival.resolve {
            assert_eq!(resolve.destination, from);
            self.resolving.push((to, resolve));
        }
        if arrival.answer {
            let answer = tagged(Operation::Control, receiver.queue_pair, host_of, b"");
            if let Some(number) = (0..HOSTS).find(|number| host(*number) == from) {
                self.flying.push(Flying { from: host_of, to: number, queue_pair: None, bytes: answer });
            }
        }
        assert!(receiver.known.len() <= CAPACITY);
    }

    fn resolve(&mut self, found: bool) {
        if self.resolving.is_empty() {
            return;
        }
        let (number, resolve) = self.resolving.remove(0);
        let of = &mut self.hosts[number as usize];
        of.living += usize::from(found);
        of.known.resolved(resolve, found.then_some(resolve.destination), self.now);
    }

    fn step(&mut self, step: Step) {
        match step {
            Step::Send(from, to, len) => self.send(from, to, usize::from(len)),
            Step::Deliver(at) if !self.flying.is_empty() => self.deliver(at % self.flying.len().min(4)),
            Step::Lose(at) if !self.flying.is_empty() => drop(self.flying.remove(at % self.flying.len())),
            Step::Double(at) if !self.flying.is_empty() => self.flying.push(self.flying[at % self.flying.len()].clone()),
            Step::Deliver(_) | Step::Lose(_) | Step::Double(_) => {}
            Step::Resolve(found) => self.resolve(found),
            Step::Restart(number) => {
                let queue_pair = self.pair(number);
                self.hosts[number as usize] = Host { known: Destinations::new(CAPACITY), queue_pair, living: 0 };
                self.resolving.retain(|(of, _)| *of != number);
            }
            Step::Forge(to, name, queue_pair, data) => {
                // A forger has a source of its own, and says what it likes.
                let operation = if data { Operation::Data } else { Operation::Control };
                let bytes = tagged(operation, queue_pair | 1 << 20, host(name), b"forged");
                self.flying.push(Flying { from: host(FORGER), to, queue_pair: None, bytes });
            }
            Step::Noise(to, bytes, ud) => {
                self.flying.push(Flying { from: host(FORGER), to, queue_pair: ud.then_some(0), bytes });
            }
            Step::Wait(time) => self.now += time,
        }
        self.check();
    }

    fn check(&mut self) {
        for host in &mut self.hosts {
            while host.known.released().is_some() {
                host.living -= 1;
            }
            assert!(host.living <= CAPACITY, "handles are given back");
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 1500, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn nobody_is_sent_to_somebody_elses_queue_pair(steps in prop::collection::vec(step(), 1..200)) {
        let mut network = Network::new();
        steps.into_iter().for_each(|step| network.step(step));
        let handles: Vec<usize> = network.hosts.iter().map(|host| host.living).collect();
        for (host, handles) in network.hosts.iter_mut().zip(handles) {
            host.known.close();
            let released: Vec<_> = core::iter::from_fn(|| host.known.released()).collect();
            prop_assert_eq!(released.len(), handles, "each handle is given back once");
        }
    }

    #[test]
    fn in_the_end_messages_flow(seed in prop::collection::vec(step(), 0..100)) {
        let mut network = Network::new();
        seed.into_iter().for_each(|step| network.step(step));
        network.flying.clear();
        network.resolving.clear();
        // Fresh ends, and a network that delivers.
        for number in [0, 1] {
            let queue_pair = network.pair(number);
            network.hosts[number as usize] = Host { known: Destinations::new(CAPACITY), queue_pair, living: 0 };
        }
        for (from, to) in [(0, 1), (1, 0), (0, 1)] {
            network.send(from, to, 10);
            while !network.flying.is_empty() {
                network.deliver(0);
                network.resolve(true);
            }
        }
        let now = network.now;
        let to = network.hosts[1].queue_pair;
        prop_assert_eq!(network.hosts[0].known.send(host(1), 10, 2048, now), Way::Queue(host(1), to));
    }

    #[test]
    fn a_plain_peer_gets_one_header(times in prop::collection::vec(0..3600 * SECOND, 1..50)) {
        let mut network = Network::new();
        for time in times {
            network.now += time;
            network.send(0, PLAIN_HOST, 10);
            network.deliver(0);
        }
        prop_assert_eq!(network.headers.get(&host(0)), Some(&1));
    }

    #[test]
    fn any_bytes_from_anybody(inputs in prop::collection::vec((any::<SocketAddr>(), any::<Vec<u8>>(), any::<bool>(), any::<bool>()), 0..100)) {
        let mut known = Destinations::<u32>::new(5);
        let mut sources = HashSet::new();
        for (now, (source, mut bytes, header, ud)) in inputs.into_iter().enumerate() {
            sources.insert(source);
            if header {
                let version: [u8; 8] = if ud { [4, 8, 0, 1, 0, 0, 0, 0] } else { [0x55, 0x55, 0x55, 0x55, 4, 0, 16, 0] };
                bytes.splice(..0, version);
            }
            if ud {
                if let Some((_, from)) = known.message(&bytes, now as u64) {
                    prop_assert!(from <= bytes.len());
                }
            } else {
                let arrival = known.datagram(source, &bytes, now as u64);
                prop_assert!(arrival.deliver_from.is_none_or(|from| from <= bytes.len()));
                prop_assert!(arrival.resolve.is_none_or(|resolve| resolve.destination == source));
            }
            prop_assert!(known.len() <= 5);
        }
    }
}
