//! Drives that this process has for itself, and what their labels say.

use crate::drive::{HandedOver, OwnDrive, Usage, check_system_area, take, unlabelled};
use crate::error::{ServeError, warn};
use crate::http::DeviceTraits;
use crate::local::Local;
use crate::opened::{Cut, Opened, Shown};
use crate::remote_host::RemoteHost;
use diecut_api::place::{Drive, Place};
use diecut_api::setup::Durability;
use diecut_devices::local::{FoundLabel, OtherCopy};
use diecut_devices::{Device, Label, LabelDevice};
use diecut_shard::{Nonces, PoolConfig};
use uuid::Uuid;

/// A drive that this process has for itself, and what its label says.
pub struct Held {
    pub drive: Box<dyn OwnDrive>,
    pub label: Label,
    other_copy: OtherCopy,
}

impl Held {
    /// Takes a drive of a set-up for this process alone. Nothing is written to it.
    ///
    /// # Errors
    /// Names the drive, what is wrong with it, and what to do.
    pub fn take_wanted(wanted: Drive<'_>, host: &RemoteHost) -> Result<Held, ServeError> {
        match wanted {
            Drive::Local(local) => Held::of(Box::new(Local::take_wanted(local)?)),
            Drive::Remote(_) => Held::take(&wanted.place(), host),
        }
    }

    /// Takes a drive, whatever it is.
    ///
    /// # Errors
    /// As [`Held::take_wanted`].
    pub fn take(place: &Place, host: &RemoteHost) -> Result<Held, ServeError> {
        Held::of(take(place, host)?)
    }

    /// Takes it by what its label says.
    pub fn of(drive: Box<dyn OwnDrive>) -> Result<Held, ServeError> {
        let FoundLabel { label, other, .. } = drive.label().map_err(|error| unlabelled(&*drive, &error))?;
        check_system_area(drive.place(), &label)?;
        Ok(Held { drive, label, other_copy: other })
    }

    /// One that is about to have a label.
    pub fn labelled(drive: Box<dyn OwnDrive>, label: Label) -> Held {
        Held { drive, label, other_copy: OtherCopy::Same }
    }

    /// Where it is.
    pub fn place(&self) -> &Place {
        self.drive.place()
    }

    /// UUID of the device.
    pub fn device(&self) -> Uuid {
        Uuid::from_bytes(self.label.device)
    }

    /// Writes a copy of its label again that a cut left behind.
    ///
    /// # Errors
    /// Names the drive.
    pub fn mend_label(&mut self) -> Result<(), ServeError> {
        if self.other_copy == OtherCopy::Same {
            return Ok(());
        }
        let place = self.place();
        warn(&format!("{place}: one copy of its label is not as the other one; it is written again"));
        self.write_label()
    }

    /// Has its label list these devices.
    ///
    /// # Errors
    /// Names the drive.
    pub fn list_devices(&mut self, devices: &[LabelDevice]) -> Result<(), ServeError> {
        if self.label.devices == devices {
            return Ok(());
        }
        self.label.devices = devices.to_vec();
        self.write_label()
    }

    /// The label is as it is here from then on.
    fn write_label(&mut self) -> Result<(), ServeError> {
        self.label.number += 1;
        let changed = self.drive.change_label(&self.label);
        changed.map_err(|error| ServeError::Setup(format!("{}: {error}", self.place())))?;
        self.other_copy = OtherCopy::Same;
        Ok(())
    }

    /// What its label says of a pool there.
    pub fn pool(&self) -> PoolConfig {
        let shape = &self.label.shape;
        let suited = PoolConfig::suited_to(&shape.geometry());
        let suited = if shape.dies.is_some() { suited.for_dies() } else { suited };
        PoolConfig { nonces: Some(self.nonces()), ..suited }
    }

    fn nonces(&self) -> Nonces {
        Nonces::new(self.label.secret, self.label.device)
    }

    /// Opens it as a device.
    ///
    /// # Errors
    /// Names the drive.
    pub fn open(self, name: String, usage: Usage) -> Result<Opened, ServeError> {
        let (place, nonces, shape) = (self.place().to_string(), self.nonces(), self.label.shape);
        let medium = self.drive.medium(shape, usage)?;
        let volatile_cache = Some(usage.volatile_cache);
        let Held { drive, label, other_copy } = self;
        let device = Uuid::from_bytes(label.device);
        let (HandedOver { io, what, file, claim }, rest) = drive.hand_over()?;
        let held = Held { drive: rest, label, other_copy };
        Ok(Opened {
            member: Some((device, held)),
            shown: Shown { name, place, what, file },
            cut: Cut { geometry: shape.geometry(), nonces: Some(nonces), endurance_cycles: None },
            traits: DeviceTraits { pacing: None, durability: Some(Durability::Machine), volatile_cache },
            io: Some(io),
            device: Device::Drive(medium),
            claim,
        })
    }
}
