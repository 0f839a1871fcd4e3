//! What only the first shard does: it gives out channels at the start, chooses the home of a new vSSD, and has orders carried
//! out where what they concern lives.

use crate::allocation;
use crate::control::*;
use crate::custody::{self, forget_vssd, take_back};
use crate::drive;
use crate::inquiry::Inquiry;
use crate::job::{Job, Own, Progress};
use crate::lanes::Lane;
use crate::ledger::{Found, HeldPart};
use crate::leveling;
use crate::orders::PendingInquiry;
use crate::owners::Owners;
use crate::peer::{Answer, Order, StepAnswer};
use crate::rejoin;
use crate::relocation;
use crate::status;
use crate::step::Step;
use crate::steps;
use diecut_media::Divide;
use diecut_units::{Time, mark, mutant};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

/// Where a step is carried out.
enum Scope {
    Here,
    /// At the home of a vSSD.
    Vssd(u32),
    All,
    /// At a shard.
    Shard(u16),
}

/// An order was carried out.
pub(crate) fn answered<M: Divide>(
    here: &mut Owners<M>,
    number: u64,
    answer: Answer,
    actions: &mut Vec<drive::Action>,
) {
    assert!(here.placement.orders.was_given(number), "I-S14: what is answered was ordered");
    here.placement.attendance.answered(number);
    let Answer::Found(findings) = answer else {
        let before = here.placement.orders.answers.insert(number, answer);
        assert!(before.is_none(), "I-S14: an order is answered once");
        return;
    };
    let inquiries = &mut here.placement.orders.inquiries;
    let at = inquiries.iter().position(|pending| pending.awaited.contains(&number));
    let at = at.expect("I-S14: somebody asked");
    let pending = &mut inquiries[at];
    pending.awaited.retain(|awaited| *awaited != number);
    pending.findings.merge(findings);
    if pending.awaited.is_empty() {
        let PendingInquiry { token, findings, .. } = inquiries.remove(at);
        actions.push(drive::Action::Answer { token, response: Box::new(findings.into_response()) });
    }
}

/// Asks all shards.
pub(crate) fn inquire<M: Divide>(here: &mut Owners<M>, token: ControlToken, inquiry: Inquiry) {
    let findings = status::find(here, inquiry);
    let awaited = here.placement.order_all(|| Order::Find(inquiry));
    here.placement.orders.inquiries.push(PendingInquiry { token, findings, awaited });
}

/// Gives every group of tenants its home and its channels; when the pool is open and nothing is under way.
pub(crate) fn give_out_channels<M: Divide>(here: &mut Owners<M>) {
    assert!(here.placement.ledger.vssds.is_empty(), "I-S20: channels are given out once");
    let tenants: BTreeMap<u32, &String> =
        here.registry.state.vssds.values().map(|vssd| (vssd.number, &vssd.tenant)).collect();
    let devices = &here.plane.flash.devices;
    let found = devices.numbered().flat_map(|(device, own)| {
        let pool = &own.pool;
        let tenants = &tenants;
        // Of what is away in part, nothing is given out.
        let is_there = |id: &diecut_vssd::VssdId| !here.registry.away.contains_key(&id.0);
        pool.vssd_ids().filter(is_there).map(move |id| {
            let places = pool.places_of(id);
            let blocks = pool.blocks_of(&places);
            let tenant = tenants.get(&id.0).map(|name| (*name).clone());
            Found { id, tenant, part: HeldPart { device, places, blocks } }
        })
    });
    let found = found.collect();
    here.placement.ledger.kept = kept_lanes(here);
    here.placement.ledger.give_out(found);
    for member in here.placement.ledger.members() {
        let lanes = here.placement.ledger.owners.lanes_of(member);
        if lanes.is_empty() {
            continue;
        }
        here.note_exchanges_elsewhere(&lanes);
        let moved = custody::take_out(here, &lanes);
        here.placement.order(member, Order::Channels(moved));
    }
}

/// Lanes that stay here: logs of block states are written there, or a part of a vSSD lies there whose other parts are away, which nobody serves.
fn kept_lanes<M: Divide>(here: &Owners<M>) -> BTreeSet<Lane> {
    let mut kept = BTreeSet::new();
    for (device, own) in here.plane.flash.devices.numbered() {
        let away = own.pool.vssd_ids().filter(|id| here.registry.away.contains_key(&id.0));
        let of_away = away.flat_map(|id| own.pool.places_of(id).channels(own.media.geometry()));
        let channels = own.pool.log_channels().into_iter().chain(of_away);
        kept.extend(channels.map(|channel| Lane::of(device, channel)));
    }
    kept
}

