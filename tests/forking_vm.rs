//! Programs that fork, over soft-RoCE in a VM: a forking server and its client with every setting of ours and of the shipped library, and
//! without any; and servers with processes of their own. What arrives is compared byte by byte; the device's packets say which way it went.
//! Some of them over soft-iWARP. `RSOCKET_FORKING=long`: scp of more data.

mod support;

use std::time::Duration;

use support::{Counters, Outcome, Rdma, Vm, VmSession, artefact, assert_over_rdma, build_c_program};

const SHIPPED: &str = "/usr/lib/x86_64-linux-gnu/rsocket/librspreload.so";

const FUNCTIONS: &str = r#"
ours="env LD_PRELOAD=$LIB"
kernel="env"; ours_off="$ours"; ours_on="$ours RDMAV_FORK_SAFE=1"; own_on="$ours RSOCKET_DEFER=1"
shipped_off="env LD_PRELOAD=$SHIPPED"; shipped_on="$shipped_off RDMAV_FORK_SAFE=1"
# pair SERVER CLIENT PORT SPEAKS SILENCE: one connection of forking_pair's
pair() {
  local server=${!1} client=${!2}
  counters
  $server "$PAIR" $HOST_A server $3 $4 > /run/server 2>&1 & local pid=$!
  rwait $3 && $client "$PAIR" $HOST_A client $3 $4 $5; local status=$?
  sleep 0.2; kill $pid 2>/dev/null; wait $pid
  counters
  [ $status = 0 ] || cat /run/server
  return $status
}
# served PORT "SERVER" "CLIENT"
served() {
  counters
  setsid $ours_on $2 > /run/server 2>&1 & local pid=$!
  rwait $1 60 && $ours_on bash -c "exec $3"; local status=$?
  sleep 0.3; kill -${STOP:-TERM} $pid; wait $pid
  counters
  [ $status = 0 ] || tail -n 30 /run/server
  return $status
}
"#;

/// Which way the bytes of a pair go.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Way {
    Rdma,
    Tcp,
    /// There is no connection: the server listens over RDMA alone, and the client begins on TCP.
    Refused,
}

/// Server, client, whether the server speaks first, and for how long the client is silent.
type Pair = (&'static str, &'static str, bool, u32, Way);

/// Those with one of ours at least. What cannot go well because of the shipped library: its server with the setting writes four zero bytes to
/// each of its clients, and its client with it waits for ever for a server that has nothing to say.
const PAIRS: &[Pair] = &[
    ("ours_on", "ours_on", false, 0, Way::Rdma),
    ("ours_on", "ours_on", true, 0, Way::Rdma),
    ("own_on", "own_on", false, 0, Way::Rdma),
    ("own_on", "ours_on", true, 0, Way::Rdma),
    ("ours_on", "shipped_on", false, 0, Way::Rdma),
    ("ours_on", "shipped_on", true, 0, Way::Rdma),
    ("shipped_on", "ours_on", false, 0, Way::Rdma),
    ("shipped_on", "ours_on", true, 0, Way::Rdma),
    ("ours_on", "kernel", false, 0, Way::Tcp),
    ("ours_on", "kernel", false, 2500, Way::Tcp),
    ("ours_on", "kernel", true, 2500, Way::Tcp),
    ("own_on", "kernel", false, 2500, Way::Tcp),
    ("own_on", "kernel", true, 0, Way::Tcp),
    ("ours_on", "ours_off", false, 2500, Way::Tcp),
    ("ours_on", "ours_off", true, 0, Way::Tcp),
    ("ours_on", "shipped_off", false, 0, Way::Tcp),
    ("ours_on", "shipped_off", true, 2500, Way::Tcp),
    ("kernel", "ours_on", false, 0, Way::Tcp),
    ("kernel", "own_on", true, 0, Way::Tcp),
    ("ours_off", "ours_on", false, 0, Way::Tcp),
    ("ours_off", "kernel", true, 0, Way::Tcp),
    ("shipped_off", "ours_on", true, 0, Way::Refused),
    ("kernel", "ours_off", false, 0, Way::Tcp),
];

