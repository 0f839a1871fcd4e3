//! Devices that come to the pool, and leave it, while the server runs.
//!
//! Labels say which devices a pool has, and the driver writes them, one after the other. Between two of them either pool may be the one that the next
//! start finds, so what changes meanwhile holds in both of them ([`crate::catalog`]). A device comes in two turns: it is taken, and has all
//! that the others have, before the first label tells of it; and it joined when all labels do. It leaves in two, too: it is to leave, with
//! nothing on it, and is forgotten when no label knows it any more.

use crate::allocation::has_room_for;
use crate::catalog::{has_all_of, refusal};
use crate::control::{ControlError, ControlErrorKind};
use crate::devices::{DeviceIndex, OwnDevice, Standing};
use crate::job::{Job, Progress};
use crate::open_device::open_device;
use crate::opening::name_devices;
use crate::owners::Owners;
use crate::reach::Reaches;
use crate::seat::{Seat, ShardIndex};
use crate::steps::wear::apply_wear;
use diecut_media::Divide;
use diecut_units::{Time, mark, mutant};
use diecut_vssd::DieTimesView;
use uuid::Uuid;

fn refused(kind: ControlErrorKind, message: String) -> Progress {
    Progress::Refused(ControlError { kind, message })
}

fn not_there(device: Uuid) -> Progress {
    refused(
        ControlErrorKind::NotFound,
        format!("there is no device {device}; `diecut device list` shows what there is"),
    )
}

/// Another device comes or leaves.
fn is_turning<M: Divide>(here: &Owners<M>, device: Uuid) -> Option<Progress> {
    let other = here
        .plane
        .flash
        .devices
        .iter()
        .find(|own| own.standing != Standing::There && own.uuid() != device)?;
    let name = &other.config.name;
    let what = match other.standing {
        Standing::Joins => {
            "is joining, and one device comes or leaves at a time: add it again, to its end".to_owned()
        }
        Standing::Drains => format!(
            "is being evacuated, and one device comes or leaves at a time: wait until nothing lies there (`diecut device list`) and take it out \
             (`diecut device remove {name}`), or call that off (`diecut device evacuate {name} --cancel`)"
        ),
        Standing::Leaves | Standing::There => {
            format!(
                "is leaving, and one device comes or leaves at a time: `diecut device remove {name}` goes on with it"
            )
        }
    };
    Some(refused(ControlErrorKind::Busy, format!("device \"{name}\" {what}")))
}

/// Everywhere: a device that was brought is opened; the first shard gives it what all devices of the pool have.
pub(crate) fn take<M: Divide>(here: &mut Owners<M>, device: Uuid, now: Time) -> Progress {
    let is_member = here.placement.is_member();
    let Some(at) = here.plane.flash.devices.find_uuid(device) else {
        if !is_member && let Some(refusal) = is_turning(here, device).or_else(|| cannot_grow(here)) {
            return refusal;
        }
        return match here.newcomers.iter().position(|newcomer| newcomer.uuid() == device) {
            Some(found) => open(here, found, now),
            None if is_member => Progress::Done,
            None => {
                refused(ControlErrorKind::Invalid, format!("device {device} was not brought to the server"))
            }
        };
    };
    if is_member {
        return Progress::Done;
    }
    let own = here.plane.flash.devices.get_mut(at);
    if own.standing == Standing::There {
        return Progress::Done;
    }
    if own.pool.is_state_log_lost() {
        return refused(
            ControlErrorKind::Media,
            "the device does not take block states: it cannot be written to".to_owned(),
        );
    }
    match here.registry.catalog.has_all(at) {
        Err(error) => Progress::Refused(refusal(&error)),
        Ok(has_all) => {
            let is_ready = has_all && own.pool.is_durable() && own.pool.is_checked();
            match is_ready || mutant!("shard: a device joins without what the others have") {
                true => Progress::Done,
                false => Progress::Waits,
            }
        }
    }
}

/// Why a server takes no further device.
fn cannot_grow<M: Divide>(here: &Owners<M>) -> Option<Progress> {
    if here.plane.flash.devices.iter().any(|own| own.uuid().is_nil()) {
        let message = "an emulated device is alone in a server";
        return Some(refused(ControlErrorKind::Invalid, message.to_owned()));
    }
    (here.config.missing_devices > 0).then(|| {
        let message = "devices of the pool are not there, and each has to learn of the new one: start the server with all of them";
        refused(ControlErrorKind::Invalid, message.to_owned())
    })
}

