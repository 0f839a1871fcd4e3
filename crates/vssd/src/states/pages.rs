//! How many pages of a block's present allocation are programmed: one word, which changes at once (`table` draws it).

use crate::u24::U24;
use diecut_units::checksum;
use zerocopy::little_endian::{U32, U64};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned, transmute};

/// Pages of a block, published as one word.
#[derive(Clone, Copy, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
pub(crate) struct PagesWord {
    pages: U24,
    check: u8,
    half_sequence: U32,
}

/// What the check of the pages is made of.
#[derive(Clone, Copy, IntoBytes, Immutable, Unaligned)]
#[repr(C)]
struct CheckedPages {
    block: U32,
    pages: U32,
    half_sequence: U32,
}

pub(crate) const PAGES_SIZE_BYTES: usize = size_of::<PagesWord>();
const _: () = assert!(PAGES_SIZE_BYTES == 8);

impl PagesWord {
    pub fn new(block: u32, pages: u32, sequence: u64) -> PagesWord {
        let half_sequence = sequence as u32;
        let check = check_of(block, pages, half_sequence);
        PagesWord { pages: U24::new(pages), check, half_sequence: half_sequence.into() }
    }

    /// What is published.
    pub fn word(self) -> u64 {
        let word: U64 = transmute!(self);
        word.get()
    }

    /// Pages of an allocation of the block: 0 if they belong to another one, `None` if the word is damaged.
    pub fn pages_of(&self, block: u32, sequence: u64) -> Option<u32> {
        let (pages, of) = (self.pages.get(), self.half_sequence.get());
        if self.as_bytes() == [0; PAGES_SIZE_BYTES] {
            return Some(0);
        }
        let holds = check_of(block, pages, of) == self.check;
        holds.then_some(if of == sequence as u32 { pages } else { 0 })
    }
}

fn check_of(block: u32, pages: u32, half_sequence: u32) -> u8 {
    let (block, pages, half_sequence) = (block.into(), pages.into(), half_sequence.into());
    checksum(CheckedPages { block, pages, half_sequence }.as_bytes()) as u8
}
