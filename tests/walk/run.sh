#!/usr/bin/env bash
# A newcomer's walk: a clean clone of HEAD, the commands of README.md as they stand there, in the order of its sections "Run" and
# "See isolation at work", and what it promises compared with what comes; then every command of docs/tutorial.md and docs/api.md.
# The transcript is target/walk/transcript.txt.
#
#   tests/walk/run.sh [README [TUTORIAL]]
#
# README, TUTORIAL: other texts to take commands and promises from, to see the walk fail. The clone builds in the target folder of this
# tree, so that dependencies are not built twice. Port 4420 must be free, as for any newcomer.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/../.."
root=$PWD
readme=$(realpath "${1:-README.md}")
tutorial=$(realpath "${2:-docs/tutorial.md}")
target=$(realpath -m "${CARGO_TARGET_DIR:-target}")
work=$target/walk
transcript=$work/transcript.txt
rm -rf "$work"
mkdir -p "$work"
server=

fail() {
  echo "walk: $*; the transcript is $transcript" >&2
  exit 1
}
# The server and all it started, if it still runs.
end_server() { [ -z "$server" ] || kill -KILL -- "-$server" 2>/dev/null || true; }
trap end_server EXIT

# Commands of a section of the README: its indented lines.
commands() { awk -v title="## $1" '$0 == title { on = 1; next } /^## / { on = 0 } on && sub(/^    /, "")' "$readme"; }
# A promise is a text of the README; the walk does not check what the README no longer says.
promised() { tr -s '[:space:]' ' ' < "$readme" | grep -qF -- "$1" || fail "the README no longer says \"$1\""; }
note() { printf '\n$ %s\n' "$*" >> "$transcript"; }
# Runs a line of the README and keeps what it prints.
run() {
  note "$1"
  timeout 1200 bash -c "$1" > "$work/output" 2>&1 || { cat "$work/output" >> "$transcript"; fail "\"$1\" failed"; }
  cat "$work/output" >> "$transcript"
}
shows() { grep -qE -- "$1" "$2" || fail "$3"; }

mapfile -t lines < <(commands Run)
[ "${lines[0]:-}" = "make run" ] || fail "the first command under \"Run\" is \"${lines[0]:-}\", not \"make run\""
mapfile -t demo < <(commands "See isolation at work")
[ "${demo[0]:-}" = "make demo" ] || fail "the first command of the demo is \"${demo[0]:-}\", not \"make demo\""
promised 'prints the `nvme connect` lines for a Linux host and serves until Ctrl-C'
promised 'Started again, everything is still there, also after `kill -9`'
if (exec 3<> /dev/tcp/127.0.0.1/4420) 2>/dev/null; then fail "port 4420 is taken"; fi

git clone --quiet "$root" "$work/clone"
cd "$work/clone"
ln -s "$target" target
export CARGO_TARGET_DIR=$target

# Starts the server as a shell with a terminal would: in a group of its own that Ctrl-C reaches.
start() {
  note "${lines[0]}"
  setsid env --default-signal=INT bash -c "exec ${lines[0]}" > "$work/server" 2>&1 &
  server=$!
  for _ in $(seq 9000); do
    ! grep -q "^Ctrl-C stops the server" "$work/server" || break
    kill -0 "$server" 2>/dev/null || break
    sleep 0.1
  done
  cat "$work/server" >> "$transcript"
  for tenant in a b; do
    shows "^ +nvme connect --transport=tcp --traddr=127.0.0.1 --trsvcid=4420 --nqn=nqn.2026-11.org.diecut:tenant-$tenant\$" \
      "$work/server" "the server prints no nvme connect line for tenant $tenant"
  done
}
# Sends the group a signal and waits for all of it.
stop() {
  note "$2"
  kill "-$1" -- "-$server"
  # The shell itself says of a killed command that it was killed.
  {
    for _ in $(seq 300); do
      kill -0 -- "-$server" || break
      sleep 0.1
    done
    kill -0 -- "-$server" || wait "$server" || true
  } 2> /dev/null
  ! kill -0 -- "-$server" 2>/dev/null || fail "the server goes on after $2"
  server=
}
# What exists, its identities and how much is used: what a restart must not change.
identities() { target/release/diecut --json status | grep -oE '"(uuid|nguid|nqn|name|used)": ?"?[^",}]+' | sort -u; }

echo "walk: make run, for the first time"
start
for line in "${lines[@]:1}"; do run "$line"; done
for word in cnex-1tb fast shared database files tenant-a tenant-b; do
  shows "$word" "$transcript" "status does not tell of $word"
done
# Something to find again.
run "target/release/diecut bench 127.0.0.1:4420 --nqn nqn.2026-11.org.diecut:tenant-a --rw write --bs 64k --iodepth 8 --runtime 2"
before=$(identities)
grep -q '"used": \?[1-9]' <<< "$before" || fail "nothing is used after writes"
stop INT "Ctrl-C"
[ ! -e diecut-data/control.sock ] || fail "Ctrl-C does not end the server cleanly: its socket is left"

echo "walk: again, after Ctrl-C and after kill -9"
start
[ "$(identities)" = "$before" ] || fail "started again, not everything is still there: $(diff <(echo "$before") <(identities))"
stop KILL "kill -9"
start
[ "$(identities)" = "$before" ] || fail "after kill -9, not everything is still there: $(diff <(echo "$before") <(identities))"
stop INT "Ctrl-C"

echo "walk: make demo"
run "${demo[0]}"
for level in channel die software none; do
  shows "$level" "$work/output" "the demo's table has no row for $level isolation"
done
shows "p99" "$work/output" "the demo's table has no p99"

echo "walk: the tutorial"
# A comment behind a command says what the walk does with it: "fails" expects that, "as root" leaves it out, for it needs a kernel module.
skipped=0
while IFS= read -r line <&3; do
  command=${line%%  # *}
  case $line in
    "make run") start ;;
    *"  # as root"*) note "left out: $command"; skipped=$((skipped + 1)) ;;
    *"  # fails"*)
      note "$command"
      if timeout 1200 bash -c "$command" > "$work/output" 2>&1; then fail "\"$command\" passes, and the tutorial says that it fails"; fi
      cat "$work/output" >> "$transcript"
      shows "test result: FAILED" "$work/output" "\"$command\" fails for another reason than its test" ;;
    *) run "$command" ;;
  esac
done 3< <(sed -n 's/^    //p' "$tutorial")
[ -z "$(git status --porcelain --untracked-files=no)" ] || fail "the tutorial leaves changed files behind"
if command -v curl > /dev/null; then
  echo "walk: requests of docs/api.md"
  while IFS= read -r line <&3; do run "$line"; done 3< <(sed -n 's/^    //p' docs/api.md)
else
  echo "walk: REQUESTS OF docs/api.md ARE LEFT OUT: there is no curl"
fi
stop INT "Ctrl-C"
echo "walk: README and tutorial keep their word ($skipped commands need root and were left out); transcript in $transcript"
