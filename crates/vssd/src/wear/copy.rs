//! The copy of a block that moves to another die: how far it is, and what was read of the place it is at.

use diecut_media::PayloadParts;
use diecut_units::{ContentMode, checksum, mutant};

/// Looks at the same place of which no two in a row agreed, until it counts as one that cannot be read.
const LOOKS_MAX: u32 = 8;

/// Where the copy of a block is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Stage {
    /// Appends that were under way come back first.
    Appends,
    Erase,
    Read,
    /// IU by IU: the unit as a whole could not be read.
    Piece {
        iu: u32,
        mode: ContentMode,
        /// It could not be read once.
        again: bool,
    },
    Program,
    Complete,
}

/// A block and its copy on the other die.
pub(crate) struct Copy {
    pub source: u32,
    pub copy: u32,
    pub pages: u32,
    pub done_pages: u32,
    pub stage: Stage,
    pub under_way: bool,
    pub lost_pages: bool,
    /// Of the unit that is read: the page that lost a piece.
    pub lost_page: Option<usize>,
    /// Checksums of what the last look at the present place found, content and OOB records, and how many there were.
    pub look: Option<[u32; 2]>,
    pub looks: u32,
    pub parts: PayloadParts,
    pub oob: Vec<u8>,
    pub tries: u32,
    /// The holder freed the block.
    pub is_void: bool,
}

/// What the reads of a place amount to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Verdict {
    /// Two looks in a row found the same.
    Same,
    LookAgain,
    /// It is something else each time.
    Unreadable,
}

impl Copy {
    /// Of `source` to `copy`; nothing is done yet.
    pub fn new(source: u32, copy: u32) -> Copy {
        Copy {
            source,
            copy,
            pages: 0,
            done_pages: 0,
            stage: Stage::Appends,
            under_way: false,
            lost_pages: false,
            lost_page: None,
            look: None,
            looks: 0,
            parts: PayloadParts::new(),
            oob: Vec::new(),
            tries: 0,
            is_void: false,
        }
    }

    /// What one more read of the present place amounts to.
    pub fn judge(&mut self, content: &[u8], oob: &[u8]) -> Verdict {
        let found = Some([checksum(content), checksum(oob)]);
        let is_same = self.look == found || mutant!("vssd: copies look once");
        let verdict = match is_same {
            true => Verdict::Same,
            false if self.looks < LOOKS_MAX => Verdict::LookAgain,
            false => Verdict::Unreadable,
        };
        if verdict == Verdict::LookAgain {
            (self.look, self.looks) = (found, self.looks + 1);
        } else {
            (self.look, self.looks) = (None, 0);
        }
        verdict
    }
}
