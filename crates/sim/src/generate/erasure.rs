//! Erasures in the calm, from a generator of its own: what else a seed draws is as it was without.

use super::pick;
use crate::oracle::Crash;
use crate::plan::*;
use rand::{RngExt, SeedableRng};
use rand_xoshiro::Xoshiro256PlusPlus;

/// In every third plan a host formats a volume or sanitizes its subsystem, and in two of three of them the server goes meanwhile.
pub(super) fn add(plan: &mut Plan) {
    let mut random = Xoshiro256PlusPlus::seed_from_u64(plan.seed ^ 0x6572_6173);
    let lanes: Vec<u8> =
        (0..).zip(&plan.tenants).filter(|(_, tenant)| !tenant.guest).map(|(lane, _)| lane).collect();
    if lanes.is_empty() || !random.random_ratio(1, 3) {
        return;
    }
    let lane = *pick(&mut random, &lanes);
    let volumes = &plan.tenants[usize::from(lane)].volumes;
    let volume = random.random_ratio(1, 2).then(|| pick(&mut random, volumes).number);
    let (crash, after) = match random.random_range(0..3) {
        0 => (None, 0),
        1 => (Some(Crash::PowerCut), random.random_range(1..300)),
        _ => (Some(Crash::ProcessDeath), random.random_range(10..30_000)),
    };
    plan.erasure = Some(ErasurePlan { lane: Lane(lane), volume, crash, after });
}
