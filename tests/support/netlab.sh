#!/usr/bin/env bash
# Several hosts out of one machine: a private network in which a command runs, and which is gone when it ends.
#
#   netlab.sh HOSTS RATE COMMAND [ARGUMENT...]
#   netlab.sh on HOST COMMAND...                   inside such a command
#
# Hosts are 10.9.0.1 to 10.9.0.HOSTS. Each has a network of its own (a network namespace, where its interface is eth0)
# and a name of its own (a uts namespace: h1, h2, ...), and so is another host to hvd and to MPI; processes on the same
# one share memory as ever. Files, processes and users are the machine's. The hosts hang on one bridge, which COMMAND
# sees as 10.9.0.254.
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

subnet=10.9.0
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

on_host() {
  local number=${1##*[.h]} holders
  shift
  read -ra holders <<< "${NETLAB_HOLDERS:?only inside a lab}"
  # As ssh does it: the words make one command line, for a shell on the other side.
  exec nsenter --net --uts --target "${holders[number - 1]:?no such host}" bash -c "$*"
}

# A process that sleeps in new namespaces and so keeps them; its number is in $holder.
hold_namespaces() {
  unshare --net --uts sleep infinity &
  holder=$!
  local own attempt
  own=$(readlink /proc/self/ns/net)
  for attempt in {1..500}; do
    [ "$(readlink "/proc/$holder/ns/net")" = "$own" ] || return 0
    sleep 0.01
  done
  cannot "no namespace for another host after 5 seconds"
}

limit() { [ "$rate" = none ] || "$@" root tbf rate "$rate" burst 128kb latency 30ms; }

add_host() {
  local number=$1 port=port$1 inside
  hold_namespaces
  holders+=("$holder")
  inside=(nsenter --net --uts --target "$holder")
  ip link add "$port" type veth peer name eth0 netns "$holder"
  ip link set "$port" master bridge up
  "${inside[@]}" hostname "h$number"
  "${inside[@]}" ip link set lo up
  "${inside[@]}" ip address add "$subnet.$number/24" dev eth0
  "${inside[@]}" ip link set eth0 up
  limit tc qdisc add dev "$port"
  limit "${inside[@]}" tc qdisc add dev eth0
}

# As the lab's first process.
run_inside() {
  local hosts=$1 number
  rate=$2
  shift 2
  holders=()
  ip link set lo up
  ip link add bridge type bridge
  ip address add "$subnet.254/24" dev bridge
  ip link set bridge up
  for ((number = 1; number <= hosts; number++)); do add_host "$number"; done
  export NETLAB_HOSTS=$hosts NETLAB_HOLDERS="${holders[*]}" NETLAB_RSH="$self on"
  "$@"
}

check_machine() {
  [ "$(id -u)" -eq 0 ] || cannot "this needs root"
  local tool
  for tool in ip tc unshare nsenter setpriv; do
    command -v "$tool" > /dev/null || cannot "$tool is missing (Debian: iproute2, util-linux)"
  done
}

namespaces=(unshare --net --uts --mount --pid --fork --kill-child --mount-proc)
case "${1:-}" in
  on) shift && on_host "$@" ;;
  inside) shift && run_inside "$@" ;;
  *)
    [ $# -ge 3 ] && [[ $1 =~ ^[0-9]+$ ]] && (($1 >= 1 && $1 <= 250)) || usage
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
