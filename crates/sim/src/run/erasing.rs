//! Hosts have erased what they wrote, when all is calm: a volume by a format, or all that a subsystem shows by a sanitize, with others
//! writing beside it and the server going meanwhile. What was erased reads as zeros, and nothing of it lies anywhere any more.

use super::Runner;
use crate::erasure::{Erase, Erasure};
use crate::oracle::{Crash, Finding, WriteId};
use crate::plan::{Action, ErasurePlan, Lane, Range};
use crate::run::administrator::Sight;
use crate::system::System;
use crate::tag::VolumeNumber;
use diecut_units::{Span, mark};

/// How often it is asked for: a crash may come between, and another one that was armed before.
const TRIES: u32 = 5;
/// Writes of each volume beside it, and the IUs of each.
const WRITES_BESIDE: u64 = 12;
const WRITE_IUS: u32 = 4;

/// What goes on while something is erased.
#[derive(Default)]
pub(super) struct Erasing {
    /// Whose host has it erased.
    lane: Option<Lane>,
    /// A sanitize was answered when the server went.
    had_begun: bool,
}

impl Erasing {
    /// Whether commands of a lane are refused while its subsystem is sanitized: after a restart that goes on before anything is read.
    pub fn refuses(&self, lane: Lane) -> bool {
        self.lane == Some(lane)
    }

    /// The server goes.
    pub fn crashes(&mut self, system: &dyn System) {
        let erasure = self.lane.and_then(|lane| system.erasure(lane));
        self.had_begun |= erasure.is_some_and(Erasure::has_begun);
    }
}

/// All of it, as far as the plan has it.
pub(super) fn erase(runner: &mut Runner<'_>) {
    let Some(plan) = runner.plan.erasure.clone().filter(|_| !runner.stop && runner.plan.system.hosts) else {
        return;
    };
    let lane = plan.lane;
    let seen = volumes_seen(runner, lane);
    let (targets, mut what) = match plan.volume {
        Some(volume) => (vec![volume], Erase::Format { nsid: volume.0.into() }),
        None => (seen.clone(), Erase::Sanitize { begun: false }),
    };
    let is_there = !targets.is_empty() && targets.iter().all(|volume| seen.contains(volume));
    if !is_there || !can_write(runner, lane) {
        return;
    }
    let mut crash = plan.crash;
    for number in 0..TRIES {
        // Of no lane: a connection that is lost does not end it.
        let ids: Vec<WriteId> = targets.iter().map(|volume| begin_zeros(runner, *volume)).collect();
        if !runner.system.ask_erase(lane, what) {
            ids.into_iter().for_each(|id| runner.oracle.refuse_write(id));
            return;
        }
        runner.erasing.lane = Some(lane);
        if number == 0 {
            write_beside(runner, &targets);
        }
        let crashes = runner.outcome.power_cuts + runner.outcome.process_deaths;
        play_erasure(runner, &plan, crash.take());
        runner.erasing.lane = None;
        if runner.stop {
            return;
        }
        let has_crashed = runner.outcome.power_cuts + runner.outcome.process_deaths > crashes;
        match runner.system.erasure(lane).and_then(|erasure| erasure.result()).filter(|_| !has_crashed) {
            Some(Ok(())) => {
                ids.into_iter().for_each(|id| runner.oracle.acknowledge_write(id, true));
                return check_erased(runner, &targets);
            }
            Some(Err(error)) => {
                ids.into_iter().for_each(|id| runner.oracle.give_up_write(id));
                if !may_not_erase(runner, lane) {
                    runner.found(Finding::UnexpectedError, format!("{what:?} of lane {}: {error}", lane.0));
                }
                return;
            }
            None if has_crashed => {
                if matches!(what, Erase::Sanitize { .. }) && runner.erasing.had_begun {
                    mark!("run: a sanitize goes on after the server went");
                    what = Erase::Sanitize { begun: true };
                }
            }
            None => ids.into_iter().for_each(|id| runner.oracle.give_up_write(id)),
        }
    }
}

fn volumes_seen(runner: &Runner<'_>, lane: Lane) -> Vec<VolumeNumber> {
    let volumes = runner.plan.tenants[usize::from(lane.0)].volumes.iter().map(|volume| volume.number);
    volumes.filter(|volume| runner.sight(lane, *volume) == Sight::Yes).collect()
}

fn can_write(runner: &Runner<'_>, lane: Lane) -> bool {
    !runner.kept.contains(&lane)
        && !runner.system.may_be_full(lane)
        && runner.system.lacking_room().is_empty()
}

/// Blocks may fail or be gone: what lies there cannot be erased.
fn may_not_erase(runner: &Runner<'_>, lane: Lane) -> bool {
    runner.plan.wears_blocks() || runner.plan.may_lose_data() || !can_write(runner, lane)
}

fn begin_zeros(runner: &mut Runner<'_>, volume: VolumeNumber) -> WriteId {
    let count = runner.plan.volume(volume).iu_count as u32;
    runner.oracle.begin_write(Lane::ADMINISTRATOR, Range { volume, first: 0, count }, true)
}

/// Hosts write to what is not erased.
fn write_beside(runner: &mut Runner<'_>, targets: &[VolumeNumber]) {
    for index in 0..runner.plan.tenants.len() {
        let lane = Lane(index as u8);
        if !can_write(runner, lane) {
            continue;
        }
        for volume in volumes_seen(runner, lane).into_iter().filter(|volume| !targets.contains(volume)) {
            let ius = runner.plan.volume(volume).used_ius();
            for nth in 0..WRITES_BESIDE {
                let first = nth * 61 % ius.saturating_sub(WRITE_IUS.into()).max(1);
                let count = WRITE_IUS.min(ius as u32);
                let write = Action::Write { range: Range { volume, first, count }, fua: false };
                runner.lanes[index].steps.push_back(write);
            }
        }
    }
}

/// Until it is answered, or the server went and came back.
fn play_erasure(runner: &mut Runner<'_>, plan: &ErasurePlan, crash: Option<Crash>) {
    runner.erasing.had_begun = false;
    match crash {
        Some(Crash::PowerCut) => {
            let at = runner.system.media_operations() + plan.after;
            runner.system.cut_power_at(at);
        }
        Some(Crash::ProcessDeath) => {
            runner.until = Some(runner.now + Span::from_micros(plan.after));
            runner.drive();
            runner.until = None;
            if !runner.stop {
                runner.crash(Crash::ProcessDeath);
            }
        }
        None => {}
    }
    runner.drive();
    runner.come_to_rest();
}

/// What was erased reads as zeros, and nothing of it is left.
fn check_erased(runner: &mut Runner<'_>, targets: &[VolumeNumber]) {
    mark!("run: what a host had erased is gone");
    runner.read_everything();
    runner.drive();
    runner.come_to_rest();
    let system = &runner.plan.system;
    let moves = system.leveling_erases > 0 || system.shards.iter().any(|count| *count > 1);
    if runner.stop || moves || runner.plan.wears_blocks() || runner.plan.may_lose_data() {
        return;
    }
    for volume in targets {
        let remains = runner.system.remains(*volume).unwrap_or(0);
        if remains > 0 {
            let detail =
                format!("{remains} IUs of volume {} lie on the medium after it was erased", volume.0);
            runner.found(Finding::NotErased, detail);
        }
    }
}
