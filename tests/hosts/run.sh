#!/usr/bin/env bash
# Real hosts, prepared and run, against the NVMe/TCP target of this repository on two sparse files.
#
#   tests/hosts/run.sh [ARGUMENTS OF diecut-hosts...]
#
# DIECUT_HOSTS_SERVER names another server command. Where QEMU or the guests' packages cannot be had this says so
# loudly; with CI=true that is a failure.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/../.."
if ! tests/hosts/prepare.sh; then
  echo "hosts: ################################################################" >&2
  echo "hosts: ##  REAL HOSTS WERE NOT TESTED: they could not be prepared      ##" >&2
  echo "hosts: ################################################################" >&2
  [ "${CI:-}" != true ] || exit 2
  exit 0
fi
target=${CARGO_TARGET_DIR:-target}
if [ -z "${DIECUT_HOSTS_SERVER:-}" ]; then
  # The target's wire code and controllers over plain files: the media stack is not behind it yet.
  cargo build --quiet -p diecut-target --example file_server
  export DIECUT_HOSTS_SERVER="$target/debug/examples/file_server {port} {folder}"
fi
exec cargo run --quiet -p diecut-hosts -- "$@"
