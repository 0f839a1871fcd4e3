//! A device that is brought to a server that runs: each shard is given its part, and waits with it for the first one.

use crate::config::DeviceConfig;
use crate::lanes::DeviceIndex;
use diecut_media::Divide;
use std::any::Any;
use std::fmt;
use uuid::Uuid;

/// See the module. Of the first shard it owns all channels, as at a start.
pub struct Newcomer {
    /// What all shards and the driver know it by from now on. No device had it before.
    pub device: DeviceIndex,
    config: DeviceConfig,
    /// All shards have the same kind of medium.
    media: Box<dyn Any + Send>,
}

impl fmt::Debug for Newcomer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "device {} as \"{}\"", self.device.0, self.config.name)
    }
}

impl Newcomer {
    /// Of a part of a medium.
    pub fn new<M: Divide>(device: DeviceIndex, media: M, config: DeviceConfig) -> Newcomer {
        Newcomer { device, config, media: Box::new(media) }
    }

    /// The UUID by which its label names it.
    pub(crate) fn uuid(&self) -> Uuid {
        self.config.uuid()
    }

    /// # Panics
    /// If it is of another kind than those that the shard has.
    pub(crate) fn unpack<M: Divide>(self) -> (DeviceIndex, M, DeviceConfig) {
        let media =
            self.media.downcast::<M>().expect("I-S37: all devices of a server have one kind of medium");
        (self.device, *media, self.config)
    }
}
