//! Stores that lose all their records, from a generator of its own.

use super::pick;
use super::wide::PAUSES_NS;
use crate::oracle::Crash;
use crate::plan::*;
use rand::{RngExt, SeedableRng};
use rand_xoshiro::Xoshiro256PlusPlus;

/// At the end of a quarter of the plans one resident loses its store, or all do. Those plans have administrators, who accept it,
/// protected memory, which the records are in, and no other fault that loses data.
pub(super) fn add(plan: &mut Plan) {
    let mut random = Xoshiro256PlusPlus::seed_from_u64(plan.seed ^ 0x6c6f_7373);
    let is_drawn = random.random_ratio(1, 4);
    let has_administrator = plan.steps.iter().any(|step| step.lane == Lane::ADMINISTRATOR);
    if !is_drawn || !has_administrator || !plan.system.protected_memory || plan.may_lose_data() {
        return;
    }
    let residents = plan.tenants.iter().filter(|tenant| !tenant.guest).count() as u8;
    let lanes = if random.random_ratio(1, 3) {
        (0..residents).map(Lane).collect()
    } else {
        vec![Lane(random.random_range(0..residents))]
    };
    let crashes = [Crash::PowerCut, Crash::ProcessDeath];
    let mut restarts = |count: usize| {
        let restart =
            |_| Restart { after_ns: *pick(&mut random, &PAUSES_NS), crash: *pick(&mut random, &crashes) };
        (0..count).map(restart).collect::<Vec<_>>()
    };
    let (before, after) = (restarts(2), restarts(2));
    plan.loss = Some(Loss {
        lanes,
        crash: *pick(&mut random, &crashes),
        restarts: before.into_iter().take(random.random_range(0..=1)).collect(),
        crash_after_acceptance: random.random_ratio(1, 2).then(|| *pick(&mut random, &crashes)),
        restarts_of_written: after.into_iter().take(random.random_range(1..=2)).collect(),
    });
}

#[cfg(test)]
mod test {
    use super::*;
    use crate::generate::{Shape, generate};

    #[test]
    fn some_plans_end_with_a_loss_and_the_rest_of_them_is_as_without() {
        let shape = crate::stack::shape();
        let plans: Vec<Plan> = (0..200).map(|seed| generate(seed, &shape)).collect();
        let losses: Vec<&Loss> = plans.iter().filter_map(|plan| plan.loss.as_ref()).collect();
        assert!(losses.len() > 20, "{}", losses.len());
        assert!(
            losses.iter().any(|loss| loss.lanes.len() > 1) && losses.iter().any(|loss| loss.lanes.len() == 1)
        );
        let without = Shape { protected_memory: Some(false), ..shape };
        assert!((0..50).all(|seed| generate(seed, &without).loss.is_none()));
    }
}
