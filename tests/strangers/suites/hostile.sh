# The hostile clients of tests/strangers/hostile for longer than the tests of crates/daemon run them: what a good tenant feels
# under each attack is printed, and the server must live on, below its limit of memory.
# DIECUT_HOSTILE_SECONDS: length of each measurement.
suite=hostile
. tests/strangers/library.sh
build diecut-cli diecut-hostile
port=$(free_port)
nqn=nqn.2026-11.org.diecut
limit_mib=512
{
  printf '[server]\nlisten = "127.0.0.1:%s"\ndata = "%s/data"\nmemory_limit = "%s MiB"\n' "$port" "$run_folder" $limit_mib
  printf '[device]\nprofile = "%s/tests/hosts/device.toml"\n' "$PWD"
  for name in good attacked; do
    cat <<SETUP
[[tenant]]
name = "$name"
[[vssd]]
name = "$name"
tenant = "$name"
isolation = "channel"
throughput_level = 1
capacity = "256 MiB"
[[volume]]
name = "$name"
vssd = "$name"
size = "128 MiB"
[[subsystem]]
nqn = "$nqn:$name"
tenant = "$name"
allow_any_host = true
namespaces = [{ nsid = 1, volume = "$name" }]
SETUP
  done
} >"$work/setup.toml"
serve "$work/setup.toml"
attack() { timeout 900 "$target/debug/diecut-hostile" "127.0.0.1:$port" "$server" "$nqn:good" "$nqn:attacked" 400 "${DIECUT_HOSTILE_SECONDS:-3}"; }
memory_stayed() { awk -v limit=$limit_mib '/^anonymous memory/ { print; seen = 1; for (i = 1; i <= NF; i++) if ($i == "at") most = $(i - 2) } END { exit !(seen && most > 0 && most < limit) }' "$work/attack.log"; }
nobody_lost_a_command() { grep ' errors ' "$work/attack.log" && ! grep -E ' [1-9][0-9]* errors ' "$work/attack.log"; }
lives() { kill -0 "$server" && "$target/debug/diecut" --socket "$run_folder/data/control.sock" status; }
check attack attack
cat "$work/attack.log"
check memory-stayed memory_stayed
check nobody-lost-a-command nobody_lost_a_command
check the-server-lives lives
finish
