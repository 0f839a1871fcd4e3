#!/usr/bin/env bash
# Installs the C interface of erase blocks: diecut.h, libdiecut.so, libdiecut.a and diecut.pc.
# usage: scripts/install.sh PREFIX [FOLDER_OF_THE_LIBRARIES]; DESTDIR=... puts it elsewhere for a package.
set -euo pipefail
root=$(cd "$(dirname "$0")/.." && pwd)
prefix=${1:?usage: scripts/install.sh PREFIX [FOLDER_OF_THE_LIBRARIES]}
from=${2:-$root/target/release}
to=${DESTDIR:-}$prefix
version=$(sed -n 's/^version = "\(.*\)"$/\1/p' "$root/Cargo.toml" | head -1)
abi=$(sed -n 's/^#define DIECUT_ABI_VERSION //p' "$root/crates/abi/include/diecut.h")

install -d "$to/include" "$to/lib/pkgconfig"
install -m 644 "$root/crates/abi/include/diecut.h" "$to/include/diecut.h"
install -m 644 "$from/libdiecut.a" "$to/lib/libdiecut.a"
install -m 755 "$from/libdiecut.so" "$to/lib/libdiecut.so.$abi"
ln -sf "libdiecut.so.$abi" "$to/lib/libdiecut.so"
cat > "$to/lib/pkgconfig/diecut.pc" <<END
prefix=$prefix
libdir=\${prefix}/lib
includedir=\${prefix}/include

Name: diecut
Description: erase blocks of a virtual SSD for applications
Version: $version
Cflags: -I\${includedir}
Libs: -L\${libdir} -ldiecut
Libs.private: -lpthread -ldl -lm
END
