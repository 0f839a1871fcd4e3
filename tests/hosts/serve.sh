#!/usr/bin/env bash
# The server under test: tests/hosts/serve.sh PORT FOLDER. Two tenants, one channel-isolated and one software-isolated, on an
# emulated device in FOLDER; NQN_A, NQN_B and HOST_NQN name the subsystems and the only host that may connect.
# SECOND_PORT: where it listens, too.
# Discovery tells the address under which guests reach this machine.
# SHARDS: shards of the server; with 2, each tenant lives on one of its own.
# SCENARIO: which story it is for; "zones" and "zoned-suites" have a third tenant with zoned namespaces, subsystem NQN_ZONES, and "placement" one with placement
# handles, subsystem NQN_PLACED.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/../.."
port=$1 folder=$2
listen="\"127.0.0.1:$port\"" advertise="\"10.0.2.2:$port\""
[ -z "${SECOND_PORT:-}" ] || listen="$listen, \"127.0.0.1:$SECOND_PORT\"" advertise="$advertise, \"10.0.2.2:$SECOND_PORT\""
cat > "$folder/setup.toml" <<SETUP
[server]
listen = [$listen]
advertise = [$advertise]
data = "$folder/data"
[device]
profile = "$PWD/tests/hosts/device.toml"
[[tenant]]
name = "a"
[[vssd]]
name = "a"
tenant = "a"
isolation = "channel"
throughput_level = 1
capacity = "1 GiB"
[[volume]]
name = "a"
vssd = "a"
size = "512 MiB"
[[subsystem]]
nqn = "$NQN_A"
tenant = "a"
allow_any_host = false
allowed_hosts = ["$HOST_NQN"]
namespaces = [{ nsid = 1, volume = "a" }]
SETUP
# Before tenant b, which shares all channels that are left.
b_capacity="1 GiB" b_size="512 MiB"
if [ "${SCENARIO:-}" = zones ] || [ "${SCENARIO:-}" = zoned-suites ]; then
  b_capacity="512 MiB" b_size="256 MiB"
  cat >> "$folder/setup.toml" <<SETUP
[[tenant]]
name = "z"
[[vssd]]
name = "z"
tenant = "z"
isolation = "channel"
throughput_level = 1
capacity = "768 MiB"
use = "zones"
[[volume]]
name = "z"
vssd = "z"
size = "512 MiB"
zones = { active = 10, open = 6 }
[[volume]]
name = "r"
vssd = "z"
size = "128 MiB"
zones = { units = 1, active = 4, random_area = "64 KiB", extension = 64 }
[[subsystem]]
nqn = "$NQN_ZONES"
tenant = "z"
allow_any_host = false
allowed_hosts = ["$HOST_NQN"]
namespaces = [{ nsid = 1, volume = "z" }, { nsid = 2, volume = "r" }]
SETUP
fi
if [ "${SCENARIO:-}" = placement ]; then
  b_capacity="512 MiB" b_size="256 MiB"
  cat >> "$folder/setup.toml" <<SETUP
[[tenant]]
name = "p"
[[vssd]]
name = "p"
tenant = "p"
isolation = "channel"
throughput_level = 1
capacity = "768 MiB"
placement_handles = 4
placement_isolation = "persistent"
[[volume]]
name = "p"
vssd = "p"
size = "256 MiB"
placement = [0, 1, 2, 3]
[[volume]]
name = "q"
vssd = "p"
size = "64 MiB"
[[subsystem]]
nqn = "$NQN_PLACED"
tenant = "p"
allow_any_host = false
allowed_hosts = ["$HOST_NQN"]
namespaces = [{ nsid = 1, volume = "p" }, { nsid = 2, volume = "q" }]
SETUP
fi
cat >> "$folder/setup.toml" <<SETUP
[[tenant]]
name = "b"
[[vssd]]
name = "b"
tenant = "b"
isolation = "software"
throughput_level = 1
capacity = "$b_capacity"
[[volume]]
name = "b"
vssd = "b"
size = "$b_size"
[[subsystem]]
nqn = "$NQN_B"
tenant = "b"
allow_any_host = false
allowed_hosts = ["$HOST_NQN"]
namespaces = [{ nsid = 1, volume = "b" }]
SETUP
exec "${CARGO_TARGET_DIR:-target}/debug/diecut" serve --setup "$folder/setup.toml" --shards "${SHARDS:-1}"
