# Suites about zones in a guest, against a zoned namespace (tests/hosts/guest/zoned-suites.sh): xNVMe's programs for zones, blktests'
# group zbd, the tests of zonefs-tools and dm-zoned. DIECUT_XNVME: a folder in which xNVMe was built; DIECUT_BLKTESTS: one of blktests, made;
# DIECUT_ZONEFS_TOOLS: one of zonefs-tools, configured --with-tests and made; DIECUT_DMZADM: the program of dm-zoned-tools.
suite=zoned
. tests/strangers/library.sh
command -v qemu-system-x86_64 >/dev/null || nothing_to_run "no QEMU for guests (tests/hosts/prepare.sh installs it)"
mkdir -p "$work/programs"
if [ -x "${DIECUT_XNVME:-}/tools/zoned" ]; then
  for program in tools/zoned examples/zoned_io_sync examples/zoned_io_async tests/xnvme_tests_znd_{append,explicit_open,state,zrwa}; do
    pack "$(basename $program)" "$DIECUT_XNVME/$program"
  done
else
  skip xnvme "no folder of a built xNVMe is named (DIECUT_XNVME)"
fi
if [ -x "${DIECUT_BLKTESTS:-}/check" ]; then
  mkdir -p "$work/programs/blktests/tests"
  (cd "$DIECUT_BLKTESTS" && cp -RL check common src "$work/programs/blktests/" && cp -RL tests/zbd "$work/programs/blktests/tests/")
  for program in "$DIECUT_BLKTESTS"/src/*; do
    # Programs of the machine run by their own loader in the guest.
    if [ -f "$program" ] && [ -x "$program" ] && ldd "$program" >/dev/null 2>&1; then
      pack "$(basename "$program")" "$program" && cp "$work/programs/bin/$(basename "$program")" "$work/programs/blktests/src/"
    fi
  done
else
  skip blktests "no folder of blktests is named (DIECUT_BLKTESTS)"
fi
if [ -x "${DIECUT_ZONEFS_TOOLS:-}/tests/tools/zio" ]; then
  mkdir -p "$work/programs/zonefs-tests/tools"
  cp -RL "$DIECUT_ZONEFS_TOOLS"/tests/{scripts,zonefs-tests.sh} "$work/programs/zonefs-tests/"
  for program in zio zopen; do pack $program "$DIECUT_ZONEFS_TOOLS/tests/tools/$program"; cp "$work/programs/bin/$program" "$work/programs/zonefs-tests/tools/"; done
else
  skip zonefs "no folder of zonefs-tools with tests is named (DIECUT_ZONEFS_TOOLS)"
fi
if [ -x "${DIECUT_DMZADM:-}" ]; then pack dmzadm "$DIECUT_DMZADM"; else skip dm-zoned "no dmzadm of dm-zoned-tools is named (DIECUT_DMZADM)"; fi
[ -x "$work/programs/bin/dmzadm" ] || [ -x "$work/programs/bin/zoned" ] || [ -d "$work/programs/blktests" ] || [ -d "$work/programs/zonefs-tests" ] || nothing_to_run "none of its suites is here"
pack_shell
check zoned env CI=true tests/hosts/run.sh --kernel "${DIECUT_STRANGERS_KERNEL:-6.12}" --scenario zoned-suites \
  --programs "$work/programs" --work "$work/hosts" --verbose
grep -hE '^  (ok|FAIL)|^  \| EVENT skipped|[0-9]+ passed' "$work/zoned.log" | sed 's/^  | EVENT skipped/  not run:/' || true
finish
