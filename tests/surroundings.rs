//! What a process may have in it beside this library: other allocators, other libraries that are preloaded, many threads at the first call,
//! signal handlers that use sockets all the time. On this machine, without an RDMA device.

mod support;

use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::time::Duration;

use support::{Ended, Program, Scratch, artefact, build_c_program, free_port};

const LIMIT: Duration = Duration::from_secs(60);
const ADDRESS: &str = "127.0.0.1";
/// What `surround_echo` moves a connection, both ways.
const ECHOED: u64 = 2 * 3000 * 8;
/// Packages: scripts/setup.
const ALLOCATORS: [&str; 4] = ["libjemalloc.so.2", "libtcmalloc.so.4", "libtcmalloc_minimal.so.4", "libmimalloc.so.2"];

fn allocator(name: &str) -> PathBuf {
    let folders = ["/usr/lib/x86_64-linux-gnu", "/usr/lib/aarch64-linux-gnu", "/usr/lib64", "/usr/lib"];
    let found = folders.iter().map(|folder| Path::new(folder).join(name)).find(|path| path.exists());
    found.unwrap_or_else(|| panic!("there is no {name}: run scripts/setup"))
}

/// The other library before ours, and behind it.
fn both_orders(other: &Path) -> [OsString; 2] {
    let ours = artefact("librspreload.so");
    [[other, &ours], [&ours, other]].map(|both| both.map(|path| path.as_os_str()).join(":".as_ref()))
}

#[track_caller]
fn echo(preload: &OsString, connections: u64) -> Ended {
    let arguments = [ADDRESS, &connections.to_string()];
    let ended = Program::test(&Scratch::new(), "echo", "surround_echo", &arguments).preloaded().env("LD_PRELOAD", preload).run(LIMIT);
    let rounds = 4 * connections * 8;
    assert_eq!(ended.ok(), format!("rounds that came back: {rounds} of {rounds}\n"), "{}", ended.report());
    ended.was_over_shm(4 * connections * ECHOED);
    ended
}

#[test]
fn threads_that_wait_work_with_any_allocator() {
    for name in ALLOCATORS {
        for preload in both_orders(&allocator(name)) {
            echo(&preload, 40);
        }
    }
}

const SCRIPT: &str = "
import selectors, socket, threading
listener = socket.create_server(('127.0.0.1', 0))
def serve():
    waits, left = selectors.DefaultSelector(), 8
    waits.register(listener, selectors.EVENT_READ)
    while left:
        for key, _ in waits.select():
            if key.fileobj is listener:
                waits.register(listener.accept()[0], selectors.EVENT_READ)
            elif data := key.fileobj.recv(65536):
                key.fileobj.sendall(data)
            else:
                waits.unregister(key.fileobj)
                key.fileobj.close()
                left -= 1
def ask():
    with socket.create_connection(listener.getsockname()) as client:
        for size in (1, 1000, 30000):
            client.sendall(b'x' * size)
            while size:
                size -= len(client.recv(size))
threads = [threading.Thread(target=ask) for _ in range(8)] + [threading.Thread(target=serve)]
[thread.start() for thread in threads]
[thread.join() for thread in threads]
print('all served')
";

#[test]
fn python_and_programs_without_sockets_work_with_any_allocator() {
    for name in ALLOCATORS {
        for preload in both_orders(&allocator(name)) {
            let scratch = Scratch::new();
            let nothing = Program::new(&scratch, "true", &["/bin/true"]).preloaded().env("LD_PRELOAD", &preload).run(LIMIT);
            assert_eq!((nothing.code(), nothing.errors.as_str()), (Some(0), ""), "{name}: {}", nothing.report());
            let python = Program::new(&scratch, "python", &["python3", "-c", SCRIPT]).preloaded().env("LD_PRELOAD", &preload).run(LIMIT);
            assert_eq!(python.ok(), "all served\n", "{name}: {}", python.report());
            python.was_over_shm(8 * 2 * 31_001);
        }
    }
}

#[test]
fn redis_works_with_any_allocator() {
    for name in ALLOCATORS {
        for preload in both_orders(&allocator(name)) {
            let (scratch, number) = (Scratch::new(), free_port());
            let port = number.to_string();
            let words = ["redis-server", "--bind", ADDRESS, "--port", &port, "--save", "", "--appendonly", "no", "--dir", "/tmp"];
            let server = Program::new(&scratch, "server", &words).preloaded().env("LD_PRELOAD", &preload).start();
            server.wait_until_listening(number);
            let asks = ["redis-benchmark", "-h", ADDRESS, "-p", &port, "-q", "-n", "2000", "-c", "10", "-P", "4", "-t", "set,get,lpush"];
            let bench = Program::new(&scratch, "bench", &asks).preloaded().env("LD_PRELOAD", &preload).run(LIMIT);
            bench.ok();
            assert_eq!(bench.output.matches("requests per second").count(), 3, "{name}: {}", bench.report());
            // each of 6000 requests is longer than this, and so is each answer
            bench.was_over_shm(6000 * 4);
            server.signal(rustix::process::Signal::TERM);
            let server = server.wait(LIMIT);
            server.ok();
            server.was_over_shm(6000 * 4);
        }
    }
}

#[test]
fn a_library_may_call_everything_before_this_one_is_set_up_and_within_malloc() {
    for name in ["surround_hooks", "surround_malloc"] {
        for preload in both_orders(&build_c_program(name)) {
            let ended = echo(&preload, 20);
            assert_eq!(ended.errors, "", "{name}");
            let nothing = Program::new(&Scratch::new(), "true", &["/bin/true"]).preloaded().env("LD_PRELOAD", &preload).run(LIMIT);
            assert_eq!((nothing.code(), nothing.errors.as_str()), (Some(0), ""), "{name}: {}", nothing.report());
            // the constructor's own connection
            nothing.was_over_shm(25);
        }
    }
}

#[test]
fn many_threads_may_be_the_first() {
    for sets in ["0", "1"] {
        for _ in 0..20 {
            let ended = Program::test(&Scratch::new(), "first", "surround_first", &[ADDRESS, sets]).preloaded().run(LIMIT);
            assert_eq!(ended.ok(), "whole: 64 of 64\n", "{}", ended.report());
            ended.was_over_shm(64 * 12);
            let [connected, accepted] = ["connected_shm", "accepted_shm"].map(|name| ended.counters.get(name));
            assert_eq!((connected, accepted), (64, 64), "{}", ended.report());
        }
    }
}

/// Handlers that come all the time, first with sockets and sets alone, then with connections that they make.
#[test]
fn signal_handlers_may_use_what_they_interrupt() {
    for connects in ["0", "1"] {
        let ended = Program::test(&Scratch::new(), "signals", "surround_signals", &[ADDRESS, connects]).preloaded().run(LIMIT);
        let wanted = "many of each: yes\nmain: all arrived: yes\nhandlers: all arrived: yes\n";
        assert_eq!(ended.ok(), wanted, "{}", ended.report());
        ended.was_over_shm(1000);
    }
}
