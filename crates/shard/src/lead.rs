//! What only the first shard does: it gives out channels at the start, chooses the home of a new vSSD, and has orders carried
//! out where what they concern lives.

use crate::control::*;
use crate::drive;
use crate::job::{Job, Progress};
use crate::ledger::{Found, Held};
use crate::leveling;
use crate::orders::PendingStatus;
use crate::owners::Owners;
use crate::peer::{Alloc, Answer, Moved, Order};
use crate::plan::alloc_refused;
use crate::relocation;
use crate::status;
use crate::step::Step;
use crate::steps;
use crate::steps::vssds;
use diecut_catalog::VssdRecord;
use diecut_media::Divide;
use diecut_spec::{Isolation, Serves};
use diecut_units::{Time, mark, mutant};
use std::collections::BTreeMap;
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
    if let Some(status) = answer.status {
        let pending =
            here.placement.orders.statuses.iter().position(|pending| pending.awaited.contains(&number));
        let at = pending.expect("a status was ordered");
        let pending = &mut here.placement.orders.statuses[at];
        pending.awaited.retain(|awaited| *awaited != number);
        pending.status.merge(*status);
        if pending.awaited.is_empty() {
            let PendingStatus { token, status, .. } = here.placement.orders.statuses.remove(at);
            let response = Box::new(ControlResponse::Status(Box::new(status)));
            actions.push(drive::Action::Answer { token, response });
        }
        return;
    }
    here.placement.orders.answers.insert(number, answer);
}

/// Asks all shards what exists.
pub(crate) fn gather_status<M: Divide>(here: &mut Owners<M>, token: ControlToken) {
    let status = status::status(here);
    let awaited = here.placement.order_all(|| Order::Status);
    here.placement.orders.statuses.push(PendingStatus { token, status, awaited });
}

/// Gives every group of tenants its home and its channels; when the pool is open and nothing is under way.
pub(crate) fn give_out_channels<M: Divide>(here: &mut Owners<M>) {
    let tenants: BTreeMap<u32, &String> =
        here.registry.state.vssds.values().map(|vssd| (vssd.number, &vssd.tenant)).collect();
    let pool = &here.plane.flash.pool;
    let found = pool.vssd_ids().map(|id| {
        let places = pool.places_of(id);
        let blocks = pool.blocks_of(&places);
        Found { id, tenant: tenants.get(&id.0).map(|name| (*name).clone()), places, blocks }
    });
    let found = found.collect();
    here.placement.ledger.give_out(found, here.plane.flash.media.geometry());
    for member in here.placement.ledger.members() {
        let channels = here.placement.ledger.channels_of(member);
        if channels.is_empty() {
            continue;
        }
        here.note_exchanges_elsewhere(&channels);
        let part = here.plane.flash.pool.detach(&channels);
        let moved = Moved::new(channels, part, &mut here.plane.flash.media);
        here.placement.order(member, Order::Channels(moved));
    }
}

fn scope(step: &Step, job: &Job) -> Scope {
    let home_of = |volume: &String| {
        let volume = &job.next.volumes[volume];
        Scope::Vssd(job.next.vssds[&volume.vssd].number)
    };
    match step {
        Step::Leave(group) => Scope::Shard(group.from),
        Step::Release(..) => Scope::All,
        Step::MoveTenant { .. } | Step::Arrive(_) | Step::LevelWear => {
            unreachable!("the first shard's own")
        }
        Step::AllocVssd { .. } | Step::SyncPool | Step::Persist => Scope::Here,
        Step::CreateVolume { name } | Step::OpenNamespace { name } => home_of(name),
        Step::CanDelete { vssd } | Step::CloseNamespace { vssd, .. } | Step::DeleteVolume { vssd, .. } => {
            Scope::Vssd(*vssd)
        }
        Step::DeallocVssd { number } => Scope::Vssd(*number),
        Step::RepairVssd { name, .. } => Scope::Vssd(job.next.vssds[name].number),
        Step::ApplySubsystem { .. }
        | Step::RemoveSubsystem { .. }
        | Step::FlushStores
        | Step::ApplyWear
        | Step::Exchange(_)
        | Step::ReturnChannels => Scope::All,
    }
}

