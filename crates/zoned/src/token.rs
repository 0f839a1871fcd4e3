//! Tokens of what a store asks of its space: the highest byte says who waits for the answer. A store of zones has its space for itself, so
//! the numbers are its own.

use diecut_units::token::space::KIND_MASK;
use diecut_vssd::space::SpaceToken;

/// Who in a store waits for an answer; below is the place of what it is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub(crate) enum Kind {
    Program = 1,
    Read = 2,
    CopyRead = 3,
    CopyProgram = 4,
    Sync = 5,
    Journal = 6,
    Opening = 7,
    Purge = 8,
}

const KINDS: [Kind; 8] = [
    Kind::Program,
    Kind::Read,
    Kind::CopyRead,
    Kind::CopyProgram,
    Kind::Sync,
    Kind::Journal,
    Kind::Opening,
    Kind::Purge,
];

impl Kind {
    /// The token of a place.
    #[inline]
    pub fn token(self, place: u32) -> SpaceToken {
        SpaceToken((self as u64) << 56 | u64::from(place))
    }

    /// Whose a token is, and the place.
    ///
    /// # Panics
    /// If it is nobody's.
    #[inline]
    pub fn of(token: SpaceToken) -> (Kind, u32) {
        let number = (token.0 & KIND_MASK) >> 56;
        let kind = KINDS.into_iter().find(|kind| *kind as u64 == number);
        (kind.expect("I-Z9: an answer is for whoever asked"), token.0 as u32)
    }
}
