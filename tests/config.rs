//! Settings that are wrong: each costs one line on standard error that names the file or variable and the value, and the program goes on
//! with the default. With good settings, or none, the library says nothing.
//!
//! On this machine, without a VM: settings are read before anybody asks for a device.

mod support;

use std::{
    fs,
    path::{Path, PathBuf},
    process::Command,
};

use support::{artefact, build_c_program, target_dir};

const PROGRAM: &str = "socket_basic";

/// What a run of the program has put out.
struct Run {
    output: String,
    errors: Vec<String>,
}

/// Runs the program with these settings, plain without a folder of files.
#[track_caller]
fn run(files: Option<&Path>, variables: &[(&str, &str)]) -> Run {
    let mut command = Command::new("timeout");
    command.arg("60").arg(build_c_program(PROGRAM));
    for (name, _) in std::env::vars_os() {
        if name.to_str().is_some_and(|name| name.starts_with("RS")) {
            command.env_remove(name);
        }
    }
    if let Some(files) = files {
        command.env("LD_PRELOAD", artefact("librspreload.so")).env("RSOCKET_CONFIG_DIR", files);
    }
    let run = command.envs(variables.iter().copied()).output().expect("timeout starts");
    assert!(run.status.success(), "{run:?}");
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    Run { output: text(&run.stdout), errors: text(&run.stderr).lines().map(str::to_owned).collect() }
}

/// A folder with these files, empty before.
fn folder(name: &str, files: &[(&str, &str)]) -> PathBuf {
    let folder = target_dir().join("test-config").join(name);
    let _ = fs::remove_dir_all(&folder);
    fs::create_dir_all(&folder).unwrap();
    for (file, content) in files {
        fs::write(folder.join(file), content).unwrap();
    }
    folder
}

/// Every line is about exactly one of these, and each of these has its line: words that stand in it.
#[track_caller]
fn assert_complaints(errors: &[String], wanted: &[&[&str]]) {
    let says = |line: &String, words: &[&str]| words.iter().all(|word| line.contains(word));
    for words in wanted {
        let about = errors.iter().filter(|line| says(line, words)).count();
        assert_eq!(about, 1, "{words:?} in {errors:#?}");
    }
    assert_eq!(errors.len(), wanted.len(), "{errors:#?}");
}

#[test]
fn good_settings_are_taken_in_silence() {
    let plain = run(None, &[]);
    let none = run(Some(&folder("none", &[])), &[]);
    let good = folder(
        "good",
        &[("mem_default", "262144\n"), ("sqsize_default", "64"), ("shm_any_uid", "0\n"), ("preload_config", "# all\n* * * *\n")],
    );
    let good = run(Some(&good), &[("RS_RQ_SIZE", "100"), ("RS_INLINE", "0"), ("RSOCKET_FABRIC", "shm,verbs,kernel")]);
    for other in [none, good] {
        assert_eq!(other.errors, Vec::<String>::new());
        assert_eq!(other.output, plain.output);
    }
}

#[test]
fn bad_files_are_named_with_their_value() {
    let bad = folder(
        "bad",
        &[
            ("mem_default", "lots\n"),
            ("wmem_default", "-1"),
            ("sqsize_default", "\n"),
            ("rqsize_default", "100000"),
            ("polling_time", "18446744073709551616"),
            ("wake_up_interval", "1 2"),
            ("shm_any_uid", "yes"),
            ("preload_config", "socket_basic INET STREAM TCP\nsocket_basic INET7 STREAM TCP\nsocket_basic\n"),
        ],
    );
    fs::create_dir(bad.join("inline_default")).unwrap();
    let bad = run(Some(&bad), &[]);
    let at = |file: &str| format!("/test-config/bad/{file}");
    let files = ["mem_default", "wmem_default", "sqsize_default", "rqsize_default", "polling_time", "wake_up_interval", "inline_default"];
    let [mem, wmem, sq, rq, polling, wake, inline] = files.map(at);
    let [second, third] = ["preload_config:2", "preload_config:3"].map(at);
    let default = "the default is used";
    assert_complaints(
        &bad.errors,
        &[
            &[&mem, "`lots`", default],
            &[&wmem, "`-1`", default],
            &[&sq, "``", default],
            &[&rq, "`100000`", "65534 is used"],
            &[&polling, "`18446744073709551616`", default],
            &[&wake, "`1 2`", default],
            &[&at("shm_any_uid"), "`yes`", default],
            &[&inline, "cannot be read", default],
            &[&second, "INET7", "skipped"],
            &[&third, "`socket_basic`", "skipped"],
        ],
    );
    assert_eq!(bad.output, run(None, &[]).output);
}

#[test]
fn bad_variables_are_named_with_their_value() {
    let variables = [
        ("RS_SQ_SIZE", "abc"),
        ("RS_RQ_SIZE", ""),
        ("RS_INLINE", "99999"),
        ("RSOCKET_CONNECT_DEADLINE", "0"),
        ("RSOCKET_FABRIC", "verbs,warp"),
    ];
    let empty = folder("empty", &[]);
    let bad = run(Some(&empty), &variables);
    let plain = run(None, &[]);
    let default = "the default is used";
    assert_complaints(
        &bad.errors,
        &[
            &["RS_SQ_SIZE", "`abc`", default],
            &["RS_RQ_SIZE", "``", default],
            &["RS_INLINE", "`99999`", default],
            &["RSOCKET_CONNECT_DEADLINE", "`0`", default],
            &["RSOCKET_FABRIC", "`warp`", "ignored"],
        ],
    );
    assert_eq!(bad.output, plain.output);
    let off = run(Some(&empty), &[&variables[..], &[("RSOCKET_LOG", "off")]].concat());
    assert_eq!(off.errors, Vec::<String>::new());
    let absent = run(Some(Path::new("/nowhere")), &[]);
    assert_complaints(&absent.errors, &[&["RSOCKET_CONFIG_DIR", "/nowhere", "the defaults are used"]]);
    assert_eq!(absent.output, plain.output);
}

#[test]
fn counters_name_each_way_that_a_program_can_take() {
    let run = run(Some(&folder("counters", &[])), &[("RSOCKET_STATS", "-"), ("RSOCKET_FABRIC", "kernel")]);
    let names: Vec<&str> = run.errors.iter().filter_map(|line| line.split_once(' ')).map(|(name, _)| name).collect();
    for what in ["connected", "accepted"] {
        for way in ["verbs", "shm", "kernel"] {
            assert!(names.contains(&format!("{what}_{way}").as_str()), "{names:?}");
        }
    }
    assert!(!names.iter().any(|name| name.ends_with("_sim")), "{names:?}");
    let policy = run.errors.iter().find_map(|line| line.strip_prefix("fallback_policy ")).expect("fallback_policy is there");
    assert!(policy.parse::<u64>().is_ok_and(|count| count > 0), "{:?}", run.errors);
}
