//! Staging slots of a store, and who may take one: a zone that is active is owed as many as it needs to go on, whatever other zones do.

use crate::slot::{FoundSlot, Slot, SlotName};
use diecut_units::ProtectedRegion;

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
        Staging { slots, free, returning: Vec::new(), lacking: 0, is_protected }
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

    /// A zone begins: it is owed so many slots.
    pub fn begin(&mut self, owed: u32) -> Claim {
        self.lacking += owed;
        Claim { owed, held: 0 }
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
        claim.owed = 0;
    }

    /// Takes a slot for a unit, if there is one for this zone now.
    pub fn take(&mut self, claim: &mut Claim, name: SlotName) -> Option<SlotIndex> {
        self.gather();
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
        let (mut quiet, mut busy) = (staging.begin(2), staging.begin(1));
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
}
