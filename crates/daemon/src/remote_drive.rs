//! A namespace of a target that this process has for itself, as a drive.

use crate::beside::Beside;
use crate::carrier::Carrier;
use crate::drive::{HandedOver, OwnDrive, Usage, zoned_medium};
use crate::error::ServeError;
use crate::remote::{Claim, Remote};
use diecut_api::place::Place;
use diecut_devices::local::{Contents, LabelPlace, LabelingError};
use diecut_devices::{DriveMedium, DriveShape, WantedCut};
use diecut_reactor::IoFile;
use std::sync::Arc;

impl OwnDrive for Remote {
    fn place(&self) -> &Place {
        self.place()
    }

    fn has_volatile_cache(&self) -> bool {
        self.facts().has_volatile_cache
    }

    fn label_place(&self) -> Result<Box<dyn LabelPlace + '_>, LabelingError> {
        self.label_place()
    }

    fn look(&self) -> Result<Contents, LabelingError> {
        Ok(self.contents())
    }

    fn shape(&self, wanted: WantedCut) -> Result<DriveShape, String> {
        self.cut(wanted)
    }

    fn medium(&self, shape: DriveShape, usage: Usage) -> Result<DriveMedium, ServeError> {
        if shape.zones.is_some() {
            let zoning = self.zoning().map_err(|error| {
                ServeError::Setup(format!("{} does not tell of its zones: {error}", self.place()))
            })?;
            return zoned_medium(self.place(), shape, zoning.as_ref(), usage);
        }
        let can_discard = usage.discards && self.facts().takes_discard;
        let medium = DriveMedium::new(shape, usage.volatile_cache, can_discard);
        Ok(medium.with_handles(self.facts().handles.max(1)))
    }

    fn carrier(&self) -> Result<Box<dyn Carrier + '_>, String> {
        Ok(Box::new(self.client()))
    }

    fn hand_over(self: Box<Self>) -> Result<(HandedOver, Box<dyn OwnDrive>), ServeError> {
        // Connections of the shards go on where this one ends.
        let place = self.place().clone();
        let target = self.leave()?;
        let beside = Beside::new(place.clone(), target.clone());
        let handed_over = HandedOver {
            claim: Some(Claim::new(&place, &target)),
            io: IoFile::Remote(Arc::new(target)),
            what: "a namespace of a target",
            file: None,
        };
        Ok((handed_over, Box::new(beside)))
    }
}
