# SPDK's programs for zones on zoned namespaces: identify with zone reports, perf, dd, the examples hello_world, hello_bdev and bdevperf, and
# fio in zone mode with SPDK's plug-ins for bdevs and for NVMe; zone commands and limits by RPC; SPDK's target, which serves our zones to
# others; and the server killed between writes and under reads.
# DIECUT_SPDK: a folder in which SPDK was built; else the tools in the PATH. fio is the one of its --with-fio, or DIECUT_SPDK_FIO.
suite=spdk-zoned
. tests/strangers/library.sh
. tests/strangers/spdk.sh
spdk_tools identify=spdk_nvme_identify perf=spdk_nvme_perf dd=spdk_dd bdevperf hello_world hello_bdev nvmf_tgt
# Plug-ins of fio.
spdk_tools of_bdevs=spdk_bdev of_nvme=spdk_nvme
# They run in the fio that they were built with.
fio=${DIECUT_SPDK_FIO:-$(sed -n 's/^CONFIG_FIO_SOURCE_DIR?*=//p' "${DIECUT_SPDK:-.}/mk/config.mk" 2>/dev/null || true)/fio}
[ -x "$fio" ] || of_bdevs='' of_nvme=''
[ -n "$identify" ] && [ -n "$nvmf_tgt" ] || nothing_to_run "no spdk_nvme_identify and nvmf_tgt are here (DIECUT_SPDK)"
build diecut-cli
port=$(free_port)
nqn=nqn.2026-11.org.diecut:strangers-z
# Namespace 1: 128 zones of 4 MiB. 2: 64 of 2 MiB with random write areas and descriptor extensions. 3: 32 of 8 MiB, of which 6 MiB are there.
cat >"$work/setup.toml" <<SETUP
[server]
listen = "127.0.0.1:$port"
data = "$run_folder/data"
[device]
profile = "$PWD/tests/hosts/device.toml"
[[tenant]]
name = "z"
[[vssd]]
name = "z"
tenant = "z"
isolation = "channel"
throughput_level = 2
capacity = "1 GiB"
use = "zones"
[[volume]]
name = "z"
vssd = "z"
size = "512 MiB"
zones = { units = 2, active = 10, open = 6 }
[[volume]]
name = "r"
vssd = "z"
size = "128 MiB"
zones = { units = 1, active = 4, random_area = "64 KiB", extension = 64 }
[[volume]]
name = "c"
vssd = "z"
size = "192 MiB"
zones = { units = 3, active = 6 }
[[subsystem]]
nqn = "$nqn"
tenant = "z"
allow_any_host = true
namespaces = [{ nsid = 1, volume = "z" }, { nsid = 2, volume = "r" }, { nsid = 3, volume = "c" }]
SETUP
serve "$work/setup.toml"
there="trtype:TCP adrfam:IPv4 traddr:127.0.0.1 trsvcid:$port subnqn:$nqn"
configures "$work/bdev.json" '' "z=$nqn"
configures "$work/digests.json" ', "hdgst": true, "ddgst": true' "z=$nqn"
configures "$work/patient.json" ', "ctrlr_loss_timeout_sec": 60, "reconnect_delay_sec": 1' "z=$nqn"

# --- zone commands by RPC: SPDK's target is a host that stays, and its RPC sends what it is given ---
cat >"$work/zones.py" <<'PYTHON'
import base64, json, socket, struct, sys

OPEN, CLOSE, FINISH, RESET = 3, 1, 2, 4
EMPTY, EXPLICIT, CLOSED, FULL = 0x10, 0x30, 0x40, 0xE0
TOO_MANY_OPEN, TOO_MANY_ACTIVE, BAD_TRANSITION = (1, 0xBE), (1, 0xBD), (1, 0xBF)

