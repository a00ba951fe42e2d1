//! Unmodified programs, both ends preloaded, on soft-RoCE in one VM: iperf and iperf3 in their modes, files through nc, socat
//! and Python in both directions. The device's packet counters must grow by the bytes moved, TCP's must not.
//!
//! `RSOCKET_TEST_SECONDS` is how long each iperf runs (3; 10 for the record). `RSOCKET_TEST_LIBRARY=PATH` tries another library.

#[path = "interop/library.rs"]
mod library;
mod support;

use std::env;
use std::time::Duration;

use library::{library, went_over_rdma};
use support::{Outcome, Vm, VmSession, repository};

fn seconds() -> u64 {
    env::var("RSOCKET_TEST_SECONDS").ok().and_then(|text| text.parse().ok()).unwrap_or(3)
}

const FUNCTIONS: &str = r#"
# words, not a function: a command in the background is then the program itself
over="env LD_PRELOAD=$LIB"
# iperf2 ARGUMENT...: comma-separated lines; iperf3 ARGUMENT...: JSON
iperf2() {
  counters
  $over iperf -s -B $HOST_A > /run/server & server=$!
  rwait 5001 && $over iperf -c $HOST_A -y C "$@"; status=$?
  sleep 0.3; kill $server; counters; return $status
}
iperf3_() {
  counters
  $over iperf3 -s -1 -B $HOST_A > /run/server & server=$!
  rwait 5201 && $over iperf3 -c $HOST_A -J "$@"; status=$?
  wait $server; served=$?
  counters
  [ $status = 0 ] && [ $served = 0 ]
}
# file_through "LISTENING END" "CONNECTING END": whichever reads source and writes copy
file_through() {
  head -c 300000 /dev/urandom > /run/block; rm -f /run/copy
  for i in 1 2 3 4 5 6 7 8 9 10 11 12 13 14; do cat /run/block; echo $i; done > /run/source
  counters
  $over bash -c "exec $1" & listening=$!
  rwait 5000 && $over bash -c "exec $2"; status=$?
  wait $listening; listened=$?
  counters
  cmp /run/source /run/copy && [ $status = 0 ] && [ $listened = 0 ] || { echo "status: $status, $listened"; return 1; }
}
# served PORT "SERVER" "CLIENT": the client's status
served() {
  counters
  $over $2 > /run/server 2>&1 & server=$!
  rwait $1 60 && $over bash -c "exec $3"; status=$?
  sleep 0.3; kill $server; wait $server
  counters
  [ $status = 0 ] || cat /run/server
  return $status
}
"#;

/// Web servers for one process each: `nginx` serves a block, `haproxy` stands in front of it.
const CONFIGURATIONS: &str = r#"
mkdir -p /run/web; head -c 100000 /dev/urandom > /run/web/block; chmod -R a+rX /run/web
cat > /run/nginx.conf <<END
daemon off; master_process off; worker_processes 1; error_log /run/nginx.log; pid /run/nginx.pid;
events { worker_connections 64; }
http { access_log off; client_body_temp_path /run/t1; proxy_temp_path /run/t2; fastcgi_temp_path /run/t3; uwsgi_temp_path /run/t4;
scgi_temp_path /run/t5; server { listen $HOST_A:8080; root /run/web; } }
END
cat > /run/haproxy.cfg <<END
defaults
  mode http
  timeout connect 30s
  timeout client 30s
  timeout server 30s
frontend front
  bind $HOST_A:8081
  default_backend back
backend back
  server one $HOST_A:8080
END
"#;

/// The bytes that iperf 2 reports: the eighth field of its lines, one a connection; a line of their sum has the number -1.
fn iperf2_bytes(output: &str) -> u64 {
    let fields = output.lines().map(|line| line.split(',').collect::<Vec<_>>());
    fields.filter(|fields| fields.get(5) != Some(&"-1")).filter_map(|fields| fields.get(7)?.parse::<u64>().ok()).sum()
}

/// The bytes of `sum_received` in iperf3's JSON.
fn iperf3_bytes(output: &str) -> u64 {
    let end = output.split("\"sum_received\"").nth(1).and_then(|text| text.split("\"bytes\":").nth(1));
    let number = end.and_then(|text| text.split(',').next()).and_then(|text| text.trim().parse().ok());
    number.unwrap_or_else(|| panic!("no sum_received in\n{output}"))
}

#[track_caller]
fn over_rdma(outcome: &Outcome, step: &str, bytes: u64) {
    let output = outcome.step(step).ok();
    assert!(bytes > 1000, "{step} moved {bytes} bytes only");
    went_over_rdma(step, output, bytes);
}

#[test]
fn iperf_and_iperf3_run_over_rdma() {
    const MODES: [(&str, &str); 4] = [("plain", ""), ("reverse", "-R"), ("parallel", "-P 4"), ("small", "-l 64")];
    let time = seconds();
    let limit = Duration::from_secs(time + 30);
    let mut session = VmSession::new(Vm::new().cpus(2).env("LIB", library()).env("RSOCKET_CONNECT_DEADLINE", "20000")).prelude(FUNCTIONS);
    for (mode, options) in MODES {
        session = session.step_within(&format!("iperf.{mode}"), limit, &format!("iperf2 -t {time} {options}"));
        session = session.step_within(&format!("iperf3.{mode}"), limit, &format!("iperf3_ -t {time} {options}"));
    }
    let outcome = session.run();
    for (mode, _) in MODES {
        let step = format!("iperf3.{mode}");
        over_rdma(&outcome, &step, iperf3_bytes(outcome.step(&step).ok()));
        let step = format!("iperf.{mode}");
        over_rdma(&outcome, &step, iperf2_bytes(outcome.step(&step).ok()));
    }
}

