//! Makes a failing plan small: fewer tenants, fewer faults, fewer operations, smaller ones. The smaller plan must
//! fail in the same way: what it finds first is of the same kind, and found by the same check.

use crate::guard::{Factory, run_guarded};
use crate::oracle::Violation;
use crate::plan::{Action, Aftermath, FaultKind, Plan, SystemPlan};
use crate::run::Outcome;

/// A smaller plan that fails the same way, and how many runs it took.
pub struct Shrunk {
    /// The plan.
    pub plan: Plan,
    /// What it shows.
    pub outcome: Outcome,
    /// Runs spent.
    pub runs: u32,
}

struct Shrinker<'a> {
    progress: &'a mut dyn FnMut(u32, &Plan),
    factory: &'a dyn Factory,
    /// What the whole plan finds first.
    first: Violation,
    best: Plan,
    outcome: Outcome,
    runs: u32,
    runs_max: u32,
}

/// Shrinks a plan whose run found something, within `runs_max` runs. Returns `None` if the plan does not fail. `progress` is told
/// the runs so far and the smallest plan.
pub fn shrink(
    plan: &Plan,
    factory: &dyn Factory,
    runs_max: u32,
    mut progress: impl FnMut(u32, &Plan),
) -> Option<Shrunk> {
    let outcome = run_guarded(plan, factory);
    let first = outcome.violations.first()?.clone();
    let (progress, best) = (&mut progress, plan.clone());
    let mut shrinker = Shrinker { progress, factory, first, best, outcome, runs: 1, runs_max };
    loop {
        let before = (shrinker.best.steps.len(), shrinker.best.faults.len());
        shrinker.silence_lanes();
        shrinker.drop_faults();
        shrinker.drop_steps();
        shrinker.simplify_steps();
        if before == (shrinker.best.steps.len(), shrinker.best.faults.len()) || shrinker.spent() {
            break;
        }
    }
    Some(Shrunk { plan: shrinker.best, outcome: shrinker.outcome, runs: shrinker.runs })
}

/// Removes what stands there; whether there was anything.
fn remove<T>(list: &mut Vec<T>, at: usize) -> bool {
    let is_there = at < list.len();
    if is_there {
        list.remove(at);
    }
    is_there
}

/// The plan with a drive less. vSSDs that lay there alone lie on the one that has its number then, or on the last one.
fn without_drive(plan: &Plan, drive: u16) -> Plan {
    let mut plan = plan.clone();
    plan.system.drives.remove(usize::from(drive));
    let last = plan.system.drives.len() as u16 - 1;
    let moved = |number: &u16| if *number > drive { number - 1 } else { *number };
    let without =
        |list: &[u16]| list.iter().filter(|number| **number != drive).map(moved).collect::<Vec<_>>();
    for tenant in plan.tenants.iter_mut().filter(|tenant| !tenant.drives.is_empty()) {
        tenant.drives = without(&tenant.drives);
        if tenant.drives.is_empty() {
            tenant.drives.push(drive.min(last));
        }
    }
    plan.system.orders.iter_mut().for_each(|order| *order = without(order));
    // A pool that has too few of its drives does not open.
    let enough = |order: &Vec<u16>| 2 * order.len() > usize::from(last) + 1;
    plan.system.orders.retain(enough);
    if let Some(comings) = &mut plan.system.comings {
        comings.turns.retain(|turn| turn.drive != drive);
        comings.turns.iter_mut().for_each(|turn| turn.drive = moved(&turn.drive));
    }
    plan.faults.retain(|fault| !matches!(fault.what, FaultKind::Drive(harm) if harm.drive == drive));
    for fault in &mut plan.faults {
        if let FaultKind::Drive(harm) = &mut fault.what {
            harm.drive = moved(&harm.drive);
        }
    }
    plan
}

