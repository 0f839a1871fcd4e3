//! Plans from seeds.

mod applications;
mod changes;
mod comings;
mod drive;
mod erasure;
mod loss;
mod placement;
mod qos;
mod siege;
mod wide;

use crate::plan::*;
use crate::tag::VolumeNumber;
use diecut_namespace::contract::COPY_LBAS_MAX;
use diecut_spec::Isolation;
use rand::{Rng, RngExt, SeedableRng};
use rand_xoshiro::Xoshiro256PlusPlus;
use serde::{Deserialize, Serialize};

/// What a set of seeds has in common.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Shape {
    /// NAND profile.
    pub profile: String,
    /// IUs of all volumes together.
    pub volume_ius: u64,
    /// How often the volumes are overwritten in all (1.2 = all of it, then a fifth).
    pub overwrites: f64,
    /// Largest command in IUs.
    pub command_max_ius: u32,
    /// Whether faults happen beyond the one cut every plan has.
    pub faults: bool,
    /// Whether there is memory that survives a cut; if absent, seven of eight seeds have it.
    pub protected_memory: Option<bool>,
    /// Upper bound of steps; 0 for none. Makes short plans of long ones.
    pub steps_max: usize,
    /// Whether hosts come over the network, with what can go wrong there.
    pub hosts: bool,
    /// Whether administrators change what exists meanwhile.
    pub changes: bool,
    /// Whether some servers have several shards, and another number after each death.
    pub shards: bool,
    /// Whether hosts abort commands, reset controllers and shut them down.
    pub controls: bool,
    /// Whether every server levels wear, with a threshold of a few erases; otherwise two of three do.
    pub exchanges: bool,
    /// Whether some vSSDs are used by applications at erase blocks.
    pub applications: bool,
    /// Whether there are restarts in a row, stores that become empty, thin volumes, weights, hosts that ask late for events, and
    /// cuts right after a flush.
    pub wide: bool,
    /// Whether vSSDs have reclaim unit handles.
    pub placement: bool,
    /// Whether vSSDs or volumes are in QoS sets.
    pub qos_sets: bool,
    /// Whether the shard has drives that hide their flash.
    pub drive: bool,
    /// It has so many of them at most.
    pub drives_max: u16,
}

impl Default for Shape {
    fn default() -> Shape {
        Shape {
            profile: "tiny".to_owned(),
            volume_ius: 2048,
            overwrites: 1.3,
            command_max_ius: 32,
            faults: true,
            protected_memory: Some(true),
            steps_max: 0,
            hosts: true,
            changes: false,
            shards: false,
            controls: false,
            exchanges: false,
            applications: false,
            wide: false,
            placement: false,
            qos_sets: false,
            drive: false,
            drives_max: 1,
        }
    }
}