/// What the client of `forking_pair` sends and gets back.
const PAIR_BYTES: u64 = 600_000;

fn is_long() -> bool {
    std::env::var("RSOCKET_FORKING").is_ok_and(|form| form == "long")
}

fn vm() -> Vm {
    Vm::new().cpus(2).memory(1024).env("LIB", artefact("librspreload.so"))
}

#[test]
fn whatever_the_other_end_has_nothing_but_the_programs_bytes_arrives() {
    let vm = vm().env("SHIPPED", SHIPPED).env("PAIR", build_c_program("forking_pair")).env("RSOCKET_CONNECT_DEADLINE", "2000");
    let mut session = VmSession::new(vm).prelude(FUNCTIONS);
    let name = |(server, client, first, silence, _): &Pair| format!("{server}-{client}.{}.{silence}", u8::from(*first));
    for (at, pair) in PAIRS.iter().enumerate() {
        let (server, client, first, silence, _) = pair;
        let call = format!("pair {server} {client} {} {} {silence}", 5100 + at, u8::from(*first));
        session = session.step_within(&name(pair), Duration::from_secs(50), &call);
    }
    let outcome = session.run();
    for pair in PAIRS {
        let step = outcome.step(&name(pair));
        if pair.4 == Way::Refused {
            assert!(step.status == 1 && step.output.contains("FAILED connect: ECONNREFUSED"), "{pair:?}: {}", step.output);
            continue;
        }
        let output = step.ok();
        assert!(output.lines().any(|line| line == "right"), "{pair:?}: {output}");
        let (before, after) = Counters::first_and_last(output);
        let moved = after - before;
        println!("{pair:?}: {moved:?}");
        if pair.4 == Way::Rdma {
            assert_over_rdma(before, after, PAIR_BYTES);
        } else {
            assert!(moved.rxe_sent < 200, "{pair:?}: {moved:?}");
        }
    }
}

const NGINX: &str = r#"
cat > /run/nginx.conf <<END
user root; daemon off; worker_processes 2; error_log /run/nginx.log; pid /run/nginx.pid;
events { worker_connections 64; }
http { access_log off; client_body_temp_path /run/t1; proxy_temp_path /run/t2; fastcgi_temp_path /run/t3; uwsgi_temp_path /run/t4;
scgi_temp_path /run/t5; server { listen $HOST_A:8080; root /run/web; } }
END
"#;

/// Servers with a process for each client, or with workers. /run/web has a block of 100 000 bytes.
const CONFIGURATIONS: &str = r#"
mkdir -p /run/web /run/apache; head -c 100000 /dev/urandom > /run/web/block; chmod -R a+rX /run/web
cat > /run/apache.conf <<END
ServerRoot /run/apache
PidFile /run/apache/pid
ErrorLog /run/apache/log
LoadModule mpm_prefork_module /usr/lib/apache2/modules/mod_mpm_prefork.so
LoadModule authz_core_module /usr/lib/apache2/modules/mod_authz_core.so
ServerName localhost
Listen $HOST_A:8081
DocumentRoot /run/web
StartServers 2
<Directory />
 Require all granted
</Directory>
END
mkdir -p /run/application
cat > /run/application/application.py <<END
BLOCK = open('/run/web/block', 'rb').read()
def answer(environ, start_response):
    start_response('200 OK', [('Content-Length', str(len(BLOCK)))])
    return [BLOCK]
