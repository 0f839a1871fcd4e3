//! Staging slots of a store, and who may take one: a zone is owed as many as it needs to go on, whatever other zones do.
//!
//! Hosts may fill zones faster than they are programmed, and a zone that is full counts as active no more. So more zones may want slots than all
//! of them serve: they are promised in turn, and who waits for a promise has none. Zones that had some each would wait for one another for ever.

use crate::slot::{FoundSlot, Slot, SlotName};
use diecut_units::{ProtectedRegion, mutant};
use std::collections::BTreeSet;

/// A slot of a store.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct SlotIndex(pub u32);

/// What a zone is owed, and has.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Claim {
    /// Slots that it can always have.
    pub owed: u32,
    /// Slots that it has.
    pub held: u32,
    /// Slots that it is to be owed when its turn comes.
    asked: u32,
    turn: u64,
    /// Hosts write no more to its zone: what it is owed comes back.
    ends: bool,
}

impl Claim {
    fn lacks(&self) -> u32 {
        self.owed.saturating_sub(self.held)
    }
}

/// See the module.
pub(crate) struct Staging {
    slots: Vec<Slot>,
    free: Vec<u32>,
    /// Slots that were given back while somebody below still read them.
    returning: Vec<u32>,
    /// What all claims lack.
    lacking: u32,
    /// Turns of claims that wait for a promise.
    asking: BTreeSet<u64>,
    next_turn: u64,
    /// Claims with a promise that end by themselves.
    ending: u32,
    /// Counts what others may have waited for.
    changes: u64,
    is_protected: bool,
}

impl Staging {
    /// As many slots as a region of protected memory has room for, or `plain` in ordinary memory.
    pub fn new(region: Option<ProtectedRegion>, plain: u32, unit_ius: u32, iu_bytes: usize) -> Staging {
        let is_protected = region.is_some();
        let slots: Vec<Slot> = match region {
            Some(mut region) => {
                let size = Slot::size_bytes(unit_ius, iu_bytes);
                let count = region.len() / size;
                (0..count).map(|_| Slot::protected(region.split_to(size), unit_ius, iu_bytes)).collect()
            }
            None => (0..plain).map(|_| Slot::plain(unit_ius, iu_bytes)).collect(),
        };
        let free = (0..slots.len() as u32).rev().collect();
        Staging {
            slots,
            free,
            returning: Vec::new(),
            lacking: 0,
            asking: BTreeSet::new(),
            next_turn: 0,
            ending: 0,
            changes: 0,
            is_protected,
        }
    }

    /// Whether what is staged survives a power cut.
    pub fn is_protected(&self) -> bool {
        self.is_protected
    }

    /// What each slot holds after a restart. Only those that hold nothing are free from then on.
    pub fn take_found(&mut self) -> Vec<(SlotIndex, FoundSlot)> {
        let found = (0..).zip(&mut self.slots).map(|(index, slot)| (SlotIndex(index), slot.found()));
        let found: Vec<_> = found.filter(|(_, found)| *found != FoundSlot::Empty).collect();
        self.free.retain(|free| !found.iter().any(|(index, _)| index.0 == *free));
        found
    }

    /// Slots of protected memory are cleared of what does not count, now or as soon as nobody below reads them.
    pub fn wipe(&mut self) {
        if self.is_protected {
            self.slots.iter_mut().for_each(Slot::wipe_unused);
        }
    }

    /// Clears those that could not be. Whether none is left.
    pub fn wipe_again(&mut self) -> bool {
        self.slots.iter_mut().all(Slot::wipe_again)
    }

    /// A zone begins: it is to be owed so many slots.
    pub fn begin(&mut self, asked: u32) -> Claim {
        self.next_turn += 1;
        self.asking.insert(self.next_turn);
        Claim { asked, turn: self.next_turn, ..Claim::default() }
    }

    /// A zone that was there before a restart: it is owed so many slots, and what it holds is among them.
    pub fn begin_again(&mut self, owed: u32) -> Claim {
        self.lacking += owed;
        Claim { owed, ..Claim::default() }
    }

    /// Promises a claim what it asks for, if it is its turn and there is enough for it beside all promises of before. Whether it has a promise.
    ///
    /// Where no promise ends by itself nobody waits for one: after a restart more zones may be active than staging serves, for one that
    /// was full has lost what was not answered, and a zone that wears out keeps what it holds.
    fn promise(&mut self, claim: &mut Claim) -> bool {
        if claim.asked == 0 {
            return true;
        }
        let is_next = self.asking.first() == Some(&claim.turn);
        let has_room = self.free.len() as u32 >= self.lacking + claim.asked;
        let may = is_next && (has_room || self.ending == 0)
            || mutant!("zoned: slots are promised to more zones than they serve");
        if !may {
            return false;
        }
        self.asking.remove(&claim.turn);
        self.lacking += claim.asked;
        claim.owed = std::mem::take(&mut claim.asked);
        self.ending += u32::from(claim.ends);
        self.changes += 1;
        true
    }

    /// Hosts write no more to a zone.
    pub fn will_end(&mut self, claim: &mut Claim) {
        if !std::mem::replace(&mut claim.ends, true) && claim.owed > 0 {
            self.ending += 1;
        }
    }

