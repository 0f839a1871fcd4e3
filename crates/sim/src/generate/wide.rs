//! What seeds of the whole stack have beyond traffic and single faults, from a generator of its own: restarts in a row, stores
//! that become empty, volumes and commands of several pieces, weights, hosts that ask late for events, and cuts right after a
//! flush.

use super::pick;
use crate::oracle::Crash;
use crate::plan::*;
use crate::tag::VolumeNumber;
use diecut_spec::Isolation;
use rand::{RngExt, SeedableRng};
use rand_xoshiro::Xoshiro256PlusPlus;

/// IUs of a deallocation or of zeroes that the volume gets at once ([`diecut_namespace::MAP_PIECE_LBAS`]).
const PIECE_IUS: u64 = diecut_namespace::MAP_PIECE_LBAS;
/// Where commands of several pieces begin.
const STARTS: [u64; 4] = [0, 100, 1000, 3001];
/// IUs on both sides of the places where their pieces end that hold data.
const MARGIN_IUS: u64 = 8;
/// IUs at the front of a thin volume that commands of many blocks go to.
const FRONT_IUS: u64 = 192;
/// What a second vSSD of a tenant holds, and three of the four soft-planes that a tenant which shares dies has otherwise: the fourth is
/// for the second vSSD.
const SECOND_BYTES: u64 = 1 << 20;
const TENANT_BYTES: u64 = 21 << 19;
/// IUs of the volume of a second vSSD.
const SECOND_IUS: u64 = 320;
/// Pauses between restarts in a row: none, while the server opens, when it is just open, and when all is at rest.
pub(super) const PAUSES_NS: [u64; 6] = [0, 0, 50_000, 3_000_000, 40_000_000, 700_000_000];

/// Adds all of it.
pub(super) fn add(plan: &mut Plan, faults: bool, exchanges: bool) {
    let mut random = Xoshiro256PlusPlus::seed_from_u64(plan.seed ^ 0x7769_6465);
    add_weights(plan, &mut random);
    add_late_requests(plan, &mut random);
    add_thin_volume(plan, &mut random);
    saturate_with_writes(plan, &mut random);
    add_second_vssd(plan, exchanges);
    add_application_of_a_tenant(plan);
    if faults {
        add_restarts(plan, &mut random);
        add_cuts_after_flushes(plan, &mut random);
        // What administrators ask for is refused on a full file system, and that is not what is looked at here.
        let lacks_room = plan.faults.iter().any(|fault| matches!(fault.what, FaultKind::NoRoom { .. }));
        let has_administrator = plan.steps.iter().any(|step| step.lane == Lane::ADMINISTRATOR);
        if !lacks_room && (has_administrator || plan.system.drives.is_empty()) {
            add_aftermath(plan, &mut random);
        }
    }
}

/// Half of the tenants that share dies have another weight than the others.
fn add_weights(plan: &mut Plan, random: &mut Xoshiro256PlusPlus) {
    for tenant in plan.tenants.iter_mut().filter(|one| one.isolation == Isolation::Software) {
        if random.random_ratio(1, 2) {
            tenant.weight = Some(*pick(random, &[50, 150, 200, 300]));
        }
    }
}

/// Half of the hosts ask for the next event a while after they were told of one.
fn add_late_requests(plan: &mut Plan, random: &mut Xoshiro256PlusPlus) {
    for tenant in &mut plan.tenants {
        if random.random_ratio(1, 2) {
            tenant.asks_for_events_after_ns = random.random_range(10..300) * 1_000_000;
        }
    }
}

