#!/usr/bin/env bash
# What scenarios ask of the administrator of a server that serve.sh started in FOLDER, with two shards:
#
#   tests/hosts/administer.sh FOLDER apart          tenants a and b live on different shards, or this fails
#   tests/hosts/administer.sh FOLDER swap TENANT    brings the tenant (a or b) to the other shard, and looks whether it is there
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/../.."
folder=$1 what=$2
diecut() { "${CARGO_TARGET_DIR:-target}/debug/diecut" --socket "$folder/data/control.sock" "$@"; }
# Each tenant's vSSD has its name.
home_of() {
  local home
  home=$(diecut vssd show "$1" --json | grep -oE '"shard": *[0-9]+' | grep -oE '[0-9]+') || { echo "vSSD $1 names no shard" >&2; exit 1; }
  echo "$home"
}
case $what in
  apart)
    a=$(home_of a) b=$(home_of b)
    echo "tenant a on shard $a, tenant b on shard $b"
    [ "$a" != "$b" ] || { echo "both tenants are on shard $a" >&2; exit 1; }
    ;;
  swap)
    tenant=$3 from=$(home_of "$3")
    to=$((1 - from))
    diecut tenant move "$tenant" --shard $to
    now=$(home_of "$tenant")
    echo "tenant $tenant from shard $from to $now"
    [ "$now" = $to ] || { echo "tenant $tenant is on shard $now, not on $to" >&2; exit 1; }
    ;;
  *) echo "unknown: $what" >&2; exit 2 ;;
esac
