//! The log of block states on flash, for media without protected memory. In front of it stands the same table of block
//! states as elsewhere, in plain memory; its changes are logged, and holders wait for them where it matters: an erase
//! waits until its allocation is durable (and with it the free before it), a sync until everything before it is.
//!
//! Two copies lie on different dies, on different channels where there are two, in the blocks of the system area. A
//! generation is one erase block of each copy: the whole table first, then changes, a program unit at a time. A unit
//! is written to one copy after the other, never to both at a time: a power cut can destroy what was programmed before in
//! the block at work, but not in the other. A generation that is full, or met a failure, is followed by the next one
//! in the next blocks; the one before stays until then. After opening a new generation begins.
//!
//! Program unit, little endian:
//!
//! | offset | size | field      | meaning                                                                  |
//! |-------:|-----:|------------|--------------------------------------------------------------------------|
//! |      0 |    8 | magic      | `DIECUTJN`                                                               |
//! |      8 |    4 | version    | 1; a reader refuses others                                               |
//! |     12 |    4 | check      | CRC-32C of the unit from byte 16 on                                      |
//! |     16 |    8 | generation | rises by at least 1 with each generation                                 |
//! |     24 |    4 | index      | program unit within the erase block                                      |
//! |     28 |    4 | table      | how many units the table takes; those behind are changes                 |
//! |     32 |    4 | length     | bytes of the body                                                        |
//! |     36 |    4 | previous   | check of the unit before it in the generation; 0 of the first one, and where pages have OOB areas |
//! |     40 |   16 | device     | UUID of the device where pages have no OOB areas, else zeros            |
//! |     64 |  ... | body       | part of the table (see `table.rs`), or changes, each a multiple of 8     |
//!
//! Changes: kind (1), zeros (3), then 1 block: number (4), body of its slot (24); 2 vSSD: length (4), body of its slot without
//! unused units; 3 pages: number (4), pages (4), zeros (4), allocation sequence (8); 4 exchange: first die (4), body
//! of its slot (24). What is pushed together lies in one unit: it takes place as a whole. A unit that does not check out was
//! torn, or was written to one copy only, and nothing after it was promised; a unit behind a missing one is damage.
//!
//! Pages of open blocks are not logged; they are found by their OOB records at opening.
//!
//! Where pages have no OOB areas nothing is ever erased, and what an earlier write left reads as if it belonged here. So a unit names its
//! device, and the unit before it: a table of which a cut left a part is never completed by another one of the same number. Where only a flush makes
//! programs durable, one follows what is written to a copy, before the other copy is written and before it counts (R17 of docs/design/one-format.md).

use super::queue::ChangeQueue;
use crate::token::{POOL_TOKEN_BIT, STATE_LOG_TOKEN_BIT};
use crate::{LogicalBlock, OobKind, OobRecord, Purpose, SystemArea, UnitIndex, VssdId};
use diecut_media::{Capabilities, Command, Media, MediaError, MediaToken, Operation};
use diecut_units::{
    Buffer, BufferMut, ContentMode, EraseBlockAddress, Geometry, IU_SIZE_BYTES, Payload, Time, checksum,
    mutant,
};
use std::collections::BTreeSet;
use std::mem::offset_of;
use zerocopy::little_endian::{U32, U64};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

/// What a program unit begins with.
#[derive(Clone, Copy, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
struct StoredHead {
    magic: [u8; 8],
    version: U32,
    check: U32,
    generation: U64,
    index: U32,
    table_units: U32,
    length: U32,
    previous: U32,
    device: [u8; 16],
    reserved: [u8; 8],
}

const MAGIC: [u8; 8] = *b"DIECUTJN";
const VERSION: u32 = 1;
const HEAD_SIZE_BYTES: usize = size_of::<StoredHead>();
const CHECK_AT: usize = offset_of!(StoredHead, check);
/// What the check covers.
const CHECKED_FROM: usize = offset_of!(StoredHead, generation);
const _: () = assert!(HEAD_SIZE_BYTES == 64 && CHECK_AT == 12 && CHECKED_FROM == 16);