impl Shrinker<'_> {
    fn spent(&self) -> bool {
        self.runs >= self.runs_max
    }

    fn try_plan(&mut self, plan: Plan) -> bool {
        if self.spent() || plan == self.best {
            return false;
        }
        self.runs += 1;
        let outcome = run_guarded(&plan, self.factory);
        let is_first =
            |other: &Violation| (other.finding, &other.check) == (self.first.finding, &self.first.check);
        let same = outcome.violations.first().is_some_and(is_first);
        if same {
            self.best = plan;
            self.outcome = outcome;
        }
        (self.progress)(self.runs, &self.best);
        same
    }

    /// A tenant without steps is as good as none, and the device stays laid out as it was.
    fn silence_lanes(&mut self) {
        for lane in 0..self.best.tenants.len() {
            let mut plan = self.best.clone();
            plan.steps.retain(|step| step.lane.0 as usize != lane);
            self.try_plan(plan);
        }
    }

    fn drop_faults(&mut self) {
        let mut plan = self.best.clone();
        plan.system.until_cleaned = false;
        self.try_plan(plan);
        let plan = Plan { saturation: None, ..self.best.clone() };
        self.try_plan(plan);
        let plan = Plan { loss: None, ..self.best.clone() };
        self.try_plan(plan);
        let plan = Plan { siege: None, ..self.best.clone() };
        self.try_plan(plan);
        self.shrink_aftermath();
        let mut plan = self.best.clone();
        plan.system.channels = None;
        self.try_plan(plan);
        for shards in [vec![1], vec![2]] {
            let mut plan = self.best.clone();
            plan.system.shards = shards;
            if self.try_plan(plan) {
                break;
            }
        }
        self.drop_drives();
        let mut index = 0;
        while index < self.best.faults.len() {
            let mut plan = self.best.clone();
            plan.faults.remove(index);
            if !self.try_plan(plan) {
                index += 1;
            }
        }
    }

    /// One drive after the other goes, with what goes wrong with it; and the rest are given in one order, and none is missing.
    fn drop_drives(&mut self) {
        let plan = self.best.clone();
        let system = SystemPlan { comings: None, ..plan.system.clone() };
        self.try_plan(Plan { system, ..plan });
        let plan = self.best.clone();
        let system = SystemPlan { orders: Vec::new(), ..plan.system.clone() };
        self.try_plan(Plan { system, ..plan });
        let mut drive = 0;
        while usize::from(drive) < self.best.system.drives.len() && self.best.system.drives.len() > 1 {
            let plan = without_drive(&self.best, drive);
            if self.spent() {
                return;
            }
            drive += u16::from(!self.try_plan(plan));
        }
    }

    /// Without it, or with fewer restarts and fewer stores that become empty.
    fn shrink_aftermath(&mut self) {
        let plan = Plan { aftermath: None, ..self.best.clone() };
        if self.best.aftermath.is_none() || self.try_plan(plan) {
            return;
        }
        let lists: [fn(&mut Aftermath, usize) -> bool; 4] = [
            |one, at| remove(&mut one.restarts_of_refilled, at),
            |one, at| remove(&mut one.refilled, at),
            |one, at| remove(&mut one.restarts, at),
            |one, at| remove(&mut one.emptied, at),
        ];
        for without in lists {
            let mut at = 0;
            loop {
                let mut plan = self.best.clone();
                if !plan.aftermath.as_mut().is_some_and(|one| without(one, at)) || self.spent() {
                    break;
                }
                at += usize::from(!self.try_plan(plan));
            }
        }
    }

    /// Removes runs of steps, from halves down to single ones.
    fn drop_steps(&mut self) {
        let mut size = self.best.steps.len().div_ceil(2).max(1);
        loop {
            let mut start = 0;
            while start < self.best.steps.len() && !self.spent() {
                let mut plan = self.best.clone();
                let end = (start + size).min(plan.steps.len());
                plan.steps.drain(start..end);
                // Faults by step count move along with the steps they stood behind.
                for fault in &mut plan.faults {
                    if let crate::plan::When::Step(step) = &mut fault.when
                        && *step as usize > start
                    {
                        *step -= (*step - start as u64).min((end - start) as u64);
                    }
                }
                if !self.try_plan(plan) {
                    start += size;
                }
            }
            if size == 1 || self.spent() {
                return;
            }
            size = size.div_ceil(2);
        }
    }

    fn simplify_steps(&mut self) {
        for tenant in 0..self.best.tenants.len() {
            let mut plan = self.best.clone();
            plan.tenants[tenant].depth = 1;
            self.try_plan(plan);
        }
        if self.best.steps.len() > 64 {
            return;
        }
        for index in 0..self.best.steps.len() {
            let mut plan = self.best.clone();
            if let Action::Write { range, .. } | Action::Read { range } | Action::Deallocate { range } =
                &mut plan.steps[index].action
            {
                range.count = 1;
            }
            self.try_plan(plan);
        }
    }
}

#[cfg(test)]
mod test {
    use super::*;
    use crate::generate::{Shape, generate};
    use crate::plan::Lane;

    /// Goal: a plan without one of its drives is a plan. Method: drives are taken out one by one until one is left.
    #[test]
    fn a_plan_without_a_drive_is_whole() {
        let shape = Shape { drive: true, drives_max: 4, ..crate::stack::shape() };
        for seed in 0..60 {
            let mut plan = generate(seed, &shape);
            while plan.system.drives.len() > 1 {
                let before = plan.system.drives.len();
                plan = without_drive(&plan, (seed % before as u64) as u16);
                let count = plan.system.drives.len();
                assert_eq!(count, before - 1);
                assert!(plan.system.orders.iter().all(|order| 2 * order.len() > count));
                assert_eq!(plan.drives_at(0).len(), count);
                for lane in (0..plan.tenants.len() as u8).map(Lane) {
                    let on = plan.drives_of(lane);
                    assert!(!on.is_empty() && on.iter().all(|drive| usize::from(*drive) < count));
                }
                let is_there = |what: FaultKind| !matches!(what, FaultKind::Drive(harm) if usize::from(harm.drive) >= count);
                assert!(plan.faults.iter().all(|fault| is_there(fault.what)));
            }
        }
    }
}