/// The plan of a seed: two to four tenants, a storm that overwrites everything, at least one cut.
pub fn generate(seed: u64, shape: &Shape) -> Plan {
    let mut random = Xoshiro256PlusPlus::seed_from_u64(seed ^ 0x6469_6563_7574);
    let mut tenants = tenants(&mut random, shape);
    let steps = steps(&mut random, shape, &tenants);
    let faults = faults(&mut random, shape, &tenants, steps.len() as u64);
    let mut drives =
        if shape.drive { drive::drives(seed, shape.drives_max, &mut tenants) } else { Vec::new() };
    drive::add_zones(seed, &mut drives);
    drive::add_dies(seed, &mut drives);
    let harm = if shape.drive && shape.faults { drive::harm(seed, &drives) } else { Vec::new() };
    let changes = shape.changes && !harm.iter().any(|harm| harm.fault.loses_data());
    let protected_memory = !shape.drive && shape.protected_memory.unwrap_or(seed % 8 != 4);
    let content = if random.random_ratio(1, 2) { ContentKind::Bytes } else { ContentKind::Tags };
    // Half of those without protected memory.
    let synced =
        shape.hosts && shape.wide && !protected_memory && !shape.drive && (seed / 16).is_multiple_of(2);
    // Half of those that could not acknowledge at once otherwise.
    let volatile_cache = match &*drives {
        [] => !protected_memory && (seed / 8).is_multiple_of(2),
        drives => drives.iter().any(|drive| drive.volatile_cache),
    };
    let system = SystemPlan {
        profile: shape.profile.clone(),
        channels: None,
        content: if synced || shape.drive { ContentKind::Bytes } else { content },
        protected_memory,
        synced,
        drives,
        orders: Vec::new(),
        comings: None,
        volatile_cache,
        smooth_network: random.random_ratio(1, 4),
        hosts: shape.hosts,
        slow_core: false,
        slow_writes: false,
        until_cleaned: shape.hosts && changes && shape.steps_max == 0,
        leveling_erases: 0,
        shards: vec![1],
        panics_at: Vec::new(),
    };
    let (applications, saturation, aftermath) = (Vec::new(), None, None);
    let (siege, loss, qos, erasure) = (None, None, None, None);
    let mut plan = Plan {
        seed,
        system,
        tenants,
        applications,
        steps,
        faults,
        saturation,
        aftermath,
        siege,
        loss,
        erasure,
        qos,
    };
    if shape.hosts {
        add_hosts(&mut plan, shape);
    }
    if shape.hosts && shape.controls {
        add_controls(&mut plan);
    }
    let lacks_room = shape.hosts && shape.faults && protected_memory && seed % 8 == 6;
    if lacks_room {
        add_no_room(&mut plan);
    }
    // What administrators ask for needs room, too: that is refused, and not what is looked at here.
    if shape.hosts && changes && !lacks_room {
        changes::add(&mut plan, shape.faults);
    }
    // Two of three servers level wear. Comparisons of shares are of dies that do nothing else.
    if shape.drive {
        drive::adapt(&mut plan, harm, shape.faults);
    }
    let shows_dies = plan.system.drives.iter().any(|drive| drive.dies.is_some());
    let levels = shape.exchanges || shows_dies || seed % 3 != 1 && plan.saturation.is_none() && !shape.drive;
    if shape.hosts && shape.faults && levels {
        plan.saturation = None;
        plan.system.leveling_erases = 2 + seed % 17;
    }
    if shape.hosts && shape.shards {
        add_shards(&mut plan);
        if changes && !lacks_room {
            changes::add_moves(&mut plan, shape.faults);
        }
    }
    if shape.applications && !shape.drive {
        applications::add(&mut plan, shape);
    }
    if shape.hosts && shape.wide {
        wide::add(&mut plan, shape.faults, shape.exchanges);
        if shape.faults {
            loss::add(&mut plan);
            siege::add(&mut plan);
        }
    }
    // Last: what else a seed draws is as it was without.
    if shape.hosts && shape.placement {
        placement::add(&mut plan);
    }
    if shape.hosts && shape.qos_sets {
        qos::add(&mut plan);
    }
    // No erase is promised on a drive, which keeps what it likes.
    if shape.hosts && changes && !shape.drive {
        erasure::add(&mut plan);
    }
    if shape.drive && shape.hosts && shape.faults {
        comings::add(&mut plan);
    }
    plan
}

/// The file system under the device is full once or twice, for a part of the storm.
fn add_no_room(plan: &mut Plan) {
    let mut random = Xoshiro256PlusPlus::seed_from_u64(plan.seed ^ 0x726f_6f6d);
    for _ in 0..random.random_range(1..=2) {
        let when = When::Step(random.random_range(0..plan.steps.len().max(1) as u64));
        let what = FaultKind::NoRoom { span_ns: random.random_range(5..150) * 1_000_000 };
        plan.faults.push(PlannedFault { when, what });
    }
}

