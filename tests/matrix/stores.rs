//! Servers that keep data: Redis, memcached, PostgreSQL, MariaDB.

use std::fs::File;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::thread;
use std::time::{Duration, Instant};

use rustix::process::Signal;

use crate::stage::{Stage, Way};
use crate::support::{Ended, Running, free_port, is_root, repository, target_dir};
use crate::table::Table;

const PATIENCE: Duration = Duration::from_secs(60);

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
        let (host, port) = (stage.host(), free_port());
        let folder = stage.scratch.path("");
        let line = format!(
            "redis-server --bind {host} --protected-mode no --port {port} --save '' --dir {} --dbfilename {port}.rdb",
            folder.display()
        );
        let server = stage.serve(&format!("redis-server {port}"), &line, port);
        Self { stage, port, server, clients: Vec::new() }
    }

    fn at(&self) -> String {
        format!("-h {} -p {}", self.stage.host(), self.port)
    }

    #[track_caller]
    fn benchmark(&mut self, arguments: &str) -> String {
        let line = format!("redis-benchmark {} --csv {arguments}", self.at());
        let ended = self.stage.run(&format!("redis-benchmark {} {}", self.port, self.clients.len()), &line);
        self.keep(ended)
    }

    /// What redis-cli says to these commands, one a line.
    #[track_caller]
    fn say(&mut self, commands: &str) -> String {
        let name = format!("redis-cli {} {}", self.port, self.clients.len());
        let ended = self.stage.run_with(&name, &format!("redis-cli {}", self.at()), commands);
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

pub fn redis() {
    let (stage, mut table) = (Stage::new(), Table::new("redis"));
    let mut redis = Redis::start(&stage);
    let many = stage.amount(50, 8);
    for (arguments, said) in [
        (format!("-c {many} -P 1 -n {} -t set,get,incr,lpush", stage.amount(20_000, 400)), "SET GET INCR LPUSH"),
        (format!("-c {many} -P 16 -n {} -t set,get,incr,lpush", stage.amount(50_000, 1600)), "SET GET INCR LPUSH"),
        (format!("-c {many} -k 0 -n {} -t set,get", stage.amount(2000, 40)), "SET GET"),
        (format!("-d 200000 -c {} -n {} -t set,get", stage.amount(10, 4), stage.amount(500, 20)), "SET GET"),
        (format!("-c {} -n {} --threads 2 -t set,get", stage.amount(300, 40), stage.amount(20_000, 400)), "SET GET"),
    ] {
        assert_eq!(measured(&redis.benchmark(&arguments)), said.split(' ').collect::<Vec<_>>(), "{arguments}");
        redis.assert_no_errors();
        table.row("redis", &format!("`redis-benchmark {arguments}`"), &Way::Fabric, "all commands answered, no error");
    }
    publish_and_subscribe(&mut redis);
    table.row(
        "redis",
        &format!("`redis-cli`: 3 subscribers, {} messages published", stage.amount(200, 50)),
        &Way::Fabric,
        "each has got all, in order",
    );
    let said = redis.say("MULTI\nSET a 1\nINCR a\nGET a\nEXEC\nGET a\n");
    assert_eq!(said, "OK\nQUEUED\nQUEUED\nQUEUED\nOK\n2\n2\n2\n");
    table.row("redis", "`redis-cli`: MULTI … EXEC", &Way::Fabric, "the replies");
    redis.assert_no_errors();
    stage.assert_idle(&redis.server);
    let (server, clients) = redis.stop();
    stage.assert_way(&Way::Fabric, &clients.iter().chain([&server]).collect::<Vec<_>>());
    saving(&stage, &mut table);
    table.publish();
}

#[track_caller]
fn publish_and_subscribe(redis: &mut Redis<'_>) {
    let subscribers: Vec<Running> = (0..3)
        .map(|number| {
            let line = format!("redis-cli {} SUBSCRIBE news", redis.at());
            redis.stage.program(&format!("subscriber {number}"), &line).start()
        })
        .collect();
    let until = Instant::now() + PATIENCE;
    while redis.say("PUBSUB NUMSUB news\n") != "news\n3\n" {
        assert!(Instant::now() < until, "nobody subscribes");
        thread::sleep(Duration::from_millis(20));
    }
    let many = redis.stage.amount(200, 50);
    let commands: String = (0..many).map(|number| format!("PUBLISH news message-{number}\n")).collect();
    assert_eq!(redis.say(&commands), "3\n".repeat(many));
    let expected: String = (0..many).map(|number| format!("message\nnews\nmessage-{number}\n")).collect();
    let expected = format!("subscribe\nnews\n1\n{expected}");
    for subscriber in &subscribers {
        while subscriber.output() != expected {
            assert!(Instant::now() < until, "a subscriber has got\n{}", subscriber.output());
            thread::sleep(Duration::from_millis(5));
        }
    }
    assert_eq!(redis.say("CLIENT KILL TYPE pubsub\n"), "3\n");
    for subscriber in subscribers {
        let ended = subscriber.wait(PATIENCE);
        assert!(ended.code().is_some(), "{}", ended.report());
        redis.clients.push(ended);
    }
}

/// A snapshot while clients are served: the server forks. Clients stay on their fabric, and new ones come over it too.
#[track_caller]
fn saving(stage: &Stage, table: &mut Table) {
    let mut redis = Redis::start(stage);
    let (keys, many) = stage.amount((50_000, 50), (2000, 8));
    assert_eq!(measured(&redis.benchmark(&format!("-c {many} -n {keys} -r {keys} -d 500 -P 16 -t set"))), ["SET"]);
    let requests = stage.amount(300_000, 4000);
    let line = format!("redis-benchmark {} --csv -c {many} -n {requests} -P 4 -t set -r {keys}", redis.at());
    let load = stage.program("load", &line).start();
    let until = Instant::now() + PATIENCE;
    while redis.info("clients", "connected_clients").parse().is_ok_and(|clients: u32| clients < many) {
        assert!(Instant::now() < until, "the load does not connect");
    }
    assert_eq!(redis.say("BGSAVE\n"), "Background saving started\n");
    let load = load.wait(PATIENCE);
    assert_eq!(measured(load.ok()), ["SET"], "{}", load.report());
    let until = Instant::now() + PATIENCE;
    while redis.info("persistence", "rdb_bgsave_in_progress") != "0" {
        assert!(Instant::now() < until, "the snapshot does not end");
        thread::sleep(Duration::from_millis(50));
    }
    assert_eq!(redis.info("persistence", "rdb_last_bgsave_status"), "ok");
    assert_ne!(redis.info("persistence", "rdb_saves"), "0");
    redis.assert_no_errors();
    // of a server whose child has exited
    let line = format!("-c {many} -n {} -t ping_mbulk", stage.amount(2000, 40));
    assert_eq!(measured(&redis.benchmark(&line)), ["PING_MBULK"]);
    let (server, clients) = redis.stop();
    stage.assert_way(&Way::Fabric, &clients.iter().chain([&load, &server]).collect::<Vec<_>>());
    let said = "all commands answered, `rdb_last_bgsave_status:ok`";
    table.row("redis", "`redis-benchmark` while the server does BGSAVE", &Way::Fabric, said);
    table.row("redis", "clients that come after BGSAVE", &Way::Fabric, "no error");
}

pub fn memcached() {
    let (stage, mut table) = (Stage::new(), Table::new("memcached"));
    let (host, port) = (stage.host(), free_port());
    let (threads, rounds, many, commands) = stage.amount((8, 200, 32, 20_000), (2, 60, 8, 1000));
    let user = if is_root() { "-u root" } else { "" };
    let server = stage.serve("server", &format!("memcached -l {host} -p {port} -U 0 -t 4 -m 200 -I 4m {user}"), port);
    let script = repository().join("tests/matrix/memcached_client.py");
    let client = stage.run("client", &format!("/usr/bin/python3 {} {host} {port} {threads} {rounds}", script.display()));
    let said = format!("{threads} threads, {} rounds: all values as they were set\n", threads * rounds);
    assert_eq!(client.ok(), said, "{}", client.report());
    let load = stage.run("memcaslap", &format!("memcaslap -s {host}:{port} -T 2 -c {many} -x {commands}"));
    let figure = |name: &str| load.output.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(": ")?.parse::<u32>().ok());
    assert_eq!(figure("cmd_get").zip(figure("cmd_set")).map(|(get, set)| get + set), Some(commands), "{}", load.report());
    assert_eq!(figure("get_misses"), Some(0), "{}", load.report());
    stage.assert_idle(&server);
    let server = stage.stop(server, Signal::TERM, &[0]);
    stage.assert_way(&Way::Fabric, &[&server, &client, &load]);
    let what = "of `pymemcache`: set, get, get_many, cas, incr, delete, values of 1 byte to 2 MB, new connections";
    table.row("memcached", &format!("`-t 4`; {threads} threads {what}"), &Way::Fabric, "all values as they were set");
    let what = format!("`-t 4`; `memcaslap -T 2 -c {many} -x {commands}`");
    table.row("memcached", &what, &Way::Fabric, "all commands, no miss");
    table.publish();
}

