//! A namespace of a target that shards serve, as who writes its label sees it: over a connection beside theirs.

use crate::carrier::Carrier;
use crate::drive::{HandedOver, OwnDrive, Usage};
use crate::error::ServeError;
use crate::remote::{OPENING_PATIENCE, Reached, Remote, new_life};
use diecut_api::place::Place;
use diecut_devices::local::{Contents, LabelPlace, LabelingError};
use diecut_devices::{DriveMedium, DriveShape, WantedCut};
use diecut_reactor::RemoteTarget;
use diecut_remote::{ClaimKind, PART_MAX};
use std::io;

/// See the module. It is connected to for as long as a label is read or written, which is rare.
pub(crate) struct Beside {
    place: Place,
    target: RemoteTarget,
}

impl Beside {
    /// Beside the shards, which have `target`.
    pub fn new(place: Place, mut target: RemoteTarget) -> Beside {
        target.parameters.part = PART_MAX;
        target.parameters.patience = Some(OPENING_PATIENCE);
        Beside { place, target }
    }

    fn connect(&self, kind: ClaimKind) -> Result<Box<Remote>, ServeError> {
        let mut target = self.target.clone();
        (target.parameters.life, target.parameters.kind) = (new_life()?, kind);
        Ok(Box::new(Remote::of(self.place.clone(), target)?))
    }

    fn reach(&self, kind: ClaimKind) -> Result<Box<Remote>, LabelingError> {
        let failed = |error| LabelingError::Io { what: "reached", error: io::Error::other(error) };
        self.connect(kind).map_err(failed)
    }

    fn is_served(&self) -> String {
        format!("{} is served", self.place)
    }
}

impl OwnDrive for Beside {
    fn place(&self) -> &Place {
        &self.place
    }

    fn has_volatile_cache(&self) -> bool {
        self.target.parameters.known.as_ref().is_none_or(|known| known.has_volatile_cache)
    }

    fn label_place(&self) -> Result<Box<dyn LabelPlace + '_>, LabelingError> {
        Reached(self.reach(ClaimKind::Own)?).label_place()
    }

    fn look(&self) -> Result<Contents, LabelingError> {
        // Two that write would take it from each other.
        Ok(self.reach(ClaimKind::Look)?.contents())
    }

    fn shape(&self, _wanted: WantedCut) -> Result<DriveShape, String> {
        Err(self.is_served())
    }

    fn medium(&self, _shape: DriveShape, _usage: Usage) -> Result<DriveMedium, ServeError> {
        Err(ServeError::Setup(self.is_served()))
    }

    fn carrier(&self) -> Result<Box<dyn Carrier + '_>, String> {
        Err(self.is_served())
    }

    fn hand_over(self: Box<Self>) -> Result<(HandedOver, Box<dyn OwnDrive>), ServeError> {
        Err(ServeError::Setup(self.is_served()))
    }
}
