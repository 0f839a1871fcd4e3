//! QoS sets, from a generator of its own.

use super::pick;
use crate::administration::Change;
use crate::plan::*;
use rand::{RngExt, SeedableRng};
use rand_xoshiro::Xoshiro256PlusPlus;

/// The vSSDs or volumes of one or two lanes are in sets, often behind a shaper of the device; administrators change sets. What compares
/// shares, and hosts that take what they can from others, are left out: sets change both.
pub(super) fn add(plan: &mut Plan) {
    let mut random = Xoshiro256PlusPlus::seed_from_u64(plan.seed ^ 0x0071_6f73);
    (plan.saturation, plan.siege) = (None, None);
    (plan.system.slow_core, plan.system.slow_writes) = (false, false);
    let is_divided = plan.system.shards.iter().any(|count| *count > 1);
    if is_divided {
        // A move for even wear gives a set a new bucket at its new home, and nobody is told when.
        plan.system.leveling_erases = 0;
    }
    let mut qos =
        QosPlan { in_commands: random.random_ratio(1, 3), device: None, sets: Vec::new(), modest: None };
    let mut lanes: Vec<Lane> =
        (0..).zip(&plan.tenants).filter(|(_, tenant)| !tenant.guest).map(|(lane, _)| Lane(lane)).collect();
    for _ in 0..random.random_range(1..=2) {
        if lanes.is_empty() {
            break;
        }
        let mut set = amounts(&mut random, qos.in_commands);
        let lane = lanes.remove(random.random_range(0..lanes.len()));
        if random.random_ratio(1, 3) {
            let volumes = plan.tenants[usize::from(lane.0)].volumes.iter().filter(|volume| !volume.later);
            set.volumes = volumes.map(|volume| volume.number).collect();
            set.volumes.truncate(random.random_range(1..=2));
            // A volume that is in a set by itself cannot be deleted.
            if let Some(aftermath) = &mut plan.aftermath {
                aftermath.emptied.retain(|emptied| *emptied != lane);
            }
        } else {
            set.vssds.push(lane);
            // Members of a set on several shards share it by parts.
            if !lanes.is_empty() && (is_divided || random.random_ratio(1, 2)) {
                set.vssds.push(lanes.remove(random.random_range(0..lanes.len())));
            }
        }
        qos.sets.push(set);
    }
    if random.random_ratio(1, 2) {
        let committed: u64 = qos.sets.iter().map(|set| set.rate).sum();
        // So much is left that what is in no set ends, too.
        let (room, buckets) = match qos.in_commands {
            true => (400, 8..256),
            false => (4 << 20, 64 << 10..1 << 20),
        };
        let rate = committed * random.random_range(5..8) / 4 + room;
        qos.device = Some(DevicePlan { rate, bucket: random.random_range(buckets) });
    }
    if !is_divided && random.random_ratio(2, 3) {
        let set = pick(&mut random, &qos.sets);
        qos.modest = set.vssds.first().copied().or(set.volumes.first().map(|volume| plan.owner(*volume)));
        // What the network holds back is not what is compared.
        plan.system.smooth_network = true;
    }
    // What administrators ask for is refused on a full file system, and that is not what is looked at here.
    if !plan.faults.iter().any(|fault| matches!(fault.what, FaultKind::NoRoom { .. })) {
        add_changes(plan, qos.sets.len() as u8, &mut random);
    }
    plan.qos = Some(qos);
}

/// A set without members. Rates are below what hosts ask for, and high enough that every storm ends.
fn amounts(random: &mut Xoshiro256PlusPlus, in_commands: bool) -> QosSetPlan {
    let (rates, buckets) = match in_commands {
        true => (200..2000, 4..256),
        false => (2 << 20..24 << 20, 64 << 10..1 << 20),
    };
    let (rate, bucket) = (random.random_range(rates.clone()), random.random_range(buckets));
    let threshold = match random.random_range(0..3) {
        0 => 0,
        1 => bucket / 2,
        _ => random.random_range(0..=bucket),
    };
    let second_rate = match random.random_range(0..4) {
        0 => None,
        1 => Some(0),
        _ => Some(random.random_range(rates) / 2),
    };
    let token_bytes = *pick(random, &[4096, 4096, 512, 16 << 10]);
    QosSetPlan { rate, bucket, threshold, second_rate, token_bytes, vssds: Vec::new(), volumes: Vec::new() }
}

/// Sets are changed several times in short order, and sometimes deleted and made again.
fn add_changes(plan: &mut Plan, sets: u8, random: &mut Xoshiro256PlusPlus) {
    for _ in 0..random.random_range(0..=2) {
        let set = random.random_range(0..sets);
        let mut actions = vec![Action::Wait { span_ns: random.random_range(1..400) * 1_000_000 }];
        for _ in 0..random.random_range(3..=10) {
            let percent = *pick(random, &[50, 60, 75, 90, 100]);
            actions.push(Action::Change(Change::Qos(QosStep::Scale { set, percent })));
            actions.push(Action::Wait { span_ns: random.random_range(100_000..6_000_000) });
        }
        if random.random_ratio(1, 3) {
            actions.push(Action::Change(Change::Qos(QosStep::Delete { set })));
            actions.push(Action::Wait { span_ns: random.random_range(100_000..20_000_000) });
            actions.push(Action::Change(Change::Qos(QosStep::Create { set })));
        }
        plan.steps.extend(actions.into_iter().map(|action| Step { lane: Lane::ADMINISTRATOR, action }));
    }
}

#[cfg(test)]
mod test {
    use super::*;
    use crate::generate::{Shape, generate};

    /// Plans have sets of each kind, and are otherwise those of their seeds but for what sets change.
    #[test]
    fn plans_have_sets_of_all_kinds() {
        let shape = Shape { qos_sets: true, ..crate::stack::shape() };
        let plans: Vec<Plan> = (0..60).map(|seed| generate(seed, &shape)).collect();
        let all = || plans.iter().map(|plan| plan.qos.as_ref().expect("every plan has sets"));
        let sets = || all().flat_map(|qos| &qos.sets);
        assert!(sets().all(|set| set.vssds.is_empty() != set.volumes.is_empty()));
        assert!(sets().all(|set| set.threshold <= set.bucket));
        let many = |count: usize| (8..plans.len() * 2).contains(&count);
        assert!(many(all().filter(|qos| qos.in_commands).count()));
        assert!(many(all().filter(|qos| qos.device.is_some()).count()));
        assert!(many(all().filter(|qos| qos.modest.is_some()).count()));
        assert!(many(all().filter(|qos| qos.sets.len() > 1).count()));
        assert!(many(sets().filter(|set| !set.volumes.is_empty()).count()));
        assert!(many(sets().filter(|set| set.vssds.len() > 1).count()));
        assert!(many(sets().filter(|set| set.threshold == 0).count()));
        assert!(many(sets().filter(|set| set.second_rate.is_none()).count()));
        for (seed, plan) in plans.iter().enumerate() {
            let mut names = Vec::new();
            for volume in plan.volumes() {
                names.extend(plan.qos_set_of(volume.number).map(|set| (set, volume.number)));
            }
            assert!(!names.is_empty(), "seed {seed}: something is in a set");
            let text = serde_json::to_string(plan).unwrap();
            assert_eq!(&serde_json::from_str::<Plan>(&text).unwrap(), plan, "seed {seed}");
        }
    }
}
