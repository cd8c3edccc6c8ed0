#!/usr/bin/env bash
# late_host.sh HOST SECONDS NETLAB NAME COMMAND...: as `NETLAB on NAME COMMAND...`, but HOST comes so much later.
[ "$4" != "$1" ] || sleep "$2"
exec "$3" on "${@:4}"