def call(method, **parameters):
    with socket.socket(socket.AF_UNIX) as rpc:
        rpc.settimeout(60)
        rpc.connect(sys.argv[1])
        rpc.sendall(json.dumps({"jsonrpc": "2.0", "id": 1, "method": method, "params": parameters}).encode())
        text = b""
        while True:
            more = rpc.recv(1 << 20)
            if not more:
                raise SystemExit(f"{method}: SPDK is gone")
            text += more
            try:
                answer = json.loads(text)
                break
            except ValueError:
                pass
    if "error" in answer:
        raise SystemExit(f"{method}: {answer['error']}")
    return answer["result"]

def command(opcode, nsid, slba, dword12, dword13, data_bytes=0):
    # SPDK v26.05 dies of a command for a controller that it is reconnecting.
    if any(path["state"] != "enabled" for one in call("bdev_nvme_get_controllers") for path in one["ctrlrs"]):
        raise SystemExit("not connected")
    entry = struct.pack("<BBHI32xQIIII", opcode, 0, 0, nsid, slba, dword12, dword13, 0, 0)
    parameters = {"name": "z", "cmd_type": "io", "cmdbuf": base64.urlsafe_b64encode(entry).decode(), "data_direction": "h2c"}
    if data_bytes:
        parameters.update(data_direction="c2h", data_len=data_bytes)
    answer = call("bdev_nvme_send_cmd", **parameters)
    status = struct.unpack("<H", base64.urlsafe_b64decode(answer["cpl"])[14:16])[0] >> 1
    return (status >> 8 & 7, status & 0xFF), base64.urlsafe_b64decode(answer["data"]) if data_bytes else b""

def manage(action, nsid, slba, of_all=False):
    return command(0x79, nsid, slba, 0, action | of_all << 8)[0]

