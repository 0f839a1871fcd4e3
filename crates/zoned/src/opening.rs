//! How a store finds its zones again: by the marks of its erase blocks, what is left in staging, and the journal.
//!
//! A zone is there if its first program unit is, on flash or in staging; of several lives of a zone the newest one that is there counts. Its
//! write pointer lies behind the last unit before the first gap. A block that was not full takes no more programs: who writes on has it
//! copied (`relocation.rs`).
//!
//! All marks of a block say the same. Where the first row cannot be read, the first page behind it that can be tells whose the block is.

use crate::journal::{self, Entry, PURPOSE_JOURNAL, ZoneKey};
use crate::lent::Facts;
use crate::mark::{self, JOURNAL, Mark, Place};
use crate::slot::{FoundSlot, SlotName};
use crate::staging::SlotIndex;
use crate::token::Kind;
use crate::writer::PURPOSE_ZONE;
use diecut_units::{BufferMut, IU_SIZE_BYTES, mark, mutant};
use diecut_vssd::space::{
    BlockRun, BlockShape, EraseBlockSpace, HeldBlock, IoClass, LogicalBlock, SpaceCompletion, SpaceError,
    UnitIndex,
};
use smallvec::SmallVec;
use std::collections::{BTreeMap, VecDeque};

/// Reads that are under way at once.
const READS_MAX: u32 = 256;

/// A block of a zone that was found.
#[derive(Clone, Debug)]
pub(crate) struct FoundBlock {
    pub held: HeldBlock,
    /// Rows that were programmed, or begun.
    pub rows: u32,
    /// Whose it is.
    pub mark: Option<Mark>,
    /// Rows that were looked at and do not check out: lost, or torn by a cut.
    unsound: SmallVec<[u32; 4]>,
}

impl FoundBlock {
    /// Whether all rows that were to be copied to it are there. The row behind them is programmed when they are.
    pub fn is_complete(&self, copied_rows: u32) -> bool {
        let is_there = self.rows == copied_rows && self.unsound.iter().all(|row| *row >= copied_rows);
        self.rows > copied_rows || is_there
    }

    /// Rows before the first one that was torn; rows before `settled_rows` were not, and what cannot be read of them is lost.
    pub fn rows_before_torn(&self, settled_rows: u32) -> u32 {
        let torn = self.unsound.iter().copied().filter(|row| *row >= settled_rows);
        torn.min().unwrap_or(self.rows)
    }
}

/// One read.
#[derive(Clone, Copy, Debug)]
enum Look {
    /// OOB of a row of a block that was found.
    Row { found: usize, row: u32 },
    /// OOB of a page of a block whose first row does not say whose it is.
    Witness { found: usize, page: u32 },
    /// OOB of a unit of the journal.
    Journal { block: LogicalBlock, unit: u32 },
    /// A unit of a snapshot of the journal.
    Snapshot { block: LogicalBlock, unit: u32, part: u32 },
}

/// A snapshot of which units were found.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Candidate {
    sequence: u32,
    block: LogicalBlock,
    first_unit: u32,
    units: u32,
}

/// What was found.
#[derive(Default)]
pub(crate) struct Finds {
    pub blocks: Vec<FoundBlock>,
    pub slots: Vec<(SlotIndex, SlotName, bool)>,
    /// Slots of which nothing can be told.
    pub damaged_slots: Vec<SlotIndex>,
    pub journal: Option<(u64, BTreeMap<ZoneKey, Entry>, LogicalBlock)>,
    pub journal_blocks: Vec<LogicalBlock>,
}

/// See the module.
pub(crate) struct Opening {
    finds: Finds,
    looks: VecDeque<Look>,
    under_way: Vec<Option<Look>>,
    count: u32,
    /// Marks of the journal: block, unit, part, sequence.
    journal_units: Vec<(LogicalBlock, u32, u32, u32)>,
    candidates: Vec<Candidate>,
    snapshot: Vec<u8>,
    has_chosen: bool,
    pub is_gone: bool,
}

