use std::process::Command;

use super::*;

/// Runs the ignored test `name` of this binary as a program of its own with these variables.
fn stderr(name: &str, env: &[(&str, &str)]) -> String {
    let mut command = Command::new(std::env::current_exe().unwrap());
    command.args(["--exact", "--ignored", "--nocapture", &format!("log::tests::{name}")]).env_remove("RSOCKET_LOG");
    String::from_utf8(command.envs(env.iter().copied()).output().unwrap().stderr).unwrap()
}

#[test]
fn lines_are_cut() {
    let mut line = Line::new();
    line.text(format_args!("{}", "x".repeat(2000)));
    assert_eq!(line.finish().len(), line::LONGEST);
    assert!(line.finish().ends_with(b"x...\n"));
    let mut line = Line::new();
    line.text(format_args!("{}", "x".repeat(line::LONGEST - 1)));
    assert!(line.finish().ends_with(b"xx\n"));
}

#[test]
fn keys_are_seen_once() {
    assert!(first_time("log::tests one"));
    assert!(first_time("log::tests two"));
    assert!(!first_time("log::tests one"));
}

#[test]
#[ignore = "a program for the tests below"]
fn program_logs() {
    log_error!("one {}", 1);
    log_warn!("two");
    log_info!("three");
    log_debug!("four");
    log_trace!("five");
    warn_once("a", "first");
    warn_once("a", "again");
    warn_once("b", format_args!("second {}", 2));
}

#[test]
fn off_unless_asked_but_warnings_come_once() {
    let text = stderr("program_logs", &[]);
    assert_eq!(text, "rsocket: warning: first\nrsocket: warning: second 2\n");
}

#[test]
fn off_silences_warnings() {
    assert_eq!(stderr("program_logs", &[("RSOCKET_LOG", "off")]), "");
}

#[test]
fn levels() {
    let text = stderr("program_logs", &[("RSOCKET_LOG", "info")]);
    assert_eq!(text.lines().count(), 5, "{text}");
    assert!(text.contains(" error rsocket::log::tests: one 1\n"), "{text}");
    assert!(text.contains(" info rsocket::log::tests: three\n"), "{text}");
    assert!(stderr("program_logs", &[("RSOCKET_LOG", "Trace")]).contains("five"));
    let text = stderr("program_logs", &[("RSOCKET_LOG", "loud")]);
    assert!(text.starts_with("rsocket: warning: RSOCKET_LOG:") && text.contains("two") && !text.contains("three"), "{text}");
}

#[test]
fn file_with_the_process_id() {
    let dir = std::env::temp_dir().join(format!("rsocket-log-{}", std::process::id()));
    std::fs::create_dir_all(&dir).unwrap();
    let path = dir.join("log.%p");
    let text = stderr("program_logs", &[("RSOCKET_LOG", "trace"), ("RSOCKET_LOG_FILE", path.to_str().unwrap())]);
    assert_eq!(text.lines().count(), 2, "{text}");
    let files: Vec<_> = std::fs::read_dir(&dir).unwrap().map(|entry| entry.unwrap().path()).collect();
    assert_eq!(files.len(), 1);
    assert!(files[0].to_str().unwrap().rsplit('.').next().unwrap().parse::<u32>().is_ok());
    assert_eq!(std::fs::read_to_string(&files[0]).unwrap().lines().count(), 7);
    std::fs::remove_dir_all(&dir).unwrap();
}
