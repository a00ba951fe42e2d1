//! Sockets that go to another program or process, and programs that change who they are: exec, descriptors over Unix sockets, other ids,
//! daemons, and servers that get their listener from others.
//! On this machine, without an RDMA device.

mod support;

use std::fs;
use std::path::PathBuf;
use std::thread;
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process, test_kill_process};
use support::{Ended, Program, Running, Scratch, Statistics, artefact, build_c_program, free_port, needs_root};

const LIMIT: Duration = Duration::from_secs(60);
const ADDRESS: &str = "127.0.0.1";
/// The user nobody.
const NOBODY: &str = "65534";
/// Bytes of a client of `exec_server`, in both directions.
const ASKED: u64 = 60_000;

fn ask(scratch: &Scratch, name: &str, port: u16, clients: u64) -> Ended {
    let ended =
        Program::test(scratch, name, "exec_server", &["ask", ADDRESS, &port.to_string(), &clients.to_string()]).preloaded().run(LIMIT);
    assert_eq!(ended.ok(), format!("{clients} of {clients} answered\n"), "{}", ended.report());
    ended
}

/// `exec_server` with a listener at this port, which becomes this command.
fn listener<'a>(scratch: &'a Scratch, how: &str, port: u16, command: &[&str]) -> Program<'a> {
    let port = port.to_string();
    let words = [&[how, ADDRESS, &port], command].concat();
    Program::test(scratch, "server", "exec_server", &words).preloaded()
}

fn serve_three(scratch: &Scratch, how: &str, configuration: Option<&str>) -> [Ended; 2] {
    let port = free_port();
    let program = build_c_program("exec_server").display().to_string();
    let mut server = listener(scratch, how, port, &[&program, "serve", "3", "3"]);
    if let Some(lines) = configuration {
        fs::write(scratch.path("preload_config"), lines).expect("a file of the configuration");
        server = server.env("RSOCKET_CONFIG_DIR", scratch.path(""));
    }
    let server = server.start();
    server.wait_for_line("ready");
    let client = ask(scratch, "client", port, 3);
    let server = server.wait(LIMIT);
    assert_eq!(server.ok(), "LISTEN_FDS 1\nready\nanswered 3\n");
    [server, client]
}

#[test]
fn a_listener_that_came_by_exec_has_clients_over_shared_memory() {
    for ended in serve_three(&Scratch::new(), "run", None) {
        ended.was_over_shm(3 * ASKED);
    }
    for ended in serve_three(&Scratch::new(), "run", Some("exec_server INET STREAM TCP\n")) {
        ended.was_over_shm(3 * ASKED);
    }
}

#[test]
fn a_plain_program_and_one_that_is_not_to_be_taken_over_have_tcps() {
    let [_, client] = serve_three(&Scratch::new(), "plain", None);
    client.was_over_the_kernel();
    let [server, client] = serve_three(&Scratch::new(), "run", Some("another INET STREAM TCP\n"));
    client.was_over_the_kernel();
    assert_eq!(server.counters.get("accepted_shm"), 0, "{}", server.report());
    // Its listener before exec, and after.
    assert!(server.counters.get("fallback_policy") > 0, "{}", server.report());
}

/// Of those who have a listener the first one that waits there has clients over shared memory; when it has ended the others have TCP's.
#[test]
fn whoever_accepts_has_the_clients() {
    let (scratch, port) = (Scratch::new(), free_port());
    let server = listener(&scratch, "hold", port, &["2", "3"]).start();
    server.wait_until("two workers", |server| server.output().matches("ready\n").count() == 2);
    ask(&scratch, "first", port, 3).was_over_shm(3 * ASKED);
    server.wait_for_line("a worker has ended");
    ask(&scratch, "second", port, 3).was_over_the_kernel();
    let server = server.wait(LIMIT);
    server.ok();
    let of = |name| server.counters.get(name);
    assert_eq!((of("accepted_shm"), of("accepted_kernel")), (3, 0), "{}", server.report());
}

