//! Files and block devices as devices of a server: opened for it alone, told by their label, and refused by name with what to do.

use crate::error::{ServeError, file_error, warn};
use crate::folder::Unfinished;
use crate::http::DeviceTraits;
use crate::opened::{Age, Cut, Mark, News, Opened, Shown};
use crate::places;
use diecut_api::setup::{DriveDevice as Wanted, DriveKind as WantedKind, Durability, Setup};
use diecut_devices::local::{
    Access, DriveKind, FoundLabel, LabelingError, LocalDevice, OtherCopy, Properties,
};
use diecut_devices::{Device, DriveMedium, DriveShape, Label, LabelError, open_pool};
use diecut_reactor::{IoFile, PageCache};
use diecut_shard::{Nonces, PoolConfig};
use std::path::Path;
use std::sync::Arc;
use uuid::Uuid;

/// Nobody gets a drive in place of an image that is served from the folder.
pub fn check_folder(wanted: &Wanted, setup: &Setup) -> Result<(), ServeError> {
    let (image, made) = (places::image(setup), places::image_made(setup));
    if !image.exists() && !made.exists() {
        return Ok(());
    }
    Err(ServeError::Setup(format!(
        "the set-up asks for {}, but this data folder is that of the emulated device in {}: hosts would not find what is there. Name another \
         data folder (--data), or, if all that it held shall be gone, remove the image and {}",
        wanted.path.display(),
        image.display(),
        made.display()
    )))
}

/// How bytes go to a drive.
pub fn page_cache(properties: &Properties) -> PageCache {
    if properties.takes_direct { PageCache::Bypassed } else { PageCache::Used }
}

/// Whether only a flush makes durable what was written. What the kernel does not say is taken for the worse.
fn has_volatile_cache(properties: &Properties) -> bool {
    !properties.takes_direct || properties.has_volatile_cache != Some(false)
}

/// The medium of a drive.
pub fn medium(shape: DriveShape, properties: &Properties) -> DriveMedium {
    DriveMedium::new(shape, has_volatile_cache(properties), properties.takes_discard == Some(true))
}

/// Of each lane: the first erase block of catalog and block states, and how many there are.
pub fn system_area(config: &PoolConfig) -> (u64, u64) {
    (0, u64::from(config.catalog_blocks_per_die) + u64::from(config.state_log_blocks_per_die))
}

/// Opens a drive for this process alone.
///
/// # Errors
/// Names the drive, what is wrong with it, and what to do.
pub fn open(wanted: &Wanted, setup: &Setup) -> Result<Opened, ServeError> {
    let path = &wanted.path;
    if setup.server.shards != 1 {
        return Err(ServeError::Setup(format!(
            "{} is served by one shard, but server.shards = {}: set it to 1",
            path.display(),
            setup.server.shards
        )));
    }
    let local = LocalDevice::open(path, Access::Own)?;
    let properties = local.properties();
    check_kind(wanted, properties)?;
    check_properties(path, properties)?;
    let label = label(&local)?;
    let (medium, device) = (medium(label.shape, properties), Uuid::from_bytes(label.device));
    check_system_area(path, &label)?;
    let age = check_mark(setup, device, path)?;
    let failed = file_error(path, "cannot be opened once more");
    // The lock goes with the file, which the ring keeps.
    let file = Arc::new(local.file().try_clone().map_err(failed)?);
    let is_file = properties.kind == DriveKind::File;
    let shown = Shown {
        name: wanted.shown_name(),
        place: path.display().to_string(),
        what: if is_file { "a file" } else { "a block device" },
        file: is_file.then(|| path.clone()),
    };
    let nonces = Some(Nonces::new(label.secret, label.device));
    let mark = Mark { path: places::drives_made(setup), text: format!("{device} {}\n", path.display()) };
    Ok(Opened {
        shown,
        cut: Cut { geometry: label.shape.geometry(), nonces, endurance_cycles: None },
        traits: DeviceTraits {
            pacing: None,
            durability: Some(Durability::Machine),
            volatile_cache: Some(has_volatile_cache(properties)),
        },
        io: Some(IoFile::Ring(file, page_cache(properties))),
        recipe: None,
        news: News {
            age,
            made: [Unfinished::none(), Unfinished::none()],
            mark: Some(mark),
            differences: Vec::new(),
        },
        device: Device::Drive(medium),
    })
}

