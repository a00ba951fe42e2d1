//! What shared memory does not cross, and what it outlives: network namespaces, users, exec, the end of memory, and a process that gives
//! away its rights.
//! On this machine, without an RDMA device.

mod support;

use std::fs;
use std::time::Duration;

use rustix::io::Errno;
use support::{Ended, Program, Scratch, Statistics, artefact, build_c_program, free_port, is_root, needs_root};

const LIMIT: Duration = Duration::from_secs(60);
const ADDRESS: &str = "127.0.0.1";
/// The user nobody.
const NOBODY: &str = "65534";
/// Bytes of a connection of `fault_serve`.
const SERVED: u64 = 300_000;

/// A network of its own, for the program that follows. Root needs no namespace of users for that; others do.
fn new_network() -> Vec<&'static str> {
    let flags = if is_root() { "-n" } else { "-Urn" };
    vec!["unshare", flags, "sh", "-c", "ip link set lo up && exec \"$@\"", "sh"]
}

#[test]
fn a_listener_is_not_seen_from_another_network() {
    let (scratch, number) = (Scratch::new(), free_port());
    let port = number.to_string();
    let server = Program::test(&scratch, "server", "fault_serve", &["serve", ADDRESS, &port, "1"]);
    let server = server.preloaded().within(&new_network()).start();
    server.wait_until_listening(number);

    let refused = |name: &str| Program::test(&scratch, name, "fault_connect", &["refused", ADDRESS, &port, "3"]).preloaded();
    let outside = refused("outside").run(LIMIT);
    let elsewhere = refused("elsewhere").within(&new_network()).run(LIMIT);
    for client in [outside, elsewhere] {
        client.ok();
        assert_eq!(client.counters.get("connected_shm"), 0, "{}", client.report());
    }

    let pid = server.pid().to_string();
    let same: &[&str] =
        if is_root() { &["nsenter", "-t", &pid, "-n"] } else { &["nsenter", "-t", &pid, "-U", "-n", "--preserve-credentials"] };
    let inside = Program::test(&scratch, "inside", "fault_serve", &["ask", ADDRESS, &port]).preloaded().within(same).run(LIMIT);
    inside.ok();
    inside.was_over_shm(SERVED);
    let server = server.wait(LIMIT);
    server.ok();
    server.was_over_shm(SERVED);
    assert_eq!(server.counters.get("accepted_shm"), 1, "{}", server.report());
}

/// Server and client of these users, with this configuration: how they ended.
#[track_caller]
fn of_users(server: Option<&str>, client: Option<&str>, any_user: Option<&str>) -> [Ended; 2] {
    // Everything in a place that both may read.
    let scratch = Scratch::public();
    let library = scratch.copy(&artefact("librspreload.so"));
    let program = scratch.copy(&build_c_program("fault_serve")).display().to_string();
    let configuration = scratch.public_folder("etc");
    if let Some(value) = any_user {
        fs::write(configuration.join("shm_any_uid"), value).expect("a file of the configuration");
    }
    let number = free_port();
    let port = number.to_string();
    let of_user = |name: &str, user: Option<&str>, words: &[&str]| {
        let words = [&[program.as_str()], words].concat();
        let started = Program::new(&scratch, name, &words).preloaded_with(&library).env("RSOCKET_CONFIG_DIR", &configuration);
        match user {
            None => started,
            Some(user) => {
                let (user, group) = (format!("--reuid={user}"), format!("--regid={user}"));
                started.within(&["setpriv", &user, &group, "--clear-groups", "--pdeathsig", "KILL"])
            }
        }
    };
    let server = of_user("server", server, &["serve", ADDRESS, &port, "1"]).start();
    server.wait_until_listening(number);
    let client = of_user("client", client, &["ask", ADDRESS, &port]).run(LIMIT);
    client.ok();
    let server = server.wait(LIMIT);
    server.ok();
    [server, client]
}

#[test]
fn another_user_gets_a_tcp_connection() {
    needs_root("runs programs as another user");
    for (server, client) in [(Some(NOBODY), None), (None, Some(NOBODY))] {
        let [server, client] = of_users(server, client, None);
        assert_eq!(client.counters.get("connected_kernel"), 1, "{}", client.report());
        assert_eq!(server.counters.get("accepted_kernel"), 1, "{}", server.report());
        [server, client].iter().for_each(Ended::was_over_the_kernel);
    }
}

#[test]
fn the_same_user_and_any_that_is_let_in_get_shared_memory() {
    needs_root("runs programs as another user");
    for (server, client, any_user) in [(Some(NOBODY), Some(NOBODY), None), (Some(NOBODY), None, Some("1")), (None, Some(NOBODY), Some("1"))]
    {
        for ended in of_users(server, client, any_user) {
            ended.was_over_shm(SERVED);
        }
    }
}

