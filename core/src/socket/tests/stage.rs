//! Hosts, services, programs, and the loop that lets time pass.

use core::{net::SocketAddr, time::Duration};
use std::sync::{Arc, Mutex};

use super::{
    party::{Party, readable},
    plan::{Plan, Then},
    world::{Over, Place, World},
};
use crate::{
    error::Result,
    fabric::{
        ConnectFailure, ConnectTo, Endpoint, Event, EventFds, Fabric, ListenOn, Listening, Started, Token,
        faulty::{Faults, Faulty},
        sim::{Random, Settings, Sim},
    },
    service::Service,
    socket::{
        engine::Sizes,
        listener::Listener,
        stream::{Phase, Stream},
        wait::{self, Borrowed, Interest},
    },
    sys::clock::{self, Nanos},
};

/// Rounds of the loop before the run is said not to come to an end.
const ROUNDS: usize = 2_000_000;

/// Turns of services, one after the other, in which nothing happens that a program notices.
const BUSY: usize = 1000;

/// A service is not late by more than about this, in nanoseconds.
const LATENESS: Nanos = 100_000;

/// One host: a program with its service.
pub(super) struct Node {
    pub(super) place: Place,
    pub(super) service: Arc<Service>,
    /// When the service wants its next turn.
    next: Option<Nanos>,
    /// It has reason for a turn.
    due: bool,
    dead: bool,
}

impl Node {
    /// Its program has ended.
    pub(super) fn is_dead(&self) -> bool {
        self.dead
    }
}

/// A program that accepts.
struct Door {
    node: usize,
    listener: Arc<Listener>,
    waiter: Borrowed,
    awake: bool,
    accepts: bool,
    /// It takes in peers itself: see [`Listener::attend`].
    attends: bool,
}

impl Door {
    fn attend(&self, attends: bool) {
        if self.attends {
            self.listener.attend(attends);
        }
    }

    /// Whether it is woken. Peers that ask are taken in.
    fn is_woken(&self) -> bool {
        let peers = if self.attends && self.accepts { self.listener.peers_fd() } else { -1 };
        let [woken, asked] = readable([self.waiter.event_fd(), peers]);
        if asked {
            self.listener.take_peers(true).unwrap();
        }
        self.waiter.reset(woken);
        woken || asked
    }
}

type Script = Box<dyn FnOnce(&mut Stage)>;
type Plans = Box<dyn Fn(u64) -> (Plan, Plan)>;
/// Does what can be done now; true if that was anything.
type Other = Box<dyn FnMut() -> bool>;

/// See the module.
pub(super) struct Stage {
    pub(super) world: World,
    pub(super) nodes: Vec<Node>,
    pub(super) parties: Vec<(usize, Party)>,
    doors: Vec<Door>,
    script: Vec<(Nanos, Script)>,
    /// Programs of other hosts, without a stack of ours.
    pub(super) others: Vec<Other>,
    /// What the two ends of the connection with this key do.
    pub(super) plans: Plans,
    /// How often in a thousand the service is late though it has reason for a turn.
    pub(super) lag: u32,
    announced: bool,
    attends: bool,
    pub(super) random: Random,
}

impl Stage {
    /// Two programs; over the simulation two hosts, 10.0.0.1 and 10.0.0.2.
    pub(super) fn new(over: Over, settings: Settings) -> Self {
        Stage::with_faults(over, settings, Faults::default())
    }

    /// The same, where each endpoint has faults.
    pub(super) fn with_faults(over: Over, settings: Settings, faults: Faults) -> Self {
        let (seed, announced) = (settings.seed, settings.descriptors || over == Over::Shm);
        let mut stage = Stage {
            world: World::new(over, settings),
            nodes: Vec::new(),
            parties: Vec::new(),
            doors: Vec::new(),
            script: Vec::new(),
            others: Vec::new(),
            plans: Box::new(|_| (Plan::new(1000, Then::Shutdown), Plan::new(1000, Then::Shutdown))),
            lag: 0,
            announced,
            attends: over == Over::Shm && seed.is_multiple_of(2),
            random: Random::new(seed ^ 0x5bd1_e995),
        };
        for last in 1..=2 {
            let (place, inner) = stage.world.enter(last);
            let fabric = FaultyFabric { inner, faults, random: Mutex::new(Random::new(seed ^ 0x1b87_3593)) };
            let service = Service::with_clock(Arc::new(fabric), stage.world.clock()).unwrap();
            stage.nodes.push(Node { place, service, next: None, due: true, dead: false });
        }
        stage
    }

