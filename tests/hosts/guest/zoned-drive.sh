# A server inside of the guest, on a drive that the guest's kernel writes in zones only: what such a drive refuses is an error there. The server is killed
# with signal 9 under load, and what was acknowledged is there. /programs has diecut.
. /scenario/library.sh
modprobe nvme-tcp
diecut=/programs/diecut
# 256 zones of 4 MiB, of which 3 can be written; 20 may be partly written.
check zoned-drive-appears modprobe null_blk nr_devices=1 gb=1 bs=4096 zoned=1 zone_size=4 zone_capacity=3 zone_max_open=20 zone_max_active=20 \
  memory_backed=1
drive=/dev/nullb0
if [ ! -b $drive ]; then echo "no zoned drive, nothing to test"; exit 0; fi
identifies() { $diecut device identify "$1" && $diecut device identify --json "$1" >/tmp/identify.json && grep -q '"zone_bytes": *4194304' /tmp/identify.json \
  && grep -q '"active_zones_max": *20' /tmp/identify.json && grep -q '"capacity_bytes": *3145728' /tmp/identify.json; }
check identify identifies $drive
says() { what=$1; shift; "$@" >/tmp/says 2>&1; cat /tmp/says; grep -q "$what" /tmp/says; }
check two-lanes-are-refused says "20 zones be partly written at once; 2 lanes need 28" $diecut device format --lanes 2 $drive
check other-erase-blocks-are-refused says "an erase block of a zoned drive is a zone" $diecut device format --erase-block 1MiB $drive
check format $diecut device format $drive
check format-again-is-refused says "is the device" $diecut device format $drive
check format-by-force $diecut device format --force $drive

cat >/tmp/setup.toml <<SETUP
[server]
listen = ["127.0.0.1:4421"]
data = "/run/diecut"
[device]
kind = "block"
path = "$drive"
[[tenant]]
name = "t"
[[vssd]]
name = "v"
tenant = "t"
isolation = "channel"
throughput_level = 1
capacity = "384 MiB"
[[volume]]
name = "v"
vssd = "v"
size = "128 MiB"
[[subsystem]]
nqn = "nqn.2026-11.org.diecut:inner"
tenant = "t"
allow_any_host = true
namespaces = [{ nsid = 1, volume = "v" }]
SETUP
starts=0
serve() {
  starts=$((starts + 1))
  $diecut serve --setup /tmp/setup.toml >/tmp/server-$starts.log 2>&1 &
  server=$!
}
tells() { cat /tmp/server-$starts.log; kill -0 $server && grep -q "nvme connect" /tmp/server-$starts.log; }
inner=nqn.2026-11.org.diecut:inner
serve
check serves within 60 tells
check connect timeout 30 nvme connect -t tcp -a 127.0.0.1 -s 4421 $me -n $inner -k 5 -c 1 -l 180
check volume-appears within 15 has_device $inner
V=$(device_of $inner)
if [ ! -b "$V" ]; then tail -n 30 /tmp/server-$starts.log; blkzone report $drive | head -n 20; exit 0; fi
# It is an NVMe drive to the kernel: the one of the server, which has a health log.
tells_of_its_health() { $diecut device identify --json "$V" >/tmp/health.json && cat /tmp/health.json && grep -q '"spare_percent": *100' /tmp/health.json; }
check health-of-an-nvme-drive tells_of_its_health
check fio-verify fio_verify first "$V" 64m 31 $on_device
# Overwritten until zones are cleaned: each is reset and written again.
for round in 1 2 3 4 5 6; do check "overwritten-$round" fio_verify "round$round" "$V" 96m 4$round $on_device --bs=16k; done
zones_are_used() { blkzone report $drive >/tmp/zones; grep -c 'fu\|oi\|cl' /tmp/zones; [ "$(grep -c 'em' /tmp/zones)" -gt 10 ]; }
check zones-were-reset zones_are_used
# At the time of the death a load is under way; what it verified before stays.
check acknowledged-before fio_verify before "$V" 48m 51 $on_device --fsync=64
for death in 1 2 3 4 5 6; do
  fio_verify "across$death" "$V" 4m "6$death" $on_device --offset=64m --rate_iops=250 >/tmp/across.out 2>&1 & across=$!
  sleep 3
  kill -9 $server; wait $server 2>/dev/null
  serve
  check "death-$death-serves-again" within 60 tells
  across_ends() { wait $across; across_code=$?; cat /tmp/across.out; return $across_code; }
  check "death-$death-load-goes-on" across_ends
  check "death-$death-nothing-is-missing" fio_reread before "$V" 48m 51 $on_device --fsync=64
done
check disconnect nvme disconnect-all
ends() { kill $server; wait $server; server_code=$?; tail -n 5 /tmp/server-$starts.log; return $server_code; }
check server-ends ends
refused_writes() { dmesg | grep -iE 'nullb0.*error|I/O error, dev nullb0' && return 1; return 0; }
check drive-refused-nothing refused_writes
# Labels change with the pool: a second drive joins.
check label-is-there says "number" $diecut device identify $drive
exit 0
