//! An erase block space that answers at once and keeps as little as it can: a tag for each IU, page marks where memory
//! allows, and chunk heads and map leaves packed. A mark is left out only where the rest tells it.

use super::metered::Inside;
use diecut_log::head::{NOTE_SIZE_BYTES, RECORDS_OFFSET as HEAD_BYTES};
use diecut_log::mark::{self, Mark};
use diecut_units::{BufferMut, ContentMode, IU_SIZE_BYTES, checksum, prefer_huge_pages};
use diecut_vssd::space::*;
use std::collections::{BTreeMap, VecDeque};

const TAG_BYTES: usize = 8;
const MARK_BYTES: usize = 32;

pub struct CompactSpace {
    shape: BlockShape,
    units: u16,
    per_unit: u32,
    /// Program units that each block holds.
    written: Vec<u32>,
    /// When each block was taken, for those that are held.
    held: Vec<Option<(u64, Purpose)>>,
    allocations: u64,
    free: Vec<Vec<u32>>,
    /// Tags of all IUs, one program unit after the other. Those of heads and leaves are not used.
    tags: Vec<u8>,
    /// The log's part of all pages' OOB; empty where it is computed again.
    marks: Vec<u8>,
    /// Marks of pages that cannot be computed again: filler has no checksums.
    odd_marks: BTreeMap<usize, [u8; MARK_BYTES]>,
    /// Owner of each block, where marks are computed again.
    owners: Vec<[u8; 12]>,
    /// What program units of each block hold in bytes, in order: a packed head, or leaves as they are.
    bytes: Vec<Vec<(u32, Box<[u8]>)>>,
    pub done: VecDeque<SpaceCompletion>,
}

impl CompactSpace {
    /// Room for `size_ius` at the over-provisioning; `marks` keeps page marks as they are, for 8 bytes an IU more.
    pub fn new(size_ius: u64, permille: u64, pages: u32, marks: bool) -> CompactSpace {
        let shape = BlockShape {
            pages,
            page_size_bytes: 16384,
            program_unit_pages: 4,
            unsafe_units: 0,
            pipelined_units: 0,
            oob_size_bytes: 64,
            holder_oob_offset: 32,
            content_mode: ContentMode::Tags,
            volatile_cache: false,
        };
        let units = 16u16;
        let segment_ius = f64::from(shape.ius() * u32::from(units));
        let per_unit =
            ((size_ius * (1000 + permille) / 1000) as f64 / segment_ius / 0.9922).ceil() as u32 + 1;
        let blocks = usize::from(units) * per_unit as usize;
        // What stands in for flash must not cost the engine more than it has to.
        let mut tags = Vec::with_capacity(blocks * shape.ius() as usize * TAG_BYTES);
        let mut kept = Vec::with_capacity(if marks { blocks * shape.pages as usize * MARK_BYTES } else { 0 });
        prefer_huge_pages(&mut tags);
        prefer_huge_pages(&mut kept);
        tags.resize(tags.capacity(), 0);
        kept.resize(kept.capacity(), 0);
        CompactSpace {
            shape,
            units,
            per_unit,
            written: vec![0; blocks],
            held: vec![None; blocks],
            allocations: 0,
            free: (0..units).map(|_| (0..per_unit).rev().collect()).collect(),
            tags,
            marks: kept,
            odd_marks: BTreeMap::new(),
            owners: vec![[0; 12]; blocks],
            bytes: vec![Vec::new(); blocks],
            done: VecDeque::new(),
        }
    }

    fn at(&self, block: LogicalBlock) -> usize {
        block.unit.0 as usize * self.per_unit as usize + block.index as usize
    }

    /// Number of a program unit of a block, if it was programmed.
    fn program(&self, block: LogicalBlock, unit: u32) -> Option<usize> {
        let at = self.at(block);
        (unit < self.written[at]).then(|| at * self.shape.program_units() as usize + unit as usize)
    }

    /// What a program unit holds in bytes.
    fn bytes_of(&self, program: usize) -> Option<&[u8]> {
        let units = self.shape.program_units() as usize;
        let (block, unit) = (&self.bytes[program / units], (program % units) as u32);
        let found = block.binary_search_by_key(&unit, |(unit, _)| *unit).ok()?;
        Some(&block[found].1)
    }