def zones(nsid, slba, count):
    """State and write pointer, from the zone's start, of some zones."""
    status, report = command(0x7A, nsid, slba, (64 + 64 * count) // 4 - 1, 1 << 16, 64 + 64 * count)
    assert status == (0, 0), status
    found = [(report[at + 1], *struct.unpack("<QQQ", report[at + 8:at + 32])) for at in range(64, 64 + 64 * struct.unpack("<Q", report[:8])[0], 64)]
    return [(state, pointer - start if state != FULL else None) for state, capacity, start, pointer in found]

def same(found, wanted):
    print(found)
    assert found == wanted, f"wanted {wanted}"

def shown():
    found = {one["name"]: [one.get(key) for key in ("zoned", "zone_size", "max_open_zones", "num_blocks")] for one in call("bdev_get_bdevs")}
    same(found, {"zn1": [True, 1024, 6, 131072], "zn2": [True, 512, 4, 32768], "zn3": [True, 2048, 6, 65536]})

def zn2_is_gone():
    same(sorted(one["name"] for one in call("bdev_get_bdevs")), ["zn1", "zn3"])

def reset():
    for nsid in (1, 2, 3):
        same(manage(RESET, nsid, 0, True), (0, 0))

def states():
    reset()
    same(manage(OPEN, 1, 0), (0, 0))
    same(zones(1, 0, 2), [(EXPLICIT, 0), (EMPTY, 0)])
    same(manage(CLOSE, 1, 0), (0, 0))
    same(zones(1, 0, 1), [(CLOSED, 0)])
    same(manage(FINISH, 1, 1024), (0, 0))
    same(zones(1, 1024, 1), [(FULL, None)])
    same(manage(OPEN, 1, 1024), BAD_TRANSITION)
    same(manage(RESET, 1, 1024), (0, 0))
    same(zones(1, 1024, 1), [(EMPTY, 0)])

def limits():
    reset()
    for zone in range(6):
        same(manage(OPEN, 1, zone * 1024), (0, 0))
    same(manage(OPEN, 1, 6 * 1024), TOO_MANY_OPEN)
    # With descriptor extensions 4 may be active.
    for zone in range(4):
        same(manage(OPEN, 2, zone * 512), (0, 0))
    same(manage(OPEN, 2, 4 * 512)[0], 1)
    reset()

def pointers():
    print(json.dumps([[zones(nsid, 0, count) for nsid, count in ((1, 128), (2, 64), (3, 32))]]))

def share():
    """Our zones as namespaces of SPDK's own target."""
    call("nvmf_create_transport", trtype="TCP", num_shared_buffers=127, buf_cache_size=16, max_queue_depth=64, max_io_qpairs_per_ctrlr=4)
    call("nvmf_create_subsystem", nqn=sys.argv[3], allow_any_host=True, serial_number="SPDK")
    for name in ("zn1", "zn3"):
        call("nvmf_subsystem_add_ns", nqn=sys.argv[3], namespace={"bdev_name": name})
    call("nvmf_subsystem_add_listener", nqn=sys.argv[3], listen_address={"trtype": "TCP", "adrfam": "IPv4", "traddr": "127.0.0.1", "trsvcid": sys.argv[4]})

globals()[sys.argv[2]]()
PYTHON
keeper=
keeps_a_host() {
  timeout -k 5 1200 "$nvmf_tgt" --json "$work/patient.json" --no-huge -s 768 --disable-cpumask-locks -r "$run_folder/keeper.sock" >>"$work/keeper.out" 2>&1 & keeper=$!
  children+=("$keeper")
  soon shown || { tail -n 5 "$work/keeper.out"; return 1; }
}
# SPDK asks for all events in one command, and hears of namespaces only if that is taken.
comes_and_goes() {
  local diecut=("$target/debug/diecut" --socket "$run_folder/data/control.sock" subsystem)
  "${diecut[@]}" detach "$nqn" --nsid 2 && soon zn2_is_gone && "${diecut[@]}" attach "$nqn" --nsid 2 --volume r && soon shown
}
soon() { for _ in $(seq 150); do ! by_rpc "$1" >/dev/null 2>&1 || return 0; sleep 0.1; done; by_rpc "$1"; }
by_rpc() { python3 "$work/zones.py" "$run_folder/keeper.sock" "$@"; }

# no_command_failed NAME: SPDK prints commands that failed. An Identify of a command set that is not there is no fault.
no_command_failed() { ! grep -A1 'print_command:' "$work/$1.out" | grep -v 'IDENTIFY (06).*cdw10:00000006' | grep -F 'print_command:'; }
identifies() {
  runs identify "$identify" -r "$there" "${no_huge[@]}" -z 4 && grep -q 'NVMe ZNS Zone Report (first 4 of 128)' "$work/identify.out" &&
    grep -q '#00: Zone Size (in LBAs): 0x400 Zone Descriptor Extension Size: 0 bytes' "$work/identify.out" &&
    grep -q '#00: Zone Size (in LBAs): 0x200 Zone Descriptor Extension Size: 64 bytes' "$work/identify.out" &&
    grep -q 'ZSLBA: 0x0000000000000800 ZCAP: 0x0000000000000600 WP: 0x0000000000000800 ZS: Empty ZT: SWR' "$work/identify.out"
}
says_hello_by_bdev() {
  by_rpc reset && runs hello-bdev "$hello_bdev" --json "$work/bdev.json" "${bdev[@]}" -b zn1 && no_command_failed hello-bdev && grep -q 'Read string from bdev : Hello World!' "$work/hello-bdev.out"
}
says_hello() { runs hello-world "$hello_world" -r "$there" && [ "$(grep -c '^Hello world!' "$work/hello-world.out")" = 3 ]; }
# It knows nothing of zones, and writes one after the other where they are whole.
copies() {
  head -c 10485760 /dev/urandom >"$work/in.bin"
  by_rpc reset && runs dd-in "$dd" --json "$work/bdev.json" "${bdev[@]}" --if "$work/in.bin" --ob zn1 --bs 65536 --qd 1 && no_command_failed dd-in &&
    runs dd-out "$dd" --json "$work/bdev.json" "${bdev[@]}" --ib zn1 --of "$work/out.bin" --bs 65536 --qd 8 --count 160 && cmp "$work/in.bin" "$work/out.bin"
}
perfs() { # HOW DEPTH BYTES [OPTIONS]: sequential writes need an empty namespace, as long as there is room.
  local name=perf-$1; local arguments=(-q "$2" -o "$3" -w "$1"); shift 3
  runs "$name" "$perf" -r "$there ns:1" "${no_huge[@]}" "${arguments[@]}" "$@" && no_command_failed "$name" && grep -qE '^Total *: *[1-9]' "$work/$name.out"
}
bdevperfs() { # NAME OPTIONS...: jobs of 128 MiB each, in zones of their own
  local name=bdevperf-$1; shift
  by_rpc reset && runs "$name" "$bdevperf" --json "$work/bdev.json" "${bdev[@]}" -T zn1 "$@" && no_command_failed "$name"
}
# zoned_fio NAME ENGINE NSID OPTIONS...: fio in zone mode with the plug-in for bdevs or the one for NVMe. The former has no option for doing
# without huge pages; what it hands on to DPDK says it, where SPDK looks for the words and DPDK finds a level of a log that is not there.
zoned_fio() {
  local log=$work/fio-$1.out engine=$2 nsid=$3 name=$1; shift 3
  local plug_in words=(--name="$name" --zonemode=zbd --direct=1 --thread --verify_fatal=1 --verify_state_save=0 --output-format=terse --terse-version=3)
  case $engine in
    bdev)
      plug_in=$of_bdevs
      words+=(--ioengine=spdk_bdev --spdk_json_conf="${conf:-$work/bdev.json}" --spdk_mem=512 --env_context=--log-level=no--no-huge--legacy-mem:1)
      words+=(--spdk_rpc_listen_addr="$run_folder/fio.sock" --filename="${bdev_prefix:-z}n$nsid") ;;
    nvme)
      plug_in=$of_nvme
      words+=(--ioengine=spdk --mem_size_mb=512 --filename="trtype=TCP adrfam=IPv4 traddr=127.0.0.1 trsvcid=$port subnqn=${nqn//:/\\:} ns=$nsid") ;;
  esac
  timeout -k 5 "${seconds:-100}" env LD_PRELOAD="$plug_in" "$fio" "${words[@]}" "$@" >"$log" 2>&1 || { local code=$?; cut -c1-300 "$log" | tail -n 10; return $code; }
  cut -c1-300 "$log"
  no_errors "$log" && grep -q '^3;fio' "$log" && no_command_failed "fio-$name"
}
# What both plug-ins do. Verification reads at addresses that fio chose, so that appends are verified one at a time.
fio_suite() { # ENGINE
  local verified=(--verify=crc32c --do_verify=1)
  check "fio-$1-write" zoned_fio "$1-write" "$1" 1 --rw=write --bs=16k --size=48m "${verified[@]}" --initial_zone_reset=1
  check "fio-$1-random" zoned_fio "$1-random" "$1" 1 --rw=randwrite --bs=16k --size=48m --max_open_zones=4 "${verified[@]}"
  check "fio-$1-verified-appends" zoned_fio "$1-verified-appends" "$1" 1 --rw=write --bs=16k --size=48m --zone_append=1 "${verified[@]}" --initial_zone_reset=1
  check "fio-$1-reread" zoned_fio "$1-reread" "$1" 1 --rw=read --bs=16k --size=48m --iodepth=16 --verify=crc32c
  check "fio-$1-jobs" zoned_fio "$1-jobs" "$1" 1 --rw=write --bs=64k --numjobs=4 --offset_increment=64m --size=32m "${verified[@]}" --initial_zone_reset=1
  # As SPDK's own test of zones does (test/nvme/zns/zns.sh): as many zones as may be open, each reset when it is full and written again.
  check "fio-$1-appends" zoned_fio "$1-appends" "$1" 1 --rw=randwrite --bs=16k --iodepth=64 --max_open_zones=6 --zone_append=1 --initial_zone_reset=1 --time_based --runtime=5
  check "fio-$1-randread" zoned_fio "$1-randread" "$1" 1 --rw=randread --bs=4k --iodepth=32 --time_based --runtime=3
  check "fio-$1-capacity-below-size" zoned_fio "$1-capacity-below-size" "$1" 3 --rw=write --bs=16k --size=48m "${verified[@]}" --initial_zone_reset=1
  check "fio-$1-mixed" zoned_fio "$1-mixed" "$1" 3 --rw=randrw --bs=32k --max_open_zones=6 --time_based --runtime=3 --initial_zone_reset=1
  check "fio-$1-areas-and-extensions" zoned_fio "$1-areas-and-extensions" "$1" 2 --rw=write --bs=4k --size=16m "${verified[@]}" --initial_zone_reset=1
}

