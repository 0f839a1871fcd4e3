//! One device of any kind, and what a driver asks it beyond the flash contract.

use crate::{DeviceError, Options, Profile, RoomSupport, RoomWorker, SyncFile};
use diecut_drives::DriveMedium;
use diecut_media::{
    Capabilities, Command, Completion, Divide, Intent, IntentDone, Media, MediaToken, StreamId,
};
use diecut_units::{EraseBlockAddress, Geometry, ProtectedMemory, Time};
use std::path::Path;

/// A device of one of the kinds that there are.
#[allow(clippy::large_enum_variant, reason = "a shard has one, and each command would go through a pointer")]
pub enum Device {
    /// Emulated NAND.
    Emulated(diecut_emulator::Device),
    /// A drive that hides its flash. Its driver carries out all that it asks for ([`Media::take_intents`]).
    Drive(DriveMedium),
}

impl From<diecut_emulator::Device> for Device {
    fn from(device: diecut_emulator::Device) -> Device {
        Device::Emulated(device)
    }
}

impl From<DriveMedium> for Device {
    fn from(drive: DriveMedium) -> Device {
        Device::Drive(drive)
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

    /// The emulator behind it, which can be asked and told what no other device can: profile and seed, erases, faults, power, times of its
    /// parts. `None` of a drive.
    #[inline]
    pub fn as_emulated(&self) -> Option<&diecut_emulator::Device> {
        match self {
            Device::Emulated(device) => Some(device),
            Device::Drive(_) => None,
        }
    }

    /// See [`Device::as_emulated`]; for those who made it and know that it is one.
    ///
    /// # Panics
    /// If it is a drive.
    #[inline]
    pub fn emulated(&self) -> &diecut_emulator::Device {
        self.as_emulated().expect("only emulated devices are made here")
    }

    /// See [`Device::emulated`].
    ///
    /// # Panics
    /// If it is a drive.
    #[inline]
    pub fn emulated_mut(&mut self) -> &mut diecut_emulator::Device {
        match self {
            Device::Emulated(device) => device,
            Device::Drive(_) => panic!("only emulated devices are made here"),
        }
    }

    /// What the file system under a device in a file can do; `None` for a device without a file.
    pub fn room_support(&self) -> Option<RoomSupport> {
        match self {
            Device::Emulated(device) => device.room_support(),
            Device::Drive(_) => None,
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
            Device::Drive(_) => None,
        }
    }

    /// What the driver syncs when [`Media::take_intents`] says so: of a device that survives the death of the machine.
    pub fn sync_file(&self) -> Option<SyncFile> {
        match self {
            Device::Emulated(device) => device.sync_file(),
            Device::Drive(_) => None,
        }
    }
}

impl Media for Device {
    #[inline]
    fn geometry(&self) -> &Geometry {
        match self {
            Device::Emulated(device) => device.geometry(),
            Device::Drive(drive) => drive.geometry(),
        }
    }

    #[inline]
    fn capabilities(&self) -> &Capabilities {
        match self {
            Device::Emulated(device) => device.capabilities(),
            Device::Drive(drive) => drive.capabilities(),
        }
    }

    #[inline]
    fn is_factory_bad(&self, block: EraseBlockAddress) -> bool {
        match self {
            Device::Emulated(device) => device.is_factory_bad(block),
            Device::Drive(drive) => drive.is_factory_bad(block),
        }
    }

    fn protected_memory(&self) -> Option<ProtectedMemory> {
        match self {
            Device::Emulated(device) => device.protected_memory(),
            Device::Drive(drive) => drive.protected_memory(),
        }
    }

    // In place: a command is large, and a call in between moves it once more.
    #[inline]
    fn submit(&mut self, command: Command, now: Time) {
        match self {
            Device::Emulated(device) => device.submit(command, now),
            Device::Drive(drive) => drive.submit(command, now),
        }
    }

    fn flush(&mut self, token: MediaToken, now: Time) {
        match self {
            Device::Emulated(device) => device.flush(token, now),
            Device::Drive(drive) => drive.flush(token, now),
        }
    }

    #[inline]
    fn advance(&mut self, now: Time, completions: &mut Vec<Completion>) {
        match self {
            Device::Emulated(device) => device.advance(now, completions),
            Device::Drive(drive) => drive.advance(now, completions),
        }
    }

    #[inline]
    fn make_room(&mut self, block: EraseBlockAddress, now: Time) -> bool {
        match self {
            Device::Emulated(device) => device.make_room(block, now),
            Device::Drive(drive) => drive.make_room(block, now),
        }
    }

    #[inline]
    fn discard(&mut self, block: EraseBlockAddress, now: Time) {
        match self {
            Device::Emulated(device) => device.discard(block, now),
            Device::Drive(drive) => drive.discard(block, now),
        }
    }

    #[inline]
    fn place(&mut self, block: EraseBlockAddress, stream: StreamId) {
        match self {
            Device::Emulated(device) => device.place(block, stream),
            Device::Drive(drive) => drive.place(block, stream),
        }
    }

    #[inline]
    fn take_intents(&mut self, intents: &mut Vec<Intent>) {
        match self {
            Device::Emulated(device) => device.take_intents(intents),
            Device::Drive(drive) => drive.take_intents(intents),
        }
    }

    #[inline]
    fn intent_done(&mut self, done: IntentDone, now: Time) {
        match self {
            Device::Emulated(device) => device.intent_done(done, now),
            Device::Drive(drive) => drive.intent_done(done, now),
        }
    }

    #[inline]
    fn next_event(&self) -> Time {
        match self {
            Device::Emulated(device) => device.next_event(),
            Device::Drive(drive) => drive.next_event(),
        }
    }
}

impl Divide for Device {
    fn empty_part(&mut self) -> Device {
        match self {
            Device::Emulated(device) => Device::Emulated(device.empty_part()),
            Device::Drive(drive) => Device::Drive(drive.empty_part()),
        }
    }

    #[inline]
    fn owns(&self, channel: u16) -> bool {
        match self {
            Device::Emulated(device) => device.owns(channel),
            Device::Drive(drive) => drive.owns(channel),
        }
    }

    fn is_quiet(&self, channel: u16) -> bool {
        match self {
            Device::Emulated(device) => device.is_quiet(channel),
            Device::Drive(drive) => drive.is_quiet(channel),
        }
    }

    /// # Panics
    /// If the other part is of another kind.
    fn take_channel(&mut self, from: &mut Device, channel: u16) {
        match (self, from) {
            (Device::Emulated(device), Device::Emulated(from)) => device.take_channel(from, channel),
            (Device::Drive(drive), Device::Drive(from)) => drive.take_channel(from, channel),
            _ => panic!("parts of one device are of one kind"),
        }
    }
}
