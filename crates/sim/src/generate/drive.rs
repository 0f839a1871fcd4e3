//! Plans whose shard has a drive that hides its flash, from a generator of its own.

use super::pick;
use crate::plan::*;
use rand::{RngExt, SeedableRng};
use rand_xoshiro::Xoshiro256PlusPlus;

/// Erase blocks of a lane that catalog and block states take on one, two and more lanes, and that a pool keeps.
const KEPT_BLOCKS: [u32; 3] = [11, 7, 6];
/// Erase blocks that a log keeps and two more; where two vSSDs share a lane each has half of them.
const LOG_BLOCKS: u32 = 2 * 14;

/// The drives of a seed, up to so many, and which of them the vSSD of each tenant lies on: one of them, or parts on several.
pub(super) fn drives(seed: u64, drives_max: u16, tenants: &mut [TenantPlan]) -> Vec<DrivePlan> {
    let mut random = Xoshiro256PlusPlus::seed_from_u64(seed ^ 0x0064_7269_7665);
    let count = (*pick(&mut random, &[1, 1, 2, 3, 3, 4])).min(drives_max.max(1));
    if count > 1 {
        place(tenants, count, &mut random);
    }
    // Parts of a vSSD have erase blocks of one size.
    let block_kib = match count {
        1 => *pick(&mut random, &[256, 256, 512, 1024]),
        // What all of them keep is to be written over, too.
        2 => *pick(&mut random, &[256, 256, 512]),
        _ => 256,
    };
    let drives = 0..count;
    drives.map(|number| drive(number, count, block_kib, tenants, &mut random)).collect()
}

/// Half of the vSSDs lie on one drive, the others have parts on some or on all, in any order.
fn place(tenants: &mut [TenantPlan], count: u16, random: &mut Xoshiro256PlusPlus) {
    for tenant in tenants {
        let parts = match random.random_range(0..4) {
            0 | 1 => 1,
            2 => random.random_range(2..=count),
            // All, in the order that the server likes.
            _ => continue,
        };
        tenant.drives = shuffled(count, random);
        tenant.drives.truncate(parts.into());
    }
}

fn shuffled(count: u16, random: &mut Xoshiro256PlusPlus) -> Vec<u16> {
    let mut drives: Vec<u16> = (0..count).collect();
    for at in (1..drives.len()).rev() {
        drives.swap(at, random.random_range(0..=at));
    }
    drives
}

/// One of so many drives. Erase blocks are smaller than those of a real drive, so that there are some of them for each thing that a log does.
fn drive(
    number: u16,
    count: u16,
    block_kib: u32,
    tenants: &[TenantPlan],
    random: &mut Xoshiro256PlusPlus,
) -> DrivePlan {
    let lanes = *pick(random, &[2, 2, 2, 3, 4]);
    // What lies here of all volumes.
    let lies_here = |tenant: &&TenantPlan| tenant.drives.is_empty() || tenant.drives.contains(&number);
    let of_tenant = |tenant: &TenantPlan| {
        let parts = if tenant.drives.is_empty() { usize::from(count) } else { tenant.drives.len() };
        tenant.volumes.iter().map(|volume| volume.iu_count).sum::<u64>() / parts as u64
    };
    let volume_ius: u64 = tenants.iter().filter(lies_here).map(of_tenant).sum();
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
        depth: *pick(random, &[1, 4, 64, 64]),
        flush_ns: *pick(random, &[20_000, 400_000, 400_000, 5_000_000]),
        zones: None,
        dies: None,
    }
}

/// Lanes of a drive with zones have so many places for partly written ones, or some more.
const PLACES_MIN: u32 = 14;

/// Seeds before this one have no zones, and one shard over several drives: planted bugs are hunted there, most of which have nothing to do with
/// either.
const LATER_SEEDS_FROM: u64 = 100;

