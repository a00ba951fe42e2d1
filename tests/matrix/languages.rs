//! Programs in languages with event loops of their own: Python, Java, Node.

use rustix::process::Signal;

use crate::stage::{Stage, Way};
use crate::support::{Ended, free_port, repository};
use crate::table::Table;

const ECHOES: &str = "20 connections, 800 echoes\n";

/// A file of `tests/matrix`.
fn script(name: &str) -> String {
    repository().join("tests/matrix").join(name).display().to_string()
}

/// Sends a file to a server that sends it back.
#[track_caller]
fn upload(stage: &Stage, name: &str, url: &str) -> Ended {
    let data: Vec<u8> = (0..1_500_000_u32).flat_map(|number| number.wrapping_mul(0x9E37_79B1).to_le_bytes()).collect();
    let (sent, back) = (stage.write("sent", &data), stage.scratch.path("back"));
    let line = format!("curl -sS --fail --max-time 30 -X POST -T {} -o {} {url}", sent.display(), back.display());
    let ended = stage.run(name, &line);
    assert!(std::fs::read(&back).is_ok_and(|back| back == data), "{url}: other bytes came back");
    ended
}

#[test]
fn python() {
    let (stage, mut table) = (Stage::new(), Table::new("python"));
    for how in ["asyncio", "epoll", "poll", "select"] {
        let port = free_port();
        let line = |role: &str| format!("/usr/bin/python3 {} {role} {how} {port}", script("echo.py"));
        let server = stage.serve(&format!("{how} server"), &line("serve"), port);
        let client = stage.run(&format!("{how} client"), &line("ask"));
        assert_eq!(client.ok(), ECHOES);
        if how == "asyncio" {
            stage.assert_idle(&server);
        }
        let server = stage.stop(server, Signal::TERM, &[0]);
        stage.assert_way(&Way::Shm, &[&server, &client]);
        let what = if how == "asyncio" { "`asyncio`".to_owned() } else { format!("`selectors`, {how}") };
        table.row("python3", &format!("{what}: 20 connections, messages of 1 byte to 400 KB"), &Way::Shm, "800 of 800 echoes");
    }
    files(&stage, &mut table);
    table.publish();
}

/// `python3 -m http.server`, which has a thread for each connection.
#[track_caller]
fn files(stage: &Stage, table: &mut Table) {
    let port = free_port();
    let folder = stage.scratch.path("files");
    std::fs::create_dir(&folder).unwrap_or_else(|e| panic!("{}: {e}", folder.display()));
    let data: Vec<u8> = (0..700_000_u32).flat_map(|number| number.wrapping_mul(0x9E37_79B1).to_le_bytes()).collect();
    stage.write("files/file", &data);
    let line = format!("/usr/bin/python3 -m http.server {port} --bind 127.0.0.1 --directory {}", folder.display());
    let server = stage.serve("files server", &line, port);
    let url = format!("http://127.0.0.1:{port}/file");
    let copies = ["curl", "urllib"].map(|name| (name, stage.scratch.path(name).display().to_string()));
    let mut clients = Vec::new();
    for (name, copy) in &copies {
        let client = if *name == "curl" {
            stage.run(name, &format!("curl -sS --fail --max-time 30 -o {copy} {url}"))
        } else {
            let text = format!("import urllib.request\nurllib.request.urlretrieve({url:?}, {copy:?})\n");
            stage.run(name, &format!("/usr/bin/python3 {}", stage.write("fetch.py", text).display()))
        };
        assert!(std::fs::read(copy).is_ok_and(|found| found == data), "{copy}: another file");
        clients.push(client);
    }
    let server = stage.stop(server, Signal::INT, &[0]);
    stage.assert_way(&Way::Shm, &clients.iter().chain([&server]).collect::<Vec<_>>());
    table.row("python3", "`-m http.server`, with `curl` and `urllib`", &Way::Shm, "the file, twice");
}

#[test]
fn java() {
    let (stage, mut table) = (Stage::new(), Table::new("java"));
    let java = |file: &str, role: &str, port: u16| format!("java -XX:+UseSerialGC -Xmx256m {} {role} {port}", script(file));
    let port = free_port();
    let server = stage.serve("echo server", &java("Echo.java", "serve", port), port);
    let mut clients = Vec::new();
    for (role, what) in
        [("ask", "`java.nio`, a `Selector` at both ends"), ("block", "`java.nio`, clients with `java.net.Socket` in threads")]
    {
        let client = stage.run(&format!("echo {role}"), &java("Echo.java", role, port));
        assert_eq!(client.ok(), ECHOES);
        clients.push(client);
        table.row("java", &format!("{what}: 20 connections, messages of 1 byte to 400 KB"), &Way::Shm, "800 of 800 echoes");
    }
    stage.assert_idle(&server);
    let server = stage.stop(server, Signal::TERM, &[143]);
    stage.assert_way(&Way::Shm, &clients.iter().chain([&server]).collect::<Vec<_>>());

    let port = free_port();
    let server = stage.serve("web server", &java("Web.java", "serve", port), port);
    let client = stage.run("web client", &java("Web.java", "ask", port));
    assert_eq!(client.ok(), "300 answers\n");
    let curl = upload(&stage, "curl", &format!("http://127.0.0.1:{port}/echo"));
    let server = stage.stop(server, Signal::TERM, &[143]);
    stage.assert_way(&Way::Shm, &[&server, &client, &curl]);
    table.row(
        "java",
        "`com.sun.net.httpserver` with `java.net.http.HttpClient`: POST, up to 1 MB, 30 at a time",
        &Way::Shm,
        "300 of 300 answers",
    );
    table.row("java", "`com.sun.net.httpserver` with `curl -T`: 6 MB there and back", &Way::Shm, "the file");
    table.publish();
}

#[test]
fn node() {
    let (stage, mut table) = (Stage::new(), Table::new("node"));
    let node = |file: &str, role: &str, port: u16| format!("/usr/bin/node {} {role} {port}", script(file));
    let port = free_port();
    let server = stage.serve("net server", &node("net.js", "serve", port), port);
    let client = stage.run("net client", &node("net.js", "ask", port));
    assert_eq!(client.ok(), ECHOES);
    let server = stage.stop(server, Signal::TERM, &[0]);
    stage.assert_way(&Way::Shm, &[&server, &client]);
    table.row("node", "`net`: 20 connections, messages of 1 byte to 400 KB", &Way::Shm, "800 of 800 echoes");

    let port = free_port();
    let server = stage.serve("http server", &node("http.js", "serve", port), port);
    let client = stage.run("http client", &node("http.js", "ask", port));
    assert_eq!(client.ok(), "450 answers\n");
    let curl = upload(&stage, "curl", &format!("http://127.0.0.1:{port}/"));
    stage.assert_idle(&server);
    let server = stage.stop(server, Signal::TERM, &[0]);
    stage.assert_way(&Way::Shm, &[&server, &client, &curl]);
    table.row("node", "`http`: POST, up to 1 MB, 8 connections that stay, then one a request", &Way::Shm, "450 of 450 answers");
    table.row("node", "`http` with `curl -T`: 6 MB there and back", &Way::Shm, "the file");
    table.publish();
}
