//! Plans whose shard has a drive that hides its flash, from a generator of its own.

use super::pick;
use crate::plan::*;
use rand::{RngExt, SeedableRng};
use rand_xoshiro::Xoshiro256PlusPlus;

/// Erase blocks of a lane that catalog and block states take on one, two and more lanes, and that a pool keeps.
const KEPT_BLOCKS: [u32; 3] = [11, 7, 6];
/// Erase blocks that a log keeps and two more; where two vSSDs share a lane each has half of them.
const LOG_BLOCKS: u32 = 2 * 14;

/// The drive of a seed, whose volumes have so many IUs together. Erase blocks are smaller than those of a real drive, so that there are
/// some of them for each thing that a log does.
pub(super) fn drive(seed: u64, volume_ius: u64) -> DrivePlan {
    let mut random = Xoshiro256PlusPlus::seed_from_u64(seed ^ 0x0064_7269_7665);
    let lanes = *pick(&mut random, &[2, 2, 2, 3, 4]);
    let block_kib = *pick(&mut random, &[256, 256, 512, 1024]);
    // From a drive that is nearly full to one with as much room again.
    let room_ius = volume_ius * random.random_range(90..220) / 100;
    let data_blocks = room_ius.div_ceil(u64::from(block_kib / 4)) as u32;
    DrivePlan {
        lanes,
        block_kib,
        blocks_per_lane: KEPT_BLOCKS[usize::from(lanes - 1).min(2)] + LOG_BLOCKS + data_blocks,
        // One of eight drives has a battery.
        volatile_cache: random.random_range(0..8) > 0,
        discards: random.random_ratio(2, 3),
        depth: *pick(&mut random, &[1, 4, 64, 64]),
        flush_ns: *pick(&mut random, &[20_000, 400_000, 400_000, 5_000_000]),
    }
}

/// What goes wrong with the drive of a seed: in two of five seeds something. Where that may lose data nobody changes what exists, for nothing could be
/// said of it.
pub(super) fn harm(seed: u64, drive: &DrivePlan) -> Vec<DriveFault> {
    let mut random = Xoshiro256PlusPlus::seed_from_u64(seed ^ 0x6861_726d);
    let system_blocks = KEPT_BLOCKS[usize::from(drive.lanes - 1).min(2)] - 3;
    let mut place = || {
        let (lane, iu) = (random.random_range(0..drive.lanes), random.random_range(1..drive.block_kib / 4));
        // Early ones are used first.
        let reach = *pick(&mut random, &[4, 12, drive.blocks_per_lane - system_blocks]);
        (lane, system_blocks + random.random_range(0..reach), iu)
    };
    let places = [place(), place(), place(), place()];
    match random.random_range(0..20) {
        0 | 1 => vec![DriveFault::Stalls { span_ns: random.random_range(1..4_000) * 1_000_000 }],
        2 if drive.volatile_cache => vec![DriveFault::FlushFails],
        // A lane has a block in reserve.
        3 => vec![DriveFault::Unwritable { lane: places[0].0, block: places[0].1 }],
        4 => places.map(|(lane, block, iu)| DriveFault::Unreadable { lane, block, iu }).to_vec(),
        5 => places.map(|(lane, block, iu)| DriveFault::Rots { lane, block, iu }).to_vec(),
        6 | 7 => vec![DriveFault::Lies(*pick(
            &mut random,
            &[
                DriveLie::AboutFlushes,
                DriveLie::AboutFlushes,
                DriveLie::LosesWrites,
                DriveLie::MisdirectsWrites,
                DriveLie::MisdirectsReads,
                DriveLie::StaleReads,
            ],
        ))],
        _ => Vec::new(),
    }
}

/// What goes wrong comes in the first half of the storm; a server whose flush failed goes soon after that.
fn add_harm(plan: &mut Plan, harm: Vec<DriveFault>) {
    let mut random = Xoshiro256PlusPlus::seed_from_u64(plan.seed ^ 0x0068_6172_6d32);
    for fault in harm {
        let when = When::Step(random.random_range(0..plan.steps.len().max(2) as u64 / 2));
        plan.faults.push(PlannedFault { when, what: FaultKind::Drive(fault) });
        if fault == DriveFault::FlushFails {
            let when = When::Following { span_ns: random.random_range(1..200) * 1_000_000 };
            let what = *pick(&mut random, &[FaultKind::PowerCut, FaultKind::ProcessDeath]);
            plan.faults.push(PlannedFault { when, what });
        }
    }
}

/// A third of the drives are divided among shards in some of their lives. Three lanes are two shards', of which the first keeps two for the
/// block states of all; of more lanes it keeps four.
pub(super) fn add_shards(plan: &mut Plan) {
    let mut random = Xoshiro256PlusPlus::seed_from_u64(plan.seed ^ 0x6c61_6e65_7368);
    let Some(drive) = &mut plan.system.drive else { return };
    if random.random_ratio(1, 3) {
        drive.lanes = *pick(&mut random, &[3, 5, 6]);
        plan.system.shards = (0..3).map(|_| *pick(&mut random, &[1, 2, 2, 2, 3])).collect();
    }
}

/// What fails there fails as on a drive, and what needs NAND is left out.
pub(super) fn adapt(plan: &mut Plan, harm: Vec<DriveFault>) {
    add_harm(plan, harm);
    plan.faults.retain(|fault| {
        !matches!(
            fault.what,
            FaultKind::ProgramFailure { .. }
                | FaultKind::EraseFailure { .. }
                | FaultKind::ReadFailure { .. }
                | FaultKind::SilentFlip { .. }
                | FaultKind::DieOffline { .. }
        )
    });
    // Shares of dies are compared where dies take times that are stated.
    plan.saturation = None;
    (plan.system.slow_core, plan.system.slow_writes) = (false, false);
}
