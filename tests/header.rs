//! `include/rdma/rsocket.h`: it is the generated one, C and C++ compilers take it, and its declarations are those of the
//! header that Linux distributions ship.

use std::{
    env, fs,
    path::{Path, PathBuf},
    process::Command,
};

/// Every function with its type, as the installed header declares it.
const FUNCTIONS: &[(&str, &str)] = &[
    ("rsocket", "int (*)(int, int, int)"),
    ("rbind", "int (*)(int, const struct sockaddr *, socklen_t)"),
    ("rlisten", "int (*)(int, int)"),
    ("raccept", "int (*)(int, struct sockaddr *, socklen_t *)"),
    ("rconnect", "int (*)(int, const struct sockaddr *, socklen_t)"),
    ("rshutdown", "int (*)(int, int)"),
    ("rclose", "int (*)(int)"),
    ("rrecv", "ssize_t (*)(int, void *, size_t, int)"),
    ("rrecvfrom", "ssize_t (*)(int, void *, size_t, int, struct sockaddr *, socklen_t *)"),
    ("rrecvmsg", "ssize_t (*)(int, struct msghdr *, int)"),
    ("rsend", "ssize_t (*)(int, const void *, size_t, int)"),
    ("rsendto", "ssize_t (*)(int, const void *, size_t, int, const struct sockaddr *, socklen_t)"),
    ("rsendmsg", "ssize_t (*)(int, const struct msghdr *, int)"),
    ("rread", "ssize_t (*)(int, void *, size_t)"),
    ("rreadv", "ssize_t (*)(int, const struct iovec *, int)"),
    ("rwrite", "ssize_t (*)(int, const void *, size_t)"),
    ("rwritev", "ssize_t (*)(int, const struct iovec *, int)"),
    ("rpoll", "int (*)(struct pollfd *, nfds_t, int)"),
    ("rselect", "int (*)(int, fd_set *, fd_set *, fd_set *, struct timeval *)"),
    ("rgetpeername", "int (*)(int, struct sockaddr *, socklen_t *)"),
    ("rgetsockname", "int (*)(int, struct sockaddr *, socklen_t *)"),
    ("rsetsockopt", "int (*)(int, int, int, const void *, socklen_t)"),
    ("rgetsockopt", "int (*)(int, int, int, void *, socklen_t *)"),
    ("rfcntl", "int (*)(int, int, ...)"),
    ("riomap", "off_t (*)(int, void *, size_t, int, int, off_t)"),
    ("riounmap", "int (*)(int, void *, size_t)"),
    ("riowrite", "size_t (*)(int, const void *, size_t, off_t, int)"),
];

/// These stand in newer headers than the installed one.
const NEWER_FUNCTIONS: &[(&str, &str)] = &[
    ("repoll_create", "int (*)(int)"),
    ("repoll_ctl", "int (*)(int, int, int, struct epoll_event *)"),
    ("repoll_wait", "int (*)(int, struct epoll_event *, int, int)"),
];

const CONSTANTS: &[(&str, i32)] =
    &[("SOL_RDMA", 0x10000), ("RDMA_SQSIZE", 0), ("RDMA_RQSIZE", 1), ("RDMA_INLINE", 2), ("RDMA_IOMAPSIZE", 3), ("RDMA_ROUTE", 4)];

const INSTALLED: &str = "/usr/include/rdma/rsocket.h";

fn ours() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("include/rdma/rsocket.h")
}

/// A C program that compiles only if `header` declares everything as the lists say, and these functions.
fn program(header: &Path, more: &[(&str, &str)]) -> String {
    let mut text = format!("#include \"{}\"\n", header.display());
    for (name, kind) in FUNCTIONS.iter().chain(more) {
        text += &format!("_Static_assert(__builtin_types_compatible_p(__typeof__(&{name}), {kind}), \"{name}\");\n");
    }
    for (name, value) in CONSTANTS {
        text += &format!("_Static_assert({name} == {value}, \"{name}\");\n");
    }
    text + "int main(void) { return 0; }\n"
}

/// Compiles `text` in `language`, with every warning an error.
fn compile(name: &str, language: &str, text: &str) {
    let source = Path::new(env!("CARGO_TARGET_TMPDIR")).join(name);
    fs::write(&source, text).unwrap();
    let output = Command::new("gcc")
        .args(["-x", language, "-Wall", "-Wextra", "-Wpedantic", "-Werror", "-fsyntax-only"])
        .arg(&source)
        .output()
        .unwrap_or_else(|error| panic!("gcc does not start: {error}"));
    assert!(output.status.success(), "{language}, {}:\n{}", source.display(), String::from_utf8_lossy(&output.stderr));
}

#[test]
fn is_the_generated_one() {
    let generated = fs::read_to_string(concat!(env!("OUT_DIR"), "/rsocket.h")).unwrap();
    let committed = fs::read_to_string(ours()).unwrap();
    assert!(generated == committed, "{} is not what core/src/capi gives: run RSOCKET_WRITE_HEADER=1 cargo build", ours().display());
}

#[test]
fn declares_what_it_should_in_c() {
    compile("ours.c", "c", &program(&ours(), NEWER_FUNCTIONS));
}

#[test]
fn is_taken_by_cxx() {
    let text = format!(
        "#include \"{0}\"\n#include \"{0}\"\nint main() {{ return rfcntl(rsocket(AF_INET, SOCK_STREAM, 0), 0); }}\n",
        ours().display()
    );
    compile("ours.cc", "c++", &text);
}

#[test]
fn declares_what_the_installed_one_does() {
    let installed = Path::new(INSTALLED);
    if !installed.exists() {
        eprintln!("{INSTALLED} is not installed (librdmacm-dev): not compared");
        return;
    }
    compile("installed.c", "c", &program(installed, &[]));
}

#[test]
fn is_what_the_library_exports() {
    let listed = fs::read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/exports/librsocket.txt")).unwrap();
    let mut declared: Vec<&str> = FUNCTIONS.iter().chain(NEWER_FUNCTIONS).map(|(name, _)| *name).collect();
    declared.sort_unstable();
    assert_eq!(listed.lines().collect::<Vec<_>>(), declared);
}
