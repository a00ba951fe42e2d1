//! The `rsocket` command: runs unmodified programs over rsockets.
#![cfg_attr(test, allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::indexing_slicing))]

mod library;
mod run;

use std::{ffi::OsString, path::PathBuf, process::ExitCode};

use clap::{Arg, ArgMatches, Command, value_parser};

/// What env(1) and its kind exit with when they themselves fail.
const FAILED: u8 = 125;

fn main() -> ExitCode {
    let matches = match command().try_get_matches() {
        Ok(matches) => matches,
        Err(error) => {
            let wrong = error.use_stderr();
            // Nothing is left to be told when the text cannot be written.
            let _ = error.print();
            return if wrong { ExitCode::from(FAILED) } else { ExitCode::SUCCESS };
        }
    };
    let failure = match matches.subcommand() {
        Some(("run", matches)) => run::run(&request(matches)),
        _ => return ExitCode::from(FAILED),
    };
    eprintln!("rsocket: {failure}");
    ExitCode::from(failure.exit_code())
}

fn command() -> Command {
    Command::new("rsocket")
        .about("Runs programs over rsockets: the socket API over RDMA and shared memory")
        .version(env!("CARGO_PKG_VERSION"))
        .subcommand_required(true)
        .arg_required_else_help(true)
        .subcommand(run_command())
}

fn run_command() -> Command {
    Command::new("run")
        .about("Runs a program with its sockets over RDMA or shared memory, where both ends can")
        .override_usage("rsocket run [OPTIONS] [--] PROGRAM [ARGUMENT]...")
        .after_help(
            "The program is started with librspreload.so in LD_PRELOAD. It is looked for in RSOCKET_PRELOAD, beside this\n\
             command, in ../lib/rsocket from there, and in the system's library directories.\n\n\
             Exit status: the program's; 125 if this command fails, 126 if the program cannot be started, 127 if it is not found.",
        )
        .arg(
            Arg::new("stats")
                .long("stats")
                .value_name("FILE")
                .value_parser(value_parser!(PathBuf))
                .help("Append counters to FILE (`-`: standard error; `%p`: process id) at exit (sets RSOCKET_STATS)"),
        )
        .arg(
            Arg::new("log")
                .long("log")
                .value_name("LEVEL")
                // The library's words, in any case.
                .value_parser(["off", "error", "warn", "info", "debug", "trace"])
                .ignore_case(true)
                .hide_possible_values(true)
                .help("Log to standard error: off (no warnings either), error, warn, info, debug or trace (sets RSOCKET_LOG)"),
        )
        .arg(
            Arg::new("program")
                .value_name("PROGRAM")
                .required(true)
                .num_args(1..)
                .trailing_var_arg(true)
                .value_parser(value_parser!(OsString))
                .help("Program to run, and its arguments"),
        )
}

fn request(matches: &ArgMatches) -> run::Request {
    let mut words = matches.get_many::<OsString>("program").into_iter().flatten().cloned();
    run::Request {
        program: words.next().unwrap_or_default(),
        arguments: words.collect(),
        stats: matches.get_one::<PathBuf>("stats").cloned(),
        log: matches.get_one::<String>("log").cloned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(words: &[&str]) -> Result<run::Request, clap::Error> {
        let matches = command().try_get_matches_from(words)?;
        Ok(request(matches.subcommand_matches("run").unwrap()))
    }

    #[test]
    fn the_definition_is_consistent() {
        command().debug_assert();
    }

    #[test]
    fn options_end_where_the_program_begins() {
        let request = parse(&["rsocket", "run", "--log", "debug", "iperf", "-c", "host", "--stats", "x"]).unwrap();
        assert_eq!(request.program, "iperf");
        assert_eq!(request.arguments, ["-c", "host", "--stats", "x"]);
        assert_eq!((request.log.as_deref(), request.stats), (Some("debug"), None));
    }

    #[test]
    fn a_double_dash_begins_the_program() {
        let request = parse(&["rsocket", "run", "--stats", "/tmp/s", "--", "-odd-", "--", "--help"]).unwrap();
        assert_eq!(request.program, "-odd-");
        assert_eq!(request.arguments, ["--", "--help"]);
        assert_eq!(request.stats, Some(PathBuf::from("/tmp/s")));
    }

    #[test]
    fn what_is_missing_or_wrong_is_an_error() {
        assert!(parse(&["rsocket", "run"]).is_err());
        assert!(parse(&["rsocket", "run", "--"]).is_err());
        assert!(parse(&["rsocket", "ruin", "x"]).is_err());
        assert!(
            parse(&["rsocket", "run", "--wrong", "x"]).is_err() || parse(&["rsocket", "run", "--wrong", "x"]).unwrap().program == "--wrong"
        );
    }

    #[test]
    fn log_takes_a_level() {
        for level in ["off", "error", "warn", "info", "debug", "trace", "Trace"] {
            assert_eq!(parse(&["rsocket", "run", "--log", level, "x"]).unwrap().log.as_deref(), Some(level));
        }
        for wrong in ["bogus", "", "debug,rsocket=trace"] {
            let error = parse(&["rsocket", "run", "--log", wrong, "x"]).unwrap_err();
            assert!(error.use_stderr(), "{wrong}");
            assert!(error.to_string().contains("possible values: off, error, warn, info, debug, trace"), "{error}");
        }
    }

    #[test]
    fn help_and_version_are_no_errors() {
        for words in [&["rsocket", "--help"][..], &["rsocket", "--version"], &["rsocket", "run", "--help"]] {
            assert!(!parse(words).unwrap_err().use_stderr());
        }
    }
}
