//! The volume engine alone over a null space in tag mode: random 4 KiB overwrites with the cleaner on, then a restart.
//!
//! `cargo run --release -p diecut-volume --example engine -- [GiB] [OP permille]`
//! The space keeps chunk heads and tags in memory and answers at once; no time passes in it.

use diecut_units::{BufferMut, ContentMode, Payload, ProtectedMemory, Time};
use diecut_volume::contract::*;
use diecut_volume::{Store, StoreConfig};
use diecut_vssd::space::*;
use std::collections::VecDeque;
use std::time::Duration;

struct Null {
    shape: BlockShape,
    units: u16,
    per_unit: u32,
    /// Program units that each block holds.
    written: Vec<u32>,
    /// The head in each program unit, empty where there is none.
    heads: Vec<Vec<u8>>,
    /// Data of all program units, one after the other.
    tags: Vec<u8>,
    /// The log's part of all pages' OOB.
    marks: Vec<u8>,
    held: Vec<bool>,
    free: Vec<Vec<u32>>,
    done: VecDeque<SpaceCompletion>,
}

impl Null {
    fn at(&self, block: LogicalBlock) -> usize {
        block.unit.0 as usize * self.per_unit as usize + block.index as usize
    }
    /// Number of a program unit of a block, if it was programmed.
    fn unit(&self, block: LogicalBlock, unit: u32) -> Option<usize> {
        let at = self.at(block);
        (unit < self.written[at]).then(|| at * self.shape.program_units() as usize + unit as usize)
    }
    fn mark_of(&self, unit: usize, page: u32) -> std::ops::Range<usize> {
        let size = (self.shape.oob_size_bytes - self.shape.holder_oob_offset) as usize;
        let first = (unit * self.shape.program_unit_pages as usize + page as usize) * size;
        first..first + size
    }
    fn fill_oob(&self, unit: usize, first_page: u32, oob: &mut [u8]) {
        let holder = self.shape.holder_oob_offset as usize;
        for (page, oob) in oob.chunks_exact_mut(self.shape.oob_size_bytes as usize).enumerate() {
            oob[..holder].fill(0);
            oob[holder..].copy_from_slice(&self.marks[self.mark_of(unit, first_page + page as u32)]);
        }
    }
}

