//! A device whose commands a test sees before the device does.

use diecut_emulator::Device;
use diecut_media::{Capabilities, Command, Completion, Media, MediaError};
use diecut_units::{EraseBlockAddress, Geometry, ProtectedMemory, Time};

/// What a test does with the commands of a medium.
pub trait Tap {
    /// A command on its way to the device, which gets what is given back: as it came, changed, others, or nothing yet. `Err` answers it at
    /// once, and the device never sees it.
    fn pass(&mut self, command: Command, device: &Device) -> Vec<Result<Command, (Command, MediaError)>>;
}

/// See the module.
pub struct Tapped<T> {
    /// The device behind it.
    pub device: Device,
    /// What sees the commands.
    pub tap: T,
    answered: Vec<Completion>,
}

impl<T: Tap> Tapped<T> {
    /// A device behind a tap.
    pub fn new(device: Device, tap: T) -> Tapped<T> {
        Tapped { device, tap, answered: Vec::new() }
    }
}

impl<T: Tap> Media for Tapped<T> {
    fn geometry(&self) -> &Geometry {
        self.device.geometry()
    }
    fn capabilities(&self) -> &Capabilities {
        self.device.capabilities()
    }
    fn is_factory_bad(&self, block: EraseBlockAddress) -> bool {
        self.device.is_factory_bad(block)
    }
    fn protected_memory(&self) -> Option<ProtectedMemory> {
        self.device.protected_memory()
    }
    fn submit(&mut self, command: Command, now: Time) {
        for passed in self.tap.pass(command, &self.device) {
            match passed {
                Ok(command) => self.device.submit(command, now),
                Err((Command { token, .. }, error)) => {
                    self.answered.push(Completion::plain(token, Err(error)));
                }
            }
        }
    }
    fn advance(&mut self, now: Time, completions: &mut Vec<Completion>) {
        completions.append(&mut self.answered);
        self.device.advance(now, completions);
    }
    fn next_event(&self) -> Time {
        if self.answered.is_empty() { self.device.next_event() } else { Time::ZERO }
    }
}
