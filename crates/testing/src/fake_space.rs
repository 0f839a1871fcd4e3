//! A space in memory with power cuts: torn and lost trailing units, frees that come back, completions in any order.
//!
//! Without OOB areas ([`plain_shape`]) it is one on a drive with a volatile cache: blocks have headers and nonces, what no complete flush covered
//! may be gone in any subset, and what was never written reads as anything, best of all as what lay there before.

use crate::Random;
use diecut_units::{BufferMut, ContentMode, IU_SIZE_BYTES};
use diecut_vssd::HEADER_HOLDER_AT_BYTES;
use diecut_vssd::space::*;
use std::borrow::Cow;
use std::collections::BTreeMap;

#[derive(Clone)]
struct Unit {
    ius: Vec<Vec<u8>>,
    oob: Vec<u8>,
    torn: bool,
    is_flushed: bool,
}

#[derive(Clone)]
struct Block {
    purpose: Purpose,
    sequence: u64,
    units: Vec<Unit>,
    submitted: u32,
    durable: bool,
    /// What its header describes, if it came to the medium; and whether a flush covers that.
    description: Option<Vec<u8>>,
    is_headed: bool,
}

enum Pending {
    Append(SpaceToken, LogicalBlock, Vec<Unit>),
    Done(SpaceCompletion),
    Sync(SpaceToken),
    /// With the allocations and units of blocks that it covers.
    Flush(SpaceToken, Vec<(LogicalBlock, u64, usize)>),
}

/// See the module.
pub struct FakeSpace {
    /// Shape of all blocks.
    pub shape: BlockShape,
    units: u16,
    blocks_per_unit: u32,
    blocks: BTreeMap<LogicalBlock, Block>,
    limbo: Vec<(LogicalBlock, Block)>,
    pending: Vec<Pending>,
    sequence: u64,
    /// What was asked of it, counted.
    pub operations: u64,
    /// What was done of appends and erases.
    pub work: SpaceWork,
    /// It copies within its units.
    pub copies_within_dies: bool,
    /// Program units that it was asked to copy so, and did not refuse.
    pub copied_units: u64,
    /// How often it was asked to erase what was freed.
    pub erases_freed: u32,
    /// The next program that is carried out fails.
    pub fail_next_append: bool,
    /// The reserve of good blocks is used up.
    pub read_only: bool,
    /// The medium has no room for blocks that are opened.
    pub no_room: bool,
    /// Program units whose reads fail at present.
    pub unreadable: Vec<(LogicalBlock, u32)>,
    /// How often cells of a program unit of a block are read again before they can be corrected.
    pub retries: Vec<((LogicalBlock, u32), u8)>,
    /// Pages whose reads fail until their block is allocated again.
    lost_pages: Vec<(LogicalBlock, u32)>,
    failed: Vec<LogicalBlock>,
    /// The next flush that is carried out fails, and no program works after that.
    pub fail_next_flush: bool,
    has_flush_failed: bool,
    /// Flushes are answered and do nothing.
    pub lies_about_flushes: bool,
    /// No flush is carried out.
    pub holds_flushes: bool,
    /// Flushes that were carried out.
    pub flushes: u64,
    /// What lies on the medium where nothing of now was written: what was there before.
    stale: BTreeMap<(LogicalBlock, u32), Vec<u8>>,
    /// Rises with each restart: what was never written reads otherwise after it.
    restarts: u64,
}

/// A shape of small blocks: 8 program units of 2 pages.
pub fn shape(content_mode: ContentMode, unsafe_units: u32) -> BlockShape {
    BlockShape {
        pages: 16,
        page_size_bytes: 16384,
        program_unit_pages: 2,
        unsafe_units,
        pipelined_units: 0,
        oob_size_bytes: 64,
        holder_oob_offset: 32,
        content_mode,
        volatile_cache: false,
    }
}

/// A shape of small blocks on a drive: 64 pages of one IU, without OOB areas.
pub fn plain_shape(content_mode: ContentMode) -> BlockShape {
    BlockShape {
        pages: 64,
        page_size_bytes: 4096,
        program_unit_pages: 1,
        unsafe_units: 64,
        pipelined_units: 0,
        oob_size_bytes: 0,
        holder_oob_offset: 0,
        content_mode,
        volatile_cache: true,
    }
}

