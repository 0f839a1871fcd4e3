# blktests' group nvme with this server as the remote target: the subsystem of tenant A is there already, so setting it up and
# taking it away is nothing to do. /programs has blktests and the programs that its scripts call.
. /scenario/library.sh
modprobe nvme-tcp; modprobe loop; modprobe ext4; modprobe xfs; modprobe configfs
mount -t configfs config /sys/kernel/config 2>/dev/null
export PATH=/programs/bin:$PATH HOME=/tmp
ln -sf /programs/bin/bash /usr/bin/bash
# There is no udev here: the kernel makes the nodes of devices itself.
printf '#!/bin/sh\nexit 0\n' >/usr/sbin/udevadm && chmod +x /usr/sbin/udevadm
check connect timeout 30 nvme connect $fabric $me -n "$NQN_A"
check device-appears within 15 has_device "$NQN_A"
A=$(device_of "$NQN_A") || { echo "no device, nothing more to test"; exit 0; }
cat >/tmp/control <<CONTROL
#!/bin/sh
case "\$1 \$2" in
  "config --show-hostnqn") echo "$HOST_NQN" ;;
  "config --show-hostid") echo "$HOST_ID" ;;
  "config --show-host-traddr") echo 10.0.2.15 ;;
  "config --show-traddr") echo "$ADDRESS" ;;
  "config --show-trsvid") echo "$PORT" ;;
  "config --show-trtype") echo tcp ;;
  "config --show-blkdev-type") echo device ;;
  "config --show-subsys-uuid") echo "$(cat "/sys/block/${A##*/}/uuid")" ;;
  "config --show-subsysnqn") echo "$NQN_A" ;;
esac
exit 0
CONTROL
chmod +x /tmp/control
check disconnect nvme disconnect -n "$NQN_A"
mkdir -p /tmp/blktests && cp -r /programs/blktests/. /tmp/blktests && cd /tmp/blktests || exit 1
cat >config <<CONFIG
NVMET_TRTYPES=tcp
NVMET_BLKDEV_TYPES=device
NVME_IMG_SIZE=350M
NVME_NUM_ITER=5
NVME_TARGET_CONTROL=/tmp/control
QUICK_RUN=1
TIMEOUT=10
CONFIG
# One at a time: what a test leaves behind is taken away before the next.
for test in $(cat list); do
  name=$(echo "$test" | tr / -)
  case $test in
    nvme/029) why="moves 512 blocks in a command, which are more than the server takes at 4 KiB a block" ;;
    nvme/031) why="needs subsystems of its own" ;;
    nvme/051 | nvme/057 | nvme/058 | nvme/061) why="changes namespaces or ports of Linux's own target, or takes it away" ;;
    *) why= ;;
  esac
  if [ -n "$why" ]; then echo "EVENT skipped $name: $why"; continue; fi
  blktest 180 "$test"
  nvme disconnect-all >/dev/null 2>&1
done
check disconnect-all nvme disconnect-all
exit 0