fn check_kind(wanted: &Wanted, properties: &Properties) -> Result<(), ServeError> {
    let (is, word) = match properties.kind {
        DriveKind::File => (WantedKind::File, "file"),
        DriveKind::Block | DriveKind::Partition => (WantedKind::Block, "block"),
    };
    if is == wanted.kind {
        return Ok(());
    }
    let name = wanted.path.display();
    Err(ServeError::Setup(format!("{name} is of another kind than the set-up says: write kind = \"{word}\"")))
}

/// Whether a drive is of a kind that can be a device.
pub fn check_properties(path: &Path, properties: &Properties) -> Result<(), ServeError> {
    let against = properties.against();
    if against.is_empty() {
        return Ok(());
    }
    let name = path.display();
    Err(ServeError::Setup(format!("{name} cannot be a device: {}; use another one", against.join("; "))))
}

/// The label that counts. A copy that a cut left behind is written again.
fn label(local: &LocalDevice) -> Result<Label, ServeError> {
    let path = local.path().display();
    let FoundLabel { mut label, other, .. } = local.label().map_err(|error| unlabelled(local, &error))?;
    // Of several devices of a pool a server would need most.
    let opening = open_pool(std::slice::from_ref(&label), false);
    let opening = opening.map_err(|error| ServeError::Setup(format!("{path}: {error}")))?;
    if opening.devices.len() != 1 {
        return Err(ServeError::Setup(format!(
            "{path} belongs to a pool of {} devices, and a server of this version serves one: use the version that made it",
            opening.devices.len()
        )));
    }
    if other != OtherCopy::Same {
        warn(&format!("{path}: one copy of its label is not as the other one; it is written again"));
        label.number += 1;
        local.change_label(&label).map_err(|error| ServeError::Setup(format!("{path}: {error}")))?;
    }
    Ok(label)
}

/// What is said of a drive without a label to go by.
fn unlabelled(local: &LocalDevice, error: &LabelingError) -> ServeError {
    let path = local.path().display();
    let anew =
        format!("`diecut device format --force {path}` makes a new device of it, and what it held is lost");
    let advice = match error {
        LabelingError::Label(LabelError::Missing) => {
            let holds = local.contents().map(|contents| contents.words()).unwrap_or_default();
            return ServeError::Setup(match holds.is_empty() {
                true => format!(
                    "{path} is not formatted: no label of diecut is on it. `diecut device format {path}` makes it a device"
                ),
                false => format!(
                    "{path} is no device of diecut: it holds {}. Name another path; {anew}",
                    holds.join(" and ")
                ),
            });
        }
        LabelingError::Label(LabelError::Version(_) | LabelError::Features(_)) => {
            "a later version of diecut wrote it: start that one".to_owned()
        }
        LabelingError::TooSmall { .. } => {
            "it was larger when it was formatted, or is a copy that was cut short: give it its size back"
                .to_owned()
        }
        LabelingError::Io { .. } => "see to the drive".to_owned(),
        _ => format!("if it cannot be had back, {anew}"),
    };
    ServeError::Setup(format!("{path}: {error}; {advice}"))
}

fn check_system_area(path: &Path, label: &Label) -> Result<(), ServeError> {
    let wanted = system_area(&PoolConfig::suited_to(&label.shape.geometry()));
    if label.system == wanted {
        return Ok(());
    }
    let name = path.display();
    Err(ServeError::Setup(format!(
        "{name}: its catalog and its block states do not lie where this version has them (erase blocks {:?} of each lane, not {wanted:?}): start \
         the version that formatted it",
        label.system
    )))
}

/// Whether it is the drive that was served from the data folder.
fn check_mark(setup: &Setup, device: Uuid, path: &Path) -> Result<Age, ServeError> {
    let made = places::drives_made(setup);
    let Ok(text) = std::fs::read_to_string(&made) else { return Ok(Age::Unserved) };
    let known = text.lines().any(|line| line.split(' ').next() == Some(device.to_string().as_str()));
    if known || text.trim().is_empty() {
        return Ok(Age::Served);
    }
    Err(ServeError::Setup(format!(
        "{} is the device {device}, and this data folder is that of another one ({}): hosts would not find what is there. Name the path of that \
         one, or another data folder (--data), or remove {}",
        path.display(),
        text.trim(),
        made.display()
    )))
}
