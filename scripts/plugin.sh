#!/usr/bin/env bash
# Builds the plug-in of a database for files on erase blocks, libdiecut_NAME.so, and the program that tests kill, NAME-ledger.
# usage: scripts/plugin.sh rocksdb|leveldb FOLDER [FOLDER_OF_LIBDIECUT_FILES]
set -euo pipefail
usage="usage: scripts/plugin.sh rocksdb|leveldb FOLDER [FOLDER_OF_LIBDIECUT_FILES]"
root=$(cd "$(dirname "$0")/.." && pwd)
name=${1:?$usage}
to=${2:?$usage}
from=${3:-$root/target/release}
case $name in
rocksdb) header=rocksdb/version.h packages="librocksdb-dev rocksdb-tools" own=() ;;
# LevelDB is built without run-time types, so there are none to inherit.
leveldb) header=leveldb/db.h packages="libleveldb-dev python3-plyvel" own=(-fno-rtti) ;;
*) echo "$usage" >&2; exit 2 ;;
esac
if ! echo "#include <$header>" | c++ -E -x c++ - >/dev/null 2>&1; then
  echo "$name: ${name^^} IS NOT THERE: ${packages%% *} is missing; run (as root): make $name, or apt-get install $packages" >&2
  exit 2
fi
app=$root/apps/$name
flags=(-std=c++17 -O2 -fPIC -Wall -Wextra -Werror "-I$root/apps/blockfile-abi/include" "-I$app/include")
mkdir -p "$to"
c++ "${flags[@]}" "${own[@]}" -shared -o "$to/libdiecut_$name.so" "$app/plugin/diecut_$name.cc" \
  -Wl,--exclude-libs,ALL "$from/libdiecut_files.a" "-l$name" -lpthread -ldl -lm
# Who links with LevelDB's plug-in does it before LevelDB; RocksDB's has nothing to link with.
case $name in leveldb) own=("-L$to" -ldiecut_leveldb '-Wl,-rpath,$ORIGIN') ;; esac
c++ "${flags[@]}" "-I$root/apps/blockfile-abi/tests/ledger" -o "$to/$name-ledger" "$app/tests/ledger.cc" "${own[@]}" "-l$name"
