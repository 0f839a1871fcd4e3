//! A medium together with who does its I/O, as a driver does it: for tests.

use diecut_media::{Capabilities, Command, Completion, Intent, IntentDone, Media};
use diecut_testing::Random;
use diecut_units::{EraseBlockAddress, Geometry, ProtectedMemory, Time};

/// Takes what the medium asks for, carries it out and answers, some of it later and in another order, as the seed says.
pub struct Driven<M, E> {
    medium: M,
    execute: E,
    /// Carried out and not answered yet.
    done: Vec<IntentDone>,
    intents: Vec<Intent>,
    random: Random,
}

impl<M: Media, E: FnMut(Intent) -> IntentDone> Driven<M, E> {
    /// With what carries out one intent.
    pub fn new(medium: M, execute: E, seed: u64) -> Driven<M, E> {
        Driven { medium, execute, done: Vec::new(), intents: Vec::new(), random: Random::of(seed) }
    }

    fn below(&mut self, end: u64) -> u64 {
        self.random.below(end)
    }
}

impl<M: Media, E: FnMut(Intent) -> IntentDone> Media for Driven<M, E> {
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
    fn advance(&mut self, now: Time, completions: &mut Vec<Completion>) {
        self.medium.advance(now, completions);
        self.medium.take_intents(&mut self.intents);
        while !self.intents.is_empty() {
            let at = self.below(self.intents.len() as u64) as usize;
            let done = (self.execute)(self.intents.swap_remove(at));
            self.done.push(done);
        }
        // At least one, so that it gets on; often not all.
        while !self.done.is_empty() {
            let at = self.below(self.done.len() as u64) as usize;
            let done = self.done.swap_remove(at);
            self.medium.intent_done(done, now);
            if self.below(3) == 0 {
                break;
            }
        }
    }
    fn make_room(&mut self, block: EraseBlockAddress, now: Time) -> bool {
        self.medium.make_room(block, now)
    }
    fn discard(&mut self, block: EraseBlockAddress, now: Time) {
        self.medium.discard(block, now);
    }
    fn next_event(&self) -> Time {
        if self.done.is_empty() { self.medium.next_event() } else { Time::ZERO }
    }
}
