//! The drives of a server: one pool, found by their labels. Those that are not there are named, and the rest is served if it is more than half.

use crate::drive::Usage;
use crate::error::{ServeError, warn};
use crate::folder::Unfinished;
use crate::held::Held;
use crate::opened::{Age, AllOpened, Mark, News};
use crate::places;
use crate::remote_host::RemoteHost;
use diecut_api::place::Drive;
use diecut_api::setup::Setup;
use diecut_api::status::MissingDevice;
use diecut_devices::{LabelDevice, Membership, PoolError, PoolOpening, open_pool};
use std::collections::BTreeMap;
use std::panic::resume_unwind;
use uuid::Uuid;

/// Opens the drives for this process alone.
///
/// # Errors
/// Names the drive, what is wrong with it, and what to do.
pub fn open(wanted: &[Drive<'_>], setup: &Setup) -> Result<AllOpened, ServeError> {
    check_apart(wanted)?;
    let mut missing = Vec::new();
    let mut held: Vec<(Drive<'_>, Held)> = Vec::new();
    for (&one, taken) in wanted.iter().zip(take_all(wanted, setup)?) {
        match taken {
            Ok(drive) => held.push((one, drive)),
            // Nothing could be served without the only one.
            Err(error) if wanted.len() == 1 => return Err(error),
            Err(error) => missing.push(not_there(one, error.to_string())),
        }
    }
    check_one_pool(&held)?;
    let known = known(setup);
    let labels: Vec<_> = held.iter().map(|(_, drive)| drive.label.clone()).collect();
    let opening = open_pool(&labels, false).map_err(|error| refused(&error, &held, &known, &missing))?;
    let are = |wanted: Membership| -> Vec<usize> {
        let is = |at: &usize| opening.membership(held[*at].1.label.device) == Some(wanted);
        opening.current.iter().copied().filter(is).collect()
    };
    let (joining, removed) = (are(Membership::Joining), are(Membership::Removed));
    let is_new = |at: &usize| joining.contains(at) || opening.strangers.contains(at);
    let outdated = opening.stale.iter().chain(&opening.strangers).chain(&joining).chain(&removed);
    let mut outdated: Vec<usize> = outdated.copied().collect();
    outdated.sort_unstable();
    for at in outdated.into_iter().rev() {
        let (one, _) = held.remove(at);
        let reason = match is_new(&at) {
            _ if removed.contains(&at) => format!(
                "it was taken out of the pool: take it out of the set-up, or make another device of it (`diecut device format {}`)",
                one.place().typed()
            ),
            true => format!(
                "it was being added to the pool, which was cut short: `diecut device add {}` again",
                one.place().typed()
            ),
            false => "its label is of an older view of the pool: it missed changes".to_owned(),
        };
        missing.push(not_there(one, reason));
    }
    for one in missing.iter_mut().filter(|one| one.reason.contains("diecut device format")) {
        one.reason += &of_before(one, &known, &opening);
    }
    missing.extend(unnamed(&opening.missing, &missing, &known));
    // Also of one that is there and cannot be used.
    let absent = opening.voices() - held.len();
    for one in &missing {
        warn(&format!(
            "device \"{}\" is not there, and what lies on it is not served: {}",
            one.name, one.reason
        ));
    }
    let age = age(setup, &held, &known)?;
    let text = served_lines(&held, &known);
    let mark = Some(Mark { path: places::drives_made(setup), text });
    let mut devices = Vec::new();
    finish_joins(&mut held, &opening.devices)?;
    // What is not there may have a cache, too.
    let volatile_cache = absent > 0 || held.iter().any(|(_, held)| held.drive.has_volatile_cache());
    for (one, mut drive) in held {
        drive.mend_label()?;
        devices.push(
            drive.open(one.shown_name(), Usage { volatile_cache, discards: one.is_told_of_discards() })?,
        );
    }
    let made = [Unfinished::none(), Unfinished::none()];
    let news = News { age, made, mark, differences: Vec::new() };
    Ok(AllOpened {
        devices,
        missing_count: absent as u16,
        removed: opening.removed(),
        missing,
        recipe: None,
        news,
    })
}

/// A drive that is named twice, by links, would be in use by this process itself.
fn check_apart(wanted: &[Drive<'_>]) -> Result<(), ServeError> {
    let places: Vec<_> = wanted.iter().map(Drive::place).collect();
    let pairs =
        places.iter().enumerate().flat_map(|(at, one)| places[..at].iter().map(move |other| (other, one)));
    match pairs.into_iter().find(|(one, other)| one.is_same_drive(other)) {
        Some((one, other)) => Err(ServeError::Setup(format!(
            "{other} is the same drive as {one}: a drive is one device; remove one of them from the set-up"
        ))),
        None => Ok(()),
    }
}

/// Takes each of them, all at the same time: a target that is away is waited for.
fn take_all(wanted: &[Drive<'_>], setup: &Setup) -> Result<Vec<Result<Held, ServeError>>, ServeError> {
    let is_remote = wanted.iter().any(|one| matches!(one, Drive::Remote(_)));
    let host = if is_remote { RemoteHost::of_folder(setup)? } else { RemoteHost::new()? };
    Ok(std::thread::scope(|scope| {
        let take = |one: Drive<'_>| Held::take_wanted(one, &host);
        let threads: Vec<_> = wanted.iter().map(|one| scope.spawn(move || take(*one))).collect();
        let taken =
            threads.into_iter().map(|thread| thread.join().unwrap_or_else(|panic| resume_unwind(panic)));
        taken.collect()
    }))
}

/// Devices of the pool that are not there, as far as they are none of those that the set-up names.
fn unnamed(
    absent: &[[u8; 16]],
    named: &[MissingDevice],
    known: &BTreeMap<Uuid, String>,
) -> Vec<MissingDevice> {
    let is_named = |path: &String| named.iter().any(|one| one.path.as_ref() == Some(path));
    // Any of these may be one that was never served from this data folder.
    let mut unknown =
        named.iter().filter(|one| !known.values().any(|path| one.path.as_ref() == Some(path))).count();
    let mut found = Vec::new();
    for device in absent.iter().map(|device| Uuid::from_bytes(*device)) {
        let path = known.get(&device);
        if path.is_some_and(is_named) {
            continue;
        }
        if path.is_none() && unknown > 0 {
            unknown -= 1;
            continue;
        }
        found.push(MissingDevice {
            name: path.cloned().unwrap_or_else(|| device.to_string()),
            path: path.cloned(),
            reason: format!("the pool has it as device {device}, and the set-up does not name it"),
        });
    }
    found
}

/// A device that joined is there, whatever labels say that a cut left behind (R13): its own is the last one.
fn finish_joins(held: &mut [(Drive<'_>, Held)], devices: &[LabelDevice]) -> Result<(), ServeError> {
    let joins = |drive: &Held| drive.label.own_membership() == Some(Membership::Joining);
    let (others, joined): (Vec<_>, Vec<_>) = held.iter_mut().partition(|(_, drive)| !joins(drive));
    others.into_iter().chain(joined).try_for_each(|(_, drive)| drive.list_devices(devices))
}

/// What is known of a drive that is not what was served from that path.
fn of_before(missing: &MissingDevice, known: &BTreeMap<Uuid, String>, opening: &PoolOpening) -> String {
    let is_there = |device: &Uuid| opening.missing.contains(device.as_bytes());
    let mut served = known.iter().filter(|(_, path)| missing.path.as_ref() == Some(path));
    let Some((device, _)) = served.clone().find(|(device, _)| is_there(device)).or_else(|| served.next())
    else {
        return String::new();
    };
    match opening.membership(*device.as_bytes()) {
        Some(Membership::Removed) => {
            format!(
                "; the device {device} that was there was taken out of this pool: take it out of the set-up"
            )
        }
        _ if is_there(device) => {
            format!(
                "; the pool's device {device} was there: another drive may be at that path now, and a format would not bring it back"
            )
        }
        _ => String::new(),
    }
}

fn not_there(wanted: Drive<'_>, reason: String) -> MissingDevice {
    MissingDevice { name: wanted.shown_name(), path: Some(wanted.place().to_string()), reason }
}

/// Drives of two pools are a slip of whoever wrote the set-up.
fn check_one_pool(held: &[(Drive<'_>, Held)]) -> Result<(), ServeError> {
    let Some(((first, one), rest)) = held.split_first() else { return Ok(()) };
    let Some((other, of_other)) = rest.iter().find(|(_, drive)| drive.label.server != one.label.server)
    else {
        return Ok(());
    };
    let pool = |drive: &Held| Uuid::from_bytes(drive.label.server);
    Err(ServeError::Setup(format!(
        "{} belongs to the pool {} and {} to the pool {}: a server has one. Start one for each, or format them together (`diecut device format \
         PATH PATH`), which loses what they hold",
        first.place(),
        pool(one),
        other.place(),
        pool(of_other)
    )))
}

/// Why labels make no pool.
fn refused(
    error: &PoolError,
    held: &[(Drive<'_>, Held)],
    known: &BTreeMap<Uuid, String>,
    missing: &[MissingDevice],
) -> ServeError {
    let mut text = match error {
        PoolError::Empty if held.is_empty() => "none of the devices is there".to_owned(),
        PoolError::Empty => "no device of the set-up belongs to a pool by its own label".to_owned(),
        PoolError::Twice(device) => {
            let device = Uuid::from_bytes(*device);
            let copies = held.iter().filter(|(_, drive)| drive.device() == device);
            let paths: Vec<String> = copies.map(|(one, _)| one.place().to_string()).collect();
            format!(
                "{} have the label of one device: one is a copy of the other; take one of them away",
                paths.join(" and ")
            )
        }
        PoolError::NoMajority { present, needed_of, missing } => {
            let names = missing.iter().map(|device| {
                let device = Uuid::from_bytes(*device);
                known.get(&device).map_or_else(|| device.to_string(), |path| format!("{device} ({path})"))
            });
            let names: Vec<String> = names.collect();
            format!(
                "{present} of {needed_of} devices of the pool are there, and it takes more than half of them, because others could have gone on \
                 without these; missing: {}. Name them in the set-up, all of them",
                names.join(", ")
            )
        }
    };
    for one in missing {
        text += &format!("\n{}: {}", one.name, one.reason);
    }
    ServeError::Setup(text)
}

/// Devices that were served from the data folder, with their paths.
fn known(setup: &Setup) -> BTreeMap<Uuid, String> {
    let text = std::fs::read_to_string(places::drives_made(setup)).unwrap_or_default();
    let lines = text.lines().filter_map(|line| line.split_once(' '));
    lines.filter_map(|(device, path)| Some((device.parse().ok()?, path.to_owned()))).collect()
}

/// A line of what the data folder keeps of drives.
pub(crate) fn line(device: Uuid, place: &str) -> String {
    format!("{device} {place}\n")
}

/// What the data folder keeps of them: those that were there before stay known.
fn served_lines(held: &[(Drive<'_>, Held)], known: &BTreeMap<Uuid, String>) -> String {
    let mut lines = known.clone();
    lines.extend(held.iter().map(|(one, drive)| (drive.device(), one.place().to_string())));
    lines.into_iter().map(|(device, path)| line(device, &path)).collect()
}

/// Whether they are the drives that were served from the data folder.
fn age(setup: &Setup, held: &[(Drive<'_>, Held)], known: &BTreeMap<Uuid, String>) -> Result<Age, ServeError> {
    if known.is_empty() {
        return Ok(Age::Unserved);
    }
    if held.iter().any(|(_, drive)| known.contains_key(&drive.device())) {
        return Ok(Age::Served);
    }
    let there: Vec<String> =
        held.iter().map(|(one, drive)| format!("{} is the device {}", one.place(), drive.device())).collect();
    let others: Vec<String> = known.iter().map(|(device, path)| format!("{device} {path}")).collect();
    Err(ServeError::Setup(format!(
        "{}, and this data folder is that of another one ({}): hosts would not find what is there. Name that \
         one, or another data folder (--data), or remove {}",
        there.join(", "),
        others.join(", "),
        places::drives_made(setup).display()
    )))
}
