//! Programs that are linked with the library.

use std::path::PathBuf;
use std::process::Command;

use super::native::Scratch;
use super::programs::{artefact, repository, target_dir};

/// The examples of the crate, as `cargo test` has built them.
pub fn example(name: &str) -> String {
    // With what the tests were built with, so that nothing is built again.
    let built = Command::new(env!("CARGO")).args(["build", "--locked", "--workspace", "--examples"]).output().unwrap();
    assert!(built.status.success(), "{}", String::from_utf8_lossy(&built.stderr));
    target_dir().join("debug/examples").join(name).display().to_string()
}

/// What is installed below a folder, and a C program built with what pkg-config says of it.
#[track_caller]
pub fn installed(scratch: &Scratch, program: &str) -> PathBuf {
    let prefix = scratch.path("prefix");
    for name in ["librsocket.so", "librspreload.so", "rsocket"] {
        artefact(name);
    }
    let install = Command::new(repository().join("scripts/install")).arg("--prefix").arg(&prefix).output().unwrap();
    assert!(install.status.success(), "{}", String::from_utf8_lossy(&install.stderr));
    let words = Command::new("pkg-config")
        .env("PKG_CONFIG_PATH", prefix.join("lib/pkgconfig"))
        .args(["--cflags", "--libs", "rsocket"])
        .output()
        .unwrap_or_else(|error| panic!("pkg-config does not start: {error}"));
    let words = String::from_utf8(words.stdout).unwrap();
    assert!(words.contains("-lrsocket"), "{words}");
    let to = scratch.path(program);
    let source = repository().join("tests/programs").join(format!("{program}.c"));
    let built = Command::new("gcc")
        .args(["-pthread", "-O2", "-o"])
        .args([&to, &source])
        .args(words.split_whitespace())
        .arg(format!("-Wl,-rpath,{}", prefix.join("lib").display()))
        .output()
        .unwrap();
    assert!(built.status.success(), "{}", String::from_utf8_lossy(&built.stderr));
    to
}
