//! What administrators do during the traffic of a plan, from a generator of its own.

use crate::administration::Change;
use crate::plan::*;
use crate::tag::VolumeNumber;
use diecut_spec::Isolation;
use rand::{RngExt, SeedableRng};
use rand_xoshiro::Xoshiro256PlusPlus;

/// IUs of a volume that comes and goes.
const VOLUME_IUS: u64 = 96;

struct Changes<'a> {
    plan: &'a mut Plan,
    random: Xoshiro256PlusPlus,
    /// Steps of the administrator.
    steps: Vec<Action>,
    next_volume: u8,
}

/// Adds a few episodes: guests with a vSSD of their own, volumes that come and go, hosts thrown out and let in again,
/// and requests that must be refused; and sometimes a cut during one of them.
pub(super) fn add(plan: &mut Plan, faults: bool) {
    let random = Xoshiro256PlusPlus::seed_from_u64(plan.seed ^ 0x0061_646d_696e);
    let next_volume = plan.volumes().count() as u8 + 1;
    let mut changes = Changes { plan, random, steps: Vec::new(), next_volume };
    let residents = changes.plan.tenants.len() as u8;
    for _ in 0..changes.random.random_range(1..=3) {
        let lane = Lane(changes.random.random_range(0..residents));
        match changes.random.random_range(0..6) {
            0..2 => changes.guest(),
            2..4 => changes.volume_of(lane),
            4 => changes.steps.extend([
                Action::Change(Change::DenyHost(lane)),
                Action::Wait { span_ns: 3_000_000 },
                Action::Change(Change::AllowHost(lane)),
            ]),
            _ => changes.refused(lane),
        }
        changes.wait(20);
    }
    let requests = changes.steps.iter().filter(|step| matches!(step, Action::Change(_))).count() as u64;
    let steps = std::mem::take(&mut changes.steps);
    let mut random = changes.random;
    plan.steps.extend(steps.into_iter().map(|action| Step { lane: Lane::ADMINISTRATOR, action }));
    if faults && random.random_ratio(1, 2) {
        let when =
            When::Change { nth: random.random_range(0..requests), operations: random.random_range(0..12) };
        plan.faults.push(PlannedFault { when, what: FaultKind::PowerCut });
    }
}

/// Servers with several shards move tenants between them, and sometimes the power goes on the way. From a generator of its own.
pub(super) fn add_moves(plan: &mut Plan, faults: bool) {
    let shards = plan.system.shards.iter().copied().max().unwrap_or(1);
    let mut random = Xoshiro256PlusPlus::seed_from_u64(plan.seed ^ 0x006d_6f76_6573);
    if shards == 1 || random.random_ratio(1, 4) {
        return;
    }
    let lanes: Vec<Lane> =
        (0..).zip(&plan.tenants).filter(|(_, tenant)| !tenant.guest).map(|(lane, _)| Lane(lane)).collect();
    let of_administrator = |step: &Step| step.lane == Lane::ADMINISTRATOR;
    for _ in 0..random.random_range(1..=6) {
        let own: Vec<usize> = (0..plan.steps.len())
            .filter(|&at| of_administrator(&plan.steps[at]))
            .chain([plan.steps.len()])
            .collect();
        let at = own[random.random_range(0..own.len())];
        let shard = random.random_range(0..shards);
        let change = Change::Move { lane: lanes[random.random_range(0..lanes.len())], shard };
        let wait = Action::Wait { span_ns: random.random_range(100_000..40_000_000) };
        let steps = [wait, Action::Change(change)].map(|action| Step { lane: Lane::ADMINISTRATOR, action });
        plan.steps.splice(at..at, steps);
    }
    if !faults {
        return;
    }
    let requests = plan.steps.iter().filter_map(|step| match step.action {
        Action::Change(change) => Some(change),
        _ => None,
    });
    let moves: Vec<(u64, Lane)> = (0..)
        .zip(requests)
        .filter_map(|(number, change)| match change {
            Change::Move { lane, .. } => Some((number, lane)),
            _ => None,
        })
        .collect();
    if random.random_ratio(1, 2) {
        let (nth, _) = moves[random.random_range(0..moves.len())];
        let when = When::Change { nth, operations: random.random_range(0..60) };
        let what = FaultKind::PowerCut;
        plan.faults.push(PlannedFault { when, what });
    }
    // Hosts that connect while their subsystem is on its way.
    for (nth, lane) in moves {
        if random.random_ratio(1, 2) {
            let when = When::After { nth, span_ns: random.random_range(0..6_000_000) };
            let what = if random.random_ratio(1, 3) {
                FaultKind::HalfOpen { lane }
            } else {
                FaultKind::ConnectionLoss { lane }
            };
            plan.faults.push(PlannedFault { when, what });
        }
    }
}

