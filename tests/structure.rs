//! The rules of the tree: who may import whom, where `unsafe` may stand, how long files and functions are.
//!
//! It reads sources only: a word here is one that the compiler would see, outside comments, strings and `#[cfg(test)]` items.
//! An exception is a line in one of the lists below, with its reason.

use std::{
    collections::BTreeSet,
    fs,
    path::{Path, PathBuf},
};

/// Modules of `core`, lowest first; those of one line are equals. A module imports only from lower lines, and what [`EQUALS`] says.
const LAYERS: &[&[&str]] = &[
    &["error", "config", "log", "stats", "sys"],
    &["wire"],
    &["work"],
    &["protocol", "fabric"],
    &["service"],
    &["socket"],
    &["poll"],
    &["fd"],
    &["calls"],
    &["capi"],
    &["net"],
];

/// Equals that may import one another. The protocol and the fabrics are not among them: only `socket` knows both.
const EQUALS: &[&str] = &["error", "config", "log", "stats", "sys"];

/// What of `core` the hooks use: the boundary, whether a call is the kernel's, and what answers that before any state is touched.
const FOR_HOOKS: &[&str] = &["capi", "calls", "error", "sys"];

/// Where `unsafe` may stand.
const UNSAFE: &[(&str, &str)] = &[
    ("core/src/fabric/verbs/", "calls librdmacm and libibverbs"),
    ("core/src/fabric/region.rs", "memory that a device or another process writes"),
    ("core/src/fabric/shm/memory.rs", "windows of a mapping"),
    ("core/src/capi/", "the program's pointers become slices"),
    ("core/src/net/socket.rs", "numbers that the program takes the blame for (FromRawFd)"),
    ("core/src/sys/", "system calls that rustix has no safe name for; the slab of the descriptor table"),
    ("core/examples/verbs_pingpong.rs", "shows the libraries without the fabric"),
    ("preload/src/real.rs", "calls libc's own functions"),
    ("preload/src/guard.rs", "errno is a pointer of libc's"),
    ("preload/src/hooks/", "exported C functions"),
    ("preload/src/lib.rs", "a constructor's link section"),
    ("tests/linking.rs", "a number that is given away and taken back"),
];

/// Modules that the compiler keeps free of `unsafe`.
const FORBID_UNSAFE: &[&str] = &["wire", "protocol", "poll", "fd", "calls"];

/// Files may have so many lines, ...
const FILE_LINES: usize = 600;
/// ... these may have more, up to the number given.
const LONG_FILES: &[(&str, usize, &str)] = &[];

/// Functions may have so many lines, ...
const FUNCTION_LINES: usize = 65;
/// ... and these up to [`LONGEST_FUNCTION`].
const LONG_FUNCTIONS: &[(&str, &str, &str)] = &[];
/// No function may have more.
const LONGEST_FUNCTION: usize = 80;

struct Source {
    /// From the repository's root.
    path: String,
    /// As it is.
    text: String,
    /// Without comments, strings and test items; lines stay where they are.
    code: String,
}

impl Source {
    fn is_test(&self) -> bool {
        let inner = self.path.split('/').any(|part| part == "tests" || part == "tests.rs" || part == "benches");
        inner || self.path.contains("/fabric/contract")
    }

    fn words(&self) -> impl Iterator<Item = &str> {
        self.code.split(|c: char| !is_word(c)).filter(|word| !word.is_empty())
    }
}

fn is_word(c: char) -> bool {
    c.is_alphanumeric() || c == '_'
}

fn root() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR"))
}

fn files(below: &Path, extension: &str, found: &mut Vec<PathBuf>) {
    let Ok(entries) = fs::read_dir(below) else { return };
    for entry in entries.map(Result::unwrap) {
        let path = entry.path();
        if entry.file_type().unwrap().is_dir() {
            if !matches!(entry.file_name().to_str(), Some("target" | ".git")) {
                files(&path, extension, found);
            }
        } else if path.extension().is_some_and(|of| of == extension) {
            found.push(path);
        }
    }
}

fn sources() -> Vec<Source> {
    let root = root();
    let mut found = vec![root.join("build.rs")];
    for part in ["core", "preload", "cli", "tests"] {
        files(&root.join(part), "rs", &mut found);
    }
    let source = |path: PathBuf| {
        let text = fs::read_to_string(&path).unwrap();
        let code = without_tests(&plain(&text));
        Source { path: path.strip_prefix(&root).unwrap().to_str().unwrap().to_owned(), text, code }
    };
    let sources: Vec<Source> = found.into_iter().map(source).collect();
    assert!(sources.len() > 50, "the tree was not found");
    sources
}

/// Comments and the insides of strings and characters become blanks; lines stay.
fn plain(text: &str) -> String {
    let mut code = String::with_capacity(text.len());
    let mut rest = text;
    while let Some(first) = rest.chars().next() {
        let len = token(rest, code.chars().next_back());
        match len {
            Some(len) => {
                code.extend(rest[..len].chars().map(|c| if c == '\n' { '\n' } else { ' ' }));
                rest = &rest[len..];
            }
            None => {
                code.push(first);
                rest = &rest[first.len_utf8()..];
            }
        }
    }
    code
}

