//! The whole stack over a drive that hides its flash, as a model.

use super::config;
use crate::carrier::{Carrier, PoweredDrive};
use crate::plan::{DriveFault, DriveLie, DrivePlan, Plan};
use crate::shards::Shards;
use diecut_devices::{Device, DriveMedium, DriveShape};
use diecut_emulator::drive::{Drive, DriveFaults, DriveProfile, Stretch};
use diecut_shard::{Nonces, PoolConfig, ShardConfig};
use diecut_units::{Geometry, IU_SIZE_BYTES, Span, Time};

/// What the label of the drive would say.
const SECRET: [u8; 16] = [0x5e; 16];
const DEVICE: [u8; 16] = [0xd1; 16];
const POOL: [u8; 16] = [0x77; 16];
/// Where the first erase block of a drive begins.
const MARGIN_BYTES: u64 = 1 << 20;
/// How often a command meets a lie of its kind.
const LIE_CHANCE: f64 = 0.002;
/// Turns in which a pool is made, at most.
const TURNS_MAX: u32 = 100_000;

fn shape(plan: &DrivePlan) -> DriveShape {
    DriveShape {
        lanes: plan.lanes,
        block_size_bytes: u64::from(plan.block_kib) << 10,
        blocks_per_lane: plan.blocks_per_lane,
        zones: None,
    }
}

/// The drive as a start of the server finds it.
pub(super) fn medium(plan: &DrivePlan) -> Device {
    Device::Drive(DriveMedium::new(shape(plan), plan.volatile_cache, plan.discards))
}

/// What the pool of a drive has, but for what the plan says.
pub(super) fn pool(geometry: &Geometry) -> PoolConfig {
    PoolConfig { nonces: Some(Nonces::new(SECRET, DEVICE)), ..PoolConfig::suited_to(geometry) }
}

/// What goes wrong with a drive of that plan.
pub(super) fn harm(faults: &mut DriveFaults, plan: &DrivePlan, fault: DriveFault, now: Time) {
    let block_bytes = u64::from(plan.block_kib) << 10;
    let begin = |lane: u16, block: u32| {
        let number = u64::from(lane) * u64::from(plan.blocks_per_lane) + u64::from(block);
        MARGIN_BYTES + number * block_bytes
    };
    let iu_of = |lane, block, iu: u32| Stretch {
        offset: begin(lane, block) + u64::from(iu) * IU_SIZE_BYTES as u64,
        len_bytes: IU_SIZE_BYTES as u64,
    };
    match fault {
        DriveFault::Stalls { span_ns } => faults.stalled_until = now + Span(span_ns),
        DriveFault::FlushFails => faults.flush_failures = 1,
        DriveFault::Unwritable { lane, block } => {
            faults.unwritable.push(Stretch { offset: begin(lane, block), len_bytes: block_bytes });
        }
        DriveFault::Unreadable { lane, block, iu } => faults.unreadable.push(iu_of(lane, block, iu)),
        DriveFault::Rots { lane, block, iu } => faults.rotten.push(iu_of(lane, block, iu)),
        DriveFault::Lies(lie) => match lie {
            DriveLie::AboutFlushes => faults.lies.about_flushes = true,
            DriveLie::LosesWrites => faults.lies.loses_writes = LIE_CHANCE,
            DriveLie::MisdirectsWrites => faults.lies.misdirects_writes = LIE_CHANCE,
            DriveLie::MisdirectsReads => faults.lies.misdirects_reads = LIE_CHANCE,
            DriveLie::StaleReads => faults.lies.stale_reads = LIE_CHANCE,
        },
    }
}

/// A drive with an empty pool, as `diecut device format` leaves it.
pub(super) fn formatted(drive: &DrivePlan, plan: &Plan) -> Result<(Device, Carrier), String> {
    let profile = DriveProfile {
        depth: drive.depth,
        flush: Span(drive.flush_ns),
        is_durable_at_once: !drive.volatile_cache,
        ..DriveProfile::nvme(shape(drive).needed_bytes())
    };
    let carrier = Carrier::Drive(Box::new(PoweredDrive::new(Drive::new(profile, plan.seed))));
    let device = medium(drive);
    let config = ShardConfig { makes_pool: true, new_pool_uuid: POOL, ..config(plan, &device, 1) };
    let mut shards = Shards::with(device, carrier, &config, 1, plan.seed, Time::ZERO);
    let (mut now, mut actions) = (Time::ZERO, Vec::new());
    for _ in 0..TURNS_MAX {
        shards.work(0, now, &mut actions);
        actions.clear();
        if let Some(failure) = shards.lead().failure() {
            return Err(failure.to_owned());
        }
        if shards.is_at_rest() {
            shards.power_cut(now);
            let (_, mut carrier) = shards.into_parts();
            carrier.drive_mut().expect("it was made here").power_on();
            return Ok((medium(drive), carrier));
        }
        now = now.max(shards.deadline());
    }
    Err("no pool is made".to_owned())
}
