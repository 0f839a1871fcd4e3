//! Drives that come to the pool and leave it while the server of a plan runs.

use super::pick;
use crate::administration::Change;
use crate::plan::*;
use rand::{RngExt, SeedableRng};
use rand_xoshiro::Xoshiro256PlusPlus;

/// Seeds before this one have none.
const FROM: u64 = 300;

/// Half of the plans in which nothing goes wrong with single drives, and none shows its dies, have some.
pub(super) fn add(plan: &mut Plan) {
    let mut random = Xoshiro256PlusPlus::seed_from_u64(plan.seed ^ 0x0063_6f6d_6573);
    let is_harmed = |fault: &PlannedFault| matches!(fault.what, FaultKind::Drive(harm) if !matches!(harm.fault, DriveFault::Goes { .. } | DriveFault::Away { .. }));
    let shows_dies = plan.system.drives.iter().any(|drive| drive.dies.is_some());
    let places = plan.tenants.iter().any(|tenant| tenant.placement.is_some());
    let is_fit = !shows_dies && !places && !plan.faults.iter().any(is_harmed);
    if plan.seed < FROM || !is_fit || random.random_ratio(1, 2) {
        return;
    }
    // All drives of the pool are there, from start to start.
    plan.faults.retain(|fault| !matches!(fault.what, FaultKind::Drive(_)));
    let all = plan.system.drives.len();
    plan.system.orders.retain(|order| order.len() == all);
    plan.loss = None;
    plan.system.panics_at.clear();
    // vSSDs move between drives on a server with one shard only.
    if random.random_ratio(2, 3) {
        plan.system.shards = vec![1];
    }
    // What lies on a drive may come to lie on any other one.
    let volatile_cache = plan.system.volatile_cache;
    plan.system.drives.iter_mut().for_each(|drive| drive.volatile_cache = volatile_cache);
    // Who is made later is not made on a drive that may have left.
    for step in &plan.steps {
        if let Action::Change(Change::CreateVssd(lane)) = step.action {
            plan.tenants[usize::from(lane.0)].drives.clear();
        }
    }
    let spares = (0..random.random_range(1..=2)).map(|_| spare(&plan.system.drives, &mut random)).collect();
    let turns = turns(all as u16, &mut random);
    plan.system.comings = Some(ComingsPlan { spares, turns });
}

/// A drive like the largest of the pool, or larger.
fn spare(drives: &[DrivePlan], random: &mut Xoshiro256PlusPlus) -> DrivePlan {
    let size = |drive: &&DrivePlan| u32::from(drive.lanes) * drive.blocks_per_lane;
    let mut spare = drives.iter().max_by_key(size).expect("there is a drive").clone();
    spare.blocks_per_lane = spare.blocks_per_lane * random.random_range(100..160) / 100;
    spare.flush_ns = *pick(random, &[20_000, 400_000, 5_000_000]);
    spare
}

/// What becomes of drives, of so many of the pool and the first that is none of it.
fn turns(of_pool: u16, random: &mut Xoshiro256PlusPlus) -> Vec<DriveTurn> {
    let (one, spare) = (random.random_range(0..of_pool), of_pool);
    let script: &[(Turn, u16)] = match random.random_range(0..4) {
        // A drive is replaced, and is the spare one from then on.
        0 => &[(Turn::Comes, spare), (Turn::Drains, one), (Turn::Goes, one), (Turn::Comes, one)],
        1 => &[(Turn::Comes, spare), (Turn::Goes, spare), (Turn::Comes, spare), (Turn::Drains, one)],
        2 => &[(Turn::Drains, one), (Turn::Goes, one), (Turn::Comes, spare), (Turn::Comes, one)],
        _ => &[(Turn::Comes, spare), (Turn::Drains, one), (Turn::Drains, spare), (Turn::Goes, spare)],
    };
    let turn = |&(what, drive): &(Turn, u16)| {
        let after_ns = *pick(random, &[0, 1, 20, 100, 400]) * 1_000_000;
        DriveTurn { after_ns, drive, what }
    };
    script.iter().map(turn).collect()
}

#[cfg(test)]
mod test {
    use super::*;
    use crate::generate::{Shape, generate};

    /// Goal: seeds from some on have drives of all that can become of one, and others are as they were.
    #[test]
    fn drives_come_and_leave_in_later_seeds() {
        let shape = Shape { drive: true, drives_max: 4, ..crate::stack::shape() };
        assert!((0..FROM).all(|seed| generate(seed, &shape).turns().is_empty()));
        let plans: Vec<Plan> = (FROM..FROM + 200).map(|seed| generate(seed, &shape)).collect();
        let with = plans.iter().filter(|plan| !plan.turns().is_empty()).count();
        assert!((40..120).contains(&with), "{with}");
        for what in [Turn::Comes, Turn::Drains, Turn::Goes] {
            assert!(plans.iter().any(|plan| plan.turns().iter().any(|turn| turn.what == what)));
        }
        for plan in &plans {
            let all = plan.all_drives().count();
            assert!(plan.turns().iter().all(|turn| usize::from(turn.drive) < all), "seed {}", plan.seed);
        }
    }
}
