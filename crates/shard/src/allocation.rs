//! Where a new vSSD lives, and how it is made there.

use crate::control::{ControlError, ControlErrorKind};
use crate::custody::{forget_vssd, take_back};
use crate::devices::{DeviceIndex, OwnDevice};
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
use diecut_vssd::{AllocError, Places, VssdId};

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

/// Where a new vSSD is to lie, and to live.
struct Chosen {
    shard: u16,
    device: DeviceIndex,
    places: Places,
}

/// Refuses a vSSD that shall lie on a device which there is not.
fn refuse_other_device<'a>(
    name: &str,
    record: &VssdRecord,
    mut devices: impl Iterator<Item = &'a str> + Clone,
) -> Result<(), ControlError> {
    let Some(wanted) = &record.device else { return Ok(()) };
    if devices.clone().any(|device| device == wanted) {
        return Ok(());
    }
    let first = devices.next().unwrap_or_default();
    let names = devices.fold(format!("\"{first}\""), |names, one| format!("{names}, \"{one}\""));
    let message = format!("vSSD \"{name}\": there is no device \"{wanted}\"; there is {names}");
    Err(ControlError { kind: ControlErrorKind::Invalid, message })
}

/// The only shard's: the device that a vSSD fits on, and its place there. Of those that may be, the one of which least was given away.
fn choose_device<M: Divide>(
    here: &Owners<M>,
    name: &str,
    record: &VssdRecord,
) -> Result<Chosen, ControlError> {
    let devices = &here.plane.flash.devices;
    refuse_other_device(name, record, devices.iter().map(|own| own.config.name.as_str()))?;
    let is_wanted =
        |own: &OwnDevice<M>| record.device.as_ref().is_none_or(|wanted| *wanted == own.config.name);
    let mut order: Vec<(DeviceIndex, &OwnDevice<M>)> =
        devices.numbered().filter(|(_, own)| is_wanted(own)).collect();
    // In thousandths, so that devices may be of any size.
    order.sort_by_key(|(device, own)| {
        let geometry = own.media.geometry();
        let all = u64::from(geometry.dies()) * u64::from(geometry.erase_blocks_per_die());
        here.placement.ledger.blocks_on(*device) * 1000 / all.max(1)
    });
    let mut refusal = None;
    for (device, own) in order {
        let (isolation, level, bytes) = (record.isolation, record.throughput_level, record.capacity.bytes());
        match own.pool.choose_places(isolation, level, bytes, |_| true) {
            Ok(places) => return Ok(Chosen { shard: 0, device, places }),
            Err(error) => refusal = refusal.or(Some(error)),
        }
    }
    Err(alloc_refused(name, &refusal.expect("I-S37: a server has a device")))
}

/// The shard that a vSSD fits on, and its place there: the least loaded shard on whose channels, and on those that nobody uses, there is
/// room; the home of its tenant if that has one.
fn choose<M: Divide>(here: &Owners<M>, name: &str, record: &VssdRecord) -> Result<Chosen, ControlError> {
    if here.placement.ledger.is_single() {
        return choose_device(here, name, record);
    }
    let has_vssd = here.registry.state.vssds.values().any(|vssd| vssd.tenant == record.tenant);
    let ledger = &here.placement.ledger;
    let homes = if has_vssd { vec![ledger.home_of(&record.tenant)] } else { ledger.by_load() };
    let own = here.plane.flash.devices.divided();
    refuse_other_device(name, record, [own.config.name.as_str()].into_iter())?;
    let pool = &own.pool;
    let places = |can: &dyn Fn(u16) -> bool| {
        pool.choose_places(record.isolation, record.throughput_level, record.capacity.bytes(), can)
    };
    for shard in homes {
        let can = |channel: u16| {
            let owner = ledger.owners[usize::from(channel)];
            owner == shard || owner == 0 && pool.is_free_channel(channel)
        };
        if let Ok(places) = places(&can) {
            return Ok(Chosen { shard, device: DeviceIndex::default(), places });
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
    (device, places): (DeviceIndex, &Places),
) -> Result<(Option<u32>, u32), ControlError> {
    if record.serves == Serves::Blocks {
        return Ok((None, 1));
    }
    let own = here.plane.flash.devices.get(device);
    let geometry = own.media.geometry();
    // Those that share channels are many, and none has more of a channel than its dies.
    let is_alone = record.isolation == Isolation::Channel;
    let channels = if is_alone { places.channels(geometry).len() as u32 } else { 1 };
    let held = &here.placement.ledger.vssds;
    let is_there = |record: &&VssdRecord| held.get(&record.number).is_some_and(|held| held.device == device);
    let there = here.registry.state.vssds.values().filter(is_there);
    let slots = there.map(|record| (record.staging_slot, record.staging_slot_count));
    own.staging.free_slots(name, (channels, geometry.channels), slots)
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
    let Chosen { shard, device, places } = choose(here, name, &record)?;
    let (staging_slot, staging_slot_count) = staging_slots(here, name, &record, (device, &places))?;
    let mut record = VssdRecord { staging_slot, staging_slot_count, ..record };
    let id = new_id(here).map_err(|error| alloc_refused(name, &error))?;
    let own = here.plane.flash.devices.get(device);
    if here.plane.flash.devices.len() > 1 {
        // So that the device is known by name while it is away.
        record.spec.device = Some(own.config.name.clone());
    }
    let geometry = *own.media.geometry();
    let blocks = own.pool.blocks_of(&places);
    let owners = &here.placement.ledger.owners;
    let fresh = places.channels(&geometry).into_iter();
    let fresh: Vec<u16> = fresh.filter(|&channel| owners[usize::from(channel)] != shard).collect();
    here.placement.ledger.add(id, Held { shard, device, places: places.clone(), blocks }, &geometry);
    if shard == 0 {
        let made = vssds::make_vssd(here, name, (device, id), record.isolation, &places, record, now);
        return made.map(Some).inspect_err(|_| {
            here.placement.ledger.vssds.remove(&id.0);
        });
    }
    order(here, name, id, (shard, places), record, fresh, job);
    Ok(None)
}

/// A number that no vSSD of any device has, or had.
fn new_id<M: Divide>(here: &mut Owners<M>) -> Result<VssdId, AllocError> {
    // Those of devices that are not there, too.
    let known = here.registry.state.vssds.values().map(|vssd| vssd.number + 1).max();
    let mut id = VssdId(known.unwrap_or_default());
    for own in here.plane.flash.devices.iter_mut() {
        id = id.max(own.pool.new_vssd_id()?);
    }
    here.plane.flash.devices.iter_mut().for_each(|own| own.pool.gave_id(id));
    Ok(id)
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
    let own = here.plane.flash.devices.divided_mut();
    let mut part = own.pool.detach(&fresh);
    own.pool.lend_slot(&mut part);
    own.pool.reserve(id, &places);
    let moved = Moved::new(fresh, part, &mut own.media);
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
