//! Web servers and their clients: nginx, lighttpd, haproxy; curl, wrk, ab.

use std::path::PathBuf;

use rustix::process::Signal;

use crate::netcat::certificate;
use crate::stage::{Stage, Way};
use crate::support::{Ended, Running, free_port};
use crate::table::Table;

/// The served folder: a small file and a large one.
fn site(stage: &Stage) -> PathBuf {
    let folder = stage.scratch.path("site");
    if !folder.exists() {
        std::fs::create_dir(&folder).unwrap_or_else(|e| panic!("{}: {e}", folder.display()));
        stage.write("site/small", "0123456789abcdef".repeat(64));
        let large: Vec<u8> = (0..2_000_000_u32).flat_map(|number| number.wrapping_mul(0x9E37_79B1).to_le_bytes()).collect();
        stage.write("site/large", large);
    }
    folder
}

/// A server at a port, and its clients.
struct Site<'a> {
    stage: &'a Stage,
    name: &'static str,
    port: u16,
    server: Running,
    clients: Vec<Ended>,
}

impl<'a> Site<'a> {
    #[track_caller]
    fn start(stage: &'a Stage, name: &'static str, port: u16, line: &str) -> Self {
        site(stage);
        let server = stage.serve(&format!("{name} {port}"), line, port);
        Self { stage, name, port, server, clients: Vec::new() }
    }

    #[track_caller]
    fn client(&mut self, line: &str) -> String {
        let line = line.replace("URL", &format!("http://127.0.0.1:{}", self.port));
        let ended = self.stage.run(&format!("client {} {}", self.port, self.clients.len()), &line);
        let output = ended.output.clone();
        self.clients.push(ended);
        output
    }

    /// wrk: many connections that stay.
    #[track_caller]
    fn wrk(&mut self, options: &str) {
        let said = self.client(&format!("wrk {options} URL/small"));
        assert!(!said.contains("Socket errors") && !said.contains("Non-2xx"), "{said}");
        let requests = said.split(" requests in ").next().and_then(|text| text.split_whitespace().next_back()?.parse::<u64>().ok());
        assert!(requests > Some(100), "{said}");
    }

    /// ab: this many requests.
    #[track_caller]
    fn ab(&mut self, options: &str, requests: u32) {
        let said = self.client(&format!("ab -q -n {requests} {options} URL/small"));
        let figure = |name: &str| said.lines().find_map(|line| line.strip_prefix(name)?.trim().parse::<u32>().ok());
        assert_eq!(figure("Complete requests:"), Some(requests), "{said}");
        assert_eq!(figure("Failed requests:"), Some(0), "{said}");
        assert_eq!(figure("Non-2xx responses:"), None, "{said}");
    }

    /// curl: the large file, a part of it, and both over one connection.
    #[track_caller]
    fn curl(&mut self) {
        let site = site(self.stage);
        let copies = ["large", "small"].map(|name| (site.join(name), self.stage.scratch.path(&format!("{}-{name}", self.port))));
        let [large, small] = &copies;
        let (large_copy, small_copy) = (large.1.display(), small.1.display());
        let both = format!("curl -sS --fail --max-time 30 URL/large -o {large_copy} URL/small -o {small_copy} -w %{{num_connects}}");
        assert_eq!(self.client(&both), "10", "one connection for both");
        let read = |path: &PathBuf| std::fs::read(path).unwrap_or_else(|e| panic!("{}: {e}", path.display()));
        for (original, copy) in &copies {
            assert!(read(original) == read(copy), "{} differs", copy.display());
        }
        self.client(&format!("curl -sS --fail --max-time 30 -r 1000000-1999999 URL/large -o {small_copy}"));
        assert!(read(&small.1) == read(&large.0)[1_000_000..2_000_000], "{small_copy} differs");
    }

    /// All of them, as a row of the table.
    #[track_caller]
    fn all(&mut self, table: &mut Table, what: &str, way: &Way) {
        self.curl();
        self.wrk("-t 2 -c 32 -d 1s");
        self.ab("-c 8", 1000);
        self.ab("-k -c 8", 2000);
        let clients = "`curl`: 8 MB, 1 KB, a range; `wrk -t 2 -c 32`; `ab -c 8`, `ab -k -c 8`";
        table.row(self.name, &format!("{what}; {clients}"), way, "the files; no error; 1000 of 1000, 2000 of 2000 requests");
    }

    #[track_caller]
    fn stop(self, signal: Signal, way: &Way) {
        // lighttpd: 1, now and then, if a client has just gone
        let statuses: &[i32] = if self.name == "lighttpd" { &[0, 1] } else { &[0] };
        let server = self.stage.stop(self.server, signal, statuses);
        self.stage.assert_way(way, &self.clients.iter().chain([&server]).collect::<Vec<_>>());
    }
}

