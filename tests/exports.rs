//! What the finished libraries export and need: `nm` and `readelf` of the release build.

use std::{
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
