//! Web servers with worker processes: Apache, nginx, gunicorn, haproxy.

use std::path::PathBuf;
use std::thread;
use std::time::Duration;

use rustix::process::Signal;

use crate::servers::{data, read};
use crate::stage::Stage;
use crate::support::{Ended, Running, free_port, is_root};
use crate::{assert_children_served, assert_moved, by_form};

/// The clients of a server.
struct Clients<'a> {
    stage: &'a Stage,
    port: u16,
    ended: Vec<Ended>,
}

/// The number before this word in what wrk says.
fn wrk_requests(said: &str) -> u64 {
    let number = said.split(" requests in ").next().and_then(|text| text.split_whitespace().next_back());
    number.and_then(|text| text.parse().ok()).unwrap_or(0)
}

impl<'a> Clients<'a> {
    fn new(stage: &'a Stage, port: u16) -> Self {
        Self { stage, port, ended: Vec::new() }
    }

    fn line(&self, line: &str) -> (String, String) {
        (format!("client {} {}", self.port, self.ended.len()), line.replace("URL", &format!("http://127.0.0.1:{}", self.port)))
    }

    #[track_caller]
    fn run(&mut self, line: &str) -> String {
        let (name, line) = self.line(line);
        let ended = self.stage.run(&name, &line);
        let output = ended.output.clone();
        self.ended.push(ended);
        output
    }

    #[track_caller]
    fn ab(&mut self, options: &str, requests: u32) {
        let said = self.run(&format!("ab -q -n {requests} {options} URL/small"));
        let figure = |name: &str| said.lines().find_map(|line| line.strip_prefix(name)?.trim().parse::<u32>().ok());
        assert_eq!(figure("Complete requests:"), Some(requests), "{said}");
        assert_eq!(figure("Failed requests:"), Some(0), "{said}");
        assert_eq!(figure("Non-2xx responses:"), None, "{said}");
    }

    /// The large file by curl, a few times at once.
    #[track_caller]
    fn curl(&mut self) {
        let (large, copy) = (self.stage.scratch.path("site/large"), self.stage.scratch.path("copy"));
        for _ in 0..2 {
            self.run(&format!("curl -sS --fail --max-time 30 URL/large -o {}", copy.display()));
            assert!(read(&copy) == read(&large), "{} bytes came", read(&copy).len());
        }
    }

    #[track_caller]
    fn assert_moved(&self) {
        assert_moved(self.stage, &self.ended.iter().collect::<Vec<_>>());
    }
}

/// The served folder: a small file and a large one.
fn site(stage: &Stage) -> PathBuf {
    let folder = stage.scratch.public_folder("site");
    stage.write("site/small", "0123456789abcdef".repeat(64));
    data(stage, "site/large", 8);
    folder
}

#[test]
fn apache_prefork() {
    let stage = Stage::of_user("www-data").forking();
    let (port, site) = (free_port(), site(&stage));
    let folder = stage.scratch.path("").display().to_string();
    let modules: String =
        ["mpm_prefork", "authz_core"].map(|name| format!("LoadModule {name}_module /usr/lib/apache2/modules/mod_{name}.so\n")).concat();
    let text = format!(
        "ServerRoot {folder}\nDefaultRuntimeDir {folder}\nPidFile {folder}/apache.pid\nErrorLog {folder}/error.log\n{modules}\
         ServerName localhost\nListen 127.0.0.1:{port}\nDocumentRoot {}\nStartServers 3\nMinSpareServers 3\nMaxRequestWorkers 20\n\
         EnableSendfile On\nKeepAliveTimeout 2\n<Directory />\n Require all granted\n</Directory>\n",
        site.display()
    );
    let file = stage.write("apache.conf", text);
    let server = stage.serve("apache", &format!("/usr/sbin/apache2 -D FOREGROUND -f {}", file.display()), port);
    let mut clients = Clients::new(&stage, port);
    clients.curl();
    clients.ab("-c 4", by_form(300, 5000));
    clients.ab("-k -c 4", by_form(1000, 20_000));
    let server = stage.stop(server, Signal::TERM, &[0]);
    clients.assert_moved();
    assert_children_served(&stage, &server, 2, 16 << 20);
}

#[track_caller]
fn start_nginx(stage: &Stage, workers: u32) -> (Running, u16) {
    let (port, site) = (free_port(), site(stage));
    let folder = stage.scratch.path("").display().to_string();
    let user = if is_root() { "user root;" } else { "" };
    let paths = ["client_body", "proxy", "fastcgi", "uwsgi", "scgi"].map(|name| format!("{name}_temp_path {folder}/{name};\n")).concat();
    let text = format!(
        "daemon off;\nworker_processes {workers};\n{user}\npid {folder}/nginx.pid;\nerror_log {folder}/error.log;\n\
         events {{ worker_connections 512; }}\nhttp {{\naccess_log off;\nsendfile on;\ntcp_nopush on;\nkeepalive_requests 1000000;\n{paths}\
         server {{ listen 127.0.0.1:{port}; root {}; }}\n}}\n",
        site.display()
    );
    let file = stage.write("nginx.conf", text);
    (stage.serve("nginx", &format!("/usr/sbin/nginx -p {folder} -e {folder}/error.log -c {}", file.display()), port), port)
}

