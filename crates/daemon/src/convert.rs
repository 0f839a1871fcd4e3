//! Between the words of the control interface and those of a shard.

use crate::http::DeviceFacts;
use diecut_api::problem::{Problem, ProblemKind};
use diecut_api::status;
use diecut_devices::Room;
use diecut_shard::control;
use diecut_spec::Size;
use std::collections::BTreeSet;
use std::path::Path;

pub(crate) fn repair_report(report: control::RepairReport) -> status::RepairReport {
    let lost = |one: control::LostBytes| status::LostRange {
        volume: one.volume,
        offset_bytes: one.offset_bytes,
        size_bytes: one.size_bytes,
    };
    status::RepairReport {
        vssd: report.vssd,
        outcome: match report.outcome {
            control::RepairOutcome::Good => status::RepairOutcome::Good,
            control::RepairOutcome::Mended => status::RepairOutcome::Mended,
            control::RepairOutcome::Accepted => status::RepairOutcome::Accepted,
            control::RepairOutcome::ReadOnly => status::RepairOutcome::ReadOnly,
            control::RepairOutcome::NotToBeRepaired => status::RepairOutcome::NotToBeRepaired,
        },
        reason_before: report.reason_before,
        reason: report.reason,
        missing: report.missing,
        missing_more: report.missing_more,
        lost_records: report.lost_records,
        emptied_leaves: report.emptied_leaves,
        lost: report.lost.into_iter().map(lost).collect(),
        lost_size: Size(report.lost_bytes),
        accepted_records: report.accepted_records,
    }
}

pub(crate) fn problem(error: control::ControlError) -> Problem {
    let kind = match error.kind {
        control::ControlErrorKind::NotFound => ProblemKind::NotFound,
        control::ControlErrorKind::Exists => ProblemKind::Exists,
        control::ControlErrorKind::InUse => ProblemKind::InUse,
        control::ControlErrorKind::Invalid => ProblemKind::Invalid,
        control::ControlErrorKind::Exhausted => ProblemKind::Exhausted,
        control::ControlErrorKind::Busy => ProblemKind::Busy,
        control::ControlErrorKind::Unfinished => ProblemKind::Unfinished,
        control::ControlErrorKind::Media => ProblemKind::Media,
    };
    Problem::new(kind, error.message)
}

/// The file that a device lies on, and what it has left.
fn file(path: &Path) -> Option<status::DeviceFile> {
    let room = Room::of(path).ok()?;
    Some(status::DeviceFile {
        path: path.display().to_string(),
        taken: Size(room.taken_bytes),
        grows_to: Size(room.size_bytes),
        free: Size(room.free_bytes),
    })
}

/// What shards say, with what the server knows of its devices.
pub(crate) fn status(status: control::Status, listen: &str, facts: &DeviceFacts) -> status::Status {
    let place = |device: &control::DeviceStatus| facts.places.get(&device.name);
    let files: Vec<Option<status::DeviceFile>> =
        status.devices.iter().map(|device| file(place(device)?.file.as_deref()?)).collect();
    let full: Vec<String> = files
        .iter()
        .flatten()
        .map(|file| format!("{}: {} bytes free", file.path, file.free.bytes()))
        .collect();
    let full = (!full.is_empty()).then(|| full.join(", "));
    let volumes: Vec<(String, u64)> =
        status.volumes.iter().map(|volume| (volume.spec.vssd.clone(), volume.spec.size.bytes())).collect();
    let vssd = |one: control::VssdStatus| {
        let lacks_room = one.health.lacks_room;
        let volumes = volumes.iter().filter(|(vssd, _)| *vssd == one.spec.name);
        let provisioned = Size(volumes.map(|(_, size_bytes)| size_bytes).sum());
        let mut one = vssd(one);
        one.provisioned = provisioned;
        if let (true, Some(reason), Some(full)) = (lacks_room, &mut one.read_only_reason, &full) {
            *reason += &format!(" ({full}); it takes writes again when there is room");
        }
        one
    };
    let known = facts.health.known();
    status::Status {
        listen: listen.to_string(),
        pacing: None,
        durability: None,
        volatile_cache: None,
        panics: None,
        last_panic: None,
        devices: status
            .devices
            .into_iter()
            .zip(files)
            .map(|(one, file)| {
                let path = place(&one).and_then(|place| place.path.clone());
                let (health, damage) = (known.said.get(&one.name), known.damage.get(&one.name));
                let (health, damage) = (health.cloned(), damage.cloned());
                let evacuation_error = facts.evacuation_errors.get(&one.name).cloned();
                status::DeviceStatus { file, path, health, damage, evacuation_error, ..device(one) }
            })
            .collect(),
        missing_devices: facts.missing.clone(),
        tenants: status.tenants,
        vssds: status.vssds.into_iter().map(vssd).collect(),
        volumes: status.volumes.into_iter().map(volume).collect(),
        subsystems: status.subsystems.into_iter().map(subsystem).collect(),
        qos_sets: status.qos_sets,
    }
}

