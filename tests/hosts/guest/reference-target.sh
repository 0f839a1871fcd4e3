# Linux's own NVMe/TCP target on two virtio disks: a known good peer, to prove the scenarios against.
. /scenario/library.sh
modprobe nvmet; modprobe nvmet-tcp
mount -t configfs config /sys/kernel/config 2>/dev/null
target=/sys/kernel/config/nvmet
mkdir "$target/hosts/$HOST_NQN"
serve() { # subsystem, disk, serial, uuid
  subsystem=$target/subsystems/$1
  mkdir "$subsystem" "$subsystem/namespaces/1"
  echo "$3" >"$subsystem/attr_serial"
  echo 0 >"$subsystem/attr_allow_any_host"
  ln -s "$target/hosts/$HOST_NQN" "$subsystem/allowed_hosts/"
  echo "$2" >"$subsystem/namespaces/1/device_path"
  echo "$4" >"$subsystem/namespaces/1/device_uuid"
  echo 1 >"$subsystem/namespaces/1/enable"
  ln -s "$subsystem" "$target/ports/1/subsystems/"
  ln -s "$subsystem" "$target/ports/2/subsystems/"
}
portal() { # number, TCP port
  mkdir "$target/ports/$1"
  echo ipv4 >"$target/ports/$1/addr_adrfam"
  echo tcp >"$target/ports/$1/addr_trtype"
  echo 0.0.0.0 >"$target/ports/$1/addr_traddr"
  echo "$2" >"$target/ports/$1/addr_trsvcid"
}
portal 1 "$PORT"
portal 2 "$PORT_2"
serve "$NQN_A" /dev/vda REFERENCE-A 6f1c9a52-0001-4c9f-8a51-0d1ec0000001
serve "$NQN_B" /dev/vdb REFERENCE-B 6f1c9a52-0002-4c9f-8a51-0d1ec0000002
echo "EVENT target-ready"
# Until the driver kills this guest.
while true; do sleep 1000; done
