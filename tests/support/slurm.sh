#!/usr/bin/env bash
# A one-node Slurm without systemd, to try srun on this machine. Needs root and Debian's slurm-wlm and munge.
# Usage: slurm.sh start DIRECTORY | slurm.sh stop DIRECTORY    DIRECTORY holds its state.
# Then: SLURM_CONF=DIRECTORY/slurm.conf srun -n 4 --overcommit program
set -euo pipefail
action=${1:-}
state=${2:-}
[ -n "$state" ] || { sed -n 2,4p "$0" >&2; exit 2; }
node=$(hostname -s)

# The node is described as the daemon sees it: where the two differ the controller takes the daemon's word when it first
# hears of it, and never gives back what it has allocated by then.
write_configuration() {
  local hardware
  hardware=$(slurmd -C | grep -o 'CPUs=.* ThreadsPerCore=[0-9]*')
  mkdir -p "$state"/{controller,daemon}
  cat > "$state/slurm.conf" <<CONF
ClusterName=one
SlurmctldHost=$node(127.0.0.1)
SlurmUser=root
AuthType=auth/munge
StateSaveLocation=$state/controller
SlurmdSpoolDir=$state/daemon
SlurmctldPidFile=$state/controller.pid
SlurmdPidFile=$state/daemon.pid
SlurmctldLogFile=$state/controller.log
SlurmdLogFile=$state/daemon.log
SlurmctldPort=16817
SlurmdPort=16818
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
SelectType=select/cons_tres
SelectTypeParameters=CR_Core
ReturnToService=2
MpiDefault=none
NodeName=$node NodeAddr=127.0.0.1 $hardware State=UNKNOWN
PartitionName=all Nodes=$node Default=YES MaxTime=INFINITE State=UP OverSubscribe=FORCE:16
CONF
}

start() {
  write_configuration
  export SLURM_CONF=$state/slurm.conf
  mkdir -p /run/munge
  chown munge /run/munge
  pgrep -x munged > /dev/null || su -s /bin/bash munge -c munged
  slurmctld
  slurmd
  for _ in $(seq 600); do
    if [ "$(sinfo -h -o %t 2> /dev/null)" = idle ]; then return; fi
    sleep 0.2
  done
  echo "Slurm's node does not become idle:" >&2
  tail -n 20 "$state"/*.log >&2
  exit 1
}

stop() {
  for pid in "$state/daemon.pid" "$state/controller.pid"; do
    if [ -f "$pid" ]; then kill "$(cat "$pid")" || true; fi
  done
}

case $action in
  start | stop) "$action" ;;
  *) sed -n 2,4p "$0" >&2; exit 2 ;;
esac
