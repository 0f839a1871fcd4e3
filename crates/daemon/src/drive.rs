//! Files and block devices as devices of a server: opened for it alone, told by their label, and refused by name with what to do.

use crate::error::{ServeError, file_error, warn};
use crate::http::DeviceTraits;
use crate::opened::{Cut, Opened, Shown};
use crate::places;
use diecut_api::setup::{DriveDevice as Wanted, DriveKind as WantedKind, Durability, Setup};
use diecut_devices::local::{
    Access, DriveKind, FoundLabel, LabelingError, LocalDevice, OtherCopy, Properties,
};
use diecut_devices::{Device, DriveMedium, DriveShape, Label, LabelDevice, LabelError, Zoning};
use diecut_reactor::{IoFile, PageCache};
use diecut_shard::{Nonces, PoolConfig};
use std::path::Path;
use std::sync::Arc;
use uuid::Uuid;

/// Nobody gets a drive (`shown`) in place of an image that is served from the folder.
pub fn check_folder(shown: &str, setup: &Setup) -> Result<(), ServeError> {
    let (image, made) = (places::image(setup), places::image_made(setup));
    if !image.exists() && !made.exists() {
        return Ok(());
    }
    Err(ServeError::Setup(format!(
        "the set-up asks for {}, but this data folder is that of the emulated device in {}: hosts would not find what is there. Name another \
         data folder (--data), or, if all that it held shall be gone, remove the image and {}",
        shown,
        image.display(),
        made.display()
    )))
}

/// How bytes go to a drive.
pub fn page_cache(properties: &Properties) -> PageCache {
    if properties.takes_direct { PageCache::Bypassed } else { PageCache::Used }
}

/// Whether only a flush makes durable what was written. What the kernel does not say is taken for the worse.
pub fn has_volatile_cache(properties: &Properties) -> bool {
    !properties.takes_direct || properties.has_volatile_cache != Some(false)
}

/// The medium of a drive. `discards` says whether the drive is told what holds nothing any more, where it wants to know.
///
/// # Errors
/// Names the drive, if its zones cannot be asked for or are not those that the shape is made for.
pub fn medium(shape: DriveShape, local: &LocalDevice, discards: bool) -> Result<DriveMedium, ServeError> {
    let (path, properties) = (local.path(), local.properties());
    let Some(cut) = shape.zones else {
        let can_discard = discards && properties.takes_discard == Some(true);
        return Ok(DriveMedium::new(shape, has_volatile_cache(properties), can_discard));
    };
    let zoning = local.zoning().map_err(file_error(path, "does not tell of its zones"))?;
    let fits = |zoning: &Zoning| {
        zoning.zone_size_bytes == cut.zone_size_bytes
            && zoning.shape(Some(shape.lanes)).is_ok_and(|planned| planned == shape)
    };
    let Some(zoning) = zoning.filter(fits) else {
        return Err(ServeError::Setup(format!(
            "{}: its label is of a drive with other zones: it is a copy, or was changed to another format; name the drive itself",
            path.display()
        )));
    };
    let system = system_area(&PoolConfig::suited_to(&shape.geometry()));
    let system_blocks = u32::try_from(system.0 + system.1).unwrap_or(u32::MAX);
    Ok(DriveMedium::zoned(shape, has_volatile_cache(properties), &zoning, system_blocks))
}

/// Of each lane: the first erase block of catalog and block states, and how many there are.
pub fn system_area(config: &PoolConfig) -> (u64, u64) {
    (0, u64::from(config.catalog_blocks_per_die) + u64::from(config.state_log_blocks_per_die))
}

/// A drive that this process has for itself, and what its label says.
pub struct Held {
    pub local: LocalDevice,
    pub label: Label,
    other_copy: OtherCopy,
}

impl Held {
    /// Takes a drive for this process alone. Nothing is written to it.
    ///
    /// # Errors
    /// Names the drive, what is wrong with it, and what to do.
    pub fn take(wanted: &Wanted) -> Result<Held, ServeError> {
        let local = LocalDevice::open(&wanted.path, Access::Own)?;
        check_kind(wanted, local.properties())?;
        Held::of(local)
    }

