//! Intents that are carried out at once, and answered when it pleases a seed.

use diecut_media::{Intent, IntentDone};
use diecut_testing::Random;
use diecut_testing::driven::CarryOut;
use diecut_units::Time;

/// Carries out intents in any order, and answers some of them later and in another order, as the seed says.
pub struct Late<E> {
    execute: E,
    /// Carried out and not answered yet.
    done: Vec<IntentDone>,
    random: Random,
}

impl<E: FnMut(Intent) -> IntentDone> Late<E> {
    /// With what carries out one intent.
    pub fn new(execute: E, seed: u64) -> Late<E> {
        Late { execute, done: Vec::new(), random: Random::of(seed) }
    }
}

/// Takes any one out of a list that has some.
fn take_any<T>(random: &mut Random, list: &mut Vec<T>) -> T {
    list.swap_remove(random.below(list.len() as u64) as usize)
}

impl<E: FnMut(Intent) -> IntentDone> CarryOut for Late<E> {
    fn begin(&mut self, intents: &mut Vec<Intent>, _now: Time) {
        while !intents.is_empty() {
            let done = (self.execute)(take_any(&mut self.random, intents));
            self.done.push(done);
        }
    }

    fn end(&mut self, _now: Time, done: &mut Vec<IntentDone>) {
        // At least one, so that it gets on; often not all.
        while !self.done.is_empty() {
            done.push(take_any(&mut self.random, &mut self.done));
            if self.random.below(3) == 0 {
                break;
            }
        }
    }

    fn next_event(&self) -> Time {
        if self.done.is_empty() { Time::NEVER } else { Time::ZERO }
    }
}