/// Every second plan without bytes has a volume far larger than what its store holds, and commands of several pieces on it.
fn add_thin_volume(plan: &mut Plan, random: &mut Xoshiro256PlusPlus) {
    if plan.system.content != ContentKind::Tags || random.random_ratio(1, 2) {
        return;
    }
    let residents = plan.tenants.iter().filter(|tenant| !tenant.guest).count();
    let lane = Lane(random.random_range(0..residents) as u8);
    let number = VolumeNumber(plan.volumes().count() as u8 + 1);
    let iu_count = 3 * PIECE_IUS + random.random_range(0..PIECE_IUS);
    plan.tenants[usize::from(lane.0)].volumes.push(VolumePlan { number, iu_count, later: false });
    let mut actions = Vec::new();
    for _ in 0..random.random_range(2..=5) {
        let first = *pick(random, &STARTS);
        let range = |first, count| Range { volume: number, first, count };
        let ends = [first + PIECE_IUS, first + 2 * PIECE_IUS];
        let around = ends.map(|end| range(end - MARGIN_IUS, 2 * MARGIN_IUS as u32));
        actions.extend(around.map(|range| Action::Write { range, fua: false }));
        for _ in 0..random.random_range(0..4) {
            let count = random.random_range(17..=96);
            let range = range(random.random_range(0..FRONT_IUS - u64::from(count)), count);
            actions.push(match random.random_range(0..4) {
                0 => Action::Read { range },
                1 => Action::Compare { range, wrong: false },
                _ => Action::Write { range, fua: random.random_ratio(1, 4) },
            });
        }
        actions.push(Action::Drain);
        let count = random.random_range(PIECE_IUS + 1..=iu_count - first) as u32;
        let whole = range(first, count);
        actions.push(match random.random_range(0..3) {
            0 => Action::WriteZeroes { range: whole, fua: false },
            _ => Action::Deallocate { range: whole },
        });
        actions.push(Action::Drain);
        actions.extend(around.map(|range| Action::Read { range }));
    }
    insert(plan, lane, actions, random);
}

/// Spreads actions of a lane over the steps, in their order.
fn insert(plan: &mut Plan, lane: Lane, actions: Vec<Action>, random: &mut Xoshiro256PlusPlus) {
    let mut places: Vec<usize> = actions.iter().map(|_| random.random_range(0..=plan.steps.len())).collect();
    places.sort_unstable();
    // From the back, so that places in front stay where they are.
    for (at, action) in places.into_iter().zip(actions).rev() {
        plan.steps.insert(at, Step { lane, action });
    }
}

/// Half of the comparisons of two tenants on a slow core are of writes, of one block and of many.
fn saturate_with_writes(plan: &mut Plan, random: &mut Xoshiro256PlusPlus) {
    let SystemPlan { slow_core, protected_memory, .. } = plan.system;
    let Some(saturation) = &mut plan.saturation else { return };
    let two = saturation.flows[0].lane != saturation.flows[1].lane;
    if !slow_core || !protected_memory || !two || random.random_ratio(1, 2) {
        return;
    }
    plan.system.slow_writes = true;
    saturation.span_ns = 600_000_000;
    for (flow, write_ius) in saturation.flows.iter_mut().zip([1, 12]) {
        flow.write_ius = write_ius;
    }
}

