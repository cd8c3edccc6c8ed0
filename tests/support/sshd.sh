#!/usr/bin/env bash
# A real ssh server for the length of a command, without a trace in /etc/ssh or ~/.ssh.
#
#   sshd.sh PORT|auto COMMAND [ARGUMENT...]
#
# It listens on 127.0.0.1 with a fresh host key, and lets in whoever has the fresh user key, as the user who runs this.
# Both are in a temporary folder with all else that belongs to it. Inside a lab of netlab.sh each host has a server, under
# h1, h2, ..., all with the same keys. COMMAND finds
#
#   SSH_PORT    where it listens
#   SSH_KEY     the user's private key
#   SSH_CONFIG  options for ssh under which any host is reached at that port, with that key, in batch mode
#   SSH         "ssh -F $SSH_CONFIG": `$SSH 127.0.0.1 hostname`
#
# The server and its connections end with COMMAND.
set -euo pipefail

# Exit code 69 (EX_UNAVAILABLE): it is this machine that cannot, not the command that failed.
cannot() {
  echo "sshd: $*" >&2
  exit 69
}

[ $# -ge 2 ] && [[ $1 =~ ^([0-9]+|auto)$ ]] || {
  echo "usage: sshd.sh PORT|auto COMMAND [ARGUMENT...]" >&2
  exit 2
}
wanted=$1
shift
read -ra holders <<< "${NETLAB_HOLDERS:-}"
address=127.0.0.1
[ ${#holders[@]} -eq 0 ] || address=0.0.0.0
sshd=$(PATH=$PATH:/usr/sbin:/sbin command -v sshd) || cannot "sshd is missing (Debian: openssh-server)"
command -v ssh ssh-keygen > /dev/null || cannot "ssh is missing (Debian: openssh-client)"
# Where the server locks up the process that talks with strangers; a root's server insists on it.
[ "$(id -u)" -ne 0 ] || mkdir -p -m 755 /run/sshd

folder=$(mktemp -d)
servers=()
session=
end_servers() {
  local server
  for server in "${servers[@]}"; do
    pkill -TERM -P "$server" || true # its connections
    kill "$server" 2> /dev/null || true
    wait "$server" 2> /dev/null || true
  done
  servers=()
}
end_all() {
  [ -z "$session" ] || kill "$session" 2> /dev/null || true
  end_servers
  rm -rf "$folder"
}
trap end_all EXIT
trap 'exit 129' HUP
trap 'exit 130' INT
trap 'exit 143' TERM

ssh-keygen -q -t ed25519 -N '' -C '' -f "$folder/host_key"
ssh-keygen -q -t ed25519 -N '' -C '' -f "$folder/user_key"
cp "$folder/user_key.pub" "$folder/authorized_keys"

write_configurations() {
  local port=$1
  cat > "$folder/sshd_config" << END
Port $port
ListenAddress $address
HostKey $folder/host_key
AuthorizedKeysFile $folder/authorized_keys
StrictModes no
UsePAM no
PasswordAuthentication no
KbdInteractiveAuthentication no
PermitRootLogin prohibit-password
PermitUserRC no
PrintMotd no
PrintLastLog no
MaxStartups 200
MaxSessions 200
END
  cat > "$folder/ssh_config" << END
Host *
  Port $port
  IdentityFile $folder/user_key
  IdentitiesOnly yes
  IdentityAgent none
  BatchMode yes
  ConnectTimeout 60
  StrictHostKeyChecking yes
  HostKeyAlias server
  UserKnownHostsFile $folder/known_hosts
  GlobalKnownHostsFile /dev/null
  LogLevel ERROR
END
  echo "server $(cut -d ' ' -f 1,2 "$folder/host_key.pub")" > "$folder/known_hosts"
}

# start_server [PREFIX...]: false if it does not listen, because the port is taken for instance.
start_server() {
  local name=server${#servers[@]} attempt
  rm -f "$folder/$name"
  "$@" setpriv --pdeathsig TERM "$sshd" -D -f "$folder/sshd_config" -o "PidFile=$folder/$name" -E "$folder/log" &
  servers+=($!)
  for attempt in {1..3000}; do
    kill -0 "$!" 2> /dev/null || return 1
    [ ! -s "$folder/$name" ] || return 0 # written once it listens
    sleep 0.02
  done
  return 1
}

start_servers() {
  local holder
  write_configurations "$1"
  start_server || return 1
  for holder in "${holders[@]}"; do
    start_server nsenter --net --uts --target "$holder" || return 1
  done
}

# A port that is free now may be taken a moment later.
for attempt in {1..20}; do
  port=$wanted
  [ "$wanted" != auto ] || port=$((20000 + RANDOM % 12000))
  start_servers "$port" && break
  end_servers
  [ "$wanted" = auto ] || break
done
[ ${#servers[@]} -gt 0 ] || cannot "no server on $address: $(cat "$folder/log")"

export SSH_PORT=$port SSH_KEY=$folder/user_key SSH_CONFIG=$folder/ssh_config SSH="ssh -F $folder/ssh_config"
# In the background, so that this shell can act on a signal.
"$@" <&0 &
session=$!
wait "$session"
