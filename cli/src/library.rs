//! Where librspreload.so is.

use std::{
    env,
    ffi::OsString,
    fs, io,
    os::unix::ffi::OsStrExt,
    path::{Path, PathBuf},
};

use crate::run::reason;

const NAME: &str = "librspreload.so";

/// Other packages have a library of this name: ours says so.
const MARK: &[u8] = b"librspreload.so of the rsocket package";

/// Where the README and distributions put it.
const SYSTEM: [&str; 6] = [
    "/usr/local/lib/rsocket",
    #[cfg(target_arch = "x86_64")]
    "/usr/lib/x86_64-linux-gnu/rsocket",
    #[cfg(target_arch = "aarch64")]
    "/usr/lib/aarch64-linux-gnu/rsocket",
    "/usr/lib64/rsocket",
    "/usr/lib/rsocket",
    "/usr/local/lib64/rsocket",
    "/opt/rsocket/lib",
];

/// Why there is none to use.
#[derive(Debug)]
pub(crate) enum Missing {
    /// RSOCKET_PRELOAD names something that cannot be read.
    Named(PathBuf, io::Error),
    /// RSOCKET_PRELOAD names another library.
    Foreign(PathBuf),
    /// Looked for in vain.
    Nowhere(Vec<PathBuf>),
    /// LD_PRELOAD takes no such path.
    Unusable(PathBuf),
}

impl std::fmt::Display for Missing {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Missing::Named(path, error) => write!(f, "RSOCKET_PRELOAD={}: {}", path.display(), reason(error)),
            Missing::Foreign(path) => write!(f, "RSOCKET_PRELOAD={}: not this package's {NAME}", path.display()),
            Missing::Nowhere(places) => {
                write!(f, "{NAME} not found; name it in RSOCKET_PRELOAD. Looked at:")?;
                places.iter().try_for_each(|place| write!(f, "\n  {}", place.display()))
            }
            Missing::Unusable(path) => {
                write!(f, "{}: a path in LD_PRELOAD cannot have a space or a colon", path.display())
            }
        }
    }
}

/// The library's absolute path.
pub(crate) fn find() -> Result<PathBuf, Missing> {
    let path = match env::var_os("RSOCKET_PRELOAD").filter(|named| !named.is_empty()) {
        Some(named) => named_library(named)?,
        None => first_of(places(env::current_exe().ok().as_deref()))?,
    };
    usable(path)
}

fn named_library(named: OsString) -> Result<PathBuf, Missing> {
    let named = PathBuf::from(named);
    // The program may be started in another directory.
    match named.canonicalize().and_then(|path| Ok((is_ours(&path)?, path))) {
        Ok((true, path)) => Ok(path),
        Ok((false, _)) => Err(Missing::Foreign(named)),
        Err(error) => Err(Missing::Named(named, error)),
    }
}

/// Candidates, best first.
fn places(command: Option<&Path>) -> Vec<PathBuf> {
    let beside = command.and_then(Path::parent).map(Path::to_path_buf);
    let installed = beside.as_deref().and_then(Path::parent).map(|prefix| prefix.join("lib/rsocket"));
    let system = SYSTEM.iter().map(PathBuf::from);
    beside.into_iter().chain(installed).chain(system).map(|directory| directory.join(NAME)).collect()
}

fn first_of(places: Vec<PathBuf>) -> Result<PathBuf, Missing> {
    let found = places.iter().find(|place| is_ours(place).unwrap_or(false));
    found.cloned().ok_or(Missing::Nowhere(places))
}

fn is_ours(path: &Path) -> io::Result<bool> {
    let content = fs::read(path)?;
    Ok(content.windows(MARK.len()).any(|part| part == MARK))
}

fn usable(path: PathBuf) -> Result<PathBuf, Missing> {
    match path.as_os_str().as_bytes().iter().any(|byte| byte.is_ascii_whitespace() || *byte == b':') {
        true => Err(Missing::Unusable(path)),
        false => Ok(path),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn directory(name: &str) -> PathBuf {
        let path = env::temp_dir().join(format!("rsocket-cli-{}-{name}", std::process::id()));
        fs::create_dir_all(&path).unwrap();
        path
    }

    #[test]
    fn beside_the_command_comes_first() {
        let places = places(Some(Path::new("/opt/x/bin/rsocket")));
        assert_eq!(places[..2], [PathBuf::from("/opt/x/bin/librspreload.so"), PathBuf::from("/opt/x/lib/rsocket/librspreload.so")]);
        assert!(places.iter().any(|place| place.starts_with("/usr/lib")));
    }

    #[test]
    fn another_packages_library_is_passed_by() {
        let (theirs, ours) = (directory("theirs").join(NAME), directory("ours").join(NAME));
        fs::write(&theirs, b"\x7fELF something").unwrap();
        fs::write(&ours, [b"\x7fELF ".as_slice(), MARK, b"\0"].concat()).unwrap();
        assert_eq!(first_of(vec!["/nowhere/x".into(), theirs.clone(), ours.clone()]).unwrap(), ours);
        assert!(matches!(named_library(theirs.clone().into()), Err(Missing::Foreign(_))));
        assert!(matches!(named_library("/nowhere/x".into()), Err(Missing::Named(..))));
        let message = first_of(vec![theirs.clone()]).unwrap_err().to_string();
        assert_eq!(message, format!("{NAME} not found; name it in RSOCKET_PRELOAD. Looked at:\n  {}", theirs.display()));
        for path in [theirs, ours] {
            fs::remove_dir_all(path.parent().unwrap()).unwrap();
        }
    }

    #[test]
    fn ld_preload_takes_no_space() {
        assert!(matches!(usable("/a b/x.so".into()), Err(Missing::Unusable(_))));
        assert!(matches!(usable("/a:b/x.so".into()), Err(Missing::Unusable(_))));
        assert_eq!(usable("/a/x.so".into()).unwrap(), PathBuf::from("/a/x.so"));
    }
}