impl FakeSpace {
    /// One of so many units and blocks, all free.
    pub fn new(shape: BlockShape, units: u16, blocks_per_unit: u32) -> FakeSpace {
        FakeSpace {
            shape,
            units,
            blocks_per_unit,
            blocks: BTreeMap::new(),
            limbo: Vec::new(),
            pending: Vec::new(),
            sequence: 0,
            operations: 0,
            work: SpaceWork::default(),
            copies_within_dies: false,
            copied_units: 0,
            erases_freed: 0,
            fail_next_append: false,
            read_only: false,
            no_room: false,
            unreadable: Vec::new(),
            retries: Vec::new(),
            lost_pages: Vec::new(),
            failed: Vec::new(),
            fail_next_flush: false,
            has_flush_failed: false,
            lies_about_flushes: false,
            holds_flushes: false,
            flushes: 0,
            stale: BTreeMap::new(),
            restarts: 0,
        }
    }

    /// Whether nothing is under way.
    pub fn is_idle(&self) -> bool {
        self.pending.is_empty()
    }

    /// Executes one operation under way and gives its completion.
    pub fn step(&mut self, random: &mut Random) -> Option<SpaceCompletion> {
        if self.pending.is_empty() {
            return None;
        }
        let mut at = random.below(self.pending.len() as u64) as usize;
        if self.holds_flushes && matches!(self.pending[at], Pending::Flush(..)) {
            at = self.pending.iter().position(|pending| !matches!(pending, Pending::Flush(..)))?;
        }
        if let Pending::Append(_, block, _) = &self.pending[at] {
            let block = *block;
            at = self
                .pending
                .iter()
                .position(|p| matches!(p, Pending::Append(_, other, _) if *other == block))
                .unwrap();
        }
        let answer =
            |token, result| SpaceCompletion { token, result, destination: None, oob: None, retries: 0 };
        Some(match self.pending.remove(at) {
            Pending::Done(completion) => completion,
            Pending::Flush(token, covered) => {
                if std::mem::take(&mut self.fail_next_flush) || self.has_flush_failed {
                    self.has_flush_failed = true;
                    return Some(answer(token, Err(SpaceError::FlushFailed)));
                }
                self.flushes += 1;
                let covered = if self.lies_about_flushes { Vec::new() } else { covered };
                for (block, sequence, units) in covered {
                    let limbo = self.limbo.iter_mut().map(|(block, held)| (*block, held));
                    let all = self.blocks.iter_mut().map(|(block, held)| (*block, held)).chain(limbo);
                    for (_, held) in all.filter(|(at, held)| *at == block && held.sequence == sequence) {
                        held.units[..units].iter_mut().for_each(|unit| unit.is_flushed = true);
                        held.is_headed |= units > 0;
                    }
                }
                answer(token, Ok(()))
            }
            Pending::Sync(token) => {
                for (block, old) in std::mem::take(&mut self.limbo) {
                    self.forget(block, old);
                }
                self.blocks.values_mut().for_each(|b| b.durable = true);
                answer(token, Ok(()))
            }
            Pending::Append(token, block, units) => {
                if self.has_flush_failed {
                    return Some(answer(token, Err(SpaceError::FlushFailed)));
                }
                if std::mem::take(&mut self.fail_next_append) {
                    self.failed.push(block);
                }
                if self.failed.contains(&block) {
                    let error = SpaceError::AppendFailed { unit: block.unit.0, index: block.index };
                    return Some(answer(token, Err(error)));
                }
                let held = self.blocks.get_mut(&block).unwrap();
                held.units.extend(units);
                held.durable = true;
                answer(token, Ok(()))
            }
        })
    }

    /// Program units that hold something.
    pub fn unit_sum(&self) -> usize {
        self.blocks.values().map(|block| block.units.len()).sum()
    }

    /// Program units that hold something, in the order of [`FakeSpace::bend`].
    pub fn written_units(&self) -> Vec<(LogicalBlock, u32)> {
        let units = |(block, held): (&LogicalBlock, &Block)| {
            let block = *block;
            (0..held.units.len() as u32).map(move |unit| (block, unit))
        };
        self.blocks.iter().flat_map(units).collect()
    }