    pub(super) fn now(&self) -> Nanos {
        self.world.now()
    }

    /// The simulation, in tests that run over nothing else.
    pub(super) fn sim(&self) -> &Sim {
        self.world.sim().unwrap()
    }

    /// Something that happens at a time.
    pub(super) fn at(&mut self, time: Nanos, script: impl FnOnce(&mut Stage) + 'static) {
        self.script.push((time, Box::new(script)));
    }

    /// The server (node 1) listens on a port.
    pub(super) fn listen(&mut self, port: u16, sizes: Sizes, backlog: u32) -> usize {
        let Node { service, place, .. } = &self.nodes[1];
        let listener = Listener::new(service, sizes, backlog);
        let addr = self.world.listener(*place, port);
        let on = ListenOn { addr, v6_only: false, backlog, only: None, endpoint: sizes.endpoint() };
        listener.start(service.fabric().listen(&on, listener.token()).unwrap());
        let waiter = wait::waiter();
        listener.sleepers().add(&waiter, Interest::READ);
        let door = Door { node: 1, listener, waiter, awake: true, accepts: true, attends: self.attends };
        door.attend(true);
        self.doors.push(door);
        self.doors.len() - 1
    }

    pub(super) fn listener(&self, door: usize) -> &Arc<Listener> {
        &self.doors[door].listener
    }

    /// From now on connections stay in the listener's queue, or are taken again.
    pub(super) fn accepts(&mut self, door: usize, accepts: bool) {
        let door = &mut self.doors[door];
        if door.accepts != accepts {
            door.attend(accepts);
        }
        (door.accepts, door.awake) = (accepts, true);
    }

    /// Closes a listener and forgets all about it.
    pub(super) fn close_listener(&mut self, door: usize) {
        let door = self.doors.remove(door);
        door.listener.sleepers().remove(&door.waiter);
        door.listener.close();
    }

    /// The client (node 0) starts to connect to the server's port. Gives the number of its party.
    pub(super) fn connect(&mut self, port: u16, sizes: Sizes, patience: Nanos) -> core::result::Result<usize, ConnectFailure> {
        let peer = SocketAddr::new(self.nodes[1].place.addr, port);
        self.connect_to(peer, sizes, patience)
    }

    pub(super) fn connect_to(&mut self, peer: SocketAddr, sizes: Sizes, patience: Nanos) -> core::result::Result<usize, ConnectFailure> {
        let local = self.world.client(self.nodes[0].place);
        let to = ConnectTo { local, ..ConnectTo::new(peer, sizes.endpoint()) };
        let stream = Stream::connecting(&self.nodes[0].service, &to, sizes, self.now() + patience, None);
        stream.start(&to)?;
        let seed = self.random.number();
        self.parties.push((0, Party::new(stream, true, seed)));
        Ok(self.parties.len() - 1)
    }

    /// The program on this node dies.
    pub(super) fn kill(&mut self, node: usize) {
        self.world.kill(self.nodes[node].place);
        self.nodes[node].dead = true;
        self.parties.iter_mut().filter(|(of, _)| *of == node).for_each(|(_, party)| party.die());
        self.doors.retain(|door| door.node != node);
        self.nodes[node].service.abandon();
    }

    pub(super) fn cut(&self) {
        self.sim().cut(self.nodes[0].place.host.unwrap(), self.nodes[1].place.host.unwrap());
    }

    pub(super) fn heal(&self) {
        self.sim().heal(self.nodes[0].place.host.unwrap(), self.nodes[1].place.host.unwrap());
    }

    /// Lets time pass until nothing happens any more by itself.
    pub(super) fn run(&mut self) {
        self.run_for(Nanos::MAX);
    }

