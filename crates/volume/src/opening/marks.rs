//! Which erase block belongs to which segment: the marks of its pages say it, or its header where pages have no OOB areas.

use super::heads::HeadWalk;
use super::written::Written;
use super::{AGAIN, Found, is_again, numbers, token};
use crate::lent::Lent;
use crate::loss::Missing;
use diecut_log::mark::{self, Mark};
use diecut_log::{Description, NO_BLOCK, Stream};
use diecut_units::{IU_SIZE_BYTES, mutant};
use diecut_vssd::space::{HeldBlock, IoClass, LogicalBlock, SpaceCompletion, SpaceError};
use std::collections::BTreeMap;

/// Pages of an erase block whose OOB is looked at for its mark.
const MARK_PAGES_TRIED: u32 = 32;

/// A segment whose marks were found: the newest one of its number.
struct FoundSegment {
    generation: u32,
    stream: Stream,
    blocks: Vec<LogicalBlock>,
}

/// What was found of a block.
#[derive(Clone, Copy)]
enum Of {
    /// Nothing says whose it is.
    Nobody,
    /// Something said it, and cannot be read.
    Lost,
    Member {
        segment: u32,
        generation: u32,
        stream: Stream,
        member: u16,
    },
}

pub(super) struct MarkSearch {
    blocks: Vec<HeldBlock>,
    of: Vec<Of>,
    written: Written,
}

impl MarkSearch {
    /// Reads the first page of each block, or its header.
    pub fn start(blocks: Vec<HeldBlock>, found: &mut Found, lent: &mut Lent) -> MarkSearch {
        let of = vec![Of::Nobody; blocks.len()];
        let search = MarkSearch { written: Written::new(&blocks, lent.space), blocks, of };
        let has_oob = lent.space.shape().has_oob();
        for (index, held) in search.blocks.iter().enumerate() {
            if has_oob && held.written_pages > 0 {
                search.read(index as u32, 0, found, lent);
            } else if !has_oob {
                search.read_header(index as u32, 0, found, lent);
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

    fn read_header(&self, index: u32, flags: u64, found: &mut Found, lent: &mut Lent) {
        found.outstanding += 1;
        let destination = lent.log.pool().take(IU_SIZE_BYTES);
        lent.space.read_description(token(flags, 0, index), self.blocks[index as usize].block, destination);
    }

    /// A header was read, or cannot be. One that never came to the medium is that of a block without content.
    fn header_arrived(&mut self, completion: &SpaceCompletion, found: &mut Found, lent: &mut Lent) {
        let (_, index) = numbers(completion.token);
        let described = completion.destination.as_deref().and_then(|header| lent.log.described(header));
        self.of[index as usize] = match (&completion.result, described) {
            (Ok(()), Some(Description { segment, generation, stream, member, .. })) => {
                Of::Member { segment, generation, stream, member: member.into() }
            }
            (Err(SpaceError::Erased { .. }), _) => Of::Nobody,
            (Err(_), _) if !is_again(completion.token) => {
                return self.read_header(index, AGAIN, found, lent);
            }
            _ => Of::Lost,
        };
    }

    /// The OOB of a page was read, or a header; or it cannot be.
    pub fn arrived(&mut self, completion: SpaceCompletion, found: &mut Found, lent: &mut Lent) {
        let (page, index) = numbers(completion.token);
        let shape = *lent.space.shape();
        if !shape.has_oob() {
            return self.header_arrived(&completion, found, lent);
        }
        let oob = completion.oob.filter(|_| completion.result.is_ok());
        let mark =
            oob.and_then(|oob| mark::decode(&oob[shape.holder_oob_offset as usize..], shape.ius_per_page()));
        let held = self.blocks[index as usize];
        let (flash_count, width) = (lent.log.flash_segment_count(), lent.log.layout().width);
        let is_possible = |mark: &Mark| mark.segment < flash_count && u32::from(mark.member) < width;
        let of = mark.filter(is_possible).and_then(|Mark { segment, generation, member, stream, .. }| {
            Some(Of::Member { segment, generation, stream: Stream::from_number(stream)?, member })
        });
        // No cut takes marks that were safe.
        let was_safe = shape.is_settled(0, held.written_pages / shape.program_unit_pages)
            && !mutant!("volume: blocks without marks given back");
        self.of[index as usize] = of.unwrap_or(if was_safe { Of::Lost } else { Of::Nobody });
        // Every page carries the mark: one that cannot be read costs a second look, not the block.
        let pages = held.written_pages.min(MARK_PAGES_TRIED);
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
        let width = lent.log.layout().width as usize;
        let flash_count = lent.log.flash_segment_count();
        let mut segments: BTreeMap<u32, FoundSegment> = BTreeMap::new();
        let mut unused = Vec::new();
        for (held, of) in self.blocks.iter().zip(&self.of) {
            let (number, generation, stream, member) = match *of {
                Of::Member { segment, generation, stream, member }
                    if segment < flash_count && usize::from(member) < width =>
                {
                    (segment, generation, stream, member)
                }
                Of::Nobody => {
                    unused.push(held.block);
                    continue;
                }
                _ => {
                    // The medium lost it, and what the block holds is not given back.
                    diecut_units::mark!("volume: marks lost");
                    found.findings.miss(Missing::Mark { block: held.block });
                    found.unmarked.push(held.block);
                    continue;
                }
            };
            let fresh = || FoundSegment { generation, stream, blocks: vec![NO_BLOCK; width] };
            let segment = segments.entry(number).or_insert_with(fresh);
            if generation > segment.generation {
                // A free that was not durable: the older segment of this number is dead.
                unused.extend(segment.blocks.iter().filter(|block| **block != NO_BLOCK));
                *segment = fresh();
            }
            if generation < segment.generation {
                unused.push(held.block);
            } else {
                // The one that was allocated last: a free that was not durable brings the other back.
                let older = std::mem::replace(&mut segment.blocks[usize::from(member)], held.block);
                unused.extend(Some(older).filter(|older| *older != NO_BLOCK));
            }
        }
        for block in unused {
            lent.space.free(block).expect("held");
        }
        segments
    }
}
