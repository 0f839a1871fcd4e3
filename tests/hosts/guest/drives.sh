# A server inside of the guest on drives of QEMU: one of virtio, one of NVMe with a volatile cache, a zoned one (ZNS), and one with placement
# handles (FDP), which counts what it is sent and what it writes. The guest resets itself under load,
# without a word to anybody, and boots again, while QEMU and the drives go on. What was flushed before is there. /programs has diecut.
. /scenario/library.sh
modprobe nvme-tcp; modprobe nvme
diecut=/programs/diecut
resets=3
# by_serial SERIAL: the drive of this serial number.
by_serial() {
  for block in /sys/block/vd* /sys/block/nvme*; do
    case ${block##*/} in nvme*c*n*) continue ;; esac
    serial=$(cat "$block/serial" "$block/device/serial" 2>/dev/null | head -n 1 | tr -d ' ')
    if [ "$serial" = "$1" ]; then echo "/dev/${block##*/}"; return 0; fi
  done
  return 1
}
all_are_there() { for name in notes virtio nvme zoned placed; do by_serial $name || return 1; done; }
check drives-appear within 30 all_are_there
notes=$(by_serial notes) virtio=$(by_serial virtio) nvme=$(by_serial nvme) zoned=$(by_serial zoned) placed=$(by_serial placed)
if [ ! -b "$notes" ] || [ ! -b "$placed" ]; then echo "no drives, nothing to test"; exit 0; fi
# Which boot it is lies on a drive of its own: a guest keeps nothing else.
boot=$(($(dd if=$notes bs=512 count=1 2>/dev/null | tr -d '\0' | head -n 1) + 1))
keep() { { echo "$1"; head -c 512 /dev/zero; } | head -c 512 >/tmp/notes && dd if=/tmp/notes of=$notes bs=512 conv=fsync 2>/dev/null; }
keep $boot
echo "EVENT boot $boot"

# The drive with handles counts bytes that it is sent (HBMW) and bytes that it writes (MBMW). What is sent is what the kernel counts of its block device, what the server says that it programmed for the vSSD
# there, which goes past the block layer, and a little for the catalog and block states.
fdp_statistic() { /newer/bin/nvme fdp stats $placed -e 1 -o json | tr -d ' ,"' | sed -n "s/^$1://p"; }
through_block_device() { awk '{ print $7 * 512 }' /sys/block/${placed##*/}/stat; }
programmed() {
  $diecut status --socket /run/diecut/control.sock --json | tr -d ' ,"' |
    awk -F: '$1 == "vssds" { vssds = 1 } vssds && $1 == "name" { own = $2 == "on-placed" } own && $1 ~ /^programmed_/ { sum += $2 } END { print sum + 0 }'
}
sent_at_boot=$(fdp_statistic hbmw) through_at_boot=$(through_block_device)
counts_what_is_sent() {
  counted=$(($(fdp_statistic hbmw) - sent_at_boot)) through=$(($(through_block_device) - through_at_boot)) own=$(programmed)
  rest=$((counted - through - own))
  echo "counted $counted: $through through the block device, $own for the vSSD, $rest for catalog and block states"
  [ "$own" -gt 0 ] && [ $rest -ge 0 ] && [ $rest -lt 4194304 ]
}
fdp_statistics() {
  /newer/bin/nvme fdp stats $placed -e 1
  hosts=$(fdp_statistic hbmw) media=$(fdp_statistic mbmw)
  [ "${hosts:-0}" -gt 0 ] && [ "$media" -ge "$hosts" ]
}
says() { what=$1; shift; "$@" >/tmp/says 2>&1; cat /tmp/says; grep -q "$what" /tmp/says; }
tenant() {
  cat <<SETUP
[[tenant]]
name = "$1"
[[vssd]]
name = "$1"
tenant = "$1"
device = $2
isolation = "channel"
capacity = "192 MiB"
[[volume]]
name = "$1"
vssd = "$1"
size = "96 MiB"
[[subsystem]]
nqn = "nqn.2026-11.org.diecut:$1"
tenant = "$1"
allow_any_host = true
namespaces = [{ nsid = 1, volume = "$1" }]
SETUP
}
if [ $boot = 1 ]; then
  check identify-virtio says "volatile cache" $diecut device identify $virtio
  check identify-nvme says "warns of nothing" $diecut device identify $nvme
  check identify-zoned says "20" $diecut device identify $zoned
  check identify-placed says "placement handles *6" $diecut device identify $placed
  check format $diecut device format $virtio $nvme $zoned $placed
fi
{
  printf '[server]\nlisten = ["127.0.0.1:4421"]\ndata = "/run/diecut"\n'
  for name in virtio nvme zoned placed; do eval path=\$$name; printf '[[device]]\nkind = "block"\npath = "%s"\nname = "%s"\n' "$path" $name; done
  for name in virtio nvme zoned placed; do tenant on-$name "\"$name\""; done
} >/tmp/setup.toml
$diecut serve --setup /tmp/setup.toml >/tmp/server.log 2>&1 &
server=$!
tells() { cat /tmp/server.log; kill -0 $server && grep -q "nvme connect" /tmp/server.log; }
check "boot-$boot-serves" within 90 tells
volume_of() { device_of nqn.2026-11.org.diecut:on-$1; }
for name in virtio nvme zoned placed; do
  inner=nqn.2026-11.org.diecut:on-$name
  check "boot-$boot-connect-$name" timeout 30 nvme connect -t tcp -a 127.0.0.1 -s 4421 $me -n $inner -k 5 -c 1 -l 180
  check "boot-$boot-volume-of-$name" within 15 has_device $inner
  if [ ! -b "$(volume_of $name)" ]; then tail -n 30 /tmp/server.log; exit 0; fi
done
if [ $boot -gt 1 ]; then
  for name in virtio nvme zoned placed; do
    check "boot-$boot-nothing-is-missing-on-$name" fio_reread kept "$(volume_of $name)" 24m 7$((boot - 1)) $on_device --end_fsync=1
  done
fi
if [ $boot -le $resets ]; then
  for name in virtio nvme zoned placed; do
    # Overwritten until segments are cleaned, and then what is to be there after the reset.
    check "boot-$boot-overwritten-on-$name" fio_verify over "$(volume_of $name)" 80m 3$boot $on_device --bs=32k
    check "boot-$boot-kept-on-$name" fio_verify kept "$(volume_of $name)" 24m 7$boot $on_device --end_fsync=1
  done
  check "boot-$boot-hbmw-equals-what-was-sent" within 60 counts_what_is_sent
  for name in virtio nvme zoned placed; do
    fio_verify across "$(volume_of $name)" 32m 9$boot $on_device --offset=40m --fsync=16 >/dev/null 2>&1 &
  done
  sleep 4
  echo "EVENT reset $boot"
  # As a reset of the machine: nothing is written back, nobody is told.
  echo b >/proc/sysrq-trigger
  sleep 60
fi
check placed-counts fdp_statistics
# What each handle still takes of its reclaim unit differs where writes named it.
handles_in_use() {
  /newer/bin/nvme fdp status $placed
  used=$(/newer/bin/nvme fdp status $placed | grep 'RUAMW' | grep -cv ': 32768$')
  echo "$used placement identifiers have a reclaim unit that was begun"
  [ "$used" -ge 4 ]
}
check placed-by-handle handles_in_use
check disconnect nvme disconnect-all
ends() { kill $server; wait $server; server_code=$?; tail -n 5 /tmp/server.log; return $server_code; }
check server-ends ends
complains() { dmesg | grep -iE 'I/O error, dev (vd|nvme[0-9]*n)' && return 1; return 0; }
check drives-refused-nothing complains
exit 0