/// Sizes of a program unit.
#[derive(Clone, Copy)]
pub(crate) struct UnitShape {
    pub pages: u32,
    pub size_bytes: usize,
    pub oob_size_bytes: u32,
    pub units_per_block: u32,
    /// The UUID of the device, where pages have no OOB areas.
    pub device: Option<[u8; 16]>,
    /// Whether only a flush makes programs durable.
    pub flushes: bool,
}

impl UnitShape {
    pub fn new(geometry: &Geometry, capabilities: &Capabilities, device: Option<[u8; 16]>) -> UnitShape {
        let pages = capabilities.program_unit_pages;
        UnitShape {
            pages,
            size_bytes: pages as usize * geometry.page_size_bytes as usize,
            oob_size_bytes: geometry.oob_size_bytes,
            units_per_block: geometry.pages_per_erase_block() / pages,
            device,
            flushes: capabilities.volatile_cache,
        }
    }
    pub fn ius(&self) -> u32 {
        (self.size_bytes / IU_SIZE_BYTES) as u32
    }
    fn body_size_bytes(&self) -> usize {
        self.size_bytes - HEAD_SIZE_BYTES
    }
    /// Units that a table takes.
    pub fn table_units(&self, table_size_bytes: usize) -> u32 {
        table_size_bytes.div_ceil(self.body_size_bytes()) as u32
    }
}

/// One program unit as read back.
pub(crate) struct UnitHead {
    pub generation: u64,
    pub index: u32,
    pub table_units: u32,
    pub previous: u32,
    pub device: [u8; 16],
}

/// Fills a program unit, which is all zeros, and gives its check.
fn encode_unit(head: &UnitHead, body: &[u8], bytes: &mut [u8]) -> u32 {
    let stored = StoredHead {
        magic: MAGIC,
        version: VERSION.into(),
        check: 0.into(),
        generation: head.generation.into(),
        index: head.index.into(),
        table_units: head.table_units.into(),
        length: (body.len() as u32).into(),
        previous: head.previous.into(),
        device: head.device,
        reserved: [0; 8],
    };
    bytes[..HEAD_SIZE_BYTES].copy_from_slice(stored.as_bytes());
    bytes[HEAD_SIZE_BYTES..HEAD_SIZE_BYTES + body.len()].copy_from_slice(body);
    let check = checksum(&bytes[CHECKED_FROM..]);
    bytes[CHECK_AT..CHECKED_FROM].copy_from_slice(U32::from(check).as_bytes());
    check
}

/// The check of a program unit that checks out.
pub(crate) fn check_of(unit: &[u8]) -> u32 {
    checksum(&unit[CHECKED_FROM..])
}

/// Reads a program unit; `None` if it does not check out.
pub(crate) fn decode_unit(bytes: &[u8]) -> Option<(UnitHead, &[u8])> {
    let (head, body) = StoredHead::ref_from_prefix(bytes).ok()?;
    let is_ours = head.magic == MAGIC && head.version == VERSION;
    if !is_ours || head.check != checksum(&bytes[CHECKED_FROM..]) {
        return None;
    }
    let body = body.get(..head.length.get() as usize)?;
    let head = UnitHead {
        generation: head.generation.get(),
        index: head.index.get(),
        table_units: head.table_units.get(),
        previous: head.previous.get(),
        device: head.device,
    };
    Some((head, body))
}

/// What is being written: program units for both copies, one copy after the other.
struct Write {
    body: Vec<u8>,
    first_unit: u32,
    unit_count: u32,
    /// Units of the copy at work that are written.
    done: u32,
    copy: usize,
    /// A new generation: the block is erased first.
    fresh: bool,
    erased: bool,
    /// The copy at work is written and being flushed.
    is_flushing: bool,
    /// Check of the last unit written to the copy at work.
    chain: u32,
    /// Changes that are durable when it is done.
    covers: u64,
}

