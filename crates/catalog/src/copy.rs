//! One copy of the catalog: two erase blocks of one die, used in turn.

use crate::frame::{FRAME_HEADER_SIZE_BYTES, Place};
use diecut_media::{Media, MediaToken};
use diecut_units::EraseBlockAddress;

/// Set in every media token of a catalog; other submitters to the same medium leave it clear.
pub const CATALOG_TOKEN_BIT: u64 = diecut_units::token::media::CATALOG;

/// The token of a command to a block of a copy.
pub(crate) fn token(copy: usize, block: usize) -> MediaToken {
    MediaToken(CATALOG_TOKEN_BIT | (copy as u64) << 1 | block as u64)
}

/// Sizes that the medium prescribes.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Shape {
    pub unit_pages: u32,
    pub page_size_bytes: u32,
    pub oob_size_bytes: u32,
    pub pages_per_erase_block: u32,
    /// The UUID of the device, where pages have no OOB areas.
    pub device: Option<[u8; 16]>,
    /// Whether only a flush makes programs durable.
    pub flushes: bool,
}

impl Shape {
    /// Of a medium; `device` is its UUID, which counts where pages have no OOB areas.
    pub fn of<M: Media + ?Sized>(media: &M, device: [u8; 16]) -> Shape {
        let geometry = media.geometry();
        Shape {
            unit_pages: media.capabilities().program_unit_pages,
            page_size_bytes: geometry.page_size_bytes,
            oob_size_bytes: geometry.oob_size_bytes,
            pages_per_erase_block: geometry.pages_per_erase_block(),
            device: (!geometry.has_oob()).then_some(device),
            flushes: media.capabilities().volatile_cache,
        }
    }

    /// Bytes of records that one frame, which is one program unit, can hold.
    pub fn records_of_a_frame(&self) -> usize {
        (self.unit_pages * self.page_size_bytes) as usize - FRAME_HEADER_SIZE_BYTES
    }

    /// Frames that so many bytes of records take.
    pub fn frames(&self, records_bytes: u64) -> u64 {
        records_bytes.div_ceil(self.records_of_a_frame() as u64).max(1)
    }

    pub fn frames_per_block(&self) -> u64 {
        u64::from(self.pages_per_erase_block / self.unit_pages)
    }
}

pub(crate) struct Copy {
    pub blocks: [EraseBlockAddress; 2],
    /// The block that frames are appended to, once it was erased for that since opening.
    current: usize,
    next_page: u32,
    /// Checksum of the last frame in the present block.
    chain: u32,
    /// Number of the state that the present block ends with; absent if nothing can be appended to it.
    holds: Option<u64>,
    failed: [bool; 2],
}

impl Copy {
    pub fn new(blocks: [EraseBlockAddress; 2]) -> Copy {
        Copy { blocks, current: 0, next_page: 0, chain: 0, holds: None, failed: [false; 2] }
    }

    pub fn is_dead(&self) -> bool {
        self.failed == [true; 2]
    }

    pub fn current(&self) -> usize {
        self.current
    }

    pub fn current_block(&self) -> EraseBlockAddress {
        self.blocks[self.current]
    }

    /// After opening: the newest that is there lies in this block, and nothing is appended behind it.
    pub fn keep(&mut self, block: usize) {
        (self.current, self.holds) = (block, None);
    }

    /// Whether the present block ends with this state.
    pub fn holds(&self, sequence: u64) -> bool {
        self.holds == Some(sequence)
    }

    /// Whether a change of state `follows` can be appended in so many frames.
    pub fn takes(&self, follows: u64, frames: u64, shape: &Shape) -> bool {
        let room = u64::from((shape.pages_per_erase_block - self.next_page) / shape.unit_pages);
        self.holds(follows) && frames <= room
    }

    /// On to the other block: what the present one holds stays until the new state is complete.
    pub fn turn(&mut self) {
        if !self.failed[1 - self.current] {
            self.current = 1 - self.current;
        }
        (self.next_page, self.chain, self.holds) = (0, 0, None);
    }

    /// Where the next frame lies, if that is what it is known by.
    pub fn place(&self, shape: &Shape) -> Option<Place> {
        shape.device.map(|device| Place { device, previous: self.chain })
    }

    /// A frame with this checksum is appended.
    pub fn link(&mut self, checksum: u32) {
        self.chain = checksum;
    }

    /// The page that the next frame begins at.
    pub fn append(&mut self, shape: &Shape) -> u32 {
        let first_page = self.next_page;
        // I-C4: frames of one block lie one behind the other, so that an opening reads them in the order of their numbers.
        assert!(
            first_page + shape.unit_pages <= shape.pages_per_erase_block,
            "I-C4: a frame lies within its block"
        );
        self.next_page += shape.unit_pages;
        first_page
    }

    /// All frames of a batch are in place.
    pub fn complete(&mut self, sequence: u64) {
        self.holds = Some(sequence);
    }

    pub fn fail(&mut self) {
        self.failed[self.current] = true;
        self.holds = None;
    }
}