/// In a third of the seeds some drives are written in zones.
pub(super) fn add_zones(seed: u64, drives: &mut [DrivePlan]) {
    let mut random = Xoshiro256PlusPlus::seed_from_u64(seed ^ 0x7a6f_6e65);
    if seed < LATER_SEEDS_FROM || !random.random_ratio(1, 3) {
        return;
    }
    let is_alone = drives.len() == 1;
    for drive in drives {
        if !is_alone && random.random_ratio(1, 3) {
            continue;
        }
        let size_kib = drive.block_kib;
        // Three quarters of a zone can be written. Parts of a vSSD have erase blocks of one size.
        if is_alone && random.random_ratio(1, 2) {
            drive.block_kib = size_kib * 3 / 4;
            drive.blocks_per_lane = drive.blocks_per_lane * 4 / 3;
        }
        let lanes = u32::from(drive.lanes);
        let active_max = match random.random_range(0..3) {
            0 => 0,
            _ => lanes * (PLACES_MIN + random.random_range(0..8)),
        };
        drive.zones = Some(DriveZones { size_kib, active_max });
        // A third of these have no cache.
        (drive.volatile_cache, drive.discards) = (random.random_range(0..3) > 0, true);
    }
}

/// Seeds before this one have no drives that show their dies.
const DIES_FROM: u64 = 200;

/// A third of the drives that are alone show their dies: channels of two or three, written by program units, on chunks.
pub(super) fn add_dies(seed: u64, drives: &mut [DrivePlan]) {
    let mut random = Xoshiro256PlusPlus::seed_from_u64(seed ^ 0x6469_6573);
    let [drive] = drives else { return };
    if seed < DIES_FROM || !random.random_ratio(1, 3) {
        return;
    }
    let per_lane = *pick(&mut random, &[1, 2, 2, 3]);
    // An erase block has eight program units at least, the first of which is its header.
    let unit_ius = *pick(&mut random, &[2, 4, 8]);
    let kept = KEPT_BLOCKS[usize::from(drive.lanes * per_lane - 1).min(2)] + LOG_BLOCKS;
    let content = drive.blocks_per_lane.div_ceil(per_lane.into()) * 8 / 7;
    drive.blocks_per_lane = u32::from(per_lane) * (kept + content);
    drive.zones = Some(DriveZones { size_kib: drive.block_kib, active_max: 0 });
    drive.dies = Some(DriveDies { per_lane, unit_ius });
    (drive.volatile_cache, drive.discards) = (random.random_range(0..3) == 0, true);
}

/// What goes wrong with one of the drives of a seed: in two of five seeds something. Where that may lose data nobody changes what exists, for
/// nothing could be said of it.
pub(super) fn harm(seed: u64, drives: &[DrivePlan]) -> Vec<DriveHarm> {
    let mut random = Xoshiro256PlusPlus::seed_from_u64(seed ^ 0x6861_726d);
    let number = random.random_range(0..drives.len());
    let faults = faults(&drives[number], &mut random);
    faults.into_iter().map(|fault| DriveHarm { drive: number as u16, fault }).collect()
}