    /// Another medium with the same content.
    ///
    /// # Panics
    /// If something is under way.
    pub fn copy(&self) -> FakeSpace {
        assert!(self.pending.is_empty(), "what is under way belongs to one medium");
        FakeSpace {
            blocks: self.blocks.clone(),
            limbo: self.limbo.clone(),
            sequence: self.sequence,
            lost_pages: self.lost_pages.clone(),
            failed: self.failed.clone(),
            stale: self.stale.clone(),
            restarts: self.restarts,
            ..FakeSpace::new(self.shape, self.units, self.blocks_per_unit)
        }
    }

    /// What a program unit holds cannot be read any more.
    pub fn lose(&mut self, (block, unit): (LogicalBlock, u32)) {
        self.blocks.get_mut(&block).expect("held").units[unit as usize].torn = true;
    }

    /// What an IU of a drive holds has become something else.
    pub fn rot(&mut self, (block, unit): (LogicalBlock, u32)) {
        let content = &mut self.blocks.get_mut(&block).expect("held").units[unit as usize].ius[0];
        content.iter_mut().for_each(|byte| *byte = !*byte);
    }

    /// What a page holds cannot be read any more, content and OOB.
    pub fn lose_page(&mut self, block: LogicalBlock, page: u32) {
        self.lost_pages.push((block, page));
    }

    /// Pages of a block that can be read.
    pub fn readable_pages(&self, block: LogicalBlock) -> Vec<u32> {
        let pages = 0..self.blocks[&block].units.len() as u32 * self.shape.program_unit_pages;
        pages.filter(|page| self.read_page_oob(block, *page).is_ok()).collect()
    }

    /// OOB of a page that can be read.
    pub fn oob_of(&self, block: LogicalBlock, page: u32) -> Option<&[u8]> {
        self.read_page_oob(block, page).ok()
    }

    /// Two program units, content and OOB, lie in each other's place, as if their programs had gone astray.
    pub fn swap(&mut self, (block, unit): (LogicalBlock, u32), (other, other_unit): (LogicalBlock, u32)) {
        let mut moved = self.blocks[&block].units[unit as usize].clone();
        let there = &mut self.blocks.get_mut(&other).expect("held").units[other_unit as usize];
        std::mem::swap(&mut moved, there);
        self.blocks.get_mut(&block).expect("held").units[unit as usize] = moved;
    }

    /// The medium forgets all blocks, and on a drive what they held lies there still.
    pub fn forget_all(&mut self) {
        let blocks = std::mem::take(&mut self.blocks).into_iter().chain(std::mem::take(&mut self.limbo));
        for (block, old) in blocks.collect::<Vec<_>>() {
            self.forget(block, old);
        }
    }

    /// Changes the content and OOB of a program unit, counted over all blocks and round and round.
    pub fn bend(&mut self, nth: usize, edit: impl FnOnce(&mut [Vec<u8>], &mut [u8])) {
        let count = self.unit_sum();
        let mut units = self.blocks.values_mut().flat_map(|block| &mut block.units);
        if let Some(unit) = nth.checked_rem(count).and_then(|nth| units.nth(nth)) {
            edit(&mut unit.ius, &mut unit.oob);
        }
    }

    /// What a block held stays on the medium until something else is written there.
    fn forget(&mut self, block: LogicalBlock, old: Block) {
        for (iu, content) in (0..).zip(old.units.into_iter().flat_map(|unit| unit.ius)) {
            self.stale.insert((block, iu), content);
        }
    }

    /// What is read of a place where nothing was written: what lay there before, or anything.
    fn anything(&self, block: LogicalBlock, iu: u32, size: usize) -> Vec<u8> {
        if let Some(stale) = self.stale.get(&(block, iu)).filter(|stale| stale.len() == size) {
            return stale.clone();
        }
        let seed = self.restarts << 48 ^ u64::from(block.unit.0) << 40 ^ u64::from(block.index) << 20;
        let mut random = Random::of(seed ^ u64::from(iu));
        (0..size).map(|_| random.below(256) as u8).collect()
    }

