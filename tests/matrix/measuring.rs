//! Programs that measure: iperf, iperf3, sockperf, qperf.

use std::time::Duration;

use rustix::process::Signal;

use crate::stage::{Stage, Way};
use crate::support::{Ended, free_port};
use crate::table::Table;

const MIB: u64 = 1 << 20;
const LIMIT: Duration = Duration::from_secs(60);

/// The bytes that iperf 2 reports: the eighth field of its lines, one a connection; a line of their sum has the number -1.
fn iperf2_bytes(client: &Ended) -> u64 {
    let fields = client.output.lines().map(|line| line.split(',').collect::<Vec<_>>());
    fields.filter(|fields| fields.get(5) != Some(&"-1")).filter_map(|fields| fields.get(7)?.parse::<u64>().ok()).sum()
}

/// The bytes of such a sum in iperf3's JSON.
fn iperf3_bytes(client: &Ended, sum: &str) -> u64 {
    let end = client.output.split(&format!("\"{sum}\"")).nth(1).and_then(|text| text.split("\"bytes\":").nth(1));
    let number = end.and_then(|text| text.split(',').next()).and_then(|text| text.trim().parse().ok());
    number.unwrap_or_else(|| panic!("no {sum} in {}", client.report()))
}

pub fn iperf() {
    let (stage, mut table) = (Stage::new(), Table::new("iperf"));
    let (host, size) = (stage.host(), stage.amount(64, 4));
    for (mode, streams) in [("", 1), ("-P 4", 4), ("-r", 1)] {
        let attempt = || {
            let (port, back) = (free_port(), free_port());
            let server = stage.serve(&format!("server {mode}"), &format!("iperf -s -B {host} -p {port} -P {streams}"), port);
            let other = if mode == "-r" { format!("-r -L {back}") } else { mode.to_owned() };
            let line = format!("iperf -c {host} -p {port} -y C -n {size}M {other}");
            (server, stage.program(&format!("client {mode}"), &line).run(LIMIT))
        };
        let (mut server, mut client) = attempt();
        // With -r iperf's server crashes now and then on a busy machine, without the library too (27 of 50 times).
        for _ in 0..3 {
            if mode == "-r" && client.code() != Some(0) {
                drop(server);
                (server, client) = attempt();
            }
        }
        client.ok();
        let bytes = iperf2_bytes(&client);
        let expected = if mode == "-r" { 2 * size * MIB } else { streams * size * MIB };
        assert_eq!(bytes, expected, "{}", client.report());
        let server = server.wait(LIMIT);
        server.ok();
        stage.assert_way(&Way::Fabric, &[&server, &client]);
        table.row("iperf", &format!("`{}`", format!("-n {size}M {mode}").trim_end()), &Way::Fabric, "all bytes");
    }
    for mode in [format!("-n {size}M -P 4"), format!("-n {size}M -R"), "-t 1 --bidir".to_owned()] {
        let port = free_port();
        let server = stage.serve(&format!("server3 {mode}"), &format!("iperf3 -s -1 -B {host} -p {port}"), port);
        let client = stage.run(&format!("client3 {mode}"), &format!("iperf3 -c {host} -p {port} -J {mode}"));
        // the receiver stops counting when the sender says that it is done
        let (sums, least) = if mode.contains("bidir") {
            (["sum_sent", "sum_sent_bidir_reverse"], stage.amount(MIB, 1 << 16))
        } else {
            (["sum_sent"; 2], size * MIB)
        };
        for sum in sums {
            assert!(iperf3_bytes(&client, sum) >= least, "{sum}: {}", client.report());
        }
        let server = server.wait(LIMIT);
        server.ok();
        stage.assert_way(&Way::Fabric, &[&server, &client]);
        let said = if mode.contains("bidir") { "bytes both ways" } else { "all bytes" };
        table.row("iperf3", &format!("`{mode}`"), &Way::Fabric, said);
    }
    table.publish();
}

/// The number before these words in a text.
fn number_before(text: &str, words: &str) -> Option<u64> {
    text.split(words).next().filter(|before| before.len() < text.len())?.split_whitespace().next_back()?.parse().ok()
}

pub fn sockperf() {
    let (stage, mut table) = (Stage::new(), Table::new("sockperf"));
    let host = stage.host();
    // what is still on its way at the end counts as lost; few messages are to have answers, too
    let load = format!("under-load -m 200 --mps {} --reply-every {}", stage.amount(10_000, 50), stage.amount(100, 5));
    for (name, line, said) in [
        ("ping-pong", "ping-pong -m 64 --mps 500000", "no message lost, doubled or out of order"),
        ("under load", &load, "no message lost, doubled or out of order"),
        ("throughput", "throughput -m 1400", "as many messages received as sent"),
    ] {
        let port = free_port();
        let server = stage.serve(&format!("server {name}"), &format!("sockperf server --tcp -i {host} -p {port}"), port);
        let client = stage.run(name, &format!("sockperf {line} --tcp -i {host} -p {port} -t 1"));
        let server = stage.stop(server, Signal::INT, &[0]);
        if name == "throughput" {
            let sent = number_before(client.ok(), " messages sent in");
            let received = number_before(&server.output, " messages received and handled");
            assert!(sent.is_some() && sent == received, "{sent:?} and {received:?}: {} {}", client.report(), server.report());
        } else {
            for what in ["dropped", "duplicated", "out-of-order"] {
                assert!(client.output.contains(&format!("# {what} messages = 0")), "{}", client.report());
            }
        }
        stage.assert_way(&Way::Fabric, &[&server, &client]);
        table.row("sockperf", &format!("`{}`", line.split(" --mps").next().unwrap_or_default()), &Way::Fabric, said);
    }
    table.publish();
}

/// Its server forks for each client, after `accept`.
pub fn qperf() {
    let (stage, mut table) = (Stage::new(), Table::new("qperf"));
    let port = free_port();
    let program = |name: &str, rest: &str| stage.program(name, &format!("qperf -lp {port} {rest}")).env("RSOCKET_FABRIC", "kernel");
    let server = program("server", "").start();
    server.wait_until_listening(port);
    let client = program("client", &format!("-t 1 {} tcp_lat tcp_bw", stage.host())).run(LIMIT);
    for figure in ["latency", "bw"] {
        assert!(client.ok().contains(&format!("    {figure} ")), "{}", client.report());
    }
    let quit = program("quit", &format!("{} quit", stage.host())).run(LIMIT);
    quit.ok();
    let server = server.wait(LIMIT);
    let way = Way::Tcp("the server forks for each client; run with `RSOCKET_FABRIC=kernel`");
    stage.assert_way(&way, &[&server, &client, &quit]);
    table.row("qperf", "`tcp_lat tcp_bw`", &way, "latency and bandwidth");
    table.publish();
}
