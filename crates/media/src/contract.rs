use crate::{Capabilities, Command, Completion};
use diecut_units::{EraseBlockAddress, Geometry, ProtectedMemory, Time};

/// One flash device as the rooms above see it: commands in, completions out, time as a value.
///
/// The driver calls [`Media::advance`] whenever time reaches [`Media::next_event`], and after submitting.
pub trait Media {
    /// Shape of the device.
    fn geometry(&self) -> &Geometry;

    /// What the device can do.
    fn capabilities(&self) -> &Capabilities;

    /// Whether the maker marked this erase block bad. Such a block is never touched.
    fn is_factory_bad(&self, block: EraseBlockAddress) -> bool;

    /// Memory that survives a power cut, if the device has any. All calls return handles to the same memory.
    fn protected_memory(&self) -> Option<ProtectedMemory>;

    /// Accepts a command. Queueing is not bounded here; whoever submits keeps the queues (`vssd`).
    ///
    /// # Panics
    /// If the command breaks a flash rule: outside the geometry, out of order, twice without an erase, not
    /// whole program units, a copy across dies. These are bugs of the submitter, never facts of the medium.
    fn submit(&mut self, command: Command, now: Time);

    /// Lets time pass until `now` and appends what completed, in the order it did.
    fn advance(&mut self, now: Time, completions: &mut Vec<Completion>);

    /// Whether the device has room for what will be programmed into this erase block until its next erase, and keeps it for
    /// that. A device of silicon always has; one whose content lies in a file asks the file system, and answers `false` while
    /// that is full. Asked when a block is opened, before its erase; a program for which there is no room fails
    /// ([`crate::MediaError::NoRoom`]) and costs the block.
    fn make_room(&mut self, _block: EraseBlockAddress, _now: Time) -> bool {
        true
    }

    /// Nobody will read this erase block before it is erased: the device may forget its content, and give back the room it
    /// takes. Advice. Reads find nothing programmed afterwards, or what was there; an erase must come before the next program.
    fn discard(&mut self, _block: EraseBlockAddress, _now: Time) {}

    /// The number of the sync that should begin now, given out once. A medium over a volatile store keeps the completions of programs,
    /// copies and erases until a sync covers them; whoever drives it has the store synced, and answers with [`Media::synced`].
    /// `None`: nothing waits for one, or one is under way, and what came meanwhile is covered by the next. Asked after each
    /// [`Media::advance`]; [`Media::next_event`] is not later than now while one should begin.
    fn wants_sync(&mut self) -> Option<u64> {
        None
    }

    /// The sync of that number ended: everything stored before [`Media::wants_sync`] gave the number out is durable, or
    /// (`worked` is false) may be lost for good. Programs, copies and erases are answered with
    /// [`crate::MediaError::DieOffline`] from then on; reads go on. A number that is not under way, as of before a power
    /// cut, means nothing.
    fn synced(&mut self, _number: u64, _worked: bool, _now: Time) {}

    /// When something will happen next; [`Time::NEVER`] if nothing is under way. A value at or before the
    /// last `now` means that [`Media::advance`] has completions to give at once, or that a sync should begin.
    fn next_event(&self) -> Time;
}

impl<M: Media + ?Sized> Media for Box<M> {
    fn geometry(&self) -> &Geometry {
        (**self).geometry()
    }
    fn capabilities(&self) -> &Capabilities {
        (**self).capabilities()
    }
    fn is_factory_bad(&self, block: EraseBlockAddress) -> bool {
        (**self).is_factory_bad(block)
    }
    fn protected_memory(&self) -> Option<ProtectedMemory> {
        (**self).protected_memory()
    }
    fn submit(&mut self, command: Command, now: Time) {
        (**self).submit(command, now);
    }
    fn advance(&mut self, now: Time, completions: &mut Vec<Completion>) {
        (**self).advance(now, completions);
    }
    fn make_room(&mut self, block: EraseBlockAddress, now: Time) -> bool {
        (**self).make_room(block, now)
    }
    fn discard(&mut self, block: EraseBlockAddress, now: Time) {
        (**self).discard(block, now);
    }
    fn wants_sync(&mut self) -> Option<u64> {
        (**self).wants_sync()
    }
    fn synced(&mut self, number: u64, worked: bool, now: Time) {
        (**self).synced(number, worked, now);
    }
    fn next_event(&self) -> Time {
        (**self).next_event()
    }
}