/// The folder of the newest version that is installed.
#[track_caller]
fn postgresql_folder() -> String {
    let versions = std::fs::read_dir("/usr/lib/postgresql").into_iter().flatten().flatten();
    let newest = versions.filter_map(|entry| entry.file_name().to_str()?.parse::<u32>().ok()).max();
    format!("/usr/lib/postgresql/{}/bin", newest.expect("PostgreSQL is not installed: scripts/setup"))
}

/// A folder that is made once, of which copies serve: `make` fills it, anew when this program has been replaced since.
#[track_caller]
fn made_once(name: &str, program: &str, make: impl FnOnce(&Path)) -> PathBuf {
    let folder = target_dir().join("test-data").join(name);
    let modified = |path: &Path| std::fs::metadata(path).and_then(|data| data.modified()).ok();
    if modified(&folder.join("made")) <= modified(Path::new(program)) {
        let _ = std::fs::remove_dir_all(&folder);
        std::fs::create_dir_all(&folder).unwrap_or_else(|e| panic!("{}: {e}", folder.display()));
        make(&folder.join("data"));
        std::fs::write(folder.join("made"), "").unwrap_or_else(|e| panic!("{}: {e}", folder.display()));
    }
    folder.join("data")
}

#[track_caller]
fn copy(from: &Path, to: impl AsRef<Path>) {
    let copied = Command::new("cp").args(["-r", "--preserve=mode", "--"]).arg(from).arg(to.as_ref()).status();
    assert!(copied.is_ok_and(|status| status.success()), "no copy of {}", from.display());
}

