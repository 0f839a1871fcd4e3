//! Applications at erase blocks beside the hosts of a plan, from a generator of its own.

use super::{Shape, pick};
use crate::plan::*;
use diecut_spec::Isolation;
use rand::{RngExt, SeedableRng};
use rand_xoshiro::Xoshiro256PlusPlus;

/// Three soft-planes of the tiny device, where a tenant has four otherwise.
const TENANT_BYTES: u64 = 21 << 19;
/// One soft-plane, or two.
const APPLICATION_BYTES: [u64; 2] = [1 << 20, 6 << 20];

/// Gives plans that keep bytes one or two applications, more than a quarter of all. Their tenants take less of the device then: without that it is
/// full. Not where two tenants have all channels, nor where shares are compared, for which dies do nothing else.
pub(super) fn add(plan: &mut Plan, shape: &Shape) {
    let mut random = Xoshiro256PlusPlus::seed_from_u64(plan.seed ^ 0x626c_6f63_6b73);
    let shares = |tenant: &TenantPlan| {
        !tenant.guest && matches!(tenant.isolation, Isolation::Software | Isolation::None)
    };
    let planes = plan.tenants.iter().filter(|tenant| shares(tenant)).count();
    let fits = plan.system.content == ContentKind::Bytes && planes > 0 && plan.saturation.is_none();
    if !fits {
        return;
    }
    // One soft-plane is left of each tenant that shares dies.
    for tenant in plan.tenants.iter_mut().filter(|tenant| shares(tenant)) {
        tenant.capacity_bytes = Some(TENANT_BYTES);
    }
    let count = random.random_range(1..=planes);
    for index in 0..count {
        let isolation = *pick(&mut random, &[Isolation::Software, Isolation::None]);
        let is_large = count < planes && random.random_ratio(1, 2);
        let capacity_bytes = APPLICATION_BYTES[usize::from(is_large)];
        let depth = *pick(&mut random, &[1, 3, 8, 16]);
        plan.applications.push(ApplicationPlan { isolation, capacity_bytes, depth, of: None });
        add_steps(plan, Lane::of_application(index), &mut random, shape);
    }
    // Sometimes the server goes again while it opens, and applications wait to attach.
    if shape.faults && random.random_ratio(1, 4) {
        let is_cut =
            |fault: &&PlannedFault| fault.what == FaultKind::PowerCut && matches!(fault.when, When::Step(_));
        if let Some(when) = plan.faults.iter().find(is_cut).map(|fault| fault.when) {
            let what = *pick(&mut random, &[FaultKind::PowerCut, FaultKind::ProcessDeath]);
            plan.faults.push(PlannedFault { when, what });
        }
    }
}

/// Spreads the steps of an application evenly over what the hosts do.
fn add_steps(plan: &mut Plan, lane: Lane, random: &mut Xoshiro256PlusPlus, shape: &Shape) {
    let count = if shape.steps_max == 0 { random.random_range(150..400) } else { shape.steps_max / 4 };
    let mut actions: Vec<Action> = (0..count).map(|_| action(random)).collect();
    for _ in 0..random.random_range(0..=3) {
        let step = BlockStep::Die {
            pause_ns: random.random_range(0..5_000_000),
            drops: *pick(random, &[0, 0, 2, 3]),
        };
        actions.insert(random.random_range(0..=actions.len()), Action::Blocks(step));
    }
    let before = std::mem::take(&mut plan.steps);
    let (hosts, own) = (before.len(), actions.len());
    let mut actions = actions.into_iter();
    for (at, step) in before.into_iter().enumerate() {
        plan.steps.push(step);
        let due = (at + 1) * own / hosts - at * own / hosts;
        plan.steps.extend(actions.by_ref().take(due).map(|action| Step { lane, action }));
    }
    plan.steps.extend(actions.map(|action| Step { lane, action }));
}

fn action(random: &mut Xoshiro256PlusPlus) -> Action {
    let nth = random.random();
    Action::Blocks(match random.random_range(0..100) {
        0..14 => BlockStep::Allocate { unit: random.random_range(0..8) },
        14..52 => BlockStep::Append { nth, units: *pick(random, &[1, 1, 2, 4]) },
        52..76 => {
            BlockStep::Read { nth, first: random.random_range(0..64), count: random.random_range(1..=16) }
        }
        76..87 => BlockStep::Free { nth },
        87..92 => BlockStep::Sync,
        92..98 => return Action::Wait { span_ns: random.random_range(100_000..60_000_000) },
        _ => return Action::Drain,
    })
}

#[cfg(test)]
mod test {
    use super::*;
    use crate::generate::generate;

    #[test]
    fn more_than_a_fifth_of_all_plans_have_applications_and_the_others_do_not_change() {
        let shape = Shape { wide: false, ..crate::stack::shape() };
        let without = Shape { applications: false, ..shape.clone() };
        let mut found = 0;
        for seed in 0..200 {
            let (plan, before) = (generate(seed, &shape), generate(seed, &without));
            if plan.applications.is_empty() {
                assert_eq!(plan, before, "seed {seed}");
                continue;
            }
            found += 1;
            assert_eq!(plan.system, before.system, "seed {seed}");
            assert!(plan.faults.starts_with(&before.faults), "seed {seed}");
            let of_hosts = plan.steps.iter().filter(|step| !matches!(step.action, Action::Blocks(_)));
            let lanes: Vec<Lane> = (0..plan.applications.len()).map(Lane::of_application).collect();
            let of_hosts: Vec<_> = of_hosts.filter(|step| !lanes.contains(&step.lane)).copied().collect();
            assert_eq!(of_hosts, before.steps, "seed {seed}");
            for lane in lanes {
                assert!(plan.steps.iter().filter(|step| step.lane == lane).count() >= 150, "seed {seed}");
            }
        }
        assert!((40..100).contains(&found), "{found} of 200");
    }
}