/// Hosts do more with their controllers than reading and writing.
fn add_controls(plan: &mut Plan) {
    let mut random = Xoshiro256PlusPlus::seed_from_u64(plan.seed ^ 0x636f_6e74_726f_6c73);
    for lane in 0..plan.tenants.len() as u8 {
        let (resets, ends) = (random.random_range(0..=2), random.random_range(0..=1));
        let aborts = random.random_range(0..16);
        let actions = [(Action::Reset, resets), (Action::ShutDown, ends), (Action::Abort, aborts)];
        for (action, count) in actions {
            for _ in 0..count {
                let at = random.random_range(0..=plan.steps.len());
                plan.steps.insert(at, Step { lane: Lane(lane), action });
            }
        }
    }
}

/// Half of the servers have several shards in some of their lives, half of these on a wider device. Several need protected
/// memory, or a drive.
fn add_shards(plan: &mut Plan) {
    if !plan.system.drives.is_empty() {
        return drive::add_shards(plan);
    }
    let mut random = Xoshiro256PlusPlus::seed_from_u64(plan.seed ^ 0x7368_6172_6473);
    if plan.system.protected_memory && random.random_ratio(1, 2) {
        plan.system.shards = (0..3).map(|_| *pick(&mut random, &[1, 2, 2, 2, 3, 4])).collect();
        // On two channels no more than two shards ever own something, and none is free.
        plan.system.channels = random.random_ratio(1, 2).then_some(4);
    }
}

/// Some runs end with a comparison of shares: of two tenants that share dies or core, or of two connections of one.
fn add_saturation(plan: &mut Plan, random: &mut impl Rng) {
    let share_dies = plan.tenants.iter().all(|tenant| tenant.isolation == Isolation::Software);
    // A network that holds back one of them would be measured instead.
    if !plan.system.smooth_network || !(share_dies || random.random_ratio(1, 2)) {
        return;
    }
    plan.system.slow_core = !share_dies || random.random_ratio(1, 2);
    if plan.system.slow_core && random.random_ratio(1, 2) {
        plan.tenants[0].io_queues = 2;
        saturate(plan, vec![flow(0, Some(0), 14), flow(0, Some(1), 30)]);
    } else {
        saturate_with_two(plan);
    }
}

fn flow(lane: u8, connection: Option<u16>, depth: u32) -> SaturatedFlow {
    SaturatedFlow { lane: Lane(lane), connection, depth, write_ius: 0 }
}

fn saturate(plan: &mut Plan, flows: Vec<SaturatedFlow>) {
    plan.saturation = Some(Saturation { span_ns: 60_000_000, flows });
}

/// The first two tenants read, the second one with more connections and a larger depth.
fn saturate_with_two(plan: &mut Plan) {
    (plan.tenants[0].io_queues, plan.tenants[1].io_queues) = (1, 2);
    saturate(plan, vec![flow(0, None, 28), flow(1, None, 60)]);
}

/// The same in a plan that compared nothing so far: on a slow core that does nothing else, over a network that holds nobody back, with
/// one path to each host.
fn saturate_core_with_two(plan: &mut Plan) {
    (plan.system.smooth_network, plan.system.slow_core) = (true, true);
    plan.system.leveling_erases = 0;
    for tenant in &mut plan.tenants {
        tenant.paths = 1;
    }
    saturate_with_two(plan);
}

