//! One copy of the catalog: two erase blocks of one die, used in turn.

use crate::frame::decode_oob;
use diecut_units::EraseBlockAddress;

/// A frame found by its OOB areas.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Found {
    pub sequence: u64,
    pub block: usize,
    pub first_page: u32,
    pub pages: u32,
}

pub(crate) struct Copy {
    pub blocks: [EraseBlockAddress; 2],
    /// The block that frames are appended to, once it was erased for that since opening.
    pub current: usize,
    pub next_page: u32,
    pub open_for_append: bool,
    pub failed: [bool; 2],
}

impl Copy {
    pub fn new(blocks: [EraseBlockAddress; 2]) -> Copy {
        Copy { blocks, current: 0, next_page: 0, open_for_append: false, failed: [false; 2] }
    }
    pub fn is_dead(&self) -> bool {
        self.failed == [true; 2]
    }
}

/// Collects frames of one block from the OOB areas of its program units, in order.
#[derive(Default)]
pub(crate) struct Walk {
    pub next_page: u32,
    pub done: bool,
    /// Units that could not be read: torn, worn, or on a die that does not answer.
    pub unreadable: bool,
    open: Option<(Found, u32)>,
    pub found: Vec<Found>,
}

impl Walk {
    /// The OOB area of the first page of a unit; `None` if it cannot be read.
    pub fn unit(&mut self, block: usize, page: u32, unit_pages: u32, area: Option<&[u8]>) {
        let Some((sequence, at, pages)) = area.and_then(decode_oob) else {
            self.open = None;
            return;
        };
        if at == 0 {
            self.open = Some((Found { sequence, block, first_page: page, pages }, 0));
        }
        let Some((frame, next)) = self.open else { return };
        if frame.sequence != sequence || frame.pages != pages || at != next {
            self.open = None;
        } else if at + unit_pages >= pages {
            self.found.push(frame);
            self.open = None;
        } else {
            self.open = Some((frame, next + unit_pages));
        }
    }
}
