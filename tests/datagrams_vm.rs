//! Datagrams over RDMA, in VMs with soft-RoCE: programs that were asked for (`RSOCKET_DGRAM`) and programs that call the r* functions find each
//! other's queue pairs, within one host and between two. The library's counters and those of the device say which way datagrams went.

mod support;

use std::time::Duration;

use support::{Counters, Outcome, Rdma, Statistics, Topology, Vm, VmSession, artefact, build_c_program, difference, repository};

const LIMIT: Duration = Duration::from_secs(60);
/// Round trips of the programs in Python. Of each seven three are short enough for a message.
const EXCHANGES: u64 = 210;
/// Round trips of udpong.
const PONGS: u64 = 300;

const FUNCTIONS: &str = r#"
# ours NAME COMMAND...: under the preload library, with counters by this name
ours() { local name=$1; shift; env LD_PRELOAD=$LIB RSOCKET_DGRAM=1 RSOCKET_STATS=/run/$name.stats "$@"; }
# bound PORT: wait until there is such a UDP socket
bound() { local port=$(printf ':%04X ' "$1") at=$SECONDS; until grep -q "$port" /proc/net/udp; do [ $((SECONDS - at)) -lt 40 ] || return 1; sleep 0.1; done; }
# show NAME...: their counters
show() { local name; for name; do echo "@@counters $name"; cat "/run/$name.stats"; done; echo "@@"; }
rm -f /run/*.stats
"#;

fn session(vm: Vm) -> VmSession {
    let peer = repository().join("tests/programs/datagram_peer.py");
    let headers = repository().join("tests/programs/datagram_headers.py");
    VmSession::new(vm.env("LIB", artefact("librspreload.so")).env("PEER", peer).env("HEADERS", headers)).prelude(FUNCTIONS)
}

/// What `show` has put out for this name.
#[track_caller]
fn statistics(outcome: &Outcome, step: &str, name: &str) -> Statistics {
    let output = outcome.step(step).ok();
    let text = output.split_once(&format!("@@counters {name}\n")).and_then(|(_, rest)| rest.split("@@").next());
    Statistics::parse(text.unwrap_or_else(|| panic!("{step}: no counters of {name} in\n{output}")))
}

/// At least so many went by a queue pair, and all others by the kernel's socket.
#[track_caller]
fn over_verbs(statistics: &Statistics, sent: u64, least: u64) {
    let [verbs, kernel] = ["verbs", "kernel"].map(|way| statistics.get(&format!("datagrams_sent_{way}")));
    assert!(verbs >= least && verbs + kernel == sent, "{sent}, of them {least}: {statistics:?}");
    assert!(statistics.get("datagrams_received_verbs") >= least, "{least}: {statistics:?}");
    assert_eq!((statistics.get("datagrams_dropped"), statistics.get("datagrams_sent_shm")), (0, 0), "{statistics:?}");
}

/// The device has carried them.
#[track_caller]
fn on_the_device(outcome: &Outcome, step: &str, least: u64) {
    let (before, after) = Counters::first_and_last(outcome.step(step).ok());
    let moved = after - before;
    assert!(moved.rxe_sent >= least as i64 && moved.rxe_rcvd >= least as i64, "{step}: {least}: {moved:?}");
}

#[test]
fn within_one_host() {
    let python = |server: &str, client: &str| {
        format!(
            "counters; export DATAGRAM_HOST=$HOST_A
             ours server python3 $PEER {server} 7000 & server=$!; bound 7000; ours client python3 $PEER {client} 7000 {EXCHANGES} || exit 1
             wait $server || exit 1; counters; show server client"
        )
    };
    let outcome = session(Vm::new().limit(6 * LIMIT))
        .step_within("python", LIMIT, &python("server", "client"))
        .step_within("asyncio", LIMIT, &python("asyncio-server", "asyncio-client"))
        .step_within("headers", LIMIT, "ours program python3 $HEADERS")
        .step_within(
            "udpong",
            LIMIT,
            &format!(
                "counters; ours server udpong -b $HOST_A -T e & server=$!; bound 7174
                 ours client udpong -s $HOST_A -S 512 -C {PONGS} -T e || exit 1; counters; show client; kill $server; wait $server; true"
            ),
        )
        .run();
    for step in ["python", "asyncio"] {
        // A little time passes until both know the way.
        let least = EXCHANGES / 4;
        over_verbs(&statistics(&outcome, step, "server"), EXCHANGES, least);
        over_verbs(&statistics(&outcome, step, "client"), EXCHANGES + 1, least);
        on_the_device(&outcome, step, 2 * least);
    }
    assert!(outcome.step("headers").ok().ends_with("all right\n"), "{}", outcome.report());
    let udpong = statistics(&outcome, "udpong", "client");
    assert!(udpong.get("datagrams_sent_verbs") >= PONGS / 2 && udpong.get("datagrams_received_verbs") >= PONGS / 2, "{udpong:?}");
    on_the_device(&outcome, "udpong", PONGS);
}

/// Those of `datagrams.rs` that neither leave their sockets to the kernel nor restart a server, which is noticed after 10 s.
#[test]
fn programs_behave_as_on_the_kernel() {
    let programs = [("datagram_calls", 3000), ("datagram_wait", 400)];
    let mut session = session(Vm::new().limit(4 * LIMIT));
    for (program, _) in programs {
        let command = format!("{} $HOST_A", build_c_program(program).display());
        session = session.step_within(&format!("{program}.plain"), LIMIT, &command);
        let ours = format!("ours {program} {command} || exit 1; show {program}");
        session = session.step_within(&format!("{program}.ours"), LIMIT, &ours);
    }
    let outcome = session.run();
    for (program, least) in programs {
        let step = format!("{program}.ours");
        let (text, _) = outcome.step(&step).ok().split_once("@@counters").unwrap();
        assert_eq!(difference(outcome.step(&format!("{program}.plain")).ok(), text), None, "{program}");
        let sent = statistics(&outcome, &step, program).get("datagrams_sent_verbs");
        assert!(sent >= least, "{program}: {sent} of {least}");
    }
}

/// Without `RSOCKET_FABRIC`.
#[test]
fn between_two_machines() {
    let vm = Vm::new().topology(Topology::TwoMachines).rdma(Rdma::Rxe).default_fabrics().limit(3 * LIMIT);
    let outcome = session(vm)
        .step_both(
            "python",
            LIMIT,
            &format!(
                "await ready; counters; DATAGRAM_HOST=$HOST_B ours client python3 $PEER client 7000 {EXCHANGES} || exit 1; counters; show client"
            ),
            "DATAGRAM_HOST=$HOST_B ours server python3 $PEER server 7000 & server=$!; bound 7000; tell ready; wait $server || exit 1; show server",
        )
        .run();
    let least = EXCHANGES / 4;
    over_verbs(&statistics(&outcome, "python", "client"), EXCHANGES + 1, least);
    over_verbs(&statistics(outcome.b(), "python", "server"), EXCHANGES, least);
    on_the_device(&outcome, "python", least);
}
