//! Where a new vSSD lives, and how it is made there.

use crate::control::{ControlError, ControlErrorKind};
use crate::custody::{forget_vssd, take_back};
use crate::job::{Job, Progress};
use crate::ledger::Held;
use crate::owners::Owners;
use crate::peer::{Alloc, Answer, Moved, Order};
use crate::plan::alloc_refused;
use crate::step::Step;
use crate::steps::vssds;
use diecut_catalog::VssdRecord;
use diecut_media::Divide;
use diecut_spec::{Isolation, Serves};
use diecut_units::{Time, mark};
use diecut_vssd::{Places, VssdId};

/// Makes a vSSD on the home of its tenant; the first one chooses the home.
pub(crate) fn alloc_somewhere<M: Divide>(
    here: &mut Owners<M>,
    name: &str,
    job: &mut Job,
    now: Time,
) -> Progress {
    if let Some(&number) = job.awaited().first() {
        let Some(answer) = here.placement.take_answer(number) else { return Progress::Waits };
        job.retain_awaited(|awaited| *awaited != number);
        return allocated(here, name, answer, job);
    }
    match begin(here, name, job, now) {
        Ok(Some(record)) => made(here, name, record, job),
        Ok(None) => Progress::Waits,
        Err(error) => Progress::Refused(error),
    }
}

/// The shard that a vSSD fits on, and its place there: the least loaded shard on whose channels, and on those that nobody uses, there is
/// room; the home of its tenant if that has one.
fn choose<M: Divide>(
    here: &Owners<M>,
    name: &str,
    record: &VssdRecord,
) -> Result<(u16, Places), ControlError> {
    let has_vssd = here.registry.state.vssds.values().any(|vssd| vssd.tenant == record.tenant);
    let ledger = &here.placement.ledger;
    let homes = if has_vssd { vec![ledger.home_of(&record.tenant)] } else { ledger.by_load() };
    let pool = &here.plane.flash.pool;
    let places = |can: &dyn Fn(u16) -> bool| {
        pool.choose_places(record.isolation, record.throughput_level, record.capacity.bytes(), can)
    };
    for shard in homes {
        let can = |channel: u16| {
            let owner = ledger.owners[usize::from(channel)];
            owner == shard || owner == 0 && pool.is_free_channel(channel)
        };
        if let Ok(places) = places(&can) {
            return Ok((shard, places));
        }
    }
    Err(match places(&|_| true) {
        Err(error) => alloc_refused(name, &error),
        Ok(_) => ControlError {
            kind: ControlErrorKind::Exhausted,
            message: format!(
                "vSSD \"{name}\": what is free lies on channels of several shards{}; start the server with fewer shards, ask for \
                 less, or for whole channels",
                if has_vssd { ", and its tenant lives on one of them" } else { "" }
            ),
        },
    })
}

/// Slots of protected memory for a vSSD on these places.
fn staging_slots<M: Divide>(
    here: &Owners<M>,
    name: &str,
    record: &VssdRecord,
    places: &Places,
) -> Result<(Option<u32>, u32), ControlError> {
    if record.serves == Serves::Blocks {
        return Ok((None, 1));
    }
    let geometry = here.plane.flash.media.geometry();
    // Those that share channels are many, and none has more of a channel than its dies.
    let is_alone = record.isolation == Isolation::Channel;
    let channels = if is_alone { places.channels(geometry).len() as u32 } else { 1 };
    here.registry.free_staging_slots(name, channels, geometry.channels)
}

/// Takes a place for a vSSD and makes it there, or has it made: `None`.
fn begin<M: Divide>(
    here: &mut Owners<M>,
    name: &str,
    job: &mut Job,
    now: Time,
) -> Result<Option<VssdRecord>, ControlError> {
    let record = job.next.vssds[name].clone();
    if here.placement.attendance.lacks_any() {
        let message = format!("vSSD \"{name}\": a shard failed an inner check, and recovers; ask again");
        return Err(ControlError { kind: ControlErrorKind::Busy, message });
    }
    let (shard, places) = choose(here, name, &record)?;
    let (staging_slot, staging_slot_count) = staging_slots(here, name, &record, &places)?;
    let record = VssdRecord { staging_slot, staging_slot_count, ..record };
    let id = here.plane.flash.pool.new_vssd_id().map_err(|error| alloc_refused(name, &error))?;
    let geometry = *here.plane.flash.media.geometry();
    let blocks = here.plane.flash.pool.blocks_of(&places);
    let owners = &here.placement.ledger.owners;
    let fresh = places.channels(&geometry).into_iter();
    let fresh: Vec<u16> = fresh.filter(|&channel| owners[usize::from(channel)] != shard).collect();
    here.placement.ledger.add(id, Held { shard, places: places.clone(), blocks }, &geometry);
    if shard == 0 {
        let made = vssds::make_vssd(here, name, id, record.isolation, &places, record, now);
        return made.map(Some).inspect_err(|_| {
            here.placement.ledger.vssds.remove(&id.0);
        });
    }
    order(here, name, id, (shard, places), record, fresh, job);
    Ok(None)
}

/// Has a vSSD made on another shard, with channels that nobody uses.
fn order<M: Divide>(
    here: &mut Owners<M>,
    name: &str,
    id: VssdId,
    (shard, places): (u16, Places),
    record: VssdRecord,
    fresh: Vec<u16>,
    job: &mut Job,
) {
    let mut part = here.plane.flash.pool.detach(&fresh);
    here.plane.flash.pool.lend_slot(&mut part);
    here.plane.flash.pool.reserve(id, &places);
    let moved = Moved::new(fresh, part, &mut here.plane.flash.media);
    let isolation = record.isolation;
    let alloc = Alloc { name: name.to_owned(), id, isolation, places, record, moved };
    let number = here.placement.order(shard, Order::Alloc(Box::new(alloc)));
    job.begin(false, vec![number]);
}

fn allocated<M: Divide>(here: &mut Owners<M>, name: &str, answer: Answer, job: &mut Job) -> Progress {
    match answer {
        Answer::Made(record) => {
            mark!("shard: vSSD made by another shard");
            made(here, name, *record, job)
        }
        Answer::NotMade { number, error, returned } => {
            forget_vssd(here, number);
            take_back(here, returned);
            Progress::Refused(error)
        }
        _ => unreachable!("I-S14: an order to make a vSSD is answered with what became of it"),
    }
}

/// A vSSD is there. Its tenant's subsystems, which can show nothing yet, follow it home.
fn made<M: Divide>(here: &mut Owners<M>, name: &str, record: VssdRecord, job: &mut Job) -> Progress {
    let mut existing = here.registry.state.vssds.values();
    assert!(existing.all(|other| other.number != record.number), "I-S24: a vSSD's number is given once");
    let held = here.placement.ledger.vssds.get(&record.number);
    let shard = held.expect("I-S20: a vSSD that was made lies somewhere").shard;
    if here.placement.ledger.home_of(&record.tenant) != shard {
        let own = |one: &&String| job.next.subsystems[*one].tenant == record.tenant;
        let nqns: Vec<String> = job.next.subsystems.keys().filter(own).cloned().collect();
        job.steps.extend(nqns.into_iter().map(|nqn| Step::ApplySubsystem { nqn }));
    }
    here.placement.ledger.homes.insert(record.tenant.clone(), shard);
    job.next.vssds.insert(name.to_owned(), record);
    Progress::Done
}
