//! What people read when hosts can connect: device, vSSDs, addresses, and the commands that come next.

use crate::convert;
use crate::http::DeviceTraits;
use diecut_api::setup::Durability;
use diecut_api::status::MissingDevice;
use diecut_devices::{Room, RoomSupport};
use diecut_spec::Size;
use std::net::SocketAddr;
use std::path::Path;

/// Lines about the room that a device's file takes and may take.
pub(crate) fn about_room(room: &Room, support: RoomSupport, durability: Durability) -> String {
    let size = |bytes: u64| diecut_spec::Size(bytes);
    let mut text = format!(
        "room       the image takes {} now and grows to {}; its file system has {} free\n",
        size(room.taken_bytes),
        size(room.size_bytes),
        size(room.free_bytes),
    );
    if room.can_run_out() {
        text += "           that is less than it can grow to: when the file system is full, writes fail until there is room\n";
    }
    if !support.reserves && durability == Durability::Process {
        text += "           warning: this file system cannot allocate ahead (fallocate): if it fills up, the server may be \
                 killed (SIGBUS)\n";
    }
    if !support.punches {
        text += "           warning: this file system cannot punch holes: what was erased keeps its room in the image\n";
    }
    text
}

/// Where a device is, and what it is.
pub(crate) struct DeviceLine {
    pub place: String,
    pub what: &'static str,
}

/// What people read when hosts can connect, beside what the status says.
pub(crate) struct Announcement<'a> {
    /// Where the server listens.
    pub listen: &'a str,
    /// What hosts dial.
    pub told: &'a [SocketAddr],
    /// Of each device.
    pub devices: &'a [DeviceLine],
    pub missing: &'a [MissingDevice],
    pub room: &'a str,
    pub memory: &'a str,
    pub socket: &'a Path,
}

impl Announcement<'_> {
    /// The text, with how to connect and where to look next.
    pub fn text(&self, status: &diecut_shard::control::Status, device: DeviceTraits) -> String {
        let Announcement { listen, told, devices, missing, room, memory, socket } = *self;
        use std::fmt::Write;
        let mut text = String::new();
        for (one, DeviceLine { place, what }) in status.devices.iter().zip(devices) {
            let raw = Size(one.raw_capacity_bytes);
            let _ = writeln!(text, "device     {} in {place}: {raw} raw, {what}", one.name);
        }
        for one in missing {
            let _ = writeln!(text, "missing    {}: {}", one.name, one.reason);
        }
        if let Some(pacing) = device.pacing {
            let _ = writeln!(text, "timing     {}", diecut_api::status::timing(pacing));
        }
        if let Some(durability) = device.durability {
            let _ = writeln!(
                text,
                "durability {}",
                diecut_api::status::durability(durability, device.volatile_cache == Some(true))
            );
        }
        for vssd in &status.vssds {
            let size = Size(vssd.space.exported_bytes);
            let on = match &*vssd.spec.device {
                [device] => format!("on {device}, "),
                // Of several, each unit is told with its own.
                _ => String::new(),
            };
            let _ = writeln!(
                text,
                "vSSD       {}: {on}{}, {size} for volumes",
                vssd.spec.name,
                convert::placement(vssd).text()
            );
        }
        text += room;
        let _ = writeln!(text, "memory     {memory}");
        let _ = writeln!(text, "listening  {listen}, NVMe over TCP");
        let shown: Vec<&str> = status.subsystems.iter().map(|one| one.spec.nqn.as_str()).collect();
        let nqns = if shown.is_empty() {
            text += &first_steps(status, socket);
            // Of those steps; whoever has a tenant knows what to make.
            if status.tenants.is_empty() { vec![FIRST_NQN] } else { Vec::new() }
        } else {
            shown
        };
        if !nqns.is_empty() {
            text += "\nOn a Linux host, as root:\n\n    modprobe nvme-tcp\n";
            for (nqn, address) in nqns.iter().flat_map(|nqn| told.iter().map(move |address| (nqn, address))) {
                let (ip, port) = (address.ip(), address.port());
                let _ = writeln!(
                    text,
                    "    nvme connect --transport=tcp --traddr={ip} --trsvcid={port} --nqn={nqn}"
                );
            }
            text += "    nvme list\n";
        }
        let _ = writeln!(text, "\nWhere to look next:\n\n    diecut --socket {} status", socket.display());
        // What is in memory survives nothing.
        let after = if device.durability.is_some() {
            "started again, everything is still there"
        } else {
            "what it holds is gone then"
        };
        let _ = writeln!(text, "    diecut --help\n\nCtrl-C stops the server; {after}.");
        text
    }
}

/// The subsystem of the first steps.
const FIRST_NQN: &str = "nqn.2026-11.org.diecut:first";

/// What comes next where hosts find nothing: commands that can be copied, with sizes that fit the device.
fn first_steps(status: &diecut_shard::control::Status, socket: &Path) -> String {
    let diecut = format!("    diecut --socket {}", socket.display());
    let nothing = "\nHosts find nothing yet: no subsystem shows a volume.";
    if !status.tenants.is_empty() {
        return format!("{nothing} How to make one:\n\n{diecut} subsystem create --help\n");
    }
    let channel_bytes =
        status.devices.iter().map(|one| one.raw_capacity_bytes / u64::from(one.channels.max(1))).max();
    // A channel holds that beside over-provisioning and reserves.
    let capacity_bytes =
        channel_bytes.and_then(|bytes| (bytes / 2).checked_ilog2()).map_or(1 << 20, |log| 1u64 << log);
    let (capacity, size) = (Size(capacity_bytes).exact(), Size(capacity_bytes / 2).exact());
    format!(
        "{nothing} To make one, in another terminal:\n\n\
         {diecut} tenant create first\n\
         {diecut} vssd create first-disk --tenant first --isolation channel --capacity \"{capacity}\"\n\
         {diecut} volume create first-data --vssd first-disk --size \"{size}\"\n\
         {diecut} subsystem create {FIRST_NQN} --tenant first --allow-any-host --namespace 1=first-data\n\n\
         Or declare it in a file (docs/setup.md has all keys) and start with `diecut serve --setup FILE --apply`.\n"
    )
}
