#!/usr/bin/env bash
# Makes a fresh Debian or Ubuntu machine ready: system packages and toolchain components. Asks nothing, repeats safely,
# and needs no root when all is there already. With "bench", what the benchmark counts instructions with and measures drives beside, too; with "rocksdb" or
# "leveldb", these databases, which only the plug-ins for them and their tests need; with "vlfs", what only the tests of the file
# system need; with "power", fio and ext4, for the tests of disks that lose power; with "book", mdBook, which makes HTML of the pages. Several words
# are taken, too.
set -euo pipefail
export DEBIAN_FRONTEND=noninteractive
cd "$(dirname "$0")/.."

wants() { case " $wanted " in *" $1 "*) ;; *) return 1 ;; esac; }
wanted="$*"

# Installs packages. Waits where another program installs some.
packages() {
  local wait=DPkg::Lock::Timeout=300
  timeout 600 apt-get update -qq -o "$wait" && timeout 1200 apt-get install -y -qq -o "$wait" --no-install-recommends "$@" >/dev/null
}

missing=()
{ command -v cc && command -v c++; } >/dev/null || missing+=(build-essential)
command -v git >/dev/null || missing+=(git)
command -v pkg-config >/dev/null || missing+=(pkg-config)
command -v setpriv >/dev/null || missing+=(util-linux)
if [ ${#missing[@]} -gt 0 ]; then
  if [ "$(id -u)" != 0 ]; then
    echo "setup: packages are missing and this is not root; run: apt-get install ${missing[*]}" >&2
    exit 2
  fi
  packages "${missing[@]}"
fi

# Only counts instructions: where it cannot be had, the benchmark says that they are missing.
if wants bench && ! command -v valgrind >/dev/null; then
  packages valgrind ||
    echo "setup: VALGRIND CANNOT BE INSTALLED; instructions per operation will be missing" >&2
fi

# Only the tests of apps/rocksdb and `make rocksdb` need it; without they are left out, and in `make test` they fail.
if wants rocksdb &&
  ! { command -v db_bench >/dev/null && echo '#include <rocksdb/version.h>' | c++ -E -x c++ - >/dev/null 2>&1; }; then
  packages librocksdb-dev rocksdb-tools ||
    echo "setup: ROCKSDB CANNOT BE INSTALLED (apt-get install librocksdb-dev rocksdb-tools); the tests of apps/rocksdb will fail" >&2
fi

# Only the tests of apps/leveldb and `make leveldb` need it; without they are left out, and in `make test` they fail. The binding is that of Debian's Python,
# whichever other one is first in the PATH.
if wants leveldb &&
  ! { /usr/bin/python3 -c 'import plyvel' && echo '#include <leveldb/db.h>' | c++ -E -x c++ -; } >/dev/null 2>&1; then
  packages libleveldb-dev python3-plyvel ||
    echo "setup: LEVELDB CANNOT BE INSTALLED (apt-get install libleveldb-dev python3-plyvel); the tests of apps/leveldb will fail" >&2
fi

# Only the tests of apps/vlfs need it; without they are left out, and in `make test` they fail. Who is root mounts without fusermount3.
if wants vlfs && ! { command -v fusermount3 && command -v umount; } >/dev/null; then
  packages fuse3 mount ||
    echo "setup: FUSE CANNOT BE INSTALLED (apt-get install fuse3 mount); the tests of apps/vlfs may fail" >&2
fi

# Only tests of tests/power and crates/cli and the rows of drives in `make bench` need it; without they are left out, and in `make test` these tests fail.
if { wants power || wants bench; } && ! command -v fio >/dev/null; then
  packages fio ||
    echo "setup: FIO CANNOT BE INSTALLED (apt-get install fio); tests of tests/power and crates/cli will fail, and rows of \`make bench\` will be missing" >&2
fi

# Only the tests of crates/cli/tests/cuts need it; without it they are left out, and in `make test` they fail.
if wants power && ! { command -v losetup && command -v mount && command -v mkfs.ext4 && command -v e2fsck; } >/dev/null; then
  packages mount e2fsprogs ||
    echo "setup: EXT4 CANNOT BE MADE (apt-get install mount e2fsprogs); tests of crates/cli will fail" >&2
fi

# PostgreSQL's package makes a cluster of its own and starts it, if it is not told otherwise.
if wants vlfs && ! compgen -G "/usr/lib/postgresql/*/bin/pg_amcheck" >/dev/null; then
  settings=/etc/postgresql-common/createcluster.d/diecut-setup.conf
  { mkdir -p "${settings%/*}" && echo "create_main_cluster = false" >"$settings" &&
    packages postgresql; } ||
    echo "setup: POSTGRESQL CANNOT BE INSTALLED (apt-get install postgresql); a test of apps/vlfs will fail" >&2
  rm -f "$settings"
fi

if ! command -v cargo >/dev/null; then
  echo "setup: no Rust toolchain here; install rustup, then run this again (the version is pinned in rust-toolchain.toml)" >&2
  exit 2
fi
# rustup installs the pinned toolchain with its components on first use; say so instead of seeming to hang.
for component in fmt clippy; do
  if ! cargo "$component" --version >/dev/null 2>&1; then
    echo "setup: the toolchain of rust-toolchain.toml lacks $component"
    command -v rustup >/dev/null || { echo "setup: and there is no rustup to add it" >&2; exit 2; }
    case $component in fmt) rustup component add rustfmt ;; *) rustup component add "$component" ;; esac
  fi
done

# A program as its authors released it: name, version, what fails without it, and arguments for cargo. It is compiled without
# optimization: it works for seconds, and would be compiled for minutes.
tool() {
  local root=${CARGO_TARGET_DIR:-target}/tools name=$1 version=$2 fails=$3 found
  shift 3
  found=$("$root/bin/$name" --version 2>/dev/null) || true
  [ "${found/ v/ }" = "$name $version" ] && return
  CARGO_PROFILE_RELEASE_OPT_LEVEL=0 CARGO_PROFILE_RELEASE_LTO=off \
    timeout 1200 cargo install --quiet --locked --version "$version" --root "$root" "$name" "$@" ||
    echo "setup: $name $version CANNOT BE INSTALLED (cargo install); $fails will fail" >&2
}
# The suites that apps/vlfs must pass.
if wants vlfs; then
  tool fsx 0.3.2 "the tests of apps/vlfs"
  tool pjdfstest 0.2.2 "the tests of apps/vlfs"
fi
if wants book; then
  tool mdbook 0.5.4 "cargo xtask book" --no-default-features --features search
fi
