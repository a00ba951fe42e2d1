//! OpenSSH: the server closes all descriptors that it does not know, runs itself anew for each connection, and hands it to a process with
//! fewer rights until the client is known.

use std::time::Duration;

use rustix::process::Signal;

use crate::by_form;
use crate::servers::{data, read, stop};
use crate::stage::{Mode, Stage};
use crate::support::{Program, free_port, is_root};

/// A server with keys of its own, for the user who runs the test.
struct Daemon {
    port: u16,
    /// What every client is told.
    options: String,
    server: crate::support::Running,
}

#[track_caller]
fn start<'a>(stage: &'a Stage, adapt: impl FnOnce(Program<'a>) -> Program<'a>) -> Daemon {
    if is_root() {
        // sshd wants an empty folder there
        let _ = std::fs::create_dir("/run/sshd");
    }
    let (port, folder) = (free_port(), stage.scratch.path("").display().to_string());
    for key in ["host", "user"] {
        stage.run(&format!("keygen {key} {port}"), &format!("ssh-keygen -q -t ed25519 -N '' -f {folder}{key}.{port}"));
    }
    let text = format!(
        "Port {port}\nListenAddress 127.0.0.1\nHostKey {folder}host.{port}\nPidFile none\nAuthorizedKeysFile {folder}user.{port}.pub\n\
         StrictModes no\nUsePAM no\nPasswordAuthentication no\nPermitRootLogin yes\nSubsystem sftp /usr/lib/openssh/sftp-server\n"
    );
    let file = stage.write(&format!("sshd_config.{port}"), text);
    let server = adapt(stage.program(&format!("sshd {port}"), &format!("/usr/sbin/sshd -D -e -f {}", file.display()))).start();
    server.wait_until_listening(port);
    let options = format!(
        "-F none -i {folder}user.{port} -o BatchMode=yes -o StrictHostKeyChecking=no -o UserKnownHostsFile={folder}known -o LogLevel=ERROR"
    );
    Daemon { port, options, server }
}

/// sshd forks with a connection that it has used, to a process with fewer rights and back: it has to leave its connections to TCP, which
/// `RSOCKET_FABRIC=kernel` says. Clients have the setting.
#[test]
fn ssh() {
    let stage = Stage::new().forking();
    let Daemon { port, options, server } = start(&stage, |sshd| sshd.env("RSOCKET_FABRIC", "kernel"));
    let source = data(&stage, "source", by_form(64, 256));
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
    stop(&stage, server, Signal::TERM, &[0, 255]);
    if stage.mode == Mode::Default {
        for client in &clients {
            client.was_over_the_kernel();
        }
    }
}
