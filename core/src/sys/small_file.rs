//! Small files of /proc and /sys, read without hooks, without memory of the heap and without waiting: a wait of a signal handler reads them too.

use core::ffi::CStr;

use rustix::fs::{Mode, OFlags};

/// The first bytes of a file, as many as fit. `None`: there is no such file, or it cannot be read.
pub fn read<'a>(path: &CStr, into: &'a mut [u8]) -> Option<&'a [u8]> {
    let file = rustix::fs::open(path, OFlags::RDONLY | OFlags::CLOEXEC | OFlags::NONBLOCK | OFlags::NOCTTY, Mode::empty()).ok()?;
    let mut filled = 0;
    while let Some(rest) = into.get_mut(filled..).filter(|rest| !rest.is_empty()) {
        match rustix::io::read(&file, rest) {
            Ok(0) => break,
            Ok(count) => filled += count,
            Err(rustix::io::Errno::INTR) => {}
            Err(_) => return None,
        }
    }
    into.get(..filled)
}

/// A whole number, with nothing but blanks around it.
pub fn number(text: &[u8]) -> Option<u64> {
    core::str::from_utf8(text).ok()?.trim_ascii().parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reads_as_much_as_fits() {
        let path = std::env::temp_dir().join(format!("rsocket-small-{}", std::process::id()));
        std::fs::write(&path, "4096\n").unwrap();
        let name = std::ffi::CString::new(path.to_str().unwrap()).unwrap();
        assert_eq!(read(&name, &mut [0; 16]), Some(&b"4096\n"[..]));
        assert_eq!(read(&name, &mut [0; 3]), Some(&b"409"[..]));
        std::fs::write(&path, "").unwrap();
        assert_eq!(read(&name, &mut [0; 16]), Some(&b""[..]));
        std::fs::remove_file(path).unwrap();
        assert_eq!(read(&name, &mut [0; 16]), None);
        assert_eq!(read(c"/proc", &mut [0; 16]), None);
    }

    #[test]
    fn numbers() {
        assert_eq!(number(b" 4096\n"), Some(4096));
        for bad in [&b""[..], b"-1", b"max", b"1 2", b"\xff"] {
            assert_eq!(number(bad), None, "{bad:?}");
        }
    }
}