/// Two that sleep in accept of a listener that blocks: one of them alone has clients over shared memory, and may have to sleep in the kernel.
#[test]
fn clients_of_either_kind_are_answered_by_either_worker() {
    const CLIENTS: &str = "60";
    let (scratch, port) = (Scratch::new(), free_port());
    let server = listener(&scratch, "hold", port, &["2", "0"]).start();
    server.wait_until("two workers", |server| server.output().matches("ready\n").count() == 2);
    let port = port.to_string();
    let asks = |name: String| Program::test(&scratch, &name, "exec_server", &["ask", ADDRESS, &port, CLIENTS]);
    let plain: Vec<_> = (0..3).map(|at| asks(format!("plain{at}")).start()).collect();
    let preloaded: Vec<_> = (0..2).map(|at| asks(format!("preloaded{at}")).preloaded().start()).collect();
    for client in plain.into_iter().chain(preloaded) {
        let ended = client.wait(LIMIT);
        assert_eq!(ended.ok(), format!("{CLIENTS} of {CLIENTS} answered\n"), "{}", ended.report());
        let of = |name| ended.counters.get(name);
        println!("  {}: {} over shared memory, {} refused", ended.name, of("connected_shm"), of("fallback_refused"));
    }
}

#[test]
fn a_connection_that_is_kept_over_exec_ends() {
    const NEW_PROGRAM: &str = "getpeername: -1 ENOTCONN\nsend: -1 EPIPE\nrecv: -1 ENOTCONN\nread: -1 ENOTCONN\nafterwards: SO_ERROR 0\n\
        poll: 1\nevents: OUT|HUP\nshutdown: -1 ENOTCONN\nclose: 0\n";
    const PEER: &str = "status 0\nthe peer has received all\nthen the end\n";
    for new in ["preloaded", "plain"] {
        let ended = Program::test(&Scratch::new(), new, "exec_kept", &[ADDRESS, new]).preloaded().run(LIMIT);
        assert_eq!(ended.ok(), [NEW_PROGRAM, PEER].concat());
        ended.was_over_shm(200_000);
    }
}

#[test]
fn nothing_gathers_in_a_program_that_starts_itself_anew() {
    let ended = Program::test(&Scratch::new(), "many", "exec_many", &[ADDRESS, "500"]).preloaded().run(2 * LIMIT);
    assert_eq!(ended.ok(), "the last one has what the first one had\n");
    ended.was_over_shm(2 * 6000);
}

#[test]
fn a_connection_over_a_fabric_cannot_be_passed_and_goes_on() {
    let run = |name: &str, fabric: &str| {
        let scratch = Scratch::new();
        let ended = Program::test(&scratch, name, "rights_connected", &[ADDRESS]).preloaded().env("RSOCKET_FABRIC", fabric).run(LIMIT);
        (ended.ok().to_owned(), ended)
    };
    let (said, ended) = run("fabric", "shm,verbs,kernel");
    assert_eq!(said.matches(": -1 EINVAL\n  there 5, back 4\n").count(), 4, "{}", ended.report());
    assert_eq!(ended.errors.matches("cannot be passed to another process").count(), 1, "{}", ended.report());
    ended.was_over_shm(4 * 9);
    let (said, ended) = run("kernel", "kernel");
    assert_eq!(said.matches(": 1\n  2 came\n  there 5, back 4\n").count(), 4, "{}", ended.report());
}

/// What is over shared memory of the clients of `ids_change`, of root and of nobody.
fn changed(how: &str, root: u64, nobody: u64) {
    let scratch = Scratch::public();
    let library = scratch.copy(&artefact("librspreload.so"));
    let program = scratch.copy(&build_c_program("ids_change")).display().to_string();
    let server = Program::new(&scratch, how, &[&program, ADDRESS, how, NOBODY]).preloaded_with(&library).start();
    // A daemon goes on when what was started has ended; its output is the same.
    let until = Instant::now() + LIMIT;
    while !server.output().ends_with("done\n") && Instant::now() < until {
        thread::sleep(Duration::from_millis(5));
    }
    let said = server.output();
    let whole = |who: &str| said.matches(&format!("client of {who}: whole, y\n")).count();
    assert_eq!((whole("root"), whole("the other")), (3, 2), "{how}: {said}");
    let ended = server.wait(LIMIT);
    ended.ok();
    let of = |name| ended.counters.get(name);
    assert_eq!((of("connected_shm"), of("connected_kernel")), (root + nobody, 5 - root - nobody), "{how}: {}", ended.report());
}

