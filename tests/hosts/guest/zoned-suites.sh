# Suites of others about zones, against a zoned namespace: xNVMe's tools, examples and tests for zones, blktests' group zbd, the tests of
# zonefs-tools, and dm-zoned. Those that make their device with null_blk, scsi_debug or dm say so and are not run.
. /scenario/library.sh
modprobe nvme-core multipath=N; modprobe nvme-tcp; modprobe null_blk nr_devices=0; modprobe zonefs; modprobe dm-mod; modprobe configfs
mount -t configfs config /sys/kernel/config 2>/dev/null
export PATH=/programs/bin:/newer/bin:$PATH HOME=/tmp
ln -sf /programs/bin/bash /usr/bin/bash; ln -sf /programs/bin/bash /bin/bash 2>/dev/null
printf '#!/bin/sh\nexit 0\n' >/usr/sbin/udevadm && chmod +x /usr/sbin/udevadm
check connect timeout 30 nvme connect $fabric $me -n "$NQN_ZONES" -k 5 -c 1 -l 180
check zones-appear within 15 has_device "$NQN_ZONES"
sleep 1
Z=$(device_of "$NQN_ZONES" 1); R=$(device_of "$NQN_ZONES" 2)
if [ ! -b "$Z" ]; then echo "no zoned device, nothing more to test"; exit 0; fi

printf '#!/bin/sh\nexec grep "$@"\n' >/usr/bin/zgrep && chmod +x /usr/bin/zgrep
if [ -x /programs/bin/zoned ]; then
  # By the character devices, and so by commands of io_uring.
  G=$(generic_of "$Z"); A=$(generic_of "$R")
  for command in info idfy-ctrlr idfy-ns changes errors report; do check "xnvme-zoned-$command" timeout 60 zoned $command "$G"; done
  check xnvme-zoned-reset timeout 60 zoned mgmt-reset "$G" --slba 0x0
  check xnvme-zoned-write timeout 60 zoned write "$G" --slba 0x0 --nlb 3
  check xnvme-zoned-append timeout 60 zoned append "$G" --slba 0x0 --nlb 3
  check xnvme-zoned-read timeout 60 zoned read "$G" --slba 0x0 --nlb 3
  for command in mgmt-open mgmt-close mgmt-finish mgmt-reset; do check "xnvme-zoned-$command" timeout 60 zoned $command "$G" --slba 0x400; done
  for how in sync async; do
    for command in write read; do
      [ $command = read ] || check "xnvme-io-$how-reset" timeout 60 zoned mgmt-reset "$G" --slba 0x800
      check "xnvme-io-$how-$command" timeout 120 zoned_io_$how $command "$G" --slba 0x800
    done
  done
  check xnvme-io-async-append-reset timeout 60 zoned mgmt-reset "$G" --slba 0xc00
  check xnvme-io-async-append timeout 120 zoned_io_async append "$G" --slba 0xc00
  check xnvme-test-append timeout 120 xnvme_tests_znd_append verify "$G"
  for test in transition changes; do check "xnvme-test-state-$test" timeout 120 xnvme_tests_znd_state $test "$G"; done
  echo "EVENT skipped xnvme-test-explicit-open: it sends an extension with Open and wants it kept; that is another action (ZNS 1.1 section 3.4.3)"
  for test in support idfy open-with-zrwa open-without-zrwa flush flush-explicit flush-implicit; do
    check "xnvme-test-zrwa-$test" timeout 120 xnvme_tests_znd_zrwa $test "$A"
  done
  nvme zns reset-zone "$Z" -a; nvme zns reset-zone "$R" -a
fi
if [ -d /programs/blktests ]; then
  mkdir -p /tmp/blktests && cp -r /programs/blktests/. /tmp/blktests && cd /tmp/blktests || exit 1
  printf 'TEST_DEVS=(%s)\nQUICK_RUN=1\nTIMEOUT=20\n' "$Z" >config
  for test in zbd/001 zbd/002 zbd/003 zbd/004 zbd/005 zbd/006 zbd/007; do blktest 240 "$test"; done
fi

