//! Reclaim unit handles of vSSDs, from a generator of its own: a plan without them is as it was.

use crate::plan::*;
use diecut_spec::Isolation;
use rand::{RngExt, SeedableRng};
use rand_xoshiro::Xoshiro256PlusPlus;

/// Every vSSD has handles, and hosts ask for their status and for fresh reclaim units among all else.
pub(super) fn add(plan: &mut Plan) {
    let mut random = Xoshiro256PlusPlus::seed_from_u64(plan.seed ^ 0x0070_6c61_6365);
    let is_crowded = plan.system.leveling_erases > 0 && plan.tenants.iter().any(|tenant| tenant.guest);
    for (lane, tenant) in plan.tenants.iter_mut().enumerate() {
        let (handles, persistent) = (random.random_range(2..=3), random.random_ratio(1, 2));
        // Three that are isolated for good need more reclaim units than even wear and a guest leave to a part of the tiny device.
        let is_small = is_crowded && matches!(tenant.isolation, Isolation::Software | Isolation::None);
        let handles = if persistent && is_small { 2 } else { handles };
        // Not drawn: what is drawn stays that of its seed.
        let has_dies = matches!(tenant.isolation, Isolation::Channel | Isolation::Die);
        let groups = has_dies && !tenant.guest && (plan.seed + lane as u64).is_multiple_of(3);
        tenant.placement = Some(PlacementPlan { handles, persistent, groups });
    }
    for lane in 0..plan.tenants.len() {
        let tenant = &plan.tenants[lane];
        let volumes: Vec<_> = tenant.volumes.iter().filter(|one| !one.later).map(|one| one.number).collect();
        if volumes.is_empty() || tenant.guest {
            continue;
        }
        for _ in 0..random.random_range(4..20) {
            let volume = *super::pick(&mut random, &volumes);
            let step = match random.random_range(0..3) {
                0 => PlacementStep::Update { volume, handles: random.random_range(1..=3) },
                _ => PlacementStep::Status { volume },
            };
            let at = random.random_range(0..=plan.steps.len());
            plan.steps.insert(at, Step { lane: Lane(lane as u8), action: Action::Placement(step) });
        }
    }
}

#[cfg(test)]
mod test {
    use super::*;
    use crate::generate::{Shape, generate};

    #[test]
    fn placed_plans_are_those_of_their_seeds_with_handles() {
        let plain = crate::stack::shape();
        let placed = Shape { placement: true, ..plain.clone() };
        let (mut persistent, mut grouped) = (0, 0);
        for seed in 0..50 {
            let (before, mut plan) = (generate(seed, &plain), generate(seed, &placed));
            assert!(plan.tenants.iter().all(|tenant| tenant.placement.is_some()), "seed {seed}");
            assert!(plan.volumes().all(|volume| plan.placement_of(volume.number).is_some()), "seed {seed}");
            persistent +=
                plan.tenants.iter().filter(|one| one.placement.is_some_and(|one| one.persistent)).count();
            grouped += plan.tenants.iter().filter(|one| one.placement.is_some_and(|one| one.groups)).count();
            plan.steps.retain(|step| !matches!(step.action, Action::Placement(_)));
            plan.tenants.iter_mut().for_each(|tenant| tenant.placement = None);
            assert_eq!(plan, before, "seed {seed}");
        }
        assert!(persistent > 20 && grouped > 10, "{persistent} {grouped}");
    }

    #[test]
    fn writes_name_all_handles_and_some_that_there_are_not() {
        for handles in 1..=4 {
            let pids: Vec<Option<u16>> = (1..200).map(|version| pid_of(version, handles)).collect();
            for pid in (0..=handles).map(Some).chain([None]) {
                assert!(pids.contains(&pid), "{pid:?} of {handles}");
            }
            assert!((1..200).all(|version| placed_by(version, handles) < handles));
        }
    }
}