/// The counts of a line `WHO: sockets N, memfds N, mappings of memfds N`.
#[track_caller]
fn found(ended: &Ended, who: &str) -> Vec<u32> {
    let line = ended.output.lines().find_map(|line| line.strip_prefix(who)?.strip_prefix(": "));
    let line = line.unwrap_or_else(|| panic!("no line of {who} in {}", ended.report()));
    line.split(|c: char| !c.is_ascii_digit()).filter_map(|word| word.parse().ok()).collect()
}

/// What happens to 60 connections of a process with so much address space left: how many went over shared memory.
#[track_caller]
fn over_shm_with(kib: u32) -> u64 {
    let ended = Program::test(&Scratch::new(), "limited", "border_memory", &[ADDRESS, &kib.to_string()]).preloaded().run(LIMIT);
    assert_eq!((ended.code(), ended.output.as_str()), (Some(0), "made 60\n"), "{kib}: {}", ended.report());
    let [shm, kernel] = ["accepted_shm", "accepted_kernel"].map(|name| ended.counters.get(name));
    assert_eq!(shm + kernel, 60, "{kib}: {}", ended.report());
    assert!(kernel == 0 || ended.errors.contains("Cannot allocate memory"), "{kib}: {}", ended.report());
    shm
}

#[test]
fn near_the_limit_of_memory_connections_are_the_kernels_and_all_carry_what_they_are_given() {
    // How much the first connection needs depends on the machine: stack sizes, the C library's arenas, the layout of the process.
    let (mut too_little, mut enough) = (10_000, 400_000);
    assert_eq!(over_shm_with(too_little), 0);
    assert_eq!(over_shm_with(enough), 60);
    while enough - too_little > 100 {
        let between = u32::midpoint(too_little, enough);
        if over_shm_with(between) == 0 { too_little = between } else { enough = between }
    }
    // Whichever of a connection's parts it is for which there is no room.
    let found: Vec<u64> = (0..14).map(|step| over_shm_with(enough + step * 100)).collect();
    assert!(found.iter().any(|shm| (1..60).contains(shm)), "from {enough} KiB on: {found:?}");
}

#[test]
fn a_full_heap_leaves_new_connections_to_the_kernel_while_it_is_full() {
    let ended = Program::test(&Scratch::new(), "limited", "border_memory", &[ADDRESS, "150000", "1"]).preloaded().run(LIMIT);
    assert_eq!((ended.code(), ended.output.as_str()), (Some(0), "poll 0\n"), "{}", ended.report());
    let [shm, kernel, limit] = ["accepted_shm", "accepted_kernel", "fallback_limit"].map(|name| ended.counters.get(name));
    assert!(shm == 2 && kernel == 60 && limit >= 60, "{}", ended.report());
}

#[test]
fn a_process_of_few_descriptors_has_them_for_itself() {
    let few = ["sh", "-c", "ulimit -n 12 && exec \"$@\"", "sh"];
    let ended = Program::test(&Scratch::new(), "few", "socket_basic", &[ADDRESS]).preloaded().within(&few).run(LIMIT);
    assert_eq!(ended.code(), Some(0), "{}", ended.report());
    let [limit, shm, kernel] = ["fallback_limit", "connected_shm", "connected_kernel"].map(|name| ended.counters.get(name));
    assert!(limit > 0 && shm == 0 && kernel > 0, "{}", ended.report());
    assert!(ended.errors.contains("Too many open files"), "{}", ended.report());
}

#[test]
fn nothing_is_left_after_exec() {
    for way in ["exec", "fork", "spawn"] {
        let scratch = Scratch::new();
        let ended = Program::test(&scratch, way, "border_exec", &[ADDRESS, way]).preloaded().run(LIMIT);
        ended.ok();
        let before = found(&ended, "here");
        assert!(before[2] > 0, "no shared memory before: {}", ended.report());
        assert_eq!(found(&ended, "after exec"), [0, 0, 0], "{}", ended.report());
        assert_eq!(ended.output.contains("afterwards: they go on"), way != "exec", "{}", ended.report());
    }
}