impl EraseBlockSpace for Null {
    fn shape(&self) -> &BlockShape {
        &self.shape
    }
    fn unit_count(&self) -> u16 {
        self.units
    }
    fn blocks_of_unit(&self, _: UnitIndex) -> u32 {
        self.per_unit
    }
    fn free_blocks(&self, unit: UnitIndex) -> u32 {
        self.free[unit.0 as usize].len() as u32
    }
    fn allocate(&mut self, unit: UnitIndex, _: Purpose) -> Result<LogicalBlock, SpaceError> {
        let index = self.free[unit.0 as usize].pop().ok_or(SpaceError::NoFreeBlock { unit: unit.0 })?;
        let block = LogicalBlock { unit, index };
        let at = self.at(block);
        (self.held[at], self.written[at]) = (true, 0);
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
        let at = self.at(block);
        let unit = at * self.shape.program_units() as usize + self.written[at] as usize;
        self.written[at] += 1;
        // Leaves fill whole units: what held some must not keep that much for a head.
        self.heads[unit].clear();
        self.heads[unit].shrink_to(4096);
        let size = self.shape.program_unit_ius() as usize * 8;
        let mut next = unit * size;
        for part in &parts {
            let bytes = part.bytes();
            match part.mode() {
                ContentMode::Bytes => {
                    let lines = bytes.rchunks_exact(64).take_while(|line| **line == [0; 64]).count();
                    self.heads[unit].extend_from_slice(&bytes[..bytes.len() - 64 * lines]);
                }
                ContentMode::Tags => {
                    self.tags[next..next + bytes.len()].copy_from_slice(bytes);
                    next += bytes.len();
                }
            }
        }
        for (page, oob) in oob.chunks_exact(self.shape.oob_size_bytes as usize).enumerate() {
            let range = self.mark_of(unit, page as u32);
            self.marks[range].copy_from_slice(&oob[self.shape.holder_oob_offset as usize..]);
        }
        self.done.push_back(SpaceCompletion { token, result: Ok(()), destination: None, oob: None });
    }
    fn read(
        &mut self,
        token: SpaceToken,
        block: LogicalBlock,
        first_iu: u32,
        iu_count: u32,
        mut destination: BufferMut,
        mut oob: Option<BufferMut>,
        _: IoClass,
    ) {
        let (unit_ius, page_ius) = (self.shape.program_unit_ius(), self.shape.ius_per_page());
        let (unit, first) = (first_iu / unit_ius, first_iu % unit_ius);
        let result = match self.unit(block, unit) {
            None => Err(SpaceError::Erased { unit: block.unit.0, index: block.index, iu: first_iu }),
            Some(unit) => {
                let head = &self.heads[unit];
                if destination.len().is_multiple_of(4096) {
                    let stored = head.get(first as usize * 4096..).unwrap_or(&[]);
                    let stored = &stored[..stored.len().min(destination.len())];
                    destination[..stored.len()].copy_from_slice(stored);
                    destination[stored.len()..].fill(0);
                } else {
                    let first =
                        unit * unit_ius as usize * 8 + (first - u32::from(!head.is_empty())) as usize * 8;
                    let len = destination.len();
                    destination.copy_from_slice(&self.tags[first..first + len]);
                }
                if let Some(oob) = &mut oob {
                    self.fill_oob(unit, first / page_ius, oob);
                }
                Ok(())
            }
        };
        let _ = iu_count;
        self.done.push_back(SpaceCompletion { token, result, destination: Some(destination), oob });
    }
    fn read_oob(
        &mut self,
        token: SpaceToken,
        block: LogicalBlock,
        first_page: u32,
        mut oob: BufferMut,
        _: IoClass,
    ) {
        let pages = self.shape.program_unit_pages;
        let result = match self.unit(block, first_page / pages) {
            Some(unit) => {
                self.fill_oob(unit, first_page % pages, &mut oob);
                Ok(())
            }
            None => Err(SpaceError::Erased { unit: block.unit.0, index: block.index, iu: 0 }),
        };
        self.done.push_back(SpaceCompletion { token, result, destination: None, oob: Some(oob) });
    }
    fn free(&mut self, block: LogicalBlock) -> Result<(), SpaceError> {
        let at = self.at(block);
        self.held[at] = false;
        self.free[block.unit.0 as usize].push(block.index);
        Ok(())
    }
    fn sync(&mut self, token: SpaceToken) {
        self.done.push_back(SpaceCompletion { token, result: Ok(()), destination: None, oob: None });
    }
    fn held_blocks(&self) -> Vec<HeldBlock> {
        (0..self.held.len())
            .filter(|at| self.held[*at])
            .map(|at| HeldBlock {
                block: LogicalBlock {
                    unit: UnitIndex((at / self.per_unit as usize) as u16),
                    index: (at % self.per_unit as usize) as u32,
                },
                purpose: Purpose(1),
                written_pages: self.written[at] * self.shape.program_unit_pages,
                allocation_sequence: at as u64,
            })
            .collect()
    }
}

/// Processor time of this process: its one thread does all the work, and a shared machine takes none of it away.
fn processor_time() -> Duration {
    let text = std::fs::read_to_string("/proc/self/schedstat").expect("Linux tells the processor time");
    Duration::from_nanos(text.split(' ').next().and_then(|n| n.parse().ok()).expect("nanoseconds"))
}

