//! The default setting, without `RSOCKET_FABRIC`: shared memory within one host, RDMA between hosts and towards ends that know RDMA alone,
//! TCP for a plain peer. The library's counters say which way a connection went, those of the device and of TCP agree.

mod support;

use std::time::Duration;

use support::{Counters, Outcome, Rdma, Statistics, Topology, Vm, VmSession, artefact, assert_over_rdma, build_c_program};

const SHIPPED: &str = "/usr/lib/x86_64-linux-gnu/rsocket/librspreload.so";
/// Bytes of a connection of `fault_serve`.
const SERVED: u64 = 300_000;
/// Bytes that each iperf3's server takes at least, of twice as many: it ends when the client says so, by another connection.
const TAKEN: u64 = 4 << 20;
/// Bytes of each rstream below, one way.
const RSTREAM: u64 = 20 * 65536;
const LIMIT: Duration = Duration::from_secs(40);

const FUNCTIONS: &str = r#"
stream="rstream -S 65536 -I 1 -C 20"
# ours NAME COMMAND...: under the preload library, with counters by this name; on the host ON, where there are two
ours() { local name=$1; shift; ${ON-} env LD_PRELOAD=$LIB RSOCKET_STATS=/run/$name.stats.%p "$@"; }
# both CLIENT_STATUS SERVER_PID: the server has ended, and well as the client
both() { wait "$2"; local served=$?; [ "$1" = 0 ] && [ $served = 0 ] || { echo "exit status: client $1, server $served"; return 1; }; }
# show NAME...: their counters
show() { local name; for name; do echo "@@counters $name"; cat /run/"$name".stats.* 2>/dev/null; done; echo "@@"; }
rm -f /run/*.stats.*
"#;

fn session(vm: Vm) -> VmSession {
    let vm = vm.default_fabrics().env("LIB", artefact("librspreload.so")).env("SHIPPED", SHIPPED);
    // A slow machine may take longer than the usual deadline to answer.
    let vm = vm.env("SERVE", build_c_program("fault_serve")).env("RSOCKET_CONNECT_DEADLINE", "20000");
    VmSession::new(vm).prelude(FUNCTIONS)
}

/// What `show` has put out for this name.
#[track_caller]
fn statistics(outcome: &Outcome, step: &str, name: &str) -> Statistics {
    let output = outcome.step(step).ok();
    let text = output.split_once(&format!("@@counters {name}\n")).and_then(|(_, rest)| rest.split("@@").next());
    Statistics::parse(text.unwrap_or_else(|| panic!("{step}: no counters of {name} in\n{output}")))
}

/// How many connections went over shared memory, RDMA and the kernel, and that none of the first two was without these bytes.
#[track_caller]
fn ways(outcome: &Outcome, step: &str, name: &str, bytes: u64) -> [u64; 3] {
    let statistics = statistics(outcome, step, name);
    let both = |one: &str, other: &str, way: &str| statistics.get(&format!("{one}_{way}")) + statistics.get(&format!("{other}_{way}"));
    for way in ["shm", "verbs"] {
        let (connections, moved) = (both("connected", "accepted", way), both("bytes_sent", "bytes_received", way));
        assert_eq!(connections > 0, moved > 0, "{step}, {name}, {way}: {statistics:?}");
        assert!(connections == 0 || moved >= bytes, "{step}, {name}: {moved} bytes over {way}, not {bytes}");
    }
    ["shm", "verbs", "kernel"].map(|way| both("connected", "accepted", way))
}

/// Neither the device nor TCP has carried the bytes of a connection within one host.
#[track_caller]
fn past_device_and_tcp(outcome: &Outcome, step: &str) {
    let (before, after) = Counters::first_and_last(outcome.step(step).ok());
    let moved = after - before;
    let most = [moved.rxe_sent, moved.rxe_rcvd, moved.siw_sent, moved.siw_rcvd, moved.tcp_out, moved.tcp_in].into_iter().max();
    assert!(most.is_some_and(|most| most < 40), "{step}: {moved:?}");
}

#[track_caller]
fn over_rdma(outcome: &Outcome, step: &str, bytes: u64) {
    let (before, after) = Counters::first_and_last(outcome.step(step).ok());
    assert_over_rdma(before, after, bytes);
}

const ON_SHM: [u64; 3] = [1, 0, 0];
const ON_VERBS: [u64; 3] = [0, 1, 0];
const ON_KERNEL: [u64; 3] = [0, 0, 1];

/// Both ends under the library, on one host.
fn within_the_host(session: VmSession) -> VmSession {
    session
        .step_within(
            "iperf3",
            LIMIT,
            "counters; ours server iperf3 -s -1 -B $HOST_A & server=$!; rwait 5201; ours client iperf3 -c $HOST_A -n 8M; both $? $server || exit 1
             counters; show server client",
        )
        .step_within(
            "ipv6",
            LIMIT,
            "ours server $SERVE serve $HOST_A6 7000 1 & server=$!; rwait 7000; ours client $SERVE ask $HOST_A6 7000; both $? $server || exit 1
             show server client",
        )
        .step_within(
            "loopback",
            LIMIT,
            "ours server $SERVE serve 0.0.0.0 7000 1 & server=$!; rwait 7000; ours client $SERVE ask 127.0.0.1 7000; both $? $server || exit 1
             show server client",
        )
        .step_within(
            "r-functions",
            LIMIT,
            "counters; ours server $stream -b $HOST_B & server=$!; rwait 7471; ours client $stream -s $HOST_B; both $? $server || exit 1
             counters; show server client",
        )
}

/// One end knows RDMA alone, or TCP alone, and is on the same host.
fn towards_others(session: VmSession) -> VmSession {
    session
        .step_within(
            "shipped-server",
            LIMIT,
            "counters; $stream -b $HOST_B & server=$!; rwait 7471; ours client $stream -s $HOST_B; both $? $server || exit 1
             counters; show client",
        )
        .step_within(
            "shipped-client",
            LIMIT,
            "counters; ours server $stream -b $HOST_B & server=$!; rwait 7471; $stream -s $HOST_B; both $? $server || exit 1
             counters; show server",
        )
        .step_within(
            "shipped-preload",
            LIMIT,
            "LD_PRELOAD=$SHIPPED $SERVE serve $HOST_B 7000 1 & server=$!; rwait 7000; ours client $SERVE ask $HOST_B 7000; both $? $server || exit 1
             show client",
        )
        .step_within(
            "plain-server",
            LIMIT,
            "$SERVE serve $HOST_B 7000 1 & server=$!; rwait 7000; ours client $SERVE ask $HOST_B 7000; both $? $server || exit 1
             show client",
        )
        .step_within(
            "one-listener",
            LIMIT,
            "ours server $SERVE serve $HOST_B 7000 3 & server=$!; rwait 7000
             ours shm $SERVE ask $HOST_B 7000 && RSOCKET_FABRIC=verbs ours verbs $SERVE ask $HOST_B 7000 && $SERVE ask $HOST_B 7000
             both $? $server || exit 1; show server shm verbs",
        )
}

#[test]
fn on_one_host_by_what_the_peer_knows() {
    let outcome = towards_others(within_the_host(session(Vm::new().cpus(2)))).run();
    for end in ["server", "client"] {
        // iperf3 has two connections; the other one says little.
        assert_eq!(ways(&outcome, "iperf3", end, TAKEN), [2, 0, 0]);
        assert_eq!(ways(&outcome, "ipv6", end, SERVED), ON_SHM);
        assert_eq!(ways(&outcome, "loopback", end, SERVED), ON_SHM);
        assert_eq!(ways(&outcome, "r-functions", end, 2 * RSTREAM), ON_SHM);
    }
    past_device_and_tcp(&outcome, "iperf3");
    past_device_and_tcp(&outcome, "r-functions");

    assert_eq!(ways(&outcome, "shipped-server", "client", 2 * RSTREAM), ON_VERBS);
    over_rdma(&outcome, "shipped-server", 2 * RSTREAM);
    assert_eq!(ways(&outcome, "shipped-client", "server", 2 * RSTREAM), ON_VERBS);
    over_rdma(&outcome, "shipped-client", 2 * RSTREAM);
    assert_eq!(ways(&outcome, "shipped-preload", "client", SERVED), ON_VERBS);
    assert_eq!(ways(&outcome, "plain-server", "client", SERVED), ON_KERNEL);

    assert_eq!(ways(&outcome, "one-listener", "server", SERVED), [1, 1, 1]);
    assert_eq!(ways(&outcome, "one-listener", "shm", SERVED), ON_SHM);
    assert_eq!(ways(&outcome, "one-listener", "verbs", SERVED), ON_VERBS);
}

/// Two hosts of one kernel: what shared memory could reach if it did not heed their networks.
#[test]
fn between_two_networks_over_soft_iwarp() {
    let outcome = session(Vm::new().topology(Topology::Two).rdma(Rdma::Siw).cpus(2))
        .step_within(
            "apart",
            LIMIT,
            "counters; ON=B ours server iperf3 -s -1 -B $HOST_B & server=$!; rwait 5201; ON=A ours client iperf3 -c $HOST_B -n 8M
             both $? $server || exit 1; counters; show server client",
        )
        .step_within(
            "together",
            LIMIT,
            "counters; ON=B ours server iperf3 -s -1 -B $HOST_B & server=$!; rwait 5201; ON=B ours client iperf3 -c $HOST_B -n 8M
             both $? $server || exit 1; counters; show server client",
        )
        .step_within(
            "shipped-server",
            LIMIT,
            "counters; B $stream -b $HOST_B & server=$!; rwait 7471; ON=A ours client $stream -s $HOST_B; both $? $server || exit 1
             counters; show client",
        )
        .run();
    for end in ["server", "client"] {
        assert_eq!(ways(&outcome, "apart", end, TAKEN), [0, 2, 0]);
        assert_eq!(ways(&outcome, "together", end, TAKEN), [2, 0, 0]);
    }
    over_rdma(&outcome, "apart", TAKEN);
    past_device_and_tcp(&outcome, "together");
    assert_eq!(ways(&outcome, "shipped-server", "client", 2 * RSTREAM), ON_VERBS);
    over_rdma(&outcome, "shipped-server", 2 * RSTREAM);
}

#[test]
fn between_two_machines_over_soft_roce() {
    let server = |command: &str| format!("{command} & server=$!; rwait $PORT; tell $PORT; wait $server || exit 1; show server");
    let client = |command: &str| format!("await $PORT; counters; {command} || exit 1; counters; show client");
    let at = |port: u16, text: &str| format!("PORT={port}; {text}");
    let outcome = session(Vm::new().topology(Topology::TwoMachines).rdma(Rdma::Rxe))
        .step_both(
            "iperf3",
            LIMIT,
            &at(5201, &client("ours client iperf3 -c $HOST_B -n 8M")),
            &at(5201, &server("ours server iperf3 -s -1 -B $HOST_B")),
        )
        .step_both(
            "plain-server",
            LIMIT,
            &at(7000, &client("ours client $SERVE ask $HOST_B 7000")),
            &at(7000, &server("$SERVE serve $HOST_B 7000 1")),
        )
        .step_both(
            "plain-client",
            LIMIT,
            &at(7001, &client("$SERVE ask $HOST_B 7001")),
            &at(7001, &server("ours server $SERVE serve $HOST_B 7001 1")),
        )
        .run();
    assert_eq!(ways(&outcome, "iperf3", "client", TAKEN), [0, 2, 0]);
    assert_eq!(ways(outcome.b(), "iperf3", "server", TAKEN), [0, 2, 0]);
    over_rdma(&outcome, "iperf3", TAKEN);
    assert_eq!(ways(&outcome, "plain-server", "client", SERVED), ON_KERNEL);
    assert_eq!(ways(outcome.b(), "plain-client", "server", SERVED), ON_KERNEL);
}
