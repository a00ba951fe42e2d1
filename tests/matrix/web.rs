//! Web servers and their clients: nginx, lighttpd, haproxy; curl, wrk, ab.

use std::path::PathBuf;

use rustix::process::Signal;

use crate::netcat::certificate;
use crate::stage::{Stage, Way, data};
use crate::support::{Ended, Running, free_port};
use crate::table::Table;

/// Megabytes of the large file.
fn large(stage: &Stage) -> u32 {
    stage.amount(8, 2)
}

/// The served folder: a small file and a large one.
fn site(stage: &Stage) -> PathBuf {
    let folder = stage.scratch.path("site");
    if !folder.exists() {
        std::fs::create_dir(&folder).unwrap_or_else(|e| panic!("{}: {e}", folder.display()));
        stage.write("site/small", "0123456789abcdef".repeat(64));
        stage.write("site/large", data(large(stage)));
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
        let line = line.replace("URL", &format!("http://{}:{}", self.stage.host(), self.port));
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
        assert!(requests > Some(self.stage.amount(100, 0)), "{said}");
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
        let both = format!("curl -sS --fail --max-time 60 URL/large -o {large_copy} URL/small -o {small_copy} -w %{{num_connects}}");
        assert_eq!(self.client(&both), "10", "one connection for both");
        let read = |path: &PathBuf| std::fs::read(path).unwrap_or_else(|e| panic!("{}: {e}", path.display()));
        for (original, copy) in &copies {
            assert!(read(original) == read(copy), "{} differs", copy.display());
        }
        self.client(&format!("curl -sS --fail --max-time 60 -r 1000000-1999999 URL/large -o {small_copy}"));
        assert!(read(&small.1) == read(&large.0)[1_000_000..2_000_000], "{small_copy} differs");
    }

    /// All of them, as a row of the table.
    #[track_caller]
    fn all(&mut self, table: &mut Table, what: &str, way: &Way) {
        let (many, new, kept) = self.stage.amount((32, 1000, 2000), (4, 16, 80));
        self.curl();
        self.wrk(&format!("-t 2 -c {many} -d {}s", self.stage.amount(1, 3)));
        self.ab("-c 8", new);
        self.ab("-k -c 8", kept);
        let clients =
            format!("`curl`: {} MB, 1 KB, a range; `wrk -t 2 -c {many}`; `ab -c 8 -n {new}`, `ab -k -c 8 -n {kept}`", large(self.stage));
        table.row(self.name, &format!("{what}; {clients}"), way, "the files; no error; all requests answered");
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
         server {{ listen {host}:{port}; root {site}; }}\n{more}}}\n",
        folder = folder.display(),
        site = site.display(),
        host = stage.host()
    );
    let file = stage.write(&format!("nginx-{port}.conf"), text);
    let line = format!("/usr/sbin/nginx -p {folder} -e {folder}/error.log -c {file}", folder = folder.display(), file = file.display());
    Site::start(stage, "nginx", port, &line)
}

const ONE_PROCESS: &str = "master_process off;";

pub fn nginx() {
    let (stage, mut table) = (Stage::new(), Table::new("nginx"));
    let (tls, (key, certificate)) = (free_port(), certificate(&stage));
    let (host, folder) = (stage.host(), site(&stage).display().to_string());
    let more =
        format!("server {{ listen {host}:{tls} ssl http2; ssl_certificate {certificate}; ssl_certificate_key {key}; root {folder}; }}\n");
    let mut site = start_nginx(&stage, ONE_PROCESS, &more);
    site.all(&mut table, "`master_process off`", &Way::Fabric);
    let copy = stage.scratch.path("by-tls");
    let line = "curl -sS --fail --max-time 60 --cacert CERTIFICATE --http2 -w %{http_version} https://HOST:TLS/large -o COPY";
    let line = line
        .replace("CERTIFICATE", &certificate)
        .replace("HOST", host)
        .replace("TLS", &tls.to_string())
        .replace("COPY", &copy.display().to_string());
    assert_eq!(site.client(&line), "2");
    assert!(std::fs::read(&copy).is_ok_and(|copy| std::fs::read(stage.scratch.path("site/large")).is_ok_and(|large| copy == large)));
    table.row("nginx", &format!("`master_process off`; `curl`: {} MB by HTTP/2 and TLS", large(&stage)), &Way::Fabric, "the file");
    stage.assert_idle(&site.server);
    site.stop(Signal::TERM, &Way::Fabric);

    let way = Way::Tcp("worker processes");
    let mut site = start_nginx(&stage, "worker_processes 1;", "");
    site.all(&mut table, "`worker_processes 1`", &way);
    site.stop(Signal::QUIT, &way);
    table.publish();
}

pub fn haproxy() {
    let (stage, mut table) = (Stage::new(), Table::new("haproxy"));
    let mut origin = start_nginx(&stage, ONE_PROCESS, "");
    for mode in ["http", "tcp"] {
        let (host, port) = (stage.host(), free_port());
        let text = format!(
            "global\n  nbthread 2\n  maxconn 400\n\
             defaults\n  mode {mode}\n  timeout connect 10s\n  timeout client 20s\n  timeout server 20s\n\
             frontend front\n  bind {host}:{port}\n  default_backend back\n\
             backend back\n  server one {host}:{}\n",
            origin.port
        );
        let file = stage.write(&format!("haproxy-{port}.cfg"), text);
        let mut site = Site::start(&stage, "haproxy", port, &format!("/usr/sbin/haproxy -db -f {}", file.display()));
        site.all(&mut table, &format!("`mode {mode}`, `nbthread 2`, before nginx"), &Way::Fabric);
        if mode == "http" {
            stage.assert_idle(&site.server);
        }
        site.stop(Signal::USR1, &Way::Fabric);
    }
    origin.curl();
    origin.stop(Signal::TERM, &Way::Fabric);
    table.publish();
}

pub fn lighttpd() {
    let (stage, mut table) = (Stage::new(), Table::new("lighttpd"));
    for handler in ["linux-sysepoll", "poll"] {
        let (port, folder) = (free_port(), site(&stage));
        let text = format!(
            "server.bind = \"{}\"\nserver.port = {port}\nserver.document-root = \"{}\"\nserver.event-handler = \"{handler}\"\n\
             server.max-keep-alive-requests = 1000000\n",
            stage.host(),
            folder.display()
        );
        let file = stage.write(&format!("lighttpd-{port}.conf"), text);
        let mut site = Site::start(&stage, "lighttpd", port, &format!("/usr/sbin/lighttpd -D -f {}", file.display()));
        site.all(&mut table, &format!("`{handler}`"), &Way::Fabric);
        if handler == "poll" {
            stage.assert_idle(&site.server);
        }
        site.stop(Signal::TERM, &Way::Fabric);
    }
    table.publish();
}
