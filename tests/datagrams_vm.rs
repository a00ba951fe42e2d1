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
/// So many by queue pairs prove the way. A machine so busy that a peer says nothing for 150 ms has it asked by UDP each time.
const ENOUGH: u64 = 10;

const FUNCTIONS: &str = r#"
# ours NAME COMMAND...: under the preload library, with counters by this name
ours() { local name=$1; shift; env LD_PRELOAD=$LIB RSOCKET_DGRAM=1 RSOCKET_STATS=/run/$name.stats "$@"; }
# bound PORT: wait until there is such a UDP socket
bound() { local port=$(printf ':%04X ' "$1") at=$SECONDS; until grep -q "$port" /proc/net/udp; do [ $((SECONDS - at)) -lt 40 ] || return 1; sleep 0.1; done; }
# start NAME COMMAND... &: the same in the background, where $! is the program
start() { local name=$1; shift; exec env LD_PRELOAD=$LIB RSOCKET_DGRAM=1 RSOCKET_STATS=/run/$name.stats "$@"; }
# ours_too COMMAND...: the same, for a program of several processes; sum NAME: their counters, which are in /run/NAME.PROCESS
ours_too() { env LD_PRELOAD=$LIB RSOCKET_DGRAM=1 "$@"; }
sum() { echo "@@counters $1"; cat /run/$1.[0-9]* | awk 'NF == 2 { sum[$1] += $2 } END { for (name in sum) print name, sum[name] }'; echo "@@"; }
# end NUMBER: of a program that ends when it is told to
end() { kill "$1"; wait "$1"; true; }
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

/// One boot for all that one host is enough for.
#[test]
fn within_one_host() {
    let mut session = session(Vm::new().limit(10 * LIMIT));
    for part in [add_peers, add_programs, add_storm, add_restart, add_names, add_tools] {
        session = part(session);
    }
    let outcome = session.run();
    for check in [check_peers, check_programs, check_storm, check_restart, check_names, check_tools] {
        check(&outcome);
    }
}

fn add_peers(session: VmSession) -> VmSession {
    let python = |server: &str, client: &str| {
        format!(
            "counters; export DATAGRAM_HOST=$HOST_A
             ours server python3 $PEER {server} 7000 & server=$!; bound 7000; ours client python3 $PEER {client} 7000 {EXCHANGES} || exit 1
             wait $server || exit 1; counters; show server client"
        )
    };
    session
        .step_within("python", LIMIT, &python("server", "client"))
        .step_within("asyncio", LIMIT, &python("asyncio-server", "asyncio-client"))
        .step_within("headers", LIMIT, "ours program python3 $HEADERS")
        .step_within(
            "udpong",
            LIMIT,
            &format!(
                "counters; start server udpong -b $HOST_A -T e & server=$!; bound 7174
                 ours client udpong -s $HOST_A -S 512 -C {PONGS} -T e || exit 1; counters; show client; end $server"
            ),
        )
}

fn check_peers(outcome: &Outcome) {
    // One thread, which looks for itself: it has nobody to wake, but when it gets another descriptor to sleep on.
    let wakes_nobody = |of: &Statistics| assert!(of.get("wake_ups") < 5, "{of:?}");
    for step in ["python", "asyncio"] {
        let least = ENOUGH;
        let [server, client] = ["server", "client"].map(|name| statistics(outcome, step, name));
        over_verbs(&server, EXCHANGES, least);
        over_verbs(&client, EXCHANGES + 1, least);
        [server, client].iter().for_each(wakes_nobody);
        on_the_device(outcome, step, 2 * least);
    }
    assert!(outcome.step("headers").ok().contains("all right\n"), "{}", outcome.report());
    let udpong = statistics(outcome, "udpong", "client");
    wakes_nobody(&udpong);
    assert!(udpong.get("datagrams_sent_verbs") >= ENOUGH && udpong.get("datagrams_received_verbs") >= ENOUGH, "{udpong:?}");
    on_the_device(outcome, "udpong", ENOUGH);
}

/// Those of `datagrams.rs`, and how many datagrams at least must have gone by queue pairs. (Sockets that say little, or are left to the kernel, may
/// have none.)
const PROGRAMS: [(&str, u64); 5] =
    [("datagram_calls", 1000), ("datagram_wait", 100), ("datagram_connect", 1), ("datagram_states", 0), ("datagram_odd", 1)];

fn add_programs(mut session: VmSession) -> VmSession {
    for (program, _) in PROGRAMS {
        let command = format!("{} $HOST_A", build_c_program(program).display());
        session = session.step_within(&format!("{program}.plain"), LIMIT, &command);
        let ours = format!("RSOCKET_STATS=/run/{program}.%p ours_too {command} || exit 1; sum {program}");
        session = session.step_within(&format!("{program}.ours"), LIMIT, &ours);
    }
    session
}

fn check_programs(outcome: &Outcome) {
    let mut cases = 0;
    for (program, least) in PROGRAMS {
        let step = format!("{program}.ours");
        let (text, _) = outcome.step(&step).ok().split_once("@@counters").unwrap();
        let plain = outcome.step(&format!("{program}.plain")).ok();
        cases += plain.lines().count();
        assert_eq!(difference(plain, text), None, "{program}");
        let counted = statistics(outcome, &step, program);
        let sent = counted.get("datagrams_sent_verbs");
        assert!(sent >= least && sent + counted.get("datagrams_sent_kernel") > 10, "{program}: {sent} of {least}: {counted:?}");
    }
    assert!(cases > 200, "{cases}");
}

