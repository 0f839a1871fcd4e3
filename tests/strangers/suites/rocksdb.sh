# RocksDB's own crash test on the plug-in for erase blocks: db_crashtest.py runs db_stress, kills it with signal 9 again and again,
# and compares what is there with what was acknowledged.
# DIECUT_ROCKSDB: a folder of RocksDB's sources in which db_stress was built with its shared library (LIB_MODE=shared);
# DIECUT_ROCKSDB_SECONDS: how long; the plug-in is built for the RocksDB that the compiler finds, which must be the same version.
suite=rocksdb
. tests/strangers/library.sh
[ -n "${DIECUT_ROCKSDB:-}" ] || nothing_to_run "no sources of RocksDB are named (DIECUT_ROCKSDB)"
crashtest=$DIECUT_ROCKSDB/tools/db_crashtest.py
[ -e "$crashtest" ] || nothing_to_run "$crashtest is missing (DIECUT_ROCKSDB)"
[ -x "$DIECUT_ROCKSDB/db_stress" ] || nothing_to_run "$DIECUT_ROCKSDB/db_stress is missing (DIECUT_ROCKSDB)"
echo '#include <rocksdb/version.h>' | c++ -E -x c++ - >/dev/null 2>&1 || nothing_to_run "no RocksDB to build the plug-in for (scripts/setup.sh rocksdb)"
build diecut-cli diecut-blockfile-abi
scripts/plugin.sh rocksdb "$work/plugin" "$target/debug"
cat >"$work/setup.toml" <<SETUP
[server]
listen = "127.0.0.1:$(free_port)"
data = "$run_folder/data"
[device]
profile = "$PWD/tests/hosts/device.toml"
protected_memory = "64 MiB"
[[tenant]]
name = "a"
[[vssd]]
name = "db"
tenant = "a"
isolation = "channel"
throughput_level = 2
capacity = "1 GiB"
use = "blocks"
SETUP
serve "$work/setup.toml"
# Only db_stress is to load the plug-in, not Python.
cat >"$work/db_stress" <<STRESS
#!/bin/sh
exec env LD_PRELOAD="$work/plugin/libdiecut_rocksdb.so" "$DIECUT_ROCKSDB/db_stress" "\$@"
STRESS
chmod +x "$work/db_stress"
mkdir "$run_folder/db"
seconds=${DIECUT_ROCKSDB_SECONDS:-60}
# What the file system of the plug-in has not: mmap, and the direct writes that db_stress checks for on the local disk.
crash() {
  TEST_TMPDIR=$run_folder/db DEBUG_LEVEL=0 timeout $((seconds + 300)) python3 "$crashtest" blackbox --simple --stress_cmd="$work/db_stress" \
    --duration="$seconds" --interval=6 --max_key=20000 --write_buffer_size=1048576 --target_file_size_base=1048576 \
    --max_bytes_for_level_base=4194304 --ops_per_thread=100000000 --threads=4 --value_size_mult=32 --sync=1 \
    --mmap_read=0 --compression_type=none --bottommost_compression_type=none \
    "--fs_uri=diecut://db@$run_folder/data/blocks.sock"
}
# What `check` writes to cannot be searched meanwhile, and an option on the command line has the word, too.
runs_and_kills() {
  local out=$work/$1.out code=0
  crash >"$out" 2>&1 || code=$?
  cat "$out"
  [ $code = 0 ] && [ "$(grep -c '^KILLED' "$out")" -ge 3 ] && ! grep -v '^Running db_stress' "$out" | grep -iE 'verification failed|corruption'
}
check db-crashtest runs_and_kills db-crashtest
say "$(grep -c '^KILLED' "$work/db-crashtest.log" || true) kills of db_stress"
lives() { kill -0 "$server"; }
check the-server-lives lives
finish
