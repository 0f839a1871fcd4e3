#!/usr/bin/env bash
# Real hosts, prepared and run, against the server of this repository on an emulated device in a sparse file.
#
#   tests/hosts/run.sh [ARGUMENTS OF diecut-hosts...]
#
# DIECUT_HOSTS_SERVER names another server command, DIECUT_HOSTS_ADMINISTER one that administers it.
# DIECUT_HOSTS_BUILT=1: target/debug/diecut is taken as it is. Where QEMU or the
# guests' packages cannot be had this says so loudly; with CI=true that is a failure.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/../.."
if ! tests/hosts/prepare.sh; then
  echo "hosts: ################################################################" >&2
  echo "hosts: ##  REAL HOSTS WERE NOT TESTED: they could not be prepared      ##" >&2
  echo "hosts: ################################################################" >&2
  [ "${CI:-}" != true ] || exit 2
  exit 0
fi
if [ -z "${DIECUT_HOSTS_SERVER:-}" ]; then
  [ -n "${DIECUT_HOSTS_BUILT:-}" ] || cargo build --quiet -p diecut-cli
  export DIECUT_HOSTS_SERVER="tests/hosts/serve.sh {port} {folder}"
  export DIECUT_HOSTS_ADMINISTER="tests/hosts/administer.sh {folder}"
fi
exec cargo run --quiet -p diecut-hosts -- "$@"
