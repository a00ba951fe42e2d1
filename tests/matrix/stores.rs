//! Servers that keep data: Redis, memcached, PostgreSQL, MariaDB.

use std::thread;
use std::time::{Duration, Instant};

use rustix::process::Signal;

use crate::stage::{Stage, Way};
use crate::support::{Ended, Running, free_port, is_root, repository};
use crate::table::Table;

/// A Redis server and those who talk to it.
struct Redis<'a> {
    stage: &'a Stage,
    port: u16,
    server: Running,
    clients: Vec<Ended>,
}

impl<'a> Redis<'a> {
    #[track_caller]
    fn start(stage: &'a Stage) -> Self {
        let port = free_port();
        let folder = stage.scratch.path("");
        let line = format!("redis-server --bind 127.0.0.1 --port {port} --save '' --dir {} --dbfilename {port}.rdb", folder.display());
        let server = stage.serve(&format!("redis-server {port}"), &line, port);
        Self { stage, port, server, clients: Vec::new() }
    }

    #[track_caller]
    fn benchmark(&mut self, arguments: &str) -> String {
        let line = format!("redis-benchmark -p {} --csv {arguments}", self.port);
        let ended = self.stage.run(&format!("redis-benchmark {} {}", self.port, self.clients.len()), &line);
        self.keep(ended)
    }

    /// What redis-cli says to these commands, one a line.
    #[track_caller]
    fn say(&mut self, commands: &str) -> String {
        let name = format!("redis-cli {} {}", self.port, self.clients.len());
        let ended = self.stage.run_with(&name, &format!("redis-cli -p {}", self.port), commands);
        self.keep(ended)
    }

    fn keep(&mut self, ended: Ended) -> String {
        let output = ended.output.clone();
        self.clients.push(ended);
        output
    }

    /// A line of `INFO SECTION`.
    #[track_caller]
    fn info(&mut self, section: &str, name: &str) -> String {
        let text = self.say(&format!("INFO {section}\n"));
        let value = text.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(':'));
        value.unwrap_or_else(|| panic!("no {name} in {text}")).trim().to_owned()
    }

    #[track_caller]
    fn assert_no_errors(&mut self) {
        assert_eq!(self.info("stats", "total_error_replies"), "0");
    }

    #[track_caller]
    fn stop(self) -> (Ended, Vec<Ended>) {
        (self.stage.stop(self.server, Signal::TERM, &[0]), self.clients)
    }
}

/// The tests that redis-benchmark's CSV has a line of, with more than 0 requests a second.
fn measured(csv: &str) -> Vec<String> {
    let lines = csv.lines().skip(1).map(|line| line.split("\",\"").map(|field| field.trim_matches('"')).collect::<Vec<_>>());
    let good = lines.filter(|fields| fields.get(1).is_some_and(|rate| rate.parse::<f64>().is_ok_and(|rate| rate > 0.0)));
    good.filter_map(|fields| fields.first()?.split(' ').next().map(str::to_owned)).collect()
}

#[test]
fn redis() {
    let (stage, mut table) = (Stage::new(), Table::new("redis"));
    let mut redis = Redis::start(&stage);
    for (arguments, said) in [
        ("-P 1 -n 20000 -t set,get,incr,lpush", "SET GET INCR LPUSH"),
        ("-P 16 -n 50000 -t set,get,incr,lpush", "SET GET INCR LPUSH"),
        ("-k 0 -n 2000 -t set,get", "SET GET"),
        ("-d 200000 -c 10 -n 500 -t set,get", "SET GET"),
        ("-c 300 -n 20000 --threads 2 -t set,get", "SET GET"),
    ] {
        assert_eq!(measured(&redis.benchmark(arguments)), said.split(' ').collect::<Vec<_>>(), "{arguments}");
        redis.assert_no_errors();
        table.row("redis", &format!("`redis-benchmark {arguments}`"), &Way::Shm, "all commands answered, no error");
    }
    publish_and_subscribe(&mut redis);
    table.row("redis", "`redis-cli`: 3 subscribers, 200 messages published", &Way::Shm, "each has got all, in order");
    let said = redis.say("MULTI\nSET a 1\nINCR a\nGET a\nEXEC\nGET a\n");
    assert_eq!(said, "OK\nQUEUED\nQUEUED\nQUEUED\nOK\n2\n2\n2\n");
    table.row("redis", "`redis-cli`: MULTI … EXEC", &Way::Shm, "the replies");
    redis.assert_no_errors();
    stage.assert_idle(&redis.server);
    let (server, clients) = redis.stop();
    stage.assert_way(&Way::Shm, &clients.iter().chain([&server]).collect::<Vec<_>>());
    saving(&stage, &mut table);
    table.publish();
}

