//! One device of any kind, and what a driver asks it beyond the flash contract.

use crate::{DeviceError, Options, Profile, RoomSupport, RoomWorker, SyncFile};
use diecut_emulator::DieStatistics;
use diecut_media::{Capabilities, Command, Completion, Divide, Intent, IntentDone, Media};
use diecut_units::{EraseBlockAddress, Geometry, ProtectedMemory, Time};
use std::path::Path;

/// A device of one of the kinds that there are.
pub enum Device {
    /// Emulated NAND.
    Emulated(diecut_emulator::Device),
}

impl From<diecut_emulator::Device> for Device {
    fn from(device: diecut_emulator::Device) -> Device {
        Device::Emulated(device)
    }
}

impl Device {
    /// Makes a new emulated device. A file that it is to lie in must not exist yet.
    ///
    /// # Errors
    /// Names the profile's field, or the file and what is wrong with it.
    pub fn create(profile: &Profile, options: Options) -> Result<Device, DeviceError> {
        Ok(Device::Emulated(diecut_emulator::Device::create(profile, options)?))
    }

    /// Opens the device in a file as the last process left it. Profile and seed come from the file; `options.backing` and
    /// `options.seed` are not looked at.
    ///
    /// # Errors
    /// Names the file and what is wrong with it.
    pub fn open(path: &Path, options: Options) -> Result<Device, DeviceError> {
        Ok(Device::Emulated(diecut_emulator::Device::open(path, options)?))
    }

    /// The emulator behind it, which can be asked and told what no other device can: faults, power, times of its parts.
    #[inline]
    pub fn emulated(&self) -> &diecut_emulator::Device {
        let Device::Emulated(device) = self;
        device
    }

    /// See [`Device::emulated`].
    #[inline]
    pub fn emulated_mut(&mut self) -> &mut diecut_emulator::Device {
        let Device::Emulated(device) = self;
        device
    }

    /// The profile it was made from.
    pub fn profile(&self) -> &Profile {
        match self {
            Device::Emulated(device) => device.profile(),
        }
    }

    /// The seed it was made with.
    pub fn seed(&self) -> u64 {
        match self {
            Device::Emulated(device) => device.seed(),
        }
    }

    /// Erases of an erase block since the device was made.
    pub fn erase_count(&self, block: EraseBlockAddress) -> u32 {
        match self {
            Device::Emulated(device) => device.erase_count(block),
        }
    }

    /// What all dies did since the device was made or opened.
    pub fn statistics(&self) -> DieStatistics {
        match self {
            Device::Emulated(device) => device.statistics(),
        }
    }

    /// What the file system under a device in a file can do; `None` for a device without a file.
    pub fn room_support(&self) -> Option<RoomSupport> {
        match self {
            Device::Emulated(device) => device.room_support(),
        }
    }

    /// What takes room on the file system and gives it back, for a thread that the driver owns ([`RoomWorker::run`]). Asked
    /// before the device is divided, and once.
    ///
    /// # Panics
    /// When it is called again.
    pub fn room_worker(&mut self) -> Option<RoomWorker> {
        match self {
            Device::Emulated(device) => device.room_worker(),
        }
    }

    /// What the driver syncs when [`Media::take_intents`] says so: of a device that survives the death of the machine.
    pub fn sync_file(&self) -> Option<SyncFile> {
        match self {
            Device::Emulated(device) => device.sync_file(),
        }
    }
}

impl Media for Device {
    #[inline]
    fn geometry(&self) -> &Geometry {
        match self {
            Device::Emulated(device) => device.geometry(),
        }
    }

    #[inline]
    fn capabilities(&self) -> &Capabilities {
        match self {
            Device::Emulated(device) => device.capabilities(),
        }
    }

    #[inline]
    fn is_factory_bad(&self, block: EraseBlockAddress) -> bool {
        match self {
            Device::Emulated(device) => device.is_factory_bad(block),
        }
    }

    fn protected_memory(&self) -> Option<ProtectedMemory> {
        match self {
            Device::Emulated(device) => device.protected_memory(),
        }
    }

    // In place: a command is large, and a call in between moves it once more.
    #[inline]
    fn submit(&mut self, command: Command, now: Time) {
        match self {
            Device::Emulated(device) => device.submit(command, now),
        }
    }

    #[inline]
    fn advance(&mut self, now: Time, completions: &mut Vec<Completion>) {
        match self {
            Device::Emulated(device) => device.advance(now, completions),
        }
    }

    #[inline]
    fn make_room(&mut self, block: EraseBlockAddress, now: Time) -> bool {
        match self {
            Device::Emulated(device) => device.make_room(block, now),
        }
    }

    #[inline]
    fn discard(&mut self, block: EraseBlockAddress, now: Time) {
        match self {
            Device::Emulated(device) => device.discard(block, now),
        }
    }

    #[inline]
    fn take_intents(&mut self, intents: &mut Vec<Intent>) {
        match self {
            Device::Emulated(device) => device.take_intents(intents),
        }
    }

    #[inline]
    fn intent_done(&mut self, done: IntentDone, now: Time) {
        match self {
            Device::Emulated(device) => device.intent_done(done, now),
        }
    }

    #[inline]
    fn next_event(&self) -> Time {
        match self {
            Device::Emulated(device) => device.next_event(),
        }
    }
}

impl Divide for Device {
    fn empty_part(&mut self) -> Device {
        match self {
            Device::Emulated(device) => Device::Emulated(device.empty_part()),
        }
    }

    #[inline]
    fn owns(&self, channel: u16) -> bool {
        match self {
            Device::Emulated(device) => device.owns(channel),
        }
    }

    fn is_quiet(&self, channel: u16) -> bool {
        match self {
            Device::Emulated(device) => device.is_quiet(channel),
        }
    }

    /// # Panics
    /// If the other part is of another kind, too.
    fn take_channel(&mut self, from: &mut Device, channel: u16) {
        match (self, from) {
            (Device::Emulated(device), Device::Emulated(from)) => device.take_channel(from, channel),
        }
    }
}