    /// On a drive: what was under way and what no flush covers happens or not, sector by sector.
    fn lose_what_is_not_flushed(&mut self, cut: bool, random: &mut Random) {
        let pending = std::mem::take(&mut self.pending);
        for (block, mut units) in pending.into_iter().filter_map(|pending| match pending {
            Pending::Append(_, block, units) => Some((block, units)),
            _ => None,
        }) {
            if self.failed.contains(&block) || self.has_flush_failed {
                continue;
            }
            let is_there = random.below(2) == 0;
            for unit in &mut units {
                unit.torn = !is_there;
            }
            if let Some(held) = self.blocks.get_mut(&block) {
                held.units.extend(units);
            }
        }
        self.restarts += 1;
        let limbo = std::mem::take(&mut self.limbo);
        let mut came_back = Vec::new();
        for (block, old) in limbo {
            if cut && !self.blocks.contains_key(&block) && random.below(2) == 0 {
                came_back.push((block, old));
            } else {
                self.forget(block, old);
            }
        }
        self.blocks.extend(came_back);
        let mut blocks = std::mem::take(&mut self.blocks);
        for (block, held) in &mut blocks {
            for (at, unit) in (0..).zip(&mut held.units) {
                let is_lost =
                    std::mem::take(&mut unit.torn) || cut && !unit.is_flushed && random.below(3) == 0;
                if !is_lost {
                    continue;
                }
                let first_iu = at * self.shape.program_unit_ius();
                let is_torn = random.below(2) == 0;
                // Sector by sector, or, where there are several, some IUs from the start are left.
                let kept =
                    if is_torn && unit.ius.len() > 1 { random.below(unit.ius.len() as u64) } else { 0 };
                for (iu, content) in (first_iu..).zip(&mut unit.ius).skip(kept as usize) {
                    let before = self.anything(*block, iu, content.len());
                    let sectors = content.chunks_mut(512).zip(before.chunks(512));
                    for (sector, before) in sectors.filter(|_| !is_torn || random.below(2) == 0) {
                        sector.copy_from_slice(before);
                    }
                }
            }
            if cut && !held.is_headed && random.below(3) == 0 {
                held.description = None;
            }
        }
        blocks.retain(|_, held| held.durable || !held.units.is_empty() || !cut || random.below(2) == 0);
        self.blocks = blocks;
        // An opening flushes first. Nothing is appended to what an earlier life opened.
        for held in self.blocks.values_mut() {
            held.units.iter_mut().for_each(|unit| unit.is_flushed = true);
            (held.is_headed, held.submitted) = (true, u32::MAX);
        }
        self.has_flush_failed = false;
    }

    /// The process dies: what was handed over may or may not happen.
    pub fn process_death(&mut self, random: &mut Random) {
        if !self.shape.has_oob() {
            return self.lose_what_is_not_flushed(false, random);
        }
        for pending in std::mem::take(&mut self.pending) {
            if let Pending::Append(_, block, units) = pending {
                if self.failed.contains(&block) {
                    // What comes after a program that failed fails too.
                    continue;
                }
                let held = self.blocks.get_mut(&block).unwrap();
                if random.below(2) == 0 && held.submitted != u32::MAX {
                    held.units.extend(units);
                } else {
                    held.submitted = u32::MAX;
                }
            }
        }
        self.after_restart();
    }

    /// The power goes.
    pub fn power_cut(&mut self, random: &mut Random) {
        if !self.shape.has_oob() {
            return self.lose_what_is_not_flushed(true, random);
        }
        for pending in std::mem::take(&mut self.pending) {
            if let Pending::Append(_, block, mut units) = pending {
                let full = self.shape.program_units() as usize;
                let held = self.blocks.get_mut(&block).unwrap();
                if held.submitted == u32::MAX || self.failed.contains(&block) {
                    continue;
                }
                match random.below(3) {
                    0 => held.units.extend(units),
                    1 => {
                        let len = held.units.len();
                        for unit in
                            held.units.iter_mut().skip(len - (self.shape.unsafe_units as usize).min(len))
                        {
                            unit.torn |= random.below(2) == 0;
                        }
                        units[0].torn = true;
                        held.units.extend(units);
                        assert!(held.units.len() <= full);
                        held.submitted = u32::MAX;
                    }
                    _ => held.submitted = u32::MAX,
                }
            }
        }
        for (block, old) in std::mem::take(&mut self.limbo) {
            if self.blocks.contains_key(&block) || random.below(2) == 0 {
                continue;
            }
            self.blocks.insert(block, old);
        }
        self.blocks.retain(|_, held| held.durable || !held.units.is_empty() || random.below(2) != 0);
        self.after_restart();
    }

    fn after_restart(&mut self) {
        for held in self.blocks.values_mut() {
            held.submitted = held.units.len() as u32;
        }
    }