#[track_caller]
pub fn postgresql_data() -> PathBuf {
    let bin = postgresql_folder();
    made_once("postgresql", &format!("{bin}/postgres"), |folder| {
        let stage = Stage::of_user("postgres");
        let data = stage.scratch.path("data");
        stage.run("initdb", &format!("{bin}/initdb --no-sync -A trust -U tester -D {}", data.display()));
        copy(&data, folder);
    })
}

#[track_caller]
pub fn mariadb_data() -> PathBuf {
    made_once("mariadb", "/usr/sbin/mariadbd", |folder| {
        let made = Command::new("mariadb-install-db")
            .args(["--no-defaults", "--auth-root-authentication-method=normal", "--skip-test-db", "--innodb-log-file-size=4M"])
            .arg(format!("--datadir={}", folder.display()))
            .args(is_root().then_some("--user=root"))
            .output()
            .expect("mariadb-install-db: scripts/setup");
        assert!(made.status.success(), "{}{}", String::from_utf8_lossy(&made.stdout), String::from_utf8_lossy(&made.stderr));
    })
}

/// A process for each client, begun after `listen`.
pub fn postgresql() {
    let (stage, mut table) = (Stage::of_user("postgres"), Table::new("postgresql"));
    let (bin, port) = (postgresql_folder(), free_port());
    let folder = stage.scratch.path("data").display().to_string();
    let sockets = stage.scratch.path("").display().to_string();
    copy(&postgresql_data(), &folder);
    if is_root() {
        let given = Command::new("chown").args(["-R", "postgres:postgres", "--", &folder]).status();
        assert!(given.is_ok_and(|status| status.success()), "chown {folder}");
    }
    let everybody = format!("host all all {}/32 trust\n", stage.host());
    let written = File::options().append(true).open(format!("{folder}/pg_hba.conf"));
    let written = written.and_then(|mut file| file.write_all(everybody.as_bytes()));
    written.unwrap_or_else(|e| panic!("{folder}: {e}"));
    let settings = "-c listen_addresses=HOST -c fsync=off -c max_connections=30 -c shared_buffers=16MB".replace("HOST", stage.host());
    let server = stage.program("server", &format!("{bin}/postgres -D {folder} -p {port} -k {sockets} {settings}")).start();
    server.wait_until_listening(port);
    let at = format!("-h {} -p {port} -U tester", stage.host());
    let until = Instant::now() + PATIENCE;
    while stage.program("isready", &format!("{bin}/pg_isready {at}")).run(PATIENCE).code() != Some(0) {
        assert!(Instant::now() < until, "the server does not get ready");
        thread::sleep(Duration::from_millis(50));
    }
    let mut clients = vec![stage.run("fill", &format!("{bin}/pgbench -i -q {at} postgres"))];
    let (each_of_8, each_of_4) = stage.amount((100, 25), (5, 2));
    let bench = stage.run("pgbench", &format!("{bin}/pgbench -c 8 -j 2 -t {each_of_8} {at} postgres"));
    let processed = |number: u32| format!("number of transactions actually processed: {number}/{number}\n");
    for line in [&processed(8 * each_of_8), "number of failed transactions: 0 (0.000%)"] {
        assert!(bench.output.contains(line), "{}", bench.report());
    }
    // before the next pgbench empties it
    let sum = stage.run_with("psql", &format!("{bin}/psql {at} -At postgres"), "SELECT count(*) FROM pgbench_history;\n");
    assert_eq!(sum.ok(), format!("{}\n", 8 * each_of_8));
    let each = stage.run("pgbench anew", &format!("{bin}/pgbench -C -S -c 4 -j 2 -t {each_of_4} {at} postgres"));
    assert!(each.output.contains(&processed(4 * each_of_4)), "{}", each.report());
    clients.extend([bench, each, sum]);
    let server = stage.stop(server, Signal::INT, &[0]);
    let way = Way::Tcp("a process for each client");
    stage.assert_way(&way, &clients.iter().chain([&server]).collect::<Vec<_>>());
    table.row("PostgreSQL", &format!("`pgbench -c 8 -j 2 -t {each_of_8}`"), &way, "all transactions, none failed");
    table.row("PostgreSQL", &format!("`pgbench -C -S -c 4 -j 2 -t {each_of_4}`"), &way, "all transactions");
    table.publish();
}