#[test]
fn files_pass_through_netcat_socat_and_python() {
    let script = repository().join("tests/interop/file_over_socket.py");
    let python = |rest: &str| format!("/usr/bin/python3 {} {rest}", script.display());
    let passes = [
        ("nc.up", "nc -l -s $HOST_A -p 5000 > /run/copy".to_owned(), "nc -N $HOST_A 5000 < /run/source".to_owned()),
        ("nc.down", "nc -N -l -s $HOST_A -p 5000 < /run/source".to_owned(), "nc -d $HOST_A 5000 > /run/copy".to_owned()),
        (
            "socat.up",
            "socat -u TCP-LISTEN:5000,bind=$HOST_A,reuseaddr CREATE:/run/copy".to_owned(),
            "socat -u OPEN:/run/source TCP:$HOST_A:5000".to_owned(),
        ),
        (
            "socat.down",
            "socat -u OPEN:/run/source TCP-LISTEN:5000,bind=$HOST_A,reuseaddr".to_owned(),
            "socat -u TCP:$HOST_A:5000 CREATE:/run/copy".to_owned(),
        ),
        ("python.up", python("listen receive $HOST_A 5000 /run/copy"), python("connect send $HOST_A 5000 /run/source")),
        ("python.down", python("listen send $HOST_A 5000 /run/source"), python("connect receive $HOST_A 5000 /run/copy")),
    ];
    let mut session = VmSession::new(Vm::new().cpus(2).env("LIB", library()).env("RSOCKET_CONNECT_DEADLINE", "20000")).prelude(FUNCTIONS);
    for (name, listening, connecting) in &passes {
        session = session.step_within(name, Duration::from_secs(40), &format!("file_through '{listening}' '{connecting}'"));
    }
    let outcome = session.run();
    for (name, _, _) in &passes {
        over_rdma(&outcome, name, 14 * 300_000);
    }
}

/// Servers and clients that wait by epoll: as many messages of five sizes in each direction as the echo programs make of these settings.
const ECHO: &str = "ECHO_HOST=$HOST_A ECHO_CONNECTIONS=6 ECHO_ROUNDS=5";
const ECHO_BYTES: u64 = 2 * 6 * (1 + 100 + 4096 + 70_000 + 400_000);

#[test]
fn servers_built_on_epoll_run_over_rdma() {
    let script = |name: &str| repository().join("tests/matrix").join(name).display().to_string();
    let python = |rest: &str| format!("env {ECHO} /usr/bin/python3 {} {rest} 5000", script("echo.py"));
    let node = |role: &str| format!("env {ECHO} node {} {role} 5000", script("net.js"));
    let rows = [
        (
            "redis",
            6379,
            "redis-server --bind $HOST_A --port 6379 --save '' --protected-mode no --dir /run".to_owned(),
            "redis-benchmark -h $HOST_A -n 1000 -c 8 -d 1000 -t set,get -P 4 --csv".to_owned(),
            2_000_000,
        ),
        (
            "memcached",
            11211,
            "memcached -u root -l $HOST_A -p 11211 -U 0 -t 2".to_owned(),
            "memcaslap -s $HOST_A:11211 -T 1 -c 8 -x 1000".to_owned(),
            100_000,
        ),
        ("nginx", 8080, "nginx -c /run/nginx.conf".to_owned(), "ab -q -k -n 40 -c 4 http://$HOST_A:8080/block".to_owned(), 40 * 100_000),
        ("asyncio", 5000, python("serve asyncio"), python("ask asyncio"), ECHO_BYTES),
        ("selectors", 5000, python("serve epoll"), python("ask epoll"), ECHO_BYTES),
        ("node", 5000, node("serve"), node("ask"), ECHO_BYTES),
    ];
    let mut session = VmSession::new(Vm::new().cpus(2).env("LIB", library()).env("RSOCKET_CONNECT_DEADLINE", "20000"))
        .prelude(&format!("{FUNCTIONS}{CONFIGURATIONS}"));
    for (name, port, server, client, _) in &rows {
        session = session.step_within(name, Duration::from_secs(120), &format!("served {port} \"{server}\" \"{client}\""));
    }
    let behind = "$over nginx -c /run/nginx.conf & rwait 8080 60;
        served 8081 'haproxy -db -f /run/haproxy.cfg' 'ab -q -k -n 20 -c 4 http://'$HOST_A':8081/block'; status=$?; kill %1; [ $status = 0 ]";
    session = session.step_within("haproxy", Duration::from_secs(120), behind);
    let outcome = session.run();
    for (name, _, _, _, bytes) in &rows {
        over_rdma(&outcome, name, *bytes);
    }
    // From nginx to haproxy, and from there to ab.
    over_rdma(&outcome, "haproxy", 2 * 20 * 100_000);
}