    /// Takes a drive of any kind.
    ///
    /// # Errors
    /// As [`Held::take`].
    pub fn take_path(path: &Path) -> Result<Held, ServeError> {
        Held::of(LocalDevice::open(path, Access::Own)?)
    }

    fn of(local: LocalDevice) -> Result<Held, ServeError> {
        let path = local.path();
        check_properties(path, local.properties())?;
        let holds = || local.contents().map(|contents| contents.words()).unwrap_or_default();
        let named = path.display().to_string();
        let found = local.label().map_err(|error| unlabelled((&named, &named), &holds, &error))?;
        let FoundLabel { label, other, .. } = found;
        check_system_area(path, &label)?;
        Ok(Held { local, label, other_copy: other })
    }

    /// Writes a copy of its label again that a cut left behind.
    ///
    /// # Errors
    /// Names the drive.
    pub fn mend_label(&mut self) -> Result<(), ServeError> {
        if self.other_copy == OtherCopy::Same {
            return Ok(());
        }
        let path = self.local.path().display();
        warn(&format!("{path}: one copy of its label is not as the other one; it is written again"));
        self.label.number += 1;
        self.local.change_label(&self.label).map_err(|error| ServeError::Setup(format!("{path}: {error}")))
    }

    /// Has its label list these devices.
    ///
    /// # Errors
    /// Names the drive.
    pub fn list_devices(&mut self, devices: &[LabelDevice]) -> Result<(), ServeError> {
        if self.label.devices == devices {
            return Ok(());
        }
        self.label.number += 1;
        self.label.devices = devices.to_vec();
        let path = self.local.path().display();
        self.local.change_label(&self.label).map_err(|error| ServeError::Setup(format!("{path}: {error}")))
    }

    /// The medium of the drive, and what its label says of a pool there.
    ///
    /// # Errors
    /// As [`medium`].
    pub fn medium(&self) -> Result<(DriveMedium, PoolConfig), ServeError> {
        let medium = medium(self.label.shape, &self.local, false)?;
        let nonces = Some(Nonces::new(self.label.secret, self.label.device));
        Ok((medium, PoolConfig { nonces, ..PoolConfig::suited_to(&self.label.shape.geometry()) }))
    }

    /// UUID of the device.
    pub fn device(&self) -> Uuid {
        Uuid::from_bytes(self.label.device)
    }

    /// Opens it as a device.
    ///
    /// # Errors
    /// Names the drive.
    pub fn open(self, wanted: &Wanted) -> Result<Opened, ServeError> {
        let Held { local, label, .. } = self;
        let (path, properties) = (&wanted.path, local.properties());
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
        Ok(Opened {
            shown,
            cut: Cut { geometry: label.shape.geometry(), nonces, endurance_cycles: None },
            traits: DeviceTraits {
                pacing: None,
                durability: Some(Durability::Machine),
                volatile_cache: Some(has_volatile_cache(properties)),
            },
            io: Some(IoFile::Ring(file, page_cache(properties))),
            device: Device::Drive(medium(label.shape, &local, wanted.is_told_of_discards())?),
        })
    }
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

/// What is said of a drive without a label to go by: its name, what `diecut device format` is told to have it, and what else lies there.
pub fn unlabelled(
    (path, typed): (&str, &str),
    holds: &dyn Fn() -> Vec<String>,
    error: &LabelingError,
) -> ServeError {
    let anew =
        format!("`diecut device format --force {typed}` makes a new device of it, and what it held is lost");
    let advice = match error {
        LabelingError::Label(LabelError::Missing) => {
            let holds = holds();
            return ServeError::Setup(match holds.is_empty() {
                true => format!(
                    "{path} is not formatted: no label of diecut is on it. `diecut device format {typed}` makes it a device"
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

/// Whether catalog and block states lie where this version has them.
///
/// # Errors
/// Names the drive.
pub fn check_system_area(path: &Path, label: &Label) -> Result<(), ServeError> {
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
