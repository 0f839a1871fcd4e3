#!/usr/bin/env bash
# Builds RocksDB's plug-in for files on erase blocks, libdiecut_rocksdb.so, and the program that tests kill.
# usage: scripts/rocksdb.sh FOLDER [FOLDER_OF_LIBDIECUT_FILES]
set -euo pipefail
root=$(cd "$(dirname "$0")/.." && pwd)
to=${1:?usage: scripts/rocksdb.sh FOLDER [FOLDER_OF_LIBDIECUT_FILES]}
from=${2:-$root/target/release}
if ! echo '#include <rocksdb/version.h>' | c++ -E -x c++ - >/dev/null 2>&1; then
  echo "rocksdb: ROCKSDB IS NOT THERE: librocksdb-dev is missing; run (as root): make rocksdb, or apt-get install librocksdb-dev rocksdb-tools" >&2
  exit 2
fi
flags=(-std=c++17 -O2 -fPIC -Wall -Wextra -Werror "-I$root/apps/blockfile-abi/include")
mkdir -p "$to"
c++ "${flags[@]}" -shared -o "$to/libdiecut_rocksdb.so" "$root/apps/rocksdb/plugin/diecut_rocksdb.cc" \
  -Wl,--exclude-libs,ALL "$from/libdiecut_files.a" -lrocksdb -lpthread -ldl -lm
c++ "${flags[@]}" -o "$to/ledger" "$root/apps/rocksdb/tests/ledger.cc" -lrocksdb