/// Half of the comparisons of two tenants that read on a slow core are of one with two vSSDs and one with one; and three of four plans
/// that have room for a second vSSD, and compare nothing otherwise, end with one. From a generator of its own.
fn add_second_vssd(plan: &mut Plan, exchanges: bool) {
    let mut random = Xoshiro256PlusPlus::seed_from_u64(plan.seed ^ 0x0073_6563_6f6e_6431);
    let shares = |tenant: &TenantPlan| tenant.isolation == Isolation::Software;
    // Guests and applications have the room otherwise; and of several shards each has a core of its own.
    let has_room = !plan.tenants.iter().any(|tenant| tenant.guest) && plan.applications.is_empty();
    let fits =
        has_room && plan.system.shards.iter().all(|count| *count == 1) && plan.tenants.iter().any(shares);
    if !fits || exchanges || !plan.system.drives.is_empty() {
        return;
    }
    match &plan.saturation {
        Some(saturation) => {
            let two = saturation.flows[0].lane != saturation.flows[1].lane;
            if !two || !plan.system.slow_core || plan.system.slow_writes || random.random_ratio(1, 2) {
                return;
            }
        }
        None if random.random_ratio(1, 4) => return,
        None => super::saturate_core_with_two(plan),
    }
    for tenant in plan.tenants.iter_mut().filter(|tenant| shares(tenant)) {
        tenant.capacity_bytes = Some(TENANT_BYTES);
    }
    let lane = Lane(plan.tenants.len() as u8);
    let number = VolumeNumber(plan.volumes().count() as u8 + 1);
    plan.tenants.push(TenantPlan {
        isolation: Isolation::Software,
        volumes: vec![VolumePlan { number, iu_count: SECOND_IUS, later: false }],
        depth: 8,
        io_queues: 1,
        paths: 1,
        guest: false,
        capacity_bytes: Some(SECOND_BYTES),
        weight: None,
        asks_for_events_after_ns: 0,
        of: Some(Lane(0)),
        placement: None,
        drives: Vec::new(),
    });
    let writes = (0..SECOND_IUS / 32).map(|at| Range { volume: number, first: at * 32, count: 32 });
    let writes = writes.map(|range| Action::Write { range, fua: false }).collect();
    insert(plan, lane, writes, &mut random);
    let flow = SaturatedFlow { lane, connection: None, depth: 40, write_ius: 0 };
    plan.saturation.as_mut().expect("looked at").flows.push(flow);
}

/// Comparisons of two tenants that read on a slow core, each with one vSSD, are of one with an application at erase blocks beside its host
/// and one without, where a tenant shares dies and leaves it a soft-plane.
fn add_application_of_a_tenant(plan: &mut Plan) {
    let Some(saturation) = &mut plan.saturation else { return };
    let two = saturation.flows.len() == 2 && saturation.flows[0].lane != saturation.flows[1].lane;
    let shares = |tenant: &TenantPlan| tenant.isolation == Isolation::Software && !tenant.guest;
    // Of several shards each has a core of its own, and what a command costs is no measure of what cores do together.
    let one_core = plan.system.shards.iter().all(|count| *count == 1);
    let fits = one_core && plan.tenants.iter().any(shares) && plan.applications.is_empty();
    if !two || !fits || !plan.system.slow_core || plan.system.slow_writes {
        return;
    }
    for tenant in plan.tenants.iter_mut().filter(|tenant| shares(tenant)) {
        tenant.capacity_bytes = Some(TENANT_BYTES);
    }
    plan.system.content = ContentKind::Bytes;
    plan.applications.push(ApplicationPlan {
        isolation: Isolation::Software,
        capacity_bytes: SECOND_BYTES,
        depth: 40,
        of: Some(Lane(0)),
    });
    let lane = Lane::of_application(0);
    saturation.flows.push(SaturatedFlow { lane, connection: None, depth: 40, write_ius: 0 });
}

/// A server that went goes again, up to four times, before anybody has written: in every plan.
fn add_restarts(plan: &mut Plan, random: &mut Xoshiro256PlusPlus) {
    let is_cut =
        |fault: &PlannedFault| fault.what == FaultKind::PowerCut && matches!(fault.when, When::Step(_));
    let Some(at) = plan.faults.iter().position(is_cut) else { return };
    for _ in 0..random.random_range(0..=4) {
        let when = When::Following { span_ns: *pick(random, &PAUSES_NS) };
        let what = *pick(random, &[FaultKind::PowerCut, FaultKind::ProcessDeath]);
        plan.faults.insert(at + 1, PlannedFault { when, what });
    }
}

/// With a volatile cache the power goes right after some flushes were answered.
fn add_cuts_after_flushes(plan: &mut Plan, random: &mut Xoshiro256PlusPlus) {
    if !plan.system.volatile_cache {
        return;
    }
    let flushes = plan.steps.iter().filter(|step| matches!(step.action, Action::Flush { .. })).count() as u64;
    for _ in 0..random.random_range(2..=5) {
        let when = When::Flush { nth: random.random_range(0..flushes.max(1)) };
        plan.faults.push(PlannedFault { when, what: FaultKind::PowerCut });
    }
}

