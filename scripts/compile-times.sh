#!/usr/bin/env bash
# What compiling takes: a clean build of the command line, and builds after a function body of crates/vssd/src/pool.rs changed, of one
# commit or of two in turn.
#
#   scripts/compile-times.sh [BEFORE [AFTER]]
#
# BEFORE, AFTER: commits, HEAD without any. Each is built in a clone of its own below /tmp (or TMPDIR), which is deleted at the end: some
# 4 GB each, and some ten minutes on two cores at rest. The load average is printed beside each clean build; compare figures of a machine
# at rest only.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
root=$PWD
before=${1:-HEAD}
after=${2:-}
[ -n "$after" ] && kinds="before after" || kinds=before
times=5
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
unset CARGO_TARGET_DIR RUSTFLAGS CARGO_PROFILE_DEV_DEBUG
export CARGO_INCREMENTAL=1
for which in $kinds; do
  git clone -q "$root" "$work/$which"
  git -C "$work/$which" checkout -q "$(git rev-parse "${!which}")"
  (cd "$work/$which" && cargo fetch -q)
done
seconds() { # runs a command quietly and prints its wall time
  local start
  start=$(date +%s.%N)
  "$@" > "$work/log" 2>&1 || { cat "$work/log" >&2; exit 1; }
  awk -v start="$start" -v end="$(date +%s.%N)" 'BEGIN { printf "%.1f\n", end - start }'
}
touch_body() { # file, number: the first public function of the file gets another first statement
  sed -i -e '/^        let _ = std::hint::black_box([0-9]*u32);$/d' "$1"
  sed -i -e "0,/^    pub.* fn .* {\$/s//&\n        let _ = std::hint::black_box(${2}u32);/" "$1"
}
median() { sort -n | awk '{ a[NR] = $1 } END { printf "%.1f (%.1f to %.1f)\n", a[int((NR + 1) / 2)], a[1], a[NR] }'; }
echo "$(nproc) cores, $(rustc --version)"
for which in $kinds; do
  cd "$work/$which"
  load=$(cut -d' ' -f1 /proc/loadavg)
  echo "$which ($(git log -1 --format=%h)): clean cargo build -p diecut-cli: $(seconds cargo build -q -p diecut-cli) s (load average $load)"
  seconds cargo check -q -p diecut-cli > /dev/null
done
# In turn, so that a neighbour's load falls on both.
for n in $(seq $times); do
  for which in $kinds; do
    cd "$work/$which"
    touch_body crates/vssd/src/pool.rs "$n"
    seconds cargo check -q -p diecut-cli >> "$work/$which.check"
    seconds cargo build -q -p diecut-cli >> "$work/$which.build"
    seconds cargo build -q -p diecut-vssd >> "$work/$which.vssd" # nothing left to do: what cargo itself takes
  done
done
for which in $kinds; do
  echo "$which: cargo check -p diecut-cli after a change in vssd, s: $(median < "$work/$which.check")"
  echo "$which: cargo build -p diecut-cli after a change in vssd, s: $(median < "$work/$which.build")"
  echo "$which: cargo build with nothing to do, s: $(median < "$work/$which.vssd")"
done
