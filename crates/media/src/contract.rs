use crate::{Capabilities, Command, Completion, Intent, IntentDone, MediaToken, StreamId};
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

    /// Has all programs survive a power cut that were answered before this call; others may come with them. It is answered like a
    /// command: [`crate::MediaError::FlushFailed`] means that what was programmed since the last one that worked may be lost for
    /// good, whatever a later one says, and that the medium takes no programs any more. Flushes that wait for each other are one.
    ///
    /// # Panics
    /// If [`Capabilities::volatile_cache`] does not hold: there is nothing to flush.
    fn flush(&mut self, _token: MediaToken, _now: Time) {
        panic!("a flush of a medium without a volatile cache")
    }

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

    /// What is programmed into this erase block from now on belongs to a stream. A device that can be told apart what is given up together places it
    /// so. Advice.
    fn place(&mut self, _block: EraseBlockAddress, _stream: StreamId) {}

    /// Appends what the medium asks its driver to do, each intent once. A medium in memory asks for nothing; one that stands for a
    /// file or a drive may ask for all its I/O, one that reads and writes by itself for syncs. Asked after each [`Media::advance`];
    /// [`Media::next_event`] is not later than now while there are some.
    fn take_intents(&mut self, _intents: &mut Vec<Intent>) {}

    /// An intent was carried out, or not. Where a sync failed, what was answered before is durable and nothing later is: programs,
    /// copies and erases are answered with [`crate::MediaError::DieOffline`] from then on; reads go on. An answer to an intent of before
    /// a power cut means nothing.
    fn intent_done(&mut self, _done: IntentDone, _now: Time) {}

    /// When something will happen next; [`Time::NEVER`] if nothing is under way. A value at or before the
    /// last `now` means that [`Media::advance`] has completions to give at once, or that there are intents to take.
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
    fn flush(&mut self, token: MediaToken, now: Time) {
        (**self).flush(token, now);
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
    fn place(&mut self, block: EraseBlockAddress, stream: StreamId) {
        (**self).place(block, stream);
    }
    fn take_intents(&mut self, intents: &mut Vec<Intent>) {
        (**self).take_intents(intents);
    }
    fn intent_done(&mut self, done: IntentDone, now: Time) {
        (**self).intent_done(done, now);
    }
    fn next_event(&self) -> Time {
        (**self).next_event()
    }
}