#[test]
fn a_server_that_changes_its_user_serves_on() {
    needs_root("changes users");
    for how in ["nothing", "back", "groups", "undumpable", "capabilities", "chroot"] {
        changed(how, 3, 0);
    }
    // Root's first client is turned away, and from then on the new user is seen.
    for how in ["setuid", "setresuid", "seteuid"] {
        changed(how, 0, 2);
    }
}

#[test]
fn a_server_that_becomes_a_daemon_after_listen_has_tcps_clients() {
    needs_root("changes users");
    for how in ["daemon", "twice"] {
        changed(how, 0, 0);
    }
}

/// A process that is nobody's child, until this is dropped.
struct Daemon {
    pid: u32,
    stats: PathBuf,
    /// What has started it, and ended. It takes with it what is left of its group.
    #[allow(dead_code)]
    starter: Option<Running>,
}

impl Daemon {
    fn number(&self) -> Pid {
        i32::try_from(self.pid).ok().and_then(Pid::from_raw).expect("a process's number")
    }

    fn signal(&self, signal: Signal) {
        kill_process(self.number(), signal).expect("a process that lives");
    }

    fn is_alive(&self) -> bool {
        test_kill_process(self.number()).is_ok()
    }

    /// Ends it with this signal, and reads its counters.
    #[track_caller]
    fn end(self, signal: Signal) -> Statistics {
        let _ = kill_process(self.number(), signal);
        let until = Instant::now() + LIMIT;
        while self.is_alive() {
            assert!(Instant::now() < until, "process {} does not end", self.pid);
            thread::sleep(Duration::from_millis(5));
        }
        Statistics::parse(&fs::read_to_string(&self.stats).unwrap_or_default())
    }
}

impl Drop for Daemon {
    fn drop(&mut self) {
        let _ = kill_process(self.number(), Signal::KILL);
    }
}

/// Runs a command that leaves a daemon, with its number in the file `pid`.
#[track_caller]
fn daemon(scratch: &Scratch, program: Program<'_>, name: &str, port: u16) -> Daemon {
    let starter = program.start();
    starter.wait_until_ended();
    let file = scratch.path("pid");
    let until = Instant::now() + LIMIT;
    let read = || fs::read_to_string(&file).ok().and_then(|text| text.trim().parse().ok());
    let pid = loop {
        match read() {
            Some(pid) => break pid,
            None if Instant::now() < until => thread::sleep(Duration::from_millis(5)),
            None => panic!("no daemon: {}", starter.wait(LIMIT).report()),
        }
    };
    starter.wait_until_listening(port);
    Daemon { pid, stats: scratch.path(&format!("{name}.stats.{pid}")), starter: Some(starter) }
}

#[test]
fn memcached_as_a_daemon_and_another_user() {
    needs_root("changes users");
    let (scratch, port) = (Scratch::public(), free_port());
    let (library, number, pid) = (scratch.copy(&artefact("librspreload.so")), port.to_string(), scratch.path("pid").display().to_string());
    let words = ["memcached", "-u", "nobody", "-d", "-P", &pid, "-l", ADDRESS, "-p", &number, "-t", "2"];
    let server = daemon(&scratch, Program::new(&scratch, "memcached", &words).preloaded_with(&library), "memcached", port);
    fs::write(scratch.path("commands"), "set a 0 0 3\r\nabc\r\nget a\r\nquit\r\n").expect("a file");
    let client = |name: &str, user: &str| {
        let client =
            Program::new(&scratch, name, &["nc", "-N", ADDRESS, &number]).preloaded_with(&library).input(&scratch.path("commands"));
        let ended = client.within(&["setpriv", &format!("--reuid={user}")]).run(LIMIT);
        assert_eq!(ended.ok(), "STORED\r\nVALUE a 0 3\r\nabc\r\nEND\r\n");
        ended
    };
    client("nobody", NOBODY).was_over_shm(40);
    client("root", "0").was_over_the_kernel();
    let counters = server.end(Signal::TERM);
    assert_eq!(counters.get("accepted_shm"), 1, "{counters:?}");
}

