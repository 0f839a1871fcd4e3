//! Takes drives out of a pool of drives that no server serves: those that are gone for good, and those on which nothing lies.

use crate::drive::Held;
use crate::error::ServeError;
use crate::format::{Lying, carried, named, start_and_stop};
use diecut_devices::{Label, LabelDevice, Membership, PoolOpening, open_pool};
use diecut_shard::ShardConfig;
use std::path::PathBuf;
use uuid::Uuid;

/// A drive that leaves its pool.
#[derive(Clone, Debug)]
pub enum Leaver {
    /// It is there.
    Path(PathBuf),
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
pub fn remove(leavers: &[Leaver], from: &[PathBuf], force: bool) -> Result<Removed, ServeError> {
    let mut held =
        from.iter().map(|path| Held::take_path(path)).collect::<Result<Vec<Held>, ServeError>>()?;
    let mut leaving = Vec::new();
    for leaver in leavers {
        if let Leaver::Path(path) = leaver {
            if from.contains(path) {
                return Err(named(path, &"it is named as one that stays (--from), too"));
            }
            leaving.push(Held::take_path(path)?);
        }
    }
    let opening = open(&held, &leaving, force)?;
    let gone = leavers.iter().filter_map(|leaver| match leaver {
        Leaver::Path(_) => None,
        Leaver::Device(device) => Some(*device),
    });
    let devices: Vec<Uuid> = leaving.iter().map(Held::device).chain(gone).collect();
    check(&opening, &held, &devices)?;
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
        for one in list.iter_mut().filter(|one| one.device == *device.as_bytes()) {
            *one = LabelDevice { membership: Membership::Removed, ..*one };
        }
        held.iter_mut().try_for_each(|one| one.list_devices(&list))?;
    }
    for one in &leaving {
        one.local.clear().map_err(|error| named(one.local.path(), &error))?;
    }
    Ok(Removed { devices, lost })
}

fn open(held: &[Held], leaving: &[Held], force: bool) -> Result<PoolOpening, ServeError> {
    let all = || held.iter().chain(leaving);
    let first = &held[0];
    if let Some(other) = all().find(|one| one.label.server != first.label.server) {
        return Err(ServeError::Setup(format!(
            "{} and {} belong to different pools: name the drives of one",
            first.local.path().display(),
            other.local.path().display()
        )));
    }
    let labels: Vec<Label> = all().map(|one| one.label.clone()).collect();
    let opening = open_pool(&labels, force).map_err(|error| ServeError::Setup(error.to_string()))?;
    let outdated = opening.stale.iter().chain(&opening.strangers).next();
    match outdated.and_then(|at| all().nth(*at)) {
        None => Ok(opening),
        Some(one) => {
            Err(named(one.local.path(), &"it is not of the pool as the others have it: leave it out"))
        }
    }
}

/// Those that leave are of the pool, and all others of it are those that stay.
fn check(opening: &PoolOpening, held: &[Held], devices: &[Uuid]) -> Result<(), ServeError> {
    if let Some(other) = devices.iter().find(|device| opening.membership(*device.as_bytes()).is_none()) {
        let known: Vec<String> =
            opening.devices.iter().map(|one| Uuid::from_bytes(one.device).to_string()).collect();
        return Err(ServeError::Setup(format!(
            "the pool has no device {other}; its devices are {}",
            known.join(", ")
        )));
    }
    let is_named = |device: &Uuid| devices.contains(device) || held.iter().any(|one| one.device() == *device);
    let missing = opening.missing.iter().map(|device| Uuid::from_bytes(*device));
    let others: Vec<String> =
        missing.filter(|device| !is_named(device)).map(|device| device.to_string()).collect();
    if others.is_empty() {
        return Ok(());
    }
    Err(ServeError::Setup(format!(
        "the pool has more devices than were named: {}; name those that stay with --from, all of them, and what is gone for good as one \
         that leaves",
        others.join(", ")
    )))
}

/// Starts a server on the drives and stops it; the vSSDs that there are.
fn start(held: &[Held], leaving: &[Held], config: ShardConfig) -> Result<Vec<Lying>, String> {
    let drives = held.iter().chain(leaving).map(carried).collect::<Result<Vec<_>, String>>()?;
    start_and_stop(drives, config)
}