/// A shard's part of a device that was brought.
fn open<M: Divide>(here: &mut Owners<M>, found: usize, now: Time) -> Progress {
    // The catalog goes on from what is written: nothing is being written to it.
    if !here.placement.is_member() && here.registry.is_taken {
        return Progress::Waits;
    }
    let (device, media, config) = here.newcomers.remove(found).unpack::<M>();
    let seat = Seat { index: ShardIndex(here.placement.index.0), shards: here.placement.shards };
    let (mut own, catalog, failure) =
        open_device(media, config, here.config.staging_bytes_per_vssd, seat, now);
    if let Some(failure) = failure {
        return refused(ControlErrorKind::Media, failure);
    }
    DieTimesView::of(&mut own.pool).note_from(here.plane.delays.operation_threshold());
    own.standing = Standing::Joins;
    let kept = if here.placement.ledger.is_single() { Vec::new() } else { own.pool.log_channels() };
    here.placement.ledger.add_device(device, own.media.geometry(), &kept);
    let OwnDevice { pool, media, .. } = &mut own;
    pool.begin_check(media, now);
    pool.begin_migration();
    here.plane.flash.devices.put(device, own);
    apply_wear(here);
    if here.placement.is_member() {
        return Progress::Done;
    }
    mark!("shard: a device comes while the server runs");
    let Owners { registry, plane, placement, .. } = here;
    let mut reaches = Reaches {
        devices: &mut plane.flash.devices,
        owners: &placement.ledger.owners,
        outgoing: &mut placement.outgoing,
        elsewhere: &mut placement.attendance.media,
    };
    match registry.catalog.join(device, catalog, &registry.state, &mut reaches, now) {
        Ok(()) => Progress::Waits,
        Err(error) => Progress::Refused(refusal(&error)),
    }
}

/// All labels tell of a device that was taken: it is one of the pool.
pub(crate) fn join<M: Divide>(here: &mut Owners<M>, device: Uuid, job: &mut Job) -> Progress {
    let Some(at) = here.plane.flash.devices.find_uuid(device) else { return not_there(device) };
    let own = here.plane.flash.devices.get_mut(at);
    if own.standing == Standing::Joins {
        own.standing = Standing::There;
        here.registry.catalog.joined(at);
    }
    // vSSDs of a time when there was one device do not say which they lie on.
    name_devices(here, &mut job.next);
    Progress::Done
}

/// vSSDs that lie on a device, by name; those of which it is not known where they lie, too.
fn lying_on<M: Divide>(here: &Owners<M>, device: Uuid, at: DeviceIndex) -> Vec<String> {
    let is_on = |number: u32| {
        let held = here.placement.ledger.vssds.get(&number);
        held.is_some_and(|held| held.parts.iter().any(|part| part.device == at))
    };
    let lies = |number: u32, parts: &[diecut_catalog::PartRecord]| {
        is_on(number) || parts.iter().any(|part| part.device == device)
    };
    let vssds = here.registry.state.vssds.values();
    vssds.filter(|record| lies(record.number, &record.parts)).map(|record| record.name.clone()).collect()
}

/// A device is to leave: nothing lies on it, nothing more will, and all others have what it has.
pub(crate) fn leave<M: Divide>(here: &mut Owners<M>, device: Uuid) -> Progress {
    let Some(at) = here.plane.flash.devices.find_uuid(device) else { return not_there(device) };
    if let Some(refusal) = is_turning(here, device) {
        return refusal;
    }
    let own = here.plane.flash.devices.get(at);
    let name = own.config.name.clone();
    if own.standing == Standing::Joins {
        return refused(
            ControlErrorKind::Busy,
            format!("device \"{name}\" is joining: add it again, to its end"),
        );
    }
    if here.plane.flash.devices.len() == 1 {
        return refused(ControlErrorKind::InUse, format!("device \"{name}\" is the only one of the server"));
    }
    let lying = lying_on(here, device, at);
    if !lying.is_empty() && !mutant!("shard: a device leaves with what lies on it") {
        let message = format!(
            "vSSD \"{}\" lies on device \"{name}\": evacuate it (`diecut device evacuate`), or delete what lies there, first",
            lying.join("\", \"")
        );
        return refused(ControlErrorKind::InUse, message);
    }
    here.plane.flash.devices.get_mut(at).standing = Standing::Leaves;
    here.registry.catalog.leave(at);
    if mutant!("shard: a device leaves before the others have what it has") {
        return Progress::Done;
    }
    let others = here.plane.flash.devices.numbered().map(|(other, _)| other).filter(|other| *other != at);
    match has_all_of(&here.registry.catalog, others) {
        Ok(true) => Progress::Done,
        Ok(false) => Progress::Waits,
        Err(error) => Progress::Refused(refusal(&error)),
    }
}