check identify identifies
check a-host-that-stays keeps_a_host
check zones-are-shown by_rpc shown
check a-namespace-comes-and-goes comes_and_goes
check zone-states by_rpc states
check zone-limits by_rpc limits
if [ -n "$hello_bdev" ]; then check hello-bdev says_hello_by_bdev; else skip hello-bdev "no hello_bdev, an example of SPDK"; fi
if [ -n "$dd" ]; then check dd copies; else skip dd "no spdk_dd"; fi
if [ -n "$perf" ]; then
  check reset-for-perf by_rpc reset
  check perf-write perfs write 1 16384 -t 20 -d 4096
  check perf-randread perfs randread 32 4096 -t 3
else
  skip perf "no spdk_nvme_perf"
fi
if [ -n "$bdevperf" ]; then
  check bdevperf-verify bdevperfs verify -q 1 -o 4096 -w verify -t 2
  check bdevperf-write bdevperfs write -q 1 -o 4096 -w write -t 2
else
  skip bdevperf "no bdevperf"
fi
# These have no option for doing without huge pages, and end at once where there are none.
starts() { ! timeout -k 5 30 "$@" 2>&1 | grep -q 'Unable to initialize SPDK env'; }
if [ -z "$hello_world" ]; then
  skip hello-world "no hello_world, an example of SPDK"
