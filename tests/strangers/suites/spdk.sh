# SPDK's host tools without a host NQN, where any host is allowed: identify, discovery, perf, its abort example, and bdev_nvme under
# bdevperf with verification, on one tenant and on two at once. Each detaches by itself; the server must not miss anybody, and
# nobody may be left connected. Then the server is killed under verification, twice, and two shards exchange tenants under it.
# DIECUT_SPDK: a folder in which SPDK was built; else the tools in the PATH.
suite=spdk
. tests/strangers/library.sh
spdk_tool() {
  local folder
  if [ -n "${DIECUT_SPDK:-}" ]; then
    for folder in build/bin build/examples; do
      [ ! -x "$DIECUT_SPDK/$folder/$1" ] || { realpath "$DIECUT_SPDK/$folder/$1"; return; }
    done
    return 1
  fi
  command -v "$1"
}
identify=$(spdk_tool spdk_nvme_identify) || identify=
perf=$(spdk_tool spdk_nvme_perf) || perf=
bdevperf=$(spdk_tool bdevperf) || bdevperf=
abort=$(spdk_tool abort) || abort=
[ -n "$identify$perf$bdevperf" ] || nothing_to_run "no tool of SPDK is here (DIECUT_SPDK)"
build diecut-cli
port=$(free_port)
nqn=nqn.2026-11.org.diecut:strangers
{
  printf '[server]\nlisten = "127.0.0.1:%s"\ndata = "%s/data"\n[device]\nprofile = "%s/tests/hosts/device.toml"\n' "$port" "$run_folder" "$PWD"
  for tenant in a b; do
    cat <<SETUP
[[tenant]]
name = "$tenant"
[[vssd]]
name = "$tenant"
tenant = "$tenant"
isolation = "channel"
throughput_level = 1
capacity = "1 GiB"
[[volume]]
name = "$tenant"
vssd = "$tenant"
size = "512 MiB"
[[subsystem]]
nqn = "$nqn-$tenant"
tenant = "$tenant"
allow_any_host = true
namespaces = [{ nsid = 1, volume = "$tenant" }]
SETUP
  done
} >"$work/setup.toml"
serve "$work/setup.toml"
there="trtype:TCP adrfam:IPv4 traddr:127.0.0.1 trsvcid:$port"
no_huge=(--no-huge -s 256)
diecut() { "$target/debug/diecut" --socket "$run_folder/data/control.sock" "$@"; }

