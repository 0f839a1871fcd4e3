# The server dies under load, twice, and comes back. The host's file systems and its load generator must not notice more
# than a pause, and nothing acknowledged may be missing.
. /scenario/library.sh
modprobe nvme-tcp; modprobe ext4; modprobe xfs
check connect-a timeout 30 nvme connect $fabric $me -n "$NQN_A" -k 5 -c 1 -l 180
check connect-b timeout 30 nvme connect $fabric $me -n "$NQN_B" -k 5 -c 1 -l 180 --hdr-digest --data-digest
check device-a-appears within 15 has_device "$NQN_A"
check device-b-appears within 15 has_device "$NQN_B"
A=$(device_of "$NQN_A"); B=$(device_of "$NQN_B")
controller_a=$(controller_of "$NQN_A"); controller_b=$(controller_of "$NQN_B")
if [ ! -b "$A" ] || [ ! -b "$B" ]; then echo "no devices, nothing more to test"; exit 0; fi
identity=$(cat "/sys/block/${A##*/}/wwid")

# Old content everywhere, so that a lost write shows as content of the wrong seed.
check fill-before fio_verify before "$A" 32m 21 $on_device
mkdir -p /mnt/b
check mkfs-ext4 timeout 120 /usr/sbin/mkfs.ext4 -q -F "$B"
check mount-ext4 mount -t ext4 "$B" /mnt/b

# Tenant B: small files, each fsynced before its checksum is noted as acknowledged.
: >/tmp/acknowledged
keep_writing() {
  index=0
  while [ ! -e /tmp/stop ]; do
    index=$((index + 1))
    dd if=/dev/urandom of=/mnt/b/file-$index bs=1k count=$((index % 23 + 1)) conv=fsync 2>/dev/null || { echo "write $index failed"; return 1; }
    (cd /mnt/b && sha256sum file-$index) >>/tmp/acknowledged
    # Every third is deleted again, so that deallocated space is part of the story.
    if [ $((index % 3)) = 0 ]; then rm /mnt/b/file-$index && sed -i '$d' /tmp/acknowledged; fi
  done
  echo "$index files written"
}
keep_writing >/tmp/writing.out 2>&1 & writing=$!
# Tenant A: overwrites everything, slowly enough that both deaths fall into it.
fio_verify across "$A" 32m 22 $on_device --rate_iops=280 >/tmp/across.out 2>&1 & across=$!

left_live() { ! state_is "$controller_a" live; }
for death in 1 2; do
  sleep 4
  written=$(wc -l </tmp/acknowledged)
  echo "EVENT kill-server"
  check "death-$death-is-noticed" within 30 left_live
  check "death-$death-a-reconnects" within 120 state_is "$controller_a" live
  check "death-$death-b-reconnects" within 120 state_is "$controller_b" live
  load_goes_on() { kill -0 $across && [ "$(wc -l </tmp/acknowledged)" -gt "$written" ]; }
  check "death-$death-load-goes-on" within 60 load_goes_on
done
across_ends() { wait $across; across_code=$?; cat /tmp/across.out; return $across_code; }
check fio-verify-across-deaths across_ends
touch /tmp/stop
writing_ends() { wait $writing; writing_code=$?; cat /tmp/writing.out; return $writing_code; }
check files-written-across-deaths writing_ends

# What the host holds in memory proves nothing: read from the server.
check unmount umount /mnt/b
echo 3 >/proc/sys/vm/drop_caches
check fsck-ext4 timeout 120 /usr/sbin/e2fsck -f -n "$B"
check mount-again mount -t ext4 "$B" /mnt/b
nothing_missing() { cd /mnt/b && sha256sum -c /tmp/acknowledged >/tmp/sums 2>&1; sums_code=$?; grep -v ': OK$' /tmp/sums; echo "$(grep -c ': OK$' /tmp/sums) of $(wc -l </tmp/acknowledged) files as acknowledged"; [ "$(wc -l </tmp/acknowledged)" -gt 10 ] && return $sums_code; }
check nothing-acknowledged-is-missing nothing_missing
cd /
check unmount-again umount /mnt/b
check fio-reread fio_reread across "$A" 32m 22 $on_device
same_identity() { [ "$(cat "/sys/block/${A##*/}/wwid")" = "$identity" ]; }
check identity-unchanged same_identity
no_errors() { dmesg | grep -E 'I/O error|Buffer I/O|EXT4-fs error|Aborting journal|critical' && return 1; return 0; }
check no-error-reached-the-file-system no_errors
check disconnect-all nvme disconnect-all
exit 0
