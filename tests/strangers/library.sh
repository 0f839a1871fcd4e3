# Words the suites are written in. Sourced by bash in the top folder of the repository; `suite` is the suite's name.
set -euo pipefail
target=$(realpath -m "${CARGO_TARGET_DIR:-target}")
work=$target/strangers/$suite
rm -rf "$work"
mkdir -p "$work"
# A socket's path must be short, wherever this tree lies.
run_folder=$(mktemp -d "${TMPDIR:-/tmp}/diecut-XXXXXX")
passed=0 failed=0 skipped=0

say() { printf '%s: %s\n' "$suite" "$*"; }
# check NAME COMMAND...: runs the command; what it prints is kept, and shown when it fails.
check() {
  local name=$1 code=0; shift
  "$@" >"$work/$name.log" 2>&1 || code=$?
  if [ $code = 0 ]; then
    passed=$((passed + 1)); say "ok    $name"
  else
    failed=$((failed + 1)); say "FAIL  $name (exit $code); the end of $work/$name.log:"; tail -n 15 "$work/$name.log" | sed 's/^/  | /'
  fi
}
# skip NAME WHY: a part that this machine cannot run.
skip() { skipped=$((skipped + 1)); say "SKIPPED $1: $2"; }
# nothing_to_run WHY: this machine cannot run the suite.
nothing_to_run() { skipped=$((skipped + 1)); say "SKIPPED: $*"; finish; }
# Ends the suite; the driver reads the last line.
finish() {
  say "$passed passed, $failed failed, $skipped skipped"
  [ $failed = 0 ] || exit 1
  [ $passed != 0 ] || exit 77
  exit 0
}
# find_program VARIABLE NAME: where a program is, by the variable or in the PATH or among the tools of this tree.
find_program() {
  local named=${!1:-}
  if [ -n "$named" ]; then [ -x "$named" ] && realpath "$named"; return; fi
  if [ -x "$target/tools/bin/$2" ]; then echo "$target/tools/bin/$2"; return; fi
  command -v "$2"
}

# build PACKAGE...: programs of this tree in $target/debug, each as `cargo build -p` makes it, for that is built already where other
# tests ran. DIECUT_STRANGERS_BUILT=1: they are there.
build() {
  local package
  [ -z "${DIECUT_STRANGERS_BUILT:-}" ] || return 0
  for package in "$@"; do cargo build --quiet -p "$package"; done
}

children=()
# What this suite started and mounted ends with it.
clean_up() {
  local child
  # A mount whose process is gone is no mount point any more for those who ask.
  umount -l "$run_folder/mount" 2>/dev/null || true
  for child in "${children[@]}"; do
    kill -KILL "$child" 2>/dev/null || true
    wait "$child" 2>/dev/null || true
  done
  rm -rf "$run_folder" || true
}
trap clean_up EXIT

# serve SETUP: starts `diecut serve` on a set-up file and waits until it listens; its process is $server.
serve() {
  "$target/debug/diecut" serve --setup "$1" >>"$work/server.log" 2>&1 & server=$!
  children+=("$server")
  for _ in $(seq 600); do
    ! grep -q "^Ctrl-C stops the server" "$work/server.log" || return 0
    kill -0 "$server" 2>/dev/null || break
    sleep 0.05
  done
  say "the server does not start; see $work/server.log"; tail -n 5 "$work/server.log"; return 1
}
# A port nobody listens on.
free_port() { python3 -c 'import socket; s = socket.socket(); s.bind(("127.0.0.1", 0)); print(s.getsockname()[1])'; }

# pack NAME PROGRAM: puts a program with the libraries it loads into $work/programs, for a guest.
pack() {
  local folder=$work/programs loader
  mkdir -p "$folder"/{bin,lib,exec}
  cp -L "$2" "$folder/exec/$1"
  ldd "$2" 2>/dev/null | awk '$2 == "=>" && $3 ~ /^\// { print $3 } $1 ~ /^\// { print $1 }' | while read -r library; do
    cp -L "$library" "$folder/lib/"
  done
  loader=$(ldd "$2" 2>/dev/null | awk '$1 ~ /^\/.*ld-linux/ { print $1 }')
  if [ -n "$loader" ]; then
    printf '#!/bin/sh\nexec /programs/lib/%s --argv0 %s --library-path /programs/lib /programs/exec/%s "$@"\n' "${loader##*/}" "$1" "$1" >"$folder/bin/$1"
  else
    printf '#!/bin/sh\nexec /programs/exec/%s "$@"\n' "$1" >"$folder/bin/$1"
  fi
  chmod +x "$folder/bin/$1"
}

# pack_shell: what suites written for bash call and BusyBox has not, or has with other options.
pack_shell() {
  local program path
  for program in bash gawk awk basename cat column cp cut date dd df dirname dmesg env expr fallocate filefrag find findmnt getconf getopt grep head id ln losetup ls lsblk mkdir \
    mktemp mount mountpoint mv nproc readlink realpath rm rmdir sed seq sha256sum sleep sort stat tail tee timeout touch tr truncate umount uname uniq wc xargs comm diff printf; do
    path=$(type -P "$program") || { [ "$program" != bash ] || nothing_to_run "no bash to put into the guest"; say "no $program here"; continue; }
    pack "$program" "$(realpath "$path")"
  done
  [ -e "$work/programs/bin/gawk" ] || { [ ! -e "$work/programs/bin/awk" ] || cp "$work/programs/bin/awk" "$work/programs/bin/gawk"; }
}
