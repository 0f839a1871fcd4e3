//! A medium together with who carries out what it asks for, as a driver does it.

use diecut_media::{Capabilities, Command, Completion, Intent, IntentDone, Media, MediaToken, StreamId};
use diecut_units::{EraseBlockAddress, Geometry, ProtectedMemory, Time};

/// Who carries out intents.
pub trait CarryOut {
    /// Begins with intents; none is left in the list.
    fn begin(&mut self, intents: &mut Vec<Intent>, now: Time);
    /// Appends what is done by now.
    fn end(&mut self, now: Time, done: &mut Vec<IntentDone>);
    /// When [`CarryOut::end`] has something; [`Time::NEVER`] if nothing is under way.
    fn next_event(&self) -> Time;
}

/// The model of a drive.
#[cfg(feature = "flash")]
impl CarryOut for diecut_emulator::drive::Drive {
    fn begin(&mut self, intents: &mut Vec<Intent>, now: Time) {
        intents.drain(..).for_each(|intent| self.submit(intent, now));
    }
    fn end(&mut self, now: Time, done: &mut Vec<IntentDone>) {
        self.advance(now, done);
    }
    fn next_event(&self) -> Time {
        diecut_emulator::drive::Drive::next_event(self)
    }
}

/// See the module.
pub struct Driven<M, I> {
    /// The medium.
    pub medium: M,
    /// Who carries out what it asks for.
    pub io: I,
    intents: Vec<Intent>,
    done: Vec<IntentDone>,
}

impl<M: Media, I: CarryOut> Driven<M, I> {
    /// Both together.
    pub fn new(medium: M, io: I) -> Driven<M, I> {
        Driven { medium, io, intents: Vec::new(), done: Vec::new() }
    }
}

impl<M: Media, I: CarryOut> Media for Driven<M, I> {
    fn geometry(&self) -> &Geometry {
        self.medium.geometry()
    }
    fn capabilities(&self) -> &Capabilities {
        self.medium.capabilities()
    }
    fn is_factory_bad(&self, block: EraseBlockAddress) -> bool {
        self.medium.is_factory_bad(block)
    }
    fn protected_memory(&self) -> Option<ProtectedMemory> {
        self.medium.protected_memory()
    }
    fn submit(&mut self, command: Command, now: Time) {
        self.medium.submit(command, now);
    }
    fn flush(&mut self, token: MediaToken, now: Time) {
        self.medium.flush(token, now);
    }
    fn advance(&mut self, now: Time, completions: &mut Vec<Completion>) {
        self.io.end(now, &mut self.done);
        for done in self.done.drain(..) {
            self.medium.intent_done(done, now);
        }
        self.medium.advance(now, completions);
        self.medium.take_intents(&mut self.intents);
        self.io.begin(&mut self.intents, now);
    }
    fn make_room(&mut self, block: EraseBlockAddress, now: Time) -> bool {
        self.medium.make_room(block, now)
    }
    fn discard(&mut self, block: EraseBlockAddress, now: Time) {
        self.medium.discard(block, now);
    }
    fn place(&mut self, block: EraseBlockAddress, stream: StreamId) {
        self.medium.place(block, stream);
    }
    fn next_event(&self) -> Time {
        self.medium.next_event().min(self.io.next_event())
    }
}
