//! Where a new vSSD lives, and how it is made there.

use crate::control::{ControlError, ControlErrorKind};
use crate::custody::{self, forget_vssd, take_back};
use crate::devices::{DeviceIndex, OwnDevice, Standing};
use crate::job::{Job, Progress};
use crate::lanes::{Lane, channels_on};
use crate::ledger::{Held, HeldPart};
use crate::owners::Owners;
use crate::peer::{Alloc, Answer, Order};
use crate::plan::alloc_refused;
use crate::step::Step;
use crate::steps::vssds;
use diecut_catalog::{PartRecord, VssdRecord};
use diecut_media::Divide;
use diecut_spec::{Isolation, Serves};
use diecut_units::{Time, mark};
use diecut_vssd::{AllocError, Pool, VssdId};

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
    /// In the order in which their units take turns.
    parts: Vec<HeldPart>,
}

fn invalid<T>(name: &str, what: &str) -> Result<T, ControlError> {
    let message = format!("vSSD \"{name}\": {what}");
    Err(ControlError { kind: ControlErrorKind::Invalid, message })
}

/// Refuses a vSSD that shall lie on a device which there is not, or on more than there are.
fn refuse_other_device<'a>(
    name: &str,
    record: &VssdRecord,
    devices: impl Iterator<Item = &'a str> + Clone,
) -> Result<(), ControlError> {
    let is_there = |wanted: &&String| devices.clone().any(|device| device == **wanted);
    let all = || {
        let mut names = devices.clone().map(|device| format!("\"{device}\""));
        let first = names.next().unwrap_or_default();
        names.fold(first, |names, one| format!("{names}, {one}"))
    };
    if let Some(wanted) = record.device.iter().find(|wanted| !is_there(wanted)) {
        return invalid(name, &format!("there is no device \"{wanted}\"; there is {}", all()));
    }
    let (parts, count) = (record.part_count(), devices.clone().count());
    if parts > count {
        return invalid(
            name,
            &format!("{parts} parts lie on {parts} devices, and there are {count}: {}", all()),
        );
    }
    Ok(())
}

/// Devices that a vSSD may lie on, the ones of which least was given away first; those that it names, in their order.
fn candidates<M: Divide>(
    here: &Owners<M>,
    name: &str,
    record: &VssdRecord,
) -> Result<Vec<DeviceIndex>, ControlError> {
    let devices = &here.plane.flash.devices;
    let there = devices.iter().filter(|own| own.standing == Standing::There);
    refuse_other_device(name, record, there.map(|own| own.config.name.as_str()))?;
    let is_wanted = |own: &OwnDevice<M>| record.device.contains(&own.config.name);
    if let Some(away) = devices.iter().find(|own| own.is_away && is_wanted(own)) {
        let what = format!("device \"{}\" does not answer; ask again when it does", away.config.name);
        return Err(ControlError {
            kind: ControlErrorKind::Media,
            message: format!("vSSD \"{name}\": {what}"),
        });
    }
    let mut order: Vec<(DeviceIndex, &OwnDevice<M>)> =
        devices.numbered().filter(|(_, own)| own.takes_vssds()).collect();
    if record.device.is_empty() {
        // In thousandths, so that devices may be of any size.
        order.sort_by_key(|(device, own)| {
            let geometry = own.media.geometry();
            let all = u64::from(geometry.dies()) * u64::from(geometry.erase_blocks_per_die());
            here.placement.ledger.blocks_on(*device) * 1000 / all.max(1)
        });
    } else {
        let turn = |own: &OwnDevice<M>| record.device.iter().position(|wanted| *wanted == own.config.name);
        order.retain(|(_, own)| turn(own).is_some());
        order.sort_by_key(|(_, own)| turn(own));
    }
    Ok(order.into_iter().map(|(device, _)| device).collect())
}

/// The devices that a vSSD fits on, of these the first, and its places there, on lanes that it may have.
fn choose_devices<M: Divide>(
    here: &Owners<M>,
    name: &str,
    record: &VssdRecord,
    order: &[DeviceIndex],
    can: impl Fn(Lane) -> bool,
) -> Result<Vec<HeldPart>, ControlError> {
    let devices = &here.plane.flash.devices;
    let count = record.part_count();
    let bytes = record.capacity.bytes().div_ceil(count as u64);
    let (mut fitting, mut refusal) = (Vec::new(), None);
    for &device in order {
        let own = devices.get(device);
        let allowed = |channel| can(Lane { device, channel });
        match own.pool.choose_places(record.isolation, record.throughput_level, bytes, allowed) {
            Ok(places) => {
                let blocks = own.pool.blocks_of(&places);
                fitting.push((own.pool.shape(), HeldPart { device, places, blocks }));
            }
            Err(error) => refusal = refusal.or(Some((own, error))),
        }
    }
    // Erase blocks of a segment are alike, so those of all parts are.
    let alike = |shape| fitting.iter().filter(move |(other, _)| other.is_like(shape)).map(|(_, part)| part);
    let found = fitting.iter().map(|(shape, _)| alike(shape)).find(|parts| parts.clone().count() >= count);
    if let Some(parts) = found {
        return Ok(parts.take(count).cloned().collect());
    }
    match refusal {
        Some((_, error)) if count == 1 => Err(alloc_refused(name, &error)),
        Some((own, error)) => {
            let mut refused = alloc_refused(name, &error);
            refused.message += &format!(" (of its part on device \"{}\")", own.config.name);
            Err(refused)
        }
        None if devices.iter().filter(|own| own.takes_vssds()).count() < count => invalid(
            name,
            &format!("{count} parts lie on {count} devices, and fewer answer; ask again when more do"),
        ),
        None => {
            let sizes = fitting.iter().map(|(shape, part)| {
                let bytes = u64::from(shape.pages) * u64::from(shape.page_size_bytes);
                format!("\"{}\" {bytes} bytes", devices.get(part.device).config.name)
            });
            let sizes: Vec<String> = sizes.collect();
            let sizes = sizes.join(", ");
            invalid(
                name,
                &format!(
                    "erase blocks of its parts must be of one size, and hold: {sizes}; name devices whose erase blocks are alike"
                ),
            )
        }
    }
}

