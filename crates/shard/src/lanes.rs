//! What shards own: channels of devices, each of which is one shard's.

use diecut_units::Geometry;
use std::collections::BTreeMap;

/// A device of a server, in the order in which they were given to its shards.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct DeviceIndex(pub u16);

/// A channel of a device. Of a drive that hides its flash, a lane.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct Lane {
    pub device: DeviceIndex,
    pub channel: u16,
}

impl Lane {
    pub fn of(device: DeviceIndex, channel: u16) -> Lane {
        Lane { device, channel }
    }
}

/// Channels of lanes by device, in their order; of a device without one of them nothing.
pub(crate) fn by_device<'a>(lanes: impl IntoIterator<Item = &'a Lane>) -> BTreeMap<DeviceIndex, Vec<u16>> {
    let mut of_devices: BTreeMap<DeviceIndex, Vec<u16>> = BTreeMap::new();
    for lane in lanes {
        of_devices.entry(lane.device).or_default().push(lane.channel);
    }
    of_devices
}

/// Channels of those lanes that are a device's.
pub(crate) fn channels_on(lanes: &[Lane], device: DeviceIndex) -> Vec<u16> {
    lanes.iter().filter(|lane| lane.device == device).map(|lane| lane.channel).collect()
}

/// Which shard owns each lane. The first one has those that nobody uses.
pub(crate) struct LaneOwners(Vec<Vec<u16>>);

impl LaneOwners {
    /// All are the first shard's.
    pub fn new(geometries: &[Geometry]) -> LaneOwners {
        LaneOwners(geometries.iter().map(|geometry| vec![0; geometry.channels.into()]).collect())
    }

    /// Lanes of one more device, all of them the first shard's; those of indexes before it that no device has are none.
    pub fn add(&mut self, device: DeviceIndex, geometry: &Geometry) {
        let at = usize::from(device.0);
        assert!(at >= self.0.len(), "I-S37: the index of a device is given once");
        self.0.resize(at, Vec::new());
        self.0.push(vec![0; geometry.channels.into()]);
    }

    /// Lanes of a device that is gone are nobody's.
    pub fn forget(&mut self, device: DeviceIndex) {
        self.0[usize::from(device.0)].clear();
    }

    /// # Panics
    /// If there is no such lane.
    pub fn of(&self, lane: Lane) -> u16 {
        self.0[usize::from(lane.device.0)][usize::from(lane.channel)]
    }

    /// Writes down that a lane is another shard's. Whose it was.
    ///
    /// # Panics
    /// If there is no such lane.
    pub fn give(&mut self, lane: Lane, shard: u16) -> u16 {
        let owner = &mut self.0[usize::from(lane.device.0)][usize::from(lane.channel)];
        std::mem::replace(owner, shard)
    }

    /// Those that a shard owns.
    pub fn lanes_of(&self, shard: u16) -> Vec<Lane> {
        let devices = (0..).map(DeviceIndex).zip(&self.0);
        let lanes = devices.flat_map(|(device, owners)| {
            (0..).zip(owners).map(move |(channel, owner)| (Lane { device, channel }, *owner))
        });
        lanes.filter(|(_, owner)| *owner == shard).map(|(lane, _)| lane).collect()
    }
}
