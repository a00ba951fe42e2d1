use core::{
    net::{Ipv4Addr, SocketAddr},
    time::Duration,
};
use std::os::fd::RawFd;

use super::*;
use crate::{
    fabric::{
        Endpoint, EndpointConfig,
        contract::{self, Harness},
        faulty::{Faults, Faulty},
        traced::Traced,
    },
    sys::ppoll::PollFd,
    work::{Completion, Operation, Payload, RemoteAddress, TransportError, WorkRequest},
};

const CLIENT_IP: IpAddr = IpAddr::V4(Ipv4Addr::new(10, 0, 0, 1));
const SERVER_IP: IpAddr = IpAddr::V4(Ipv4Addr::new(10, 0, 0, 2));
const CONFIG: EndpointConfig = EndpointConfig {
    send_queue: 32,
    receive_queue: 32,
    inline: 16,
    receive_bytes: 4096,
    shm_receive_bytes: 4096,
    send_bytes: 4096,
    target_bytes: 64,
};

/// Two hosts of a simulation.
struct Two {
    sim: Sim,
    hosts: (Host, Host),
    client: SimFabric,
    server: SimFabric,
}

impl Two {
    fn new(settings: Settings) -> Self {
        let sim = Sim::new(settings);
        let hosts = (sim.host(&[CLIENT_IP]), sim.host(&[SERVER_IP]));
        Two { client: sim.fabric(hosts.0), server: sim.fabric(hosts.1), hosts, sim }
    }

    fn listen(&self) -> Box<dyn Listening> {
        let addr = SocketAddr::new(IpAddr::V4(Ipv4Addr::UNSPECIFIED), 7000);
        self.server.listen(&ListenOn { addr, v6_only: false, backlog: 2, only: None, endpoint: CONFIG }, Token(1)).unwrap()
    }

    fn start(&self, token: Token) -> core::result::Result<Started, ConnectFailure> {
        let peer = SocketAddr::new(SERVER_IP, 7000);
        self.client.connect(&ConnectTo::new(peer, CONFIG), token)
    }

    fn event(&self, fabric: &SimFabric) -> Event {
        loop {
            if let Some(event) = fabric.events(1).pop() {
                return event;
            }
            assert!(self.sim.step(), "no event");
        }
    }

    fn ready(&self, token: Token) -> Box<dyn Endpoint> {
        assert!(self.start(token).is_ok());
        let Event::Ready { mut endpoint, .. } = self.event(&self.client) else { panic!("not ready") };
        endpoint.post_receives(8).unwrap();
        endpoint
    }

    fn failure(&self) -> ConnectFailure {
        let Event::Failed { reason, .. } = self.event(&self.client) else { panic!("not failed") };
        reason
    }

    fn connected(&self) -> (Box<dyn Endpoint>, Box<dyn Endpoint>) {
        let _listening = self.listen();
        let mut client = self.ready(Token(2));
        client.connect(b"").unwrap();
        let Event::Incoming { endpoint: mut server, .. } = self.event(&self.server) else { panic!("not incoming") };
        server.set_token(Token(3));
        server.post_receives(8).unwrap();
        server.accept(b"").unwrap();
        assert!(matches!(self.event(&self.client), Event::Established { .. }));
        assert!(matches!(self.event(&self.server), Event::Established { .. }));
        (client, server)
    }

    /// Everything that happens by itself, and all completions of an endpoint.
    fn completions(&self, endpoint: &mut dyn Endpoint) -> Vec<Completion> {
        while self.sim.step() {}
        let mut out = [Completion::Sent { id: 0 }; 256];
        let count = endpoint.poll(&mut out);
        out[..count].to_vec()
    }
}

impl Harness for Two {
    fn client(&self) -> &dyn Fabric {
        &self.client
    }

    fn server(&self) -> &dyn Fabric {
        &self.server
    }

    fn server_addr(&self) -> SocketAddr {
        SocketAddr::new(SERVER_IP, 0)
    }

    fn unrouted_addr(&self) -> Option<SocketAddr> {
        Some(SocketAddr::new(IpAddr::V4(Ipv4Addr::new(10, 9, 9, 9)), 80))
    }

    fn turn(&mut self) -> bool {
        self.sim.step()
    }

    fn is_readable(&self, fd: RawFd) -> bool {
        crate::sys::ppoll::ppoll(&mut [PollFd { fd, events: libc::POLLIN, revents: 0 }], Some(Duration::ZERO), None).unwrap() > 0
    }
}

fn message(to: &dyn Endpoint, id: u64, payload: Payload) -> WorkRequest {
    let receive = to.exposed().receive;
    let to = RemoteAddress { addr: receive.addr, key: receive.key };
    let immediate = u32::try_from(id).unwrap();
    WorkRequest { id, operation: Operation::WriteWithImmediate { to, immediate }, payload, signaled: true }
}