/// The shard that a vSSD fits on, and its places there: the least loaded shard on whose lanes, and on those that nobody uses, there is
/// room; the home of its tenant if that has one.
fn choose<M: Divide>(here: &Owners<M>, name: &str, record: &VssdRecord) -> Result<Chosen, ControlError> {
    let order = candidates(here, name, record)?;
    let has_vssd = here.registry.state.vssds.values().any(|vssd| vssd.tenant == record.tenant);
    let ledger = &here.placement.ledger;
    let homes = if has_vssd { vec![ledger.home_of(&record.tenant)] } else { ledger.by_load() };
    for shard in homes {
        let can = |lane: Lane| {
            let pool = &here.plane.flash.devices.get(lane.device).pool;
            let owner = ledger.owners.of(lane);
            let stays = shard != 0 && ledger.kept.contains(&lane);
            owner == shard || owner == 0 && !stays && pool.is_free_channel(lane.channel)
        };
        if let Ok(parts) = choose_devices(here, name, record, &order, can) {
            return Ok(Chosen { shard, parts });
        }
    }
    choose_devices(here, name, record, &order, |_| true)?;
    Err(ControlError {
        kind: ControlErrorKind::Exhausted,
        message: format!(
            "vSSD \"{name}\": what is free lies on channels of several shards{}; start the server with fewer shards, ask for \
             less, or for whole channels",
            if has_vssd { ", and its tenant lives on one of them" } else { "" }
        ),
    })
}

/// Slots of protected memory for a vSSD on these places.
fn staging_slots<M: Divide>(
    here: &Owners<M>,
    name: &str,
    record: &VssdRecord,
    HeldPart { device, places, .. }: &HeldPart,
) -> Result<(Option<u32>, u32), ControlError> {
    if record.serves == Serves::Blocks {
        return Ok((None, 1));
    }
    let own = here.plane.flash.devices.get(*device);
    let geometry = own.media.geometry();
    // Those that share channels are many, and none has more of a channel than its dies.
    let is_alone = record.isolation == Isolation::Channel;
    let channels = if is_alone { places.channels(geometry).len() as u32 } else { 1 };
    let held = &here.placement.ledger.vssds;
    let is_there =
        |record: &&VssdRecord| held.get(&record.number).is_some_and(|held| held.parts[0].device == *device);
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
    let Chosen { shard, parts } = choose(here, name, &record)?;
    let (staging_slot, staging_slot_count) = staging_slots(here, name, &record, &parts[0])?;
    let mut record = VssdRecord { staging_slot, staging_slot_count, ..record };
    let id = new_id(here).map_err(|error| alloc_refused(name, &error))?;
    let devices = &here.plane.flash.devices;
    if devices.indexes() > 1 {
        // So that the devices are known by name while they are away.
        let named = parts.iter().map(|part| devices.get(part.device).config.name.clone());
        record.spec.device = named.collect();
        let listed = parts.iter().map(|part| PartRecord { device: devices.get(part.device).uuid() });
        record.parts = listed.collect();
    }
    let held = Held { shard, parts };
    let ledger = &mut here.placement.ledger;
    let fresh: Vec<Lane> = match shard {
        0 => Vec::new(),
        _ => ledger.lanes_of(&held).into_iter().filter(|lane| ledger.owners.of(*lane) != shard).collect(),
    };
    ledger.add(id, held.clone());
    if shard == 0 {
        let made = vssds::make_vssd(here, name, id, &held.parts, record, now);
        return made.map(Some).inspect_err(|_| {
            here.placement.ledger.vssds.remove(&id.0);
        });
    }
    order(here, name, id, held, record, &fresh, job);
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

/// Has a vSSD made on another shard, with lanes that nobody uses.
fn order<M: Divide>(
    here: &mut Owners<M>,
    name: &str,
    id: VssdId,
    Held { shard, parts }: Held,
    record: VssdRecord,
    fresh: &[Lane],
    job: &mut Job,
) {
    let channels = parts.iter().map(|part| (part.device, channels_on(fresh, part.device)));
    let moved = custody::take_out_with(here, channels.collect(), Pool::lend_slot);
    for HeldPart { device, places, .. } in &parts {
        here.plane.flash.devices.get_mut(*device).pool.reserve(id, places);
    }
    let alloc = Alloc { name: name.to_owned(), id, parts, record, moved };
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

/// Whether there is room for vSSDs where the server may choose anew where they lie, for all of them together.
pub(crate) fn has_room_for<M: Divide>(
    here: &mut Owners<M>,
    records: &[VssdRecord],
) -> Result<(), ControlError> {
    let (mut taken, mut outcome) = (Vec::new(), Ok(()));
    for (at, record) in (0..).zip(records) {
        match choose(here, &record.name, &record.elsewhere()) {
            Ok(Chosen { parts, .. }) => {
                for HeldPart { device, places, .. } in parts {
                    here.plane.flash.devices.get_mut(device).pool.reserve(VssdId(u32::MAX - at), &places);
                    taken.push((device, places));
                }
            }
            Err(error) => {
                outcome = Err(error);
                break;
            }
        }
    }
    for (device, places) in taken {
        here.plane.flash.devices.get_mut(device).pool.release(&places);
    }
    outcome
}