fn main() {
    let mut arguments = std::env::args().skip(1).filter_map(|a| a.parse::<u64>().ok());
    let gib = arguments.next().unwrap_or(256);
    let permille = arguments.next().unwrap_or(280);
    let size_ius = gib << 18;
    // Erase blocks of 16 MiB (4 planes, 256 pages of 16 KiB) on 16 units, as in the published geometry.
    let shape = BlockShape {
        pages: 1024,
        page_size_bytes: 16384,
        program_unit_pages: 4,
        unsafe_units: 0,
        oob_size_bytes: 64,
        holder_oob_offset: 32,
        content_mode: ContentMode::Tags,
    };
    let units = 16u16;
    let per_unit = ((size_ius * (1000 + permille) / 1000) as f64 / 65536.0 / 0.9922).ceil() as u32 + 1;
    let blocks = usize::from(units) * per_unit as usize;
    let mut space = Null {
        shape,
        units,
        per_unit,
        written: vec![0; blocks],
        heads: vec![Vec::new(); blocks * shape.program_units() as usize],
        tags: vec![0; blocks * shape.ius() as usize * 8],
        marks: vec![0; blocks * shape.pages as usize * 32],
        held: vec![false; (u32::from(units) * per_unit) as usize],
        free: (0..units).map(|_| (0..per_unit).rev().collect()).collect(),
        done: VecDeque::new(),
    };
    let memory = ProtectedMemory::in_memory(64 * 5248);
    let open = |space: &mut Null| {
        Store::open(StoreConfig::default(), space, Some(memory.region(0..memory.size_bytes())))
    };
    let mut store = open(&mut space);
    let mut out = Vec::new();
    store.create_volume(VolumeToken(0), VolumeIndex(0), size_ius);
    store.work(Time::ZERO, &mut space, &mut out);
    out.clear();
    let mut state = 0x9e37_79b9_7f4a_7c15u64;
    let content = Payload::new(ContentMode::Tags, BufferMut::copy_from(&[7; 8]).freeze());
    let mut under_way = 0u64;
    let mut write = |store: &mut Store, space: &mut Null, first_iu: u64, out: &mut Vec<VolumeCompletion>| {
        let operation =
            VolumeOperation::Write { first_iu, payload: content.clone(), force_unit_access: false };
        let command = VolumeCommand { token: VolumeToken(0), volume: VolumeIndex(0), operation };
        store.submit(command, space, out);
        under_way += 1;
        if under_way.is_multiple_of(64) {
            loop {
                store.work(Time::ZERO, space, out);
                while let Some(completion) = space.done.pop_front() {
                    store.complete(completion, space, out);
                }
                under_way -= out.len() as u64;
                out.clear();
                if under_way < 64 {
                    break;
                }
            }
        }
    };
    for iu in 0..size_ius {
        write(&mut store, &mut space, iu, &mut out);
    }
    let mut phase = |name: &str, count: u64, store: &mut Store, space: &mut Null| {
        let (before, start) = (store.statistics(), processor_time());
        for _ in 0..count {
            state ^= state << 13;
            state ^= state >> 7;
            state ^= state << 17;
            let iu = ((u128::from(state) * u128::from(size_ius)) >> 64) as u64;
            write(store, space, iu, &mut out);
        }
        let (seconds, after) = ((processor_time() - start).as_secs_f64(), store.statistics());
        let host = (after.host_written_ius - before.host_written_ius) as f64;
        let part = |a: u64, b: u64| (a - b) as f64 / host;
        let (user, cleaner) = (
            part(after.log.user_ius, before.log.user_ius),
            part(after.log.cleaner_ius, before.log.cleaner_ius),
        );
        let summary = part(after.log.summary_ius, before.log.summary_ius);
        let map = part(after.log.map_ius + after.log.anchor_ius, before.log.map_ius + before.log.anchor_ius);
        let padding = part(after.log.padding_ius, before.log.padding_ius);
        println!(
            "{name}: {:.2} M writes/s of processor time, waf_total {:.3} (user {user:.3}, cleaner {cleaner:.3}, summaries {summary:.3}, checkpoint {map:.3}, padding {padding:.3})",
            host / seconds / 1e6,
            user + cleaner + summary + map + padding
        );
    };
    phase("conditioning, two overwrites", 2 * size_ius, &mut store, &mut space);
    phase("measured", size_ius / 2, &mut store, &mut space);
    drop(store);
    space.done.clear();
    let start = processor_time();
    let mut store = open(&mut space);
    let mut out = Vec::new();
    while !store.is_ready() {
        let completion = space.done.pop_front().expect("recovery goes on");
        store.complete(completion, &mut space, &mut out);
    }
    println!(
        "restart until the first command is served: {:.2} s of processor time",
        (processor_time() - start).as_secs_f64()
    );
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    status.lines().filter(|l| l.starts_with("VmHWM")).for_each(|l| println!("peak memory {l}"));
}