/// What is larger than a message goes another way, so that order is not kept.
fn add_storm(session: VmSession) -> VmSession {
    let command = format!("RSOCKET_STATS=/run/storm.%p ours_too {} $HOST_A 3 1 1; sum storm", build_c_program("datagram_storm").display());
    session.step_within("storm", LIMIT, &command)
}

fn check_storm(outcome: &Outcome) {
    let output = outcome.step("storm").ok();
    assert!(output.starts_with("wrong: 0\nreceived any: yes\n"), "{output}");
    // Of those that were killed there are no counters.
    let counted = statistics(outcome, "storm", "storm");
    assert!(counted.get("datagrams_sent_verbs") > 0 && counted.get("datagrams_received_verbs") > 0, "{counted:?}");
}

/// A server is killed and, after a while, begins anew: a client that is connected hears ECONNREFUSED, and is served again.
fn add_restart(session: VmSession) -> VmSession {
    session.step_within(
        "restart",
        LIMIT,
        "export DATAGRAM_HOST=$HOST_A
         start first python3 $PEER server 7001 & first=$!; bound 7001; start patient python3 $PEER patient 7001 3 > /run/patient & patient=$!
         said() { local at=$SECONDS; until [ \"$(tail -n 1 /run/patient)\" = $1 ]; do [ $((SECONDS - at)) -lt 30 ] || return 1; sleep 0.05; done; }
         said served || exit 1; sleep 0.5; kill -KILL $first; said refused || exit 1
         start second python3 $PEER server 7001 & second=$!; wait $patient || exit 1; wait $second || exit 1
         cat /run/patient; show patient second",
    )
}

fn check_restart(outcome: &Outcome) {
    let output = outcome.step("restart").ok();
    let said = output.lines().filter(|line| matches!(*line, "served" | "refused"));
    assert_eq!(said.collect::<Vec<_>>(), ["served", "refused", "served"], "{output}");
    for (name, least) in [("patient", 1), ("second", 1)] {
        let counted = statistics(outcome, "restart", name);
        assert!(counted.get("datagrams_sent_verbs") >= least, "{name}: {counted:?}");
    }
}

/// Who answers, and who asks.
const NAMES: [(&str, &str); 3] = [("plain", "ours"), ("ours", "plain"), ("ours", "ours")];

/// A name server takes a header for garbage: the client's next try is plain. One that is ours sees none, and answers plain clients plainly.
fn add_names(mut session: VmSession) -> VmSession {
    for (server, client) in NAMES {
        let serves = if server == "ours" { "start server" } else { "" };
        let asks = if client == "ours" { "ours client" } else { "" };
        let command = format!(
            "{serves} dnsmasq --no-daemon --conf-file=/dev/null --pid-file=/run/dnsmasq.pid --user=root --no-resolv --no-hosts --bind-interfaces \
               --listen-address=$HOST_A --port=5300 --address=/test.example/192.0.2.7 & server=$!; bound 5300
             {asks} dig @$HOST_A -p 5300 +short +tries=3 +time=3 test.example; status=$?
             kill $server; wait $server; exit $status"
        );
        session = session.step_within(&format!("names.{server}.{client}"), LIMIT, &command);
    }
    session
}

fn check_names(outcome: &Outcome) {
    for (server, client) in NAMES {
        let output = outcome.step(&format!("names.{server}.{client}")).ok();
        assert!(output.lines().any(|line| line == "192.0.2.7"), "{server} {client}: {output}");
    }
}

fn add_tools(session: VmSession) -> VmSession {
    session
        .step_within(
            "iperf3",
            LIMIT,
            "counters; start server iperf3 -s -1 -B $HOST_A & server=$!; sleep 0.5
             ours client iperf3 -u -c $HOST_A -b 20M -l 1000 -t 1 || exit 1; wait $server; counters; show server client",
        )
        .step_within(
            "sockperf",
            LIMIT,
            "counters; start server sockperf sr -i $HOST_A -p 11111 & server=$!; bound 11111
             ours client sockperf pp -i $HOST_A -p 11111 -t 1 || exit 1; kill -INT $server; wait $server; counters; show server client",
        )
}

fn check_tools(outcome: &Outcome) {
    for (step, least) in [("iperf3", ENOUGH), ("sockperf", ENOUGH)] {
        let [server, client] = ["server", "client"].map(|name| statistics(outcome, step, name));
        let (sent, come) = (client.get("datagrams_sent_verbs"), server.get("datagrams_received_verbs"));
        assert!(sent >= least && come >= least, "{step}: {sent} {come}: {server:?} {client:?}");
        on_the_device(outcome, step, least);
    }
    assert!(outcome.step("sockperf").ok().contains("Summary: Latency"), "{}", outcome.report());
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
    let least = ENOUGH;
    over_verbs(&statistics(&outcome, "python", "client"), EXCHANGES + 1, least);
    over_verbs(&statistics(outcome.b(), "python", "server"), EXCHANGES, least);
    on_the_device(&outcome, "python", least);
}