/// Starts nginx with these directives in front, and more servers.
#[track_caller]
fn start_nginx<'a>(stage: &'a Stage, processes: &str, more: &str) -> Site<'a> {
    let (port, site) = (free_port(), site(stage));
    let folder = stage.scratch.path("");
    let user = if crate::support::is_root() { "user root;" } else { "" };
    let paths: String = ["client_body", "proxy", "fastcgi", "uwsgi", "scgi"]
        .map(|name| format!("  {name}_temp_path {}/{name};\n", folder.display()))
        .concat();
    let text = format!(
        "daemon off;\n{processes}\n{user}\npid {folder}/nginx-{port}.pid;\nerror_log {folder}/error.log;\n\
         events {{ worker_connections 512; }}\n\
         http {{\n  access_log off;\n  sendfile on;\n  tcp_nopush on;\n  keepalive_requests 1000000;\n{paths}\
         server {{ listen 127.0.0.1:{port}; root {site}; }}\n{more}}}\n",
        folder = folder.display(),
        site = site.display()
    );
    let file = stage.write(&format!("nginx-{port}.conf"), text);
    let line = format!("/usr/sbin/nginx -p {folder} -e {folder}/error.log -c {file}", folder = folder.display(), file = file.display());
    Site::start(stage, "nginx", port, &line)
}

const ONE_PROCESS: &str = "master_process off;";

#[test]
fn nginx() {
    let (stage, mut table) = (Stage::new(), Table::new("nginx"));
    let (tls, (key, certificate)) = (free_port(), certificate(&stage));
    let folder = site(&stage).display().to_string();
    let more = format!(
        "server {{ listen 127.0.0.1:{tls} ssl http2; ssl_certificate {certificate}; ssl_certificate_key {key}; root {folder}; }}\n"
    );
    let mut site = start_nginx(&stage, ONE_PROCESS, &more);
    site.all(&mut table, "`master_process off`", &Way::Shm);
    let copy = stage.scratch.path("by-tls");
    let line = "curl -sS --fail --max-time 30 --cacert CERTIFICATE --http2 -w %{http_version} https://127.0.0.1:TLS/large -o COPY";
    let line = line.replace("CERTIFICATE", &certificate).replace("TLS", &tls.to_string()).replace("COPY", &copy.display().to_string());
    assert_eq!(site.client(&line), "2");
    assert!(std::fs::read(&copy).is_ok_and(|copy| std::fs::read(stage.scratch.path("site/large")).is_ok_and(|large| copy == large)));
    table.row("nginx", "`master_process off`; `curl`: 8 MB by HTTP/2 and TLS", &Way::Shm, "the file");
    stage.assert_idle(&site.server);
    site.stop(Signal::TERM, &Way::Shm);

    let way = Way::Tcp("worker processes");
    let mut site = start_nginx(&stage, "worker_processes 1;", "");
    site.all(&mut table, "`worker_processes 1`", &way);
    site.stop(Signal::QUIT, &way);
    table.publish();
}

#[test]
fn haproxy() {
    let (stage, mut table) = (Stage::new(), Table::new("haproxy"));
    let mut origin = start_nginx(&stage, ONE_PROCESS, "");
    for mode in ["http", "tcp"] {
        let port = free_port();
        let text = format!(
            "global\n  nbthread 2\n  maxconn 400\n\
             defaults\n  mode {mode}\n  timeout connect 10s\n  timeout client 20s\n  timeout server 20s\n\
             frontend front\n  bind 127.0.0.1:{port}\n  default_backend back\n\
             backend back\n  server one 127.0.0.1:{}\n",
            origin.port
        );
        let file = stage.write(&format!("haproxy-{port}.cfg"), text);
        let mut site = Site::start(&stage, "haproxy", port, &format!("/usr/sbin/haproxy -db -f {}", file.display()));
        site.all(&mut table, &format!("`mode {mode}`, `nbthread 2`, before nginx"), &Way::Shm);
        if mode == "http" {
            stage.assert_idle(&site.server);
        }
        site.stop(Signal::USR1, &Way::Shm);
    }
    origin.curl();
    origin.stop(Signal::TERM, &Way::Shm);
    table.publish();
}

#[test]
fn lighttpd() {
    let (stage, mut table) = (Stage::new(), Table::new("lighttpd"));
    for handler in ["linux-sysepoll", "poll"] {
        let (port, folder) = (free_port(), site(&stage));
        let text = format!(
            "server.bind = \"127.0.0.1\"\nserver.port = {port}\nserver.document-root = \"{}\"\nserver.event-handler = \"{handler}\"\n\
             server.max-keep-alive-requests = 1000000\n",
            folder.display()
        );
        let file = stage.write(&format!("lighttpd-{port}.conf"), text);
        let mut site = Site::start(&stage, "lighttpd", port, &format!("/usr/sbin/lighttpd -D -f {}", file.display()));
        site.all(&mut table, &format!("`{handler}`"), &Way::Shm);
        if handler == "poll" {
            stage.assert_idle(&site.server);
        }
        site.stop(Signal::TERM, &Way::Shm);
    }
    table.publish();
}