#[test]
fn keeps_the_contract() {
    for seed in 0..12 {
        for mode in [MessageMode::Immediate, MessageMode::Send] {
            for (name, test) in contract::ALL {
                let mut two = Two::new(Settings { mode, descriptors: seed % 2 == 1, ..Settings::new(seed) });
                let outcome = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| test(&mut two)));
                assert!(outcome.is_ok(), "{name}, seed {seed}, {mode:?}\n{}", two.sim.trace().join("\n"));
                assert_eq!(two.sim.violations(), Vec::<String>::new(), "{name}, seed {seed}, {mode:?}");
            }
        }
    }
}

#[test]
fn same_seed_same_run() {
    let run = |seed| {
        let two = Two::new(Settings::new(seed));
        let (mut client, mut server) = two.connected();
        let work: Vec<WorkRequest> = (1..=8).map(|id| message(&*server, id, Payload::bytes(&[7]))).collect();
        client.post_sends(&work).unwrap();
        assert_eq!(two.completions(&mut *server).len(), 8);
        (two.sim.digest(), two.sim.now(), two.sim.trace())
    };
    assert_eq!(run(1), run(1));
    assert_ne!(run(1).0, run(2).0);
}

#[test]
fn reused_bytes_are_caught_unless_inline() {
    let two = Two::new(Settings::new(1));
    let (mut client, mut server) = two.connected();
    for (len, expected) in [(16, [1; 16]), (17, [2; 16])] {
        client.send_area().write(0, &[1; 32]).unwrap();
        client.post_sends(&[message(&*server, u64::from(len), Payload::SendArea { offset: 0, len })]).unwrap();
        client.send_area().write(0, &[2; 32]).unwrap();
        assert_eq!(two.completions(&mut *server).len(), 1);
        let mut bytes = [0; 16];
        server.receive_area().read(0, &mut bytes).unwrap();
        assert_eq!(bytes, expected);
    }
}

#[test]
fn overfull_queues_are_violations() {
    let two = Two::new(Settings::new(1));
    let (mut client, mut server) = two.connected();
    assert!(client.post_receives(25).is_err());
    assert!(client.post_receives(24).is_ok());
    let write = |id| WorkRequest {
        id,
        operation: Operation::Write { to: RemoteAddress::default() },
        payload: Payload::Empty,
        signaled: id % 8 == 0,
    };
    client.post_sends(&(1..=32).map(write).collect::<Vec<_>>()).unwrap();
    // Done, but the stack has not seen it.
    while two.sim.step() {}
    assert!(client.post_sends(&[write(33)]).is_err());
    assert_eq!(two.completions(&mut *client).len(), 4);
    client.post_sends(&[write(40)]).unwrap();
    assert!(client.post_sends(&[write(40)]).is_err());
    assert!(client.post_sends(&[message(&*server, 41, Payload::SendArea { offset: 4090, len: 7 })]).is_err());
    assert_eq!(two.sim.violations().len(), 4, "{:?}", two.sim.violations());
    assert_eq!(two.completions(&mut *server), []);
}

#[test]
fn wrong_order_of_calls_is_a_violation() {
    let two = Two::new(Settings::new(1));
    let _listening = two.listen();
    two.start(Token(2)).unwrap();
    let Event::Ready { mut endpoint, .. } = two.event(&two.client) else { panic!() };
    assert!(endpoint.post_sends(&[message(&*endpoint, 1, Payload::Empty)]).is_err());
    assert!(endpoint.accept(b"").is_err());
    endpoint.connect(b"").unwrap();
    assert_eq!(two.sim.violations().len(), 3, "{:?}", two.sim.violations());
}

#[test]
fn killed_host_disconnects_and_can_start_again() {
    let two = Two::new(Settings::new(3));
    let (mut client, mut server) = two.connected();
    two.sim.kill(two.hosts.1);
    assert!(matches!(two.event(&two.client), Event::Disconnected { token: Token(2) }));
    assert_eq!(two.completions(&mut *client), vec![Completion::Failed(TransportError::Flushed); 8]);
    client.post_sends(&[message(&*server, 1, Payload::Empty)]).unwrap();
    assert_eq!(two.completions(&mut *client), [Completion::Failed(TransportError::Flushed)]);
    assert!(server.post_receives(1).is_err());
    assert!(
        two.server
            .listen(&ListenOn { addr: SocketAddr::new(SERVER_IP, 1), v6_only: false, backlog: 1, only: None, endpoint: CONFIG }, Token(5))
            .is_err()
    );
    let mut late = two.ready(Token(4));
    late.connect(b"").unwrap();
    assert_eq!(two.failure(), ConnectFailure::Refused);
    let again = Two { sim: two.sim.clone(), hosts: two.hosts, client: two.sim.fabric(two.hosts.0), server: two.sim.fabric(two.hosts.1) };
    let _pair = again.connected();
    assert_eq!(two.sim.violations(), Vec::<String>::new());
}

