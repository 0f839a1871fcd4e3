# Programs that try file systems, on ext4 over one tenant and on xfs over the other: fsx compares each read with what it
# wrote; fsstress makes a mess of files and folders. After `sync` all that is there must be there when the page cache is
# empty and the file system was mounted again, and the file system must be whole. The server is killed on the way.
# Needs one of fsx and fsstress in /programs at least; says which are missing.
. /scenario/library.sh
modprobe nvme-tcp; modprobe ext4; modprobe xfs
PATH=/programs/bin:$PATH
has() { [ -x "/programs/bin/$1" ]; }
for program in fsx fsstress; do has $program || echo "EVENT skipped $program"; done

check connect-a timeout 30 nvme connect $fabric $me -n "$NQN_A" -k 5 -c 1 -l 180
check connect-b timeout 30 nvme connect $fabric $me -n "$NQN_B" -k 5 -c 1 -l 180
check device-a-appears within 15 has_device "$NQN_A"
check device-b-appears within 15 has_device "$NQN_B"
A=$(device_of "$NQN_A"); B=$(device_of "$NQN_B")
if [ ! -b "$A" ] || [ ! -b "$B" ]; then echo "no devices, nothing more to test"; exit 0; fi
mkdir -p /mnt/ext4 /mnt/xfs
check mkfs-ext4 timeout 120 /usr/sbin/mkfs.ext4 -q -F "$A"
check mkfs-xfs timeout 120 mkfs.xfs -q -f "$B"
check mount-ext4 mount -t ext4 -o discard "$A" /mnt/ext4
check mount-xfs mount -t xfs -o discard "$B" /mnt/xfs

# Every program of that name says so when all went well.
fsx_on() { timeout 200 fsx -N 1000 -S "$2" -P /tmp "/mnt/$1/fsx" >"/tmp/fsx-$1" 2>&1; fsx_code=$?; tail -n 8 "/tmp/fsx-$1"; grep -q A-OK "/tmp/fsx-$1" && return $fsx_code; }
fsstress_on() { mkdir -p "/mnt/$1/$2" && timeout 200 fsstress -d "/mnt/$1/$2" -n 120 -p 3 -s "$3"; }
# What a file system holds: kinds, sizes and targets of what is no file, names of folders, content of files.
contents() (
  cd "/mnt/$1" && find . ! -type f ! -type d -exec stat -c '%F %s %N' {} + | sort && find . -type d | sort &&
    find . -type f -exec sha256sum {} + | sort -k 2
)
synced() { timeout 120 sync && contents "$1" >"/tmp/$1.before"; wc -l <"/tmp/$1.before"; [ -s "/tmp/$1.before" ]; }
still_there() { echo 3 >/proc/sys/vm/drop_caches; contents "$1" >"/tmp/$1.after"; diff "/tmp/$1.before" "/tmp/$1.after"; }
remount() { umount "/mnt/$1" && mount -t "$1" -o discard "$2" "/mnt/$1"; }

for kind in ext4 xfs; do
  ! has fsx || check "$kind-fsx" fsx_on $kind 51
  ! has fsstress || check "$kind-fsstress" fsstress_on $kind mess 52
  check "$kind-sync" synced $kind
  check "$kind-still-there" still_there $kind
done

# The server dies while both are in use. Nobody but the clock may notice.
dying_load() {
  if has fsstress; then fsstress_on "$1" death "$2" || return 1; fi
  if has fsx; then fsx_on "$1" "$2" || return 1; fi
}
dying_load ext4 61 >/tmp/dying-ext4 2>&1 & on_ext4=$!
dying_load xfs 62 >/tmp/dying-xfs 2>&1 & on_xfs=$!
sleep 1
echo "EVENT kill-server"
ends() { wait "$2"; ends_code=$?; cat "/tmp/dying-$1"; return $ends_code; }
check ext4-load-across-death ends ext4 $on_ext4
check xfs-load-across-death ends xfs $on_xfs
for kind in ext4 xfs; do check "$kind-sync-after-death" synced $kind; done
check ext4-mounts-again remount ext4 "$A"
check xfs-mounts-again remount xfs "$B"
for kind in ext4 xfs; do check "$kind-still-there-after-death" still_there $kind; done
check umount umount /mnt/ext4 /mnt/xfs
check e2fsck timeout 120 /usr/sbin/e2fsck -fn "$A"
check xfs-repair timeout 120 xfs_repair -n "$B"
check no-error-reached-the-devices no_errors
check disconnect-all nvme disconnect-all
exit 0
