//! PostgreSQL, which has a process for each client, and Redis, which forks to save.

use std::thread;
use std::time::{Duration, Instant};

use rustix::process::Signal;

use crate::stage::{Mode, Stage};
use crate::support::{Ended, free_port};
use crate::{assert_children_served, assert_moved, by_form};

/// The folder of the newest version that is installed.
#[track_caller]
fn postgresql_folder() -> String {
    let versions = std::fs::read_dir("/usr/lib/postgresql").into_iter().flatten().flatten();
    let newest = versions.filter_map(|entry| entry.file_name().to_str()?.parse::<u32>().ok()).max();
    format!("/usr/lib/postgresql/{}/bin", newest.expect("PostgreSQL is not installed: scripts/setup"))
}

/// Waits until this says yes.
#[track_caller]
fn until(what: &str, mut is: impl FnMut() -> bool) {
    let end = Instant::now() + Duration::from_secs(20);
    while !is() {
        assert!(Instant::now() < end, "{what}");
        thread::sleep(Duration::from_millis(50));
    }
}

#[test]
fn postgresql() {
    let stage = Stage::of_user("postgres").forking();
    let (bin, port) = (postgresql_folder(), free_port());
    let [data, sockets] = ["data", ""].map(|name| stage.scratch.path(name).display().to_string());
    stage.run("initdb", &format!("{bin}/initdb --no-sync -A trust -U tester -D {data}"));
    let settings = "-c listen_addresses=127.0.0.1 -c fsync=off -c max_connections=30 -c shared_buffers=16MB";
    let server = stage.serve("server", &format!("{bin}/postgres -D {data} -p {port} -k {sockets} {settings}"), port);
    let at = format!("-h 127.0.0.1 -p {port} -U tester");
    let mut tries = 0;
    until("the server does not get ready", || {
        tries += 1;
        stage.program(&format!("isready {tries}"), &format!("{bin}/pg_isready {at}")).run(Duration::from_secs(10)).code() == Some(0)
    });
    let mut clients = vec![stage.run("fill", &format!("{bin}/pgbench -i -q {at} postgres"))];
    let each = by_form(50, 1000);
    let bench = stage.run("pgbench", &format!("{bin}/pgbench -c 8 -j 2 -t {each} {at} postgres"));
    for line in [format!("processed: {0}/{0}", each * 8), "failed transactions: 0 (0.000%)".to_owned()] {
        assert!(bench.output.contains(&line), "{}", bench.report());
    }
    let rows = stage.run_with("psql", &format!("{bin}/psql {at} -At postgres"), "SELECT count(*) FROM pgbench_history;\n");
    assert_eq!(rows.ok(), format!("{}\n", each * 8));
    let statement = "SELECT repeat(chr(64 + n), 300000 * n) FROM generate_series(1, 9) n;\n";
    let large = stage.run_with("psql large", &format!("{bin}/psql {at} -At postgres"), statement);
    let expected: String = (1..=9_u8).map(|n| format!("{}\n", char::from(64 + n).to_string().repeat(300_000 * usize::from(n)))).collect();
    assert!(large.ok() == expected, "{} bytes of rows", large.output.len());
    let anew = stage.run("pgbench anew", &format!("{bin}/pgbench -C -S -c 4 -j 2 -t {} {at} postgres", by_form(15, 250)));
    assert!(anew.output.contains(&format!("processed: {0}/{0}", by_form(60, 1000))), "{}", anew.report());
    clients.extend([bench, rows, large, anew]);
    // Signals of another user are none.
    stage.run("stop", &format!("{bin}/pg_ctl stop -m fast -w -t 20 -D {data}"));
    let server = server.wait(Duration::from_secs(20));
    server.ok();
    assert_moved(&stage, &clients.iter().collect::<Vec<_>>());
    assert_children_served(&stage, &server, 8 + by_form(60, 1000), 13_000_000);
}

/// A line of `INFO SECTION`.
#[track_caller]
fn info(stage: &Stage, clients: &mut Vec<Ended>, port: u16, section: &str, name: &str) -> String {
    let client = stage.run(&format!("info {}", clients.len()), &format!("redis-cli -p {port} INFO {section}"));
    let value = client.output.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(':')).map(|text| text.trim().to_owned());
    let value = value.unwrap_or_else(|| panic!("no {name}: {}", client.report()));
    clients.push(client);
    value
}

/// The server forks to save, and goes on with the clients that it has, and with new ones.
#[test]
fn redis_that_has_saved() {
    let (stage, port) = (Stage::new().forking(), free_port());
    let folder = stage.scratch.path("").display().to_string();
    let server = stage.serve("server", &format!("redis-server --bind 127.0.0.1 --port {port} --save '' --dir {folder}"), port);
    let bench = |name: &str, what: &str| {
        let ended = stage.run(name, &format!("redis-benchmark -p {port} --csv {what}"));
        assert_eq!(
            ended.output.lines().filter(|line| line.starts_with("\"SET") || line.starts_with("\"GET")).count(),
            2,
            "{}",
            ended.report()
        );
        ended
    };
    let mut clients = vec![bench("first", "-n 20000 -r 20000 -d 300 -P 16 -t set,get")];
    let load = stage.program("load", &format!("redis-benchmark -p {port} --csv -n {} -P 4 -t set,get -r 20000", by_form(60_000, 600_000)));
    let load = load.start();
    thread::sleep(Duration::from_millis(200));
    clients.push(stage.run("bgsave", &format!("redis-cli -p {port} BGSAVE")));
    let load = load.wait(Duration::from_secs(60));
    load.ok();
    clients.push(load);
    until("the snapshot does not end", || info(&stage, &mut clients, port, "persistence", "rdb_bgsave_in_progress") == "0");
    assert_eq!(info(&stage, &mut clients, port, "persistence", "rdb_last_bgsave_status"), "ok");
    assert_ne!(info(&stage, &mut clients, port, "persistence", "rdb_saves"), "0");
    clients.push(bench("later", "-n 20000 -r 20000 -P 16 -t set,get"));
    clients.push(bench("anew", "-k 0 -n 200 -t set,get"));
    assert_eq!(info(&stage, &mut clients, port, "stats", "total_error_replies"), "0");
    let server = stage.stop(server, Signal::TERM, &[0]);
    assert_moved(&stage, &clients.iter().collect::<Vec<_>>());
    if stage.mode == Mode::Default {
        let moved = ["bytes_sent_shm", "bytes_received_shm"].map(|name| server.each[&server.pid].get(name));
        assert!(moved.iter().all(|bytes| *bytes > 1_000_000), "{}", server.report());
    }
}
