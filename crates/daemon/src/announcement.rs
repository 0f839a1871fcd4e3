//! What people read when hosts can connect: device, vSSDs, addresses, and the commands that come next.

use crate::convert;
use crate::http::DeviceTraits;
use diecut_api::setup::Durability;
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

/// What people read when hosts can connect, beside what the status says.
pub(crate) struct Announcement<'a> {
    /// Where the server listens.
    pub listen: &'a str,
    /// What hosts dial.
    pub told: &'a [SocketAddr],
    pub place: &'a str,
    pub room: &'a str,
    pub memory: &'a str,
    pub socket: &'a Path,
}

impl Announcement<'_> {
    /// The text, with how to connect and where to look next.
    pub fn text(&self, status: &diecut_shard::control::Status, device: DeviceTraits) -> String {
        let Announcement { listen, told, place, room, memory, socket } = *self;
        use std::fmt::Write;
        let mut text = String::new();
        for one in &status.devices {
            let raw = Size(one.raw_capacity_bytes);
            let _ = writeln!(text, "device     {} in {place}: {raw} raw, emulated", one.name);
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
            let _ = writeln!(
                text,
                "vSSD       {}: {}, {size} for volumes",
                vssd.spec.name,
                convert::placement(vssd).text()
            );
        }
        text += room;
        let _ = writeln!(text, "memory     {memory}");
        let _ = writeln!(text, "listening  {listen}, NVMe over TCP");
        let _ = writeln!(text, "\nOn a Linux host, as root:\n\n    modprobe nvme-tcp");
        for subsystem in &status.subsystems {
            for address in told {
                let (ip, port, nqn) = (address.ip(), address.port(), &subsystem.spec.nqn);
                let _ = writeln!(
                    text,
                    "    nvme connect --transport=tcp --traddr={ip} --trsvcid={port} --nqn={nqn}"
                );
            }
        }
        let _ = writeln!(text, "    nvme list\n\nWhere to look next:\n");
        let _ = writeln!(text, "    diecut --socket {} status", socket.display());
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
