# A server with two shards, a tenant on each. Tenants change their shard while a file system is mounted and fio verifies: the
# host notices nothing. Then the server dies under that load, and tenants move again.
. /scenario/library.sh
modprobe nvme-tcp; modprobe ext4
check connect-a timeout 30 nvme connect $fabric $me -n "$NQN_A" -k 5 -c 1 -l 180
check connect-b timeout 30 nvme connect $fabric $me -n "$NQN_B" -k 5 -c 1 -l 180 --hdr-digest --data-digest
check device-a-appears within 15 has_device "$NQN_A"
check device-b-appears within 15 has_device "$NQN_B"
A=$(device_of "$NQN_A"); B=$(device_of "$NQN_B")
controller_a=$(controller_of "$NQN_A"); controller_b=$(controller_of "$NQN_B")
if [ ! -b "$A" ] || [ ! -b "$B" ]; then echo "no devices, nothing more to test"; exit 0; fi
echo "EVENT administer tenants-on-two-shards apart"

# Old content, so that a lost write shows as content of the wrong seed.
check fill-before fio_verify before "$A" 8m 31 $on_device
mkdir -p /mnt/b
check mkfs-ext4 timeout 120 /usr/sbin/mkfs.ext4 -q -F "$B"
check mount-ext4 mount -t ext4 "$B" /mnt/b

# Slowly enough that all that follows falls into it. Tenant B has small files besides.
keep_writing /mnt/b >/tmp/writing.out 2>&1 & writing=$!
fio_verify file /mnt/b/file 10m 32 --rate_iops=75 >/tmp/file.out 2>&1 & file=$!
fio_verify across "$A" 8m 33 $on_device --rate_iops=60 >/tmp/across.out 2>&1 & across=$!

# load_goes_on: both fios run, and more files were acknowledged than when `written` was set.
load_goes_on() { kill -0 $file && kill -0 $across && [ "$(wc -l </tmp/acknowledged)" -gt $((written + 2)) ]; }
# moves NAME TENANT: the driver brings the tenant to the other shard.
moves() {
  written=$(wc -l </tmp/acknowledged)
  echo "EVENT administer $1 swap $2"
  sleep 1
  check "$1-load-goes-on" within 60 load_goes_on
}
sleep 2
moves move-b b
moves move-a a
moves move-b-back b
unnoticed() { state_is "$controller_a" live && state_is "$controller_b" live && ! dmesg | grep -iE 'nvme.*(error|timeout|reconnect|failed)'; }
check moves-are-unnoticed unnoticed

written=$(wc -l </tmp/acknowledged)
echo "EVENT kill-server"
check death-is-noticed within 30 left_live "$controller_a"
check death-a-reconnects within 120 state_is "$controller_a" live
check death-b-reconnects within 120 state_is "$controller_b" live
check death-load-goes-on within 60 load_goes_on
echo "EVENT administer tenants-on-two-shards-again apart"
moves move-b-after-death b

across_ends() { wait $across; across_code=$?; cat /tmp/across.out; return $across_code; }
check fio-verify-across-moves-and-death across_ends
file_ends() { wait $file; file_code=$?; cat /tmp/file.out; return $file_code; }
check fio-verify-on-ext4-across-moves-and-death file_ends
touch /tmp/stop
writing_ends() { wait $writing; writing_code=$?; cat /tmp/writing.out; return $writing_code; }
check files-written-across-moves-and-death writing_ends

# What the host holds in memory proves nothing: read from the server.
check unmount umount /mnt/b
echo 3 >/proc/sys/vm/drop_caches
check fsck-ext4 timeout 120 /usr/sbin/e2fsck -f -n "$B"
check mount-again mount -t ext4 "$B" /mnt/b
check nothing-acknowledged-is-missing nothing_missing /mnt/b
check fio-reread-on-ext4 fio_reread file /mnt/b/file 10m 32
check unmount-again umount /mnt/b
check fio-reread fio_reread across "$A" 8m 33 $on_device
check no-error-reached-the-file-system no_errors
check disconnect-all nvme disconnect-all
exit 0
