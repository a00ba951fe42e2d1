//! Processes that a program makes: fork, vfork, posix_spawn and what the C library does itself. The programs print a transcript that has to be
//! the same on kernel TCP and under the preload; which way the bytes went the counters say. On this machine, without an RDMA device.

mod support;

use std::path::Path;
use std::time::Duration;

use support::{Ended, Program, Scratch, difference};

const LIMIT: Duration = Duration::from_secs(100);
const ADDRESS: &str = "127.0.0.1";

/// Runs a program plain and preloaded: the same output, and nothing said on standard error. Gives the preloaded run.
#[track_caller]
fn same(program: &str, arguments: &[&str]) -> Ended {
    let scratch = Scratch::new();
    let words = [&[ADDRESS], arguments].concat();
    let plain = Program::test(&scratch, "plain", program, &words).run(LIMIT);
    plain.ok();
    let preloaded = Program::test(&scratch, "preloaded", program, &words).preloaded().run(LIMIT);
    println!("  {program}: plain {:.1} s, preloaded {:.1} s", plain.seconds, preloaded.seconds);
    if let Some(difference) = difference(&plain.output, &preloaded.output) {
        panic!("{program}: {difference}\n{}", preloaded.report());
    }
    preloaded.ok();
    assert_eq!(preloaded.errors, "", "{}", preloaded.report());
    preloaded
}

#[track_caller]
fn assert_counted(ended: &Ended, name: &str, least: u64) {
    let counted = ended.counters.get(name);
    assert!(counted >= least, "{name} {counted}, not {least}: {}", ended.report());
}

#[test]
fn what_a_child_closes_stays_the_parents() {
    let ended = same("process_close", &[]);
    // The parent's, one more after each of eleven children, and what children and grandchildren have made for themselves.
    assert_counted(&ended, "connected_shm", 20);
    assert_counted(&ended, "bytes_sent_shm", 20 * 40_000);
}

#[test]
fn peers_see_the_end_of_a_server_whose_child_lives_on() {
    let ended = Program::test(&Scratch::new(), "orphan", "process_orphan", &[ADDRESS]).preloaded().run(LIMIT);
    assert_eq!(ended.ok(), "answers: 1\nthe end: yes\nserver: ended by signal 9\n", "{}", ended.report());
    assert_counted(&ended, "connected_shm", 1);
}

/// What a child's calls on a connection of its parent's give: not to be compared with the kernel, where both have the connection.
const LOST: &str = "\
read: -1 ECONNRESET
readv: -1 ECONNRESET
preadv2: -1 ECONNRESET
recv: -1 ECONNRESET
recv MSG_DONTWAIT: -1 ECONNRESET
recv MSG_PEEK: -1 ECONNRESET
recv MSG_TRUNC: -1 ECONNRESET
recvfrom: -1 ECONNRESET
recvmsg: -1 ECONNRESET
recvmmsg: -1 ECONNRESET
write: -1 ECONNRESET
writev: -1 ECONNRESET
pwritev2: -1 ECONNRESET
send: -1 ECONNRESET
send MSG_NOSIGNAL: -1 ECONNRESET
sendto: -1 ECONNRESET
sendmsg: -1 ECONNRESET
sendmmsg: -1 ECONNRESET
sendfile: -1 ECONNRESET
dprintf: -1 ECONNRESET
splice from it: -1 ECONNRESET
splice to it: -1 ECONNRESET
poll: 1
poll: IN|OUT|RDHUP|ERR|HUP
poll for nothing: 1
poll for nothing: ERR|HUP
ppoll: 1
ppoll: IN|ERR|HUP
select: 2
select: readable yes, writable yes
epoll_ctl: 0
epoll_wait: 1
epoll: data 5, hung up yes
getpeername: -1 ENOTCONN
the socket: SO_ERROR ECONNRESET
the socket again: SO_ERROR ECONNRESET
connect: -1 EISCONN
TCP_NODELAY: 0
F_GETFL: 0
read of a duplicate: -1 ECONNRESET
a stream on it: yes
fgetc: -1 ECONNRESET
read of standard input: -1 ECONNRESET
epoll_wait in the parent's set: 2
  s: IN|ERR|HUP
  c: IN|ERR|HUP