    fn tags_at(&self, program: usize, iu: u32) -> usize {
        (program * self.shape.program_unit_ius() as usize + iu as usize) * TAG_BYTES
    }

    /// Checksum of an IU of a program unit.
    fn checksum_of(&self, program: usize, iu: u32, page: &mut [u8; IU_SIZE_BYTES]) -> u32 {
        match self.bytes_of(program) {
            Some(bytes) if iu == 0 || bytes.len() > IU_SIZE_BYTES => {
                unpack(bytes, iu as usize, page);
                checksum(page)
            }
            _ => {
                let at = self.tags_at(program, iu);
                checksum(&self.tags[at..at + TAG_BYTES])
            }
        }
    }

    /// The log's part of the OOB of a page.
    fn mark_of(&self, program: usize, page: u32, mark: &mut [u8]) {
        let at = program * self.shape.program_unit_pages as usize + page as usize;
        if !self.marks.is_empty() {
            mark.copy_from_slice(&self.marks[at * MARK_BYTES..(at + 1) * MARK_BYTES]);
        } else if let Some(odd) = self.odd_marks.get(&at) {
            mark.copy_from_slice(odd);
        } else {
            self.mark_again(program, page, mark);
        }
    }

    /// The mark that the owner and the content of a page tell.
    fn mark_again(&self, program: usize, page: u32, mark: &mut [u8]) {
        let ius = self.shape.ius_per_page();
        let mut scratch = [0; IU_SIZE_BYTES];
        let sums: [u32; 4] =
            std::array::from_fn(|iu| self.checksum_of(program, page * ius + iu as u32, &mut scratch));
        let owner = &self.owners[program / self.shape.program_units() as usize];
        let word = |at: usize| u32::from_le_bytes(owner[at..at + 4].try_into().expect("4 bytes"));
        let half = |at: usize| u16::from_le_bytes(owner[at..at + 2].try_into().expect("2 bytes"));
        let unit = program as u32 % self.shape.program_units();
        let owner = Mark {
            segment: word(0),
            generation: word(4),
            member: half(8),
            stream: half(10),
            place: mark::place_of(unit * self.shape.program_unit_pages + page),
        };
        mark.fill(0);
        mark::encode(&owner, &sums, mark);
    }

    fn fill_oob(&self, program: usize, first_page: u32, oob: &mut [u8]) {
        let holder = self.shape.holder_oob_offset as usize;
        for (page, oob) in oob.chunks_exact_mut(self.shape.oob_size_bytes as usize).enumerate() {
            oob[..holder].fill(0);
            self.mark_of(program, first_page + page as u32, &mut oob[holder..]);
        }
    }

    fn keep_marks(&mut self, program: usize, oob: &[u8]) {
        let holder = self.shape.holder_oob_offset as usize;
        let first = program * self.shape.program_unit_pages as usize;
        for (page, oob) in oob.chunks_exact(self.shape.oob_size_bytes as usize).enumerate() {
            let (at, mark) = (first + page, &oob[holder..]);
            if !self.marks.is_empty() {
                self.marks[at * MARK_BYTES..(at + 1) * MARK_BYTES].copy_from_slice(mark);
                continue;
            }
            if program.is_multiple_of(self.shape.program_units() as usize) {
                let owner = &mut self.owners[program / self.shape.program_units() as usize];
                owner.copy_from_slice(&mark[4..16]);
                // The place of the page is above the stream, and another in each.
                (owner[10], owner[11]) = (owner[10] & 3, 0);
            }
            let mut again = [0; MARK_BYTES];
            self.mark_again(program, page as u32, &mut again);
            if mark != again {
                self.odd_marks.insert(at, mark.try_into().expect("32 bytes"));
            }
        }
    }
}