if [ -d /programs/zonefs-tests ]; then
  mkdir -p /tmp/zonefs && cp -r /programs/zonefs-tests/. /tmp/zonefs && cd /tmp/zonefs || exit 1
  check reset-for-zonefs nvme zns reset-zone "$Z" -a
  printf '#!/bin/sh\nexec "$@"\n' >/usr/bin/sudo && chmod +x /usr/bin/sudo
  timeout 1500 ./zonefs-tests.sh -s "$Z" >/tmp/zonefs.out 2>&1
  # Test 0312 in its short form writes files smaller than its own blocks, so nothing, where zones are of 4 MiB.
  sed -i '/^  Test 0312/d' /tmp/zonefs.out; timeout 300 ./zonefs-tests.sh -t 0312 "$Z" >>/tmp/zonefs.out 2>&1
  # One check for each of its tests, by its own verdict.
  tr -d '\033' </tmp/zonefs.out | sed 's/\[[0-9;]*m//g' >/tmp/zonefs.plain
  tail -n 6 /tmp/zonefs.plain
  sed -n 's/^  Test \([0-9]*\): *\(.*[^ ]\) *\.\.\. *\(PASS\|FAIL\|skip\).*/\1 \3 \2/p' /tmp/zonefs.plain >/tmp/zonefs.list
  while read -r number verdict what; do
    case $verdict in
      skip) echo "EVENT skipped zonefs-$number: $what" ;;
      *)
        zonefs_verdict() { echo "$what"; [ "$verdict" = PASS ] || { tail -n 15 "logs/${Z##*/}/$number.log"; return 1; }; }
        check "zonefs-$number" zonefs_verdict ;;
    esac
  done </tmp/zonefs.list
  check zonefs-tests-ran test "$(grep -c PASS /tmp/zonefs.list)" -gt 20
fi
# A device for random writes out of zones and, for its metadata and as a cache, a namespace without zones.
if [ -x /programs/bin/dmzadm ]; then
  modprobe dm-zoned; modprobe ext4
  check connect-cache timeout 30 nvme connect $fabric $me -n "$NQN_A" -k 5 -c 1 -l 180
  check cache-appears within 15 has_device "$NQN_A"
  sleep 1
  C=$(device_of "$NQN_A")
  check dm-zoned-reset nvme zns reset-zone "$Z" -a
  check dm-zoned-format timeout 200 dmzadm --format "$C" "$Z" --label=zoned
  check dm-zoned-check timeout 100 dmzadm --check "$C" "$Z"
  # dmzadm finds what it stops by the node that udev would have made.
  mapped() {
    for block in /sys/block/dm-*; do
      [ -e "$block" ] || continue
      mkdir -p /dev/mapper; rm -f "/dev/mapper/$(cat "$block/dm/name")"
      mknod "/dev/mapper/$(cat "$block/dm/name")" b "$(cut -d: -f1 "$block/dev")" "$(cut -d: -f2 "$block/dev")"
      echo "/dev/${block##*/}"; return
    done
    return 1
  }
  check dm-zoned-start timeout 100 dmzadm --start "$C" "$Z"
  check dm-zoned-appears within 15 mapped
  D=$(mapped)
  check dm-zoned-fio fio_verify dm-zoned "$D" 48m 51 $on_device
  check dm-zoned-mkfs mkfs.ext4 -q -F "$D"
  mkdir -p /mnt/d
  check dm-zoned-mount mount -t ext4 "$D" /mnt/d
  check dm-zoned-fio-on-ext4 fio_verify file /mnt/d/file 32m 52 --fallocate=none
  check dm-zoned-unmount umount /mnt/d
  # After ten quiet seconds it moves what lies in the cache to zones.
  zones_hold() { nvme zns report-zones "$Z" -d 128 | grep -i 'SLBA: ' | grep -qvi 'State: 0x10 '; }
  check dm-zoned-moves-to-zones within 60 zones_hold
  check dm-zoned-stop timeout 100 dmzadm --stop "$C" "$Z"
  check dm-zoned-check-again timeout 100 dmzadm --check "$C" "$Z"
  check dm-zoned-start-again timeout 100 dmzadm --start "$C" "$Z"
  within 15 mapped >/dev/null; D=$(mapped)
  check dm-zoned-fsck e2fsck -fn "$D"
  check dm-zoned-mount-again mount -t ext4 "$D" /mnt/d
  check dm-zoned-reread fio_reread file /mnt/d/file 32m 52 --fallocate=none
  umount /mnt/d
  check dm-zoned-stop-again timeout 100 dmzadm --stop "$C" "$Z"
fi
check disconnect-all nvme disconnect-all
exit 0