/// Carries out a step wherever it belongs.
pub(crate) fn step<M: Divide>(here: &mut Owners<M>, step: &Step, job: &mut Job, now: Time) -> Progress {
    // A command of the catalog would meet channels that are on their way.
    if step.gives_channels() && !here.placement.ledger.is_single() && !here.registry.catalog.is_idle() {
        return Progress::Waits;
    }
    match step {
        Step::AllocVssd { name } => return alloc_somewhere(here, name, job, now),
        Step::MoveTenant { tenant, shard } => return relocation::move_tenant(here, tenant, *shard, job),
        Step::Arrive(group) => return relocation::arrive_somewhere(here, group, job, now),
        Step::LevelWear => return leveling::level_wear(here, job, now),
        _ => {}
    }
    let shards = match scope(step, job) {
        Scope::Here => vec![0],
        Scope::Shard(shard) => vec![shard],
        Scope::Vssd(number) => vec![here.placement.ledger.shard_of(number)],
        Scope::All => (0..here.placement.shards).collect(),
    };
    if !job.elsewhere.is_ordered {
        job.elsewhere.is_ordered = true;
        job.elsewhere.is_done_here = !shards.contains(&0);
        if let Step::Release(_, passed) = step {
            job.elsewhere.awaited.push(*passed);
        }
        let next = Arc::new(job.next.clone());
        for &member in shards.iter().filter(|member| **member != 0) {
            let number = here.placement.order(member, Order::Step(step.clone(), Arc::clone(&next)));
            job.elsewhere.awaited.push(number);
        }
    }
    if !job.elsewhere.is_done_here {
        match steps::step_here(here, step, job, now) {
            Progress::Done => job.elsewhere.is_done_here = true,
            Progress::Waits => {}
            Progress::Refused(error) => {
                job.elsewhere.is_done_here = true;
                job.elsewhere.refusal = Some(error);
            }
        }
        if job.elsewhere.is_done_here && *step == Step::Persist {
            let world = here.world();
            here.placement.order_all(|| Order::World(Arc::clone(&world)));
        }
    }
    let (orders, awaited) = (&mut here.placement.orders, &mut job.elsewhere.awaited);
    let mut arrived = Vec::new();
    awaited.retain(|number| match orders.answers.remove(number) {
        Some(answer) => {
            arrived.push(answer);
            false
        }
        None => true,
    });
    for answer in arrived {
        mark!("shard: step carried out by another shard");
        if let Some(error) = answer.refusal {
            job.elsewhere.refusal = Some(error);
        }
        job.repair.report = answer.repair.or(job.repair.report.take());
        if let Step::DeallocVssd { number } = step {
            forget_vssd(here, *number);
        }
        take_back(here, answer.returned);
        here.placement.orders.moving = answer.group.or(here.placement.orders.moving.take());
    }
    if !job.elsewhere.is_done_here
        || !job.elsewhere.awaited.is_empty() && !mutant!("shard: members are not waited for")
    {
        return Progress::Waits;
    }
    if let Step::DeallocVssd { number } = step {
        here.placement.ledger.vssds.remove(number);
    }
    here.placement.orders.moving = here.placement.duties.left.take().or(here.placement.orders.moving.take());
    job.elsewhere.refusal.take().map_or(Progress::Done, Progress::Refused)
}

/// A member made an end of a vSSD.
fn forget_vssd<M: Divide>(here: &mut Owners<M>, number: u32) {
    if let Some(held) = here.placement.ledger.vssds.remove(&number) {
        here.plane.flash.pool.release(&held.places);
    }
}

fn take_back<M: Divide>(here: &mut Owners<M>, returned: Option<Moved>) {
    let Some(moved) = returned else { return };
    for &channel in &moved.channels {
        here.placement.ledger.owners[usize::from(channel)] = 0;
    }
    let part = moved.unpack(&mut here.plane.flash.media);
    here.plane.flash.pool.attach(part);
}

