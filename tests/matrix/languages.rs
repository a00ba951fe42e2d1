//! Programs in languages with event loops of their own: Python, Java, Node.

use std::path::{Path, PathBuf};
use std::process::Command;

use rustix::process::Signal;

use crate::stage::{Stage, Way, data};
use crate::support::{Ended, free_port, repository, target_dir};
use crate::table::Table;

/// A file of `tests/matrix`.
fn script(name: &str) -> String {
    repository().join("tests/matrix").join(name).display().to_string()
}

/// How much is said: connections, messages on each, requests.
struct Talk {
    connections: u32,
    echoes: u32,
    requests: u32,
    settings: String,
}

impl Talk {
    fn new(stage: &Stage) -> Self {
        let (connections, rounds, requests) = stage.amount((20, 40, 400), (4, 5, 8));
        let host = stage.host();
        let settings = format!("env ECHO_HOST={host} ECHO_CONNECTIONS={connections} ECHO_ROUNDS={rounds} ECHO_REQUESTS={requests}");
        Self { connections, echoes: connections * rounds, requests, settings }
    }

    /// What a client says in the end.
    fn done(&self) -> String {
        format!("{} connections, {} echoes\n", self.connections, self.echoes)
    }

    #[track_caller]
    fn row(&self, table: &mut Table, program: &str, how: &str) {
        let what = format!("{how}: {} connections, messages of 1 byte to 400 KB", self.connections);
        table.row(program, &what, &Way::Fabric, "all echoes");
    }
}

/// Megabytes of a file that is sent there and back.
fn uploaded(stage: &Stage) -> u32 {
    stage.amount(6, 2)
}

/// Sends a file to a server that sends it back.
#[track_caller]
fn upload(stage: &Stage, name: &str, url: &str) -> Ended {
    let data = data(uploaded(stage));
    let (sent, back) = (stage.write("sent", &data), stage.scratch.path("back"));
    let line = format!("curl -sS --fail --max-time 60 -X POST -T {} -o {} {url}", sent.display(), back.display());
    let ended = stage.run(name, &line);
    assert!(std::fs::read(&back).is_ok_and(|back| back == data), "{url}: other bytes came back");
    ended
}

pub fn python() {
    let (stage, mut table) = (Stage::new(), Table::new("python"));
    let talk = Talk::new(&stage);
    for how in ["asyncio", "epoll", "poll", "select"] {
        let port = free_port();
        let line = |role: &str| format!("{} /usr/bin/python3 {} {role} {how} {port}", talk.settings, script("echo.py"));
        let server = stage.serve(&format!("{how} server"), &line("serve"), port);
        let client = stage.run(&format!("{how} client"), &line("ask"));
        assert_eq!(client.ok(), talk.done());
        if how == "asyncio" {
            stage.assert_idle(&server);
        }
        let server = stage.stop(server, Signal::TERM, &[0]);
        stage.assert_way(&Way::Fabric, &[&server, &client]);
        let what = if how == "asyncio" { "`asyncio`".to_owned() } else { format!("`selectors`, {how}") };
        talk.row(&mut table, "python3", &what);
    }
    files(&stage, &mut table);
    table.publish();
}

/// `python3 -m http.server`, which has a thread for each connection.
#[track_caller]
fn files(stage: &Stage, table: &mut Table) {
    let (host, port) = (stage.host(), free_port());
    let folder = stage.scratch.path("files");
    std::fs::create_dir(&folder).unwrap_or_else(|e| panic!("{}: {e}", folder.display()));
    let data = data(3);
    stage.write("files/file", &data);
    let line = format!("/usr/bin/python3 -m http.server {port} --bind {host} --directory {}", folder.display());
    let server = stage.serve("files server", &line, port);
    let url = format!("http://{host}:{port}/file");
    let copies = ["curl", "urllib"].map(|name| (name, stage.scratch.path(name).display().to_string()));
    let mut clients = Vec::new();
    for (name, copy) in &copies {
        let client = if *name == "curl" {
            stage.run(name, &format!("curl -sS --fail --max-time 60 -o {copy} {url}"))
        } else {
            let text = format!("import urllib.request\nurllib.request.urlretrieve({url:?}, {copy:?})\n");
            stage.run(name, &format!("/usr/bin/python3 {}", stage.write("fetch.py", text).display()))
        };
        assert!(std::fs::read(copy).is_ok_and(|found| found == data), "{copy}: another file");
        clients.push(client);
    }
    let server = stage.stop(server, Signal::INT, &[0]);
    stage.assert_way(&Way::Fabric, &clients.iter().chain([&server]).collect::<Vec<_>>());
    table.row("python3", "`-m http.server`, with `curl` and `urllib`", &Way::Fabric, "the file, twice");
}

