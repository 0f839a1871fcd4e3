# A host's first day: discovery, connection, identification, two tenants at once, file systems, optional commands,
# controller reset, disconnection, second connection.
. /scenario/library.sh
modprobe nvme-tcp; modprobe ext4; modprobe xfs

# --- discovery ---
discovers() { timeout 30 nvme discover $fabric $me >/tmp/discovered && cat /tmp/discovered && grep -q "subnqn: *$1\$" /tmp/discovered; }
check discover-finds-tenant-a discovers "$NQN_A"
check discover-finds-tenant-b discovers "$NQN_B"
# With an id of its own: newer kernels refuse one id under two names before the server is asked.
stranger="-q $STRANGER_NQN -I $STRANGER_ID"
stranger_sees_nothing() { timeout 30 nvme discover $fabric $stranger | tee /tmp/stranger; ! grep -q -e "$NQN_A" -e "$NQN_B" /tmp/stranger; }
check discover-hides-from-stranger stranger_sees_nothing
check persistent-discovery timeout 30 nvme discover $fabric $me -p -k 5

# --- connection ---
# The kernel's words for the status show that the server refused, and why.
says() { refused "$@" && dmesg | tail -n 5 | grep -i "$words"; }
words='Connect Invalid Data Parameter, subsysnqn'
check connect-refuses-unknown-subsystem says timeout 30 nvme connect $fabric $me -n "$NQN_A-which-does-not-exist"
words="$NQN_A is not allowed, hostnqn"
check connect-refuses-stranger says timeout 30 nvme connect $fabric $stranger -n "$NQN_A"
# The port as discovery states it; the address is the one that leads to the server's loopback from here.
found_port=$(awk -v nqn="$NQN_A" '/^trsvcid:/ { port = $2 } /^subnqn:/ && $2 == nqn { print port; exit }' /tmp/discovered)
check connect-a-as-discovered timeout 30 nvme connect -t tcp -a "$ADDRESS" -s "${found_port:-$PORT}" $me -n "$NQN_A" -k 5 -c 1 -l 60
check connect-b-with-digests timeout 30 nvme connect $fabric $me -n "$NQN_B" -k 5 -c 1 -l 60 --hdr-digest --data-digest
check device-a-appears within 15 has_device "$NQN_A"
check device-b-appears within 15 has_device "$NQN_B"
A=$(device_of "$NQN_A"); B=$(device_of "$NQN_B")
controller_a=$(controller_of "$NQN_A"); controller_b=$(controller_of "$NQN_B")
if [ ! -b "$A" ] || [ ! -b "$B" ]; then echo "no devices, nothing more to test"; nvme list; exit 0; fi
check two-io-queues test "$(cat "$controller_a/queue_count")" = 3

# --- identification ---
lists_both() { nvme list && nvme list | grep -q "$A" && nvme list | grep -q "$B" && nvme list-subsys; }
check nvme-list lists_both
check id-ctrl nvme id-ctrl "$A"
names_itself() { nvme id-ctrl "$A" >/tmp/id && grep -q "^subnqn *: $NQN_A" /tmp/id && ! grep -E '^(sn|mn|fr) *: *$' /tmp/id; }
check id-ctrl-names-itself names_itself
check id-ns nvme id-ns "$A"
check id-ns-descriptors nvme ns-descs "$A"
check list-ns nvme list-ns "$A"
has_identity() { for kind in nguid uuid; do cat "/sys/block/${A##*/}/$kind" 2>/dev/null && grep -q '[1-9a-f]' "/sys/block/${A##*/}/$kind" && return 0; done; return 1; }
check namespace-has-identity has_identity
identity=$(cat "/sys/block/${A##*/}/wwid")
check smart-log nvme smart-log "$A"
check error-log nvme error-log "/dev/${controller_a##*/}"
check firmware-log nvme fw-log "/dev/${controller_a##*/}"
check effects-log nvme effects-log "/dev/${controller_a##*/}"
check get-feature-queues nvme get-feature "/dev/${controller_a##*/}" -f 7
# CAP, VS, CC and CSTS are all that a fabrics controller must have.
registers() { for offset in 0x0 0x8 0x14 0x1c; do nvme get-property "/dev/${controller_a##*/}" --offset=$offset -H || return 1; done; }
check registers registers

# --- two tenants at once ---
fio_verify beside "$B" 24m 11 $on_device >/tmp/beside.out 2>&1 & beside=$!
check mkfs-ext4 timeout 120 /usr/sbin/mkfs.ext4 -q -F "$A"
mkdir -p /mnt/a /mnt/b
check mount-ext4 mount -t ext4 "$A" /mnt/a
check fio-verify-on-ext4 fio_verify file /mnt/a/file 24m 12
keep_files() { for index in 1 2 3 4 5 6 7 8; do dd if=/dev/urandom of=/mnt/a/kept-$index bs=1k count=$((index * 37)) 2>/dev/null || return 1; done; (cd /mnt/a && sha256sum kept-*) >/tmp/kept && sync; }
check write-files keep_files
second_tenant() { wait $beside; beside_code=$?; cat /tmp/beside.out; return $beside_code; }
check fio-verify-second-tenant second_tenant
check unmount-ext4 umount /mnt/a
check fsck-ext4 timeout 120 /usr/sbin/e2fsck -f -n "$A"
host_writes() { nvme smart-log "$A" | tee /tmp/smart; [ "$(awk '/^host_write_commands/ { gsub(/,/, "", $3); print $3 }' /tmp/smart)" -gt 1000 ]; }
check smart-log-counts-writes host_writes

