//! Takes drives out of a pool of drives that no server serves: those that are gone for good, and those on which nothing lies.

use crate::carrier::{Lying, carried, start_and_stop};
use crate::error::ServeError;
use crate::format::named;
use crate::held::Held;
use crate::remote_host::RemoteHost;
use crate::whole::{Change, whole_pool};
use diecut_api::place::Place;
use diecut_devices::{Membership, list_without};
use diecut_shard::ShardConfig;
use uuid::Uuid;

/// A drive that leaves its pool.
#[derive(Clone, Debug)]
pub enum Leaver {
    /// It is there.
    Place(Place),
    /// It is gone, or nobody looks for it.
    Device(Uuid),
}

/// What came of it.
#[derive(Debug)]
pub struct Removed {
    /// Devices that were taken out.
    pub devices: Vec<Uuid>,
    /// vSSDs that are lost with them.
    pub lost: Vec<String>,
}

/// Takes drives out of the pool that all of `from` are, and which has no other ones. What was cut short goes on where it was. With `force` also
/// where vSSDs lie on them, which are lost then, and where the others are not more than half of the pool.
///
/// # Errors
/// Names the drive and what speaks against it. Before anything is written, unless a drive itself fails.
pub fn remove(leavers: &[Leaver], from: &[Place], force: bool) -> Result<Removed, ServeError> {
    let host = RemoteHost::new()?;
    let held = from.iter().map(|place| Held::take(place, &host));
    let mut held = held.collect::<Result<Vec<Held>, ServeError>>()?;
    let mut leaving = Vec::new();
    for leaver in leavers {
        if let Leaver::Place(place) = leaver {
            if from.iter().any(|one| one.to_string() == place.to_string()) {
                return Err(named(place, &"it is named as one that stays (--from), too"));
            }
            leaving.push(Held::take(place, &host)?);
        }
    }
    let gone = leavers.iter().filter_map(|leaver| match leaver {
        Leaver::Place(_) => None,
        Leaver::Device(device) => Some(*device),
    });
    let devices: Vec<Uuid> = leaving.iter().map(Held::device).chain(gone).collect();
    let opening = whole_pool(held.iter().chain(&leaving), &Change::Leave(&devices, force))?;
    let left = |device: &Uuid| opening.membership(*device.as_bytes()) == Some(Membership::Removed);
    let removed = |devices: &[Uuid]| devices.iter().map(|device| *device.as_bytes()).collect::<Vec<_>>();
    let lost: Vec<String> = if devices.iter().all(left) {
        Vec::new()
    } else {
        // All that stay have what any of them knows, before one has no voice that may know more.
        let absent = devices.len() - leaving.len();
        let config = ShardConfig {
            missing_devices: if force { 0 } else { absent as u16 },
            removed_devices: [opening.removed(), removed(&devices)].concat(),
            ..ShardConfig::default()
        };
        let lying = start(&held, &leaving, config).map_err(ServeError::Setup)?;
        let is_lost = |one: &Lying| one.devices.iter().any(|device| devices.contains(device));
        lying.into_iter().filter(is_lost).map(|one| one.vssd).collect()
    };
    if !lost.is_empty() && !force {
        return Err(ServeError::Setup(format!(
            "vSSD \"{}\" would be lost: delete what lies there first, or give it up with --force",
            lost.join("\", \"")
        )));
    }
    // R13: one after the other, and each on all that stay.
    let mut list = opening.devices.clone();
    for device in &devices {
        list = list_without(&list, *device.as_bytes());
        held.iter_mut().try_for_each(|one| one.list_devices(&list))?;
    }
    for one in &leaving {
        one.drive.clear().map_err(|error| named(one.place(), &error))?;
    }
    Ok(Removed { devices, lost })
}

/// Starts a server on the drives and stops it; the vSSDs that there are.
fn start(held: &[Held], leaving: &[Held], config: ShardConfig) -> Result<Vec<Lying>, String> {
    let drives = held.iter().chain(leaving).map(carried).collect::<Result<Vec<_>, String>>()?;
    start_and_stop(drives, config)
}
