# Guest functions of the interoperation matrix (tests/interop.rs puts them before each step).
# OURS: our librspreload.so. SHIPPED: the distribution's. SERVER, CLIENT: which of the two (ours, shipped) an end uses.
# ON_SERVER, ON_CLIENT: the hosts' command prefix (B and A with two namespaces, else empty). AT: the server's address.

# under WHICH COMMAND...: a program that calls the r* functions itself: shipped is what it is linked with
under() { case $1 in ours) env LD_PRELOAD="$OURS" "${@:2}";; shipped) "${@:2}";; *) echo "no library $1"; return 2;; esac; }
# preloaded WHICH COMMAND...: a program of plain sockets
preloaded() { case $1 in ours) env LD_PRELOAD="$OURS" "${@:2}";; shipped) env LD_PRELOAD="$SHIPPED" "${@:2}";; esac; }
export -f under preloaded
export OURS SHIPPED
server() { $ON_SERVER bash -c '"$@"' - "$@"; }
client() { $ON_CLIENT bash -c '"$@"' - "$@"; }
both_ok() { # both_ok CLIENT_STATUS SERVER_PID: the statuses of both ends, for the reader and for the step
  wait "$2"; local served=$?
  [ "$1" = 0 ] && [ $served = 0 ] || { echo "exit status: client $1, server $served"; return 1; }
}

# run_rstream ARGUMENT...: the same arguments at both ends
run_rstream() {
  counters
  server under "$SERVER" rstream -b "$AT" "$@" & local pid=$!
  rwait 7471 || return 1
  client under "$CLIENT" rstream -s "$AT" "$@"
  both_ok $? $pid && counters
}

# run_rcopy MIB: a file, and its checksum at the other end
run_rcopy() {
  counters
  head -c 1M /dev/urandom > /run/block
  for i in $(seq "$1"); do echo "block $i"; cat /run/block; done > /run/source
  server under "$SERVER" rcopy & local pid=$! copied=1
  for try in 1 2 3 4 5; do   # it listens on any address: nothing shows when it does
    sleep 1
    client under "$CLIENT" rcopy /run/source "$AT:/run/copy" && { copied=0; break; }
  done
  kill $pid; counters
  [ $copied = 0 ] && cmp /run/source /run/copy && echo "copies are equal"
}

# run_iperf ARGUMENT...: iperf 2 on plain sockets
run_iperf() {
  counters
  server preloaded "$SERVER" iperf -s -B "$AT" -P 1 & local pid=$!
  rwait 5001 || return 1
  client preloaded "$CLIENT" iperf -c "$AT" "$@"; local status=$?
  kill $pid 2>/dev/null; counters
  return $status
}
