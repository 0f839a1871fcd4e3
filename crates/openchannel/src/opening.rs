//! How a store finds its chunks again: by the marks of its erase blocks. A chunk that was written and not full is closed: nothing can be
//! programmed behind what lies there, because a cut may have begun to.

use crate::mark::{self, Mark};
use crate::store::Facts;
use crate::token::Kind;
use crate::writer::PURPOSE_CHUNK;
use diecut_units::{BufferMut, mutant};
use diecut_vssd::space::{EraseBlockSpace, HeldBlock, IoClass, SpaceCompletion, SpaceError};
use std::collections::VecDeque;

/// Reads that are under way at once.
const READS_MAX: u32 = 256;

/// A block that was found.
#[derive(Clone, Copy, Debug)]
pub(crate) struct FoundBlock {
    pub held: HeldBlock,
    /// Rows before the first one that does not check out.
    pub sound_rows: u32,
    /// Whose it is.
    pub mark: Option<Mark>,
}

/// OOB of a row of a block that was found.
#[derive(Clone, Copy, Debug)]
struct Look {
    found: usize,
    row: u32,
}

/// See the module.
#[derive(Default)]
pub(crate) struct Opening {
    blocks: Vec<FoundBlock>,
    looks: VecDeque<Look>,
    under_way: Vec<Option<Look>>,
    count: u32,
    pub is_gone: bool,
}

impl Opening {
    /// Begins to look at what the space holds.
    pub fn start(facts: &Facts, space: &mut dyn EraseBlockSpace) -> Opening {
        let mut opening = Opening::default();
        for held in space.held_blocks() {
            opening.look_at(held, facts);
        }
        opening.go_on(facts, space);
        opening
    }

    fn look_at(&mut self, held: HeldBlock, facts: &Facts) {
        let shape = &facts.block;
        let rows = held.written_pages.min(shape.pages) / shape.program_unit_pages;
        let found = self.blocks.len();
        self.blocks.push(FoundBlock { held, sound_rows: rows, mark: None });
        if held.purpose != PURPOSE_CHUNK || rows == 0 {
            return;
        }
        // Behind those a cut or a failed program leaves nothing that is not sound.
        let unsettled = 2 + shape.unsafe_units.max(shape.pipelined_units);
        let first = rows.saturating_sub(unsettled).max(1);
        self.looks.push_back(Look { found, row: 0 });
        self.looks.extend((first..rows).map(|row| Look { found, row }));
    }

    /// Whether all was looked at.
    pub fn is_over(&self) -> bool {
        self.count == 0 && self.looks.is_empty()
    }

    /// What was found.
    pub fn into_blocks(self) -> Vec<FoundBlock> {
        self.blocks
    }

    fn go_on(&mut self, facts: &Facts, space: &mut dyn EraseBlockSpace) {
        while self.count < READS_MAX
            && let Some(look) = self.looks.pop_front()
        {
            let free = self.under_way.iter().position(Option::is_none);
            let place = free.unwrap_or_else(|| {
                self.under_way.push(None);
                self.under_way.len() - 1
            });
            self.under_way[place] = Some(look);
            self.count += 1;
            let block = self.blocks[look.found].held.block;
            let shape = &facts.block;
            let oob = BufferMut::copy_from(&vec![0; shape.program_unit_oob_size_bytes() as usize]);
            let token = Kind::Opening.token(place as u32);
            space.read_oob(token, block, look.row * shape.program_unit_pages, oob, IoClass::HostRead);
        }
    }

    /// A read came back.
    pub fn step(
        &mut self,
        place: u32,
        completion: SpaceCompletion,
        facts: &Facts,
        space: &mut dyn EraseBlockSpace,
    ) {
        let Look { found, row } = self.under_way[place as usize].take().expect("I-K7: a look ends once");
        self.count -= 1;
        if completion.result == Err(SpaceError::PowerLost) {
            self.is_gone = true;
            return;
        }
        let unit = self.blocks[found].held.block.unit;
        let oob = completion.oob.filter(|_| completion.result.is_ok());
        let mark = oob.and_then(|oob| mark::of_row(&oob, unit, row, &facts.block));
        let block = &mut self.blocks[found];
        if row == 0 {
            block.mark = mark;
        }
        if mark.is_none() && !mutant!("openchannel: a torn row counts") {
            block.sound_rows = block.sound_rows.min(row);
        }
        self.go_on(facts, space);
    }
}
