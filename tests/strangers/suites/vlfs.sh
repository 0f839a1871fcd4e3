# fsx and fsstress on the FUSE mount of vLFS; what was there a second after `sync` is there when the file system's
# process, and then the server, was killed. DIECUT_FSX, DIECUT_FSSTRESS: the programs, if they are not in the PATH.
suite=vlfs
. tests/strangers/library.sh
fsx=$(find_program DIECUT_FSX fsx) || fsx=
fsstress=$(find_program DIECUT_FSSTRESS fsstress) || fsstress=
[ -n "$fsx$fsstress" ] || nothing_to_run "neither fsx nor fsstress is here (DIECUT_FSX, DIECUT_FSSTRESS)"
[ -w /dev/fuse ] || nothing_to_run "no FUSE here (/dev/fuse)"
[ "$(id -u)" = 0 ] || nothing_to_run "mounting needs root"
build diecut-cli diecut-vlfs
mount=$run_folder/mount
mkdir "$mount"
cat >"$work/setup.toml" <<SETUP
[server]
listen = "127.0.0.1:$(free_port)"
data = "$run_folder/data"
[device]
profile = "$PWD/tests/hosts/device.toml"
[[tenant]]
name = "a"
[[vssd]]
name = "files"
tenant = "a"
isolation = "channel"
throughput_level = 1
capacity = "1 GiB"
use = "blocks"
SETUP

mounts() {
  local tries
  for tries in $(seq 100); do
    "$target/debug/diecut-vlfs" mount "files@$run_folder/data/blocks.sock" "$mount" >>"$work/vlfs.log" 2>&1 & file_system=$!
    children+=("$file_system")
    for _ in $(seq 200); do
      ! mountpoint -q "$mount" || return 0
      kill -0 "$file_system" 2>/dev/null || break
      sleep 0.05
    done
    # Whoever was there before may not be gone for the server yet.
    sleep 0.1
  done
  tail -n 5 "$work/vlfs.log"; return 1
}
# $! must be this shell's.
in_this_shell() { if "$@" >"$work/$1.log" 2>&1; then passed=$((passed + 1)); say "ok    $1"; else failed=$((failed + 1)); say "FAIL  $1"; tail -n 5 "$work/$1.log"; finish; fi; }
fsx_runs() {
  local seed
  for seed in 1 2 3; do
    timeout 300 "$fsx" -N 5000 -S "$seed" -P "$work" "$mount/fsx" >"$work/fsx.out" 2>&1 || { tail -n 20 "$work/fsx.out"; return 1; }
    grep -q A-OK "$work/fsx.out" || return 1
  done
}
fsstress_runs() { mkdir -p "$mount/$1" && timeout 300 "$fsstress" -d "$mount/$1" -n 400 -p 4 -s "$2"; }
contents() (
  cd "$mount" && find . ! -type f ! -type d -exec stat -c '%F %s %N' {} + | sort && find . -type d | sort &&
    find . -type f -exec sha256sum {} + | sort -k 2
)
# The kernel does not tell vLFS of `sync`: what was written is with the server 100 ms later (docs/limits.md, "The file system"), and has a
# second on a busy machine. Without the wait a file may be as it was before its last writes.
synced() { contents >"$work/before" && timeout 60 sync -f "$mount" && sleep 1 && wc -l <"$work/before" && [ -s "$work/before" ]; }
same() { contents >"$work/after" && diff "$work/before" "$work/after"; }
mounted_again_after() { # WHOSE DEATH
  [ "$1" = file-system ] || { kill -KILL "$server"; wait "$server" || true; }
  kill -KILL "$file_system" || true
  wait "$file_system" || true
  umount -l "$mount" || true
  [ "$1" = file-system ] || { : >"$work/server.log"; serve "$work/setup.toml"; }
  mounts
}
in_this_shell serve "$work/setup.toml"
in_this_shell mounts
for death in file-system server; do
  if [ -n "$fsx" ]; then check "fsx-before-death-of-$death" fsx_runs; else skip fsx "not here (DIECUT_FSX)"; fi
  if [ -n "$fsstress" ]; then check "fsstress-before-death-of-$death" fsstress_runs "$death" 71; else skip fsstress "not here (DIECUT_FSSTRESS)"; fi
  check "sync-before-death-of-$death" synced
  in_this_shell mounted_again_after $death
  check "all-there-after-death-of-$death" same
done
finish
