# What nvme-cli can ask, whether the server has it or not, and every way to connect: each answer makes sense or is a proper
# refusal, and the controller lives on.
. /scenario/library.sh
modprobe nvme-tcp

check connect-a timeout 30 nvme connect $fabric $me -n "$NQN_A" -k 5 -c 1 -l 60
check device-a-appears within 15 has_device "$NQN_A"
A=$(device_of "$NQN_A"); controller_a=$(controller_of "$NQN_A"); C=/dev/${controller_a##*/}
if [ ! -b "$A" ]; then echo "no device, nothing more to test"; exit 0; fi

# answers_to ANSWERS COMMAND...: what the server said last is one of the ANSWERS, a pattern; `Success` is that of a command that
# succeeded. What nvme-cli or the kernel refuse by themselves, and what ends by signal or time-out, is no answer.
answers_to() {
  answers=$1; shift
  timeout 30 "$@" >/tmp/answer 2>&1 </dev/null
  answer_code=$?
  if [ $answer_code = 0 ]; then answer=Success; else answer=$(sed -n 's/^NVMe status: \([^:]*\):.*/\1/p' /tmp/answer | tail -n 1); fi
  echo "$answer" | grep -qxE "$answers" && return 0
  echo "$* (exit $answer_code): ${answer:-$(tail -n 1 /tmp/answer)}"; return 1
}
lives() { state_is "$controller_a" live && ! dmesg | grep -E 'nvme.*(error recovery|timeout)'; }
succeeded() { [ "$answer" = Success ]; }

# Linux's own target has Internal Error for some of these, and none at all for others.
if [ "$REQUIRE_OPTIONAL" = 1 ]; then
# --- log pages, features and Identify pages: those that a specification names, and some of vendors and of nobody ---
each_log_page() {
  for number in $(seq 0 26) 112 113 128 129 130 192 193 255; do
    answers_to 'Success|Invalid Log Page|Invalid Field in Command' nvme get-log "$C" -i $number -l 512 -b || return 1
    ! succeeded || printf '%d ' $number
  done
  echo "are there"
}
check each-log-page each_log_page
each_feature() {
  for number in $(seq 0 33) 120 $(seq 125 133) 192 255; do
    answers_to 'Success|Invalid Field in Command|Host Identifier Inconsistent Format|Data SGL Length Invalid' nvme get-feature "$C" -f $number -n 1 || return 1
    ! succeeded || printf '%d ' $number
  done
  echo "are there"
}
check each-feature each_feature
each_identify() {
  for number in $(seq 0 34) 255; do
    answers_to 'Success|Invalid Field in Command|Invalid Namespace or Format' nvme admin-passthru "$C" -o 6 -n 1 --cdw10=$number -r -l 4096 -b || return 1
    ! succeeded || printf '%d ' $number
  done
  echo "are there"
}
check each-identify each_identify
# --- the telemetry of OCP, as its plug-in decodes it: its pages are found behind the UUID, and what is set is read back ---
ocp_health() { nvme ocp smart-add-log "$C" >/tmp/ocp && cat /tmp/ocp && grep -qi 'AFD514C97C6F4F9CA4F2BFEA2810AFC5' /tmp/ocp && grep -q 'Physical media units written' /tmp/ocp; }
check ocp-smart-add-log ocp_health
ocp_latency() { nvme ocp latency-monitor-log "$C" >/tmp/ocp && cat /tmp/ocp && grep -qE "$1" /tmp/ocp; }
check ocp-latency-monitor-log ocp_latency 'Active Threshold A *30 ms'
# nvme-cli 2.3 has no command of its own for that: what later ones send, by hand, with thresholds of 10 to 25 ms and a trigger.
ocp_set() {
  { printf '\340\007\00'"$1"'\002\003\004\377\017\012\111\002\000\001'; head -c 4083 /dev/zero; } >/tmp/monitor
  nvme set-feature "$C" -f 0xc5 -n 0 --save --data=/tmp/monitor --data-len=4096
}
ocp_is_set() { ocp_set 1 && ocp_latency 'Active Threshold D *25 ms' && grep -qE 'Debug Log Trigger Enable *585' /tmp/ocp && grep -qE 'Feature Status *0x7' /tmp/ocp; }
check ocp-set-latency-monitor-feature ocp_is_set
check ocp-refuses-thresholds-that-fall refused ocp_set 7
ocp_others() { for number in 0xc1 0xc4 0xc5 0xc9 0xca; do nvme get-log "$C" -i $number -l 432 -b >/tmp/ocp || return 1; done; }
check ocp-other-logs ocp_others
telemetry() { nvme telemetry-log "$C" --output-file=/tmp/telemetry && [ "$(od -An -tu1 -N1 /tmp/telemetry | tr -d ' ')" = 7 ] && grep -qa 'diecut latency debug log' /tmp/telemetry; }
check telemetry-log telemetry
odd_log_pages() {
  answers_to Success nvme get-log "$C" -i 2 -l 4 -b && answers_to Success nvme get-log "$C" -i 2 -l 16 -o 496 -b &&
    answers_to 'Invalid Field in Command' nvme get-log "$C" -i 2 -l 16 -o 3 -b &&
    answers_to 'Invalid Field in Command' nvme get-log "$C" -i 2 -l 16 -o 1048576 -b
}
check parts-of-log-pages odd_log_pages

# --- each opcode, with data to the host, from it and without; 0Ch waits for an event, by right ---
dd if=/dev/urandom of=/tmp/block bs=4k count=1 2>/dev/null
proper='Success|Invalid Format|Invalid Namespace or Format|Invalid Command Opcode|Invalid Field in Command|Data SGL Length Invalid|Command Sequence Error|Invalid Log Page|LBA Out of Range|Compare Failure|Unrecovered Read Error|Host Identifier Inconsistent Format|Reservation Conflict|Invalid Protection Information'
# passes KIND DEVICE OPCODE: bits 1:0 of the opcode say which way its data go; nvme-cli 2.3 cannot send those that go both ways,
# so they have none here.
passes() {
  case $(($3 % 4)) in
    1) answers_to "$proper" nvme "$1-passthru" "$2" -o "$3" -n 1 -t 8000 -w -l 4096 -i /tmp/block ;;
    2) answers_to "$proper" nvme "$1-passthru" "$2" -o "$3" -n 1 -t 8000 -r -l 4096 -b ;;
    *) answers_to "$proper" nvme "$1-passthru" "$2" -o "$3" -n 1 -t 8000 ;;
  esac
}
without_data() { answers_to "$proper" nvme admin-passthru "$C" -o 2 -n 1 && for number in 1 2 5 9; do answers_to 'Data SGL Length Invalid' nvme io-passthru "$A" -o $number -n 1 || return 1; done; }
check commands-that-lack-their-data without_data
each_admin_opcode() {
  for number in $(seq 0 11) $(seq 13 37) 44 124 127 128 129 130 132 134 192 255; do passes admin "$C" $number || return 1; done
}
check each-admin-opcode each_admin_opcode
each_io_opcode() {
  for number in $(seq 0 34) 121 122 125 127 128 144 255; do passes io "$A" $number || return 1; done
}
check each-io-opcode each_io_opcode
# One of them made the first block unreadable, by right.
check first-block-readable-again dd if=/tmp/block of="$A" bs=4k oflag=direct
check lives-after-all-opcodes lives