fn scope(step: &Step, job: &Job) -> Scope {
    let home_of = |volume: &String| {
        let volume = &job.next.volumes[volume];
        Scope::Vssd(job.next.vssds[&volume.vssd].number)
    };
    match step {
        Step::Leave(group) => Scope::Shard(group.from),
        Step::Release(..) => Scope::All,
        Step::MoveTenant { .. } | Step::Arrive(_) | Step::LevelWear | Step::Reopen(_) | Step::Readmit(_) => {
            unreachable!("I-S5: the first shard does what is its own")
        }
        Step::AllocVssd { .. }
        | Step::SyncVssd { .. }
        | Step::Persist
        | Step::KeepForHosts
        | Step::JoinDevice(_)
        | Step::MakeCopies { .. }
        | Step::CopyVssd { .. }
        | Step::SwitchVssd { .. }
        | Step::DrainDevice(_)
        | Step::StayDevice(_)
        | Step::LeaveDevice(_) => Scope::Here,
        Step::CreateVolume { name } | Step::OpenNamespace { name } => home_of(name),
        Step::CanDelete { vssd } | Step::CloseNamespace { vssd, .. } | Step::DeleteVolume { vssd, .. } => {
            Scope::Vssd(*vssd)
        }
        Step::DeallocVssd { number } => Scope::Vssd(*number),
        Step::RepairVssd { name, .. } => Scope::Vssd(job.next.vssds[name].number),
        Step::ApplyTenant { .. }
        | Step::ApplyQosSets
        | Step::ApplySubsystem { .. }
        | Step::RemoveSubsystem { .. }
        | Step::FlushStores
        | Step::TakeDevice(_)
        | Step::ForgetDevice(_)
        | Step::Unfence { .. }
        | Step::ApplyWear
        | Step::Exchange(_)
        | Step::ReturnChannels => Scope::All,
    }
}

/// Carries out a step wherever it belongs.
pub(crate) fn step<M: Divide>(here: &mut Owners<M>, step: &Step, job: &mut Job, now: Time) -> Progress {
    // A command of the catalog would meet channels that are on their way. Of a device that does not answer nothing is given away.
    if step.gives_channels() && !here.placement.ledger.is_single() {
        let devices = here.plane.flash.devices.numbered();
        let mut there = devices.filter(|(_, own)| !own.is_away);
        if !there.all(|(device, _)| here.registry.catalog.is_idle(device)) {
            return Progress::Waits;
        }
    }
    match step {
        Step::AllocVssd { name } => return allocation::alloc_somewhere(here, name, job, now),
        Step::MoveTenant { tenant, shard } => return relocation::move_tenant(here, tenant, *shard, job),
        Step::Arrive(group) => return relocation::arrive_somewhere(here, group, job, now),
        Step::LevelWear => return leveling::level_wear(here, job, now),
        Step::Reopen(shard) => return rejoin::reopen(here, *shard, job),
        Step::Readmit(shard) => return rejoin::readmit(here, *shard, job),
        _ => {}
    }
    if !job.is_begun() {
        order_step(here, step, job);
    }
    if *job.own() != Own::Over {
        do_here(here, step, job, now);
    }
    take_step_answers(here, step, job);
    if *job.own() != Own::Over || !job.awaited().is_empty() && !mutant!("shard: members are not waited for") {
        return Progress::Waits;
    }
    if let Step::DeallocVssd { number } = step {
        here.placement.ledger.vssds.remove(number);
    }
    if let Some(left) = here.placement.duties.left.take() {
        let before = here.placement.orders.moving.replace(left);
        assert!(before.is_none(), "I-S15: one group is between two shards");
    }
    job.take_refusal().map_or(Progress::Done, Progress::Refused)
}

/// Orders a step of the shards it belongs to.
fn order_step<M: Divide>(here: &mut Owners<M>, step: &Step, job: &mut Job) {
    let shards = match scope(step, job) {
        Scope::Here => vec![0],
        Scope::Shard(shard) => vec![shard],
        Scope::Vssd(number) => vec![here.placement.ledger.shard_of(number)],
        Scope::All => (0..here.placement.shards).collect(),
    };
    assert!(job.awaited().is_empty(), "I-S9: a step begins when the one before was answered");
    let next = Arc::new(job.next.clone());
    let members = shards.iter().filter(|member| **member != 0);
    let order = |member: &u16| here.placement.order(*member, Order::Step(step.clone(), Arc::clone(&next)));
    let mut awaited: Vec<u64> = members.map(order).collect();
    if let Step::Release(_, passed) = step {
        awaited.push(*passed);
    }
    job.begin(shards.contains(&0), awaited);
}

/// Does this shard's part of a step, as far as it can be now.
fn do_here<M: Divide>(here: &mut Owners<M>, step: &Step, job: &mut Job, now: Time) {
    match steps::step_here(here, step, job, now) {
        Progress::Done => job.own_is_done(),
        Progress::Waits => return,
        Progress::Refused(error) => {
            job.own_goes(Own::Over);
            job.refused(error);
        }
    }
    if *step == Step::Persist {
        let world = here.world();
        here.placement.order_all(|| Order::World(Arc::clone(&world)));
    }
}

/// Takes what other shards answered to a step.
fn take_step_answers<M: Divide>(here: &mut Owners<M>, step: &Step, job: &mut Job) {
    for number in job.awaited().to_vec() {
        let Some(answer) = here.placement.take_answer(number) else { continue };
        job.retain_awaited(|awaited| *awaited != number);
        mark!("shard: step carried out by another shard");
        if let Step::DeallocVssd { number } = step {
            forget_vssd(here, *number);
        }
        let StepAnswer { refusal, returned, group, repair } = match answer {
            Answer::Step(answer) => *answer,
            // Of connections that all arrived.
            Answer::Done => StepAnswer::default(),
            _ => unreachable!("I-S14: a step is answered as a step"),
        };
        if let Some(error) = refusal {
            job.refused(error);
        }
        job.report = repair.or(job.report.take());
        if let Some(moved) = returned {
            take_back(here, moved);
        }
        assert!(
            group.is_none() || here.placement.orders.moving.is_none(),
            "I-S15: one group is between two shards"
        );
        here.placement.orders.moving = group.or(here.placement.orders.moving.take());
    }
}