# --- the other file system, on the connection with digests ---
check mkfs-xfs timeout 120 /usr/sbin/mkfs.xfs -q -f "$B"
check mount-xfs mount -t xfs "$B" /mnt/b
check fio-verify-on-xfs fio_verify file /mnt/b/file 16m 13
check unmount-xfs umount /mnt/b
check fsck-xfs timeout 120 /usr/sbin/xfs_repair -n "$B"

# --- commands beyond read and write ---
flushes() { nvme flush "$B" -n 1; }
check flush flushes
zero_bytes() { dd if="$B" bs=1M skip=64 count=1 iflag=direct 2>/dev/null | tr -d '\000' | wc -c; }
fills() { tr '\000' '\377' </dev/zero | dd of="$B" bs=1M seek=64 count=1 iflag=fullblock oflag=direct 2>&1 && [ "$(zero_bytes)" = 1048576 ]; }
zeroes() { fills && /usr/sbin/blkdiscard -z -o 64M -l 1M "$B" && [ "$(zero_bytes)" = 0 ]; }
check write-zeroes-reads-zero zeroes
optional=$(nvme id-ctrl "$B" | awk '/^oncs/ { print $3 }')
echo "    optional commands supported: $optional"
# Linux's own target lacks some of these; servers under test must have them.
if [ "$REQUIRE_OPTIONAL" = 1 ] || [ $((optional & 4)) -ne 0 ]; then check discard /usr/sbin/blkdiscard -o 32M -l 8M "$B"; fi
if [ "$REQUIRE_OPTIONAL" = 1 ]; then
  discarded_reads_zero() { fills && /usr/sbin/blkdiscard -o 64M -l 1M "$B" && [ "$(zero_bytes)" = 0 ]; }
  check discarded-reads-zero discarded_reads_zero
  lba_bytes=$(cat "/sys/block/${B##*/}/queue/logical_block_size")
  lba_count=$((8192 / lba_bytes - 1))
  dd if=/dev/urandom of=/tmp/pattern bs=4k count=2 2>/dev/null
  dd if=/dev/urandom of=/tmp/other bs=4k count=2 2>/dev/null
  writes_pattern() { dd if=/tmp/pattern of="$B" bs=4k count=2 oflag=direct 2>&1; }
  check write-two-blocks writes_pattern
  check compare-equal nvme compare "$B" -s 0 -c $lba_count -z 8192 -d /tmp/pattern
  check compare-different refused nvme compare "$B" -s 0 -c $lba_count -z 8192 -d /tmp/other
  check verify nvme verify "$B" -s 0 -c $lba_count
fi
out_of_range() { refused nvme read "$B" -s "$(cat "/sys/block/${B##*/}/size")" -c 0 -z 4096 -d /tmp/beyond; }
check read-beyond-the-end-is-refused out_of_range

# --- controller reset under load ---
fio_verify reset "$B" 24m 14 $on_device --rate_iops=1500 >/tmp/reset.out 2>&1 & reset_load=$!
sleep 2
check reset timeout 60 nvme reset "/dev/${controller_b##*/}"
check live-after-reset within 30 state_is "$controller_b" live
survives_reset() { wait $reset_load; reset_code=$?; cat /tmp/reset.out; return $reset_code; }
check fio-verify-across-reset survives_reset

# --- keep-alive: idle controllers stay connected ---
sleep 8
check idle-connection-stays state_is "$controller_a" live
discovery_stays() { for controller in /sys/class/nvme/nvme*; do case $(cat "$controller/subsysnqn") in *discovery*) cat "$controller/state"; state_is "$controller" live; return ;; esac; done; echo "no discovery controller"; return 1; }
check persistent-discovery-stays discovery_stays

# --- disconnection and second connection ---
check disconnect-a nvme disconnect -n "$NQN_A"
check device-a-vanishes within 15 has_no_device "$NQN_A"
check connect-a-again timeout 30 nvme connect $fabric $me -n "$NQN_A" -k 5 -c 1 -l 60
check device-a-comes-back within 15 has_device "$NQN_A"
A=$(device_of "$NQN_A")
same_identity() { cat "/sys/block/${A##*/}/wwid"; [ "$(cat "/sys/block/${A##*/}/wwid")" = "$identity" ]; }
check identity-unchanged same_identity
check mount-ext4-again mount -t ext4 "$A" /mnt/a
kept_files() { (cd /mnt/a && sha256sum -c /tmp/kept); }
check files-unchanged kept_files
check fio-reread fio_reread file /mnt/a/file 24m 12
check unmount-ext4-again umount /mnt/a
check disconnect-all nvme disconnect-all
check all-devices-vanish within 15 has_no_device "$NQN_B"
exit 0