/// What a log did.
#[derive(Default)]
pub(crate) struct LogWork {
    pub programmed_ius: u64,
    pub erases: u64,
    /// Blocks erased since somebody looked.
    pub erased: Vec<EraseBlockAddress>,
}

/// See the module.
pub(crate) struct StateLog {
    copies: [Vec<EraseBlockAddress>; 2],
    /// Blocks of the present generation, among `copies`.
    places: [usize; 2],
    shape: UnitShape,
    generation: u64,
    table_units: u32,
    next_unit: u32,
    /// Check of the unit before the next one.
    chain: u32,
    /// Changes that are to be written, and who waits for them.
    pub queue: ChangeQueue,
    writing: Option<Write>,
    failures: usize,
    pub work: LogWork,
}

impl StateLog {
    /// Blocks of the two copies: dies by turns, so that neighbours in the list of one copy lie on different dies.
    pub fn blocks(system: &SystemArea, geometry: &Geometry) -> [Vec<EraseBlockAddress>; 2] {
        let mut copies = [Vec::new(), Vec::new()];
        let is_one_die = geometry.dies() == 1;
        for round in 0.. {
            let before = copies[0].len() + copies[1].len();
            for (number, die) in geometry.all_dies().enumerate() {
                let by = if is_one_die {
                    // Whoever has one die loses both copies with it, but not with one block.
                    round as u32
                } else if geometry.channels > 1 {
                    u32::from(die.channel.0)
                } else {
                    number as u32
                };
                let block = system.state_log_blocks(number as u32).get(round);
                copies[by as usize % 2].extend(block);
            }
            if copies[0].len() + copies[1].len() == before {
                break;
            }
        }
        copies
    }

    /// A log whose next write begins a generation after `generation`, in the blocks after `places`.
    pub fn new(
        copies: [Vec<EraseBlockAddress>; 2],
        places: [usize; 2],
        shape: UnitShape,
        generation: u64,
        table_size_bytes: usize,
    ) -> StateLog {
        StateLog {
            copies,
            places,
            shape,
            generation,
            table_units: shape.table_units(table_size_bytes),
            next_unit: shape.units_per_block,
            chain: 0,
            queue: ChangeQueue::default(),
            writing: None,
            failures: 0,
            work: LogWork::default(),
        }
    }

    /// From now on it is written to as few channels as will do: other pools may have the rest.
    ///
    /// # Panics
    /// If something is being written.
    pub fn keep_to_few_channels(&mut self) {
        assert!(self.writing.is_none(), "one write of the log is under way at a time (I-V22)");
        for (blocks, place) in self.copies.iter_mut().zip(&mut self.places) {
            let present = blocks.get(*place).copied();
            let channels: BTreeSet<u16> = blocks.iter().map(|block| block.channel.0).collect();
            let mut kept = BTreeSet::new();
            for channel in channels {
                let has_enough = blocks.iter().filter(|block| kept.contains(&block.channel.0)).count() > 1;
                if has_enough {
                    break;
                }
                kept.insert(channel);
            }
            blocks.retain(|block| kept.contains(&block.channel.0));
            // The next one is the first, unless the generation at work is there.
            let at = blocks.iter().position(|block| Some(*block) == present);
            *place = at.unwrap_or(blocks.len().saturating_sub(1));
        }
    }

    /// Channels that it is written to.
    pub fn channels(&self) -> Vec<u16> {
        let channels: BTreeSet<u16> = self.copies.iter().flatten().map(|block| block.channel.0).collect();
        channels.into_iter().collect()
    }

    /// Of a pool that is made: its first generation is to be written, though nothing changed yet.
    pub fn of_new_pool(mut self) -> StateLog {
        self.queue.push_nothing();
        self
    }

