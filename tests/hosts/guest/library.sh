# Words the scenarios are written in. Sourced by BusyBox sh, whose built-in applets win over programs of the same name:
# tools that BusyBox also has are called by their full path.
umask 022

# check NAME COMMAND...: runs the command, prints its output and one RESULT line that the driver reads.
check() {
  check_name=$1; shift
  if "$@" >/tmp/check.out 2>&1; then verdict=ok; else verdict="fail exit $?: $(tail -n 3 /tmp/check.out | tr '\n\t' '  ')"; fi
  sed 's/^/    /' /tmp/check.out | tail -n 60
  echo "RESULT $check_name $verdict"
}

# refused COMMAND...: succeeds when the command fails with an error of its own, not by signal or time-out.
refused() { "$@"; refused_code=$?; [ $refused_code -ne 0 ] && [ $refused_code -lt 124 ]; }

# within SECONDS COMMAND...: succeeds as soon as the command does.
within() {
  within_tries=$(($1 * 5)); shift
  while [ $within_tries -gt 0 ]; do
    if "$@"; then return 0; fi
    sleep 0.2; within_tries=$((within_tries - 1))
  done
  echo "not within the time given: $*"; return 1
}

# Kernel messages go to the console as whole lines of their own, so that they never split a RESULT line.
cat /dev/kmsg | while read -r message; do
  case $message in *SUBSYSTEM=*) ;; *nvme*|*EXT4*|*XFS*|*rror*|*blocked\ for*|*BUG*|*WARN*) echo "KERNEL ${message#*;}" ;; esac
done &

fabric="-t tcp -a $ADDRESS -s $PORT"
me="-q $HOST_NQN -I $HOST_ID"

# The block device of a subsystem, or that of its namespace of this number; multipath parts (nvme0c0n1) are hidden and do not count.
device_of() {
  for block in /sys/block/nvme*; do
    case ${block##*/} in nvme*c*n*) continue ;; esac
    [ -z "${2:-}" ] || [ "$(cat "$block/nsid" 2>/dev/null)" = "$2" ] || continue
    if [ "$(cat "$block/device/subsysnqn" 2>/dev/null)" = "$1" ] && [ -b "/dev/${block##*/}" ]; then echo "/dev/${block##*/}"; return 0; fi
  done
  return 1
}
# The character device of a namespace, for commands of io_uring.
generic_of() { basename "$1" | sed 's|^nvme|/dev/ng|'; }
# The sysfs folder of the controller of a subsystem.
controller_of() {
  for controller in /sys/class/nvme/nvme*; do
    if [ "$(cat "$controller/subsysnqn" 2>/dev/null)" = "$1" ]; then echo "$controller"; return 0; fi
  done
  return 1
}
has_device() { device_of "$1" >/dev/null; }
has_no_device() { ! device_of "$1" >/dev/null; }
state_is() { [ "$(cat "$1/state" 2>/dev/null)" = "$2" ]; }
# left_live CONTROLLER: its path is lost, and it says so.
left_live() { ! state_is "$1" live; }

# fio_verify NAME FILE SIZE SEED OPTIONS...: random writes with checksummed, seeded content, then reads all back. Content
# of another seed, offset or run fails. A missing device must not become a regular file in /dev.
fio_verify() {
  fio_name=$1 fio_file=$2 fio_size=$3 fio_seed=$4; shift 4
  unpiped timeout 200 fio --name="$fio_name" --filename="$fio_file" --size="$fio_size" --randseed="$fio_seed" --rw=randwrite --bs=4k \
    --ioengine=libaio --iodepth=16 --direct=1 --verify=crc32c --verify_fatal=1 --do_verify=1 --thread --output-format=terse --terse-version=3 "$@"
}
# fio_reread: same arguments; checks what an earlier fio_verify left.
fio_reread() { fio_verify "$@" --verify_only; }
on_device="--allow_file_create=0"

# unpiped COMMAND...: runs the command with SIGPIPE ignored. nvme-tcp sends a command from the thread that submits it, without MSG_NOSIGNAL:
# when the server dies, the kernel's own send to its socket raises SIGPIPE in that thread, and the program ends although its I/O would go on.
unpiped() ( trap '' PIPE; exec "$@" )

# keep_writing FOLDER: small files until /tmp/stop is there, each fsynced before its checksum is noted as acknowledged.
: >/tmp/acknowledged
keep_writing() {
  trap '' PIPE
  index=0
  while [ ! -e /tmp/stop ]; do
    index=$((index + 1))
    dd if=/dev/urandom of="$1/file-$index" bs=1k count=$((index % 23 + 1)) conv=fsync 2>/dev/null || { echo "write $index failed"; return 1; }
    (cd "$1" && sha256sum file-$index) >>/tmp/acknowledged
    # Every third is deleted again, so that deallocated space is part of the story.
    if [ $((index % 3)) = 0 ]; then rm "$1/file-$index" && sed -i '$d' /tmp/acknowledged; fi
  done
  echo "$index files written"
}
# nothing_missing FOLDER: what keep_writing noted is there, and is more than a few files.
nothing_missing() (
  cd "$1" && sha256sum -c /tmp/acknowledged >/tmp/sums 2>&1; sums_code=$?
  grep -v ': OK$' /tmp/sums
  echo "$(grep -c ': OK$' /tmp/sums) of $(wc -l </tmp/acknowledged) files as acknowledged"
  [ "$(wc -l </tmp/acknowledged)" -gt 10 ] && exit $sums_code
)
no_errors() { dmesg | grep -E 'I/O error|Buffer I/O|EXT4-fs error|Aborting journal|critical' && return 1; return 0; }

# blktest SECONDS TEST: runs a test of blktests, from its folder, and takes its verdict. One that did not run says why.
blktest() {
  blktest_name=$(echo "$2" | tr / -)
  timeout "$1" ./check "$2" >/tmp/test.out 2>&1
  blktest_code=$?
  if grep -qE '\[(failed|passed)\]' /tmp/test.out; then
    check "$blktest_name" blktest_passed
  elif [ $blktest_code = 124 ]; then
    check "$blktest_name" false
  else
    echo "EVENT skipped $blktest_name: $(grep -vE '^ *$|\[not run\]' /tmp/test.out | tail -n 3 | tr '\n' ' ')"
  fi
}
blktest_passed() { cat /tmp/test.out; [ $blktest_code = 0 ] && ! grep -q '\[failed\]' /tmp/test.out; }