/// Everywhere: a device that left, or did not join, is forgotten, once nothing of it is under way.
pub(crate) fn forget<M: Divide>(here: &mut Owners<M>, device: Uuid) -> Progress {
    here.newcomers.retain(|newcomer| newcomer.uuid() != device);
    let Some(at) = here.plane.flash.devices.find_uuid(device) else { return Progress::Done };
    let own = here.plane.flash.devices.get(at);
    if here.placement.is_member() {
        here.plane.flash.devices.take(at);
        return Progress::Done;
    }
    if own.standing == Standing::There {
        let message = format!("device \"{}\" is one of the pool: it leaves first", own.config.name);
        return refused(ControlErrorKind::InUse, message);
    }
    if !here.registry.catalog.is_idle(at) {
        return Progress::Waits;
    }
    mark!("shard: a device goes while the server runs");
    here.registry.catalog.forget(at);
    here.placement.ledger.forget_device(at);
    here.plane.flash.devices.take(at);
    Progress::Done
}

/// What lies on a device is to move to others: there is room, and nothing more is given away on it.
pub(crate) fn drain<M: Divide>(here: &mut Owners<M>, device: Uuid) -> Progress {
    let Some(at) = here.plane.flash.devices.find_uuid(device) else { return not_there(device) };
    if let Some(refusal) = is_turning(here, device) {
        return refusal;
    }
    let own = here.plane.flash.devices.get(at);
    let name = own.config.name.clone();
    match own.standing {
        Standing::Drains | Standing::Leaves => return Progress::Done,
        Standing::Joins => {
            return refused(
                ControlErrorKind::Busy,
                format!("device \"{name}\" is joining: add it again, to its end"),
            );
        }
        Standing::There => {}
    }
    if !here.placement.ledger.is_single() {
        let message = format!(
            "device \"{name}\": vSSDs move between devices on a server with one shard only; start it with server.shards = 1"
        );
        return refused(ControlErrorKind::Invalid, message);
    }
    if here.plane.flash.devices.len() == 1 {
        return refused(ControlErrorKind::InUse, format!("device \"{name}\" is the only one of the server"));
    }
    here.plane.flash.devices.get_mut(at).standing = Standing::Drains;
    let lying = lying_on(here, device, at);
    let records: Vec<_> = lying.iter().map(|name| here.registry.state.vssds[name].clone()).collect();
    if let Some(record) = records.iter().find(|record| record.placement_handles > 0) {
        here.plane.flash.devices.get_mut(at).standing = Standing::There;
        let message = format!(
            "device \"{name}\" cannot be evacuated: vSSD \"{}\" has placement handles, whose reclaim units are of this device",
            record.name
        );
        return refused(ControlErrorKind::Invalid, message);
    }
    if let Err(error) = has_room_for(here, &records) {
        here.plane.flash.devices.get_mut(at).standing = Standing::There;
        let message =
            format!("device \"{name}\" cannot be evacuated, the others lack room: {}", error.message);
        return refused(error.kind, message);
    }
    Progress::Done
}

/// What still lies on a device stays there.
pub(crate) fn stay<M: Divide>(here: &mut Owners<M>, device: Uuid) -> Progress {
    let Some(at) = here.plane.flash.devices.find_uuid(device) else { return not_there(device) };
    let own = here.plane.flash.devices.get_mut(at);
    if own.standing == Standing::Drains {
        own.standing = Standing::There;
    }
    Progress::Done
}