    /// The same, at most for this time.
    pub(super) fn run_for(&mut self, most: Nanos) {
        let end = self.now().saturating_add(most);
        let (mut quiet, mut busy) = (0, 0);
        for _ in 0..ROUNDS {
            let turned = self.turn(quiet > 0);
            let acted = self.act();
            if self.now() >= end {
                return;
            }
            busy = if turned && !acted { busy + 1 } else { 0 };
            assert!(busy < BUSY, "a service is kept busy by nothing: {}", self.status());
            if turned || acted {
                self.world.pass();
                quiet = 0;
                continue;
            }
            let scripted = self.script.iter().map(|(time, _)| *time);
            let paused = self.parties.iter().filter(|(_, party)| !party.is_closed()).filter_map(|(_, party)| party.paused_until);
            let turns = self.nodes.iter().filter(|node| !node.dead).filter_map(|node| node.next);
            let due = scripted.chain(paused).chain(turns).min();
            let next = self.world.next_at();
            let soon = self.now() + LATENESS;
            let far = next.into_iter().chain(due).min().is_none_or(|time| time > soon);
            if quiet == 0 && far && self.nodes.iter().any(|node| node.due) {
                // The clock does not jump while a service is late.
                quiet = 1;
                continue;
            }
            match (next, due) {
                (Some(next), due) if due.is_none_or(|due| next <= due) => {
                    self.world.step();
                    quiet = 0;
                }
                (_, Some(due)) => {
                    self.world.run_until(due.min(end));
                    // A service that wants a turn gets it now.
                    quiet = usize::from(self.nodes.iter().any(|node| node.next == Some(due)));
                }
                // Completions that were late may be there at the second look.
                (_, None) if quiet < 4 => quiet += 1,
                (_, None) => return,
            }
        }
        panic!("does not come to rest: {}", self.status());
    }

    /// Turns of the services, and what the script says. True if somebody has had one.
    fn turn(&mut self, punctual: bool) -> bool {
        self.world.ripen();
        let now = self.now();
        let mut progress = false;
        while let Some(at) = self.script.iter().position(|(time, _)| *time <= now) {
            let (_, script) = self.script.remove(at);
            script(self);
            progress = true;
        }
        for node in self.nodes.iter_mut().filter(|node| !node.dead) {
            let reason = node.service.wait(Some(Duration::ZERO)) || node.next.is_some_and(|next| next <= now);
            node.due |= reason || !self.announced;
            let late = !punctual && self.random.chance(self.lag);
            if node.due && !late {
                node.due = false;
                node.next = node.service.turn(now);
                progress |= reason && self.announced;
            }
        }
        progress
    }

    fn act(&mut self) -> bool {
        let (announced, now) = (self.announced, self.now());
        let mut progress = false;
        for door in &mut self.doors {
            let woken = door.is_woken();
            progress |= woken;
            door.awake |= woken || !announced;
            while door.awake && door.accepts {
                let Some(stream) = door.listener.pop() else {
                    door.awake = false;
                    break;
                };
                assert_eq!(stream.phase(), Phase::Up);
                stream.set_resets(None);
                self.parties.push((door.node, Party::new(stream, false, self.random.number())));
                progress = true;
            }
        }
        for (_, party) in &mut self.parties {
            if party.is_awake(announced, now) {
                progress |= party.act(&*self.plans, now);
            }
        }
        for other in &mut self.others {
            progress |= other();
        }
        progress
    }

    /// The party at the other end.
    pub(super) fn peer_of(&self, party: &Party) -> Option<&Party> {
        let wanted = |other: &&Party| other.key == party.key && other.is_client != party.is_client;
        self.parties.iter().map(|(_, other)| other).find(wanted)
    }

    /// All parties have sent and received everything, in both directions, and were content.
    pub(super) fn assert_complete(&self) {
        for (_, party) in &self.parties {
            let Some(peer) = self.peer_of(party) else { panic!("no peer: {}", party.status()) };
            let complete = party.is_closed() && party.errors.is_empty() && party.end_of_file && party.received == peer.sent;
            assert!(complete, "{}; {}", party.status(), peer.status());
        }
    }