/// A thread for each client.
pub fn mariadb() {
    let (stage, mut table) = (Stage::new(), Table::new("mariadb"));
    let (host, port) = (stage.host(), free_port());
    let folder = stage.scratch.path("data").display().to_string();
    copy(&mariadb_data(), &folder);
    let user = if is_root() { "--user=root" } else { "" };
    let users = "CREATE USER tester@'%';\nGRANT ALL ON *.* TO tester@'%' WITH GRANT OPTION;\n";
    let users = format!("--skip-name-resolve --init-file={}", stage.write("users", users).display());
    let socket = stage.scratch.path("socket").display().to_string();
    let settings = "--innodb-flush-log-at-trx-commit=0 --innodb-buffer-pool-size=16M --innodb-log-file-size=4M --max-allowed-packet=16M";
    let line = format!(
        "/usr/sbin/mariadbd --no-defaults --datadir={folder} --bind-address={host} --port={port} --socket={socket} {settings} {users} {user}"
    );
    let server = stage.serve("server", &line, port);
    let at = format!("--no-defaults -h {host} -P {port} --protocol=tcp -u tester");
    let mut clients = Vec::new();
    let queries = stage.amount(2000, 160);
    let line =
        format!("mariadb-slap {at} --auto-generate-sql --concurrency=8 --number-of-queries={queries} --auto-generate-sql-load-type=mixed");
    clients.push(stage.run("slap", &line));
    let average = format!("Average number of queries per client: {}", queries / 8);
    assert!(clients[0].output.contains(&average), "{}", clients[0].report());
    let what = format!("`mariadb-slap --concurrency=8 --number-of-queries={queries}`, mixed");
    table.row("MariaDB", &what, &Way::Fabric, "all queries, none failed");
    let statements = "CREATE DATABASE t; USE t; CREATE TABLE t (number INT PRIMARY KEY, data LONGBLOB) ENGINE=InnoDB;
        INSERT INTO t SELECT seq, REPEAT(CHAR(64 + seq), 300000 * seq) FROM seq_1_to_9; SELECT number, data FROM t ORDER BY number;";
    let rows = stage.run_with("rows", &format!("mariadb {at} -N"), statements);
    let expected: String = (1..=9_u8)
        .map(|number| format!("{number}\t{}\n", char::from(64 + number).to_string().repeat(300_000 * usize::from(number))))
        .collect();
    assert!(rows.ok() == expected, "{} bytes of rows", rows.output.len());
    clients.push(rows);
    table.row("MariaDB", "`mariadb`: rows of up to 2.7 MB", &Way::Fabric, "the rows");
    stage.assert_idle(&server);
    clients.push(stage.run("shutdown", &format!("mariadb-admin {at} shutdown")));
    let server = server.wait(PATIENCE);
    server.ok();
    stage.assert_way(&Way::Fabric, &clients.iter().chain([&server]).collect::<Vec<_>>());
    table.publish();
}
