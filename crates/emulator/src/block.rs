//! State of erase blocks: how far they are programmed, how worn they are, which pages are not what was
//! programmed.

use diecut_units::{BlockIndex, EraseBlockAddress, Geometry};
use std::collections::BTreeMap;

/// Bits of [`Block::flags`].
pub(crate) const FACTORY_BAD: u8 = 1;
/// An erase was cut: the block must be erased again before it is programmed.
pub(crate) const ERASE_CUT: u8 = 2;
/// An erase failed: nothing can be programmed.
pub(crate) const ERASE_FAILED: u8 = 4;
/// Some pages have a [`PageMark`].
pub(crate) const HAS_MARKS: u8 = 8;

/// One erase block.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Block {
    /// Next page once everything submitted is done; what the rules are checked against.
    pub(crate) submitted_page: u32,
    /// Next page of the cells.
    pub(crate) programmed_page: u32,
    /// Erases so far.
    pub(crate) erase_count: u32,
    /// Programs, erases and copies submitted and not yet complete.
    pub(crate) pending: u16,
    pub(crate) flags: u8,
    /// Where its content lies in the store: its number, unless the store gives out places.
    pub(crate) place: u32,
    /// Where its content lies there is room for all of it; see [`diecut_media::Media::make_room`].
    pub(crate) has_room: bool,
    /// When it was programmed first since the last erase, in seconds: retention.
    pub(crate) programmed_at_s: u32,
}

impl Block {
    pub(crate) fn has(&self, flag: u8) -> bool {
        self.flags & flag != 0
    }
}

/// Where an erase block lies, by its number; see [`Geometry::erase_block_number`].
pub(crate) fn address_of(geometry: &Geometry, block: u64) -> EraseBlockAddress {
    let per_die = u64::from(geometry.erase_blocks_per_die());
    let die = geometry.die_at((block / per_die) as u32);
    die.erase_block(BlockIndex((block % per_die) as u32))
}

/// A page below the write position that does not read as programmed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum PageMark {
    /// Reads as uncorrectable: torn, lost with its word line, or of a failed program.
    Garbage,
    /// Reads as erased: a torn program that did not reach this page, or a torn erase that did.
    Erased,
}

/// Marks of all pages, by erase block number and page.
#[derive(Default)]
pub(crate) struct Marks {
    pages: BTreeMap<(u64, u32), PageMark>,
}

impl Marks {
    pub(crate) fn set(&mut self, block: u64, page: u32, mark: PageMark) {
        self.pages.insert((block, page), mark);
    }

    pub(crate) fn get(&self, block: u64, page: u32) -> Option<PageMark> {
        self.pages.get(&(block, page)).copied()
    }

    /// Moves the marks of some blocks from another list.
    pub(crate) fn take_from(&mut self, other: &mut Marks, blocks: std::ops::Range<usize>) {
        let mut rest = other.pages.split_off(&(blocks.start as u64, 0));
        let mut after = rest.split_off(&(blocks.end as u64, 0));
        other.pages.append(&mut after);
        self.pages.append(&mut rest);
    }

    pub(crate) fn clear_block(&mut self, block: u64) {
        while let Some((&key, _)) = self.pages.range((block, 0)..(block + 1, 0)).next() {
            self.pages.remove(&key);
        }
    }
}