#[test]
fn redis_as_a_daemon() {
    let (scratch, port) = (Scratch::new(), free_port());
    let (number, pid, folder) = (port.to_string(), scratch.path("pid").display().to_string(), scratch.path("").display().to_string());
    let words = ["redis-server", "--daemonize", "yes", "--port", &number, "--pidfile", &pid, "--dir", &folder, "--save", ""];
    let server = daemon(&scratch, Program::new(&scratch, "redis", &words).preloaded(), "redis", port);
    let client =
        Program::new(&scratch, "client", &["redis-benchmark", "-p", &number, "-n", "2000", "-q", "-t", "set,get"]).preloaded().run(LIMIT);
    client.ok();
    client.was_over_shm(10_000);
    let counters = server.end(Signal::TERM);
    assert!(counters.get("accepted_shm") > 10 && counters.get("bytes_sent_shm") > 10_000, "{counters:?}");
}

/// Fetches a page twice.
#[track_caller]
fn fetch(scratch: &Scratch, name: &str, port: u16) -> Ended {
    let url = format!("http://{ADDRESS}:{port}/page");
    let ended = Program::new(scratch, name, &["curl", "-sS", "--no-keepalive", "-m", "30", &url, &url]).preloaded().run(LIMIT);
    assert_eq!(ended.ok(), "hellohello", "{}", ended.report());
    ended
}

const HAPROXY: &str = "defaults\n timeout client 10s\n mode http\nfrontend all\n bind BIND\n\
    http-request return status 200 content-type text/plain string hello\n";

fn write(scratch: &Scratch, name: &str, text: &str) -> String {
    let path = scratch.path(name);
    fs::write(&path, text).expect("a file");
    path.display().to_string()
}

#[test]
fn haproxy_as_a_daemon() {
    let (scratch, port) = (Scratch::new(), free_port());
    let file = write(&scratch, "haproxy.cfg", &HAPROXY.replace("BIND", &format!("{ADDRESS}:{port}")));
    let pid = scratch.path("pid").display().to_string();
    let words = ["haproxy", "-D", "-p", &pid, "-f", &file];
    let server = daemon(&scratch, Program::new(&scratch, "haproxy", &words).preloaded(), "haproxy", port);
    // It listens before it goes into the background.
    fetch(&scratch, "client", port).was_over_the_kernel();
    let counters = server.end(Signal::TERM);
    assert_eq!(counters.get("accepted_shm"), 0, "{counters:?}");
}

fn nginx(scratch: &Scratch, port: u16, rest: &str) -> String {
    let folder = scratch.path("").display().to_string();
    write(scratch, "page", "hello");
    let text = format!(
        "pid {folder}/pid;\nerror_log {folder}/error.log;\n{rest}\nevents {{ }}\nhttp {{ access_log off;\n\
         client_body_temp_path {folder}/a; proxy_temp_path {folder}/b; fastcgi_temp_path {folder}/c; uwsgi_temp_path {folder}/d; scgi_temp_path {folder}/e;\n\
         server {{ listen {ADDRESS}:{port}; root {folder}; }} }}\n"
    );
    write(scratch, "nginx.conf", &text)
}

