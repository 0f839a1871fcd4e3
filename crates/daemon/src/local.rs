//! Files and block devices of this machine as drives.

use crate::carrier::Carrier;
use crate::drive::{HandedOver, OwnDrive, Usage, zoned_medium};
use crate::error::{ServeError, file_error};
use diecut_api::place::Place;
use diecut_api::setup::{DriveDevice, DriveKind as WantedKind};
use diecut_devices::local::{Access, Contents, DriveKind, LabelPlace, LabelingError, LocalDevice};
use diecut_devices::{DriveMedium, DriveShape, WantedCut};
use diecut_reactor::{DriveRing, IoFile, PageCache, RingFile};
use std::path::Path;
use std::sync::Arc;

/// A file or a block device that this process has for itself.
pub struct Local {
    device: LocalDevice,
    place: Place,
}

impl Local {
    /// Takes one. Nothing is written to it.
    ///
    /// # Errors
    /// Names it, what is wrong with it, and what to do.
    pub fn take(path: &Path) -> Result<Local, ServeError> {
        let device = LocalDevice::open(path, Access::Own)?;
        let against = device.properties().against();
        if against.is_empty() {
            return Ok(Local { device, place: Place::Path(path.to_owned()) });
        }
        let name = path.display();
        Err(ServeError::Setup(format!("{name} cannot be a device: {}; use another one", against.join("; "))))
    }

    /// Takes the one that a set-up names, which says what it is.
    ///
    /// # Errors
    /// As [`Local::take`].
    pub fn take_wanted(wanted: &DriveDevice) -> Result<Local, ServeError> {
        let local = Local::take(&wanted.path)?;
        let (is, word) = match local.device.properties().kind {
            DriveKind::File => (WantedKind::File, "file"),
            DriveKind::Block | DriveKind::Partition => (WantedKind::Block, "block"),
        };
        if is == wanted.kind {
            return Ok(local);
        }
        let name = wanted.path.display();
        Err(ServeError::Setup(format!(
            "{name} is of another kind than the set-up says: write kind = \"{word}\""
        )))
    }

    fn page_cache(&self) -> PageCache {
        if self.device.properties().takes_direct { PageCache::Bypassed } else { PageCache::Used }
    }
}

impl OwnDrive for Local {
    fn place(&self) -> &Place {
        &self.place
    }

    fn has_volatile_cache(&self) -> bool {
        let properties = self.device.properties();
        !properties.takes_direct || properties.has_volatile_cache != Some(false)
    }

    fn label_place(&self) -> Result<Box<dyn LabelPlace + '_>, LabelingError> {
        Ok(Box::new(self.device.label_place()?))
    }

    fn look(&self) -> Result<Contents, LabelingError> {
        self.device.look()
    }

    fn shape(&self, wanted: WantedCut) -> Result<DriveShape, String> {
        self.device.shape(wanted)
    }

    fn medium(&self, shape: DriveShape, usage: Usage) -> Result<DriveMedium, ServeError> {
        if shape.zones.is_none() {
            let can_discard = usage.discards && self.device.properties().takes_discard == Some(true);
            let handles = self.device.placement().map_or(1, |placement| placement.handles());
            return Ok(DriveMedium::new(shape, usage.volatile_cache, can_discard).with_handles(handles));
        }
        let zoning = self.device.zoning();
        let zoning = zoning.map_err(file_error(self.device.path(), "does not tell of its zones"))?;
        zoned_medium(&self.place, shape, zoning.as_ref(), usage)
    }

    fn carrier(&self) -> Result<Box<dyn Carrier + '_>, String> {
        let ring = DriveRing::new(self.device.file(), self.page_cache());
        Ok(Box::new(ring.map_err(|error| error.to_string())?))
    }

    fn hand_over(self: Box<Self>) -> Result<(HandedOver, Box<dyn OwnDrive>), ServeError> {
        let path = self.device.path();
        let failed = file_error(path, "cannot be opened once more");
        // The lock goes with the file, which the ring keeps.
        let file = Arc::new(self.device.file().try_clone().map_err(failed)?);
        let is_file = self.device.properties().kind == DriveKind::File;
        let handed_over = HandedOver {
            io: IoFile::Ring(
                RingFile::plain(file, self.page_cache()).with_handles(self.device.placement().cloned()),
            ),
            what: if is_file { "a file" } else { "a block device" },
            file: is_file.then(|| path.to_owned()),
            claim: None,
        };
        Ok((handed_over, self))
    }
}
