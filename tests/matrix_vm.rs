//! The matrix of `matrix.rs` over RDMA: the same programs, in a VM with soft-RoCE, with less to do, since its processor is emulated. This
//! test binary is run there, and again a program's own output and the library's counters are judged, and the device's packets; what
//! comes of it is a column of the README's table. `RSOCKET_MATRIX=write` writes it.
//!
//! | variable | |
//! | --- | --- |
//! | `RSOCKET_MATRIX=long` | all of them, several minutes; else a few |
//! | `RSOCKET_MATRIX=write` | the same, and the column is written anew |
//! | `RSOCKET_MATRIX_FAMILIES=java,redis` | these only |
//! | `RSOCKET_MATRIX_IDLE` | for how many seconds idle servers are watched (2) |

mod support;

#[path = "matrix/column.rs"]
mod column;
#[path = "matrix/languages.rs"]
mod languages;
#[path = "matrix/measuring.rs"]
mod measuring;
#[path = "matrix/netcat.rs"]
mod netcat;
#[path = "matrix/stage.rs"]
mod stage;
#[path = "matrix/stores.rs"]
mod stores;
#[path = "matrix/table.rs"]
mod table;
#[path = "matrix/web.rs"]
mod web;

use std::env;
use std::time::Duration;

use support::{Vm, VmSession, target_dir};
use table::{FAMILIES, Family};

/// What one family may take, on a machine with much else to do.
const LIMIT: Duration = Duration::from_secs(400);

/// What is run where nothing else is asked for: servers with one thread and with several, connections that stay and that do not, a language
/// with its own loop of events. One to two minutes.
const FEW: [&str; 3] = ["memcached", "nginx", "node"];

/// The families that are to be run.
#[track_caller]
fn chosen() -> Vec<&'static Family> {
    if let Ok(names) = env::var("RSOCKET_MATRIX_FAMILIES") {
        return names.split(',').map(table::named).collect();
    }
    match env::var("RSOCKET_MATRIX").as_deref() {
        Ok("long" | "write") => FAMILIES.iter().collect(),
        Ok(other) => panic!("RSOCKET_MATRIX is long or write, not {other}"),
        Err(_) => FEW.map(table::named).to_vec(),
    }
}

/// Run in the VM: the family that is named.
#[test]
#[ignore = "a part of the test below"]
fn in_the_vm() {
    (table::named(&env::var("FAMILY").expect("FAMILY")).run)();
}

#[test]
fn programs_run_over_rdma() {
    let families = chosen();
    // what would take long there
    for family in &families {
        match family.name {
            "java" => drop(languages::classes()),
            "postgresql" => drop(stores::postgresql_data()),
            "mariadb" => drop(stores::mariadb_data()),
            _ => {}
        }
    }
    support::artefact("librspreload.so");
    let vm = Vm::new().cpus(2).memory(2048).env("RSOCKET_MATRIX_MODE", "verbs").env("CARGO_TARGET_DIR", target_dir());
    let mut session = VmSession::new(vm);
    for family in &families {
        let binary = env::current_exe().expect("this program");
        let idle = env::var("RSOCKET_MATRIX_IDLE").map_or_else(|_| String::new(), |idle| format!("RSOCKET_MATRIX_IDLE={idle}"));
        let text = format!("env {idle} FAMILY={} {} --exact --ignored --nocapture in_the_vm", family.name, binary.display());
        session = session.step_within(family.name, LIMIT, &text);
    }
    let outcome = session.run();
    for step in &outcome.steps {
        println!("{:12} {:5.1} s, {}", step.name, step.seconds, step.status);
        step.output.lines().filter(|line| line.ends_with(" s")).for_each(|line| println!("    {line}"));
    }
    let (good, bad): (Vec<&Family>, Vec<&Family>) = families.into_iter().partition(|family| outcome.step(family.name).status == 0);
    for family in good {
        column::publish(family, outcome.step(family.name).ok());
    }
    let failed: String = bad.iter().map(|family| format!("{}: {}\n", family.name, outcome.step(family.name).output)).collect();
    assert!(failed.is_empty(), "{failed}");
}
