use super::*;

/// A directory of its own for a test, removed afterwards.
pub(super) struct Dir(PathBuf);

impl Dir {
    pub(super) fn new(name: &str) -> Self {
        let dir = std::env::temp_dir().join(format!("rsocket-config-{name}-{}", std::process::id()));
        let _ = std::fs::remove_dir_all(&dir);
        std::fs::create_dir_all(&dir).unwrap();
        Dir(dir)
    }

    pub(super) fn path(&self) -> &Path {
        &self.0
    }

    pub(super) fn put(&self, name: &str, content: impl AsRef<[u8]>) {
        std::fs::write(self.0.join(name), content).unwrap();
    }

    fn load(&self, env: &[(&str, &str)]) -> (Defaults, Vec<String>) {
        let mut warnings = Vec::new();
        let lookup = |name: &str| env.iter().find(|(key, _)| *key == name).map(|(_, value)| OsString::from(value));
        let defaults = Defaults::load(&self.0, &lookup, &mut |text| warnings.push(text));
        (defaults, warnings)
    }
}

impl Drop for Dir {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

#[test]
fn missing_files_are_the_defaults() {
    let (defaults, warnings) = Dir::new("missing").load(&[]);
    assert_eq!(defaults, Defaults::default());
    assert_eq!(warnings, Vec::<String>::new());
}

#[test]
fn reads_every_file_and_variable() {
    let dir = Dir::new("all");
    for (name, value) in [
        ("mem_default", "65537\n"),
        ("wmem_default", " 4096 \n"),
        ("sqsize_default", "100"),
        ("rqsize_default", "200"),
        ("inline_default", "0"),
        ("iomap_size", "300"),
        ("polling_time", "25\n"),
        ("wake_up_interval", "5000\n"),
        ("shm_any_uid", "1\n"),
    ] {
        dir.put(name, value);
    }
    let expected = Defaults {
        receive_bytes: 65536,
        send_bytes: 4096,
        send_queue: 100,
        receive_queue: 200,
        inline: 0,
        iomap_entries: 512,
        polling_time: Duration::from_micros(25),
        wake_up_interval: Some(Duration::from_secs(5)),
        shm_any_uid: true,
        ..Defaults::default()
    };
    assert_eq!(dir.load(&[]), (expected, vec![]));
    let env = [
        ("RS_SQ_SIZE", "17"),
        ("RS_RQ_SIZE", "65534"),
        ("RS_INLINE", "32"),
        ("RSOCKET_CONNECT_DEADLINE", "50"),
        ("RSOCKET_FABRIC", "kernel"),
        ("RSOCKET_DGRAM", "1"),
    ];
    let expected = Defaults {
        send_queue: 17,
        receive_queue: 65534,
        inline: 32,
        connect_deadline: Duration::from_millis(50),
        fabrics: FabricChoice::None,
        datagrams: true,
        ..expected
    };
    assert_eq!(dir.load(&env), (expected, vec![]));
}

#[test]
fn bad_content_warns_and_keeps_the_default() {
    let huge = "1".repeat(100);
    let bad: [&[u8]; 11] =
        [b"", b"\n", b"-1", b"12x", b"1 2", b"0x40", b"99999999999999999999999999", b"4294967296", b"10", b"\xff\x00\xfe", huge.as_bytes()];
    for content in bad {
        let dir = Dir::new("bad");
        dir.put("mem_default", content);
        let (defaults, warnings) = dir.load(&[]);
        assert_eq!(defaults, Defaults::default());
        assert_eq!(warnings.len(), 1, "{content:?}: {warnings:?}");
        assert!(warnings[0].contains("mem_default"), "{warnings:?}");
        assert!(warnings[0].chars().all(|c| !c.is_control()), "{warnings:?}");
    }
    let dir = Dir::new("bad-value");
    dir.put("polling_time", "lots");
    assert!(dir.load(&[]).1[0].contains("lots"));
}

#[test]
fn what_cannot_be_read_warns() {
    let dir = Dir::new("directory");
    std::fs::create_dir(dir.0.join("wmem_default")).unwrap();
    let (defaults, warnings) = dir.load(&[]);
    assert_eq!(defaults, Defaults::default());
    assert!(warnings.len() == 1 && warnings[0].contains("wmem_default"), "{warnings:?}");

    let file = Dir::new("not-a-directory");
    file.put("file", "");
    let mut warnings = 0;
    assert_eq!(Defaults::load(&file.0.join("file"), &|_| None, &mut |_| warnings += 1), Defaults::default());
    assert_eq!(warnings, 11);
}

#[test]
fn queue_sizes_are_clamped_with_a_warning() {
    let dir = Dir::new("clamp");
    dir.put("sqsize_default", "1");
    dir.put("rqsize_default", "99999999999999999999999");
    let (defaults, warnings) = dir.load(&[]);
    assert_eq!((defaults.send_queue, defaults.receive_queue), (16, 65534));
    assert_eq!(warnings.len(), 2);
    let (defaults, warnings) = dir.load(&[("RS_SQ_SIZE", "65535"), ("RS_RQ_SIZE", "-3"), ("RS_INLINE", "")]);
    assert_eq!((defaults.send_queue, defaults.receive_queue, defaults.inline), (65534, 65534, 64));
    assert_eq!(warnings.len(), 5);
    assert!(warnings.iter().any(|text| text.contains("RS_SQ_SIZE") && text.contains("65535")), "{warnings:?}");
}

#[test]
fn fabric_list() {
    use FabricChoice::{None, Shm, ShmThenVerbs, Verbs, VerbsThenShm};
    let dir = Dir::new("fabric");
    for (list, choice, complaints) in [
        ("shm,verbs,kernel", ShmThenVerbs, 0),
        ("verbs,shm", VerbsThenShm, 0),
        ("verbs shm,verbs kernel", VerbsThenShm, 0),
        ("shm", Shm, 0),
        ("shm,kernel,shm", Shm, 0),
        ("verbs", Verbs, 0),
        ("verbs,kernel", Verbs, 0),
        ("kernel verbs", Verbs, 0),
        ("kernel", None, 0),
        (" kernel, ", None, 0),
        ("", ShmThenVerbs, 0),
        (" ,", ShmThenVerbs, 0),
        ("vebrs", ShmThenVerbs, 1),
        ("SHM,vebrs", ShmThenVerbs, 2),
        ("vebrs,kernel", None, 1),
        ("kernel,vebrs", None, 1),
        ("vebrs,shm", Shm, 1),
    ] {
        let (defaults, warnings) = dir.load(&[("RSOCKET_FABRIC", list)]);
        assert_eq!((defaults.fabrics, warnings.len()), (choice, complaints), "{list}: {warnings:?}");
    }
    assert_eq!(Defaults::default().fabrics, ShmThenVerbs);
}

#[test]
fn fabric_choice_says_what_is_tried() {
    use FabricChoice::{None, Shm, ShmThenVerbs, Verbs, VerbsThenShm};
    let answers = |choice: FabricChoice| (choice.any(), choice.shm(), choice.verbs(), choice.verbs_first());
    assert_eq!(answers(None), (false, false, false, false));
    assert_eq!(answers(Shm), (true, true, false, false));
    assert_eq!(answers(Verbs), (true, false, true, false));
    assert_eq!(answers(ShmThenVerbs), (true, true, true, false));
    assert_eq!(answers(VerbsThenShm), (true, true, true, true));
}

#[test]
fn other_users_are_let_in_by_a_one_alone() {
    let dir = Dir::new("any-uid");
    for (content, any, complaints) in [("1\n", true, 0), ("0\n", false, 0), ("2", false, 1), ("yes", false, 1), ("", false, 1)] {
        dir.put("shm_any_uid", content);
        let (defaults, warnings) = dir.load(&[]);
        assert_eq!((defaults.shm_any_uid, warnings.len()), (any, complaints), "{content}: {warnings:?}");
    }
}

fn policy(text: &str) -> (PreloadConfig, Vec<String>) {
    let mut warnings = Vec::new();
    let config = PreloadConfig::parse(text.as_bytes(), "preload_config", &mut |text| warnings.push(text));
    (config, warnings)
}

#[test]
fn policy_without_lines_allows_everything() {
    for text in ["", "# nothing\n\n   \n"] {
        assert!(policy(text).0.allows("x", libc::AF_INET, libc::SOCK_STREAM, 0), "{text}");
    }
    let dir = Dir::new("policy");
    assert_eq!(PreloadConfig::load(&dir.0, &mut |text| panic!("{text}")), PreloadConfig::default());
}

#[test]
fn policy_of_wrong_lines_alone_allows_nothing() {
    let (config, warnings) = policy("nonsense\n");
    assert!(!config.allows("x", libc::AF_INET, libc::SOCK_STREAM, 0));
    assert_eq!(warnings.len(), 2);
    assert!(warnings[1].contains("no socket is taken over"), "{warnings:?}");
}

#[test]
fn policy_matches_program_domain_type_protocol() {
    let (config, warnings) =
        policy("# comment\niperf INET STREAM TCP # more\nmemcached-with-a-long-name * sock_stream *\nk* af_inet6 * IPPROTO_UDP\n");
    assert_eq!(warnings, Vec::<String>::new());
    let (inet, inet6, stream, dgram) = (libc::AF_INET, libc::AF_INET6, libc::SOCK_STREAM, libc::SOCK_DGRAM);
    assert!(config.allows("iperf3", inet, stream, 0));
    assert!(config.allows("iperf", inet, stream | libc::SOCK_NONBLOCK | libc::SOCK_CLOEXEC, libc::IPPROTO_TCP));
    assert!(!config.allows("iperf", inet6, stream, 0));
    assert!(!config.allows("iperf", inet, dgram, 0));
    assert!(!config.allows("iper", inet, stream, 0));
    assert!(config.allows("memcached-with-", inet6, stream, 0));
    assert!(!config.allows("memcached-with", inet6, stream, 0));
    assert!(config.allows("kdc", inet6, dgram, 0));
    assert!(!config.allows("kdc", inet6, stream, 0));
}

#[test]
fn policy_skips_bad_lines_with_their_number() {
    let (config, warnings) =
        policy("a INET STREAM TCP\n\na INET STREAM\na X STREAM TCP\na INET RAW TCP\na INET STREAM SCTP\na * * * *\n* IB * *\n");
    let numbers: Vec<&str> = warnings.iter().filter_map(|text| text.split(':').nth(1)).collect();
    assert_eq!(numbers, ["3", "4", "5", "6", "7"]);
    assert!(config.allows("other", 27, libc::SOCK_STREAM, 0));
    assert!(!config.allows("other", libc::AF_INET, libc::SOCK_STREAM, 0));
}

#[test]
fn a_program_that_hands_connections_on_has_to_be_named() {
    let (inet, stream) = (libc::AF_INET, libc::SOCK_STREAM);
    for program in ["sshd", "sshd-session", "sshd-auth"] {
        assert!(!PreloadConfig::default().allows(program, inet, stream, 0), "{program}");
        assert!(!policy("* * * *\nssh * * *").0.allows(program, inet, stream, 0), "{program}");
        assert!(policy(&format!("{program} INET STREAM TCP")).0.allows(program, inet, stream, 0), "{program}");
    }
    assert!(PreloadConfig::default().allows("ssh", inet, stream, 0));
    assert!(!policy("sshd INET STREAM TCP").0.allows("ssh", inet, stream, 0));
}

#[test]
fn datagrams_are_asked_for_by_name() {
    let asks = |text: &str| policy(text).0.asks_for_datagrams("app", libc::AF_INET);
    for text in ["* * DGRAM *", "* * * UDP", "app INET SOCK_DGRAM IPPROTO_UDP", "* * * *\nap INET DGRAM *"] {
        assert!(asks(text), "{text}");
    }
    for text in ["", "* * * *", "app INET * *", "other INET DGRAM UDP", "* INET6 DGRAM *", "* * DGRAM TCP", "* * STREAM UDP"] {
        assert!(!asks(text), "{text}");
    }
}

#[test]
fn program_is_known() {
    assert!(!program().is_empty());
}
