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

# Tenant B: small files.
keep_writing /mnt/b >/tmp/writing.out 2>&1 & writing=$!
# Tenant A: overwrites everything, slowly enough that both deaths fall into it.
fio_verify across "$A" 32m 22 $on_device --rate_iops=280 >/tmp/across.out 2>&1 & across=$!

for death in 1 2; do
  sleep 4
  written=$(wc -l </tmp/acknowledged)
  echo "EVENT kill-server"
  check "death-$death-is-noticed" within 30 left_live "$controller_a"
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
check nothing-acknowledged-is-missing nothing_missing /mnt/b
check unmount-again umount /mnt/b
check fio-reread fio_reread across "$A" 32m 22 $on_device
same_identity() { [ "$(cat "/sys/block/${A##*/}/wwid")" = "$identity" ]; }
check identity-unchanged same_identity
check no-error-reached-the-file-system no_errors
check disconnect-all nvme disconnect-all
exit 0
