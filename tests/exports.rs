//! What the finished libraries export and need: `nm` and `readelf` of the release build.

use std::{
    collections::BTreeSet,
    env,
    ffi::OsString,
    fs,
    path::{Path, PathBuf},
    process::Command,
};

const LIBRARIES: [&str; 2] = ["librspreload", "librsocket"];

/// The library in the release directory of this target directory.
fn artefact(library: &str) -> PathBuf {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let target = env::var_os("CARGO_TARGET_DIR").unwrap_or_else(|| OsString::from("target"));
    let path = root.join(target).join("release").join(format!("{library}.so"));
    assert!(path.exists(), "{} is missing: cargo build --release first", path.display());
    path
}

fn output(program: &str, arguments: &[&str], file: &Path) -> String {
    let output = Command::new(program)
        .args(arguments)
        .arg(file)
        .output()
        .unwrap_or_else(|error| panic!("{program} (package binutils) does not start: {error}"));
    assert!(output.status.success(), "{program}: {}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).unwrap()
}

#[test]
fn exactly_the_listed_symbols_without_a_version() {
    for library in LIBRARIES {
        let listing = output("nm", &["-D", "--defined-only"], &artefact(library));
        let mut symbols: Vec<&str> = listing.lines().filter_map(|line| line.split_whitespace().nth(2)).collect();
        symbols.sort_unstable();
        let list = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/exports").join(format!("{library}.txt"));
        let committed = fs::read_to_string(&list).unwrap();
        let committed: Vec<&str> = committed.lines().collect();
        let new: Vec<_> = symbols.iter().filter(|symbol| !committed.contains(symbol)).collect();
        let gone: Vec<_> = committed.iter().filter(|symbol| !symbols.contains(symbol)).collect();
        assert!(new.is_empty() && gone.is_empty(), "{} does not say what {library}.so exports: new {new:?}, gone {gone:?}", list.display());
    }
}

#[test]
fn the_preload_library_carries_the_c_api() {
    let listed = |library| fs::read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).join(format!("tests/exports/{library}.txt"))).unwrap();
    let preload = listed("librspreload");
    let preload: Vec<&str> = preload.lines().collect();
    for symbol in listed("librsocket").lines() {
        assert!(preload.contains(&symbol), "librspreload.so does not export {symbol}");
    }
}