/// A head as its fixed fields, half of each record, where the other half is zero in all, and its notes; else as it is.
fn pack(head: &[u8]) -> Box<[u8]> {
    let (records, notes) = counts(head);
    let (end, start) = (HEAD_BYTES + records * 8, IU_SIZE_BYTES - notes * NOTE_SIZE_BYTES);
    let size = HEAD_BYTES + records * 4 + notes * NOTE_SIZE_BYTES;
    if size < IU_SIZE_BYTES
        && head[HEAD_BYTES..end].chunks_exact(8).all(|record| record[4..8] == [0; 4])
        && head[end..start] == [0; IU_SIZE_BYTES][end..start]
    {
        let mut packed = Vec::with_capacity(size);
        packed.extend_from_slice(&head[..HEAD_BYTES]);
        packed.resize(HEAD_BYTES + records * 4, 0);
        let halves = packed[HEAD_BYTES..].as_chunks_mut::<4>().0;
        for (half, record) in halves.iter_mut().zip(head[HEAD_BYTES..end].as_chunks::<8>().0) {
            half.copy_from_slice(&record[..4]);
        }
        packed.extend_from_slice(&head[start..]);
        return packed.into();
    }
    head.into()
}

/// Records and notes of a head.
fn counts(head: &[u8]) -> (usize, usize) {
    let notes = u32::from_le_bytes(head[28..32].try_into().expect("4 bytes"));
    (u16::from_le_bytes([head[24], head[25]]).into(), notes as usize)
}

/// IU `iu` of what a program unit holds in bytes.
fn unpack(packed: &[u8], iu: usize, page: &mut [u8]) {
    if packed.len().is_multiple_of(IU_SIZE_BYTES) {
        page.copy_from_slice(&packed[iu * IU_SIZE_BYTES..(iu + 1) * IU_SIZE_BYTES]);
        return;
    }
    let (records, notes) = counts(packed);
    let (end, start) = (HEAD_BYTES + records * 8, IU_SIZE_BYTES - notes * NOTE_SIZE_BYTES);
    let (fixed, rest) = packed.split_at(HEAD_BYTES);
    let (halves, notes) = rest.split_at(records * 4);
    page[..HEAD_BYTES].copy_from_slice(fixed);
    page[HEAD_BYTES..].fill(0);
    for (record, half) in
        page[HEAD_BYTES..end].as_chunks_mut::<8>().0.iter_mut().zip(halves.as_chunks::<4>().0)
    {
        record[..4].copy_from_slice(half);
    }
    page[start..].copy_from_slice(notes);
}