# no_errors LOG...: SPDK goes on after many errors. What it says when a queue ends as it asked for is none.
no_errors() {
  local problems
  problems=$(grep -hF '*ERROR*' "$@" | grep -vE 'DISCONNECTED\] CQ transport error -6' || true)
  [ -z "$problems" ] || { echo "$problems"; return 1; }
}
runs() { # NAME COMMAND...
  local log=$work/$1.out; shift
  timeout 120 "$@" >"$log" 2>&1 || { local code=$?; tail -n 10 "$log"; return $code; }
  cat "$log"
  no_errors "$log"
}
identifies() { runs identify "$identify" -r "$there subnqn:$nqn-a" "${no_huge[@]}" && grep -q 'Model Number: *diecut' "$work/identify.out" && grep -q 'Namespace ID:1' "$work/identify.out"; }
discovers() { runs discovery "$identify" -r "$there" "${no_huge[@]}" && grep -q "$nqn-a" "$work/discovery.out" && grep -q "$nqn-b" "$work/discovery.out"; }
perfs() { runs "perf-$1" "$perf" -r "$there subnqn:$nqn-a" "${no_huge[@]}" -q "$2" -o "$3" -w "$1" -M 50 -t 3 && grep -qE '^Total *: *[1-9]' "$work/perf-$1.out"; }
# Command and answer are in the same memory: what could not be aborted is done, and what was is no error of the example.
aborts() { runs "abort-$1" "$abort" -r "$there subnqn:$nqn-a" "${no_huge[@]}" -c 0x1 -q "$1" -o "$2" -w randrw -M 50 -t 3 && grep -qE 'abort submitted [1-9]' "$work/abort-$1.out"; }
# configures FILE OPTIONS TENANT...: bdev_nvme with a controller for each tenant; a small pool, for there are no huge pages.
configures() {
  local file=$1 options=$2 tenant entries; shift 2
  entries='{"method": "bdev_set_options", "params": {"bdev_io_pool_size": 8191, "bdev_io_cache_size": 64}}'
  for tenant in "$@"; do
    entries+=', {"method": "bdev_nvme_attach_controller", "params": {"name": "'$tenant'", "trtype": "TCP", "adrfam": "IPv4", "traddr": "127.0.0.1", "trsvcid": "'$port'", "subnqn": "'$nqn-$tenant'"'$options'}}'
  done
  echo '{"subsystems": [{"subsystem": "bdev", "config": ['"$entries"']}]}' >"$file"
}
bdev=(--no-huge -s 512 -r "$run_folder/spdk.sock")
bdevperfs() { # NAME TENANTS DEPTH BYTES [OPTIONS]
  configures "$work/bdev.json" "${5:-}" $2
  runs "bdevperf-$1" "$bdevperf" --json "$work/bdev.json" "${bdev[@]}" -q "$3" -o "$4" -w verify -t 4
}
# verifies_while NAME COMMAND: verification on both tenants, with reconnection and as many tries as it takes, while a command does
# something to the server; nothing may be other than what was written. That connections are refused meanwhile is no mistake.
verifies_while() {
  local log=$work/$1.out verifier code=0
  configures "$work/bdev.json" ', "ctrlr_loss_timeout_sec": 60, "reconnect_delay_sec": 1' a b
  timeout 120 "$bdevperf" --json "$work/bdev.json" "${bdev[@]}" -q 32 -o 8192 -w verify -t 14 >"$log" 2>&1 & verifier=$!
  children+=("$verifier")
  for _ in $(seq 200); do ! grep -q '^Running I/O' "$log" || break; sleep 0.1; done
  sleep 2
  "$2" || code=$?
  wait "$verifier" || code=$?
  ! grep -aE 'Buffer mismatch|fails$' "$log" && grep -a ' Total  *:' "$log" && return $code
}
nobody_is_connected() { diecut --json status >"$work/status.json" && python3 - "$work/status.json" <<'PYTHON'
import json, sys
found = [one["controllers"] for one in json.load(open(sys.argv[1]))["subsystems"]]
print(found)
sys.exit(0 if found == [[], []] else 1)
PYTHON
}
# The log warns of hosts that fall silent or break off.
said_goodbye() { grep 'host gone' "$work/server.log" && ! grep -E '(WARN|ERROR) diecut_reactor' "$work/server.log"; }

if [ -n "$identify" ]; then check identify identifies; check discovery discovers; else skip identify "no spdk_nvme_identify"; fi
if [ -n "$perf" ]; then
  for one in "randrw 16 4096" "read 8 131072" "write 4 262144"; do check "perf-${one%% *}" perfs $one; done
else
  skip perf "no spdk_nvme_perf"
fi
if [ -n "$abort" ]; then
  for one in "32 4096" "128 4096" "16 131072"; do check "abort-${one// /-of-}" aborts $one; done
else
  skip abort "no abort, an example of SPDK"
fi
if [ -n "$bdevperf" ]; then
  for one in "1 4096" "256 4096" "16 16384" "32 131072" "4 2097152"; do check "bdevperf-${one// /-of-}" bdevperfs "${one%% *}" a $one; done
  check bdevperf-digests bdevperfs digests a 32 8192 ', "hdgst": true, "ddgst": true'
  check bdevperf-two-tenants bdevperfs two-tenants "a b" 32 8192
else
  skip bdevperf "no bdevperf"
fi
check nobody-is-left-connected nobody_is_connected
check everybody-said-goodbye said_goodbye
if [ -n "$bdevperf" ]; then
  # Its process must be this shell's.
  dies_twice() { local death; for death in 1 2; do kill -KILL "$server"; wait "$server" || true; : >"$work/server.log"; serve "$work/setup.toml" || return 1; sleep 3; done; }
  check killed-under-verification verifies_while killed dies_twice
  kill -TERM "$server"; wait "$server" || true
  sed -i 's/^\[server\]$/[server]\nshards = 2/' "$work/setup.toml"
  : >"$work/server.log"
  serve "$work/setup.toml"
  homes_change() { local turn; for turn in 1 2 3 4 5 6; do diecut tenant move a --shard $((turn % 2)) && diecut tenant move b --shard $(((turn + 1) % 2)) || return 1; done; }
  check tenants-move-under-verification verifies_while moved homes_change
  quiet() { ! grep -E '(WARN|ERROR) diecut_(reactor|target)' "$work/server.log" | grep -v 'opened after'; }
  check nobody-missed-anything quiet
fi
finish
