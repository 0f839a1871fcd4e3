//! Purges of a store: what zones held that were reset, and what random write areas held before they were written over, leaves protected
//! memory and flash. Zones that ended gave their erase blocks back before that was answered, so the space has all that is to be erased.
//!
//! One goes on at a time, and whoever asks meanwhile waits for the next one.

use crate::contract::{ZoneAnswer, ZoneCompletion, ZoneError, ZoneToken};
use crate::staging::Staging;
use crate::token::Kind;
use diecut_vssd::space::{EraseBlockSpace, SpaceError};

/// See the module.
#[derive(Default)]
pub(crate) struct Purging {
    asked: Vec<ZoneToken>,
    under_way: Vec<ZoneToken>,
    /// The space was asked to erase.
    is_erasing: bool,
}

impl Purging {
    /// Somebody asks for one.
    pub fn push(&mut self, token: ZoneToken) {
        self.asked.push(token);
    }

    /// Whether nobody waits.
    pub fn is_empty(&self) -> bool {
        self.asked.is_empty() && self.under_way.is_empty()
    }

    /// Lets it go on. Whether it is to be looked at again soon, though nothing will tell: somebody below still reads a slot.
    pub fn go_on(&mut self, staging: &mut Staging, space: &mut dyn EraseBlockSpace) -> bool {
        if self.under_way.is_empty() && !self.asked.is_empty() {
            self.under_way.append(&mut self.asked);
            staging.wipe();
        }
        if self.under_way.is_empty() || self.is_erasing {
            return false;
        }
        if !staging.wipe_again() {
            return true;
        }
        self.is_erasing = true;
        space.erase_freed(Kind::Purge.token(0));
        false
    }

    /// The space erased what was freed, or could not.
    pub fn erased(&mut self, result: Result<(), SpaceError>, completions: &mut Vec<ZoneCompletion>) {
        self.is_erasing = false;
        for token in self.under_way.drain(..) {
            let result = match result {
                Ok(()) => Ok(ZoneAnswer::Done),
                Err(SpaceError::NotErased { .. }) => {
                    Err(ZoneError::NotErased { reason: "erase blocks that went bad could not be erased" })
                }
                Err(SpaceError::PowerLost) => Err(ZoneError::Gone),
                Err(_) => Err(ZoneError::ReadOnly { reason: "what is erased cannot be written down" }),
            };
            completions.push(ZoneCompletion { token, result });
        }
    }

    /// None of them will be done.
    pub fn take_all(&mut self) -> impl Iterator<Item = ZoneToken> {
        std::mem::take(&mut self.under_way).into_iter().chain(std::mem::take(&mut self.asked))
    }
}

#[cfg(test)]
mod test {
    use super::*;
    use crate::slot::{Slot, SlotName};
    use diecut_testing::Random;
    use diecut_testing::fake_space::{FakeSpace, shape};
    use diecut_units::{ContentMode, ProtectedMemory};

    /// Goal: what was staged is gone when a purge is answered, also what somebody below still reads when it begins. Method: a slot of protected
    /// memory whose unit is being programmed while its zone ends.
    #[test]
    fn a_slot_that_is_read_below_is_waited_for() {
        let size = Slot::size_bytes(2, 8);
        let memory = ProtectedMemory::in_memory(size);
        let mut staging = Staging::new(Some(memory.region(0..size)), 0, 2, 8);
        let mut claim = staging.begin(1);
        let name = SlotName { set: 1, zone: 2, generation: 3, unit: 4, is_random: false };
        let index = staging.take(&mut claim, name).expect("it is free");
        (0..2).for_each(|iu| staging.slot_mut(index).put(iu, &[0xd1; 8]));
        let read_below = staging.slot_mut(index).payload(ContentMode::Tags);
        staging.release(&mut claim, index);

        let mut space = FakeSpace::new(shape(ContentMode::Tags, 0), 1, 4);
        let (mut purging, mut answers) = (Purging::default(), Vec::new());
        purging.push(ZoneToken(7));
        for _ in 0..2 {
            assert!(purging.go_on(&mut staging, &mut space), "it is to be looked at again");
            assert!(space.is_idle());
        }
        drop(read_below);
        assert!(!purging.go_on(&mut staging, &mut space));
        let answer = space.step(&mut Random::of(1)).expect("the space was asked to erase");
        assert!(!purging.go_on(&mut staging, &mut space) && space.is_idle(), "once");
        purging.erased(answer.result, &mut answers);
        let [ZoneCompletion { token: ZoneToken(7), result: Ok(ZoneAnswer::Done) }] = answers[..] else {
            panic!("{answers:?}")
        };
        assert!(purging.is_empty());
        drop(staging);
        assert!(!memory.region(0..size).windows(8).any(|bytes| bytes == [0xd1; 8]));
    }
}