fn faults(drive: &DrivePlan, random: &mut Xoshiro256PlusPlus) -> Vec<DriveFault> {
    let system_blocks = KEPT_BLOCKS[usize::from(drive.lanes - 1).min(2)] - 3;
    let mut place = || {
        let (lane, iu) = (random.random_range(0..drive.lanes), random.random_range(1..drive.block_kib / 4));
        let dies = drive.dies.map_or(1, |dies| u32::from(dies.per_lane));
        let of_die = drive.blocks_per_lane / dies;
        let die = if dies > 1 { random.random_range(0..dies) } else { 0 };
        // Early ones are used first.
        let reach = *pick(random, &[4, 12, of_die - system_blocks]);
        (lane, die * of_die + system_blocks + random.random_range(0..reach), iu)
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
            random,
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
fn add_harm(plan: &mut Plan, harm: Vec<DriveHarm>) {
    let mut random = Xoshiro256PlusPlus::seed_from_u64(plan.seed ^ 0x0068_6172_6d32);
    for harm in harm {
        let when = When::Step(random.random_range(0..plan.steps.len().max(2) as u64 / 2));
        plan.faults.push(PlannedFault { when, what: FaultKind::Drive(harm) });
        if harm.fault == DriveFault::FlushFails {
            let when = When::Following { span_ns: random.random_range(1..200) * 1_000_000 };
            let what = *pick(&mut random, &[FaultKind::PowerCut, FaultKind::ProcessDeath]);
            plan.faults.push(PlannedFault { when, what });
        }
    }
}

/// Cuts a drive into so many lanes.
fn cut(drive: &mut DrivePlan, lanes: u16) {
    drive.lanes = lanes;
    if let Some(zones) = drive.zones.as_mut().filter(|zones| zones.active_max > 0) {
        zones.active_max = u32::from(lanes) * (PLACES_MIN + 2);
    }
}

/// Lanes of a drive that are not the first shard's alone: of three it keeps two for the block states of all, of more four.
fn lanes_to_share(drive: &DrivePlan) -> u16 {
    drive.lanes - drive.lanes.min(if drive.lanes > 3 { 4 } else { 2 })
}

/// A third of the drives that are alone are divided among shards in some of their lives, and two thirds of several ones.
pub(super) fn add_shards(plan: &mut Plan) {
    let mut random = Xoshiro256PlusPlus::seed_from_u64(plan.seed ^ 0x6c61_6e65_7368);
    let drives = &mut *plan.system.drives;
    if let [drive] = drives {
        if random.random_ratio(1, 3) {
            cut(drive, *pick(&mut random, &[3, 5, 6]));
            plan.system.shards = (0..3).map(|_| *pick(&mut random, &[1, 2, 2, 2, 3])).collect();
        }
        return;
    }
    if plan.seed < LATER_SEEDS_FROM || random.random_ratio(1, 3) {
        return;
    }
    // Some are left to the first shard as a whole.
    for drive in &mut *drives {
        if random.random_ratio(7, 8) {
            cut(drive, *pick(&mut random, &[3, 3, 5, 6, 7]));
        }
    }
    let most = 1 + drives.iter().map(lanes_to_share).sum::<u16>();
    plan.system.shards =
        (0..3).map(|_| *pick(&mut random, &[1, 2, 2, 2, 3, 4])).map(|count| count.min(most)).collect();
}

/// Drives change places from start to start, and of three or four one is missing now and then: more than half of a pool must be there.
fn add_orders(plan: &mut Plan, random: &mut Xoshiro256PlusPlus) {
    let count = plan.system.drives.len() as u16;
    let mut orders = vec![(0..count).collect::<Vec<u16>>()];
    for _ in 0..random.random_range(2..=5) {
        let mut order =
            if random.random_ratio(1, 2) { shuffled(count, random) } else { (0..count).collect() };
        if count > 2 && random.random_ratio(1, 3) {
            order.remove(random.random_range(0..order.len()));
        }
        orders.push(order);
    }
    plan.system.orders = orders;
}

/// A drive goes until the next start, which comes soon in most of these plans, or does not answer for a while.
fn add_absence(plan: &mut Plan, random: &mut Xoshiro256PlusPlus) {
    let drive = random.random_range(0..plan.system.drives.len() as u16);
    let fault = match random.random_range(0..4) {
        0 | 1 if plan.system.drives.len() > 1 => DriveFault::Goes { loses_power: random.random_ratio(1, 2) },
        2 => DriveFault::Away { span_ns: *pick(random, &[1, 20, 300, 4_000]) * 1_000_000 },
        _ => return,
    };
    let when = When::Step(random.random_range(0..plan.steps.len().max(4) as u64 * 3 / 4));
    plan.faults.push(PlannedFault { when, what: FaultKind::Drive(DriveHarm { drive, fault }) });
    if matches!(fault, DriveFault::Goes { .. }) && random.random_ratio(3, 4) {
        let when = When::Following { span_ns: random.random_range(1..400) * 1_000_000 };
        let what = *pick(random, &[FaultKind::PowerCut, FaultKind::ProcessDeath]);
        plan.faults.push(PlannedFault { when, what });
    }
}

/// What fails there fails as on drives, and what needs NAND is left out.
pub(super) fn adapt(plan: &mut Plan, harm: Vec<DriveHarm>, faults: bool) {
    let mut random = Xoshiro256PlusPlus::seed_from_u64(plan.seed ^ 0x6f72_6465_7273);
    let count = plan.system.drives.len() as u16;
    for tenant in plan.tenants.iter_mut().filter(|tenant| tenant.guest && count > 1) {
        tenant.drives = vec![random.random_range(0..count)];
    }
    if faults && count > 1 {
        add_orders(plan, &mut random);
    }
    if faults && harm.is_empty() {
        add_absence(plan, &mut random);
    }
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

#[cfg(test)]
mod test {
    use super::*;
    use crate::generate::{Shape, generate};

    fn plans(drives_max: u16) -> Vec<Plan> {
        let shape = Shape { drive: true, drives_max, ..crate::stack::shape() };
        (0..300).map(|seed| generate(seed, &shape)).collect()
    }

    #[test]
    fn plans_have_one_drive_or_several_and_all_that_happens_to_them() {
        let plans = plans(4);
        let of = |what: &dyn Fn(&Plan) -> bool| plans.iter().filter(|plan| what(plan)).count();
        for count in 1..=4 {
            assert!(of(&|plan| plan.system.drives.len() == count) > 30, "{count} drives");
        }
        let fault = |what: fn(DriveFault) -> bool| {
            let is_one =
                move |fault: &PlannedFault| matches!(fault.what, FaultKind::Drive(harm) if what(harm.fault));
            of(&|plan| plan.faults.iter().any(is_one))
        };
        assert!(fault(|fault| matches!(fault, DriveFault::Goes { .. })) > 20);
        assert!(fault(|fault| matches!(fault, DriveFault::Away { .. })) > 20);
        let count = |plan: &Plan| plan.system.drives.len();
        assert!(of(&|plan| plan.system.orders.iter().any(|order| order.len() < count(plan))) > 40);
        assert!(of(&|plan| plan.system.orders.iter().any(|order| !order.is_sorted())) > 80);
        for plan in &plans {
            let enough = |order: &Vec<u16>| 2 * order.len() > count(plan) || count(plan) == 1;
            assert!(plan.system.orders.iter().all(enough), "seed {}", plan.seed);
            assert_eq!(plan.drives_at(0).len(), count(plan), "a pool is made of all, seed {}", plan.seed);
            let lanes = (0..plan.tenants.len() as u8).map(Lane);
            let on: Vec<_> = lanes.flat_map(|lane| plan.drives_of(lane)).collect();
            assert!(on.iter().all(|drive| usize::from(*drive) < count(plan)), "seed {}", plan.seed);
        }
        let shards = |plan: &Plan| plan.system.shards.iter().copied().max().unwrap_or(1);
        assert!(of(&|plan| count(plan) > 1 && shards(plan) > 1) > 60, "several shards on several drives");
        assert!(of(&|plan| count(plan) > 1 && shards(plan) == 4) > 20, "four of them");
        let parts = |plan: &Plan, lane| plan.drives_of(Lane(lane)).len();
        assert!(of(&|plan| count(plan) > 1 && parts(plan, 0) == 1) > 50);
        assert!(of(&|plan| parts(plan, 0) > 1) > 50);
    }

    #[test]
    fn plans_of_one_drive_are_possible_and_name_none() {
        for plan in plans(1) {
            assert_eq!((plan.system.drives.len(), plan.system.orders.len()), (1, 0));
            assert!(plan.tenants.iter().all(|tenant| tenant.drives.is_empty()));
        }
    }
}
