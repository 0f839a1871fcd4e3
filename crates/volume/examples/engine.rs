//! The volume engine alone over a null space in tag mode: random 4 KiB overwrites with the cleaner on, then a restart.
//!
//! `cargo run --release -p diecut-volume --example engine -- [GiB] [OP permille]`
//! The space keeps chunk heads and tags in memory and answers at once; no time passes in it.

use diecut_units::{BufferMut, ContentMode, Payload, ProtectedMemory, Time};
use diecut_volume::contract::*;
use diecut_volume::{Store, StoreConfig};
use diecut_vssd::space::*;
use std::collections::VecDeque;
use std::time::Instant;

struct Unit {
    head: Option<Box<[u8]>>,
    tags: Box<[u8]>,
    oob: Box<[u8]>,
}

struct Null {
    shape: BlockShape,
    units: u16,
    per_unit: u32,
    blocks: Vec<Vec<Unit>>,
    held: Vec<bool>,
    free: Vec<Vec<u32>>,
    done: VecDeque<SpaceCompletion>,
}

impl Null {
    fn at(&self, block: LogicalBlock) -> usize {
        block.unit.0 as usize * self.per_unit as usize + block.index as usize
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
        (self.held[at], self.blocks[at]) = (true, Vec::with_capacity(self.shape.program_units() as usize));
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
        let (mut head, mut tags) = (None, Vec::new());
        for part in &parts {
            match part.mode() {
                ContentMode::Bytes => {
                    let bytes = part.bytes();
                    let end = bytes.iter().rposition(|b| *b != 0).map_or(0, |at| at + 1);
                    head = Some(bytes[..end].into());
                }
                ContentMode::Tags => tags.extend_from_slice(part.bytes()),
            }
        }
        let at = self.at(block);
        self.blocks[at].push(Unit { head, tags: tags.into(), oob: oob[..].into() });
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
        let result = match self.blocks[self.at(block)].get(unit as usize) {
            None => Err(SpaceError::Erased { unit: block.unit.0, index: block.index, iu: first_iu }),
            Some(unit) => {
                if destination.len() == 4096 {
                    let head = unit.head.as_deref().unwrap_or(&[]);
                    destination[..head.len()].copy_from_slice(head);
                    destination[head.len()..].fill(0);
                } else {
                    let first = (first - u32::from(unit.head.is_some())) as usize * 8;
                    let len = destination.len();
                    destination.copy_from_slice(&unit.tags[first..first + len]);
                }
                if let Some(oob) = &mut oob {
                    let size = self.shape.oob_size_bytes as usize;
                    let len = oob.len();
                    let start = (first / page_ius) as usize * size;
                    oob.copy_from_slice(&unit.oob[start..start + len]);
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
        let result =
            match self.blocks[self.at(block)].get((first_page / self.shape.program_unit_pages) as usize) {
                Some(unit) => {
                    let len = oob.len();
                    oob.copy_from_slice(&unit.oob[..len]);
                    Ok(())
                }
                None => Err(SpaceError::Erased { unit: block.unit.0, index: block.index, iu: 0 }),
            };
        self.done.push_back(SpaceCompletion { token, result, destination: None, oob: Some(oob) });
    }
    fn free(&mut self, block: LogicalBlock) -> Result<(), SpaceError> {
        let at = self.at(block);
        self.held[at] = false;
        self.blocks[at] = Vec::new();
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
                written_pages: self.blocks[at].len() as u32 * self.shape.program_unit_pages,
                allocation_sequence: at as u64,
            })
            .collect()
    }
}

#[allow(clippy::disallowed_methods, reason = "a benchmark reads the clock")]
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
    let mut space = Null {
        shape,
        units,
        per_unit,
        blocks: (0..u32::from(units) * per_unit).map(|_| Vec::new()).collect(),
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
        store.submit(command, Time::ZERO, space, out);
        under_way += 1;
        if under_way.is_multiple_of(64) {
            loop {
                store.work(Time::ZERO, space, out);
                while let Some(completion) = space.done.pop_front() {
                    store.complete(completion, Time::ZERO, space, out);
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
        let (before, start) = (store.statistics(), Instant::now());
        for _ in 0..count {
            state ^= state << 13;
            state ^= state >> 7;
            state ^= state << 17;
            let iu = ((u128::from(state) * u128::from(size_ius)) >> 64) as u64;
            write(store, space, iu, &mut out);
        }
        let (seconds, after) = (start.elapsed().as_secs_f64(), store.statistics());
        let host = (after.host_written_ius - before.host_written_ius) as f64;
        let part = |a: u64, b: u64| (a - b) as f64 / host;
        let (user, cleaner) = (
            part(after.log.user_ius, before.log.user_ius),
            part(after.log.cleaner_ius, before.log.cleaner_ius),
        );
        let summary = part(after.log.summary_ius, before.log.summary_ius);
        let rest =
            part(after.log.padding_ius + after.log.map_ius, before.log.padding_ius + before.log.map_ius);
        println!(
            "{name}: {:.2} M writes/s, waf_total {:.3} (user {user:.3}, cleaner {cleaner:.3}, summaries {summary:.3}, padding and map {rest:.3})",
            host / seconds / 1e6,
            user + cleaner + summary + rest
        );
    };
    phase("conditioning, two overwrites", 2 * size_ius, &mut store, &mut space);
    phase("measured", size_ius / 2, &mut store, &mut space);
    drop(store);
    space.done.clear();
    let start = Instant::now();
    let mut store = open(&mut space);
    let mut out = Vec::new();
    while !store.is_ready() {
        let completion = space.done.pop_front().expect("recovery goes on");
        store.complete(completion, Time::ZERO, &mut space, &mut out);
    }
    println!("restart until the first command is served: {:.2} s", start.elapsed().as_secs_f64());
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    status.lines().filter(|l| l.starts_with("VmHWM")).for_each(|l| println!("peak memory {l}"));
}