#[test]
fn nginx_with_workers() {
    let stage = Stage::new().forking();
    let (server, port) = start_nginx(&stage, 2);
    let mut clients = Clients::new(&stage, port);
    clients.curl();
    clients.ab("-c 8", by_form(500, 10_000));
    clients.ab("-k -c 8", by_form(2000, 50_000));
    let said = clients.run(&format!("wrk -t 2 -c 16 -d {}s URL/small", by_form(1, 10)));
    assert!(!said.contains("Socket errors") && !said.contains("Non-2xx"), "{said}");
    assert!(wrk_requests(&said) > 100, "{said}");
    stage.assert_idle(&server);
    let server = stage.stop(server, Signal::QUIT, &[0]);
    clients.assert_moved();
    assert_children_served(&stage, &server, 1, 16 << 20);
}

/// New workers come and old ones go, under load of connections for one request each. (Where they stay, TCP's clients, too, now and then send
/// a request at the moment at which an old worker closes.)
#[test]
fn nginx_reloaded_under_load() {
    let stage = Stage::new().forking();
    let (server, port) = start_nginx(&stage, 2);
    let mut clients = Clients::new(&stage, port);
    let reloads = 20;
    let script = stage.write("close.lua", "wrk.headers[\"Connection\"] = \"close\"\n");
    let (name, line) = clients.line(&format!("wrk -t 2 -c 16 -d {}s -s {} URL/small", by_form(4, 30), script.display()));
    let load = stage.program(&name, &line).start();
    thread::sleep(Duration::from_millis(200));
    for _ in 0..reloads {
        server.signal(Signal::HUP);
        thread::sleep(Duration::from_millis(by_form(150, 1400)));
    }
    let load = load.wait(Duration::from_secs(60));
    let said = load.ok().to_owned();
    assert!(!said.contains("Socket errors") && !said.contains("Non-2xx"), "{said}");
    assert!(wrk_requests(&said) > 100, "{said}");
    clients.ended.push(load);
    clients.curl();
    let server = stage.stop(server, Signal::QUIT, &[0]);
    clients.assert_moved();
    assert_children_served(&stage, &server, reloads, 16 << 20);
}

#[test]
fn gunicorn() {
    let stage = Stage::new().forking();
    let port = free_port();
    let app = "def app(environ, start_response):\n    body = environ['wsgi.input'].read(int(environ.get('CONTENT_LENGTH') or 0))\n    \
               body = body or b'0123456789abcdef' * 64\n    start_response('200 OK', [('Content-Length', str(len(body)))])\n    return [body]\n";
    stage.write("application.py", app);
    let folder = stage.scratch.path("").display().to_string();
    let line = format!("/usr/bin/python3 -m gunicorn -w 4 -b 127.0.0.1:{port} --chdir {folder} application:app");
    let server = stage.serve("gunicorn", &line, port);
    let mut clients = Clients::new(&stage, port);
    let (sent, back) = (data(&stage, "sent", 2), stage.scratch.path("back"));
    for _ in 0..4 {
        clients.run(&format!("curl -sS --fail --max-time 30 -T {} -o {} URL/", sent.display(), back.display()));
        assert!(read(&back) == read(&sent), "{} bytes came back", read(&back).len());
    }
    clients.ab("-c 4", by_form(200, 3000));
    let server = stage.stop(server, Signal::TERM, &[0]);
    clients.assert_moved();
    assert_children_served(&stage, &server, 1, 16 << 20);
}

/// A master and a worker, which is another one after a reload, before nginx.
#[test]
fn haproxy_master_and_worker() {
    let stage = Stage::new().forking();
    let (origin, behind) = start_nginx(&stage, 2);
    let port = free_port();
    let text = format!(
        "global\n  nbthread 2\n  maxconn 400\n\
         defaults\n  mode http\n  timeout connect 10s\n  timeout client 20s\n  timeout server 20s\n\
         frontend front\n  bind 127.0.0.1:{port}\n  default_backend back\nbackend back\n  server one 127.0.0.1:{behind}\n"
    );
    let file = stage.write("haproxy.cfg", text);
    let proxy = stage.serve("haproxy", &format!("/usr/sbin/haproxy -W -db -f {}", file.display()), port);
    let mut clients = Clients::new(&stage, port);
    for reload in 0..2 {
        if reload > 0 {
            proxy.signal(Signal::USR2);
            // The old worker has to be gone before the new one can tell clients of this host that connections move.
            for number in 0..10 {
                thread::sleep(Duration::from_millis(150));
                stage.run(&format!("after the reload {number}"), &format!("curl -sS --fail -o /dev/null http://127.0.0.1:{port}/small"));
            }
        }
        clients.curl();
        clients.ab("-c 4", by_form(200, 5000));
        clients.ab("-k -c 4", by_form(500, 20_000));
    }
    let proxy = stage.stop(proxy, Signal::USR1, &[0, 130, 138, 143]);
    let origin = stage.stop(origin, Signal::QUIT, &[0]);
    clients.assert_moved();
    assert_children_served(&stage, &proxy, 2, 32 << 20);
    assert_children_served(&stage, &origin, 1, 32 << 20);
}