/// What only hosts on a network have. From a generator of its own: the rest of the plan is the same without.
fn add_hosts(plan: &mut Plan, shape: &Shape) {
    let mut random = Xoshiro256PlusPlus::seed_from_u64(plan.seed ^ 0x686f_7374);
    for tenant in &mut plan.tenants {
        tenant.io_queues = random.random_range(1..=3);
    }
    add_saturation(plan, &mut random);
    // Where shares of connections are compared, a host has one path. Otherwise every second host has two, drawn apart.
    let mut of_paths = Xoshiro256PlusPlus::seed_from_u64(plan.seed ^ 0x0070_6174_6873);
    for tenant in plan.tenants.iter_mut().filter(|_| plan.saturation.is_none()) {
        tenant.paths = of_paths.random_range(1..=2);
    }
    if !shape.faults {
        return;
    }
    let (lanes, steps) = (plan.tenants.len() as u8, plan.steps.len().max(1) as u64);
    for (kind, of) in [(0, 3), (1, 3), (2, 2)] {
        if !random.random_ratio(1, of) {
            continue;
        }
        let lane = Lane(random.random_range(0..lanes));
        let what = match kind {
            0 => FaultKind::HalfOpen { lane },
            1 => FaultKind::Silence { lane, span_ns: random.random_range(1..4_000) * 1_000_000 },
            _ => FaultKind::ConnectionLoss { lane },
        };
        plan.faults.push(PlannedFault { when: When::Step(random.random_range(0..steps)), what });
    }
}

fn tenants(random: &mut impl Rng, shape: &Shape) -> Vec<TenantPlan> {
    // Tiny devices have few channels: channel- or die-isolated tenants first, sharers after them.
    let isolations: &[Isolation] = match random.random_range(0..4) {
        0 => &[Isolation::Channel, Isolation::Software],
        1 => &[Isolation::Software, Isolation::Software],
        2 => &[Isolation::Die, Isolation::None],
        _ => &[Isolation::Channel, Isolation::Channel],
    };
    let each = shape.volume_ius / isolations.len() as u64;
    let mut number = 0;
    isolations
        .iter()
        .map(|&isolation| {
            let volume_count = random.random_range(1..=2);
            let volumes = (0..volume_count)
                .map(|_| {
                    number += 1;
                    VolumePlan { number: VolumeNumber(number), iu_count: each / volume_count, later: false }
                })
                .collect();
            let depth = *pick(random, &[1, 2, 4, 8, 16]);
            TenantPlan {
                isolation,
                volumes,
                depth,
                io_queues: 1,
                paths: 1,
                guest: false,
                capacity_bytes: None,
                weight: None,
                asks_for_events_after_ns: 0,
                of: None,
                placement: None,
                drives: Vec::new(),
            }
        })
        .collect()
}

fn pick<'a, T>(random: &mut impl Rng, list: &'a [T]) -> &'a T {
    &list[random.random_range(0..list.len())]
}

/// Where a lane likes to go.
struct Taste {
    /// Percent of steps that go to the hot tenth.
    hot_percent: u32,
    /// Percent of writes, reads; the rest is seldom things.
    write_percent: u32,
    read_percent: u32,
    fua_percent: u32,
    command_max_ius: u32,
}

fn steps(random: &mut impl Rng, shape: &Shape, tenants: &[TenantPlan]) -> Vec<Step> {
    let mut lanes: Vec<(Lane, Vec<Action>)> = Vec::new();
    for (index, tenant) in tenants.iter().enumerate() {
        let taste = Taste {
            hot_percent: *pick(random, &[0, 50, 90]),
            write_percent: *pick(random, &[50, 65, 80]),
            read_percent: *pick(random, &[5, 15]),
            fua_percent: *pick(random, &[0, 5, 50]),
            command_max_ius: *pick(random, &[4, shape.command_max_ius / 2, shape.command_max_ius]),
        };
        let target =
            (tenant.volumes.iter().map(|v| v.iu_count).sum::<u64>() as f64 * shape.overwrites) as u64;
        let mut written = 0;
        let mut actions = Vec::new();
        // Every volume is written once from front to back, so that the storm overwrites live data.
        for volume in &tenant.volumes {
            let mut first = 0;
            while first < volume.iu_count {
                let count = shape.command_max_ius.min((volume.iu_count - first) as u32);
                actions
                    .push(Action::Write { range: Range { volume: volume.number, first, count }, fua: false });
                first += u64::from(count);
            }
        }
        while written < target {
            let action = action(random, tenant, &taste);
            if let Action::Write { range, .. } = action {
                written += u64::from(range.count);
            }
            actions.push(action);
        }
        actions.reverse();
        lanes.push((Lane(index as u8), actions));
    }
    // Lanes are merged at random, in the proportion of what is left of each.
    let mut steps = Vec::new();
    loop {
        let left: usize = lanes.iter().map(|(_, actions)| actions.len()).sum();
        if left == 0 || (shape.steps_max != 0 && steps.len() >= shape.steps_max) {
            return steps;
        }
        let mut choice = random.random_range(0..left);
        for (lane, actions) in &mut lanes {
            if choice < actions.len() {
                steps.push(Step { lane: *lane, action: actions.pop().expect("not empty") });
                break;
            }
            choice -= actions.len();
        }
    }
}