impl Opening {
    /// Begins to look at what the space holds. `slots` is what staging holds.
    pub fn start(
        slots: Vec<(SlotIndex, FoundSlot)>,
        facts: &Facts,
        space: &mut dyn EraseBlockSpace,
    ) -> Opening {
        let mut opening = Opening {
            finds: Finds::default(),
            looks: VecDeque::new(),
            under_way: Vec::new(),
            count: 0,
            journal_units: Vec::new(),
            candidates: Vec::new(),
            snapshot: Vec::new(),
            has_chosen: false,
            is_gone: false,
        };
        for (index, found) in slots {
            match found {
                FoundSlot::Empty => {}
                FoundSlot::Damaged => opening.finds.damaged_slots.push(index),
                FoundSlot::Unit { name, is_committed } => {
                    opening.finds.slots.push((index, name, is_committed));
                }
            }
        }
        for held in space.held_blocks() {
            opening.look_at(held, facts);
        }
        opening.go_on(facts, space);
        opening
    }

    fn look_at(&mut self, held: HeldBlock, facts: &Facts) {
        let shape = &facts.block;
        let rows = held.written_pages.min(shape.pages) / shape.program_unit_pages;
        if held.purpose == PURPOSE_JOURNAL {
            self.finds.journal_blocks.push(held.block);
            self.looks.extend((0..rows).map(|unit| Look::Journal { block: held.block, unit }));
            return;
        }
        let found = self.finds.blocks.len();
        self.finds.blocks.push(FoundBlock { held, rows, mark: None, unsound: SmallVec::new() });
        if held.purpose != PURPOSE_ZONE || rows == 0 {
            return;
        }
        let first = rows.saturating_sub(unsettled_rows(shape)).max(1);
        self.looks.push_back(Look::Row { found, row: 0 });
        self.looks.extend((first..rows).map(|row| Look::Row { found, row }));
    }

    /// Whether all was looked at.
    pub fn is_over(&self) -> bool {
        self.count == 0 && self.looks.is_empty() && self.has_chosen
    }

    /// What was found.
    pub fn into_finds(self) -> Finds {
        self.finds
    }

    fn go_on(&mut self, facts: &Facts, space: &mut dyn EraseBlockSpace) {
        loop {
            while self.count < READS_MAX
                && let Some(look) = self.looks.pop_front()
            {
                self.begin(look, facts, space);
            }
            if self.count > 0 || self.has_chosen {
                return;
            }
            self.choose_snapshot();
        }
    }