/// Makes a vSSD on the home of its tenant; the first one chooses the home: the least loaded shard on whose channels, and
/// on those that nobody uses, it fits.
fn alloc_somewhere<M: Divide>(here: &mut Owners<M>, name: &str, job: &mut Job, now: Time) -> Progress {
    if let Some(&number) = job.elsewhere.awaited.first() {
        let Some(answer) = here.placement.orders.answers.remove(&number) else { return Progress::Waits };
        job.elsewhere.awaited.clear();
        return allocated(here, name, answer, job);
    }
    let record = job.next.vssds[name].clone();
    let has_vssd = here.registry.state.vssds.values().any(|vssd| vssd.tenant == record.tenant);
    let homes = if has_vssd {
        vec![here.placement.ledger.home_of(&record.tenant)]
    } else {
        here.placement.ledger.by_load()
    };
    let isolation = record.isolation;
    let (level, capacity) = (record.throughput_level, record.capacity_bytes);
    let pool = &here.plane.flash.pool;
    let owners = &here.placement.ledger.owners;
    let choose = |shard: u16| {
        pool.choose_places(isolation, level, capacity, |channel| {
            let owner = owners[usize::from(channel)];
            owner == shard || owner == 0 && pool.is_free_channel(channel)
        })
    };
    let chosen = homes.iter().find_map(|&shard| choose(shard).ok().map(|places| (shard, places)));
    let Some((shard, places)) = chosen else {
        let kind = ControlErrorKind::Exhausted;
        let refused = match pool.choose_places(isolation, level, capacity, |_| true) {
            Err(error) => alloc_refused(name, &error),
            Ok(_) => ControlError {
                kind,
                message: format!(
                    "vSSD \"{name}\": what is free lies on channels of several shards{}; start the server with fewer \
                     shards, ask for less, or for whole channels",
                    if has_vssd { ", and its tenant lives on one of them" } else { "" }
                ),
            },
        };
        return Progress::Refused(refused);
    };
    let geometry = *here.plane.flash.media.geometry();
    let (staging_slot, staging_slot_count) = match record.serves {
        Serves::Blocks { .. } => (None, 1),
        Serves::Volumes => {
            // Those that share channels are many, and none has more of a channel than its dies.
            let is_alone = record.isolation == Isolation::Channel;
            let channels = if is_alone { places.channels(&geometry).len() as u32 } else { 1 };
            match here.registry.free_staging_slots(name, channels, geometry.channels) {
                Ok(slots) => slots,
                Err(error) => return Progress::Refused(error),
            }
        }
    };
    let record = VssdRecord { staging_slot, staging_slot_count, ..record };
    let id = match here.plane.flash.pool.new_vssd_id() {
        Ok(id) => id,
        Err(error) => return Progress::Refused(alloc_refused(name, &error)),
    };
    let blocks = here.plane.flash.pool.blocks_of(&places);
    let fresh: Vec<u16> = places.channels(&geometry).into_iter().collect();
    let fresh: Vec<u16> = fresh
        .into_iter()
        .filter(|&channel| here.placement.ledger.owners[usize::from(channel)] != shard)
        .collect();
    let held = Held { shard, places: places.clone(), blocks };
    here.placement.ledger.add(id, held, &geometry);
    if shard == 0 {
        return match vssds::make_vssd(here, name, id, isolation, &places, record, now) {
            Ok(record) => made(here, name, record, job),
            Err(error) => {
                here.placement.ledger.vssds.remove(&id.0);
                Progress::Refused(error)
            }
        };
    }
    let mut part = here.plane.flash.pool.detach(&fresh);
    here.plane.flash.pool.lend_slot(&mut part);
    here.plane.flash.pool.reserve(id, &places);
    let moved = Moved::new(fresh, part, &mut here.plane.flash.media);
    let alloc = Alloc { name: name.to_owned(), id, isolation, places, record, moved };
    let number = here.placement.order(shard, Order::Alloc(Box::new(alloc)));
    job.elsewhere.awaited.push(number);
    Progress::Waits
}

fn allocated<M: Divide>(here: &mut Owners<M>, name: &str, answer: Answer, job: &mut Job) -> Progress {
    let record = answer.record.expect("an order to make a vSSD is answered with its record");
    if let Some(error) = answer.refusal {
        forget_vssd(here, record.number);
        take_back(here, answer.returned);
        return Progress::Refused(error);
    }
    mark!("shard: vSSD made by another shard");
    made(here, name, record, job)
}

/// A vSSD is there. Its tenant's subsystems, which can show nothing yet, follow it home.
fn made<M: Divide>(here: &mut Owners<M>, name: &str, record: VssdRecord, job: &mut Job) -> Progress {
    let shard = here.placement.ledger.shard_of(record.number);
    if here.placement.ledger.home_of(&record.tenant) != shard {
        let own = |one: &&String| job.next.subsystems[*one].tenant == record.tenant;
        let nqns: Vec<String> = job.next.subsystems.keys().filter(own).cloned().collect();
        job.steps.extend(nqns.into_iter().map(|nqn| Step::ApplySubsystem { nqn }));
    }
    here.placement.ledger.homes.insert(record.tenant.clone(), shard);
    job.next.vssds.insert(name.to_owned(), record);
    Progress::Done
}
