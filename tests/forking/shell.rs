//! OpenSSH: the server closes all descriptors that it does not know, runs itself anew for each connection, and hands it to a process with
//! fewer rights until the client is known.

use std::io::Read as _;
use std::net::TcpStream;
use std::os::unix::fs::PermissionsExt as _;
use std::time::Duration;

use rustix::process::Signal;

use crate::servers::{data, read, stop};
use crate::stage::{Mode, Stage};
use crate::support::{Ended, free_port, is_root};
use crate::{assert_children_served, assert_moved, by_form};

/// Keys and a configuration, for the user who runs the test.
struct Keys {
    /// What every client is told.
    options: String,
    configuration: String,
}

#[track_caller]
fn keys(stage: &Stage, port: u16) -> Keys {
    if is_root() {
        // sshd wants an empty folder there
        let _ = std::fs::create_dir("/run/sshd");
    }
    let folder = stage.scratch.path("").display().to_string();
    for key in ["host", "user"] {
        stage.run(&format!("keygen {key} {port}"), &format!("ssh-keygen -q -t ed25519 -N '' -f {folder}{key}.{port}"));
    }
    let text = format!(
        "Port {port}\nListenAddress 127.0.0.1\nHostKey {folder}host.{port}\nPidFile none\nAuthorizedKeysFile {folder}user.{port}.pub\n\
         StrictModes no\nUsePAM no\nPasswordAuthentication no\nPermitRootLogin yes\nSubsystem sftp /usr/lib/openssh/sftp-server\n"
    );
    let configuration = stage.write(&format!("sshd_config.{port}"), text).display().to_string();
    let options = format!(
        "-F none -i {folder}user.{port} -o BatchMode=yes -o StrictHostKeyChecking=no -o UserKnownHostsFile={folder}known -o LogLevel=ERROR"
    );
    Keys { options, configuration }
}

/// A file there and back by scp, through `cat`, and an exit status. Gives the clients.
#[track_caller]
fn copies(stage: &Stage, port: u16, options: &str, mib: u32) -> Vec<Ended> {
    let source = data(stage, "source", mib);
    let copies = ["there", "back"].map(|name| stage.scratch.path(name));
    let scp = |name: &str, from: &str, to: &str| stage.run(name, &format!("scp -q -P {port} {options} {from} {to}"));
    let at = |path: &std::path::Path| path.display().to_string();
    let mut clients = vec![
        scp("scp there", &at(&source), &format!("127.0.0.1:{}", at(&copies[0]))),
        scp("scp back", &format!("127.0.0.1:{}", at(&copies[0])), &at(&copies[1])),
    ];
    assert!(read(&copies[1]) == read(&source), "another file came back");
    let cat = stage.program("ssh", &format!("ssh -p {port} {options} 127.0.0.1 cat")).input(&source).output(&copies[1]);
    let ended = cat.run(Duration::from_secs(60));
    ended.ok();
    assert!(read(&copies[1]) == read(&source), "another file came back");
    clients.push(ended);
    let status = stage.program("exit status", &format!("ssh -p {port} {options} 127.0.0.1 exit 7")).run(Duration::from_secs(20));
    assert_eq!(status.code(), Some(7), "{}", status.report());
    clients.push(status);
    clients
}

/// sshd hands a connection that it has used to a process with fewer rights, and that to a third one: the library leaves it to TCP by itself. A
/// client that says nothing gets nothing but what sshd says.
#[test]
fn ssh() {
    let stage = Stage::new().forking();
    let port = free_port();
    let Keys { options, configuration } = keys(&stage, port);
    let server = stage.serve("sshd", &format!("/usr/sbin/sshd -D -e -f {configuration}"), port);
    let mut silent = TcpStream::connect(("127.0.0.1", port)).expect("a connection");
    let clients = copies(&stage, port, &options, by_form(16, 256));
    let mut word = [0; 8];
    silent.set_read_timeout(Some(Duration::from_secs(10))).expect("a time-out");
    silent.read_exact(&mut word).expect("sshd's first word");
    assert_eq!(&word, b"SSH-2.0-");
    drop(silent);
    let server = stop(&stage, server, Signal::TERM, &[0, 255]);
    if stage.mode == Mode::Default {
        for client in &clients {
            client.was_over_the_kernel();
        }
        server.assert_no_fabric();
        assert!(server.counters.get("fallback_policy") > 0, "{}", server.report());
    }
}

/// socat has the connection, and sshd a pair of pipes or sockets from it: so the whole session goes over the fabric.
#[test]
fn ssh_behind_socat() {
    let stage = Stage::new().forking();
    let (port, mib) = (free_port(), by_form(16, 256));
    let Keys { options, configuration } = keys(&stage, port);
    let script = stage.write("sshd.sh", format!("#!/bin/sh\nexec /usr/sbin/sshd -i -e -f {configuration}\n"));
    std::fs::set_permissions(&script, std::fs::Permissions::from_mode(0o755)).expect("a script");
    let line = format!("socat TCP-LISTEN:{port},bind=127.0.0.1,fork,reuseaddr EXEC:{}", script.display());
    let server = stage.serve("socat", &line, port);
    let clients = copies(&stage, port, &options, mib);
    let server = stop(&stage, server, Signal::TERM, &[143]);
    assert_moved(&stage, &clients.iter().collect::<Vec<_>>());
    assert_children_served(&stage, &server, 4, (u64::from(mib) * 4) << 20);
}
