#!/usr/bin/env bash
# The server under test: tests/hosts/serve.sh PORT FOLDER. Two tenants, one channel-isolated and one software-isolated, on an
# emulated device in FOLDER; NQN_A, NQN_B and HOST_NQN name the subsystems and the only host that may connect.
# SECOND_PORT: where it listens, too.
# Discovery tells the address under which guests reach this machine.
# SHARDS: shards of the server; with 2, each tenant lives on one of its own.
# SCENARIO: which story it is for; "zones" and "zoned-suites" have a third tenant with zoned namespaces, subsystem NQN_ZONES, and "placement"
# one with placement handles, subsystem NQN_PLACED, and one with a reclaim group on each of two dies, NQN_PLACED.groups.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/../.."
port=$1 folder=$2
listen="\"127.0.0.1:$port\"" advertise="\"10.0.2.2:$port\""
[ -z "${SECOND_PORT:-}" ] || listen="$listen, \"127.0.0.1:$SECOND_PORT\"" advertise="$advertise, \"10.0.2.2:$SECOND_PORT\""
setup=$folder/setup.toml
# tenant NAME ISOLATION CAPACITY [LINES]: a tenant with one vSSD, with more lines about it.
tenant() {
  cat >>"$setup" <<SETUP
[[tenant]]
name = "$1"
[[vssd]]
name = "$1"
tenant = "$1"
isolation = "$2"
throughput_level = 1
capacity = "$3"
${4:-}
SETUP
}
# volume NAME VSSD SIZE [LINE]
volume() {
  cat >>"$setup" <<SETUP
[[volume]]
name = "$1"
vssd = "$2"
size = "$3"
${4:-}
SETUP
}
# subsystem NQN TENANT VOLUMES...: shows a tenant's volumes to the guest's host, as namespaces 1, 2 and so on.
subsystem() {
  local nqn=$1 tenant=$2 namespaces="" nsid=0 name; shift 2
  for name in "$@"; do nsid=$((nsid + 1)); namespaces="$namespaces{ nsid = $nsid, volume = \"$name\" }, "; done
  cat >>"$setup" <<SETUP
[[subsystem]]
nqn = "$nqn"
tenant = "$tenant"
allow_any_host = false
allowed_hosts = ["$HOST_NQN"]
namespaces = [${namespaces%, }]
SETUP
}
cat >"$setup" <<SETUP
[server]
listen = [$listen]
advertise = [$advertise]
data = "$folder/data"
[device]
profile = "$PWD/tests/hosts/device.toml"
SETUP
a_capacity="1 GiB"
[ "${SCENARIO:-}" != placement ] || a_capacity="768 MiB"
tenant a channel "$a_capacity"
volume a a "512 MiB"
subsystem "$NQN_A" a a
# Before tenant b, which shares all channels that are left.
b_capacity="1 GiB" b_size="512 MiB"
case ${SCENARIO:-} in
  zones | zoned-suites)
    b_capacity="512 MiB" b_size="256 MiB"
    tenant z channel "768 MiB" 'use = "zones"'
    volume z z "512 MiB" 'zones = { active = 10, open = 6 }'
    volume r z "128 MiB" 'zones = { units = 1, active = 4, random_area = "64 KiB", extension = 64 }'
    subsystem "$NQN_ZONES" z z r
    ;;
  placement)
    b_capacity="512 MiB" b_size="256 MiB"
    tenant p channel "768 MiB" 'placement_handles = 4
placement_isolation = "persistent"'
    volume p p "256 MiB" 'placement = [0, 1, 2, 3]'
    volume q p "64 MiB"
    subsystem "$NQN_PLACED" p p q
    tenant g die "768 MiB" 'placement_handles = 2
reclaim_groups = "die"'
    volume g g "128 MiB" 'placement = [1, 0]'
    subsystem "$NQN_PLACED.groups" g g
    ;;
esac
tenant b software "$b_capacity"
volume b b "$b_size"
subsystem "$NQN_B" b b
exec "${CARGO_TARGET_DIR:-target}/debug/diecut" serve --setup "$setup" --shards "${SHARDS:-1}"
