#!/usr/bin/env bash
# Servers inside of guests, on drives that the guest's kernel has: one that is written in zones (null_blk), and drives of QEMU under resets of the guest.
#
#   tests/hosts/inner.sh [ARGUMENTS OF diecut-hosts...]
#
# They get the `diecut` of this checkout, without its symbols.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/../.."
target=${CARGO_TARGET_DIR:-target}
[ -n "${DIECUT_HOSTS_BUILT:-}" ] || cargo build --quiet -p diecut-cli
mkdir -p "$target/hosts-programs"
strip -o "$target/hosts-programs/diecut" "$target/debug/diecut"
exec tests/hosts/run.sh --scenario zoned-drive --scenario drives --programs "$target/hosts-programs" "$@"
