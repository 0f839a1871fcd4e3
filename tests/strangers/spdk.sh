# Words of the suites that run SPDK's programs. Sourced after library.sh; a suite sets `port`, the server's.
# DIECUT_SPDK: a folder in which SPDK was built; else the tools in the PATH.
no_huge=(--no-huge -s 256)
# For programs with SPDK's event framework.
bdev=(--no-huge -s 512 -r "$run_folder/spdk.sock")
spdk_tool() {
  local folder
  if [ -n "${DIECUT_SPDK:-}" ]; then
    for folder in build/bin build/examples build/fio; do
      [ ! -x "$DIECUT_SPDK/$folder/$1" ] || { realpath "$DIECUT_SPDK/$folder/$1"; return; }
    done
    return 1
  fi
  command -v "$1"
}
# spdk_tools NAME[=TOOL]...: sets a variable for each tool, which is empty where that is not here. Without TOOL it is called as the variable.
spdk_tools() {
  local one
  for one in "$@"; do printf -v "${one%%=*}" %s "$(spdk_tool "${one#*=}" || true)"; done
}
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
# configures FILE OPTIONS NAME=NQN...: bdev_nvme with a controller for each; a small pool, for there are no huge pages.
configures() {
  local file=$1 options=$2 one entries; shift 2
  entries='{"method": "bdev_set_options", "params": {"bdev_io_pool_size": 8191, "bdev_io_cache_size": 64}}'
  for one in "$@"; do
    entries+=', {"method": "bdev_nvme_attach_controller", "params": {"name": "'${one%%=*}'", "trtype": "TCP", "adrfam": "IPv4", "traddr": "127.0.0.1", "trsvcid": "'${served_by:-$port}'", "subnqn": "'${one#*=}'"'$options'}}'
  done
  echo '{"subsystems": [{"subsystem": "bdev", "config": ['"$entries"']}]}' >"$file"
}
# controllers_are LIST: which controllers each subsystem has, as the server says.
controllers_are() { "$target/debug/diecut" --socket "$run_folder/data/control.sock" --json status >"$work/status.json" && python3 - "$work/status.json" "$1" <<'PYTHON'
import json, sys
found = [one["controllers"] for one in json.load(open(sys.argv[1]))["subsystems"]]
print(found)
sys.exit(0 if found == json.loads(sys.argv[2]) else 1)
PYTHON
}
# The log warns of hosts that fall silent or break off.
said_goodbye() { grep 'host gone' "$work/server.log" && ! grep -E '(WARN|ERROR) diecut_reactor' "$work/server.log" | grep -v 'opened after'; }