/// What a shard knows of a device.
fn device(device: control::DeviceStatus) -> status::DeviceStatus {
    status::DeviceStatus {
        name: device.name,
        path: None,
        channels: device.channels,
        dies_per_channel: device.dies_per_channel,
        raw_capacity: Size(device.raw_capacity_bytes),
        is_away: device.is_away,
        turning: device.turning.map(|turning| match turning {
            control::DeviceTurning::Joins => status::DeviceTurning::Joins,
            control::DeviceTurning::Drains => status::DeviceTurning::Drains,
            control::DeviceTurning::Leaves => status::DeviceTurning::Leaves,
        }),
        moving: device.moving.map(|moving| status::VssdMove {
            vssd: moving.vssd,
            left: Size(moving.left_bytes),
            all: Size(moving.all_bytes),
        }),
        evacuation_error: None,
        free_channels: device.free_channels,
        free_dies: device.free_dies,
        bad_erase_blocks: device.bad_erase_blocks,
        quarantined: device.quarantined,
        erases_per_channel: device.erases_per_channel,
        file: None,
        wear: device.wear,
        health: None,
        damage: None,
    }
}

fn vssd(vssd: control::VssdStatus) -> status::VssdStatus {
    let programmed = vssd.traffic.programmed_user_bytes
        + vssd.traffic.programmed_cleaner_bytes
        + vssd.traffic.programmed_metadata_bytes;
    let (placement, effective) = (placement(&vssd), vssd.space.effective_over_provisioning());
    status::VssdStatus {
        vssd: vssd.spec,
        effective_over_provisioning_permille: effective.map(|ratio| (ratio * 1000.0).round() as u32),
        placement,
        units: vssd.space.units,
        physical: Size(vssd.space.physical_bytes),
        exported: Size(vssd.space.exported_bytes),
        provisioned: Size(0),
        used: Size(vssd.space.used_bytes),
        host_written: Size(vssd.traffic.host_written_bytes),
        programmed_user: Size(vssd.traffic.programmed_user_bytes),
        programmed_cleaner: Size(vssd.traffic.programmed_cleaner_bytes),
        programmed_metadata: Size(vssd.traffic.programmed_metadata_bytes),
        waf_cleaner: (vssd.traffic.host_written_bytes > 0)
            .then(|| programmed as f64 / vssd.traffic.host_written_bytes as f64),
        erases: vssd.traffic.erases,
        erase_blocks: vssd.space.erase_blocks,
        free_erase_blocks: vssd.space.free_erase_blocks,
        read_only_reason: vssd.health.read_only_reason,
        accepted_loss: (vssd.health.accepted_loss != control::AcceptedLoss::default()).then_some(
            status::AcceptedLoss {
                size: Size(vssd.health.accepted_loss.bytes),
                records: vssd.health.accepted_loss.records,
            },
        ),
    }
}

pub(crate) fn placement(vssd: &control::VssdStatus) -> status::Placement {
    let places = &vssd.placement;
    let channels: BTreeSet<u16> = places.iter().map(|place| place.channel).collect();
    status::Placement {
        channels: channels.into_iter().collect(),
        dies: places.iter().map(|place| [place.channel, place.die]).collect(),
        soft_planes: places.iter().filter_map(|place| place.soft_plane).collect(),
        unit_devices: vssd.unit_devices.clone(),
        shard: vssd.shard,
    }
}

fn volume(volume: control::VolumeStatus) -> status::VolumeStatus {
    status::VolumeStatus {
        volume: volume.spec,
        used: Size(volume.used_bytes),
        reads: volume.reads,
        writes: volume.writes,
        read_bytes: volume.read_bytes,
        written_bytes: volume.written_bytes,
        read_latency: latency(volume.read_latency_ns),
        write_latency: latency(volume.write_latency_ns),
    }
}

fn latency([p50_ns, p99_ns, p99_9_ns, p99_99_ns]: [u64; 4]) -> status::Latency {
    status::Latency { p50_ns, p99_ns, p99_9_ns, p99_99_ns }
}

fn subsystem(subsystem: control::SubsystemStatus) -> status::SubsystemStatus {
    status::SubsystemStatus {
        sanitize: subsystem.sanitize,
        subsystem: subsystem.spec,
        controllers: subsystem
            .controllers
            .into_iter()
            .map(|(host_nqn, controller_id, io_queues)| status::Controller {
                host_nqn,
                controller_id,
                io_queues,
            })
            .collect(),
    }
}