    /// Rises when a slot may be had that could not, or when a promise may.
    pub fn changes(&self) -> u64 {
        self.changes
    }

    /// A slot that was found after a restart belongs to a zone.
    pub fn adopt(&mut self, claim: &mut Claim) {
        self.lacking -= claim.lacks();
        claim.held += 1;
        self.lacking += claim.lacks();
    }

    /// A zone needs no more slots than it has.
    pub fn end(&mut self, claim: &mut Claim) {
        self.lacking -= claim.lacks();
        let asked = std::mem::take(&mut claim.asked) > 0;
        let owed = std::mem::take(&mut claim.owed) > 0;
        self.ending -= u32::from(owed && claim.ends);
        if asked {
            self.asking.remove(&claim.turn);
        }
        self.changes += u64::from(asked || owed);
    }

    /// Takes a slot for a unit, if there is one for this zone now.
    pub fn take(&mut self, claim: &mut Claim, name: SlotName) -> Option<SlotIndex> {
        self.gather();
        if !self.promise(claim) {
            return None;
        }
        let is_owed = claim.lacks() > 0;
        if !is_owed && self.free.len() as u32 <= self.lacking {
            return None;
        }
        let index = self.free.pop()?;
        self.lacking -= u32::from(is_owed);
        claim.held += 1;
        self.slots[index as usize].start(name);
        Some(SlotIndex(index))
    }

    /// Gives a slot back; what it holds does not count any more.
    pub fn release(&mut self, claim: &mut Claim, index: SlotIndex) {
        assert!(claim.held > 0, "I-Z6: a zone gives back what it has");
        self.lacking -= claim.lacks();
        claim.held -= 1;
        self.lacking += claim.lacks();
        self.drop_found(index);
    }

    /// Empties a slot that no zone has.
    pub fn drop_found(&mut self, index: SlotIndex) {
        self.changes += 1;
        let slot = &mut self.slots[index.0 as usize];
        slot.release();
        if slot.is_free() {
            self.free.push(index.0);
        } else {
            self.returning.push(index.0);
        }
        assert!(self.free.len() <= self.slots.len(), "I-Z6: a slot is free once");
    }

    fn gather(&mut self) {
        if self.returning.is_empty() {
            return;
        }
        let slots = &mut self.slots;
        let back = self.returning.extract_if(.., |index| slots[*index as usize].is_free());
        self.free.extend(back);
    }

    /// A slot.
    #[inline]
    pub fn slot(&self, index: SlotIndex) -> &Slot {
        &self.slots[index.0 as usize]
    }

    /// A slot, to be changed.
    #[inline]
    pub fn slot_mut(&mut self, index: SlotIndex) -> &mut Slot {
        &mut self.slots[index.0 as usize]
    }
}

#[cfg(test)]
mod test {
    use super::*;

    const NAME: SlotName = SlotName { set: 1, zone: 2, generation: 3, unit: 4, is_random: false };

    /// Goal: nobody takes what another zone is owed, and nothing is lost on the way. Method: a busy zone takes all it can get.
    #[test]
    fn what_is_owed_is_there() {
        let mut staging = Staging::new(None, 6, 2, 8);
        let (mut quiet, mut busy) = (staging.begin_again(2), staging.begin(1));
        let mut taken = Vec::new();
        while let Some(index) = staging.take(&mut busy, NAME) {
            taken.push(index);
        }
        assert_eq!(taken.len(), 4, "its own, and the three that nobody is owed");
        let first = staging.take(&mut quiet, NAME).expect("owed");
        staging.take(&mut quiet, NAME).expect("owed");
        assert_eq!(staging.take(&mut quiet, NAME), None);
        staging.release(&mut quiet, first);
        assert_eq!(staging.take(&mut busy, NAME), None, "it is owed again");
        staging.end(&mut quiet);
        assert!(staging.take(&mut busy, NAME).is_some(), "it is owed nothing any more");
    }

    /// Goal: promises are kept, in turn, and a claim that waits holds nothing. Method: three claims on slots that serve two of them.
    #[test]
    fn promises_are_made_in_turn() {
        let mut staging = Staging::new(None, 5, 2, 8);
        let (mut first, mut second, mut third) = (staging.begin(2), staging.begin(3), staging.begin(1));
        assert_eq!(staging.take(&mut second, NAME), None, "it is not its turn");
        let held = staging.take(&mut first, NAME).expect("it is its turn");
        assert!(staging.take(&mut second, NAME).is_some());
        staging.will_end(&mut first);
        assert_eq!(staging.take(&mut third, NAME), None, "all are promised, and some come back");
        let before = staging.changes();
        staging.release(&mut first, held);
        staging.end(&mut first);
        assert!(staging.changes() > before, "whoever waits is to try again");
        assert!(staging.take(&mut third, NAME).is_some());
        let (mut fourth, mut fifth) = (staging.begin(1), staging.begin(1));
        assert_eq!(staging.take(&mut fifth, NAME), None, "it is the turn of the one before");
        staging.end(&mut fourth);
        assert!(staging.take(&mut fifth, NAME).is_some(), "who ends waits no more");
        let mut last = staging.begin(2);
        assert_eq!(staging.ending, 0);
        assert!(staging.take(&mut last, NAME).is_some(), "what never comes back is not waited for");
    }
}
