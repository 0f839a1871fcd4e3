# Zoned namespaces as Linux and its tools see them: identification, reports, every zone command, limits, append, random write areas, fio in
# zone mode, btrfs on zones, and write pointers after the server was killed.
. /scenario/library.sh
# Without native multipath: with it Linux 6.12 counts a write to a zone twice when it is sent again after a path was lost (a warning of
# percpu_ref, and I/O that hangs), whatever the target is.
modprobe nvme-core multipath=N; modprobe nvme-tcp
check connect-zones timeout 30 nvme connect $fabric $me -n "$NQN_ZONES" -k 5 -c 1 -l 180
check zones-appear within 15 has_device "$NQN_ZONES"
sleep 1
controller=$(controller_of "$NQN_ZONES")
# Namespace 1: zones of two erase blocks, 4 MiB. Namespace 2: zones of one, with random write areas and descriptor extensions.
namespace() { for block in /sys/block/nvme*; do [ "$(cat "$block/device/subsysnqn" 2>/dev/null)" = "$NQN_ZONES" ] && [ "$(cat "$block/nsid")" = "$1" ] && echo "/dev/${block##*/}"; done; }
Z=$(namespace 1); R=$(namespace 2)
if [ ! -b "$Z" ] || [ ! -b "$R" ]; then echo "no zoned devices, nothing more to test"; nvme list; dmesg | tail -n 20; exit 0; fi
queue=/sys/block/${Z##*/}/queue

# --- what Linux makes of it ---
is_zoned() { cat "$queue/zoned" "$queue/chunk_sectors" "$queue/nr_zones" "$queue/max_active_zones" "$queue/max_open_zones"; [ "$(cat "$queue/zoned")" = host-managed ]; }
check linux-sees-zones is_zoned
check zone-size-is-4-MiB test "$(cat "$queue/chunk_sectors")" = 8192
check limits-are-told test "$(cat "$queue/max_active_zones")" = 10 -a "$(cat "$queue/max_open_zones")" = 4
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
limit() { for zone in 0 1 2 3; do nvme zns open-zone "$Z" -s $((zone * 1024)) || return 1; done; refused nvme zns open-zone "$Z" -s 4096; }
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
zoned_fio() { timeout 250 fio --name=zoned --filename="$Z" --zonemode=zbd --direct=1 --ioengine=libaio --bs=16k --iodepth=8 --size=48m --max_open_zones=4 --verify=crc32c --verify_fatal=1 --thread $on_device --output-format=terse --terse-version=3 "$@"; }
check fio-sequential zoned_fio --rw=write --do_verify=1
check fio-random zoned_fio --rw=randwrite --do_verify=1

# --- the server dies while zones are written ---
check reset-before nvme zns reset-zone "$Z" -a
check three-blocks write_blocks "$Z" 0 3
cp /tmp/blocks /tmp/three
check finish-another sh -c "head -c 4096 /dev/urandom >/tmp/one && nvme write $Z -s 1024 -c 0 -z 4096 -d /tmp/one && nvme zns finish-zone $Z -s 1024"
zoned_fio --rw=write --do_verify=1 --offset=16m --size=32m --rate_iops=150 >/tmp/across.out 2>&1 & across=$!
left_live() { ! state_is "$controller" live; }
sleep 4
echo "EVENT kill-server"
check death-is-noticed within 30 left_live
check reconnects within 120 state_is "$controller" live
across_ends() { wait $across; across_code=$?; cat /tmp/across.out; return $across_code; }
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
check no-errors no_errors
check disconnect-all nvme disconnect-all
exit 0