    fn begin_append(&mut self, token: SpaceToken, block: LogicalBlock, units: Vec<Unit>) {
        let held = self.blocks.get_mut(&block).expect("append to a block that is held");
        self.work.erases += u64::from(held.submitted == 0);
        self.work.appended_ius += units.len() as u64 * u64::from(self.shape.program_unit_ius());
        assert_ne!(held.submitted, u32::MAX, "append to a block of an earlier life");
        held.submitted += units.len() as u32;
        assert!(held.submitted <= self.shape.program_units(), "append beyond the end");
        self.pending.push(Pending::Append(token, block, units));
    }

    fn read_iu(&self, block: LogicalBlock, iu: u32, size: usize) -> Result<Cow<'_, [u8]>, SpaceError> {
        let (unit, index) = (block.unit.0, block.index);
        let held = self.blocks.get(&block).ok_or(SpaceError::NotAllocated { unit, index })?;
        let unit_ius = self.shape.program_unit_ius();
        let is_plain = !self.shape.has_oob();
        let data = match held.units.get((iu / unit_ius) as usize) {
            None if is_plain => return Ok(self.anything(block, iu, size).into()),
            data => data.ok_or(SpaceError::Erased { unit, index, iu })?,
        };
        let content = &data.ius[(iu % unit_ius) as usize];
        let page = (block, iu / self.shape.ius_per_page());
        if data.torn || self.unreadable.contains(&(block, iu / unit_ius)) || self.lost_pages.contains(&page) {
            return Err(SpaceError::Uncorrectable { unit, index, iu });
        }
        if content.len() != size && is_plain {
            return Ok(self.anything(block, iu, size).into());
        }
        if content.len() != size {
            return Err(SpaceError::WrongContentMode { unit, index, iu });
        }
        Ok(content.into())
    }

    fn read_page_oob(&self, block: LogicalBlock, page: u32) -> Result<&[u8], SpaceError> {
        let (unit, index) = (block.unit.0, block.index);
        let iu = page * self.shape.ius_per_page();
        let held = self.blocks.get(&block).ok_or(SpaceError::NotAllocated { unit, index })?;
        let pages = self.shape.program_unit_pages;
        let data = held.units.get((page / pages) as usize).ok_or(SpaceError::Erased { unit, index, iu })?;
        let is_lost = self.lost_pages.contains(&(block, page));
        if data.torn || self.unreadable.contains(&(block, page / pages)) || is_lost {
            return Err(SpaceError::Uncorrectable { unit, index, iu });
        }
        let size = self.shape.oob_size_bytes as usize;
        Ok(&data.oob[(page % pages) as usize * size..][..size])
    }
}

