//! The time on processors that control groups leave to this process: a container's limit, which no mask of processors shows.

use core::ffi::CStr;

use super::small_file;

/// Where the control groups are, on every usual system.
const MOUNT: &CStr = c"/sys/fs/cgroup";

/// Version 1: links to one directory, or that directory alone.
const MOUNTS_V1: [&[u8]; 2] = [b"/cpu", b"/cpu,cpuacct"];

/// Longest name of a file that is looked at.
const LONGEST_NAME: usize = 1024;

/// So much of /proc/self/cgroup is read.
const LONGEST_LIST: usize = 2048;

/// So much of a limit is read: two numbers.
const LONGEST_LIMIT: usize = 64;

/// Time on processors in each period, both in microseconds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Quota {
    time: u64,
    period: u64,
}

impl Quota {
    fn processors(self) -> u64 {
        self.time.checked_div(self.period).unwrap_or(u64::MAX)
    }
}

/// How many whole processors the process's groups leave to it; `None` without a limit, and where no limit can be read.
pub fn processors() -> Option<u64> {
    let mut list = [0; LONGEST_LIST];
    let groups = small_file::read(c"/proc/self/cgroup", &mut list).map(groups).unwrap_or_default();
    least(MOUNT.to_bytes(), groups)
}

/// The process's groups that may have a limit, from the mounts on.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Groups<'a> {
    unified: Option<&'a [u8]>,
    /// That of version 1's controller `cpu`.
    cpu: Option<&'a [u8]>,
}

/// Takes /proc/self/cgroup: lines `hierarchy:controllers:path`; version 2's is `0::path`.
fn groups(list: &[u8]) -> Groups<'_> {
    let mut groups = Groups::default();
    for line in list.split(|byte| *byte == b'\n') {
        let mut parts = line.splitn(3, |byte| *byte == b':');
        let (Some(number), Some(controllers), Some(path)) = (parts.next(), parts.next(), parts.next()) else { continue };
        if number == b"0" && controllers.is_empty() {
            groups.unified = Some(path);
        } else if controllers.split(|byte| *byte == b',').any(|controller| controller == b"cpu") {
            groups.cpu = Some(path);
        }
    }
    groups
}

/// The least limit of the groups and of all above them. In a container the path may be one of the host's, which its mount does not have:
/// then the limit is at the top of the mount, where the walk ends.
fn least(mount: &[u8], groups: Groups<'_>) -> Option<u64> {
    let unified = groups.unified.into_iter().flat_map(upwards).filter_map(|group| unified(&[mount, group]));
    let version_1 = groups.cpu.into_iter().flat_map(upwards);
    let version_1 = version_1.flat_map(|group| MOUNTS_V1.into_iter().filter_map(move |below| version_1_quota(&[mount, below, group])));
    unified.chain(version_1).map(Quota::processors).min()
}

/// A path, and each that is above it, down to the empty one. A path that leaves the mount (`/../x`, of a process that was moved out of
/// its container) counts as the empty one.
fn upwards(path: &[u8]) -> impl Iterator<Item = &[u8]> {
    let leaves = path.split(|byte| *byte == b'/').any(|part| part == b"..");
    let path = if leaves { &[] } else { path.strip_suffix(b"/").unwrap_or(path) };
    core::iter::successors(Some(path), |path| {
        let end = path.iter().rposition(|byte| *byte == b'/')?;
        path.get(..end)
    })
}

fn unified(group: &[&[u8]]) -> Option<Quota> {
    let mut text = [0; LONGEST_LIMIT];
    quota_of(file(group, b"/cpu.max", &mut text)?)
}

fn version_1_quota(group: &[&[u8]]) -> Option<Quota> {
    let (mut time, mut period) = ([0; LONGEST_LIMIT], [0; LONGEST_LIMIT]);
    let time = small_file::number(file(group, b"/cpu.cfs_quota_us", &mut time)?)?;
    let period = small_file::number(file(group, b"/cpu.cfs_period_us", &mut period)?)?;
    Some(Quota { time, period })
}

/// Takes `cpu.max`: `150000 100000`, or `max 100000` without a limit.
fn quota_of(text: &[u8]) -> Option<Quota> {
    let mut numbers = text.trim_ascii().splitn(2, |byte| *byte == b' ');
    Some(Quota { time: small_file::number(numbers.next()?)?, period: small_file::number(numbers.next()?)? })
}

/// Reads a file of a group. `None`: there is none, or its name is too long to be looked at.
fn file<'a>(group: &[&[u8]], name: &[u8], into: &'a mut [u8]) -> Option<&'a [u8]> {
    let mut path = [0; LONGEST_NAME];
    let mut end = 0;
    for part in group.iter().copied().chain([name, b"\0"]) {
        path.get_mut(end..end + part.len())?.copy_from_slice(part);
        end += part.len();
    }
    small_file::read(CStr::from_bytes_with_nul(path.get(..end)?).ok()?, into)
}

#[cfg(test)]
mod tests {
    use std::path::PathBuf;

