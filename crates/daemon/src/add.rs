//! Adds a drive to a pool of drives that no server serves: it gets what all of them have, the catalog, and then a voice.

use crate::carrier::{carried, start_and_stop};
use crate::drive::{Usage, system_area};
use crate::error::ServeError;
use crate::format::{Chosen, FormatOptions, Formatted, checked, choose, named, new_pool};
use crate::held::Held;
use crate::remote_host::RemoteHost;
use crate::whole::{Change, whole_pool};
use diecut_api::place::Place;
use diecut_devices::{DEVICES_MAX, Label, LabelDevice, Membership, WantedCut, list_with};
use diecut_shard::{PoolConfig, ShardConfig};
use uuid::Uuid;

/// Adds a drive to the pool that all of `to` are. What was cut short goes on where it was.
///
/// # Errors
/// Names the drive and what speaks against it. Before anything is written, unless a drive itself fails.
pub fn add(place: &Place, to: &[Place], options: FormatOptions) -> Result<Formatted, ServeError> {
    let host = RemoteHost::new()?;
    let held = to.iter().map(|place| Held::take(place, &host));
    let mut held = held.collect::<Result<Vec<Held>, ServeError>>()?;
    // What cannot be taken is no drive of this pool, and is looked at again.
    let before = Held::take(place, &host).ok().filter(|one| one.label.server == held[0].label.server);
    let opening = whole_pool(held.iter(), &Change::Join(before.as_ref().map(|one| one.label.device)))?;
    // Labels of the pool say that it is there: an earlier call was cut short at its end.
    let is_there = |one: &Held| opening.membership(one.label.device).is_some_and(Membership::has_voice);
    if let Some(joined) = before.filter(is_there) {
        let formatted = Formatted {
            place: place.clone(),
            device: joined.device(),
            pool: Uuid::from_bytes(joined.label.server),
            shape: joined.label.shape,
        };
        return finish(Joined { held: joined, formatted }, held, &opening.devices);
    }
    let mut chosen = choose(place, options, &host)?;
    let first = &held[0].label;
    if options.cut.block_size_bytes.is_none() {
        // If it can, it has erase blocks of the size that others have: a vSSD can have parts on drives whose are alike.
        let alike = chosen
            .drive
            .shape(WantedCut { block_size_bytes: Some(first.shape.block_size_bytes), ..options.cut });
        chosen.shape = checked(place, alike).unwrap_or(chosen.shape);
    }
    let member = |membership| LabelDevice { device: chosen.device, membership, since: opening.view.epoch };
    let listed = |membership| list_with(&opening.devices, member(membership));
    let joining = listed(Membership::Joining);
    if joining.len() > DEVICES_MAX {
        return Err(named(
            place,
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
        chosen.drive.check_format(&label, options.force).map_err(|error| named(place, &error))?;
    }
    chosen.drive.clear().map_err(|error| named(place, &error))?;
    fill(&chosen, &label, &held).map_err(|error| named(place, &error))?;
    // R13: all say that it joins, its own label first; then that it is there, its own last.
    chosen.drive.give_label(&label).map_err(|error| named(place, &error))?;
    for one in &mut held {
        one.list_devices(&joining)?;
    }
    let Chosen { drive, mut new, shape, device } = chosen;
    drop(drive);
    new.keep();
    let formatted = Formatted {
        place: place.clone(),
        device: Uuid::from_bytes(device),
        pool: Uuid::from_bytes(label.server),
        shape,
    };
    let joined = Held::take(place, &host)?;
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

/// Whether a drive has the label of this pool, which knows nothing of it: an earlier call was cut short at its beginning.
pub(crate) fn is_left_over(chosen: &Chosen, pool: [u8; 16]) -> bool {
    chosen.drive.label().is_ok_and(|found| found.label.server == pool)
}

/// Makes a pool on it, and gives it the catalog that the others have.
fn fill(chosen: &Chosen, label: &Label, held: &[Held]) -> Result<(), String> {
    let mut drives = held.iter().map(carried).collect::<Result<Vec<_>, String>>()?;
    let drive = &chosen.drive;
    let config = new_pool(chosen.shape, label);
    let medium = drive.medium(chosen.shape, Usage::BRIEF).map_err(|error| error.to_string())?;
    drives.push((drive.carrier()?, medium, config));
    // What lay on devices that were taken out before stays known as that.
    let config = ShardConfig { removed_devices: label.removed(), ..ShardConfig::default() };
    start_and_stop(drives, config)?;
    Ok(())
}
