# blktests' group nvme, over TCP, in a guest (tests/hosts/guest/blktests.sh). This server is its remote target: tests that make
# their target with Linux's own are not run, and say so. DIECUT_BLKTESTS: a folder of blktests; DIECUT_BLKTESTS_TESTS: which tests.
suite=blktests
. tests/strangers/library.sh
[ -n "${DIECUT_BLKTESTS:-}" ] || nothing_to_run "no folder of blktests is named (DIECUT_BLKTESTS)"
[ -x "$DIECUT_BLKTESTS/check" ] || nothing_to_run "$DIECUT_BLKTESTS/check is missing (DIECUT_BLKTESTS)"
command -v qemu-system-x86_64 >/dev/null || nothing_to_run "no QEMU for guests (tests/hosts/prepare.sh installs it)"
pack_shell
mkdir -p "$work/programs/blktests"
(cd "$DIECUT_BLKTESTS" && cp -RL check new common tests/nvme --parents "$work/programs/blktests" 2>/dev/null || cp -RL check common tests/nvme --parents "$work/programs/blktests")
[ ! -d "$DIECUT_BLKTESTS/src" ] || cp -RL "$DIECUT_BLKTESTS/src" "$work/programs/blktests/"
tests=${DIECUT_BLKTESTS_TESTS:-$(cd "$DIECUT_BLKTESTS/tests" && ls -d nvme/[0-9][0-9][0-9])}
echo "$tests" >"$work/programs/blktests/list"
say "$(wc -w <<<"$tests") tests under Linux ${DIECUT_STRANGERS_KERNEL:-6.12}"
check blktests env CI=true tests/hosts/run.sh --kernel "${DIECUT_STRANGERS_KERNEL:-6.12}" --scenario blktests \
  --programs "$work/programs" --work "$work/hosts" --verbose
grep -hE '^  (ok|FAIL)|^  \| EVENT skipped|[0-9]+ passed' "$work/blktests.log" | sed 's/^  | EVENT skipped/  not run:/' || true
finish