once more: 1
EPOLL_CTL_DEL of one: 0
after it: 0
close: 0
own sockets work: yes
child: exit status 0
the parent has read 14: for the parent
the parent's connection: yes
read: -1 ECONNRESET
grandchild: exit status 0
child: exit status 0
the parent's connection: yes
the parent's set: 1
";

#[test]
fn a_childs_use_of_its_parents_connection_is_an_error_and_one_warning() {
    let run = |settings: &[(&str, &str)]| {
        let scratch = Scratch::new();
        let program = Program::test(&scratch, "lost", "process_lost", &[ADDRESS]).preloaded();
        settings.iter().fold(program, |program, (name, value)| program.env(name, value)).run(LIMIT)
    };
    let ended = run(&[]);
    if let Some(difference) = difference(LOST, ended.ok()) {
        panic!("{difference}\n{}", ended.report());
    }
    // One of the child, one of the grandchild that has read.
    let warnings: Vec<_> = ended.errors.lines().collect();
    assert_eq!(warnings.len(), 2, "{}", ended.report());
    for warning in warnings {
        assert!(warning.starts_with("rsocket: warning: ") && warning.contains("RDMAV_FORK_SAFE=1"), "{warning}");
    }
    assert_counted(&ended, "bytes_sent_shm", 3 * 40_000);
    let silent = run(&[("RSOCKET_LOG", "off")]);
    assert_eq!((silent.ok(), silent.errors.as_str()), (LOST, ""));
}

#[test]
fn no_child_of_a_busy_process_hangs() {
    let ended = same("process_churn", &["500"]);
    // Children end by _exit, which tells no counters; the parent has its own.
    assert_counted(&ended, "bytes_sent_shm", 500);
    assert_eq!(ended.output.lines().next(), Some("by the main thread: 500 of 500"), "{}", ended.report());
}

#[test]
fn nor_one_that_is_forked_at_the_first_calls() {
    let ended = same("process_first", &[]);
    assert_counted(&ended, "connected_shm", 60);
}

#[test]
fn a_child_may_come_back_from_a_handler() {
    let ended = same("process_handler", &[]);
    // The children's own, of which there is one for each of seven calls, and the parent's.
    assert_counted(&ended, "connected_shm", 8);
}

#[test]
fn a_handler_within_fork_waits_for_nothing() {
    let ended = same("process_signals", &[]);
    assert_counted(&ended, "bytes_sent_shm", 40_000);
}

#[test]
fn children_that_share_memory_change_nothing() {
    let ended = same("process_spawn", &["500"]);
    assert_counted(&ended, "bytes_sent_shm", 100_000);
}

#[test]
fn memory_beside_connections_is_copied() {
    let ended = same("process_heap", &[]);
    assert_counted(&ended, "connected_shm", 51);
}

#[test]
fn a_listener_stays_where_it_is_served() {
    let ended = same("process_listener", &[]);
    // Ten before the second fork, and thirty after it: the listener's own process has served them.
    assert_eq!(ended.counters.get("accepted_shm"), 40, "{}", ended.report());
    // Ten where it was not known yet, and ten by the parent after a child has served. (The others are the children's, for whom the listener is
    // the kernel's alone.)
    assert_eq!(ended.counters.get("accepted_kernel"), 20, "{}", ended.report());
}

/// The rule is the same however the other process was made: a listener that it has stays with the fabrics only if the program itself has served
/// clients there. Ways: fork (which leaves a child everything), vfork and execv, vfork and execl, posix_spawn, system, popen.
#[test]
fn a_listener_that_another_process_has_stays_where_it_is_served() {
    let ended = same("process_shared", &[]);
    // Served before: one client then, and two afterwards, twice each way. Else the two afterwards, where the other program does not have it; a
    // forked child has it.
    assert_eq!(ended.counters.get("accepted_shm"), 6 * 2 * 3 + 5 * 2, "{}", ended.report());
    assert_eq!(ended.counters.get("accepted_kernel"), 6 * 2 + 2, "{}", ended.report());
}

const PYTHON: &str = "
import os, socket, subprocess, sys, threading
listener = socket.create_server(('127.0.0.1', 0))
pairs = []
for _ in range(3):
    client = socket.create_connection(listener.getsockname())
    pairs.append((client, listener.accept()[0]))
