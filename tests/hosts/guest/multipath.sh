# Two paths to one subsystem, over two network cards and two ports of the server: native multipath with every policy, paths
# that are lost under load and come back, and the same port connected twice. Each path is a controller; none ends another.
. /scenario/library.sh
modprobe nvme-tcp
ip link set eth1 up && ip address add 10.0.3.15/24 dev eth1
# Without it a lost network cannot be reached over the other one.
ip route del default
check multipath-is-on grep -q Y /sys/module/nvme_core/parameters/multipath

# The kernel's words for a path: "traddr=10.0.2.2,trsvcid=4420", and on newer kernels more.
path_to() {
  for controller in /sys/class/nvme/nvme*; do
    case $(cat "$controller/address" 2>/dev/null) in *"traddr=$1,"*) echo "$controller"; return 0 ;; esac
  done
  return 1
}
live_count() { live_found=0; for controller in /sys/class/nvme/nvme*; do if state_is "$controller" live; then live_found=$((live_found + 1)); fi; done; echo "$live_found live"; [ "$live_found" = "$1" ]; }

# --- discovery tells both ports ---
tells_both_ports() { timeout 30 nvme discover $fabric $me >/tmp/discovered; cat /tmp/discovered; grep -q "^trsvcid: *$PORT\$" /tmp/discovered && grep -q "^trsvcid: *$PORT_2\$" /tmp/discovered; }
[ "$REQUIRE_OPTIONAL" = 0 ] || check discovery-tells-both-ports tells_both_ports

# --- two paths ---
check connect-path-1 timeout 30 nvme connect -t tcp -a "$ADDRESS" -s "$PORT" $me -n "$NQN_A" -k 5 -c 1 -l 600
check connect-path-2 timeout 30 nvme connect -t tcp -a "$ADDRESS_2" -s "$PORT_2" $me -n "$NQN_A" -k 5 -c 1 -l 600
connected_at=$(date +%s)
check device-a-appears within 15 has_device "$NQN_A"
check both-paths-live within 15 live_count 2
A=$(device_of "$NQN_A"); one=$(path_to "$ADDRESS"); two=$(path_to "$ADDRESS_2")
if [ ! -b "$A" ] || [ -z "$one" ] || [ -z "$two" ]; then echo "no device or no paths, nothing more to test"; nvme list-subsys; exit 0; fi
subsystem=$(echo /sys/class/nvme-subsystem/nvme-subsys*)
controllers_differ() { cat "$one/cntlid" "$two/cntlid"; [ "$(cat "$one/cntlid")" != "$(cat "$two/cntlid")" ]; }
check controllers-have-ids-of-their-own controllers_differ
one_subsystem() { nvme list-subsys; [ -d "$subsystem" ] && [ -e "$subsystem/${one##*/}" ] && [ -e "$subsystem/${two##*/}" ]; }
check one-subsystem-has-both one_subsystem

# --- policies ---
# Writes that went over each path. The number of a path's hidden disk is the controller's.
writes_over() { awk '{ print $5 }' /sys/block/nvme*"c${1##*/nvme}"n1/stat; }
note_writes() { for controller in /sys/class/nvme/nvme*; do echo "${controller##*/} $(writes_over "$controller")"; done; }
# busy_since FILE: the paths that carried writes since `note_writes` wrote that file.
busy_since() { note_writes | while read -r name writes; do grep -qx "$name $writes" "$1" || echo "$name"; done; }
# policy NAME PATHS SEED: sets the policy, and sees that so many paths carry writes, no more and no less.
policy() {
  echo "$1" >"$subsystem/iopolicy" || return 1
  note_writes >/tmp/writes
  fio_verify "$1" "$A" 2m "$3" $on_device || return 1
  echo "policy $(cat "$subsystem/iopolicy"), carrying writes: $(busy_since /tmp/writes | tr '\n' ' ')"
  [ "$(busy_since /tmp/writes | wc -l)" = "$2" ]
}
check policy-numa policy numa 1 41
check policy-round-robin policy round-robin 2 42
# Since Linux 6.11.
case $(uname -r) in 6.1.*) queue_depth=0 ;; *) queue_depth=1 ;; esac
[ $queue_depth = 0 ] || check policy-queue-depth policy queue-depth 2 43
# A server that lets a host have one controller ends them in turn, at the latest when a keep-alive is due.
outlive() { while [ "$(date +%s)" -lt $(($1 + 7)) ]; do sleep 0.2; done; }
unnoticed() { dmesg | grep -iE 'nvme.*(error|timeout|reconnect|failed)' && return 1; live_count 2; }
outlive "$connected_at"
check paths-leave-each-other-alone unnoticed