/// A new program takes over, by its listeners' numbers, while the old one still serves. (It is executed by the name that it was started by.)
#[test]
fn nginx_gives_its_listeners_to_its_successor() {
    needs_root("changes users");
    let (scratch, port) = (Scratch::public(), free_port());
    let library = scratch.copy(&artefact("librspreload.so"));
    let file = nginx(&scratch, port, "user nobody nogroup;\nworker_processes 2;");
    let log = scratch.path("error.log").display().to_string();
    let old = daemon(
        &scratch,
        Program::new(&scratch, "nginx", &["/usr/sbin/nginx", "-e", &log, "-c", &file]).preloaded_with(&library),
        "nginx",
        port,
    );
    fetch(&scratch, "before", port).was_over_the_kernel();
    old.signal(Signal::USR2);
    let until = Instant::now() + LIMIT;
    let pid = loop {
        let text = fs::read_to_string(scratch.path("pid")).unwrap_or_default();
        match text.trim().parse().ok().filter(|pid| *pid != old.pid) {
            Some(pid) => break pid,
            None if Instant::now() < until => thread::sleep(Duration::from_millis(5)),
            None => panic!("no successor: {}", fs::read_to_string(&log).unwrap_or_default()),
        }
    };
    let new = Daemon { pid, stats: scratch.path(&format!("nginx.stats.{pid}")), starter: None };
    fetch(&scratch, "both", port).was_over_the_kernel();
    old.end(Signal::QUIT);
    fetch(&scratch, "after", port).was_over_the_kernel();
    new.end(Signal::TERM);
}

#[test]
fn servers_that_are_given_a_listener_have_clients_over_shared_memory() {
    let (scratch, port) = (Scratch::new(), free_port());
    let file = write(&scratch, "haproxy.cfg", &HAPROXY.replace("BIND", "fd@3"));
    let server = listener(&scratch, "run", port, &["haproxy", "-db", "-f", &file]).start();
    served(&scratch, server, port, Signal::USR1);

    let (scratch, port) = (Scratch::new(), free_port());
    let folder = scratch.path("").display().to_string();
    write(&scratch, "page", "hello");
    let text = format!("server.document-root = \"{folder}\"\nserver.port = {port}\nserver.systemd-socket-activation = \"enable\"\n");
    let file = write(&scratch, "lighttpd.conf", &text);
    let server = listener(&scratch, "run", port, &["lighttpd", "-D", "-f", &file]).start();
    served(&scratch, server, port, Signal::TERM);
}

const UVICORN: &str = "async def app(scope, receive, send):
    await send({'type': 'http.response.start', 'status': 200, 'headers': [(b'content-type', b'text/plain')]})
    await send({'type': 'http.response.body', 'body': b'hello'})
";

/// It binds, and starts others that listen and accept; or it is given a listener.
#[test]
fn uvicorn_in_its_ways_to_begin() {
    for how in ["--fd 3", "--workers 2 --port", "--reload --port"] {
        let (scratch, port) = (Scratch::new(), free_port());
        let (number, folder) = (port.to_string(), scratch.path("").display().to_string());
        write(&scratch, "app.py", UVICORN);
        let mut words = vec!["/usr/bin/python3", "-m", "uvicorn", "--lifespan", "off", "--app-dir", &folder, "app:app"];
        words.extend(how.split(' '));
        let server = if how == "--fd 3" {
            listener(&scratch, "run", port, &words)
        } else {
            words.push(&number);
            Program::new(&scratch, "server", &words).preloaded()
        };
        let server = server.env("PYTHONDONTWRITEBYTECODE", "1").within(&["env", "-C", &folder]).start();
        served(&scratch, server, port, Signal::TERM);
    }
}

/// Until a client comes over shared memory (the first ones may be faster than the server), and some more.
#[track_caller]
fn served(scratch: &Scratch, server: Running, port: u16, end: Signal) {
    const TIMES: usize = 2;
    server.wait_until_listening(port);
    let until = Instant::now() + LIMIT;
    let mut tries = 0;
    loop {
        tries += 1;
        let ended = fetch(scratch, &format!("try{tries}"), port);
        if ended.counters.get("connected_shm") > 0 && ended.counters.get("connected_kernel") == 0 {
            break;
        }
        assert!(Instant::now() < until, "no client over shared memory: {}", ended.report());
        thread::sleep(Duration::from_millis(20));
    }
    for time in 0..TIMES {
        fetch(scratch, &format!("client{time}"), port).was_over_shm(10);
    }
    server.signal(end);
    server.wait_until_ended();
    let ended = server.wait(LIMIT);
    assert!(ended.counters.get("accepted_shm") as usize > TIMES, "{}", ended.report());
}