over, whole = threading.Event(), []
def flow(client, server):
    rounds = 0
    while not over.is_set():
        bytes = os.urandom(500)
        client.sendall(bytes)
        back = b''
        while len(back) < 500:
            back += server.recv(500 - len(back))
        if back != bytes:
            return
        rounds += 1
    whole.append(rounds > 10)
threads = [threading.Thread(target=flow, args=pair) for pair in pairs]
[thread.start() for thread in threads]
good = 0
for i in range(500):
    client, server = pairs[i % 3]
    done = subprocess.run(['/bin/true'], close_fds=True, pass_fds=(client.fileno(),) if i % 2 else ())
    good += done.returncode == 0
print(f'{good} of 500')
passed = pairs[0][0].fileno()
script = f'[ -e /proc/self/fd/{passed} ] && echo open || echo closed'
for fds in ((passed,), ()):
    print(subprocess.run(['/bin/sh', '-c', script], pass_fds=fds, capture_output=True, text=True).stdout.strip())
print(subprocess.run('echo a b | tr a-z A-Z | cat', shell=True, capture_output=True, text=True).stdout.strip())
forked = subprocess.run(['/bin/echo', 'forked'], preexec_fn=lambda: None, capture_output=True, text=True)
print(forked.stdout.strip())
over.set()
[thread.join() for thread in threads]
print(f'connections that went on: {sum(whole)}')
";

#[test]
fn pythons_children_change_nothing() {
    let scratch = Scratch::new();
    let script = scratch.path("script.py");
    std::fs::write(&script, PYTHON).expect("a script");
    let ended = Program::new(&scratch, "python", &["/usr/bin/python3", &script.display().to_string()]).preloaded().run(LIMIT);
    assert_eq!(ended.ok(), "500 of 500\nopen\nclosed\nA B\nforked\nconnections that went on: 3\n", "{}", ended.report());
    ended.was_over_shm(10_000);
}

const JAVA: &str = r#"
import java.io.*;
import java.net.*;
public class Children {
    static volatile boolean over;
    static int whole;
    public static void main(String[] arguments) throws Exception {
        ServerSocket listener = new ServerSocket(0, 8, InetAddress.getByName("127.0.0.1"));
        Thread[] threads = new Thread[3];
        for (int i = 0; i < 3; i++) {
            Socket client = new Socket("127.0.0.1", listener.getLocalPort());
            Socket server = listener.accept();
            threads[i] = new Thread(() -> flow(client, server));
            threads[i].start();
        }
        int good = 0;
        for (int i = 0; i < 60; i++) {
            Process child = new ProcessBuilder("/bin/echo", "x" + i).start();
            String line = new BufferedReader(new InputStreamReader(child.getInputStream())).readLine();
            if (child.waitFor() == 0 && line.equals("x" + i)) good++;
        }
        System.out.println(good + " of 60");
        over = true;
        for (Thread thread : threads) thread.join();
        System.out.println("connections that went on: " + whole);
    }
    static void flow(Socket client, Socket server) {
        try {
            OutputStream out = client.getOutputStream();
            InputStream in = server.getInputStream();
            byte[] bytes = new byte[500];
            int rounds = 0;
            while (!over) {
                bytes[rounds % 500]++;
                out.write(bytes);
                if (!java.util.Arrays.equals(bytes, in.readNBytes(500))) return;
                rounds++;
            }
            if (rounds > 10) synchronized (Children.class) { whole++; }
        } catch (IOException e) {
            System.out.println(e);
        }
    }
}
"#;

#[test]
fn javas_children_change_nothing() {
    let java = Path::new("/usr/bin/java");
    assert!(java.exists(), "there is no java: run scripts/setup");
    let scratch = Scratch::new();
    let source = scratch.path("Children.java");
    std::fs::write(&source, JAVA).expect("a program");
    let ended = Program::new(&scratch, "java", &["/usr/bin/java", &source.display().to_string()]).preloaded().run(LIMIT);
    assert_eq!(ended.ok(), "60 of 60\nconnections that went on: 3\n", "{}", ended.report());
    ended.was_over_shm(10_000);
}