    /// A party has received everything that its peer has sent, and then the end of file.
    pub(super) fn assert_received(&self, party: usize) {
        let party = &self.parties[party].1;
        let peer = self.peer_of(party).unwrap();
        // Who closes does not read.
        let content = party.is_closed() && party.errors.is_empty() && (party.received == peer.sent || peer.sent == 0);
        assert!(content, "{}", self.status());
    }

    /// Everybody closes what is still open. Then nothing may be left, and nobody may have broken the fabric's contract.
    pub(super) fn finish(mut self) {
        while !self.doors.is_empty() {
            self.close_listener(0);
        }
        self.parties.iter_mut().for_each(|(_, party)| party.close(None));
        self.run();
        self.parties.clear();
        for node in self.nodes.iter().filter(|node| !node.dead) {
            assert_eq!(node.service.everything().len(), 0, "still known to the service of {}", node.place.addr);
            assert_eq!(node.next, None, "the service of {} still waits for a time", node.place.addr);
            assert_eq!(Arc::strong_count(&node.service), 1, "streams of {} are left", node.place.addr);
        }
        self.world.assert_clean();
    }

    pub(super) fn status(&self) -> String {
        let parties: Vec<String> = self.parties.iter().map(|(_, party)| party.status()).collect();
        format!("at {}: {}", self.now(), parties.join("; "))
    }
}

impl Drop for Stage {
    fn drop(&mut self) {
        if std::thread::panicking() {
            let trace = self.world.trace();
            let lines: Vec<_> = trace.iter().filter(|line| !line.contains("Flushed")).map(String::as_str).collect();
            eprintln!("{}\n{}", lines[lines.len().saturating_sub(40)..].join("\n"), self.status());
        }
        // What is left would keep the services for ever.
        self.nodes.iter().for_each(|node| node.service.abandon());
    }
}

/// A device whose endpoints have faults.
struct FaultyFabric {
    inner: Arc<dyn Fabric>,
    faults: Faults,
    random: Mutex<Random>,
}

impl FaultyFabric {
    fn wrap(&self, endpoint: Box<dyn Endpoint>) -> Box<dyn Endpoint> {
        if self.faults == Faults::default() {
            return endpoint;
        }
        Box::new(Faulty::new(endpoint, self.faults, self.random.lock().unwrap().number()))
    }
}

impl Fabric for FaultyFabric {
    fn connect(&self, to: &ConnectTo, token: Token) -> core::result::Result<Started, ConnectFailure> {
        Ok(match self.inner.connect(to, token)? {
            Started::Ready(endpoint) => Started::Ready(self.wrap(endpoint)),
            Started::Later => Started::Later,
        })
    }

    fn cancel(&self, token: Token) {
        self.inner.cancel(token);
    }

    fn listen(&self, on: &ListenOn, token: Token) -> Result<Box<dyn Listening>> {
        self.inner.listen(on, token)
    }

    fn event_fds(&self) -> EventFds {
        self.inner.event_fds()
    }

    fn events(&self, most: usize) -> Vec<Event> {
        let wrap = |event| match event {
            Event::Ready { token, endpoint } => Event::Ready { token, endpoint: self.wrap(endpoint) },
            Event::Incoming { listener, endpoint, private_data } => {
                Event::Incoming { listener, endpoint: self.wrap(endpoint), private_data }
            }
            event => event,
        };
        self.inner.events(most).into_iter().map(wrap).collect()
    }
}

/// Later than anything that a run does by itself.
pub(super) const LATE: Nanos = 1_000_000_000_000;

/// Settings of a seed: every second one with event descriptors.
pub(super) fn settings(seed: u64) -> Settings {
    let mode = if (seed / 2).is_multiple_of(2) { crate::work::MessageMode::Immediate } else { crate::work::MessageMode::Send };
    Settings { mode, descriptors: seed.is_multiple_of(2), first_word: true, ..Settings::new(seed) }
}

#[test]
fn real_time_is_not_used() {
    let stage = Stage::new(Over::Sim, settings(0));
    assert_eq!(stage.nodes[0].service.now(), 0);
    assert!(clock::now() > 0);
}
