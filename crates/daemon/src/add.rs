//! Adds a drive to a pool of drives that no server serves: it gets what all of them have, the catalog, and then a voice.

use crate::drive::{Held, has_volatile_cache, medium, system_area};
use crate::error::ServeError;
use crate::format::{
    Chosen, FormatOptions, Formatted, carried, checked, choose, named, new_pool, ring_on, start_and_stop,
};
use diecut_devices::{DEVICES_MAX, Label, LabelDevice, Membership, PoolOpening, open_pool};
use diecut_shard::{PoolConfig, ShardConfig};
use std::path::{Path, PathBuf};
use uuid::Uuid;

/// Adds a drive to the pool that all of `to` are. What was cut short goes on where it was.
///
/// # Errors
/// Names the drive and what speaks against it. Before anything is written, unless a drive itself fails.
pub fn add(path: &Path, to: &[PathBuf], options: FormatOptions) -> Result<Formatted, ServeError> {
    let mut held = to.iter().map(|path| Held::take_path(path)).collect::<Result<Vec<Held>, ServeError>>()?;
    // What cannot be taken is no drive of this pool, and is looked at again.
    let before = Held::take_path(path).ok().filter(|one| one.label.server == held[0].label.server);
    let opening = whole_pool(&held, before.as_ref().map(|one| one.label.device))?;
    // Labels of the pool say that it is there: an earlier call was cut short at its end.
    let is_there = |one: &Held| opening.membership(one.label.device).is_some_and(Membership::has_voice);
    if let Some(joined) = before.filter(is_there) {
        let formatted = Formatted {
            path: path.to_owned(),
            device: joined.device(),
            pool: Uuid::from_bytes(joined.label.server),
            shape: joined.label.shape,
        };
        return finish(Joined { held: joined, formatted }, held, &opening.devices);
    }
    let mut chosen = choose(path, options)?;
    let first = &held[0].label;
    if options.block_size_bytes.is_none() {
        // If it can, it has erase blocks of the size that others have: a vSSD can have parts on drives whose are alike.
        let alike = chosen.local.shape(options.lanes, Some(first.shape.block_size_bytes));
        chosen.shape = checked(path, alike).unwrap_or(chosen.shape);
    }
    // One that began to join and did not come to its end is forgotten.
    let members = opening.devices.iter().filter(|one| one.membership != Membership::Joining).copied();
    let member = |membership| LabelDevice { device: chosen.device, membership, since: opening.view.epoch };
    let listed = |membership| members.clone().chain([member(membership)]).collect::<Vec<LabelDevice>>();
    let joining = listed(Membership::Joining);
    if joining.len() > DEVICES_MAX {
        return Err(named(
            path,
            &format!("the pool has {DEVICES_MAX} devices already, and no pool has more"),
        ));
    }
    let label = Label {
        number: 1,
        device: chosen.device,
        shape: chosen.shape,
        system: system_area(&PoolConfig::suited_to(&chosen.shape.geometry())),
        devices: joining.clone(),
        ..first.clone()
    };
    if !is_left_over(&chosen, first.server) {
        chosen.local.check_format(&label, options.force).map_err(|error| named(path, &error))?;
    }
    chosen.local.clear().map_err(|error| named(path, &error))?;
    fill(&chosen, &label, &held).map_err(|error| named(path, &error))?;
    // R13: all say that it joins, its own label first; then that it is there, its own last.
    chosen.local.give_label(&label).map_err(|error| named(path, &error))?;
    for one in &mut held {
        one.list_devices(&joining)?;
    }
    let Chosen { local, mut new, shape, device, .. } = chosen;
    drop(local);
    new.keep();
    let formatted = Formatted {
        path: path.to_owned(),
        device: Uuid::from_bytes(device),
        pool: Uuid::from_bytes(label.server),
        shape,
    };
    let joined = Held::take_path(path)?;
    finish(Joined { held: joined, formatted }, held, &listed(Membership::There))
}

/// A drive that all labels of its pool know.
struct Joined {
    held: Held,
    formatted: Formatted,
}

/// Gives it a voice.
fn finish(mut joined: Joined, held: Vec<Held>, devices: &[LabelDevice]) -> Result<Formatted, ServeError> {
    for mut one in held {
        one.list_devices(devices)?;
    }
    joined.held.list_devices(devices)?;
    Ok(joined.formatted)
}

/// The pool that these drives are, all of them but for one that joins.
fn whole_pool(held: &[Held], joins: Option<[u8; 16]>) -> Result<PoolOpening, ServeError> {
    let first = &held[0];
    if let Some(other) = held.iter().find(|one| one.label.server != first.label.server) {
        return Err(ServeError::Setup(format!(
            "{} and {} belong to different pools: name the drives of one (--to)",
            first.local.path().display(),
            other.local.path().display()
        )));
    }
    let labels: Vec<Label> = held.iter().map(|one| one.label.clone()).collect();
    let opening = open_pool(&labels, false).map_err(|error| ServeError::Setup(error.to_string()))?;
    let others = opening.missing.iter().filter(|device| Some(**device) != joins);
    let others: Vec<String> = others.map(|device| Uuid::from_bytes(*device).to_string()).collect();
    if !others.is_empty() {
        return Err(ServeError::Setup(format!(
            "the pool has more drives than were named: {}; name all of them (--to), so that each learns of the new one",
            others.join(", ")
        )));
    }
    let outdated = opening.stale.iter().chain(&opening.strangers).next();
    if let Some(at) = outdated {
        let path = held[*at].local.path().display();
        return Err(ServeError::Setup(format!(
            "{path} is not of the pool as the others have it: leave it out"
        )));
    }
    Ok(opening)
}

/// Whether a drive has the label of this pool, which knows nothing of it: an earlier call was cut short at its beginning.
fn is_left_over(chosen: &Chosen, pool: [u8; 16]) -> bool {
    chosen.local.label().is_ok_and(|found| found.label.server == pool)
}

/// Makes a pool on it, and gives it the catalog that the others have.
fn fill(chosen: &Chosen, label: &Label, held: &[Held]) -> Result<(), String> {
    let mut drives = held.iter().map(carried).collect::<Result<Vec<_>, String>>()?;
    let properties = chosen.local.properties();
    let config = new_pool(chosen.shape, label, has_volatile_cache(properties));
    let medium = medium(chosen.shape, &chosen.local, false).map_err(|error| error.to_string())?;
    drives.push((ring_on(&chosen.local)?, medium, config));
    // What lay on devices that were taken out before stays known as that.
    let config = ShardConfig { removed_devices: label.removed(), ..ShardConfig::default() };
    start_and_stop(drives, config)?;
    Ok(())
}