    /// Begins a write if somebody waits for one. `table` is asked for its bytes when a generation begins.
    pub fn kick<M: Media + ?Sized>(&mut self, table: &[u8], media: &mut M, now: Time) {
        let fits = self.queue.pending_bytes() <= self.shape.body_size_bytes();
        let wanted = self.queue.is_awaited() || !fits;
        if self.writing.is_some() || self.queue.is_lost() || !wanted || self.queue.is_durable() {
            return;
        }
        if fits && self.next_unit < self.shape.units_per_block {
            let body = self.queue.take_pending();
            self.begin(body, false, media, now);
        } else {
            self.begin_generation(table, media, now);
        }
    }

    fn begin_generation<M: Media + ?Sized>(&mut self, table: &[u8], media: &mut M, now: Time) {
        self.queue.clear_pending();
        self.generation += 1;
        (self.next_unit, self.chain) = (0, 0);
        for (place, blocks) in self.places.iter_mut().zip(&self.copies) {
            assert!(blocks.len() > 1, "the generation before stays until the next one is whole (I-V22)");
            *place = (*place + 1) % blocks.len();
        }
        self.begin(table.to_vec(), true, media, now);
    }

    fn begin<M: Media + ?Sized>(&mut self, body: Vec<u8>, fresh: bool, media: &mut M, now: Time) {
        assert!(self.writing.is_none(), "one write of the log is under way at a time (I-V22)");
        let unit_count = if fresh { self.table_units } else { 1 };
        let first_unit = self.next_unit;
        let end = first_unit + unit_count;
        assert!(end <= self.shape.units_per_block, "a generation fits in its erase block (I-V22)");
        let covers = self.queue.pushed();
        let (erased, is_flushing, chain) = (false, false, self.chain);
        self.writing = Some(Write {
            body,
            first_unit,
            unit_count,
            done: 0,
            copy: 0,
            fresh,
            erased,
            is_flushing,
            chain,
            covers,
        });
        self.submit(media, now);
    }

    fn submit<M: Media + ?Sized>(&mut self, media: &mut M, now: Time) {
        let token = MediaToken(POOL_TOKEN_BIT | STATE_LOG_TOKEN_BIT);
        let write = self.writing.as_mut().expect("I-V22: the log writes one thing at a time");
        if write.is_flushing {
            return media.flush(token, now);
        }
        let block = self.copies[write.copy][self.places[write.copy]];
        let operation = if write.fresh && !write.erased {
            self.work.erases += 1;
            self.work.erased.push(block);
            Operation::Erase { block }
        } else {
            self.work.programmed_ius += u64::from(self.shape.ius());
            let index = write.first_unit + write.done;
            let size = self.shape.body_size_bytes();
            let start = write.done as usize * size;
            let body = &write.body[start..write.body.len().min(start + size)];
            let mut bytes = vec![0; self.shape.size_bytes];
            let head = UnitHead {
                generation: self.generation,
                index,
                table_units: self.table_units,
                previous: self.shape.device.map_or(0, |_| write.chain),
                device: self.shape.device.unwrap_or_default(),
            };
            write.chain = encode_unit(&head, body, &mut bytes);
            let mut oob = vec![0; (self.shape.pages * self.shape.oob_size_bytes) as usize];
            let marked_pages = if self.shape.oob_size_bytes > 0 { self.shape.pages } else { 0 };
            for page in 0..marked_pages {
                let record = OobRecord {
                    kind: OobKind::StateLog,
                    purpose: Purpose(0),
                    owner: VssdId(self.generation as u32),
                    block: LogicalBlock { unit: UnitIndex(write.copy as u16), index: 0 },
                    page_or_length: index * self.shape.pages + page,
                    sequence: self.generation,
                    erase_count: 0,
                    is_lost: false,
                };
                record.encode(&mut oob[(page * self.shape.oob_size_bytes) as usize..]);
            }
            let payload = Payload::new(ContentMode::Bytes, Buffer::copy_from(&bytes));
            let parts = [payload].into_iter().collect();
            let (first_page, oob) = (index * self.shape.pages, BufferMut::copy_from(&oob).freeze());
            Operation::Program { block, first_page, parts, oob }
        };
        media.submit(Command { token, operation }, now);
    }

