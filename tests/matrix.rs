//! The matrix: unmodified programs of all kinds on this machine, both ends preloaded. Each test runs a few of them against one another,
//! checks what they say, and by the library's counters which way their bytes went; what it has seen are the rows of the README's table.
//! Servers that have served must not use the processor afterwards.
//!
//! | variable | |
//! | --- | --- |
//! | `RSOCKET_MATRIX=write` | the README's table is written anew |
//! | `RSOCKET_MATRIX_MODE` | `plain`: without the library; `kernel`: with it, everything left to TCP. No table then |
//! | `RSOCKET_MATRIX_IDLE` | for how many seconds idle servers are watched (10) |

mod support;

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

/// One test for each family of the table.
macro_rules! families {
    ($($name:ident)*) => {
        $(#[test]
        fn $name() {
            (table::named(stringify!($name)).run)();
        })*

        const TESTED: &[&str] = &[$(stringify!($name)),*];
    };
}

families!(iperf sockperf qperf netcat redis memcached nginx haproxy lighttpd postgresql mariadb python java node);

#[test]
fn the_readme_has_only_rows_of_tests() {
    assert_eq!(table::FAMILIES.each_ref().map(|family| family.name), TESTED);
    let programs: Vec<&str> = table::FAMILIES.iter().flat_map(|family| family.programs.iter().copied()).collect();
    let (_, rows, _) = table::in_readme();
    for row in &rows {
        assert!(programs.contains(&row.program.as_str()), "no test makes the row {row:?}");
        assert!(!row.verbs.is_empty(), "nothing is known about RDMA: RSOCKET_MATRIX=write cargo test --test matrix_vm: {row:?}");
    }
    for program in programs {
        assert!(rows.iter().any(|row| row.program == program), "no row of {program}");
    }
}