impl Changes<'_> {
    fn wait(&mut self, longest_ms: u64) {
        let span_ns = self.random.random_range(100_000..longest_ms * 1_000_000);
        self.steps.push(Action::Wait { span_ns });
    }

    fn change(&mut self, change: Change) {
        self.steps.push(Action::Change(change));
        if self.random.random_ratio(1, 4) {
            self.wait(2);
        }
    }

    /// A volume of a tenant that comes later, with traffic for it among the lane's steps.
    fn new_volume(&mut self, lane: Lane) -> VolumeNumber {
        let number = VolumeNumber(self.next_volume);
        self.next_volume += 1;
        let volume = VolumePlan { number, iu_count: VOLUME_IUS, later: true };
        self.plan.tenants[usize::from(lane.0)].volumes.push(volume);
        let mut actions = vec![Action::Read { range: Range { volume: number, first: 0, count: 32 } }];
        for _ in 0..self.random.random_range(4..24) {
            let count = self.random.random_range(1..=24);
            let first = self.random.random_range(0..VOLUME_IUS - u64::from(count));
            let range = Range { volume: number, first, count };
            actions.push(match self.random.random_range(0..10) {
                0..6 => Action::Write { range, fua: false },
                6..8 => Action::Read { range },
                8 => Action::Flush { volume: number },
                _ => Action::Deallocate { range },
            });
        }
        let own = |step: &Step| step.lane == lane;
        let count = self.plan.steps.iter().filter(|step| own(step)).count();
        // In one run, somewhere in the lane's storm, or at its end for a lane without one.
        let at = self.random.random_range(0..=count);
        let place = self.plan.steps.iter().enumerate().filter(|(_, step)| own(step)).nth(at);
        let place = place.map_or(self.plan.steps.len(), |(place, _)| place);
        let steps: Vec<Step> = actions.into_iter().map(|action| Step { lane, action }).collect();
        self.plan.steps.splice(place..place, steps);
        number
    }

    fn volume_of(&mut self, lane: Lane) {
        let volume = self.new_volume(lane);
        self.change(Change::CreateVolume(volume));
        self.change(Change::Attach(volume));
        self.wait(60);
        if self.random.random_ratio(2, 3) {
            self.change(Change::Detach(volume));
            self.change(Change::DeleteVolume(volume));
        }
    }

    /// A tenant that comes, and often goes again and makes room for what comes next.
    fn guest(&mut self) {
        let lane = Lane(self.plan.tenants.len() as u8);
        let isolation = if self.random.random_ratio(1, 4) { Isolation::Die } else { Isolation::Software };
        let depth = self.random.random_range(1..=8);
        self.plan.tenants.push(TenantPlan {
            isolation,
            volumes: Vec::new(),
            depth,
            io_queues: self.random.random_range(1..=2),
            paths: 1,
            guest: true,
            capacity_bytes: None,
            weight: None,
            asks_for_events_after_ns: 0,
            of: None,
            placement: None,
            drives: Vec::new(),
        });
        for _ in 0..self.random.random_range(1..=2) {
            let volume = self.new_volume(lane);
            self.change(Change::CreateTenant(lane));
            self.change(Change::CreateVssd(lane));
            self.change(Change::CreateVolume(volume));
            self.change(Change::CreateSubsystem(lane));
            self.change(Change::AllowHost(lane));
            self.change(Change::Attach(volume));
            self.wait(200);
            if self.random.random_ratio(1, 4) {
                return;
            }
            if self.random.random_ratio(1, 3) {
                self.change(Change::DenyHost(lane));
            }
            self.change(Change::DeleteSubsystem(lane));
            self.change(Change::DeleteVolume(volume));
            self.change(Change::DeleteVssd(lane));
            self.change(Change::DeleteTenant(lane));
        }
    }

    fn refused(&mut self, lane: Lane) {
        let volume = self.plan.tenants[usize::from(lane.0)].volumes[0].number;
        self.change(Change::DeleteTenant(lane));
        self.change(Change::DeleteVssd(lane));
        self.change(Change::DeleteVolume(volume));
        self.change(Change::CreateSubsystem(lane));
        self.change(Change::CreateVolume(volume));
    }
}