#[track_caller]
fn publish_and_subscribe(redis: &mut Redis<'_>) {
    let subscribers: Vec<Running> = (0..3)
        .map(|number| {
            let line = format!("redis-cli -p {} SUBSCRIBE news", redis.port);
            redis.stage.program(&format!("subscriber {number}"), &line).start()
        })
        .collect();
    let until = Instant::now() + Duration::from_secs(20);
    while redis.say("PUBSUB NUMSUB news\n") != "news\n3\n" {
        assert!(Instant::now() < until, "nobody subscribes");
        thread::sleep(Duration::from_millis(20));
    }
    let commands: String = (0..200).map(|number| format!("PUBLISH news message-{number}\n")).collect();
    assert_eq!(redis.say(&commands), "3\n".repeat(200));
    let expected: String = (0..200).map(|number| format!("message\nnews\nmessage-{number}\n")).collect();
    let expected = format!("subscribe\nnews\n1\n{expected}");
    for subscriber in &subscribers {
        while subscriber.output() != expected {
            assert!(Instant::now() < until, "a subscriber has got\n{}", subscriber.output());
            thread::sleep(Duration::from_millis(5));
        }
    }
    assert_eq!(redis.say("CLIENT KILL TYPE pubsub\n"), "3\n");
    for subscriber in subscribers {
        let ended = subscriber.wait(Duration::from_secs(20));
        assert!(ended.code().is_some(), "{}", ended.report());
        redis.clients.push(ended);
    }
}

/// A snapshot while clients are served: the server forks. Clients that are connected stay where they are; new ones come over TCP.
#[track_caller]
fn saving(stage: &Stage, table: &mut Table) {
    let mut redis = Redis::start(stage);
    assert_eq!(measured(&redis.benchmark("-n 50000 -r 50000 -d 500 -P 16 -t set")), ["SET"]);
    let line = format!("redis-benchmark -p {} --csv -n 300000 -P 4 -t set -r 50000", redis.port);
    let load = stage.program("load", &line).start();
    thread::sleep(Duration::from_millis(300));
    assert_eq!(redis.say("BGSAVE\n"), "Background saving started\n");
    let load = load.wait(Duration::from_secs(60));
    assert_eq!(measured(load.ok()), ["SET"], "{}", load.report());
    let until = Instant::now() + Duration::from_secs(20);
    while redis.info("persistence", "rdb_bgsave_in_progress") != "0" {
        assert!(Instant::now() < until, "the snapshot does not end");
        thread::sleep(Duration::from_millis(50));
    }
    assert_eq!(redis.info("persistence", "rdb_last_bgsave_status"), "ok");
    assert_ne!(redis.info("persistence", "rdb_saves"), "0");
    redis.assert_no_errors();
    // of a server whose child has exited
    assert_eq!(measured(&redis.benchmark("-n 2000 -t ping_mbulk")), ["PING_MBULK"]);
    let (server, clients) = redis.stop();
    stage.assert_way(&Way::Shm, &clients.iter().chain([&load, &server]).collect::<Vec<_>>());
    table.row("redis", "`redis-benchmark` while the server does BGSAVE", &Way::Shm, "all commands answered, `rdb_last_bgsave_status:ok`");
    table.row("redis", "clients that come after BGSAVE", &Way::Shm, "no error");
}

#[test]
fn memcached() {
    let (stage, mut table) = (Stage::new(), Table::new("memcached"));
    let port = free_port();
    let user = if is_root() { "-u root" } else { "" };
    let server = stage.serve("server", &format!("memcached -l 127.0.0.1 -p {port} -U 0 -t 4 -m 200 -I 4m {user}"), port);
    let script = repository().join("tests/matrix/memcached_client.py");
    let client = stage.run("client", &format!("/usr/bin/python3 {} {port}", script.display()));
    assert_eq!(client.ok(), "8 threads, 1600 rounds: all values as they were set\n", "{}", client.report());
    let load = stage.run("memcaslap", &format!("memcaslap -s 127.0.0.1:{port} -T 2 -c 32 -x 20000"));
    let figure = |name: &str| load.output.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(": ")?.parse::<u32>().ok());
    assert_eq!(figure("cmd_get").zip(figure("cmd_set")).map(|(get, set)| get + set), Some(20_000), "{}", load.report());
    assert_eq!(figure("get_misses"), Some(0), "{}", load.report());
    stage.assert_idle(&server);
    let server = stage.stop(server, Signal::TERM, &[0]);
    stage.assert_way(&Way::Shm, &[&server, &client, &load]);
    let what = "`-t 4`; 8 threads of `pymemcache`: set, get, get_many, cas, incr, delete, values of 1 byte to 2 MB, new connections";
    table.row("memcached", what, &Way::Shm, "all values as they were set");
    table.row("memcached", "`-t 4`; `memcaslap -T 2 -c 32 -x 20000`", &Way::Shm, "20000 of 20000 commands, no miss");
    table.publish();
}

/// The folder of the newest version that is installed.
#[track_caller]
fn postgresql_folder() -> String {
    let versions = std::fs::read_dir("/usr/lib/postgresql").into_iter().flatten().flatten();
    let newest = versions.filter_map(|entry| entry.file_name().to_str()?.parse::<u32>().ok()).max();
    format!("/usr/lib/postgresql/{}/bin", newest.expect("PostgreSQL is not installed: scripts/setup"))
}

