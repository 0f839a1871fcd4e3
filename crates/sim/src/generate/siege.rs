//! Hostile hosts, from a generator of its own.

use super::pick;
use crate::oracle::Crash;
use crate::plan::*;
use crate::tag::VolumeNumber;
use rand::{RngExt, SeedableRng};
use rand_xoshiro::Xoshiro256PlusPlus;

const ATTACKS: [Attack; 10] = [
    Attack::ReadNothing,
    Attack::Crowd,
    Attack::SendNothing,
    Attack::FlushWithoutEnd,
    Attack::HalfCapsules,
    Attack::HalfOpen,
    Attack::Connects,
    Attack::Squatters,
    Attack::WrongPdus,
    Attack::Resets,
];
/// IUs of the volume that hostile hosts see.
const VOLUME_IUS: u64 = 128;

/// Near the end of a quarter of the plans hostile hosts come. Those plans have administrators, who let them in, and no fault that loses data.
pub(super) fn add(plan: &mut Plan) {
    let mut random = Xoshiro256PlusPlus::seed_from_u64(plan.seed ^ 0x0073_6965_6765);
    let is_drawn = random.random_ratio(1, 4);
    let has_administrator = plan.steps.iter().any(|step| step.lane == Lane::ADMINISTRATOR);
    if !is_drawn || !has_administrator || plan.may_lose_data() {
        return;
    }
    let residents = plan.tenants.iter().filter(|tenant| !tenant.guest).count() as u8;
    let lane = Lane(random.random_range(0..residents));
    let number = VolumeNumber(plan.volumes().count() as u8 + 1);
    plan.tenants[usize::from(lane.0)].volumes.push(VolumePlan { number, iu_count: VOLUME_IUS, later: true });
    let mut attacks: Vec<Attack> = Vec::new();
    for _ in 0..random.random_range(2..=4) {
        let attack = *pick(&mut random, &ATTACKS);
        if !attacks.contains(&attack) {
            attacks.push(attack);
        }
    }
    let crashes = [Crash::PowerCut, Crash::ProcessDeath];
    let end = match random.random_range(0..3) {
        0 => SiegeEnd::HangUp,
        1 => SiegeEnd::ThrownOut,
        _ => SiegeEnd::Crash(*pick(&mut random, &crashes)),
    };
    // Drawn last: what else a seed draws is as it was without.
    if random.random_ratio(1, 4) {
        attacks.push(Attack::Silent);
    }
    plan.siege = Some(Siege { lane, volume: number, attacks, end });
}

#[cfg(test)]
mod test {
    use super::*;
    use crate::generate::generate;

    #[test]
    fn every_attack_is_drawn_and_every_end() {
        let shape = crate::stack::shape();
        let sieges: Vec<Siege> = (0..300).filter_map(|seed| generate(seed, &shape).siege).collect();
        for attack in ATTACKS.into_iter().chain([Attack::Silent]) {
            let count = sieges.iter().filter(|siege| siege.attacks.contains(&attack)).count();
            assert!(count > 2, "{attack:?}: {count}");
        }
        assert!(sieges.iter().any(|siege| siege.end == SiegeEnd::HangUp));
        assert!(sieges.iter().any(|siege| siege.end == SiegeEnd::ThrownOut));
        assert!(sieges.iter().any(|siege| matches!(siege.end, SiegeEnd::Crash(_))));
    }
}