    fn begin(&mut self, look: Look, facts: &Facts, space: &mut dyn EraseBlockSpace) {
        let shape = &facts.block;
        let free = self.under_way.iter().position(Option::is_none);
        let place = free.unwrap_or_else(|| {
            self.under_way.push(None);
            self.under_way.len() - 1
        });
        self.under_way[place] = Some(look);
        self.count += 1;
        let token = Kind::Opening.token(place as u32);
        let oob = || BufferMut::copy_from(&vec![0; shape.program_unit_oob_size_bytes() as usize]);
        let pages = shape.program_unit_pages;
        match look {
            Look::Row { found, row } => {
                let block = self.finds.blocks[found].held.block;
                space.read_oob(token, block, row * pages, oob(), IoClass::HostRead);
            }
            Look::Witness { found, page } => {
                let oob = BufferMut::copy_from(&vec![0; shape.oob_size_bytes as usize]);
                space.read_oob(token, self.finds.blocks[found].held.block, page, oob, IoClass::HostRead);
            }
            Look::Journal { block, unit } => {
                space.read_oob(token, block, unit * pages, oob(), IoClass::HostRead);
            }
            Look::Snapshot { block, unit, .. } => {
                let ius = shape.program_unit_ius();
                let data = BufferMut::copy_from(&vec![0; ius as usize * IU_SIZE_BYTES]);
                let run = BlockRun { block, first_iu: unit * ius, iu_count: ius };
                space.read(token, run, data, None, IoClass::HostRead);
            }
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
        let look = self.under_way[place as usize].take().expect("I-Z13: a look ends once");
        self.count -= 1;
        if completion.result == Err(SpaceError::PowerLost) {
            self.is_gone = true;
            return;
        }
        let is_read = completion.result.is_ok();
        match look {
            Look::Row { found, row } => {
                let unit = self.finds.blocks[found].held.block.unit;
                let mark =
                    completion.oob.filter(|_| is_read).and_then(|oob| mark_of_row(&oob, unit, row, facts));
                let block = &mut self.finds.blocks[found];
                if row == 0 {
                    block.mark = mark;
                }
                if mark.is_none() {
                    block.unsound.push(row);
                }
                if row == 0 && mark.is_none() && !mutant!("zoned: only the first row says whose a block is") {
                    self.looks.push_back(Look::Witness { found, page: 0 });
                }
            }
            Look::Witness { found, page } => {
                let unit = self.finds.blocks[found].held.block.unit;
                let oob = completion.oob.filter(|_| is_read);
                let block = &mut self.finds.blocks[found];
                block.mark = oob.and_then(|oob| mark_of_page(&oob, Place { unit, page }, &facts.block));
                match block.mark {
                    Some(_) => mark!("zoned: a later page says whose a block is"),
                    None if page + 1 < block.rows * facts.block.program_unit_pages => {
                        self.looks.push_back(Look::Witness { found, page: page + 1 });
                    }
                    None => {}
                }
            }
            Look::Journal { block, unit } => {
                let mark = completion
                    .oob
                    .filter(|_| is_read)
                    .and_then(|oob| mark_of_row(&oob, block.unit, unit, facts));
                if let Some(mark) = mark.filter(|mark| mark.set == JOURNAL) {
                    self.journal_units.push((block, unit, mark.zone, mark.generation));
                }
            }
            Look::Snapshot { part, .. } => {
                if let Some(data) = completion.destination.filter(|_| is_read) {
                    let at = part as usize * data.len();
                    let end = at + data.len();
                    self.snapshot.resize(self.snapshot.len().max(end), 0);
                    self.snapshot[at..end].copy_from_slice(&data);
                }
            }
        }
        self.go_on(facts, space);
    }

    /// Takes the newest snapshot that checks out, or has the next one read.
    fn choose_snapshot(&mut self) {
        if !self.journal_units.is_empty() {
            self.candidates = candidates(std::mem::take(&mut self.journal_units));
        } else if let Some(candidate) = self.candidates.pop() {
            let bytes = std::mem::take(&mut self.snapshot);
            if let Some((sequence, entries)) = journal::decode(&bytes) {
                self.finds.journal = Some((sequence, entries, candidate.block));
                self.has_chosen = true;
                return;
            }
        }
        let Some(next) = self.candidates.last() else {
            self.has_chosen = true;
            return;
        };
        let Candidate { block, first_unit, units, .. } = *next;
        self.looks.extend((0..units).map(|part| Look::Snapshot { block, unit: first_unit + part, part }));
    }
}

/// Snapshots that begin somewhere, the newest one last.
fn candidates(mut units: Vec<(LogicalBlock, u32, u32, u32)>) -> Vec<Candidate> {
    units.sort_unstable();
    let mut candidates: Vec<Candidate> = Vec::new();
    for (block, unit, part, sequence) in units {
        match candidates.last_mut() {
            Some(last)
                if part > 0
                    && (last.block, last.sequence) == (block, sequence)
                    && last.first_unit + part == unit =>
            {
                last.units = part + 1;
            }
            _ if part == 0 => candidates.push(Candidate { sequence, block, first_unit: unit, units: 1 }),
            _ => {}
        }
    }
    candidates.sort_unstable();
    candidates
}

/// Rows at the end of a block that a cut or a failed program can leave torn.
pub(crate) fn unsettled_rows(shape: &BlockShape) -> u32 {
    2 + shape.unsafe_units.max(shape.pipelined_units)
}

fn mark_of_page(oob: &[u8], at: Place, shape: &BlockShape) -> Option<Mark> {
    mark::decode(&oob[shape.holder_oob_offset as usize..], at, shape.ius_per_page())
}

/// The mark that all pages of a row have.
fn mark_of_row(oob: &[u8], unit: UnitIndex, row: u32, facts: &Facts) -> Option<Mark> {
    let shape = &facts.block;
    let first = row * shape.program_unit_pages;
    let pages = (first..).zip(oob.chunks_exact(shape.oob_size_bytes as usize));
    let mut marks = pages.map(|(page, oob)| mark_of_page(oob, Place { unit, page }, shape));
    let first = marks.next()??;
    marks.all(|mark| mark == Some(first)).then_some(first)
}