impl EraseBlockSpace for FakeSpace {
    fn shape(&self) -> &BlockShape {
        &self.shape
    }
    fn unit_count(&self) -> u16 {
        self.units
    }
    fn blocks_of_unit(&self, _unit: UnitIndex) -> u32 {
        self.blocks_per_unit
    }
    fn is_read_only(&self) -> bool {
        self.read_only
    }
    fn free_blocks(&self, unit: UnitIndex) -> u32 {
        if self.read_only {
            return 0;
        }
        let held =
            self.blocks.keys().chain(self.limbo.iter().map(|(b, _)| b)).filter(|b| b.unit == unit).count();
        self.blocks_per_unit.saturating_sub(held as u32)
    }
    fn make_room(&mut self, _unit: UnitIndex) -> bool {
        !self.no_room
    }
    fn work(&self) -> SpaceWork {
        self.work
    }
    fn allocate_described(
        &mut self,
        unit: UnitIndex,
        purpose: Purpose,
        description: &[u8],
    ) -> Result<LogicalBlock, SpaceError> {
        self.operations += 1;
        if self.no_room {
            return Err(SpaceError::NoRoom);
        }
        if self.read_only {
            return Err(SpaceError::ReadOnly);
        }
        for index in 0..self.blocks_per_unit {
            let block = LogicalBlock { unit, index };
            if !self.blocks.contains_key(&block) && !self.limbo.iter().any(|(b, _)| *b == block) {
                self.sequence += 1;
                self.failed.retain(|b| *b != block);
                self.lost_pages.retain(|(b, _)| *b != block);
                let new = Block {
                    purpose,
                    sequence: self.sequence,
                    units: Vec::new(),
                    submitted: 0,
                    durable: false,
                    description: Some(description.to_vec()),
                    is_headed: false,
                };
                self.blocks.insert(block, new);
                return Ok(block);
            }
        }
        Err(SpaceError::NoFreeBlock { unit: unit.0 })
    }
    fn append(
        &mut self,
        token: SpaceToken,
        block: LogicalBlock,
        parts: PayloadParts,
        oob: BufferMut,
        _: IoClass,
    ) {
        self.operations += 1;
        let mut ius = Vec::new();
        for part in &parts {
            for iu in 0..part.iu_count() {
                ius.push(part.iu(iu).to_vec());
            }
        }
        let unit_ius = self.shape.program_unit_ius() as usize;
        assert!(!ius.is_empty() && ius.len().is_multiple_of(unit_ius), "whole program units");
        assert_eq!(oob.len() * unit_ius, ius.len() * self.shape.program_unit_oob_size_bytes() as usize);
        let oob_bytes = self.shape.program_unit_oob_size_bytes() as usize;
        let units: Vec<Unit> = (0..)
            .zip(ius.chunks(unit_ius))
            .map(|(unit, ius)| {
                let oob = &oob[unit * oob_bytes..][..oob_bytes];
                Unit { ius: ius.to_vec(), oob: oob.to_vec(), torn: false, is_flushed: false }
            })
            .collect();
        self.begin_append(token, block, units);
    }
    fn copies_within_dies(&self) -> bool {
        self.copies_within_dies
    }
    fn append_copy(
        &mut self,
        token: SpaceToken,
        source: BlockPages,
        block: LogicalBlock,
        oob: BufferMut,
        _: IoClass,
    ) -> Result<(), BufferMut> {
        assert_eq!(source.block.unit, block.unit, "a copy within a die stays on its unit");
        let unit_pages = self.shape.program_unit_pages;
        let size = self.shape.program_unit_oob_size_bytes() as usize;
        assert_eq!((oob.len(), source.first_page % unit_pages), (size, 0), "one program unit");
        let held = self.blocks.get(&source.block);
        let Some(unit) = held.and_then(|held| held.units.get((source.first_page / unit_pages) as usize))
        else {
            return Err(oob);
        };
        if !self.copies_within_dies || unit.torn {
            return Err(oob);
        }
        // Whatever it holds, also if that is not what was written there.
        let units = vec![Unit { ius: unit.ius.clone(), oob: oob.to_vec(), torn: false, is_flushed: false }];
        self.copied_units += 1;
        self.begin_append(token, block, units);
        Ok(())
    }
    fn begun_pages(&self, block: LogicalBlock) -> u32 {
        let held = &self.blocks[&block];
        if self.failed.contains(&block) {
            return u32::MAX;
        }
        held.units.len() as u32 * self.shape.program_unit_pages
    }
    fn withdraw(&mut self, block: LogicalBlock, first_page: u32) {
        let first_unit = first_page / self.shape.program_unit_pages;
        let held = self.blocks.get_mut(&block).unwrap();
        let mut next = held.units.len() as u32;
        assert!(next <= first_unit || held.submitted == next, "what was programmed stays");
        self.pending.retain(|pending| {
            let Pending::Append(_, other, units) = pending else { return true };
            if *other != block {
                return true;
            }
            next += units.len() as u32;
            next <= first_unit
        });
        let withdrawn_units = held.submitted.saturating_sub(first_unit);
        self.work.appended_ius -= u64::from(withdrawn_units * self.shape.program_unit_ius());
        held.submitted -= withdrawn_units;
    }
    fn read(
        &mut self,
        token: SpaceToken,
        run: BlockRun,
        mut destination: BufferMut,
        oob: Option<BufferMut>,
        _: IoClass,
    ) {
        let BlockRun { block, first_iu, iu_count } = run;
        self.operations += 1;
        let size = destination.len() / iu_count as usize;
        assert!(size == IU_SIZE_BYTES || size == 8);
        let mut result = Ok(());
        for iu in 0..iu_count {
            match self.read_iu(block, first_iu + iu, size) {
                Ok(content) => destination[iu as usize * size..][..size].copy_from_slice(&content),
                Err(error) => result = result.and(Err(error)),
            }
        }
        let mut oob = oob;
        if let Some(oob) = &mut oob
            && result.is_ok()
        {
            let page_ius = self.shape.ius_per_page();
            let (first, last) = (first_iu / page_ius, (first_iu + iu_count - 1) / page_ius);
            let size = self.shape.oob_size_bytes as usize;
            assert_eq!(oob.len(), (last - first + 1) as usize * size);
            for page in first..=last {
                oob[(page - first) as usize * size..][..size]
                    .copy_from_slice(self.read_page_oob(block, page).unwrap());
            }
        }
        let destination = Some(destination);
        let unit_ius = self.shape.program_unit_ius();
        let (first, last) = (first_iu / unit_ius, (first_iu + iu_count - 1) / unit_ius);
        let is_read = |at: &&((LogicalBlock, u32), u8)| at.0.0 == block && (first..=last).contains(&at.0.1);
        let retries = self.retries.iter().filter(is_read).map(|at| at.1).max().unwrap_or(0);
        self.pending.push(Pending::Done(SpaceCompletion { token, result, destination, oob, retries }));
    }
    fn read_oob(
        &mut self,
        token: SpaceToken,
        block: LogicalBlock,
        first_page: u32,
        mut oob: BufferMut,
        _: IoClass,
    ) {
        self.operations += 1;
        let size = self.shape.oob_size_bytes as usize;
        let mut result = Ok(());
        for (page, place) in oob.chunks_exact_mut(size).enumerate() {
            match self.read_page_oob(block, first_page + page as u32) {
                Ok(content) => place.copy_from_slice(content),
                Err(error) => result = Err(error),
            }
        }
        let oob = result.is_ok().then_some(oob);
        self.pending.push(Pending::Done(SpaceCompletion {
            token,
            result,
            destination: None,
            oob,
            retries: 0,
        }));
    }
    fn free(&mut self, block: LogicalBlock) -> Result<(), SpaceError> {
        self.operations += 1;
        let error = SpaceError::NotAllocated { unit: block.unit.0, index: block.index };
        let old = self.blocks.remove(&block).ok_or(error)?;
        self.limbo.push((block, old));
        Ok(())
    }
    fn nonce(&self, block: LogicalBlock) -> Option<[u8; 8]> {
        let held = self.blocks.get(&block).filter(|_| !self.shape.has_oob())?;
        Some(Random::of(held.sequence << 1 | 1).below(u64::MAX).to_le_bytes())
    }
    fn read_description(&mut self, token: SpaceToken, block: LogicalBlock, mut destination: BufferMut) {
        self.operations += 1;
        let description = self.blocks.get(&block).and_then(|held| held.description.as_ref());
        let result = match description.filter(|_| !self.shape.has_oob()) {
            Some(description) => {
                let place = &mut destination[HEADER_HOLDER_AT_BYTES..];
                place.fill(0);
                place[..description.len()].copy_from_slice(description);
                Ok(())
            }
            None => Err(SpaceError::Erased { unit: block.unit.0, index: block.index, iu: 0 }),
        };
        let destination = Some(destination);
        self.pending.push(Pending::Done(SpaceCompletion {
            token,
            result,
            destination,
            oob: None,
            retries: 0,
        }));
    }
    fn flush(&mut self, token: SpaceToken) {
        self.operations += 1;
        let limbo = self.limbo.iter().map(|(block, held)| (block, held));
        let covered = self.blocks.iter().chain(limbo);
        let covered = covered.map(|(block, held)| (*block, held.sequence, held.units.len())).collect();
        self.pending.push(Pending::Flush(token, covered));
    }
    fn sync(&mut self, token: SpaceToken) {
        self.operations += 1;
        self.pending.push(Pending::Sync(token));
    }
    fn erase_freed(&mut self, token: SpaceToken) {
        // What is freed is gone here.
        self.erases_freed += 1;
        self.sync(token);
    }
    fn held_blocks(&self) -> Vec<HeldBlock> {
        self.blocks
            .iter()
            .map(|(block, held)| HeldBlock {
                block: *block,
                purpose: held.purpose,
                // On a drive nobody knows it after a restart.
                written_pages: if held.submitted == u32::MAX {
                    self.shape.pages
                } else {
                    held.units.len() as u32 * self.shape.program_unit_pages
                },
                allocation_sequence: held.sequence,
            })
            .collect()
    }
}