impl EraseBlockSpace for CompactSpace {
    fn shape(&self) -> &BlockShape {
        &self.shape
    }
    fn unit_count(&self) -> u16 {
        self.units
    }
    fn blocks_of_unit(&self, _: UnitIndex) -> u32 {
        self.per_unit
    }
    fn is_read_only(&self) -> bool {
        false
    }
    fn free_blocks(&self, unit: UnitIndex) -> u32 {
        self.free[unit.0 as usize].len() as u32
    }
    fn work(&self) -> SpaceWork {
        // Nobody asks this store what was done for it.
        SpaceWork::default()
    }
    fn allocate_described(
        &mut self,
        unit: UnitIndex,
        purpose: Purpose,
        _description: &[u8],
    ) -> Result<LogicalBlock, SpaceError> {
        let _inside = Inside::enter();
        let index = self.free[unit.0 as usize].pop().ok_or(SpaceError::NoFreeBlock { unit: unit.0 })?;
        let block = LogicalBlock { unit, index };
        let at = self.at(block);
        self.allocations += 1;
        (self.held[at], self.written[at]) = (Some((self.allocations, purpose)), 0);
        Ok(block)
    }
    fn append(
        &mut self,
        token: SpaceToken,
        block: LogicalBlock,
        parts: PayloadParts,
        oob: BufferMut,
        _: IoClass,
    ) {
        let _inside = Inside::enter();
        // Given back inside, too: a device does that.
        let (parts, oob) = (parts, oob);
        let at = self.at(block);
        let unit = self.written[at];
        let program = at * self.shape.program_units() as usize + unit as usize;
        self.written[at] += 1;
        let mut iu = 0;
        for part in &parts {
            let bytes = part.bytes();
            match part.mode() {
                ContentMode::Bytes => {
                    let packed = if bytes.len() == IU_SIZE_BYTES { pack(bytes) } else { bytes.into() };
                    self.bytes[at].push((unit, packed));
                }
                ContentMode::Tags => {
                    let first = self.tags_at(program, iu);
                    self.tags[first..first + bytes.len()].copy_from_slice(bytes);
                }
            }
            iu += part.iu_count();
        }
        self.keep_marks(program, &oob);
        self.done.push_back(SpaceCompletion {
            token,
            result: Ok(()),
            destination: None,
            oob: None,
            retries: 0,
        });
    }
    fn begun_pages(&self, _: LogicalBlock) -> u32 {
        u32::MAX
    }
    fn withdraw(&mut self, _: LogicalBlock, _: u32) {
        unreachable!("appends are programmed at once");
    }
    fn read(
        &mut self,
        token: SpaceToken,
        run: BlockRun,
        mut destination: BufferMut,
        mut oob: Option<BufferMut>,
        _: IoClass,
    ) {
        let BlockRun { block, first_iu, iu_count } = run;
        let _inside = Inside::enter();
        let (unit_ius, page_ius) = (self.shape.program_unit_ius(), self.shape.ius_per_page());
        let (unit, first) = (first_iu / unit_ius, first_iu % unit_ius);
        let result = match self.program(block, unit) {
            None => Err(SpaceError::Erased { unit: block.unit.0, index: block.index, iu: first_iu }),
            Some(program) => {
                if destination.len() == iu_count as usize * IU_SIZE_BYTES {
                    match self.bytes_of(program) {
                        Some(packed) => {
                            for (iu, page) in destination.chunks_exact_mut(IU_SIZE_BYTES).enumerate() {
                                unpack(packed, first as usize + iu, page);
                            }
                        }
                        // Heads and leaves are kept. The cleaner looked for a head where there is data.
                        None => destination.fill(0),
                    }
                } else {
                    let (from, len) = (self.tags_at(program, first), destination.len());
                    destination.copy_from_slice(&self.tags[from..from + len]);
                }
                if let Some(oob) = &mut oob {
                    self.fill_oob(program, first / page_ius, oob);
                }
                Ok(())
            }
        };
        self.done.push_back(SpaceCompletion {
            token,
            result,
            destination: Some(destination),
            oob,
            retries: 0,
        });
    }
    fn read_oob(
        &mut self,
        token: SpaceToken,
        block: LogicalBlock,
        first_page: u32,
        mut oob: BufferMut,
        _: IoClass,
    ) {
        let _inside = Inside::enter();
        let pages = self.shape.program_unit_pages;
        let result = match self.program(block, first_page / pages) {
            Some(program) => {
                self.fill_oob(program, first_page % pages, &mut oob);
                Ok(())
            }
            None => Err(SpaceError::Erased { unit: block.unit.0, index: block.index, iu: 0 }),
        };
        self.done.push_back(SpaceCompletion { token, result, destination: None, oob: Some(oob), retries: 0 });
    }
    fn free(&mut self, block: LogicalBlock) -> Result<(), SpaceError> {
        let _inside = Inside::enter();
        let at = self.at(block);
        self.held[at] = None;
        self.written[at] = 0;
        self.bytes[at] = Vec::new();
        let pages = self.shape.pages as usize;
        while let Some((page, _)) = self.odd_marks.range(at * pages..(at + 1) * pages).next() {
            let page = *page;
            self.odd_marks.remove(&page);
        }
        self.free[block.unit.0 as usize].push(block.index);
        Ok(())
    }
    fn read_description(&mut self, _: SpaceToken, _: LogicalBlock, _: BufferMut) {
        unreachable!("its blocks have no headers");
    }
    fn flush(&mut self, token: SpaceToken) {
        self.sync(token);
    }
    fn sync(&mut self, token: SpaceToken) {
        self.done.push_back(SpaceCompletion {
            token,
            result: Ok(()),
            destination: None,
            oob: None,
            retries: 0,
        });
    }
    fn erase_freed(&mut self, token: SpaceToken) {
        // What is freed is gone here.
        self.sync(token);
    }
    fn held_blocks(&self) -> Vec<HeldBlock> {
        let held = self.held.iter().enumerate().filter_map(|(at, held)| Some((at, (*held)?)));
        held.map(|(at, (allocation_sequence, purpose))| HeldBlock {
            block: LogicalBlock {
                unit: UnitIndex((at / self.per_unit as usize) as u16),
                index: (at % self.per_unit as usize) as u32,
            },
            purpose,
            written_pages: self.written[at] * self.shape.program_unit_pages,
            allocation_sequence,
        })
        .collect()
    }
}