END
cat > /run/reload.sh <<'END'
ab -q -n $RELOADED -c 2 http://$HOST_A:8080/block > /run/reloaded & load=$!
for reload in $(seq $RELOADS); do sleep 0.4; kill -HUP $(cat /run/nginx.pid); done
wait $load && grep -E "^(Complete|Failed) requests" /run/reloaded && grep -qE "^Failed requests: *0$" /run/reloaded
END
head -c 1000000 /dev/urandom > /run/source
cat > /run/echo.sh <<'END'
socat -t 30 - TCP:$HOST_A:$1 < /run/source > /run/copy && cmp /run/source /run/copy
END
mkdir -p /run/sshd
cat > /run/sshd.conf <<END
HostKey /run/host
AuthorizedKeysFile /run/user.pub
StrictModes no
UsePAM no
PermitRootLogin yes
Subsystem sftp /usr/lib/openssh/sftp-server
END
cat > /run/sshd.sh <<'END'
#!/bin/sh
exec /usr/sbin/sshd -i -e -f /run/sshd.conf
END
cat > /run/scp.sh <<'END'
for key in host user; do ssh-keygen -q -t ed25519 -N '' -f /run/$key; done
head -c $SCP_BYTES /dev/urandom > /run/file
scp -q -P $1 -F none -i /run/user -o BatchMode=yes -o StrictHostKeyChecking=no -o UserKnownHostsFile=/run/known /run/file $HOST_A:/run/there &&
cmp /run/file /run/there
END
chmod +x /run/sshd.sh
as_postgres="setpriv --reuid=postgres --regid=postgres --clear-groups"
postgres=$(ls -d /usr/lib/postgresql/*/bin | tail -n 1)
"#;

/// TCP has each connection for its beginning and its end.
const TCP_A_CONNECTION: i64 = 12;
/// What an RDMA packet carries.
const PACKET: u64 = 4096;

#[track_caller]
fn over_rdma(outcome: &Outcome, step: &str, bytes: u64, connections: i64) {
    let (before, after) = Counters::first_and_last(outcome.step(step).ok());
    let moved = after - before;
    println!("{step}: {moved:?}");
    assert!(moved.rxe_sent.cast_unsigned() >= bytes / PACKET, "{step}: {bytes} bytes did not go over RDMA: {moved:?}");
    assert!(moved.tcp_out <= connections * TCP_A_CONNECTION + 40, "{step}: kernel TCP carried data as well: {moved:?}");
}

#[test]
fn servers_with_processes_of_their_own() {
    let ab = |port: u16, how: &str| format!("ab -q {how} http://$HOST_A:{port}/block");
    let scp_bytes: u64 = if is_long() { 256 << 20 } else { 2 << 20 };
    let (reloads, reloaded) = if is_long() { (20, 400_u64) } else { (3, 40) };
    let rows = [
        ("nginx", 8080, "nginx -c /run/nginx.conf".to_owned(), ab(8080, "-n 8 -c 2"), 8 * 100_000, 8),
        ("nginx-keep", 8080, "nginx -c /run/nginx.conf".to_owned(), ab(8080, "-k -n 20 -c 2"), 20 * 100_000, 2),
        (
            "nginx-reload",
            8080,
            "nginx -c /run/nginx.conf".to_owned(),
            "bash /run/reload.sh".to_owned(),
            reloaded * 100_000,
            reloaded.cast_signed(),
        ),
        (
            "gunicorn",
            8082,
            "/usr/bin/python3 -m gunicorn -w 4 -b $HOST_A:8082 --chdir /run/application application:answer".to_owned(),
            ab(8082, "-n 8 -c 2"),
            8 * 100_000,
            8,
        ),
        ("apache", 8081, "/usr/sbin/apache2 -D FOREGROUND -f /run/apache.conf".to_owned(), ab(8081, "-n 8 -c 2"), 8 * 100_000, 8),
        (
            "socat",
            5000,
            "socat TCP-LISTEN:5000,bind=$HOST_A,fork,reuseaddr PIPE".to_owned(),
            "bash /run/echo.sh 5000".to_owned(),
            2 * 1_000_000,
            1,
        ),
        (
            "socat-exec",
            5001,
            "socat TCP-LISTEN:5001,bind=$HOST_A,fork,reuseaddr EXEC:cat,nofork".to_owned(),
            "bash /run/echo.sh 5001".to_owned(),
            2 * 1_000_000,
            1,
        ),
        // sshd has the connection from socat, through a pair of sockets.
        (
            "ssh",
            5022,
            "socat TCP-LISTEN:5022,bind=$HOST_A,fork,reuseaddr EXEC:/run/sshd.sh".to_owned(),
            "bash /run/scp.sh 5022".to_owned(),
            scp_bytes,
            1,
        ),
    ];
    let vm = vm().memory(2048).env("RSOCKET_CONNECT_DEADLINE", "20000").env("SCP_BYTES", scp_bytes.to_string());
    let vm = vm.env("RELOADS", reloads.to_string()).env("RELOADED", reloaded.to_string());
    let mut session = VmSession::new(vm).prelude(&format!("{FUNCTIONS}{NGINX}{CONFIGURATIONS}"));
    for (name, port, server, client, ..) in &rows {
        session = session.step_within(
            name,
            Duration::from_secs(if is_long() { 900 } else { 240 }),
            &format!("served {port} \"{server}\" \"{client}\""),
        );
    }
    let sql = "select sum(length(repeat('x', 1000) || generate_series)) from generate_series(1, 2000)";
    let postgres = "rm -rf /run/data; mkdir /run/data; chown postgres /run/data; $as_postgres $postgres/initdb -D /run/data -A trust > /run/initdb || exit 1; echo 'host all all 0.0.0.0/0 trust' >> /run/data/pg_hba.conf
         STOP=INT served 5432 \"$as_postgres $postgres/postgres -D /run/data -k /run/data -c listen_addresses=$HOST_A -c max_connections=20\" \
         \"bash /run/sql.sh\"";
    let script = format!(
        "cat > /run/sql.sh <<'END'
psql -h $HOST_A -U postgres -c \"{sql}\" postgres && psql -h $HOST_A -U postgres -Atc \"select repeat('y', 1000000)\" postgres | wc -c
END
{postgres}"
    );
    session = session.step_within("postgres", Duration::from_secs(180), &script);
    let outcome = session.run();
    for (name, _, _, _, bytes, connections) in &rows {
        over_rdma(&outcome, name, *bytes, *connections);
    }
    assert!(outcome.step("postgres").ok().contains("1000001"), "{}", outcome.step("postgres").output);
    over_rdma(&outcome, "postgres", 1_000_000, 6);
}

/// Soft-iWARP listens by TCP sockets of the kernel's own: the client's port is lent to one of these.
#[test]
fn over_soft_iwarp() {
    // `counted STEP…`: and what the processes have counted.
    const COUNTED: &str = r#"
counted() { rm -f /run/stats.*; RSOCKET_STATS=/run/stats.%p "$@" || return; cat /run/stats.* | awk '/^bytes_sent_verbs|^connected_kernel|^accepted_kernel/ { sum[$1] += $2 } END { for (name in sum) print name, sum[name] }'; }
"#;
    let vm = vm().rdma(Rdma::Siw).env("PAIR", build_c_program("forking_pair")).env("RSOCKET_CONNECT_DEADLINE", "20000");
    let limit = Duration::from_secs(60);
    let outcome = VmSession::new(vm)
        .prelude(&format!(
            "{FUNCTIONS}{COUNTED}mkdir -p /run/web; head -c 100000 /dev/urandom > /run/web/block; chmod -R a+rX /run/web\n{NGINX}"
        ))
        .step_within("client-first", limit, "counted pair ours_on ours_on 5100 0 0")
        .step_within("server-first", limit, "counted pair own_on own_on 5101 1 0")
        .step_within("nginx", limit, "counted served 8080 'nginx -c /run/nginx.conf' 'ab -q -n 4 -c 2 http://$HOST_A:8080/block'")
        .run();
    for (step, bytes) in [("client-first", PAIR_BYTES), ("server-first", PAIR_BYTES), ("nginx", 4 * 100_000)] {
        let output = outcome.step(step).ok();
        let (before, after) = Counters::first_and_last(output);
        println!("{step}: {:?}", after - before);
        assert_over_rdma(before, after, bytes);
        let counted = |name: &str| output.lines().find_map(|line| line.strip_prefix(name)?.trim().parse::<u64>().ok()).unwrap_or(u64::MAX);
        assert!(counted("bytes_sent_verbs ") >= bytes, "{step}: {output}");
        assert_eq!((counted("connected_kernel "), counted("accepted_kernel ")), (0, 0), "{step}: {output}");
    }
}
