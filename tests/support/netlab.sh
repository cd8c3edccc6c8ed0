#!/usr/bin/env bash
# Several hosts out of one machine: a private network in which a command runs, and which is gone when it ends.
#
#   netlab.sh HOSTS RATE COMMAND [ARGUMENT...]
#   netlab.sh on HOST COMMAND...                   inside such a command
#   netlab.sh cut HOST [INTERFACE]                 likewise: from now on all packets to and from it vanish
#   netlab.sh join HOST [INTERFACE]                and now they pass again
#   netlab.sh part HOST OTHER                      likewise: packets between these two vanish; "bridge" may be one
#   netlab.sh mend HOST OTHER                      and now they pass again; in labs of at most 16 hosts
#
# Hosts are h1, h2, ... (or h1.netlab, ...), 10.9.0.1 to 10.9.0.HOSTS. Each has a network of its own (a network namespace,
# where its interface is eth0) and a name of its own (a uts namespace), and so is another host to hvd and to MPI;
# processes on the same one share memory as ever. Files, processes and users are the machine's, but for /etc/hosts, which
# has the lab's names. The hosts hang on one bridge, where COMMAND runs; it has the machine's name and is 10.9.0.254.
#
# With NETLAB_NETWORKS=2 there is a second bridge: each host is 10.8.0.N on eth1 as well, which no name stands for.
#
# A host that is cut off is told nothing: its interface stays up, connections stay open, and neither side hears a reset.
#
# RATE, "1gbit" for instance, is what a link carries in each direction: a token bucket (tc-tbf) at both of its ends lets
# 128 KB pass at once and keeps 30 ms worth of packets. "none": no limit.
#
# COMMAND finds the number of hosts in NETLAB_HOSTS and in NETLAB_RSH the command `netlab.sh on`, which stands in for ssh
# as far as MPI's launchers go: `$NETLAB_RSH 10.9.0.3 hostname`, or mpirun --mca plm_rsh_agent "$NETLAB_RSH".
#
# The whole lab is in a process namespace, whose first process takes all others with it, and networks, links and limits go
# with the last process in them. So nothing is left behind, whoever is killed in whatever way.
set -euo pipefail

subnets=(10.9.0 10.8.0)
most_who_learn=16 # hosts; of more, each knows from the beginning where the others are
self=$(realpath "$0")

# Exit code 69 (EX_UNAVAILABLE): it is this machine that cannot, not the command that failed.
cannot() {
  echo "netlab: $*" >&2
  exit 69
}

usage() {
  echo "usage: netlab.sh HOSTS RATE COMMAND [ARGUMENT...]" >&2
  exit 2
}

# 3 of h3, h3.netlab, 10.9.0.3 and 10.8.0.3.
number_of() {
  local name=${1%.netlab}
  echo "${name##*[.h]}"
}

on_host() {
  local number holders
  number=$(number_of "$1")
  shift
  read -ra holders <<< "${NETLAB_HOLDERS:?only inside a lab}"
  # As ssh does it: the words make one command line, for a shell on the other side.
  exec nsenter --net --uts --target "${holders[number - 1]:?no such host}" bash -c "$*"
}

# set_ports 0|3 HOST [INTERFACE]: lets the bridges drop (0) or forward (3) what comes from and goes to a host.
set_ports() {
  local state=$1 number network
  : "${NETLAB_NETWORKS:?only inside a lab}"
  number=$(number_of "$2")
  for ((network = 0; network < NETLAB_NETWORKS; network++)); do
    [ "${3:-eth$network}" != "eth$network" ] || bridge link set dev "port$number.$network" state "$state"
  done
}

# set_path replace|del HOST OTHER: packets from the one to the other go to a hardware address that nobody has, or (del)
# do so no longer.
set_path() {
  local verb=$1 link=eth0 address="${subnets[0]}.254" entry
  shift
  [ "$1" != bridge ] || link=bridge0
  [ "$2" = bridge ] || address=${subnets[0]}.$(number_of "$2")
  entry="$address dev $link"
  [ "$verb" = del ] || entry+=" lladdr 02:00:00:00:00:01 nud permanent"
  if [ "$1" = bridge ]; then
    ip neigh "$verb" $entry
  else
    "$self" on "$1" ip neigh "$verb" $entry
  fi
}

# A process that sleeps in new namespaces and so keeps them; its number is in $holder.
hold_namespaces() {
  unshare --net --uts sleep infinity &
  holder=$!
  local own attempt
  own=$(readlink /proc/self/ns/net)
  for attempt in {1..6000}; do
    [ "$(readlink "/proc/$holder/ns/net")" = "$own" ] || return 0
    sleep 0.01
  done
  cannot "no namespace for another host after a minute"
}

limit() { [ "$rate" = none ] || "$@" root tbf rate "$rate" burst 128kb latency 30ms; }

