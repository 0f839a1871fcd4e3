# SPDK's host tools without a host NQN, where any host is allowed: identify, discovery, perf, its abort example, and bdev_nvme under
# bdevperf with verification, on one tenant and on two at once. Each detaches by itself; the server must not miss anybody, and
# nobody may be left connected. Then the server is killed under verification, twice, and two shards exchange tenants under it.
# DIECUT_SPDK: a folder in which SPDK was built; else the tools in the PATH.
suite=spdk
. tests/strangers/library.sh
. tests/strangers/spdk.sh
spdk_tools identify=spdk_nvme_identify perf=spdk_nvme_perf bdevperf abort
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
diecut() { "$target/debug/diecut" --socket "$run_folder/data/control.sock" "$@"; }

identifies() { runs identify "$identify" -r "$there subnqn:$nqn-a" "${no_huge[@]}" && grep -q 'Model Number: *diecut' "$work/identify.out" && grep -q 'Namespace ID:1' "$work/identify.out"; }
discovers() { runs discovery "$identify" -r "$there" "${no_huge[@]}" && grep -q "$nqn-a" "$work/discovery.out" && grep -q "$nqn-b" "$work/discovery.out"; }
perfs() { runs "perf-$1" "$perf" -r "$there subnqn:$nqn-a" "${no_huge[@]}" -q "$2" -o "$3" -w "$1" -M 50 -t 3 && grep -qE '^Total *: *[1-9]' "$work/perf-$1.out"; }
# Command and answer are in the same memory: what could not be aborted is done, and what was is no error of the example.
aborts() { runs "abort-$1" "$abort" -r "$there subnqn:$nqn-a" "${no_huge[@]}" -c 0x1 -q "$1" -o "$2" -w randrw -M 50 -t 3 && grep -qE 'abort submitted [1-9]' "$work/abort-$1.out"; }
bdevperfs() { # NAME CONTROLLERS DEPTH BYTES [OPTIONS]
  configures "$work/bdev.json" "${5:-}" $2
  runs "bdevperf-$1" "$bdevperf" --json "$work/bdev.json" "${bdev[@]}" -q "$3" -o "$4" -w verify -t 4
}
# verifies_while NAME COMMAND: verification on both tenants, with reconnection and as many tries as it takes, while a command does
# something to the server; nothing may be other than what was written. That connections are refused meanwhile is no mistake.
verifies_while() {
  local log=$work/$1.out verifier code=0
  configures "$work/bdev.json" ', "ctrlr_loss_timeout_sec": 60, "reconnect_delay_sec": 1' a="$nqn-a" b="$nqn-b"
  timeout 120 "$bdevperf" --json "$work/bdev.json" "${bdev[@]}" -q 32 -o 8192 -w verify -t 14 >"$log" 2>&1 & verifier=$!
  children+=("$verifier")
  for _ in $(seq 200); do ! grep -q '^Running I/O' "$log" || break; sleep 0.1; done
  sleep 2
  "$2" || code=$?
  wait "$verifier" || code=$?
  ! grep -aE 'Buffer mismatch|fails$' "$log" && grep -a ' Total  *:' "$log" && return $code
}

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
  for one in "1 4096" "256 4096" "16 16384" "32 131072" "4 2097152"; do check "bdevperf-${one// /-of-}" bdevperfs "${one%% *}" "a=$nqn-a" $one; done
  check bdevperf-digests bdevperfs digests "a=$nqn-a" 32 8192 ', "hdgst": true, "ddgst": true'
  check bdevperf-two-tenants bdevperfs two-tenants "a=$nqn-a b=$nqn-b" 32 8192
else
  skip bdevperf "no bdevperf"
fi
check nobody-is-left-connected controllers_are '[[], []]'
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
