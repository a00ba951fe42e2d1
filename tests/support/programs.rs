//! The C test programs of `tests/programs` and the artefacts of the workspace.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::SystemTime;

/// The root of the repository.
pub fn repository() -> PathBuf {
    let mut folder = PathBuf::from(env!("CARGO_MANIFEST_DIR"));
    while !folder.join("scripts/vm/run").exists() {
        assert!(folder.pop(), "no scripts/vm/run above {}", env!("CARGO_MANIFEST_DIR"));
    }
    folder
}

/// Cargo's target folder.
pub fn target_dir() -> PathBuf {
    match std::env::var_os("CARGO_TARGET_DIR") {
        Some(folder) => repository().join(folder),
        None => repository().join("target"),
    }
}

fn modified(path: &Path) -> Option<SystemTime> {
    fs::metadata(path).and_then(|m| m.modified()).ok()
}

/// A file `cargo build --release` makes, such as `librspreload.so`. Fails when it is missing, or older than a source
/// it was made from.
#[track_caller]
pub fn artefact(name: &str) -> PathBuf {
    const COMMAND: &str = "run `cargo build --release` first";
    let path = target_dir().join("release").join(name);
    let Some(built) = modified(&path) else { panic!("{} is not built: {COMMAND}", path.display()) };
    // cargo's list of what went into it: "target: source source ..."
    let list = fs::read_to_string(path.with_extension("d")).unwrap_or_default();
    let sources = list.split_once(": ").map_or("", |(_, sources)| sources);
    for source in sources.split_whitespace().map(Path::new) {
        let newer = modified(source).is_some_and(|changed| changed > built);
        assert!(!newer, "{} is older than {}: {COMMAND}", path.display(), source.display());
    }
    path
}

/// Compiles `tests/programs/NAME.c` into `target/test-programs/NAME` unless that is up to date, and returns its path. Libraries to link
/// stand in the source, in a line `// libs: -lrdmacm -libverbs`, and what else gcc is to be told in a line `// flags: -D_FORTIFY_SOURCE=2`;
/// a line `// needs: NAME` names another one that is to stand beside it. Tests may call it at the same time.
#[track_caller]
pub fn build_c_program(name: &str) -> PathBuf {
    static SERIAL: AtomicUsize = AtomicUsize::new(0);

    let sources = repository().join("tests/programs");
    let source = sources.join(format!("{name}.c"));
    let text = fs::read_to_string(&source).unwrap_or_else(|e| panic!("{}: {e}", source.display()));
    let folder = target_dir().join("test-programs");
    fs::create_dir_all(&folder).unwrap_or_else(|e| panic!("{}: {e}", folder.display()));
    let program = folder.join(name);

    let line = |of: &str| text.lines().find_map(|line| line.trim().strip_prefix(of)).unwrap_or_default().split_whitespace();
    for needed in line("// needs:") {
        build_c_program(needed);
    }
    let headers = fs::read_dir(&sources).into_iter().flatten().flatten().map(|entry| entry.path());
    let headers = headers.filter(|path| path.extension().is_some_and(|e| e == "h"));
    let newest = headers.chain([source.clone()]).filter_map(|path| modified(&path)).max();
    if modified(&program) > newest {
        return program;
    }

    let serial = SERIAL.fetch_add(1, Ordering::Relaxed);
    let unfinished = folder.join(format!("{name}.{}.{serial}", std::process::id()));
    let gcc = Command::new("gcc")
        .args(["-O2", "-g", "-Wall", "-Wextra", "-pthread"])
        .args(line("// flags:"))
        .arg("-o")
        .args([&unfinished, &source])
        .args(line("// libs:"))
        .output()
        .unwrap_or_else(|e| panic!("gcc does not start ({e}): run scripts/setup"));
    assert!(gcc.status.success(), "gcc refuses {}:\n{}", source.display(), String::from_utf8_lossy(&gcc.stderr));
    fs::rename(&unfinished, &program).unwrap_or_else(|e| panic!("{}: {e}", program.display()));
    program
}
