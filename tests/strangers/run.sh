#!/usr/bin/env bash
# Runs suites that others wrote against this server, those that this machine has; says what it did not run, and why.
#
#   tests/strangers/run.sh [--cheap] [SUITE...]      default: all suites; --cheap: those that take a few minutes
#
# Never fails because something is not installed. README.md beside this file says where each suite looks for its programs.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/../.."
all=(guest-files vlfs spdk spdk-zoned rocksdb blktests zoned hostile)
cheap=(guest-files vlfs spdk spdk-zoned)
usage="usage: tests/strangers/run.sh [--cheap] [SUITE...]; suites: ${all[*]}"
suites=()
for word in "$@"; do
  case $word in
  --cheap) suites+=("${cheap[@]}") ;;
  *) [ -e "tests/strangers/suites/$word.sh" ] || { echo "$usage" >&2; exit 2; }; suites+=("$word") ;;
  esac
done
[ ${#suites[@]} -gt 0 ] || suites=("${all[@]}")

passed=0 failed=0 skipped=0 table=
for suite in "${suites[@]}"; do
  echo "== $suite"
  started=$SECONDS
  code=0
  last=$(bash "tests/strangers/suites/$suite.sh" 2>&1 </dev/null | tee >(cat >&2) | tail -n 1; exit "${PIPESTATUS[0]}") || code=$?
  case $code in
  0) passed=$((passed + 1)) verdict=ok ;;
  77) skipped=$((skipped + 1)) verdict=SKIPPED ;;
  *) failed=$((failed + 1)) verdict=FAILED ;;
  esac
  table+=$(printf '%-12s %-8s %4d s  %s' "$suite" "$verdict" $((SECONDS - started)) "$last")$'\n'
done
printf '\n%s' "$table"
if [ $skipped -gt 0 ] || grep -q ' [1-9][0-9]* skipped' <<<"$table"; then
  echo "strangers: ####################################################################"
  echo "strangers: ##  NOT EVERYTHING WAS RUN: see SKIPPED above, and README.md there  ##"
  echo "strangers: ####################################################################"
fi
echo "strangers: $passed passed, $failed failed, $skipped skipped"
[ $failed = 0 ]