#[test]
fn a_connection_goes_on_without_rights_and_in_another_root() {
    needs_root("changes root and users");
    let scratch = Scratch::public();
    let (number, folder) = (free_port(), scratch.public_folder("root").display().to_string());
    let port = number.to_string();
    let end = |name: &str| {
        let program = Program::test(&scratch, name, "border_rights", &[name, ADDRESS, &port, &folder, NOBODY]);
        // in the other root there is no file for them
        program.preloaded().env("RSOCKET_STATS", "-")
    };
    let server = end("listen").start();
    server.wait_until_listening(number);
    let client = end("connect").run(LIMIT);
    let plain = ["before", "one of them", "both", "a new one"].map(|when| format!("{when}: received whole\n"));
    let [first, second, third, fourth] = &plain;
    let (rights, end) = ("user yes, root yes\n", "at the end: end of file\n");
    assert_eq!(client.ok(), [first, second, rights, third, fourth, end].concat(), "{}", client.report());
    let server = server.wait(LIMIT);
    assert_eq!(server.ok(), [first, rights, second, third, fourth, end].concat(), "{}", server.report());
    for ended in [server, client] {
        let counters = Statistics::parse(&ended.errors);
        assert!(counters.get("bytes_sent_shm") >= 9_000_000, "{}", ended.report());
        assert_eq!(counters.get("bytes_sent_verbs"), 0, "{}", ended.report());
    }
}

/// What a filter of system calls refuses costs no connection, whatever it is and whatever error it gives.
#[test]
fn what_a_filter_refuses_leaves_connections_to_the_kernel() {
    const NEEDED: [&str; 11] = [
        "memfd_create",
        "socket of AF_UNIX",
        "eventfd2",
        "epoll_create1",
        "timerfd_create",
        "getsockopt of SO_PEERCRED",
        "sendmsg",
        "recvmsg",
        "madvise",
        "fcntl of F_ADD_SEALS",
        "ftruncate",
    ];
    /// These are not even a limit: a peer that cannot be asked who it is, or told anything, is another one's.
    const NO_LIMIT: [&str; 3] = ["getsockopt of SO_PEERCRED", "sendmsg", "recvmsg"];
    for call in NEEDED {
        for errno in [Errno::PERM, Errno::NOSYS, Errno::MFILE].map(Errno::raw_os_error) {
            let ended = filtered(call, errno);
            ended.was_over_the_kernel();
            let limit = ended.counters.get("fallback_limit");
            let warnings = ended.errors.lines().filter(|line| line.contains("no more connections over RDMA or shared memory")).count();
            let wanted = if NO_LIMIT.contains(&call) && limit == 0 { 0 } else { 1 };
            assert_eq!((warnings, limit > 0), (wanted, wanted > 0), "{call}, {errno}: {}", ended.report());
        }
    }
}

/// What there is another way for costs not even the shared memory.
#[test]
fn what_a_filter_refuses_may_be_done_without() {
    for call in ["nothing", "futex_waitv", "signalfd4", "sched_getaffinity"] {
        let ended = filtered(call, Errno::PERM.raw_os_error());
        ended.was_over_shm(500_000);
        assert_eq!(ended.errors, "", "{call}");
    }
}

#[track_caller]
fn filtered(call: &str, errno: i32) -> Ended {
    let ended = Program::test(&Scratch::new(), "filtered", "border_seccomp", &[ADDRESS, call, &errno.to_string()]).preloaded().run(LIMIT);
    assert_eq!((ended.code(), ended.output.as_str()), (Some(0), "made 5\n"), "{call}, {errno}: {}", ended.report());
    ended
}

#[test]
fn urgent_data_is_refused_with_a_warning_and_the_connection_goes_on() {
    let run = |name: &str, fabric: &str| {
        Program::test(&Scratch::new(), name, "border_urgent", &[ADDRESS]).preloaded().env("RSOCKET_FABRIC", fabric).run(LIMIT)
    };
    let ended = run("fabric", "shm,verbs,kernel");
    let ways = ["send", "sendto", "sendmsg", "sendmmsg"];
    let of = |way: &str| format!("{way}: -1 EOPNOTSUPP\n  OUT\n  sockatmark: 0\n  recv: -1 EINVAL\n  -, then 4: data\n");
    assert_eq!(ended.ok(), format!("{}SIGURG 0 times\nafter shutdown: -1 EOPNOTSUPP\n", ways.map(of).concat()), "{}", ended.report());
    assert_eq!(ended.errors.matches("urgent data (MSG_OOB)").count(), 1, "{}", ended.report());
    ended.was_over_shm(2 * 4 * 4);
    // the program is one that TCP serves
    let ended = run("kernel", "kernel");
    let of = |way: &str| format!("{way}: 1\n  PRI|OUT\n  sockatmark: 1\n  recv: 1\n  !, then 4: data\n");
    assert_eq!(ended.ok(), format!("{}SIGURG 4 times\nafter shutdown: -1 EPIPE\n", ways.map(of).concat()), "{}", ended.report());
    assert_eq!(ended.errors, "", "{}", ended.report());
}