/// At the end restarts in a row, in three of four plans of stores that became empty, and often new volumes on them.
fn add_aftermath(plan: &mut Plan, random: &mut Xoshiro256PlusPlus) {
    let residents = plan.tenants.iter().filter(|tenant| !tenant.guest).count() as u8;
    let emptied: Vec<Lane> = match random.random_range(0..4) {
        0 => Vec::new(),
        1 => vec![Lane(random.random_range(0..residents))],
        _ => (0..residents).map(Lane).collect(),
    };
    let mut restarts = || {
        let restart = |random: &mut Xoshiro256PlusPlus| Restart {
            after_ns: *pick(random, &PAUSES_NS),
            crash: *pick(random, &[Crash::PowerCut, Crash::ProcessDeath]),
        };
        (0..random.random_range(0..=4)).map(|_| restart(random)).collect()
    };
    let (restarts, restarts_of_refilled) = (restarts(), restarts());
    let mut refilled = Vec::new();
    for lane in &emptied {
        let number = VolumeNumber(plan.volumes().count() as u8 + 1);
        let volume = VolumePlan { number, iu_count: random.random_range(32..256), later: true };
        plan.tenants[usize::from(lane.0)].volumes.push(volume);
        refilled.push(number);
    }
    plan.aftermath = Some(Aftermath { emptied, restarts, refilled, restarts_of_refilled });
}

#[cfg(test)]
mod test {
    use super::*;
    use crate::generate::{Shape, generate};

    #[test]
    fn wide_plans_have_all_of_it_and_the_rest_is_as_without() {
        let shape = crate::stack::shape();
        let plain = Shape { wide: false, ..shape.clone() };
        let plans: Vec<Plan> = (0..200).map(|seed| generate(seed, &shape)).collect();
        let of = |what: fn(&Plan) -> bool| plans.iter().filter(|plan| what(plan)).count();
        let follows = |fault: &PlannedFault| matches!(fault.when, When::Following { .. });
        for plan in &plans {
            let before = generate(plan.seed, &plain);
            let is_kept = |fault: &PlannedFault| plan.faults.contains(fault);
            assert!(before.faults.iter().all(is_kept), "seed {}", plan.seed);
            let lacks_room = plan.faults.iter().any(|fault| matches!(fault.what, FaultKind::NoRoom { .. }));
            assert_eq!(plan.aftermath.is_none(), lacks_room, "seed {}", plan.seed);
            assert!(plan.faults.iter().filter(|fault| follows(fault)).count() <= 4, "seed {}", plan.seed);
        }
        assert!(of(|plan| plan.faults.iter().any(|f| matches!(f.when, When::Following { .. }))) > 120);
        assert!(of(|plan| plan.aftermath.as_ref().is_some_and(|one| one.emptied.len() > 1)) > 60);
        assert!(of(|plan| plan.volumes().any(|volume| volume.is_thin())) > 30);
        assert!(of(|plan| plan.tenants.iter().any(|tenant| tenant.weight.is_some())) > 60);
        assert!(of(|plan| plan.tenants[0].asks_for_events_after_ns > 0) > 60);
        assert!(of(|plan| plan.system.slow_writes) > 2);
        let has_two_vssds = |plan: &Plan| plan.tenants.iter().any(|tenant| tenant.of.is_some());
        assert!(plans[..100].iter().filter(|plan| has_two_vssds(plan)).count() >= 4);
        assert!(of(|plan| plan.saturation.is_none() || plan.system.leveling_erases == 0) == plans.len());
        assert!(of(|plan| plan.applications.iter().any(|one| one.of.is_some())) > 0);
        assert!(of(|plan| plan.faults.iter().any(|f| matches!(f.when, When::Flush { .. }))) > 5);
    }
}