/// The length of the comment, string or character that `rest` begins with.
fn token(rest: &str, before: Option<char>) -> Option<usize> {
    if rest.starts_with("//") {
        return Some(rest.find('\n').unwrap_or(rest.len()));
    }
    if rest.starts_with("/*") {
        return Some(rest.find("*/").map_or(rest.len(), |end| end + 2));
    }
    if rest.starts_with('"') {
        return Some(quoted(rest, '"'));
    }
    let starts_word = before.is_none_or(|c| !is_word(c));
    if starts_word && (rest.starts_with('r') || rest.starts_with("br")) {
        let hashes = rest.trim_start_matches('b').strip_prefix('r')?;
        let count = hashes.chars().take_while(|c| *c == '#').count();
        if hashes[count..].starts_with('"') {
            let end = format!("\"{}", "#".repeat(count));
            let start = rest.len() - hashes.len() + count + 1;
            return Some(rest[start..].find(&end).map_or(rest.len(), |at| start + at + end.len()));
        }
        return None;
    }
    if let Some(inside) = rest.strip_prefix('\'') {
        let mut chars = inside.chars();
        let first = chars.next()?;
        // A lifetime has no closing quote.
        if first == '\\' || chars.next() == Some('\'') {
            return Some(quoted(rest, '\''));
        }
    }
    None
}

/// The length of a quoted piece, both quotes included.
fn quoted(rest: &str, quote: char) -> usize {
    let mut escaped = false;
    for (at, c) in rest.char_indices().skip(1) {
        match c {
            _ if escaped => escaped = false,
            '\\' => escaped = true,
            c if c == quote => return at + 1,
            _ => {}
        }
    }
    rest.len()
}

/// `#[cfg(test)]` items become blanks.
fn without_tests(code: &str) -> String {
    const MARK: &str = "#[cfg(test)]";
    let mut out = String::with_capacity(code.len());
    let mut rest = code;
    while let Some(at) = rest.find(MARK) {
        out.push_str(&rest[..at]);
        let len = item(&rest[at..]);
        out.extend(rest[at..at + len].chars().map(|c| if c == '\n' { '\n' } else { ' ' }));
        rest = &rest[at + len..];
    }
    out.push_str(rest);
    out
}

/// The length of an item: to its semicolon, or to the end of its braces.
fn item(code: &str) -> usize {
    let (mut depth, mut inner) = (0_usize, 0_usize);
    for (at, c) in code.char_indices() {
        match c {
            '(' | '[' => inner += 1,
            ')' | ']' => inner = inner.saturating_sub(1),
            '{' => depth += 1,
            '}' => {
                depth = depth.saturating_sub(1);
                if depth == 0 {
                    return at + 1;
                }
            }
            ';' if depth == 0 && inner == 0 => return at + 1,
            _ => {}
        }
    }
    code.len()
}

/// The modules that are named after the path `start`, alone or in braces.
fn imports(code: &str, start: &str) -> BTreeSet<String> {
    let mut names = BTreeSet::new();
    for (at, _) in code.match_indices(start) {
        if code[..at].chars().next_back().is_some_and(is_word) {
            continue;
        }
        let rest = &code[at + start.len()..];
        let Some(list) = rest.strip_prefix('{') else {
            names.insert(first_word(rest));
            continue;
        };
        let mut depth = 0_usize;
        let mut begins = true;
        for (at, c) in list.char_indices() {
            match c {
                '{' => depth += 1,
                '}' if depth == 0 => break,
                '}' => depth -= 1,
                ',' if depth == 0 => begins = true,
                c if begins && is_word(c) => {
                    names.insert(first_word(&list[at..]));
                    begins = false;
                }
                _ => {}
            }
        }
    }
    names
}

fn first_word(text: &str) -> String {
    text.chars().take_while(|c| is_word(*c)).collect()
}

fn layer(module: &str) -> Option<usize> {
    LAYERS.iter().position(|names| names.contains(&module))
}

/// Functions with their first line and how many lines they have.
fn functions(code: &str) -> Vec<(String, usize, usize)> {
    let mut found = Vec::new();
    for (at, _) in code.match_indices("fn ") {
        let name = first_word(&code[at + 3..]);
        if name.is_empty() || code[..at].chars().next_back().is_some_and(is_word) {
            continue;
        }
        let lines = code[at..at + item(&code[at..])].matches('\n').count() + 1;
        found.push((name, code[..at].matches('\n').count() + 1, lines));
    }
    found
}

fn assert_none(faults: &[String]) {
    assert!(faults.is_empty(), "\n{}\n", faults.join("\n"));
}

#[test]
fn a_module_imports_from_lower_ones() {
    let mut faults = Vec::new();
    for source in sources().iter().filter(|source| source.path.starts_with("core/src/") && !source.is_test()) {
        let module = first_word(&source.path["core/src/".len()..]);
        let Some(own) = layer(&module) else {
            if module != "lib" {
                faults.push(format!("{}: its module is in no layer", source.path));
            }
            continue;
        };
        for name in imports(&source.code, "crate::") {
            // The macros of `log` stand at the root.
            let name = if name.starts_with("log_") { "log" } else { &name };
            let lower = layer(name).is_some_and(|other| other < own);
            let equal = EQUALS.contains(&name) && EQUALS.contains(&module.as_str());
            if name != module && !lower && !equal {
                faults.push(format!("{}: {module} may not import {name}", source.path));
            }
        }
    }
    assert_none(&faults);
}

