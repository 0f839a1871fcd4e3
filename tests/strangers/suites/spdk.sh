# SPDK's host tools without a host NQN, where any host is allowed: identify, discovery, perf, and bdev_nvme under bdevperf with
# verification. Each detaches by itself; the server must not miss anybody, and nobody may be left connected.
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
[ -n "$identify$perf$bdevperf" ] || nothing_to_run "no tool of SPDK is here (DIECUT_SPDK)"
build diecut-cli
port=$(free_port)
nqn=nqn.2026-11.org.diecut:strangers
cat >"$work/setup.toml" <<SETUP
[server]
listen = "127.0.0.1:$port"
data = "$run_folder/data"
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
nqn = "$nqn"
tenant = "a"
allow_any_host = true
namespaces = [{ nsid = 1, volume = "a" }]
SETUP
serve "$work/setup.toml"
there="trtype:TCP adrfam:IPv4 traddr:127.0.0.1 trsvcid:$port"
no_huge=(--no-huge -s 256)

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
identifies() { runs identify "$identify" -r "$there subnqn:$nqn" "${no_huge[@]}" && grep -q 'Model Number: *diecut' "$work/identify.out" && grep -q 'Namespace ID:1' "$work/identify.out"; }
discovers() { runs discovery "$identify" -r "$there" "${no_huge[@]}" && grep -q "$nqn" "$work/discovery.out"; }
perfs() { runs "perf-$1" "$perf" -r "$there subnqn:$nqn" "${no_huge[@]}" -q "$2" -o "$3" -w "$1" -M 50 -t 3 && grep -qE '^Total *: *[1-9]' "$work/perf-$1.out"; }
bdevperfs() {
  cat >"$work/bdev.json" <<JSON
{"subsystems": [{"subsystem": "bdev", "config": [{"method": "bdev_nvme_attach_controller", "params":
  {"name": "diecut", "trtype": "TCP", "adrfam": "IPv4", "traddr": "127.0.0.1", "trsvcid": "$port", "subnqn": "$nqn"}}]}]}
JSON
  runs bdevperf "$bdevperf" --json "$work/bdev.json" "${no_huge[@]}" -q 16 -o 4096 -w verify -t 5
}
nobody_is_connected() { "$target/debug/diecut" --socket "$run_folder/data/control.sock" --json status >"$work/status.json" && python3 - "$work/status.json" "$nqn" <<'PYTHON'
import json, sys
found = [one["controllers"] for one in json.load(open(sys.argv[1]))["subsystems"] if one["subsystem"]["nqn"] == sys.argv[2]]
print(found)
sys.exit(0 if found == [[]] else 1)
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
if [ -n "$bdevperf" ]; then check bdevperf bdevperfs; else skip bdevperf "no bdevperf"; fi
check nobody-is-left-connected nobody_is_connected
check everybody-said-goodbye said_goodbye
finish