    /// A command of the log came back. Says whether more became durable.
    pub fn completed<M: Media + ?Sized>(
        &mut self,
        result: Result<(), MediaError>,
        table: &[u8],
        media: &mut M,
        now: Time,
    ) -> bool {
        if result == Err(MediaError::FlushFailed) {
            // What was written before may be gone, and no later flush would say so.
            self.writing = None;
            self.queue.lose();
            return false;
        }
        if result.is_err() {
            // Both copies go on elsewhere; the generation before is whole still, or this one is on the other copy.
            self.failures += 1;
            self.writing = None;
            if self.failures > self.copies[0].len() + self.copies[1].len() {
                self.queue.lose();
            } else {
                self.begin_generation(table, media, now);
            }
            return false;
        }
        let write = self.writing.as_mut().expect("I-V22: a write is under way");
        let is_under_way = write.is_flushing || write.done < write.unit_count;
        assert!(write.copy < 2 && is_under_way, "a command of the log ends once (I-V22)");
        if write.is_flushing {
            write.is_flushing = false;
        } else if write.fresh && !write.erased {
            write.erased = true;
        } else {
            write.done += 1;
            let flushes = self.shape.flushes && !mutant!("vssd: the log of block states does not flush");
            let joins = write.copy == 0 && mutant!("vssd: both copies of the block states share a flush");
            write.is_flushing = write.done == write.unit_count && flushes && !joins;
        }
        if write.done == write.unit_count && !write.is_flushing {
            if write.copy == 1 {
                let write = self.writing.take().expect("I-V22: the log writes one thing at a time");
                let is_late = mutant!("vssd: changes made while the log is written count as durable");
                self.queue.became_durable(if is_late { self.queue.pushed() } else { write.covers });
                self.next_unit += write.unit_count;
                self.chain = write.chain;
                self.failures = 0;
                return true;
            }
            (write.copy, write.done, write.erased, write.chain) = (1, 0, false, self.chain);
        }
        self.submit(media, now);
        false
    }
}

#[cfg(test)]
mod test {
    use super::*;

    /// Goal: the layout is pinned. Method: bytes written by hand.
    #[test]
    fn the_bytes_of_a_unit() {
        let mut unit = [0; 96];
        let head = UnitHead {
            generation: 0x1817_1615_1413_1211,
            index: 0x0403_0201,
            table_units: 0x0807_0605,
            previous: 0x2423_2221,
            device: [0xd1; 16],
        };
        let check_of_unit = encode_unit(&head, b"body", &mut unit);
        let mut golden = [0; 96];
        golden[..12].copy_from_slice(b"DIECUTJN\x01\0\0\0");
        golden[16..36].copy_from_slice(&[
            0x11, 0x12, 0x13, 0x14, 0x15, 0x16, 0x17, 0x18, 1, 2, 3, 4, 5, 6, 7, 8, 4, 0, 0, 0,
        ]);
        golden[36..40].copy_from_slice(&[0x21, 0x22, 0x23, 0x24]);
        golden[40..56].fill(0xd1);
        golden[64..68].copy_from_slice(b"body");
        let check = checksum(&golden[16..]).to_le_bytes();
        golden[12..16].copy_from_slice(&check);
        assert_eq!(unit, golden);
        assert_eq!([check_of_unit, check_of(&unit)], [u32::from_le_bytes(check); 2]);
        let (_, body) = decode_unit(&unit).unwrap();
        assert_eq!(body, b"body");
        unit[95] ^= 1;
        assert!(decode_unit(&unit).is_none());
    }
}