# --- paths are lost under load and come back ---
# Of the path that stays: 6.1 does not count what the device itself is asked.
goes_on() { [ "$(writes_over "$stays")" -gt $((before + 10)) ]; }
# loses NAME POLICY PATH SEED: the network of a path is gone until the host has given the path up. Commands that were on
# their way over it go over the other one.
loses() {
  echo "$2" >"$subsystem/iopolicy"
  case $3 in
    "$one") stays=$two card=eth0 address=10.0.2.15 ;;
    *) stays=$one card=eth1 address=10.0.3.15 ;;
  esac
  fio_verify "$1" "$A" 4m "$4" $on_device --rate_iops=60 >/tmp/loss.out 2>&1 & load=$!
  sleep 2
  ip link set $card down
  check "$1-is-noticed" within 40 left_live "$3"
  before=$(writes_over "$stays")
  check "$1-load-goes-on" within 30 goes_on
  ip link set $card up; ip address add $address/24 dev $card 2>/dev/null
  check "$1-path-comes-back" within 60 state_is "$3" live
  load_ends() { wait $load; load_code=$?; cat /tmp/loss.out; return $load_code; }
  check "$1-fio-verify" load_ends
}
loses round-robin-loses-2 round-robin "$two" 44
# The path that carries everything is the one to lose.
echo numa >"$subsystem/iopolicy"; note_writes >/tmp/writes
dd if=/dev/zero of="$A" bs=4k count=1 seek=8192 oflag=direct 2>/dev/null
carrier=/sys/class/nvme/$(busy_since /tmp/writes)
check numa-has-one-carrier [ -e "$carrier/cntlid" ]
loses numa-loses-its-carrier numa "$carrier" 45
[ $queue_depth = 0 ] || loses queue-depth-loses-1 queue-depth "$one" 46
check both-paths-live-again within 30 live_count 2

# --- the same port connected twice ---
# Asked of the kernel itself: nvme-cli 2.3 refuses, whatever its option --duplicate-connect says.
ask_kernel() { # MORE OPTIONS
  printf %s "nqn=$NQN_A,transport=tcp,traddr=$ADDRESS,trsvcid=$PORT,hostnqn=$HOST_NQN,hostid=$HOST_ID,keep_alive_tmo=5,reconnect_delay=1,ctrl_loss_tmo=600$1" >/dev/nvme-fabrics
}
check second-connection-is-refused-by-the-host refused ask_kernel ""
check connect-duplicate ask_kernel ,duplicate_connect
connected_at=$(date +%s)
check three-controllers-live within 15 live_count 3
check policy-round-robin-over-three policy round-robin 3 47
outlive "$connected_at"
check three-controllers-stay live_count 3
third=
for controller in /sys/class/nvme/nvme*; do [ "$controller" = "$one" ] || [ "$controller" = "$two" ] || third=${controller##*/}; done
check third-controller-is-new [ -n "$third" ]
check disconnect-duplicate timeout 30 nvme disconnect -d "$third"
check two-controllers-are-left within 15 live_count 2
check fio-reread fio_reread round-robin "$A" 2m 47 $on_device
check no-error-reached-the-device no_errors
check disconnect-all nvme disconnect-all
check device-vanishes within 15 has_no_device "$NQN_A"
exit 0
