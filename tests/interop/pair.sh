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
  local tries=1
  [ "$CLIENT" = shipped ] && tries=3
  for try in $(seq $tries); do
    run_rstream -T a "$@" && return
    echo "note: try $try of $tries failed"
  done
  return 1
}

# run_all_sizes ARGUMENT...: the sizes of rstream -S all as latency and as bandwidth test, each a connection, with a tenth of its own
# counts (rstream itself has no option for that), and 2000 at most: where two emulated CPUs share one, each message of its busy ends
# takes 4 ms, and it has 100000 of the smallest
run_all_sizes() {
  local base size count tests=0
  for base in 64 128 256 512 1024 2048 4096 8192 16384 32768 65536 131072 262144 524288 1048576 2097152 4194304; do
    for size in $base $((base * 3 / 2)); do
      [ $size = 96 ] && continue   # its table has none between 64 and 128
      if [ $size -ge 1048576 ]; then count=10; elif [ $size -ge 65536 ]; then count=100
      elif [ $size -ge 1024 ]; then count=1000; else count=2000; fi
      run_rstream -S $size -I $count -C 1 "$@" || return 1
      run_rstream -S $size -I 1 -C $count "$@" || return 1
      tests=$((tests + 2))
    done
  done
  echo "note: $tests tests"
}

# run_default_sizes: the sizes of rstream's default table as latency and as bandwidth test, with smaller counts. Over iWARP the table
# itself ends after its first half with the shipped library at either end: rstream sets RDMA_INLINE to 0 for the second one, which that
# library then refuses (EOPNOTSUPP), as its messages have to go inline there.
run_default_sizes() {
  local size count
  while read -r size count; do
    run_rstream -S $size -I $count -C 1 && run_rstream -S $size -I 1 -C $count || return 1
  done <<< "64 5000
4096 1000
65536 200
1048576 20"
}

# run_riostream ARGUMENT...: the same arguments at both ends. Its ends look at memory while they wait, and never sleep
run_riostream() {
  counters
  server linked riostream -b "$AT" "$@" & local pid=$!
  rwait 7471 || return 1
  client linked riostream -s "$AT" "$@"
  both_ok $? $pid && counters
}

# run_rounds COUNT: memory is mapped, written by the other end, compared and unmapped, so often
run_rounds() {
  counters
  server linked "$ROUNDS" "$AT" 7000 "$1" serve & local pid=$!
  rwait 7000 || return 1
  client linked "$ROUNDS" "$AT" 7000 "$1" ask
  both_ok $? $pid && counters
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