# --- what a namespace and a controller say of themselves ---
no_rotating_disk() { [ "$(cat "/sys/block/${A##*/}/queue/rotational")" = 0 ] && nvme cmdset-ind-id-ns "$C" -n 1 && [ $(($(nvme cmdset-ind-id-ns "$C" -n 1 | awk '/^nsfeat/ { print $3 }') & 16)) = 0 ]; }
check no-rotating-disk no_rotating_disk
effects() { nvme effects-log "$C" -c 0 | tee /tmp/effects && grep -q 'ACS6 ' /tmp/effects && grep -q 'IOCS2 ' /tmp/effects; }
check effects-log-names-commands effects
thresholds() {
  nvme set-feature "$C" -f 4 -v 0x160 && nvme get-feature "$C" -f 4 | tee /dev/stderr | grep -q 'value: *0x0*160$' &&
    nvme get-feature "$C" -f 4 -c 0x100000 | tee /dev/stderr | grep -q 'value: *0*$' &&
    nvme set-feature "$C" -f 4 -v 0x120 && nvme smart-log "$C" | grep '^critical_warning.*: *0x2$' &&
    nvme set-feature "$C" -f 4 -v 0x157 && nvme smart-log "$C" | grep '^critical_warning.*: *0$'
}
check temperature-thresholds thresholds
last_error() { refused nvme get-log "$C" -i 0xC8 -l 512 -b && nvme error-log "$C" -e 1 | tee /tmp/error && grep -q '^lba.*: *0$' /tmp/error; }
check errors-of-admin-commands-name-no-lba last_error
limits() {
  answers_to 'LBA Out of Range' nvme write-zeroes "$A" -s "$last" -c 1 && answers_to 'LBA Out of Range' nvme verify "$A" -s "$last" -c 1 &&
    answers_to 'LBA Out of Range' nvme dsm "$A" -d -s "$last" -b 2 && answers_to 'LBA Out of Range' nvme dsm "$A" -d -s 0xffffffffffffffff -b 5 &&
    answers_to Success nvme verify "$A" -s "$last" -c 0 && answers_to Success nvme dsm "$A" -d -s "$last" -b 1
}
last=$(($(blockdev --getsize64 "$A") / 4096 - 1))
check nothing-beyond-the-end limits
# block LBA COUNT: these blocks as they are on the device, past the page cache.
block() { dd if="$A" bs=4k skip="$1" count="$2" iflag=direct 2>/dev/null; }
copies() {
  dd if=/dev/urandom of=/tmp/sources bs=4k count=8 2>/dev/null
  dd if=/tmp/sources of="$A" bs=4k seek=1000 oflag=direct 2>/dev/null || return 1
  answers_to Success nvme copy "$A" -d 2000 -s 1000,1006 -b 3,1 || return 1
  { dd if=/tmp/sources bs=4k count=4; dd if=/tmp/sources bs=4k skip=6 count=2; } 2>/dev/null >/tmp/expected
  block 2000 6 | cmp - /tmp/expected && answers_to 'LBA Out of Range' nvme copy "$A" -d "$last" -s 1000 -b 1 &&
    answers_to 'LBA Out of Range' nvme copy "$A" -d 2000 -s "$last" -b 1
}
check copies-within-the-device copies
unreadable() {
  answers_to Success nvme write-uncor "$A" -s 3001 -c 1 || return 1
  refused block 3001 1 && refused block 3000 4 && block 3000 1 >/dev/null && answers_to 'Unrecovered Read Error' nvme verify "$A" -s 3002 -c 0 || return 1
  dd if=/tmp/block of="$A" bs=4k seek=3001 oflag=direct 2>/dev/null && block 3001 1 | cmp - /tmp/block || return 1
  refused block 3002 1 && answers_to Success nvme write-zeroes "$A" -s 3002 -c 0 && block 3000 4 >/dev/null &&
    sleep 1 # The kernel says a word about each of these, which must not come into the midst of a result.
}
check blocks-made-unreadable unreadable
# The one host of this guest, alone with itself: what others may not do is tested without a guest.
reservations() {
  answers_to Success nvme resv-register "$A" -n 1 --nrkey=0xabc --rrega=0 && answers_to 'Reservation Conflict' nvme resv-acquire "$A" -n 1 --crkey=0xabd --rtype=1 --racqa=0 &&
    answers_to Success nvme resv-acquire "$A" -n 1 --crkey=0xabc --rtype=1 --racqa=0 && nvme resv-report "$A" -n 1 --eds >/tmp/report && cat /tmp/report && grep -Eq 'rtype *: *1' /tmp/report && grep -Eq 'rkey *: *(abc|0xabc)' /tmp/report &&
    dd if=/tmp/block of="$A" bs=4k seek=5 oflag=direct 2>/dev/null && answers_to Success nvme resv-release "$A" -n 1 --crkey=0xabc --rtype=1 --rrela=0 &&
    answers_to Success nvme resv-register "$A" -n 1 --crkey=0xabc --rrega=1
}
check reservations-of-one-host reservations
formats() {
  dd if=/tmp/block of="$A" bs=4k seek=7 oflag=direct 2>/dev/null && answers_to 'Invalid Field in Command' nvme format "$A" -n 1 -s 2 -f && answers_to Success nvme format "$A" -n 1 -s 1 -f && block 7 1 | cmp - /tmp/zeros &&
    answers_to Success nvme format "$A" -n 1 -l 0 -s 0 -f && block 7 1 | cmp - /tmp/zeros
}
dd if=/dev/zero of=/tmp/zeros bs=4k count=1 2>/dev/null
check formats-to-zeros formats
# All data of the subsystem, and the page that tells how far it is. It was begun durably when it is answered, and ends by itself.
sanitized() { nvme sanitize-log "$C" >/tmp/sanitize && grep -qE 'SSTAT\) *: *0x1(01)?$' /tmp/sanitize; }
sanitizes() {
  dd if=/tmp/block of="$A" bs=4k seek=9 oflag=direct 2>/dev/null && nvme id-ctrl "$C" -H >/tmp/id && grep -E 'Sanitize' /tmp/id &&
    grep -qE '0x1.*Block Erase Sanitize Operation Supported' /tmp/id && grep -qE '0[^x].*Crypto Erase Sanitize Operation Not Supported' /tmp/id || return 1
  for action in 3 4; do answers_to 'Invalid Field in Command' nvme sanitize "$C" -a $action || return 1; done
  answers_to 'Invalid Field in Command' nvme sanitize "$C" -a 2 -d && answers_to Success nvme sanitize "$C" -a 2 && within 30 sanitized || { cat /tmp/sanitize; return 1; }
  cat /tmp/sanitize && grep -qE 'SPROG\) *: *65535' /tmp/sanitize && block 9 1 | cmp - /tmp/zeros && answers_to Success nvme sanitize "$C" -a 1 &&
    dd if=/tmp/block of="$A" bs=4k seek=9 oflag=direct 2>/dev/null && block 9 1 | cmp - /tmp/block && nvme sanitize-log "$C" | grep -E 'SSTAT\) *: *0x1$'
}
check sanitizes-to-zeros sanitizes
pages() { nvme supported-log-pages "$C" >/tmp/pages && nvme fid-support-effects-log "$C" >/tmp/features && cat /tmp/features; }
check pages-of-2.0 pages
fi
check disconnect-a nvme disconnect -n "$NQN_A"

# --- ways to connect ---
dd if=/dev/urandom of=/tmp/content bs=64k count=4 2>/dev/null
# connects OPTIONS...: what is written over this connection is read back.
connects() {
  timeout 30 nvme connect $fabric $me -n "$NQN_A" "$@" && within 15 has_device "$NQN_A" || return 1
  connected=$(device_of "$NQN_A")
  dd if=/tmp/content of="$connected" bs=64k oflag=direct 2>/dev/null && dd if="$connected" bs=64k count=4 iflag=direct 2>/dev/null | cmp - /tmp/content || return 1
  nvme disconnect -n "$NQN_A" && within 15 has_no_device "$NQN_A"
}
for size in 16 17 255 256 1024; do check "connect-with-queues-of-$size" connects -Q $size; done
check connect-with-one-queue connects -i 1
check connect-with-more-queues-than-there-are connects -i 1024
check connect-with-queues-for-writes-and-polling connects --nr-write-queues=2 --nr-poll-queues=2
check connect-without-flow-control connects --disable-sqflow
for digest in hdr data; do check "connect-with-$digest-digest" connects --$digest-digest; done
check connect-without-keep-alive connects -k 0
outlives_keep_alive() {
  timeout 30 nvme connect $fabric $me -n "$NQN_A" -k 1 && within 15 has_device "$NQN_A" && sleep 5 &&
    state_is "$(controller_of "$NQN_A")" live && nvme disconnect -n "$NQN_A" && within 15 has_no_device "$NQN_A"
}
check a-keep-alive-of-a-second outlives_keep_alive
check refuses-a-name-with-a-blank refused timeout 30 nvme connect $fabric $me -n "$NQN_A "
check refuses-a-name-that-is-none refused timeout 30 nvme connect $fabric $me -n "$(head -c 222 /dev/zero | tr '\000' a)"
discovery=nqn.2014-08.org.nvmexpress.discovery
check connect-to-discovery timeout 30 nvme connect $fabric $me -n "$discovery" -k 2
check discovery-lives within 10 state_is "$(controller_of "$discovery")" live
check disconnect-discovery nvme disconnect -n "$discovery"

# All at once from what discovery tells, where that is an address that this guest can dial.
timeout 30 nvme discover $fabric $me >/tmp/discovered
if grep -qx "traddr: *$ADDRESS" /tmp/discovered; then
  all_connected() { timeout 60 nvme connect-all $fabric $me "$@" && within 15 has_device "$NQN_A" && within 15 has_device "$NQN_B"; }
  check connect-all all_connected
  check disconnect-from-all nvme disconnect-all
  check all-vanish within 15 has_no_device "$NQN_B"
  check connect-all-with-digests-and-persistent-discovery all_connected --persistent --keep-alive-tmo=1 --hdr-digest --data-digest
  sleep 4
  all_live() { cat /sys/class/nvme/*/state; [ "$(cat /sys/class/nvme/*/state | sort -u)" = live ] && [ "$(ls /sys/class/nvme | wc -l)" -ge 3 ]; }
  check all-live-on all_live
  check connect-all-again timeout 60 nvme connect-all $fabric $me
  check disconnect-all nvme disconnect-all
fi

# Many controllers of one host, one after the other; nvme-cli 2.3 refuses that by itself, so the kernel is asked.
many() {
  for one in 1 2 3 4 5 6 7 8; do
    echo "transport=tcp,traddr=$ADDRESS,trsvcid=$PORT,nqn=$NQN_A,hostnqn=$HOST_NQN,hostid=$HOST_ID,nr_io_queues=1,duplicate_connect" >/dev/nvme-fabrics || return 1
  done
  within 15 has_device "$NQN_A"
  nvme list-subsys; [ "$(nvme list-subsys | grep -c ' live')" -ge 8 ] || return 1
  [ "$REQUIRE_OPTIONAL" = 1 ] || return 0
  nvme list-ctrl "/dev/$(basename "$(controller_of "$NQN_A")")" | tee /tmp/controllers
  [ "$(grep -c '^\[' /tmp/controllers)" -ge 8 ]
}
check eight-controllers-at-once many
check all-disconnect nvme disconnect-all
exit 0