# The lab's own /etc/hosts: what the machine's has under other names, and the lab's. It lives in memory, and has no
# other name once the file system that it was made in is unmounted.
name_hosts() {
  local hosts=$1 own number
  own=$(hostname)
  mount -t tmpfs netlab /mnt
  {
    awk -v own="$own" '/^[^#]/ {
      for (i = 2; i <= NF && $i !~ /^#/; i++) if ($i == own || $i ~ /^h[0-9]+([.]netlab)?$/) next
      print
    }' /etc/hosts
    for ((number = 1; number <= hosts; number++)); do echo "${subnets[0]}.$number h$number h$number.netlab"; done
    echo "${subnets[0]}.254 $own"
  } > /mnt/hosts
  chmod 644 /mnt/hosts
  mount --bind /mnt/hosts /etc/hosts
  umount /mnt
}

# mac NETWORK NUMBER
mac() { printf '02:00:00:00:%02x:%02x' "$1" "$2"; }

# know_neighbours HOSTS. The kernel keeps 1,024 learnt neighbours at most, of all namespaces together, and only the
# machine can raise that (gc_thresh3): with 33 hosts that all talk to one another it is full, and packets vanish. What
# is given for good does not count.
know_neighbours() {
  local hosts=$1 number network list
  for ((network = 0; network < NETLAB_NETWORKS; network++)); do
    list=$(for number in $(seq 1 "$hosts") 254; do
      echo "neighbour replace ${subnets[network]}.$number lladdr $(mac "$network" "$number") dev DEVICE nud permanent"
    done)
    ip -batch - <<< "${list//DEVICE/bridge$network}"
    for number in "${holders[@]}"; do
      nsenter --net --target "$number" ip -batch - <<< "${list//DEVICE/eth$network}"
    done
  done
}

add_bridge() {
  local network=$1
  ip link add "bridge$network" address "$(mac "$network" 254)" type bridge
  ip address add "${subnets[network]}.254/24" dev "bridge$network"
  ip link set "bridge$network" up
}

add_host() {
  local number=$1 network port inside
  hold_namespaces
  holders+=("$holder")
  inside=(nsenter --net --uts --target "$holder")
  "${inside[@]}" hostname "h$number"
  "${inside[@]}" ip link set lo up
  for ((network = 0; network < NETLAB_NETWORKS; network++)); do
    port=port$number.$network
    ip link add "$port" type veth peer name "eth$network" address "$(mac "$network" "$number")" netns "$holder"
    ip link set "$port" master "bridge$network" up
    "${inside[@]}" ip address add "${subnets[network]}.$number/24" dev "eth$network"
    "${inside[@]}" ip link set "eth$network" up
    limit tc qdisc add dev "$port"
    limit "${inside[@]}" tc qdisc add dev "eth$network"
  done
}

# As the lab's first process.
run_inside() {
  local hosts=$1 number network
  rate=$2
  shift 2
  holders=()
  ip link set lo up
  name_hosts "$hosts"
  for ((network = 0; network < NETLAB_NETWORKS; network++)); do add_bridge "$network"; done
  for ((number = 1; number <= hosts; number++)); do add_host "$number"; done
  ((hosts <= most_who_learn)) || know_neighbours "$hosts"
  export NETLAB_HOSTS=$hosts NETLAB_HOLDERS="${holders[*]}" NETLAB_RSH="$self on"
  "$@"
}

check_machine() {
  [ "$(id -u)" -eq 0 ] || cannot "this needs root"
  local tool
  for tool in bridge ip tc mount unshare nsenter setpriv; do
    command -v "$tool" > /dev/null || cannot "$tool is missing (Debian: iproute2, util-linux)"
  done
}

namespaces=(unshare --net --uts --mount --pid --fork --kill-child --mount-proc)
case "${1:-}" in
  on) shift && on_host "$@" ;;
  cut) shift && set_ports 0 "$@" ;;
  join) shift && set_ports 3 "$@" ;;
  part) shift && set_path replace "$1" "$2" && set_path replace "$2" "$1" ;;
  mend) shift && set_path del "$1" "$2" && set_path del "$2" "$1" ;;
  inside) shift && run_inside "$@" ;;
  *)
    [ $# -ge 3 ] && [[ $1 =~ ^[0-9]+$ ]] && (($1 >= 1 && $1 <= 250)) || usage
    export NETLAB_NETWORKS=${NETLAB_NETWORKS:-1}
    [[ $NETLAB_NETWORKS =~ ^[12]$ ]] || usage
    check_machine
    refusal=$("${namespaces[@]}" true 2>&1) || cannot "namespaces are not permitted here: $refusal"
    # In the background, so that this shell can act on a signal; `wait` would not return in time otherwise.
    setpriv --pdeathsig KILL "${namespaces[@]}" "$self" inside "$@" <&0 &
    lab=$!
    trap 'kill -KILL "$lab" 2> /dev/null || true' EXIT
    trap 'exit 129' HUP
    trap 'exit 130' INT
    trap 'exit 143' TERM
    wait "$lab"
    ;;
esac