#[test]
fn cut_link_breaks_after_the_retries_or_heals() {
    let two = Two::new(Settings::new(4));
    let (mut client, mut server) = two.connected();
    two.sim.cut(two.hosts.0, two.hosts.1);
    client.post_sends(&[message(&*server, 1, Payload::Empty)]).unwrap();
    two.sim.run_until(two.sim.now() + 1_000_000_000);
    two.sim.heal(two.hosts.0, two.hosts.1);
    assert_eq!(two.completions(&mut *server), [Completion::Received { message: 1 }]);
    assert_eq!(two.completions(&mut *client), [Completion::Sent { id: 1 }]);
    two.sim.cut(two.hosts.0, two.hosts.1);
    let start = two.sim.now();
    client.post_sends(&[message(&*server, 2, Payload::Empty), message(&*server, 3, Payload::Empty)]).unwrap();
    let completions = two.completions(&mut *client);
    let (first, flushed) = completions.split_first().unwrap();
    assert_eq!(*first, Completion::Failed(TransportError::RetryExceeded));
    assert_eq!(flushed.len(), 1 + 8);
    assert!(two.sim.now() - start < 5_000_000_000);
    client.disconnect();
    assert!(matches!(two.event(&two.client), Event::Disconnected { .. }));
}

#[test]
fn silent_host_times_out_and_missing_device_has_no_route() {
    let two = Two::new(Settings::new(5));
    let _listening = two.listen();
    two.sim.silence(two.hosts.1, true);
    let mut client = two.ready(Token(2));
    client.connect(b"").unwrap();
    assert_eq!(two.failure(), ConnectFailure::TimedOut);
    two.sim.without_device(two.hosts.1, true);
    two.start(Token(3)).unwrap();
    assert_eq!(two.failure(), ConnectFailure::NoRoute);
    two.sim.without_device(two.hosts.0, true);
    assert_eq!(two.start(Token(4)).err(), Some(ConnectFailure::NoRoute));
}

#[test]
fn full_backlog_refuses() {
    let two = Two::new(Settings::new(6));
    let _listening = two.listen();
    let mut clients: Vec<_> = (2..5).map(|token| two.ready(Token(token))).collect();
    for client in &mut clients {
        client.connect(b"").unwrap();
    }
    while two.sim.step() {}
    assert_eq!(two.failure(), ConnectFailure::Refused);
    assert_eq!(two.server.events(9).len(), 2);
}

#[test]
fn wrappers_pass_on_and_inject() {
    let two = Two::new(Settings::new(7));
    let (client, mut server) = two.connected();
    let mut client: Box<dyn Endpoint> = Box::new(Traced::new(client, Token(2)));
    let work = |server: &dyn Endpoint, id| message(server, id, Payload::Empty);
    client.post_sends(&[work(&*server, 1)]).unwrap();
    assert_eq!(two.completions(&mut *client), [Completion::Sent { id: 1 }]);
    assert_eq!(two.completions(&mut *server).len(), 1);

    let mut late = Faulty::new(client, Faults { late: 1000, ..Faults::default() }, 1);
    late.post_sends(&[work(&*server, 2)]).unwrap();
    assert_eq!(two.completions(&mut late), []);
    assert_eq!(two.completions(&mut late), [Completion::Sent { id: 2 }]);
    late.post_sends(&[work(&*server, 3)]).unwrap();
    late.arm().unwrap();
    assert_eq!(two.completions(&mut late), [Completion::Sent { id: 3 }]);

    let mut broken = Faulty::new(Box::new(late), Faults { transport: 1000, ..Faults::default() }, 1);
    broken.arm().unwrap();
    broken.post_sends(&[work(&*server, 4)]).unwrap();
    assert!(matches!(two.completions(&mut broken)[..], [Completion::Failed(error)] if error != TransportError::Flushed));
    broken.arm().unwrap();
    broken.post_sends(&[work(&*server, 5)]).unwrap();
    assert_eq!(two.completions(&mut broken), [Completion::Failed(TransportError::Flushed)]);
    let mut refusing = Faulty::new(Box::new(broken), Faults { post: 1000, ..Faults::default() }, 1);
    assert!(refusing.post_sends(&[work(&*server, 6)]).is_err());
}