/// A process for each client, begun after `listen`.
#[test]
fn postgresql() {
    let (stage, mut table) = (Stage::of_user("postgres"), Table::new("postgresql"));
    let (bin, port) = (postgresql_folder(), free_port());
    let folder = stage.scratch.path("data").display().to_string();
    let sockets = stage.scratch.path("").display().to_string();
    stage.run("initdb", &format!("{bin}/initdb --no-sync -A trust -U tester -D {folder}"));
    let settings = "-c listen_addresses=127.0.0.1 -c fsync=off -c max_connections=30 -c shared_buffers=16MB";
    let server = stage.program("server", &format!("{bin}/postgres -D {folder} -p {port} -k {sockets} {settings}")).start();
    server.wait_until_listening(port);
    let at = format!("-h 127.0.0.1 -p {port} -U tester");
    let until = Instant::now() + Duration::from_secs(20);
    while stage.program("isready", &format!("{bin}/pg_isready {at}")).run(Duration::from_secs(10)).code() != Some(0) {
        assert!(Instant::now() < until, "the server does not get ready");
        thread::sleep(Duration::from_millis(50));
    }
    let mut clients = vec![stage.run("fill", &format!("{bin}/pgbench -i -q {at} postgres"))];
    let bench = stage.run("pgbench", &format!("{bin}/pgbench -c 8 -j 2 -t 100 {at} postgres"));
    for line in ["number of transactions actually processed: 800/800", "number of failed transactions: 0 (0.000%)"] {
        assert!(bench.output.contains(line), "{}", bench.report());
    }
    // before the next pgbench empties it
    let sum = stage.run_with("psql", &format!("{bin}/psql {at} -At postgres"), "SELECT count(*) FROM pgbench_history;\n");
    assert_eq!(sum.ok(), "800\n");
    let each = stage.run("pgbench anew", &format!("{bin}/pgbench -C -S -c 4 -j 2 -t 25 {at} postgres"));
    assert!(each.output.contains("number of transactions actually processed: 100/100"), "{}", each.report());
    clients.extend([bench, each, sum]);
    let server = stage.stop(server, Signal::INT, &[0]);
    let way = Way::Tcp("a process for each client");
    stage.assert_way(&way, &clients.iter().chain([&server]).collect::<Vec<_>>());
    table.row("PostgreSQL", "`pgbench -c 8 -j 2 -t 100`", &way, "800 of 800 transactions, none failed");
    table.row("PostgreSQL", "`pgbench -C -S -c 4 -j 2 -t 25`", &way, "100 of 100 transactions");
    table.publish();
}

/// A thread for each client.
#[test]
fn mariadb() {
    let (stage, mut table) = (Stage::new(), Table::new("mariadb"));
    let port = free_port();
    let folder = stage.scratch.path("data").display().to_string();
    let user = if is_root() { "--user=root" } else { "" };
    stage.run(
        "install",
        &format!("mariadb-install-db --no-defaults --datadir={folder} --auth-root-authentication-method=normal --skip-test-db {user}"),
    );
    let socket = stage.scratch.path("socket").display().to_string();
    let settings = "--innodb-flush-log-at-trx-commit=0 --innodb-buffer-pool-size=16M --max-allowed-packet=16M";
    let line = format!(
        "/usr/sbin/mariadbd --no-defaults --datadir={folder} --bind-address=127.0.0.1 --port={port} --socket={socket} {settings} {user}"
    );
    let server = stage.serve("server", &line, port);
    let at = format!("--no-defaults -h 127.0.0.1 -P {port} --protocol=tcp -u root");
    let mut clients = Vec::new();
    let line =
        format!("mariadb-slap {at} --auto-generate-sql --concurrency=8 --number-of-queries=2000 --auto-generate-sql-load-type=mixed");
    clients.push(stage.run("slap", &line));
    assert!(clients[0].output.contains("Average number of queries per client: 250"), "{}", clients[0].report());
    table.row("MariaDB", "`mariadb-slap --concurrency=8`, mixed", &Way::Shm, "2000 queries, none failed");
    let statements = "CREATE DATABASE t; USE t; CREATE TABLE t (number INT PRIMARY KEY, data LONGBLOB) ENGINE=InnoDB;
        INSERT INTO t SELECT seq, REPEAT(CHAR(64 + seq), 300000 * seq) FROM seq_1_to_9; SELECT number, data FROM t ORDER BY number;";
    let rows = stage.run_with("rows", &format!("mariadb {at} -N"), statements);
    let expected: String = (1..=9_u8)
        .map(|number| format!("{number}\t{}\n", char::from(64 + number).to_string().repeat(300_000 * usize::from(number))))
        .collect();
    assert!(rows.ok() == expected, "{} bytes of rows", rows.output.len());
    clients.push(rows);
    table.row("MariaDB", "`mariadb`: rows of up to 2.7 MB", &Way::Shm, "the rows");
    stage.assert_idle(&server);
    clients.push(stage.run("shutdown", &format!("mariadb-admin {at} shutdown")));
    let server = server.wait(Duration::from_secs(20));
    server.ok();
    stage.assert_way(&Way::Shm, &clients.iter().chain([&server]).collect::<Vec<_>>());
    table.publish();
}