fn listed(name: &str) -> String {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/exports").join(name);
    fs::read_to_string(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

/// The functions of libc that have no hook, for a reason which stands above them.
fn unhooked() -> BTreeSet<String> {
    let text = listed("libc.txt");
    let blocks = text.split("\n\n").skip(1);
    let lines = blocks.flat_map(|block| {
        let (reason, names) = block.split_once('\n').expect("a reason, and names below it");
        assert!(reason.starts_with("# "), "no reason: {reason}");
        names.split_whitespace()
    });
    lines.map(str::to_owned).collect()
}

fn hooked() -> BTreeSet<String> {
    listed("librspreload.txt").lines().map(str::to_owned).collect()
}

/// Headers that declare functions which take descriptors.
const HEADERS: &str = "unistd.h fcntl.h stdio.h stdlib.h poll.h dirent.h aio.h termios.h pty.h sys/socket.h sys/uio.h sys/sendfile.h \
    sys/epoll.h sys/select.h sys/stat.h sys/statfs.h sys/statvfs.h sys/ioctl.h sys/file.h sys/mman.h sys/eventfd.h sys/timerfd.h \
    sys/signalfd.h sys/inotify.h sys/fanotify.h sys/time.h sys/xattr.h sys/vfs.h";

/// The names of the C library's functions that have a descriptor among their arguments, as its headers call these.
fn takes_descriptor() -> BTreeSet<String> {
    let includes: String = HEADERS.split_whitespace().map(|header| format!("#include <{header}>\n")).collect();
    let source = Path::new(env!("CARGO_TARGET_TMPDIR")).join("headers.c");
    fs::write(&source, format!("#define _GNU_SOURCE\n{includes}")).unwrap();
    let text = output("gcc", &["-E", "-P"], &source);
    let is_number = |name: &str| name.starts_with("__") && (name.contains("fd") || name.contains("fildes") || name.contains("filedes"));
    let mut found = BTreeSet::new();
    for declaration in text.split(';').filter_map(|part| part.split_once("extern ").map(|(_, declaration)| declaration)) {
        let Some((head, arguments)) = declaration.split_once('(') else { continue };
        let arguments = arguments.split(')').next().unwrap_or_default();
        let number = arguments.split(',').any(|argument| {
            let words: Vec<&str> = argument.split_whitespace().collect();
            matches!(words[..], ["int", name] if is_number(name))
        });
        if number && let Some(name) = head.split(|c: char| !c.is_alphanumeric() && c != '_').rfind(|word| !word.is_empty()) {
            found.insert(name.to_owned());
        }
    }
    found
}

#[test]
fn each_function_that_takes_a_descriptor_is_hooked_or_has_a_reason() {
    let (hooked, unhooked) = (hooked(), unhooked());
    let both: Vec<_> = hooked.intersection(&unhooked).collect();
    assert!(both.is_empty(), "libc.txt says why these have no hook, and they have: {both:?}");
    let declared = takes_descriptor();
    assert!(declared.len() > 100 && declared.contains("recvmsg") && declared.contains("splice"), "the headers were not read: {declared:?}");
    let missing: Vec<_> = declared.iter().filter(|name| !hooked.contains(*name) && !unhooked.contains(*name)).collect();
    assert!(missing.is_empty(), "neither hooked nor in tests/exports/libc.txt: {missing:?}");
}

/// A name without what its variants have more: __pread64_chk is a pread.
fn plain(name: &str) -> &str {
    let mut name = name.trim_start_matches('_');
    while let Some(shorter) = ["_chk", "_2", "64", "v2"].iter().find_map(|end| name.strip_suffix(end)) {
        name = shorter;
    }
    name
}

/// Real programs, of which some are everywhere.
const PROGRAMS: &str =
    "bash perl python3 ssh sshd curl wget git socat nc.openbsd iperf iperf3 redis-server nginx haproxy memcached node gdb";

#[test]
fn what_programs_import_is_hooked_or_has_a_reason() {
    let (hooked, unhooked) = (hooked(), unhooked());
    let known: BTreeSet<&str> = hooked.iter().chain(&unhooked).map(|name| plain(name)).collect();
    let place = |program: &str| ["/usr/bin", "/usr/sbin"].iter().map(|folder| Path::new(folder).join(program)).find(|path| path.exists());
    let programs: Vec<PathBuf> = PROGRAMS.split_whitespace().filter_map(place).collect();
    assert!(programs.len() >= 3, "of {PROGRAMS} there are only {programs:?}");
    for program in programs {
        let imports = output("nm", &["-D", "--undefined-only"], &program);
        let names = imports.lines().filter_map(|line| line.split_whitespace().last()?.split('@').next());
        let missing: Vec<&str> =
            names.filter(|name| known.contains(plain(name))).filter(|name| !hooked.contains(*name) && !unhooked.contains(*name)).collect();
        assert!(missing.is_empty(), "{} calls what is neither hooked nor in tests/exports/libc.txt: {missing:?}", program.display());
    }
}

#[test]
fn rdma_libraries_are_not_loaded_with_them() {
    for library in LIBRARIES {
        let dynamic = output("readelf", &["-d", "-W"], &artefact(library));
        let needed: Vec<&str> = dynamic.lines().filter(|line| line.contains("(NEEDED)")).collect();
        assert!(!needed.is_empty(), "readelf shows nothing needed by {library}.so: {dynamic}");
        for line in needed {
            assert!(
                ["libc.so", "libgcc_s.so", "ld-linux"].iter().any(|known| line.contains(known)),
                "{library}.so needs more than libc: {line}"
            );
        }
    }
}

#[test]
fn the_preload_library_stays_and_is_bound_at_once() {
    let dynamic = output("readelf", &["-d", "-W"], &artefact("librspreload"));
    let flags = dynamic.lines().find(|line| line.contains("(FLAGS_1)")).unwrap_or_default();
    assert!(flags.contains("NODELETE") && flags.contains("NOW"), "{flags}");
}

/// Programs that were linked look for librsocket.so, wherever it was built. A number comes with the first released interface.
#[test]
fn the_linked_library_has_its_name_and_stays() {
    let dynamic = output("readelf", &["-d", "-W"], &artefact("librsocket"));
    assert!(dynamic.contains("soname: [librsocket.so]") && dynamic.contains("NODELETE"), "{dynamic}");
}

/// A program that is preloaded runs as it does without.
#[test]
fn a_preloaded_program_runs_as_without() {
    let script = "echo a; x=$(echo b | cat); echo $x; exec 5</dev/null; read y <&5; echo $?; (exit 3); echo $?";
    let plain = Command::new("bash").args(["-c", script]).output().unwrap();
    let preloaded = Command::new("bash").args(["-c", script]).env("LD_PRELOAD", artefact("librspreload")).output().unwrap();
    assert_eq!(String::from_utf8_lossy(&preloaded.stdout), "a\nb\n1\n3\n");
    assert_eq!((preloaded.status, preloaded.stdout, preloaded.stderr), (plain.status, plain.stdout, plain.stderr));
}
