//! Which erase block belongs to which segment.

use super::heads::HeadWalk;
use super::written::Written;
use super::{Found, numbers, token};
use crate::lent::Lent;
use crate::loss::Missing;
use diecut_log::mark::{self, Mark};
use diecut_log::{NO_BLOCK, Stream};
use diecut_units::mutant;
use diecut_vssd::space::{HeldBlock, IoClass, LogicalBlock, SpaceCompletion};
use std::collections::BTreeMap;

/// Pages of an erase block whose OOB is looked at for its mark.
const MARK_PAGES_TRIED: u32 = 32;

/// A segment whose marks were found: the newest one of its number.
struct FoundSegment {
    generation: u32,
    stream: Stream,
    blocks: Vec<LogicalBlock>,
}

pub(super) struct MarkSearch {
    blocks: Vec<HeldBlock>,
    marks: Vec<Option<Mark>>,
    written: Written,
}

impl MarkSearch {
    /// Reads the first page of each block.
    pub fn start(blocks: Vec<HeldBlock>, found: &mut Found, lent: &mut Lent) -> MarkSearch {
        let marks = vec![None; blocks.len()];
        let search = MarkSearch { written: Written::new(&blocks, lent.space), blocks, marks };
        for (index, held) in search.blocks.iter().enumerate() {
            if held.written_pages > 0 {
                search.read(index as u32, 0, found, lent);
            }
        }
        search
    }

    fn read(&self, index: u32, page: u32, found: &mut Found, lent: &mut Lent) {
        found.outstanding += 1;
        let oob = lent.log.pool().take_zeroed(lent.space.shape().oob_size_bytes as usize);
        let block = self.blocks[index as usize].block;
        lent.space.read_oob(token(0, page, index), block, page, oob, IoClass::Metadata);
    }

    /// The OOB of a page was read, or cannot be.
    pub fn arrived(&mut self, completion: SpaceCompletion, found: &mut Found, lent: &mut Lent) {
        let (page, index) = numbers(completion.token);
        let shape = *lent.space.shape();
        let oob = completion.oob.filter(|_| completion.result.is_ok());
        let mark =
            oob.and_then(|oob| mark::decode(&oob[shape.holder_oob_offset as usize..], shape.ius_per_page()));
        self.marks[index as usize] = mark;
        // Every page carries the mark: one that cannot be read costs a second look, not the block.
        let pages = self.blocks[index as usize].written_pages.min(MARK_PAGES_TRIED);
        if mark.is_none() && page + 1 < pages {
            self.read(index, page + 1, found, lent);
        }
    }

    /// Takes the segments that were found, and gives back blocks of older ones.
    pub fn end(self, found: &mut Found, lent: &mut Lent) -> HeadWalk {
        let segments = self.segments(found, lent);
        for (index, segment) in &segments {
            lent.log.adopt_segment(*index, segment.generation, segment.stream, &segment.blocks);
        }
        let generations = segments.into_iter().map(|(index, segment)| (index, segment.generation));
        HeadWalk::start(generations.collect(), self.written, found, lent)
    }

    fn segments(&self, found: &mut Found, lent: &mut Lent) -> BTreeMap<u32, FoundSegment> {
        let (width, shape) = (lent.log.layout().width as usize, lent.log.layout().shape);
        let flash_count = lent.log.flash_segment_count();
        let mut segments: BTreeMap<u32, FoundSegment> = BTreeMap::new();
        let mut unused = Vec::new();
        for (held, mark) in self.blocks.iter().zip(&self.marks) {
            let mark = mark.filter(|mark| mark.segment < flash_count && usize::from(mark.member) < width);
            let Some((mark, stream)) = mark.and_then(|mark| Some((mark, Stream::from_number(mark.stream)?)))
            else {
                let written = held.written_pages / shape.program_unit_pages;
                if shape.is_settled(0, written) && !mutant!("volume: blocks without marks given back") {
                    // No cut takes marks that were safe: the medium lost them, and what the block holds is not given back.
                    diecut_units::mark!("volume: marks lost");
                    found.findings.miss(Missing::Mark { block: held.block });
                    found.unmarked.push(held.block);
                } else {
                    unused.push(held.block);
                }
                continue;
            };
            let fresh =
                || FoundSegment { generation: mark.generation, stream, blocks: vec![NO_BLOCK; width] };
            let segment = segments.entry(mark.segment).or_insert_with(fresh);
            if mark.generation > segment.generation {
                // A free that was not durable: the older segment of this number is dead.
                unused.extend(segment.blocks.iter().filter(|block| **block != NO_BLOCK));
                *segment = fresh();
            }
            if mark.generation < segment.generation {
                unused.push(held.block);
            } else {
                // The one that was allocated last: a free that was not durable brings the other back.
                let older = std::mem::replace(&mut segment.blocks[usize::from(mark.member)], held.block);
                unused.extend(Some(older).filter(|older| *older != NO_BLOCK));
            }
        }
        for block in unused {
            lent.space.free(block).expect("held");
        }
        segments
    }
}