elif starts "$hello_world" -r "${there/trsvcid:$port/trsvcid:1}"; then
  check reset-for-hello-world by_rpc reset
  check hello-world says_hello
else
  skip hello-world "it needs huge pages (256 MiB)"
fi
if [ -z "$of_nvme" ]; then
  skip fio-nvme "no plug-in of SPDK for fio, or no fio that it was built with (DIECUT_SPDK_FIO)"
elif starts env LD_PRELOAD="$of_nvme" "$fio" --name=start --ioengine=spdk --mem_size_mb=512 --thread --rw=read --size=4k --filename='trtype=TCP adrfam=IPv4 traddr=127.0.0.1 trsvcid=1 ns=1'; then
  fio_suite nvme
  check fio-nvme-digests zoned_fio nvme-digests nvme 1 --digest_enable=BOTH --rw=write --bs=128k --size=64m --verify=crc32c --do_verify=1 --initial_zone_reset=1
else
  skip fio-nvme "it needs huge pages (512 MiB)"
fi

if [ -n "$of_bdevs" ]; then
  fio_suite bdev
  digests() { local conf=$work/digests.json; zoned_fio bdev-digests bdev 1 --rw=write --bs=128k --size=64m --verify=crc32c --do_verify=1 --initial_zone_reset=1; }
  check fio-bdev-digests digests

  # --- SPDK's target serves our zones to others ---
  shared_nqn=nqn.2026-11.org.diecut:strangers-spdk
  shared_port=$(free_port)
  served_by=$shared_port configures "$work/shared.json" '' "s=$shared_nqn"
  check spdk-serves-our-zones by_rpc share "$shared_nqn" "$shared_port"
  # There zn1 is namespace 1 and zn3 namespace 2.
  through_spdk() { local conf=$work/shared.json bdev_prefix=s; zoned_fio "$@" --initial_zone_reset=1; }
  check fio-through-spdk-write through_spdk shared-write bdev 1 --rw=write --bs=16k --size=32m --verify=crc32c --do_verify=1
  check fio-through-spdk-appends through_spdk shared-appends bdev 1 --rw=randwrite --bs=16k --iodepth=32 --max_open_zones=6 --zone_append=1 --time_based --runtime=3
  check fio-through-spdk-capacity-below-size through_spdk shared-capacity bdev 2 --rw=write --bs=16k --size=32m --verify=crc32c --do_verify=1

  # --- the server is killed ---
  # Its process must be this shell's.
  dies() { kill -KILL "$server"; wait "$server" || true; cat "$work/server.log" >>"$work/server-before.log"; : >"$work/server.log"; serve "$work/setup.toml"; }
  told_again() { for _ in $(seq 100); do ! by_rpc pointers >"$work/$1" 2>/dev/null || return 0; sleep 0.2; done; return 1; }
  pointers_stay() {
    told_again pointers-before && dies && told_again pointers-after && python3 - "$work/pointers-before" "$work/pointers-after" <<'PYTHON'
import json, sys
before, after = (json.load(open(path)) for path in sys.argv[1:])
# What was open is closed.
wanted = [[[0x40 if state in (0x20, 0x30) else state, pointer] for state, pointer in zones] for zones in before[0]]
print(sum(state == 0x40 for zones in wanted for state, _ in zones), "closed zones")
sys.exit(0 if after[0] == wanted and any(state == 0x40 for zones in wanted for state, _ in zones) else 1)
PYTHON
  }
  check write-before-death zoned_fio before-death bdev 1 --rw=write --bs=16k --size=46m --verify=crc32c --do_verify=1 --initial_zone_reset=1
  check open-before-death zoned_fio open bdev 3 --rw=randwrite --bs=32k --io_size=1m --size=48m --max_open_zones=6 --initial_zone_reset=1
  check pointers-after-death pointers_stay
  check reread-after-death zoned_fio after-death bdev 1 --rw=read --bs=16k --size=46m --iodepth=16 --verify=crc32c
  check write-after-death zoned_fio more bdev 3 --rw=randwrite --bs=32k --size=48m --max_open_zones=6 --verify=crc32c --do_verify=1
  # Reads are asked again when the server is back. Writes could not be: one that was done and not answered is no longer at the write pointer.
  reads_over_deaths() {
    local conf=$work/patient.json reader code=0 death
    zoned_fio over-deaths bdev 1 --rw=read --bs=16k --size=46m --iodepth=16 --verify=crc32c --time_based --runtime=14 >"$work/over-deaths.log" 2>&1 & reader=$!
    for death in 1 2; do sleep 3; dies || code=$?; done
    wait "$reader" || true
    cut -c1-200 "$work/over-deaths.log"
    [ $code = 0 ] && grep -q '^3;fio[^;]*;over-deaths;0;0;' "$work/fio-over-deaths.out" && ! grep -i 'verify: bad' "$work/fio-over-deaths.out"
  }
  check reads-over-deaths reads_over_deaths
  # Appends that were under way fail, or happen twice; the namespace goes on.
  appends_at_death() {
    local appender
    seconds=30 zoned_fio at-death bdev 1 --rw=randwrite --bs=16k --iodepth=64 --max_open_zones=6 --zone_append=1 --initial_zone_reset=1 --time_based --runtime=8 >/dev/null 2>&1 & appender=$!
    sleep 4
    dies
    wait "$appender" || true
    told_again pointers-at-death
  }
  check appends-at-death appends_at_death
  check write-after-appends zoned_fio after-appends bdev 1 --rw=write --bs=16k --size=46m --verify=crc32c --do_verify=1 --initial_zone_reset=1
else
  skip fio-bdev "no plug-in of SPDK for fio, or no fio that it was built with (DIECUT_SPDK_FIO)"
fi
kill "$keeper"; wait "$keeper" || true
check nobody-is-left-connected controllers_are '[[]]'
check everybody-said-goodbye said_goodbye
finish
