# Flexible Data Placement as nvme-cli and fio see it: configuration, handles, reclaim units, statistics and events, writes with directives,
# and what is there after the server was killed. Needs the newer programs: fio knows placement since 3.34.
. /scenario/library.sh
export PATH=/newer/bin:$PATH
modprobe nvme-tcp
check connect timeout 30 nvme connect $fabric $me -n "$NQN_PLACED" -k 5 -c 1 -l 180
check devices-appear within 15 has_device "$NQN_PLACED"
sleep 1
controller=$(controller_of "$NQN_PLACED"); C=/dev/${controller##*/}
# Namespace 1 chooses among four handles; namespace 2 was given one and need not know.
P=$(device_of "$NQN_PLACED" 1); Q=$(device_of "$NQN_PLACED" 2)
if [ ! -b "$P" ] || [ ! -b "$Q" ]; then echo "no devices, nothing more to test"; nvme list; exit 0; fi
NG=$(generic_of "$P")

# --- what is told ---
controller_has_fdp() { nvme id-ctrl "$C" -H >/tmp/idctrl; grep -iE 'ctratt|FDPS|Flexible Data' /tmp/idctrl; [ $(($(sed -n 's/^ctratt *: *\(0x[0-9a-fA-F]*\).*/\1/p' /tmp/idctrl) >> 19 & 1)) = 1 ]; }
check controller-has-fdp controller_has_fdp
namespace_names_group() { nvme id-ns "$1" >/tmp/idns && grep endgid /tmp/idns && grep -qE '^endgid *: *1$' /tmp/idns; }
check namespace-names-its-group namespace_names_group "$P"
enabled() { nvme fdp feature "$C" --endgrp-id=1 >/tmp/fdp && cat /tmp/fdp && grep -qE 'Enable \(FDPE\) *: Yes' /tmp/fdp; }
check feature-is-enabled enabled
check feature-is-fixed-while-namespaces-exist refused nvme fdp feature "$C" --endgrp-id=1 --disable
configs() { nvme fdp configs "$C" --endgrp-id=1 >/tmp/fdp && cat /tmp/fdp && grep -qE 'Number of Reclaim Unit Handles *: *4$' /tmp/fdp && grep -qE 'Number of Reclaim Groups *: *1$' /tmp/fdp && [ "$(grep -cE 'Persistently Isolated' /tmp/fdp)" = 4 ]; }
check configs configs
usage() { nvme fdp usage "$C" --endgrp-id=1 >/tmp/fdp && cat /tmp/fdp && [ "$(grep -c 'Host Specified' /tmp/fdp)" = 4 ]; }
check usage usage
status() { nvme fdp status "$1" >/tmp/status && cat /tmp/status; }
check status status "$P"
four_handles() { status "$P" && [ "$(grep -c 'Placement Identifier' /tmp/status)" = 4 ]; }
check status-has-four-handles four_handles
one_handle() { status "$Q" && [ "$(grep -c 'Placement Identifier' /tmp/status)" = 1 ]; }
check status-of-the-other-has-one one_handle

# --- statistics: what one handle takes is what is counted, and its reclaim unit has that much less room ---
number() { sed -n "s/.*$1[^:]*: *\([0-9]*\).*/\1/p" /tmp/stats; }
stats() { nvme fdp stats "$C" --endgrp-id=1 >/tmp/stats && cat /tmp/stats && host_bytes=$(number 'Host Bytes with Metadata Written') && media_bytes=$(number 'Media Bytes with Metadata Written') && [ -n "$host_bytes" ] && [ -n "$media_bytes" ]; }
check stats stats
# room HANDLE: blocks that the reclaim unit of a placement handle still takes.
room() { status "$P" >/dev/null; sed -n "/Placement Identifier $1;/,/RUAMW/s/.*(RUAMW): *//p" /tmp/status; }
write_with() { # handle, first block, blocks, file
  head -c $(($3 * 4096)) /dev/urandom >"$4" && nvme write "$P" -s "$2" -c $(($3 - 1)) -z $(($3 * 4096)) -d "$4" --dir-type=2 --dir-spec="$1"
}
counted() {
  stats >/dev/null && before=$host_bytes room_before=$(room 2) other_before=$(room 1) && write_with 2 40000 32 /tmp/two && stats && room_after=$(room 2) other_after=$(room 1) || return 1
  echo "host bytes $before to $host_bytes, room of handle 2 $room_before to $room_after, of handle 1 $other_before to $other_after"
  [ $((host_bytes - before)) = $((32 * 4096)) ] && [ $((room_before - room_after)) = 32 ] && [ "$other_before" = "$other_after" ]
}
check written-is-counted counted
read_back() { rm -f /tmp/read; nvme read "$P" -s "$1" -c $(($2 - 1)) -z $(($2 * 4096)) -d /tmp/read && cmp /tmp/read "$3"; }
check reads-back read_back 40000 32 /tmp/two
fresh_unit() { nvme fdp update "$P" --pids=2 && full=$(room 2) && echo "$full" && [ "$full" -gt "$room_after" ]; }
check update-takes-a-fresh-unit fresh_unit

# --- events: an update of a unit that was written in part, and a handle that does not exist ---
events() { nvme fdp events "$C" --endgrp-id=1 --host-events >/tmp/events && cat /tmp/events; }
check events events
check events-are-enabled nvme fdp set-events "$P" -p 0 -t 0,3 --enable
few() { write_with 0 41000 4 /tmp/few && nvme fdp update "$P" --pids=0 && events && grep -qiE 'not.*fully|Event Type: *0x0\b|Reclaim unit not' /tmp/events; }
check event-of-a-unit-written-in-part few
unknown_handle() { write_with 9 42000 4 /tmp/nine && read_back 42000 4 /tmp/nine && events && grep -qiE 'invalid placement|Event Type: *0x3' /tmp/events; }
check event-of-a-handle-that-does-not-exist unknown_handle

# --- fio, as people use it ---
placed_fio() { unpiped timeout 250 fio --name=placed --filename="$NG" --ioengine=io_uring_cmd --cmd_type=nvme --fdp=1 --bs=16k --iodepth=8 --size=48m --verify=crc32c --verify_fatal=1 --do_verify=1 --thread --output-format=terse --terse-version=3 "$@"; }
check fio-two-handles placed_fio --rw=write --fdp_pli=0,1
check fio-handle-by-round-robin placed_fio --rw=randwrite --fdp_pli=1,2,3 --fdp_pli_select=roundrobin
check fio-handle-by-chance placed_fio --rw=randwrite --fdp_pli=0,3 --fdp_pli_select=random
check fio-knows-no-placement fio_verify plain "$Q" 32m 9 $on_device
# Nothing died but what was written over: what was programmed for it is at most what is written and what is cleaned.
amplification() { stats && echo "hosts $host_bytes, media $media_bytes" && [ "$media_bytes" -ge $((host_bytes * 9 / 10)) ] && [ "$media_bytes" -lt $((host_bytes * 2)) ]; }
check media-bytes-are-of-this-size amplification

# --- reclaim groups: the upper bit of an identifier is one of two dies ---
check connect-to-groups timeout 30 nvme connect $fabric $me -n "$NQN_PLACED.groups" -k 5 -c 1 -l 180
check groups-appear within 15 has_device "$NQN_PLACED.groups"
sleep 1
groups_controller=$(controller_of "$NQN_PLACED.groups"); G=$(device_of "$NQN_PLACED.groups" 1)
# on_groups COMMAND: what is above, of the namespace with groups.
on_groups() { local P=$G NG; NG=$(generic_of "$G"); "$@"; }
two_groups() { nvme fdp configs "/dev/${groups_controller##*/}" --endgrp-id=1 >/tmp/fdp && cat /tmp/fdp && grep -qE 'Number of Reclaim Groups *: *2$' /tmp/fdp && grep -qE 'Number of Reclaim Unit Handles *: *2$' /tmp/fdp && grep -qE 'FDP Attributes *: *0x81$' /tmp/fdp; }
check configs-have-two-groups two_groups
all_pairs() { status "$G" && [ "$(sed -n 's/.*Placement Identifier \([0-9]*\);.*/\1/p' /tmp/status | xargs)" = "0 32768 1 32769" ]; }
check status-has-each-handle-in-each-group all_pairs
rooms() { for pid in 0 32768 1 32769; do room "$pid"; done | xargs; }
write_in_group() {
  before=$(rooms) && write_with 32769 20000 16 /tmp/group && after=$(rooms) || return 1
  echo "room before: $before, after: $after"
  set -- $before; expected="$1 $2 $3 $(($4 - 16))"
  [ "$after" = "$expected" ]
}
check a-write-takes-of-one-group on_groups write_in_group
check reads-back-from-a-group on_groups read_back 20000 16 /tmp/group
update_in_group() { nvme fdp update "$P" --pids=32769 && after=$(rooms) && echo "$after" && set -- $after && [ "$4" -gt $((${before##* } - 16)) ]; }
check update-of-one-group on_groups update_in_group
check fio-all-groups on_groups placed_fio --rw=randwrite --fdp_pli=0,1,2,3

# --- the server dies while handles are written to ---
# A command of io_uring that its controller loses is the program's business: no kernel sends it again. What is written through the block
# layer goes on.
placed_fio --rw=write --fdp_pli=0,1,2,3 --offset=64m --rate_iops=150 >/tmp/placed.out 2>&1 & placed=$!
fio_verify across "$Q" 32m 10 --rate_iops=400 $on_device >/tmp/across.out 2>&1 & across=$!
sleep 3
echo "EVENT kill-server"
check death-is-noticed within 30 left_live "$controller"
check reconnects within 120 state_is "$controller" live
across_ends() { wait $across; across_code=$?; cat /tmp/across.out; return $across_code; }
check fio-across-death across_ends
wait $placed; tail -n 3 /tmp/placed.out | cut -c1-300
check fio-writes-handles-after-death placed_fio --rw=write --fdp_pli=0,1,2,3 --offset=64m
check reread-of-the-other-handle fio_reread plain "$Q" 32m 10 $on_device
check blocks-after-death read_back 42000 4 /tmp/nine
check four-handles-after-death four_handles
check groups-after-death within 60 state_is "$groups_controller" live
check a-group-after-death on_groups read_back 20000 16 /tmp/group
check pairs-after-death all_pairs
check goes-on-after-death write_with 3 43000 8 /tmp/eight
check reads-after-death read_back 43000 8 /tmp/eight

# --- telemetry of OCP, as a later nvme-cli decodes it ---
ocp() { nvme ocp "$@" >/tmp/ocp 2>&1; ocp_code=$?; cat /tmp/ocp; return $ocp_code; }
check ocp-smart-add-log ocp smart-add-log "$C"
check ocp-latency-monitor-log ocp latency-monitor-log "$C"
check ocp-set-latency-monitor ocp set-latency-monitor-feature "$C" --active_bucket_timer_threshold=2016 --active_threshold_a=2 --active_threshold_b=3 --active_threshold_c=4 --active_threshold_d=5 --active_latency_config=0xfff --active_latency_minimum_window=10 --debug_log_trigger_enable=0x249 --latency_monitor_feature_enable=1
check ocp-error-recovery-log ocp error-recovery-log "$C"
check ocp-device-capability-log ocp device-capability-log "$C"
check ocp-unsupported-reqs-log ocp unsupported-reqs-log "$C"
strings() { ocp telemetry-string-log "$C" -o json || ocp telemetry-string-log "$C" || ocp telemetry-str-log "$C"; }
check ocp-telemetry-string-log strings
check controller-lives state_is "$controller" live
check no-errors no_errors
check disconnect-all nvme disconnect-all
exit 0
