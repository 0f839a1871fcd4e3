//! What a shard has of each device of the server: its part of the medium, and the pool over that.
//!
//! Each device keeps for itself who holds its erase blocks, how they wear and who is next at its dies, so devices may differ, come, go and fail
//! alone. A vSSD lies on one of them. Where there are several devices one shard serves all of them; several shards divide a single one.

use crate::config::DeviceConfig;
use crate::staging::Staging;
use diecut_media::Media;
use diecut_units::Time;
use diecut_vssd::{Pool, Space, VssdId};

/// A device of a server, in the order in which they were given to its shards.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct DeviceIndex(pub u16);

/// What a shard has of one device.
pub(crate) struct OwnDevice<M: Media> {
    pub media: M,
    pub pool: Pool,
    pub config: DeviceConfig,
    pub staging: Staging,
    /// Blocks retired, by die, as far as that was told.
    pub retired_told: Vec<u32>,
    /// What it lies on cannot be reached.
    pub is_away: bool,
}

impl<M: Media> OwnDevice<M> {
    pub fn new(media: M, pool: Pool, config: DeviceConfig, staging: Staging) -> OwnDevice<M> {
        let dies = media.geometry().dies() as usize;
        OwnDevice { media, pool, config, staging, retired_told: vec![0; dies], is_away: false }
    }

    /// The erase blocks of a vSSD that lies here, for the length of a call.
    #[inline]
    pub fn space(&mut self, vssd: VssdId, now: Time) -> Space<'_, M> {
        self.pool.space(vssd, &mut self.media, now)
    }
}

/// All of them; there is one at least.
pub(crate) struct Devices<M: Media>(Vec<OwnDevice<M>>);

impl<M: Media> Devices<M> {
    /// # Panics
    /// If there is none, or more than can be counted.
    pub fn new(devices: Vec<OwnDevice<M>>) -> Devices<M> {
        assert!(!devices.is_empty(), "I-S37: a server has a device");
        assert!(u16::try_from(devices.len()).is_ok(), "I-S37: devices are numbered");
        Devices(devices)
    }

    pub fn len(&self) -> usize {
        self.0.len()
    }

    pub fn iter(&self) -> std::slice::Iter<'_, OwnDevice<M>> {
        self.0.iter()
    }

    pub fn iter_mut(&mut self) -> std::slice::IterMut<'_, OwnDevice<M>> {
        self.0.iter_mut()
    }

    pub fn into_vec(self) -> Vec<OwnDevice<M>> {
        self.0
    }

    /// With their numbers.
    pub fn numbered(&self) -> impl Iterator<Item = (DeviceIndex, &OwnDevice<M>)> {
        (0..).map(DeviceIndex).zip(&self.0)
    }

    #[inline]
    pub fn get(&self, device: DeviceIndex) -> &OwnDevice<M> {
        &self.0[usize::from(device.0)]
    }

    #[inline]
    pub fn get_mut(&mut self, device: DeviceIndex) -> &mut OwnDevice<M> {
        &mut self.0[usize::from(device.0)]
    }

    /// The device that a vSSD lies on, as far as that is this shard's.
    #[inline]
    pub fn find(&self, vssd: VssdId) -> Option<DeviceIndex> {
        let at = self.0.iter().position(|device| device.pool.holds(vssd))?;
        Some(DeviceIndex(at as u16))
    }

    /// What a vSSD lies on.
    ///
    /// # Panics
    /// If it does not lie here.
    #[inline]
    pub fn of(&self, vssd: VssdId) -> &OwnDevice<M> {
        self.get(self.find(vssd).expect("I-S37: a vSSD that is used lies on a device"))
    }

    /// See [`Devices::of`].
    ///
    /// # Panics
    /// If it does not lie here.
    #[inline]
    pub fn of_mut(&mut self, vssd: VssdId) -> &mut OwnDevice<M> {
        let device = self.find(vssd).expect("I-S37: a vSSD that is used lies on a device");
        self.get_mut(device)
    }

    /// vSSDs that lie here.
    pub fn vssd_ids(&self) -> impl Iterator<Item = VssdId> + '_ {
        self.0.iter().flat_map(|device| device.pool.vssd_ids())
    }

    /// The device that the shards of a server divide.
    ///
    /// # Panics
    /// If there are several: one shard serves these.
    pub fn divided(&self) -> &OwnDevice<M> {
        let [only] = &*self.0 else { panic!("I-S37: several shards divide one device") };
        only
    }

    /// See [`Devices::divided`].
    ///
    /// # Panics
    /// If there are several.
    pub fn divided_mut(&mut self) -> &mut OwnDevice<M> {
        let [only] = &mut *self.0 else { panic!("I-S37: several shards divide one device") };
        only
    }
}
