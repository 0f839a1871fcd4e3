//! Whose content erase blocks may still hold that no holder has any more, and how they are taken to be erased for that (`core/purge.rs`).

use super::{Blocks, Use};
use crate::VssdId;

/// Whose content a block may still hold that no holder has any more.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Left {
    /// Nobody's: it was erased, or never held anything.
    #[default]
    Nobody,
    One(VssdId),
    /// That of several, or it is not known.
    Anybody,
}

impl Left {
    /// Whether it may be this one's.
    pub fn concerns(self, id: VssdId) -> bool {
        match self {
            Left::Nobody => false,
            Left::One(one) => one == id,
            Left::Anybody => true,
        }
    }

    /// With what this one left besides.
    pub fn and(self, id: VssdId) -> Left {
        match self {
            Left::Nobody => Left::One(id),
            Left::One(one) if one == id => self,
            Left::One(_) | Left::Anybody => Left::Anybody,
        }
    }
}

impl Blocks {
    /// Takes a block that is free or retired, to erase it for nobody.
    pub fn take_for_purge(&mut self, number: u32) {
        if self[number].use_of() == Use::Free {
            self.unlist_free(number);
        }
        self[number].take_for_purge();
    }

    /// It is what it was before; one that was free is retired if it is bad now.
    pub fn end_of_purge(&mut self, number: u32, is_bad: bool, change: u64) {
        match self[number].use_of() {
            Use::Purged { was_retired: true } => self[number].stay_retired(),
            _ => self.release(number, is_bad, change),
        }
    }
}

#[cfg(test)]
mod test {
    use super::*;

    #[test]
    fn what_is_left_is_known_or_anybodys() {
        let (one, other) = (VssdId(3), VssdId(4));
        assert!(!Left::Nobody.concerns(one));
        let left = Left::Nobody.and(one).and(one);
        assert!(left.concerns(one) && !left.concerns(other));
        assert!(left.and(other).concerns(one) && left.and(other).concerns(other));
    }
}
