# Guest functions of the interoperation matrix (tests/interop.rs puts them before each step).
# OURS: our librspreload.so. SHIPPED: the distribution's. SERVER, CLIENT: which of the two (ours, shipped) an end uses.
# ON_SERVER, ON_CLIENT: the hosts' command prefix (B and A with two namespaces, else empty). AT: the server's address.

# preload WHICH KIND: what to set for a program that calls the r* functions itself (linked) or plain sockets (sockets)
preload() {
  case $1.$2 in
    ours.*) echo "LD_PRELOAD=$OURS";; shipped.sockets) echo "LD_PRELOAD=$SHIPPED";; shipped.linked) ;;
    *) echo "no library $1" >&2; return 2;; esac
}
# server KIND COMMAND..., client KIND COMMAND... (exec: so that a background server's number is the program's)
server() { exec $ON_SERVER env $(preload "$SERVER" "$1") "${@:2}"; }
client() { $ON_CLIENT env $(preload "$CLIENT" "$1") "${@:2}"; }
both_ok() { # both_ok CLIENT_STATUS SERVER_PID: the statuses of both ends, for the reader and for the step
  wait "$2"; local served=$?
  [ "$1" = 0 ] && [ $served = 0 ] || { echo "exit status: client $1, server $served"; return 1; }
}

# run_rstream ARGUMENT...: the same arguments at both ends
run_rstream() {
  counters
  server linked rstream -b "$AT" "$@" & local pid=$!
  rwait 7471 || return 1
  client linked rstream -s "$AT" "$@"
  both_ok $? $pid && counters
}

# run_async ARGUMENT...: rstream takes POLLHUP for an error, and the shipped library reports it together with the last data when
# the server has closed already: with that client a second and third try are allowed
run_async() {
  run_rstream -T a "$@" || { [ "$CLIENT" = shipped ] && { run_rstream -T a "$@" || run_rstream -T a "$@"; }; }
}

# run_rcopy MIB: a file, and its checksum at the other end
run_rcopy() {
  counters
  head -c 1M /dev/urandom > /run/block
  for i in $(seq "$1"); do echo "block $i"; cat /run/block; done > /run/source
  server linked rcopy & local pid=$! copied=1
  for try in 1 2 3 4 5; do   # it listens on any address: nothing shows when it does
    sleep 1
    client linked rcopy /run/source "$AT:/run/copy" && { copied=0; break; }
  done
  kill $pid; echo; counters   # the server leaves its line open
  [ $copied = 0 ] && cmp /run/source /run/copy && echo "copies are equal"
}

# run_iperf ARGUMENT...: iperf 2 on plain sockets
run_iperf() {
  counters
  server sockets iperf -s -B "$AT" -P 1 & local pid=$!
  rwait 5001 || return 1
  client sockets iperf -c "$AT" "$@"; local status=$?
  kill $pid 2>/dev/null; counters
  return $status
}