fn range(random: &mut impl Rng, tenant: &TenantPlan, taste: &Taste) -> Range {
    let volume = pick(random, &tenant.volumes);
    let count = random.random_range(1..=taste.command_max_ius).min(volume.iu_count as u32);
    let reach = volume.iu_count - u64::from(count) + 1;
    let reach = if random.random_range(0..100) < taste.hot_percent { reach.div_ceil(10) } else { reach };
    Range { volume: volume.number, first: random.random_range(0..reach), count }
}

fn action(random: &mut impl Rng, tenant: &TenantPlan, taste: &Taste) -> Action {
    let range = range(random, tenant, taste);
    let fua = random.random_range(0..100) < taste.fua_percent;
    let roll = random.random_range(0..100);
    if roll < taste.write_percent {
        return Action::Write { range, fua };
    }
    if roll < taste.write_percent + taste.read_percent {
        return Action::Read { range };
    }
    match random.random_range(0..100) {
        0..25 => Action::Flush { volume: range.volume },
        25..45 => {
            // Sometimes much at once, so that whole erase blocks become free.
            let volume = tenant.volumes.iter().find(|v| v.number == range.volume).expect("from this list");
            let count = if random.random_ratio(1, 8) { volume.iu_count as u32 / 2 } else { range.count };
            let first = range.first.min(volume.iu_count - u64::from(count));
            Action::Deallocate { range: Range { first, count, ..range } }
        }
        45..60 => Action::WriteZeroes { range, fua },
        60..66 => {
            let volume = tenant.volumes.iter().find(|v| v.number == range.volume).expect("from this list");
            let range = Range { count: range.count.min(COPY_LBAS_MAX), ..range };
            let reach = volume.iu_count - u64::from(range.count) + 1;
            // Now and then so near that it writes over what it reads.
            let near = range.first.saturating_sub(3).min(reach - 1);
            let to = if random.random_ratio(1, 6) { near } else { random.random_range(0..reach) };
            Action::Copy { range, to, fua }
        }
        66..68 => Action::WriteUncorrectable { range: Range { count: range.count.min(4), ..range } },
        68..74 => Action::Compare { range, wrong: random.random_ratio(1, 3) },
        74..80 => Action::Verify { range },
        80..88 => Action::Drain,
        88..96 => Action::Wait { span_ns: random.random_range(1_000..20_000_000) },
        _ => Action::Reconnect,
    }
}

