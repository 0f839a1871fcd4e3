//! A lane: erase blocks, and what is under way at them.

use crate::block::{Block, Busy};
use crate::zones::Zones;
use diecut_units::Slab;
use std::collections::BTreeMap;
use std::ops::Range;

#[derive(Debug)]
pub(crate) struct Lane {
    blocks: Vec<Block>,
    busy: Slab<Busy>,
    /// Emptied ones, kept for their memory.
    spare: Vec<Busy>,
    /// Pages that failed programs left in erase blocks.
    failed: BTreeMap<u32, Vec<Range<u32>>>,
    /// Its zones, where each erase block is one.
    pub zones: Option<Zones>,
}

impl Lane {
    pub fn new(blocks: u32) -> Lane {
        Lane {
            blocks: vec![Block::UNKNOWN; blocks as usize],
            busy: Slab::new(),
            spare: Vec::new(),
            failed: BTreeMap::new(),
            zones: None,
        }
    }

    pub fn block(&self, block: u32) -> &Block {
        &self.blocks[block as usize]
    }

    pub fn block_mut(&mut self, block: u32) -> &mut Block {
        &mut self.blocks[block as usize]
    }

    /// Whether nothing is under way or waits.
    pub fn is_quiet(&self) -> bool {
        self.busy.is_empty()
    }

    /// What is under way at an erase block.
    pub fn busy(&self, block: u32) -> Option<&Busy> {
        match self.blocks[block as usize].busy {
            Block::IDLE => None,
            index => Some(&self.busy[index]),
        }
    }

    /// As [`Lane::busy`], to add to it.
    pub fn busy_mut(&mut self, block: u32) -> &mut Busy {
        let of = &mut self.blocks[block as usize];
        if of.busy == Block::IDLE {
            of.busy = self.busy.insert(self.spare.pop().unwrap_or_default());
        }
        &mut self.busy[of.busy]
    }

    /// The erase block is idle if nothing is left to do.
    pub fn settle(&mut self, block: u32) {
        let index = self.blocks[block as usize].busy;
        if index != Block::IDLE && self.busy[index].is_over() {
            self.blocks[block as usize].busy = Block::IDLE;
            let over = self.busy.remove(index);
            self.spare.push(over);
        }
    }

    pub fn failed(&self, block: u32) -> Option<&Vec<Range<u32>>> {
        self.failed.get(&block)
    }

    pub fn note_failed(&mut self, block: u32, pages: Range<u32>) {
        self.failed.entry(block).or_default().push(pages);
    }

    /// The erase block was erased.
    pub fn erased(&mut self, block: u32) {
        self.blocks[block as usize].answered_pages = 0;
        self.failed.remove(&block);
    }
}