/// The classes of `tests/matrix/*.java`, compiled by javac unless they are up to date.
#[track_caller]
pub fn classes() -> PathBuf {
    let sources = ["Echo.java", "Web.java"].map(script);
    let folder = target_dir().join("test-programs/java");
    let modified = |path: &Path| std::fs::metadata(path).and_then(|data| data.modified()).ok();
    let newest = sources.iter().filter_map(|source| modified(Path::new(source))).max();
    if modified(&folder.join("done")) <= newest {
        let javac = Command::new("javac").arg("-d").arg(&folder).args(&sources).output().expect("javac: scripts/setup");
        assert!(javac.status.success(), "{}", String::from_utf8_lossy(&javac.stderr));
        std::fs::write(folder.join("done"), "").unwrap_or_else(|e| panic!("{}: {e}", folder.display()));
    }
    folder
}

pub fn java() {
    let (stage, mut table) = (Stage::new(), Table::new("java"));
    let (talk, classes) = (Talk::new(&stage), classes().display().to_string());
    // where the processor is emulated the better compiler never earns what it costs
    let options = stage.amount("", "-XX:TieredStopAtLevel=1 -XX:-UsePerfData");
    let java = |class: &str, role: &str, port: u16| {
        format!("{} java -XX:+UseSerialGC -Xmx256m {options} -cp {classes} {class} {role} {port}", talk.settings)
    };
    let port = free_port();
    let server = stage.serve("echo server", &java("Echo", "serve", port), port);
    let mut clients = Vec::new();
    for (role, what) in
        [("ask", "`java.nio`, a `Selector` at both ends"), ("block", "`java.nio`, clients with `java.net.Socket` in threads")]
    {
        let client = stage.run(&format!("echo {role}"), &java("Echo", role, port));
        assert_eq!(client.ok(), talk.done());
        clients.push(client);
        talk.row(&mut table, "java", what);
    }
    stage.assert_idle(&server);
    let server = stage.stop(server, Signal::TERM, &[143]);
    stage.assert_way(&Way::Fabric, &clients.iter().chain([&server]).collect::<Vec<_>>());

    let port = free_port();
    let server = stage.serve("web server", &java("Web", "serve", port), port);
    let client = stage.run("web client", &java("Web", "ask", port));
    assert_eq!(client.ok(), format!("{} answers\n", talk.requests));
    let curl = upload(&stage, "curl", &format!("http://{}:{port}/echo", stage.host()));
    let server = stage.stop(server, Signal::TERM, &[143]);
    stage.assert_way(&Way::Fabric, &[&server, &client, &curl]);
    let how = "`com.sun.net.httpserver` with `java.net.http.HttpClient`";
    table.row("java", &format!("{how}: {} requests of up to 1 MB by POST, 20 at a time", talk.requests), &Way::Fabric, "all answers");
    table.row(
        "java",
        &format!("`com.sun.net.httpserver` with `curl -T`: a file of {} MB there and back", uploaded(&stage)),
        &Way::Fabric,
        "the file",
    );
    table.publish();
}

pub fn node() {
    let (stage, mut table) = (Stage::new(), Table::new("node"));
    let talk = Talk::new(&stage);
    let node = |file: &str, role: &str, port: u16| format!("{} /usr/bin/node {} {role} {port}", talk.settings, script(file));
    let port = free_port();
    let server = stage.serve("net server", &node("net.js", "serve", port), port);
    let client = stage.run("net client", &node("net.js", "ask", port));
    assert_eq!(client.ok(), talk.done());
    let server = stage.stop(server, Signal::TERM, &[0]);
    stage.assert_way(&Way::Fabric, &[&server, &client]);
    talk.row(&mut table, "node", "`net`");

    let port = free_port();
    let server = stage.serve("http server", &node("http.js", "serve", port), port);
    let client = stage.run("http client", &node("http.js", "ask", port));
    let (kept, alone) = (talk.requests, talk.requests / 8);
    assert_eq!(client.ok(), format!("{} answers\n", kept + alone));
    let curl = upload(&stage, "curl", &format!("http://{}:{port}/", stage.host()));
    stage.assert_idle(&server);
    let server = stage.stop(server, Signal::TERM, &[0]);
    stage.assert_way(&Way::Fabric, &[&server, &client, &curl]);
    let what = format!("`http`: {kept} requests of up to 1 MB by POST over 8 connections, {alone} alone");
    table.row("node", &what, &Way::Fabric, "all answers");
    table.row("node", &format!("`http` with `curl -T`: a file of {} MB there and back", uploaded(&stage)), &Way::Fabric, "the file");
    table.publish();
}
