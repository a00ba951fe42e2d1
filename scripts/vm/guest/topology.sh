# topology_up NAME RDMA; NAME: none | one | two | peer; RDMA: rxe | siw | both | none
device() {   # device RDMA NETDEV SUFFIX [NETNS]
  local t
  for t in rxe siw; do case $1 in $t|both) ${4:+ip netns exec $4} rdma link add $t$3 type $t netdev $2;; esac; done
}
modules() {
  [ "$1" != none ] || return 0
  modprobe ib_uverbs; modprobe rdma_ucm; modprobe ib_umad || :
  case $1 in rxe|both) modprobe crc32_generic; modprobe rdma_rxe;; esac
  case $1 in siw|both)   # siw has no packet counters: probes count what it is asked to send, and what it received
    modprobe siw; mount -t tracefs t /sys/kernel/tracing 2>/dev/null || :
    [ "${VM_COUNT:-0}" = 1 ] || { cd /sys/kernel/tracing && echo 'p:siw/tx siw_qp_sq_process' >> kprobe_events && echo 'p:siw/rx siw_tcp_rx_data' >> kprobe_events \
      && echo 0 > tracing_on && echo 1 > events/siw/enable; } || echo "vm: no siw counters" >&2
    cd /;;
  esac
}
environment() { echo "export HOST_A=$1 HOST_B=$2 HOST_A6=$3 HOST_B6=$4 DEV_A=$5 DEV_B=$6" > /run/vm.env; }
topology_up() {
  local h n
  modules "$2"
  case $1 in
  none) ;;
  one)    # one host: a veth pair with both ends here; peers talk to the host's own address
    ip link add ve0 type veth peer name ve1
    sysctl -qw net.ipv6.conf.ve0.accept_dad=0 net.ipv6.conf.ve1.accept_dad=0
    ip addr add 10.9.0.1/24 dev ve0; ip -6 addr add fd09::1/64 dev ve0 nodad
    ip link set ve0 up; ip link set ve1 up
    device "$2" ve0 0
    environment 10.9.0.1 10.9.0.1 fd09::1 fd09::1 ve0 ve1;;
  two)    # two hosts: namespaces A and B, one veth pair across them
    [ "${VM_EXCLUSIVE:-0}" = 0 ] || [ "$2" = none ] || rdma system set netns exclusive
    ip netns add A; ip netns add B
    ip link add veA netns A type veth peer name veB netns B
    for h in A B; do
      [ $h = A ] && n=1 || n=2
      ip -n $h link set lo up
      ip netns exec $h sysctl -qw net.ipv6.conf.ve$h.accept_dad=0
      ip -n $h addr add 10.9.0.$n/24 dev ve$h
      ip -n $h -6 addr add fd09::$n/64 dev ve$h nodad
    done
    ip -n A link set veA up; ip -n B link set veB up
    device "$2" veA A A; device "$2" veB B B
    [ "${VM_EXCLUSIVE:-0}" = 0 ] || for d in $(ls /sys/class/infiniband 2>/dev/null); do rdma dev set $d netns ${d#"${d%?}"}; done
    environment 10.9.0.1 10.9.0.2 fd09::1 fd09::2 veA veB;;
  peer)   # this VM is machine $VM_HOST of two, on one Ethernet link; /run/vmlink is a folder the two share
    [ "$VM_HOST" = A ] && n=1 h=B || n=2 h=A
    mount -t 9p -o trans=virtio,version=9p2000.L,msize=131072,cache=none link /run/vmlink
    modprobe virtio_net
    while [ ! -e /sys/class/net/eth0 ]; do sleep 0.05; done
    sysctl -qw net.ipv6.conf.eth0.accept_dad=0
    ip addr add 10.9.0.$n/24 dev eth0; ip -6 addr add fd09::$n/64 dev eth0 nodad
    ip link set eth0 up
    device "$2" eth0 0
    environment 10.9.0.1 10.9.0.2 fd09::1 fd09::2 eth0 eth0
    tell "vm-up-$VM_HOST"; await vm-up-$h 60;;
  *) echo "unknown topology $1"; return 1;;
  esac
}
