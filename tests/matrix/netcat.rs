//! Files through nc, of both kinds, and socat.

use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;

use rustix::process::Signal;

use crate::stage::{Stage, Way, data};
use crate::support::free_port;
use crate::table::Table;

const LIMIT: Duration = Duration::from_secs(60);
const TRANSFERRED: &str = "the copy is the same";

fn megabytes(stage: &Stage) -> u32 {
    stage.amount(8, 2)
}

fn source(stage: &Stage) -> PathBuf {
    let path = stage.scratch.path("source");
    if path.exists() { path } else { stage.write("source", data(megabytes(stage))) }
}

#[track_caller]
fn assert_same(copy: &Path, source: &Path) {
    let read = |path: &Path| fs::read(path).unwrap_or_else(|e| panic!("{}: {e}", path.display()));
    assert!(read(copy) == read(source), "{} differs from {}", copy.display(), source.display());
}

/// Runs the two, whose standard input and output stand behind `<` and `>`: SOURCE, COPY or none.
#[track_caller]
fn pass(stage: &Stage, name: &str, server: &str, client: &str) {
    let (source, copy, port) = (source(stage), stage.scratch.path("copy"), free_port());
    let _ = fs::remove_file(&copy);
    let program = |end: &str, line: &str| {
        let mut words: Vec<String> =
            line.split_whitespace().map(|word| word.replace("PORT", &port.to_string()).replace("HOST", stage.host())).collect();
        let mut files = [None, None];
        for (sign, file) in ["<", ">"].iter().zip(&mut files) {
            if let Some(at) = words.iter().position(|word| word == sign) {
                words.remove(at);
                words.remove(at);
                *file = Some(());
            }
        }
        let line: Vec<String> = words
            .iter()
            .map(|word| word.replace("SOURCE", &source.display().to_string()).replace("COPY", &copy.display().to_string()))
            .collect();
        let mut program = stage.program(&format!("{name} {end}"), &line.join(" "));
        if files[0].is_some() {
            program = program.input(&source);
        }
        if files[1].is_some() {
            program = program.output(&copy);
        }
        program
    };
    let server = program("server", server).start();
    server.wait_until_listening(port);
    let client = program("client", client).run(LIMIT);
    client.ok();
    let server = server.wait(LIMIT);
    server.ok();
    assert_same(&copy, &source);
    stage.assert_way(&Way::Fabric, &[&server, &client]);
}

pub fn netcat() {
    let (stage, mut table) = (Stage::new(), Table::new("netcat"));
    let size = megabytes(&stage);
    let to = &format!("{size} MB, client to server");
    let from = &format!("{size} MB, server to client");
    let echo = &format!("{size} MB to the server and back");
    for (program, what, server, client) in [
        ("nc (OpenBSD)", to, "nc.openbsd -l HOST PORT > COPY", "nc.openbsd -N HOST PORT < SOURCE"),
        ("nc (OpenBSD)", from, "nc.openbsd -N -l HOST PORT < SOURCE", "nc.openbsd -d HOST PORT > COPY"),
        ("nc (traditional)", to, "nc.traditional -l -s HOST -p PORT > COPY", "nc.traditional -q 0 HOST PORT < SOURCE"),
        ("nc (traditional)", from, "nc.traditional -q 0 -l -s HOST -p PORT < SOURCE", "nc.traditional HOST PORT > COPY"),
        ("socat", to, "socat -u TCP-LISTEN:PORT,bind=HOST CREATE:COPY", "socat -u OPEN:SOURCE TCP:HOST:PORT"),
        ("socat", from, "socat -u OPEN:SOURCE TCP-LISTEN:PORT,bind=HOST", "socat -u TCP:HOST:PORT CREATE:COPY"),
        ("socat", echo, "socat TCP-LISTEN:PORT,bind=HOST PIPE", "socat -t 20 STDIO TCP:HOST:PORT < SOURCE > COPY"),
    ] {
        pass(&stage, &format!("{program} {what}"), server, client);
        table.row(program, what, &Way::Fabric, TRANSFERRED);
    }
    encrypted(&stage);
    table.row("socat", &format!("{size} MB over TLS"), &Way::Fabric, TRANSFERRED);
    relay(&stage);
    table.row("socat", &format!("{size} MB through a relay between nc and nc"), &Way::Fabric, TRANSFERRED);
    fork(&stage, &mut table);
    table.publish();
}

/// Through socat in the middle.
#[track_caller]
fn relay(stage: &Stage) {
    let (source, copy) = (source(stage), stage.scratch.path("relayed"));
    let [front, back] = [free_port(), free_port()];
    let host = stage.host();
    let server = stage.program("relay server", &format!("nc.openbsd -l {host} {back}")).output(&copy).start();
    server.wait_until_listening(back);
    let line = format!("socat -u TCP-LISTEN:{front},bind={host} TCP:{host}:{back}");
    let middle = stage.serve("relay", &line, front);
    let client = stage.program("relay client", &format!("nc.openbsd -N {host} {front}")).input(&source).run(LIMIT);
    client.ok();
    let (middle, server) = (middle.wait(LIMIT), server.wait(LIMIT));
    middle.ok();
    server.ok();
    assert_same(&copy, &source);
    stage.assert_way(&Way::Fabric, &[&client, &middle, &server]);
}

/// A server that forks for each client.
#[track_caller]
fn fork(stage: &Stage, table: &mut Table) {
    let (host, port) = (stage.host(), free_port());
    let program = |name: &str, line: &str| stage.program(name, line).env("RSOCKET_FABRIC", "kernel");
    let server = program("fork server", &format!("socat TCP-LISTEN:{port},bind={host},fork EXEC:cat")).start();
    server.wait_until_listening(port);
    let way = Way::Tcp("it forks for each client; run with `RSOCKET_FABRIC=kernel`");
    let mut ended = Vec::new();
    for turn in 0..3 {
        let text = format!("client {turn}\n");
        let input = stage.write("said", &text);
        let client = program(&format!("fork client {turn}"), &format!("nc.openbsd -N {host} {port}")).input(&input).run(LIMIT);
        assert_eq!(client.ok(), text, "{}", client.report());
        ended.push(client);
    }
    ended.push(stage.stop(server, Signal::TERM, &[143]));
    stage.assert_way(&way, &ended.iter().collect::<Vec<_>>());
    table.row("socat", "`fork`, `EXEC:cat`", &way, "3 clients are answered");
}

/// TLS, by the OpenSSL library.
#[track_caller]
fn encrypted(stage: &Stage) {
    let (key, certificate) = certificate(stage);
    let server = format!("socat -u OPENSSL-LISTEN:PORT,bind=HOST,key={key},cert={certificate},verify=0 CREATE:COPY");
    let client = format!("socat -u OPEN:SOURCE OPENSSL:HOST:PORT,cafile={certificate}");
    pass(stage, "encrypted", &server, &client);
}

/// A key and a certificate for the host's address, signed by itself.
#[track_caller]
pub fn certificate(stage: &Stage) -> (String, String) {
    let [key, certificate] = ["key", "certificate"].map(|name| stage.scratch.path(&format!("{name}.pem")).display().to_string());
    let host = stage.host();
    let line = format!(
        "openssl req -x509 -newkey rsa:2048 -nodes -days 2 -subj /CN={host} -addext subjectAltName=IP:{host} -keyout {key} -out {certificate}"
    );
    stage.run("openssl req", &line);
    (key, certificate)
}