#[test]
fn hooks_know_nothing_below_the_calls() {
    let mut faults = Vec::new();
    for source in sources().iter().filter(|source| source.path.starts_with("preload/src/")) {
        let names = imports(&source.code, "rsocket::");
        faults.extend(names.iter().filter(|name| !FOR_HOOKS.contains(&name.as_str())).map(|name| format!("{}: {name}", source.path)));
    }
    assert_none(&faults);
}

#[test]
fn unsafe_stands_where_it_may() {
    let sources = sources();
    let mut faults = Vec::new();
    let uses: Vec<&Source> = sources.iter().filter(|source| source.words().any(|word| word == "unsafe")).collect();
    for source in &uses {
        if !UNSAFE.iter().any(|(prefix, _)| source.path.starts_with(prefix)) {
            faults.push(format!("{}: unsafe", source.path));
        }
    }
    for (prefix, _) in UNSAFE {
        if !uses.iter().any(|source| source.path.starts_with(prefix)) {
            faults.push(format!("{prefix}: needs no unsafe any more: off the list"));
        }
    }
    for module in FORBID_UNSAFE {
        let path = format!("core/src/{module}/mod.rs");
        let source = sources.iter().find(|source| source.path == path).unwrap_or_else(|| panic!("{path} is missing"));
        if !source.code.contains("#![forbid(unsafe_code)]") {
            faults.push(format!("{path}: #![forbid(unsafe_code)] is missing"));
        }
    }
    assert_none(&faults);
}

#[test]
fn files_are_short() {
    let mut faults = Vec::new();
    for source in &sources() {
        let lines = source.text.lines().count();
        let most = LONG_FILES.iter().find(|(path, ..)| *path == source.path).map_or(FILE_LINES, |(_, most, _)| *most);
        if lines > most {
            faults.push(format!("{}: {lines} lines, at most {most}", source.path));
        }
        if most > FILE_LINES && lines <= FILE_LINES {
            faults.push(format!("{}: short enough: off the list", source.path));
        }
    }
    assert_none(&faults);
}

#[test]
fn functions_are_short() {
    let mut faults = Vec::new();
    for source in sources().iter().filter(|source| !source.is_test()) {
        for (name, line, lines) in functions(&source.code) {
            let listed = LONG_FUNCTIONS.iter().any(|(path, function, _)| *path == source.path && *function == name);
            if lines > if listed { LONGEST_FUNCTION } else { FUNCTION_LINES } {
                faults.push(format!("{}:{line}: {name} has {lines} lines", source.path));
            }
        }
    }
    assert_none(&faults);
}

#[test]
fn nothing_is_left_to_do() {
    let mut faults = Vec::new();
    for source in &sources() {
        let code = plain(&source.text);
        for (at, word) in ["todo!", "unimplemented!"].iter().flat_map(|word| code.match_indices(word)) {
            faults.push(format!("{}:{}: {word}", source.path, code[..at].matches('\n').count() + 1));
        }
    }
    assert_none(&faults);
}

#[test]
fn modules_say_what_they_are() {
    let shipped = |source: &&Source| source.path.contains("/src/") && !source.is_test();
    let silent =
        sources().iter().filter(shipped).filter(|source| !source.text.starts_with("//!")).map(|s| s.path.clone()).collect::<Vec<_>>();
    assert_none(&silent);
}

#[test]
fn c_programs_say_what_they_are() {
    let mut found = Vec::new();
    files(&root().join("tests/programs"), "c", &mut found);
    assert!(found.len() > 10, "the programs were not found");
    let starts = |path: &&PathBuf| {
        let text = fs::read_to_string(path).unwrap();
        !text.starts_with("/*") && !text.starts_with("//")
    };
    assert_none(&found.iter().filter(starts).map(|path| path.display().to_string()).collect::<Vec<_>>());
}

#[test]
fn the_reader_reads() {
    let text = "use crate::{a::b, c};// crate::x\nlet s = \"crate::y \\\" \"; let q = '\"'; fn f<'a>() {\n\n}\n#[cfg(test)]\nmod t {\n  crate::z }\nlet r = r#\"crate::v\"#; crate::w(); mycrate::u";
    let code = without_tests(&plain(text));
    assert_eq!(code.lines().count(), text.lines().count());
    assert_eq!(imports(&code, "crate::").into_iter().collect::<Vec<_>>(), ["a", "c", "w"]);
    assert_eq!(functions(&code), [("f".to_owned(), 2, 3)]);
    assert_eq!(item("mod tests;\nfn f() {}"), "mod tests;".len());
    assert_eq!(item("const X: [u8; 2] = [0; 2]; fn f() {}"), "const X: [u8; 2] = [0; 2];".len());
}