    use super::*;

    #[test]
    fn lists_of_groups() {
        let none = Groups::default();
        let (slice, top) = (Some(&b"/user.slice/x:y"[..]), Some(&b"/"[..]));
        assert_eq!(groups(b"0::/user.slice/x:y\n"), Groups { unified: slice, ..none });
        assert_eq!(groups(b"3:cpuset:/b\n2:cpu,cpuacct:/\n1:name=systemd:/c\n0::/user.slice/x:y\n"), Groups { unified: slice, cpu: top });
        assert_eq!(groups(b"2:cpuacct,cpu:/\n"), Groups { cpu: top, ..none });
        for other in [&b""[..], b"\n", b"0:", b"0::", b"1::/a", b"4:cpuset,cpuacct:/a\n"] {
            let found = groups(other);
            assert!(found == none || found == (Groups { unified: Some(b""), ..none }), "{found:?}");
        }
    }

    #[test]
    fn limits() {
        assert_eq!(quota_of(b"150000 100000\n"), Some(Quota { time: 150_000, period: 100_000 }));
        for none in [&b"max 100000\n"[..], b"", b"100000", b"-1 100000", b"1 2 3"] {
            assert_eq!(quota_of(none), None, "{none:?}");
        }
        let processors = |time, period| Quota { time, period }.processors();
        assert_eq!((processors(199_999, 100_000), processors(200_000, 100_000), processors(1, 0)), (1, 2, u64::MAX));
    }

    #[test]
    fn paths_end_at_the_mount() {
        let all = |path: &'static str| upwards(path.as_bytes()).map(|path| core::str::from_utf8(path).unwrap()).collect::<Vec<_>>();
        assert_eq!(all("/a/b.slice/c"), ["/a/b.slice/c", "/a/b.slice", "/a", ""]);
        assert_eq!(all("/a/"), ["/a", ""]);
        for top in ["/", "", "/../a", "/.."] {
            assert_eq!(all(top), [""], "{top}");
        }
    }

    /// A mount of its own, removed afterwards.
    struct Mount(PathBuf);

    impl Mount {
        fn new(name: &str) -> Self {
            Mount(std::env::temp_dir().join(format!("rsocket-cgroup-{name}-{}", std::process::id())))
        }

        fn put(&self, file: &str, content: &str) {
            let path = self.0.join(file);
            std::fs::create_dir_all(path.parent().unwrap()).unwrap();
            std::fs::write(path, content).unwrap();
        }

        fn least(&self, list: &str) -> Option<u64> {
            least(self.0.to_str().unwrap().as_bytes(), groups(list.as_bytes()))
        }
    }

    impl Drop for Mount {
        fn drop(&mut self) {
            let _ = std::fs::remove_dir_all(&self.0);
        }
    }

    #[test]
    fn the_least_limit_of_a_group_and_those_above_counts() {
        let mount = Mount::new("unified");
        mount.put("a/b/cpu.max", "max 100000\n");
        assert_eq!(mount.least("0::/a/b\n"), None);
        mount.put("a/cpu.max", "350000 100000\n");
        assert_eq!(mount.least("0::/a/b\n"), Some(3));
        mount.put("a/b/cpu.max", "50000 50000\n");
        assert_eq!(mount.least("0::/a/b\n"), Some(1));
        assert_eq!(mount.least("0::/a\n"), Some(3));
        assert_eq!(mount.least("0::/\n"), None);
        // In a container: its own group is the top of what it sees, whatever the path is.
        mount.put("cpu.max", "250000 100000\n");
        for path in ["/", "/docker/0123", "/../x"] {
            assert_eq!(mount.least(&format!("0::{path}\n")), Some(2), "{path}");
        }
        let long = format!("0::/{}/b\n", "x".repeat(1500));
        assert_eq!(mount.least(&long), Some(2));
        assert_eq!(mount.least(""), None);
    }

    #[test]
    fn version_1() {
        for below in ["cpu", "cpu,cpuacct"] {
            let mount = Mount::new(&format!("v1-{}", below.len()));
            let list = "4:cpu,cpuacct:/a/b\n0::/\n";
            mount.put(&format!("{below}/a/b/cpu.cfs_period_us"), "100000\n");
            mount.put(&format!("{below}/a/b/cpu.cfs_quota_us"), "-1\n");
            assert_eq!(mount.least(list), None);
            mount.put(&format!("{below}/a/cpu.cfs_period_us"), "50000\n");
            mount.put(&format!("{below}/a/cpu.cfs_quota_us"), "75000\n");
            assert_eq!(mount.least(list), Some(1));
        }
    }

    #[test]
    fn this_process_is_found() {
        let text = std::fs::read("/proc/self/cgroup").unwrap();
        let groups = groups(&text);
        assert!(groups.unified.is_some() || groups.cpu.is_some(), "{}", String::from_utf8_lossy(&text));
        assert_eq!(processors(), least(b"/sys/fs/cgroup", groups));
    }
}
