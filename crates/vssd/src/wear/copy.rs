//! The copy of a block that moves to another die: how far it is, and what was read of the place it is at.

use crate::{BlockShape, OobRecord};
use diecut_media::{MediaError, Operation, PayloadParts};
use diecut_units::{BufferMut, ContentMode, EraseBlockAddress, Payload, checksum, mark, mutant};

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

    /// Takes what the read of a piece brought, or has it read again in another way. Says whether the program unit is complete.
    ///
    /// # Panics
    /// If it is not read piece by piece.
    pub fn take_piece(
        &mut self,
        shape: &BlockShape,
        result: Result<(), MediaError>,
        content: Option<BufferMut>,
        oob: Option<BufferMut>,
    ) -> bool {
        let Stage::Piece { iu, mode, again } = self.stage else {
            unreachable!("I-V10: no piece is read in stage {:?}", self.stage)
        };
        let oob_size = shape.oob_size_bytes as usize;
        let page = (iu / shape.ius_per_page()) as usize;
        let oob_of_page = &mut self.oob[page * oob_size..(page + 1) * oob_size];
        match result {
            Ok(()) => {
                self.parts
                    .push(Payload::new(mode, content.expect("I-V1: a read ends with its content").freeze()));
                // What one of its pieces lost is lost for the page: that is what its record says.
                if self.lost_page != Some(page) {
                    oob_of_page.copy_from_slice(oob.as_deref().unwrap_or_default());
                }
            }
            Err(MediaError::WrongContentMode { .. }) if mode == ContentMode::Tags => {
                self.stage = Stage::Piece { iu, mode: ContentMode::Bytes, again };
                return false;
            }
            // Where nobody knows how far a block is programmed, its end is zeros in the copy.
            Err(MediaError::Erased { .. }) if oob_size == 0 => {
                let nothing = BufferMut::copy_from(&vec![0; shape.content_mode.bytes_per_iu()]);
                self.parts.push(Payload::new(shape.content_mode, nothing.freeze()));
            }
            Err(_) if !again => {
                self.stage = Stage::Piece { iu, mode, again: true };
                return false;
            }
            Err(_) => {
                // What the page held is lost; the holder is told when it reads it.
                mark!("vssd: a lost page moves");
                let mode = shape.content_mode;
                let nothing = BufferMut::copy_from(&vec![0; mode.bytes_per_iu()]);
                self.parts.push(Payload::new(mode, nothing.freeze()));
                oob_of_page.fill(0);
                self.lost_page = Some(page);
            }
        }
        let is_last = iu + 1 == shape.program_unit_ius();
        if !is_last {
            self.stage = Stage::Piece { iu: iu + 1, mode: shape.content_mode, again: false };
        }
        is_last
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

/// What OOB areas are read into, if there are some.
pub(crate) fn oob_buffer(size_bytes: u32) -> Option<BufferMut> {
    (size_bytes > 0).then(|| BufferMut::copy_from(&vec![0; size_bytes as usize]))
}

/// Sends an operation that waited to the block's new place.
pub(crate) fn turn_to(
    operation: &mut Operation,
    address: EraseBlockAddress,
    erase_count: u32,
    oob_size: usize,
) {
    match operation {
        Operation::Read { block, .. } | Operation::ReadOob { block, .. } | Operation::Erase { block } => {
            *block = address
        }
        Operation::Program { block, oob, .. } => {
            *block = address;
            if oob_size == 0 {
                return;
            }
            let mut bytes = oob.to_vec();
            for page in bytes.chunks_exact_mut(oob_size) {
                let record = OobRecord::decode(page)
                    .expect("I-V4: the record of a page is written when its append is taken");
                OobRecord { erase_count, ..record }.encode(page);
            }
            *oob = BufferMut::copy_from(&bytes).freeze();
        }
        Operation::Copy { .. } => unreachable!("I-V10: no copy within a die waits for a move"),
    }
}
