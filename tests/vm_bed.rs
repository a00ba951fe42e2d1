//! The test bed itself: VMs give back statuses and outputs, end in time, leave nothing behind, and their RDMA works.

mod support;

use std::fs;
use std::process::{Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use support::{Counters, Rdma, Topology, Vm, VmSession, assert_over_rdma, assert_over_tcp, build_c_program, repository};

fn bare() -> Vm {
    Vm::new().topology(Topology::None).rdma(Rdma::None)
}

/// Processes of this machine with this text among their arguments.
fn processes_with(text: &str) -> Vec<u32> {
    let numbers = fs::read_dir("/proc").expect("/proc").flatten().filter_map(|e| e.file_name().to_str()?.parse().ok());
    let own = std::process::id();
    let has = |pid: &u32| {
        let arguments = fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
        String::from_utf8_lossy(&arguments).contains(text)
    };
    numbers.filter(|pid| *pid != own).filter(has).collect()
}

#[test]
fn gives_back_status_output_environment_and_steps() {
    let outcome = VmSession::new(bare().env("WORD", "it's \"two\" words"))
        .step("output", "echo out; echo err >&2; echo \"$WORD\"")
        .step("silent", "true")
        .step("fails", "echo half; printf line; exit 42")
        .step_within("hangs", Duration::from_secs(2), "echo begun; sleep 100 & exec sleep 100")
        .step_within("ignores", Duration::from_secs(1), "trap '' TERM; while :; do sleep 1; done")
        .step("clean", "pgrep -cfx 'sleep 100' || true")
        .step("repository", "test -f scripts/vm/run && touch scripts/vm/run && echo written here only")
        .run();
    assert_eq!(outcome.status, 1, "{}", outcome.report());
    assert_eq!(outcome.step("output").ok(), "out\nerr\nit's \"two\" words\n");
    assert_eq!(outcome.step("silent").ok(), "");
    assert_eq!((outcome.step("fails").status, outcome.step("fails").output.as_str()), (42, "half\nline"));
    let hangs = outcome.step("hangs");
    assert_eq!((hangs.status, hangs.output.as_str()), (124, "begun\n"));
    assert!((1.9..6.0).contains(&hangs.seconds), "{hangs:?}");
    assert_eq!(outcome.step("ignores").status, 124);
    assert_eq!(outcome.step("clean").output.trim(), "0", "a step leaves its processes behind");
    outcome.step("repository").ok();
}

#[test]
fn ends_at_the_time_limit_and_says_what_hung() {
    let outcome = bare().limit(Duration::from_secs(2)).script("echo begun; sleep 1000").run();
    assert_eq!((outcome.status, outcome.timed_out), (124, true), "{}", outcome.report());
    assert!(outcome.output.starts_with("begun\n"), "{}", outcome.report());
    assert!(outcome.diagnosis.contains("sleep 1000"), "{}", outcome.report());
}

#[test]
fn a_kernel_panic_is_no_exit_status() {
    let outcome = bare().script("echo c > /proc/sysrq-trigger; sleep 60").run();
    assert_eq!(outcome.status, 125, "{}", outcome.report());
    assert!(outcome.messages.contains("sysrq triggered crash"), "{}", outcome.report());
}

#[test]
fn no_qemu_outlives_a_killed_run() {
    let tag = format!("rsocket_bed_{}", std::process::id());
    let mut run = Command::new(repository().join("scripts/vm/run"))
        .args(["--topo", "none", "--rdma", "none", "--append", &tag, "-c", "sleep 100"])
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .expect("scripts/vm/run");
    let wait_for = |there: bool| {
        let until = Instant::now() + Duration::from_secs(60);
        while processes_with(&tag).iter().any(|pid| *pid != run.id()) != there {
            assert!(Instant::now() < until, "qemu {}", if there { "does not start" } else { "is left behind" });
            thread::sleep(Duration::from_millis(50));
        }
    };
    wait_for(true);
    Command::new("kill").args(["-KILL", &run.id().to_string()]).status().expect("kill");
    wait_for(false);
    run.wait().expect("the killed run");
}

#[test]
fn rstream_runs_over_soft_roce_on_one_host() {
    let transfer = "counters; rstream -b $AT -S 65536 -C 20 & rwait 7471; rstream -s $AT -S 65536 -C 20; wait; counters";
    let outcome = VmSession::new(Vm::new().cpus(2))
        .step("link", "rdma link")
        .step("ipv4", &format!("AT=$HOST_B; {transfer}"))
        .step("ipv6", &format!("AT=$HOST_B6; {transfer}"))
        .step("tcp", "counters; nc -l -p 5000 >/dev/null & rwait 5000; head -c 4M /dev/zero | nc -N $HOST_B 5000; wait; counters")
        .run();
    assert!(outcome.step("link").ok().contains("rxe0/1 state ACTIVE"), "{}", outcome.report());
    for step in ["ipv4", "ipv6"] {
        let output = outcome.step(step).ok();
        assert_eq!(output.matches("custom").count(), 2, "{}", outcome.report());
        let (before, after) = Counters::first_and_last(output);
        assert_over_rdma(before, after, 2 * 20 * 65536);
    }
    let (before, after) = Counters::first_and_last(outcome.step("tcp").ok());
    assert_over_tcp(before, after, 4 << 20);
}

#[test]
fn rstream_runs_over_soft_iwarp_between_two_hosts_of_one_vm() {
    let outcome = VmSession::new(Vm::new().topology(Topology::Two).rdma(Rdma::Siw))
        .step("rstream", "counters; B rstream -b $HOST_B -S 65536 -C 20 & rwait 7471; A rstream -s $HOST_B -S 65536 -C 20; wait; counters")
        .step("cut", "probe() { A timeout 2 bash -c \"</dev/tcp/$HOST_B/9\" 2>/dev/null; echo -n \"$? \"; }; probe; netcut hole; probe; netcut open; probe")
        .run();
    let output = outcome.step("rstream").ok();
    assert_eq!(output.matches("custom").count(), 2, "{}", outcome.report());
    let (before, after) = Counters::first_and_last(output);
    assert_over_rdma(before, after, 2 * 20 * 65536);
    assert_eq!(outcome.step("cut").ok(), "1 124 1 ", "refused, lost, refused");
}

#[test]
fn two_machines_over_soft_roce_whose_link_is_cut_and_reopened() {
    let server = "rstream -b $HOST_B -S 65536 -C 20 & rwait 7471; tell $FLAG; wait";
    let client = "counters; rstream -s $HOST_B -S 65536 -C 20; counters";
    let outcome = VmSession::new(Vm::new().topology(Topology::TwoMachines).rdma(Rdma::Rxe))
        .step_both("rstream", Duration::from_secs(30), &format!("await one; {client}"), &format!("FLAG=one; {server}"))
        .step_both(
            "cut",
            Duration::from_secs(40),
            // it must stand still while the link is cut, and end once that is open again
            &format!("await two; netcut hole; ({client}) & sleep 3; jobs -r | wc -l; netcut open; wait; echo ended"),
            &format!("FLAG=two; {server}"),
        )
        .step_both("status", Duration::from_secs(5), "exit 3", "exit 4")
        .run();
    for step in ["rstream", "cut"] {
        let output = outcome.step(step).ok();
        assert!(output.contains("custom"), "{}", outcome.report());
        assert!(outcome.b().step(step).ok().contains("custom"), "{}", outcome.report());
        let (before, after) = Counters::first_and_last(output);
        assert_over_rdma(before, after, 2 * 20 * 65536);
    }
    let cut = &outcome.step("cut").output;
    assert!(cut.contains("\n1\n") && cut.ends_with("ended\n"), "{}", outcome.report());
    assert_eq!((outcome.step("status").status, outcome.b().step("status").status), (3, 4));
}

#[test]
fn a_c_program_is_built_once_and_runs() {
    let built: Vec<_> = thread::scope(|scope| {
        let threads: Vec<_> = (0..4).map(|_| scope.spawn(|| build_c_program("vm_bed_hello"))).collect();
        threads.into_iter().map(|thread| thread.join().expect("a build")).collect()
    });
    let first = fs::metadata(&built[0]).expect("the program").modified().expect("its age");
    assert_eq!(build_c_program("vm_bed_hello"), built[0]);
    assert_eq!(fs::metadata(&built[0]).expect("the program").modified().expect("its age"), first, "built again without need");
    let output = Command::new(&built[0]).output().expect("the program");
    assert_eq!(String::from_utf8_lossy(&output.stdout), "hello from a test program\n");
}

#[test]
fn counters_are_read_and_subtracted() {
    let line = "rxe_sent=5 rxe_rcvd=4 siw_sent=0 siw_rcvd=0 tcp_out=7 tcp_in=6";
    let counters = Counters::parse(line).expect("a line of counters");
    assert_eq!((counters.rxe_sent, counters.tcp_in), (5, 6));
    assert_eq!(counters - counters, Counters::default());
    assert_eq!(Counters::parse("a=1"), None);
    assert_eq!(Counters::all(&format!("x\n{line}\n\n{line}")).len(), 2);
}
