# Zoned namespaces as Linux and its tools see them: identification, reports, every zone command, limits, append, random write areas, fio in
# zone mode, btrfs, zonefs and f2fs on zones, and write pointers after the server was killed.
. /scenario/library.sh
# Without native multipath: with it Linux 6.12 counts a write to a zone twice when it is sent again after a path was lost (a warning of
# percpu_ref, and I/O that hangs), whatever the target is.
modprobe nvme-core multipath=N; modprobe nvme-tcp
check connect-zones timeout 30 nvme connect $fabric $me -n "$NQN_ZONES" -k 5 -c 1 -l 180
check zones-appear within 15 has_device "$NQN_ZONES"
sleep 1
controller=$(controller_of "$NQN_ZONES")
# Namespace 1: zones of two erase blocks, 4 MiB. Namespace 2: zones of one, with random write areas and descriptor extensions.
Z=$(device_of "$NQN_ZONES" 1); R=$(device_of "$NQN_ZONES" 2)
if [ ! -b "$Z" ] || [ ! -b "$R" ]; then echo "no zoned devices, nothing more to test"; nvme list; dmesg | tail -n 20; exit 0; fi
queue=/sys/block/${Z##*/}/queue

# --- what Linux makes of it ---
is_zoned() { cat "$queue/zoned" "$queue/chunk_sectors" "$queue/nr_zones" "$queue/max_active_zones" "$queue/max_open_zones"; [ "$(cat "$queue/zoned")" = host-managed ]; }
check linux-sees-zones is_zoned
check zone-size-is-4-MiB test "$(cat "$queue/chunk_sectors")" = 8192
check limits-are-told test "$(cat "$queue/max_active_zones")" = 10 -a "$(cat "$queue/max_open_zones")" = 6
appends() { cat "$queue/zone_append_max_bytes"; [ "$(cat "$queue/zone_append_max_bytes")" -gt 0 ]; }
check zone-append-is-used appends
check id-ctrl nvme zns id-ctrl "/dev/${controller##*/}"
id_ns() { nvme zns id-ns "$1" >/tmp/idns && cat /tmp/idns; }
check id-ns id_ns "$Z"
has_areas() { id_ns "$R" && grep -Eq 'numzrwa *: *(0x)?4' /tmp/idns && grep -Eq 'zrwasz *: *(0x)?1[06]' /tmp/idns && grep -q 'zdes: *1' /tmp/idns; }
check id-ns-tells-random-areas-and-extensions has_areas
csi() { nvme ns-descs "$Z" >/tmp/descs && cat /tmp/descs && grep -qi 'csi *: *0x2' /tmp/descs; }
check descriptors-name-the-command-set csi
effects() { nvme effects-log "/dev/${controller##*/}" --csi=2 >/tmp/effects 2>&1 || nvme effects-log "/dev/${controller##*/}" >/tmp/effects; cat /tmp/effects; }
check effects-log effects

# --- states: what nvme zns report-zones says of a zone: 10h empty, 20h and 30h open, 40h closed, e0h full ---
read_blocks() { rm -f /tmp/read; nvme read "$1" -s "$2" -c $(($3 - 1)) -z $(($3 * 4096)) -d /tmp/read; }
zone() { nvme zns report-zones "$1" -d 1 -s "$2" 2>/dev/null | grep -i 'SLBA: *'; }
zone_is() { zone "$1" "$2" | tee /tmp/zone; grep -qi "State: $3 " /tmp/zone || { echo "not $3"; return 1; }; }
pointer_is() { zone "$1" "$2" | tee /tmp/zone; [ "$(($(sed -n 's/.*WP: *\(0x[0-9a-fA-F]*\).*/\1/p' /tmp/zone)))" = "$3" ]; }
write_blocks() { head -c $(($3 * 4096)) /dev/urandom >/tmp/blocks && nvme write "$1" -s "$2" -c $(($3 - 1)) -z $(($3 * 4096)) -d /tmp/blocks; }
check report-all nvme zns report-zones "$Z" -d 4
check starts-empty zone_is "$Z" 0 0x10
check write-opens write_blocks "$Z" 0 4
check implicitly-open zone_is "$Z" 0 0x20
check pointer-after-write pointer_is "$Z" 0 4
reads_back() { read_blocks "$Z" 0 4 && cmp /tmp/read /tmp/blocks; }
check reads-back reads_back
check write-elsewhere-is-refused refused write_blocks "$Z" 5 1
check write-over-is-refused refused write_blocks "$Z" 0 1
check close nvme zns close-zone "$Z" -s 0
check closed zone_is "$Z" 0 0x40
check open nvme zns open-zone "$Z" -s 0
check explicitly-open zone_is "$Z" 0 0x30
append_blocks() { head -c 8192 /dev/urandom >/tmp/appended && nvme zns zone-append "$Z" -s 0 -z 8192 -d /tmp/appended; }
check append append_blocks
check pointer-after-append pointer_is "$Z" 0 6
appended() { read_blocks "$Z" 4 2 && cmp /tmp/read /tmp/appended; }
check append-reads-back appended
check finish nvme zns finish-zone "$Z" -s 0
check full zone_is "$Z" 0 0xe0
check write-to-full-is-refused refused write_blocks "$Z" 6 1
check reset-zone nvme zns reset-zone "$Z" -s 0
check empty-again zone_is "$Z" 0 0x10
zeros_after_reset() { read_blocks "$Z" 0 4 && [ "$(tr -d '\000' </tmp/read | wc -c)" = 0 ]; }
check reset-reads-zero zeros_after_reset
check offline-is-refused refused nvme zns offline-zone "$Z" -s 0
limit() { for zone in 0 1 2 3 4 5; do nvme zns open-zone "$Z" -s $((zone * 1024)) || return 1; done; refused nvme zns open-zone "$Z" -s 6144; }
check open-limit limit
check reset-all nvme zns reset-zone "$Z" -a
check all-empty sh -c "! /usr/sbin/blkzone report $Z | grep -v 'zcond: 1(em)'"
check blkzone-reset /usr/sbin/blkzone reset "$Z"

# --- random write areas and descriptor extensions ---
random_area() {
  nvme zns open-zone "$R" -s 0 -r || nvme zns open-zone "$R" -s 0 --zrwaa || return 1
  write_blocks "$R" 3 1 && write_blocks "$R" 0 4 && write_blocks "$R" 1 1 && cp /tmp/blocks /tmp/kept1 || return 1
  pointer_is "$R" 0 0 && nvme zns zrwa-flush-zone "$R" -l 7 && pointer_is "$R" 0 8
}
check random-write-area random_area
area_reads() { read_blocks "$R" 1 1 && cmp /tmp/read /tmp/kept1; }
check random-write-area-reads-back area_reads
extension() { head -c 64 /dev/urandom >/tmp/extension && nvme zns set-zone-desc "$R" -s 512 -d /tmp/extension && zone_is "$R" 512 0x40 && nvme zns report-zones "$R" -e -d 2; }
check descriptor-extension extension

# --- fio in zone mode, with verification ---
zoned_fio() { unpiped timeout 250 fio --name=zoned --filename="$Z" --zonemode=zbd --direct=1 --ioengine=libaio --bs=16k --iodepth=8 --size=48m --max_open_zones=4 --verify=crc32c --verify_fatal=1 --thread $on_device --output-format=terse --terse-version=3 "$@"; }
check fio-sequential zoned_fio --rw=write --do_verify=1
check fio-random zoned_fio --rw=randwrite --do_verify=1

# --- the server dies while zones are written ---
check reset-before nvme zns reset-zone "$Z" -a
check three-blocks write_blocks "$Z" 0 3
cp /tmp/blocks /tmp/three
check finish-another sh -c "head -c 4096 /dev/urandom >/tmp/one && nvme write $Z -s 1024 -c 0 -z 4096 -d /tmp/one && nvme zns finish-zone $Z -s 1024"
# fio first asks for the zones, and no kernel asks again where that question is lost.
writes_of() { awk '{ print $5 }' "/sys/block/${1##*/}/stat"; }
has_written() { [ "$(writes_of "$Z")" -gt $(($1 + 300)) ]; }
# A write that was carried out, but whose answer the death took, is refused when the kernel sends it again: the write pointer is already behind
# it. The standard has no way to tell it from a new one. A try in which that happened is repeated; three in a row are a failure.
refused_again() { dmesg | grep -qE 'Zone Invalid Write|sct 0x1 / sc 0xbc' && dmesg -c >/dev/null && echo "a write without an answer was refused when it was sent again"; }
across_ends() { cat /tmp/across.out; return $across_code; }
for try in 1 2 3; do
  for zone in 4 5 6 7 8 9 10 11; do nvme zns reset-zone "$Z" -s $((zone * 1024)) >/dev/null; done
  before=$(writes_of "$Z")
  zoned_fio --rw=write --do_verify=1 --offset=16m --size=32m --rate_iops=150 >/tmp/across.out 2>&1 & across=$!
  check fio-is-under-way within 60 has_written "$before"
  echo "EVENT kill-server"
  check death-is-noticed within 30 left_live "$controller"
  check reconnects within 120 state_is "$controller" live
  wait $across; across_code=$?
  if [ $across_code = 0 ] || ! refused_again; then break; fi
done
check fio-across-death across_ends
check pointer-after-death pointer_is "$Z" 0 3
three_read() { read_blocks "$Z" 0 3 && cmp /tmp/read /tmp/three; }
check blocks-after-death three_read
check finished-after-death zone_is "$Z" 1024 0xe0
check goes-on-after-death write_blocks "$Z" 3 2
check extension-after-death zone_is "$R" 512 0x40
check area-after-death area_reads

# --- file systems on zones ---
check reset-for-btrfs nvme zns reset-zone "$Z" -a
mkdir -p /mnt/z
if [ -x /usr/sbin/mkfs.btrfs ] && modprobe btrfs; then
  check mkfs-btrfs timeout 120 /usr/sbin/mkfs.btrfs -f -O zoned -d single -m single "$Z"
  mount_btrfs() { mount -t btrfs "$Z" /mnt/z || { dmesg | grep -i btrfs | tail -n 5; return 1; }; }
  check mount-btrfs mount_btrfs
  check fio-on-btrfs fio_verify file /mnt/z/file 16m 31 --fallocate=none
  check unmount-btrfs umount /mnt/z
  check mount-btrfs-again mount_btrfs
  check fio-reread-on-btrfs fio_reread file /mnt/z/file 16m 31 --fallocate=none
  check unmount-btrfs-again umount /mnt/z
fi

# zonefs: each zone is a file; its size is the write pointer. Zone 0 holds its super block.
check reset-for-zonefs nvme zns reset-zone "$Z" -a
if modprobe zonefs; then
  check mkzonefs timeout 120 /newer/bin/mkzonefs -f "$Z"
  check mount-zonefs mount -t zonefs -o explicit-open "$Z" /mnt/z
  files() { ls /mnt/z/seq | wc -l; [ "$(ls /mnt/z/seq | wc -l)" = 127 ]; }
  check a-file-for-each-zone files
  size_is() { stat -c %s "/mnt/z/seq/$1"; [ "$(stat -c %s "/mnt/z/seq/$1")" = "$2" ]; }
  appended_to_file() { head -c 65536 /dev/urandom >/tmp/appended && dd if=/tmp/appended of="/mnt/z/seq/$1" bs=16384 conv=notrunc oflag=append,direct && size_is "$1" 65536 && cmp -n 65536 /tmp/appended "/mnt/z/seq/$1"; }
  check zonefs-file-appends appended_to_file 3
  over() { dd if=/tmp/appended of=/mnt/z/seq/3 bs=4096 count=1 conv=notrunc oflag=direct; }
  check zonefs-write-over-is-refused refused over
  zonefs_fio() { timeout 200 fio --name=zonefs --directory=/mnt/z/seq --filename=10:11:12 --rw=write --bs=16k --size=9m --direct=1 --ioengine=libaio --iodepth=1 --file_append=1 --allow_file_create=0 --fallocate=none --verify=crc32c --verify_fatal=1 --do_verify=1 --thread --output-format=terse --terse-version=3; }
  check fio-on-zonefs zonefs_fio
  check truncate-resets-a-zone sh -c ': >/mnt/z/seq/10'
  check its-file-is-empty size_is 10 0
  check truncate-finishes-a-zone truncate -s 4194304 /mnt/z/seq/3
  check its-zone-is-full zone_is "$Z" 4096 0xe0
  part() { head -c 20480 /dev/urandom >/tmp/part && dd if=/tmp/part of=/mnt/z/seq/20 bs=4096 conv=notrunc oflag=append,direct; }
  check zonefs-file-in-part part
  echo "EVENT kill-server"
  check death-is-noticed-under-zonefs within 30 left_live "$controller"
  check reconnects-under-zonefs within 120 state_is "$controller" live
  part_is_there() { size_is 20 20480 && echo 3 >/proc/sys/vm/drop_caches && cmp -n 20480 /tmp/part /mnt/z/seq/20; }
  check zonefs-after-death part_is_there
  check zonefs-goes-on-after-death appended_to_file 21
  check unmount-zonefs umount /mnt/z
  check mount-zonefs-again mount -t zonefs "$Z" /mnt/z
  check sizes-are-write-pointers size_is 20 20480
  check unmount-zonefs-again umount /mnt/z
fi

# f2fs: its data in zones, its tables on a namespace without.
check reset-for-f2fs nvme zns reset-zone "$Z" -a
# The kernel looks for its checksum with a modprobe that is not here.
modprobe crc32_generic
if modprobe f2fs; then
  check connect-b timeout 30 nvme connect $fabric $me -n "$NQN_B" -k 5 -c 1 -l 180
  check device-b-appears within 15 has_device "$NQN_B"
  B=$(device_of "$NQN_B")
  check mkfs-f2fs timeout 120 /newer/bin/mkfs.f2fs -f -m -c "$Z" "$B"
  mount_f2fs() { mount -t f2fs "$B" /mnt/z || { dmesg | grep -i f2fs | tail -n 5; return 1; }; }
  check mount-f2fs mount_f2fs
  check fio-on-f2fs fio_verify file /mnt/z/file 16m 41 --fallocate=none
  mkdir -p /mnt/z/files; keep_writing /mnt/z/files >/tmp/kept.out 2>&1 & keeper=$!
  sleep 4
  echo "EVENT kill-server"
  check death-is-noticed-under-f2fs within 30 left_live "$controller"
  check reconnects-under-f2fs within 120 state_is "$controller" live
  check device-b-is-back within 120 state_is "$(controller_of "$NQN_B")" live
  sleep 3; : >/tmp/stop
  kept() { wait $keeper; kept_code=$?; cat /tmp/kept.out; return $kept_code; }
  check files-across-death kept
  check unmount-f2fs umount /mnt/z
  check fsck-f2fs timeout 120 /newer/bin/fsck.f2fs --dry-run "$B"
  check mount-f2fs-again mount_f2fs
  check no-acknowledged-file-is-missing nothing_missing /mnt/z/files
  check fio-reread-on-f2fs fio_reread file /mnt/z/file 16m 41 --fallocate=none
  check unmount-f2fs-again umount /mnt/z
fi

# Western Digital's library: what its tool makes of the device.
zbd() { /newer/bin/zbd "$@"; }
check reset-for-zbd nvme zns reset-zone "$Z" -a
zbd_report() { zbd report "$Z" >/tmp/zbd && head -n 4 /tmp/zbd && [ "$(grep -c 'Zone [0-9]' /tmp/zbd)" = 128 ]; }
check zbd-report zbd_report
check zbd-open zbd open -ofst 4194304 -len 4194304 "$Z"
check zbd-opened zone_is "$Z" 1024 0x30
check zbd-close zbd close -ofst 4194304 -len 4194304 "$Z"
check zbd-finish zbd finish -ofst 4194304 -len 8388608 "$Z"
check zbd-finished zone_is "$Z" 2048 0xe0
check zbd-reset zbd reset "$Z"
check zbd-all-empty sh -c "! /usr/sbin/blkzone report $Z | grep -v 'zcond: 1(em)'"
check no-errors no_errors
check disconnect-all nvme disconnect-all
exit 0
