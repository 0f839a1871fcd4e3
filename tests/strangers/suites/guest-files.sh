# fsx and fsstress on ext4 and xfs over namespaces of the server, in a guest (tests/hosts/guest/file-systems.sh).
# DIECUT_FSX, DIECUT_FSSTRESS: the programs, if they are not in the PATH. scripts/setup.sh vlfs brings an fsx.
suite=guest-files
. tests/strangers/library.sh
fsx=$(find_program DIECUT_FSX fsx) || fsx=
fsstress=$(find_program DIECUT_FSSTRESS fsstress) || fsstress=
[ -n "$fsx$fsstress" ] || nothing_to_run "neither fsx nor fsstress is here (DIECUT_FSX, DIECUT_FSSTRESS)"
command -v qemu-system-x86_64 >/dev/null || nothing_to_run "no QEMU for guests (tests/hosts/prepare.sh installs it)"
if [ -n "$fsx" ]; then pack fsx "$fsx"; else skip fsx "not here (DIECUT_FSX)"; fi
if [ -n "$fsstress" ]; then pack fsstress "$fsstress"; else skip fsstress "not here (DIECUT_FSSTRESS)"; fi
say "fsx ${fsx:-missing}, fsstress ${fsstress:-missing}, on ext4 and xfs under Linux ${DIECUT_STRANGERS_KERNEL:-6.12}"
check file-systems env CI=true tests/hosts/run.sh --kernel "${DIECUT_STRANGERS_KERNEL:-6.12}" --scenario file-systems \
  --programs "$work/programs" --work "$work/hosts"
grep -hE '^  (ok|FAIL)|[0-9]+ passed' "$work/file-systems.log" || true
finish