fn faults(random: &mut impl Rng, shape: &Shape, tenants: &[TenantPlan], steps: u64) -> Vec<PlannedFault> {
    let mut faults = Vec::new();
    let somewhere =
        |random: &mut _, from: u64| When::Step(Rng::next_u64(random) % (steps - from).max(1) + from);
    // The cut every plan has, in the second half: the device was overwritten by then.
    faults.push(PlannedFault { when: somewhere(random, steps / 2), what: FaultKind::PowerCut });
    if !shape.faults {
        return faults;
    }
    let lane = |random: &mut _| Lane((Rng::next_u64(random) % tenants.len() as u64) as u8);
    for _ in 0..random.random_range(0..3) {
        let what = if random.random_ratio(1, 2) { FaultKind::PowerCut } else { FaultKind::ProcessDeath };
        faults.push(PlannedFault { when: somewhere(random, 0), what });
    }
    for _ in 0..random.random_range(0..3) {
        let what = FaultKind::ConnectionLoss { lane: lane(random) };
        faults.push(PlannedFault { when: somewhere(random, 0), what });
    }
    if random.random_ratio(1, 4) {
        let what =
            FaultKind::SlowHost { lane: lane(random), span_ns: random.random_range(1..200) * 1_000_000 };
        faults.push(PlannedFault { when: somewhere(random, 0), what });
    }
    for _ in 0..random.random_range(0..2) {
        let (channel, die) = (random.random_range(0..2), random.random_range(0..2));
        let nth = random.random_range(5..400);
        let what = if random.random_ratio(2, 3) {
            FaultKind::ProgramFailure { channel, die, nth }
        } else {
            FaultKind::EraseFailure { channel, die, nth: nth / 20 }
        };
        faults.push(PlannedFault { when: When::Step(0), what });
    }
    if random.random_ratio(1, 12) {
        let (channel, die) = (random.random_range(0..2), random.random_range(0..2));
        let nth = random.random_range(0..2000);
        let what = if random.random_ratio(1, 2) {
            FaultKind::ReadFailure { channel, die, nth }
        } else {
            FaultKind::SilentFlip { channel, die, nth, bit: random.random_range(0..4096) }
        };
        faults.push(PlannedFault { when: When::Step(0), what });
    }
    faults
}

#[cfg(test)]
mod test {
    use super::*;

    #[test]
    fn a_seed_makes_one_plan_and_it_survives_storage() {
        let plan = generate(7, &Shape::default());
        assert_eq!(plan, generate(7, &Shape::default()));
        assert_ne!(plan, generate(8, &Shape::default()));
        let text = serde_json::to_string(&plan).unwrap();
        assert_eq!(serde_json::from_str::<Plan>(&text).unwrap(), plan);
    }

    #[test]
    fn some_servers_have_several_shards_and_never_the_same_number() {
        let shape = Shape { changes: true, shards: true, ..Shape::default() };
        let plans: Vec<Plan> = (0..100).map(|seed| generate(seed, &shape)).collect();
        let of = |what: fn(&[u16]) -> bool| plans.iter().filter(|plan| what(&plan.system.shards)).count();
        assert!(of(|shards| shards == [1]) > 30);
        assert!(of(|shards| shards.iter().any(|count| *count > 1)) > 30);
        assert!(of(|shards| shards.windows(2).any(|two| two[0] != two[1])) > 20);
        assert!(of(|shards| shards.contains(&4)) > 5);
        let without = Shape { protected_memory: Some(false), ..shape };
        assert_eq!(generate(1, &without).system.shards, [1], "one shard keeps all block states then");
    }

    #[test]
    fn every_plan_has_two_tenants_a_cut_and_an_overwrite() {
        for seed in 0..200 {
            let plan = generate(seed, &Shape::default());
            assert!(plan.tenants.len() >= 2, "seed {seed}");
            assert!(plan.faults.iter().any(|f| f.what == FaultKind::PowerCut), "seed {seed}");
            let written: u64 = plan
                .steps
                .iter()
                .map(|s| if let Action::Write { range, .. } = s.action { u64::from(range.count) } else { 0 })
                .sum();
            let size: u64 = plan.volumes().map(|v| v.iu_count).sum();
            assert!(written >= 2 * size, "seed {seed}: {written} of {size}");
            for step in &plan.steps {
                if let Action::Write { range, .. } | Action::Deallocate { range } = step.action {
                    let volume = plan.volumes().find(|v| v.number == range.volume).unwrap();
                    assert!(range.count > 0 && range.ius().end <= volume.iu_count, "seed {seed}: {range:?}");
                    assert_eq!(plan.owner(range.volume), step.lane);
                }
            }
        }
    }
}
