//! A device of which a program or an erase is done when a sync covers it: it survives the death of the machine.
//!
//! Nothing of it is a mapping. Content is written when the array is done. The state of an erase block is a record; records are
//! written when a sync begins, one for each block that changed, so that a record lies behind the content it tells of and the
//! same sync covers both. Nothing orders them on the disk before that sync ends: of what it does not cover yet, a cut leaves
//! any subset, torn at sectors of 512 bytes. So:
//! - Each page has a seal: a CRC-32C of its content, its OOB area, its place, the erase count of its block, and the life of the
//!   device that wrote it. A life is from one opening to the next: what a life before left behind never counts as this one's.
//! - A record says how many pages are programmed, and how many of them a sync had covered when it was written. Recovery trusts
//!   the latter, and takes the others only as far as their seals hold.
//! - A block has two records, written in turn, at most one for each sync: the one of the last sync that ended is never
//!   written over before the next one is durable.
//! - After an erase nothing is written into a block before a sync covers the erase (`Device` keeps such commands): an older
//!   record may count, and must find what it tells of.
//! - Recovery syncs before it trusts what it read: a process that died leaves what no sync covers, too.
//!
//! Layout, little endian; every region starts at a multiple of 4096, and the offsets follow from the profile:
//!
//! | region   | bytes                     | holds                                                               |
//! |----------|---------------------------|---------------------------------------------------------------------|
//! | header   | 16384                     | as in `file.rs`, with version 2 and no offsets                      |
//! | lives    | 4096                      | two counts of openings, at 0 and 2048, written in turn              |
//! | records  | 2 x 64 per erase block    | all first records, then all second ones                             |
//! | OOB      | OOB area + 8 per page     | a page's OOB area, the life that wrote it (4), its seal (4)         |
//! | data     | pages                     | starts at a multiple of 2 MiB                                       |
//!
//! Count of openings: CRC-32C of the next 8 bytes (4), `LIFE` (4), count (4). Record: CRC-32C of bytes 4 to 64 (4), `BLKR` (4),
//! number (8), generation (4), erase count (4), pages programmed (4), pages covered by a sync before (4), flags as in
//! `file.rs` (4), seconds of the first program (4), life (4), zeros.

use super::disk::{Disk, FileChanges, ModelDisk, SyncFile};
use super::image::{
    HEADER_SIZE_BYTES, Image, KEPT_BYTES, Offsets, PIECE_BYTES, VERSION_SYNCED, ZEROS_OFFSET,
};
use super::record::{RECORD_SIZE_BYTES, Record, StoredLife, StoredRecord};
use super::room::{self, Allocator, RoomSupport};
use super::room_queue::RoomQueue;
use super::{PageAt, ReadFault};
use crate::block::{Block, ERASE_CUT, FACTORY_BAD, HAS_MARKS, PageMark};
use crate::{DeviceError, Profile};
use diecut_units::{Geometry, IU_SIZE_BYTES, Time, checksum, checksum_append, mark, mutant};
use std::fs::File;
use std::io;
use std::ops::Range;
use std::path::Path;
use zerocopy::little_endian::{U32, U64};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

/// What stands behind the OOB area of a page.
#[derive(Clone, Copy, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
struct StoredSeal {
    life: U32,
    seal: U32,
}

/// What a seal is made of, in front of the OOB area.
#[derive(Clone, Copy, IntoBytes, Immutable, Unaligned)]
#[repr(C)]
struct Sealed {
    block: U64,
    /// Page, erase count, life, check of the content.
    words: [U32; 4],
}

const LIFE_PLACE_BYTES: u64 = 2048;
const SEAL_SIZE_BYTES: usize = size_of::<StoredSeal>();
const _: () = assert!(SEAL_SIZE_BYTES == 8);

/// Where everything lies.
#[derive(Clone, Copy)]
pub(crate) struct Places {
    lives: u64,
    records: [u64; 2],
    oob: u64,
    data: u64,
    pub(crate) file_size: u64,
    block_size_bytes: u64,
    page_size_bytes: u64,
    oob_size_bytes: usize,
    pages_per_erase_block: u32,
}

impl Places {
    pub(crate) fn of(geometry: &Geometry) -> Places {
        let align = |offset: u64| offset.next_multiple_of(4096);
        let pages = geometry.erase_blocks() * u64::from(geometry.pages_per_erase_block());
        let lives = HEADER_SIZE_BYTES as u64;
        let first = lives + 4096;
        let records_bytes = align(geometry.erase_blocks() * RECORD_SIZE_BYTES as u64);
        let oob = first + 2 * records_bytes;
        let of_page = u64::from(geometry.oob_size_bytes) + SEAL_SIZE_BYTES as u64;
        let data = (oob + pages * of_page).next_multiple_of(2 << 20);
        Places {
            lives,
            records: [first, first + records_bytes],
            oob,
            data,
            file_size: data + geometry.raw_capacity_bytes(),
            block_size_bytes: geometry.erase_block_size_bytes(),
            page_size_bytes: u64::from(geometry.page_size_bytes),
            oob_size_bytes: geometry.oob_size_bytes as usize,
            pages_per_erase_block: geometry.pages_per_erase_block(),
        }
    }

    fn iu(&self, block: u64, iu: u32) -> u64 {
        self.data + block * self.block_size_bytes + u64::from(iu) * IU_SIZE_BYTES as u64
    }
    fn page(&self, block: u64, page: u32) -> u64 {
        self.data + block * self.block_size_bytes + u64::from(page) * self.page_size_bytes
    }
    fn area_size_bytes(&self) -> usize {
        self.oob_size_bytes + SEAL_SIZE_BYTES
    }
    fn area(&self, block: u64, page: u32) -> u64 {
        let pages = block * u64::from(self.pages_per_erase_block) + u64::from(page);
        self.oob + pages * self.area_size_bytes() as u64
    }
    /// Areas and pages of some blocks.
    fn parts(&self, blocks: &Range<u64>) -> [Range<u64>; 2] {
        [
            self.area(blocks.start, 0)..self.area(blocks.end, 0),
            self.page(blocks.start, 0)..self.page(blocks.end, 0),
        ]
    }
}

/// What is known of an erase block beside its state.
#[derive(Clone, Copy, Default)]
struct Kept {
    /// Of its last record.
    generation: u32,
    erase_count: u32,
    /// Pages that a sync that ended covers.
    confirmed_page: u32,
    /// A record of it is to be written.
    is_listed: bool,
    /// The last record that a sync covers says that it holds nothing, and so it is.
    is_empty_on_disk: bool,
}

/// What the sync under way covers of a block.
struct Covered {
    block: u64,
    erase_count: u32,
    programmed_page: u32,
}

/// See the module.
pub(crate) struct SyncedStore {
    disk: Disk,
    places: Places,
    life: u32,
    kept: Vec<Kept>,
    /// Blocks whose state is in no record, each once.
    changed: Vec<u64>,
    covered: Vec<Covered>,
    /// Discarded blocks whose room can go when a sync covers that they are.
    discarded: Vec<u64>,
    /// Of the content of pages that are programmed, in their order, until their OOB areas come.
    page_checksums: Vec<u32>,
    scratch: Vec<u8>,
    ius_per_page: u32,
}

impl SyncedStore {
    fn over(disk: Disk, geometry: &Geometry) -> SyncedStore {
        SyncedStore {
            disk,
            places: Places::of(geometry),
            life: 0,
            kept: vec![Kept { is_empty_on_disk: true, ..Kept::default() }; geometry.erase_blocks() as usize],
            changed: Vec::new(),
            covered: Vec::new(),
            discarded: Vec::new(),
            page_checksums: Vec::new(),
            scratch: Vec::new(),
            ius_per_page: geometry.ius_per_page(),
        }
    }

    /// On a disk in memory.
    pub(crate) fn model(geometry: &Geometry, seed: u64) -> SyncedStore {
        SyncedStore::over(Disk::Model(Box::new(ModelDisk::new(seed))), geometry)
    }

    /// On a file that was just made or found; it is locked.
    pub(crate) fn on_file(
        path: &Path,
        file: File,
        geometry: &Geometry,
        changes: Option<FileChanges>,
    ) -> Result<SyncedStore, DeviceError> {
        let places = Places::of(geometry);
        let refused = |source| DeviceError::File {
            path: path.to_owned(),
            what: "no room can be taken for its block states",
            source,
        };
        let allocator = Allocator::probe(&file, ZEROS_OFFSET..HEADER_SIZE_BYTES as u64).map_err(refused)?;
        let store = SyncedStore::over(Disk::over(file, allocator, changes), geometry);
        let Disk::File(disk) = &store.disk else { unreachable!("just made") };
        if disk.allocator.support.reserves
            && let Err(source) = room::allocate(disk.sync_file.file(), places.lives..places.oob)
        {
            return Err(match room::is_full(&source) {
                true => DeviceError::NoRoom {
                    path: path.to_owned(),
                    wanted_bytes: places.oob - places.lives,
                    free_bytes: store.disk.free_bytes(),
                },
                false => refused(source),
            });
        }
        Ok(store)
    }

    /// Makes the file of a new device as large as it will be, with its header.
    pub(crate) fn create_file(path: &Path, profile: &Profile, seed: u64) -> Result<File, DeviceError> {
        let file_size = Places::of(&profile.geometry).file_size;
        let file = Image::create(path, VERSION_SYNCED, profile, seed, Offsets::default(), file_size)?;
        let made = file.sync_all().and_then(|()| match path.parent() {
            // Its name, too, must survive the death of the machine.
            Some(folder) if !folder.as_os_str().is_empty() => File::open(folder)?.sync_all(),
            _ => File::open(".")?.sync_all(),
        });
        match made {
            Ok(()) => Ok(file),
            Err(source) => {
                let _ = std::fs::remove_file(path);
                Err(DeviceError::File { path: path.to_owned(), what: "cannot be made durable", source })
            }
        }
    }

    /// For whoever syncs it.
    pub(crate) fn sync_file(&self) -> Option<SyncFile> {
        match &self.disk {
            Disk::File(disk) => Some(disk.sync_file.clone()),
            Disk::Model(_) => None,
        }
    }

    pub(crate) fn room_support(&self) -> Option<RoomSupport> {
        match &self.disk {
            Disk::File(disk) => Some(disk.allocator.support),
            Disk::Model(_) => None,
        }
    }

    /// The machine dies.
    pub(crate) fn cut(&mut self) {
        if let Disk::Model(disk) = &mut self.disk {
            disk.cut();
        }
    }

    pub(crate) fn program(&mut self, block: u64, first_iu: u32, bytes: &[u8]) -> io::Result<()> {
        for (iu, bytes) in (first_iu..).zip(bytes.chunks_exact(IU_SIZE_BYTES)) {
            match iu % self.ius_per_page {
                0 => self.page_checksums.push(checksum(bytes)),
                _ => {
                    let last = self.page_checksums.last_mut().expect("pages are programmed from their start");
                    *last = checksum_append(*last, bytes);
                }
            }
        }
        self.disk.write(self.places.iu(block, first_iu), bytes)
    }

    /// The seal of a page.
    fn seal(block: u64, page: u32, erase_count: u32, life: u32, content: u32, oob: &[u8]) -> u32 {
        let words = [page, erase_count, life, content].map(U32::from);
        checksum_append(checksum(Sealed { block: block.into(), words }.as_bytes()), oob)
    }

    /// Writes the OOB areas of pages whose content was programmed just before, with their seals.
    pub(crate) fn program_oob(&mut self, block: u64, first_page: u32, oob: &[u8]) -> io::Result<()> {
        let size = self.places.oob_size_bytes;
        assert_eq!(self.page_checksums.len() * size, oob.len(), "the OOB areas of the pages just programmed");
        self.scratch.clear();
        let erase_count = self.kept[block as usize].erase_count;
        let areas = oob.chunks_exact(size).zip(self.page_checksums.drain(..));
        for (page, (area, content)) in (first_page..).zip(areas) {
            let seal = SyncedStore::seal(block, page, erase_count, self.life, content, area);
            self.scratch.extend_from_slice(area);
            let stored = StoredSeal { life: self.life.into(), seal: seal.into() };
            self.scratch.extend_from_slice(stored.as_bytes());
        }
        self.disk.write(self.places.area(block, first_page), &self.scratch)
    }

    /// A program failed on its way: what came of it has no seal.
    pub(crate) fn forget_unit(&mut self) {
        self.page_checksums.clear();
    }

    pub(crate) fn read(&self, block: u64, first_iu: u32, destination: &mut [u8]) -> Result<(), ReadFault> {
        let read = self.disk.read(self.places.iu(block, first_iu), destination);
        read.map_err(|_| ReadFault::Failed { iu: first_iu })
    }

    pub(crate) fn read_oob(&self, block: u64, page: u32, oob: &mut [u8]) -> Result<(), ReadFault> {
        let read = self.disk.read(self.places.area(block, page), oob);
        read.map_err(|_| ReadFault::Failed { iu: page * self.ius_per_page })
    }

    /// Reads and programs the content of one page.
    pub(crate) fn copy_page(&mut self, source: PageAt, destination: PageAt) -> io::Result<()> {
        let mut content = vec![0; self.places.page_size_bytes as usize];
        self.disk.read(self.places.page(source.block, source.page), &mut content)?;
        self.program(destination.block, destination.page * self.ius_per_page, &content)
    }

    /// The state of a block changed: the next sync covers that.
    pub(crate) fn set_block(&mut self, number: u64, block: &Block) {
        let kept = &mut self.kept[number as usize];
        if kept.erase_count != block.erase_count {
            (kept.erase_count, kept.confirmed_page) = (block.erase_count, 0);
        }
        kept.confirmed_page = kept.confirmed_page.min(block.programmed_page);
        kept.is_empty_on_disk &= block.programmed_page == 0;
        self.list(number);
    }

    fn list(&mut self, number: u64) {
        if !std::mem::replace(&mut self.kept[number as usize].is_listed, true) {
            self.changed.push(number);
        }
    }

    /// A block's room goes when a sync covers that it holds nothing.
    pub(crate) fn discard(&mut self, number: u64) {
        self.discarded.push(number);
    }

    /// Whether room waits for a sync.
    pub(crate) fn has_discarded(&self) -> bool {
        !self.discarded.is_empty()
    }

    /// Writes the records of all blocks that changed: the sync that begins now covers them, and what they tell of.
    pub(crate) fn begin_sync(&mut self, blocks: &[Block]) -> io::Result<()> {
        let mut changed = std::mem::take(&mut self.changed);
        let mut written = Ok(());
        for number in changed.drain(..) {
            let (block, kept) = (&blocks[number as usize], &mut self.kept[number as usize]);
            kept.is_listed = false;
            kept.generation = kept.generation.wrapping_add(1);
            let record = Record {
                generation: kept.generation,
                erase_count: block.erase_count,
                programmed_page: block.programmed_page,
                confirmed_page: kept.confirmed_page,
                flags: u32::from(block.flags),
                programmed_at_s: block.programmed_at_s,
                life: self.life,
            };
            let place = self.places.records[kept.generation as usize % 2] + number * RECORD_SIZE_BYTES as u64;
            written = written.and(self.disk.write(place, record.encode(number).as_bytes()));
            let (erase_count, programmed_page) = (block.erase_count, block.programmed_page);
            self.covered.push(Covered { block: number, erase_count, programmed_page });
        }
        self.changed = changed;
        if let Disk::Model(disk) = &mut self.disk {
            disk.begin_sync();
        }
        written
    }

    /// The sync under way ended well. Returns discarded blocks whose room can go.
    pub(crate) fn end_sync(&mut self, blocks: &[Block]) -> Vec<u64> {
        if let Disk::Model(disk) = &mut self.disk {
            disk.end_sync();
        }
        let mut covered = std::mem::take(&mut self.covered);
        for Covered { block: number, erase_count, programmed_page } in covered.drain(..) {
            let block = &blocks[number as usize];
            let kept = &mut self.kept[number as usize];
            if block.erase_count != erase_count {
                continue;
            }
            let before = kept.confirmed_page;
            kept.confirmed_page = programmed_page.min(block.programmed_page);
            kept.is_empty_on_disk = programmed_page == 0 && block.programmed_page == 0;
            if before < kept.confirmed_page {
                // Its record says less than is known now. The next sync takes another one along, so that a restart need not read
                // the pages; it is nothing that would want a sync.
                self.list(number);
            }
        }
        self.covered = covered;
        let kept = &self.kept;
        let (gone, waiting) =
            self.discarded.drain(..).partition(|number| kept[*number as usize].is_empty_on_disk);
        self.discarded = waiting;
        // Those that were erased and programmed since are in use.
        self.discarded.retain(|number| blocks[*number as usize].programmed_page == 0);
        gone
    }

    /// Reads what the disk holds, as a process does that finds it; everything in memory is forgotten. What is there is made durable before it
    /// is trusted, and what recovery decided before anything is served.
    pub(crate) fn recover(
        &mut self,
        blocks: &mut [Block],
        unit_pages: u32,
        mut mark_page: impl FnMut(u64, u32, PageMark),
    ) -> io::Result<()> {
        self.changed.clear();
        self.covered.clear();
        self.discarded.clear();
        self.page_checksums.clear();
        let life = self.read_life()?;
        self.life = life + 1;
        let place = self.places.lives + u64::from(self.life % 2) * LIFE_PLACE_BYTES;
        self.disk.write(place, StoredLife::new(self.life).as_bytes())?;
        if !mutant!("emulator: found content trusted before a sync") {
            self.disk.sync()?;
        }
        let size = blocks.len() * RECORD_SIZE_BYTES;
        let mut records = [vec![0; size], vec![0; size]];
        for (place, bytes) in self.places.records.iter().zip(&mut records) {
            self.disk.read(*place, bytes)?;
        }
        let [first, second] =
            [0, 1].map(|copy| <[StoredRecord]>::ref_from_bytes(&records[copy]).expect("whole records"));
        for (number, block) in blocks.iter_mut().enumerate() {
            let pair = [&first[number], &second[number]];
            self.recover_block(number as u64, block, pair, unit_pages, &mut mark_page)?;
        }
        self.begin_sync(blocks)?;
        self.disk.sync()?;
        self.end_sync(blocks);
        Ok(())
    }

    fn read_life(&self) -> io::Result<u32> {
        let mut life = None;
        let mut is_new = true;
        for place in 0..2 {
            let mut stored = StoredLife::default();
            self.disk.read(self.places.lives + place * LIFE_PLACE_BYTES, stored.as_mut_bytes())?;
            is_new &= stored == StoredLife::default();
            if stored.is_right() {
                life = life.max(Some(stored.life.get()));
            }
        }
        match life {
            Some(life) => Ok(life),
            None if is_new => Ok(0),
            None => Err(io::Error::new(io::ErrorKind::InvalidData, "its count of openings is damaged")),
        }
    }

    fn recover_block(
        &mut self,
        number: u64,
        block: &mut Block,
        pair: [&StoredRecord; 2],
        unit_pages: u32,
        mark_page: &mut impl FnMut(u64, u32, PageMark),
    ) -> io::Result<()> {
        *block = Block { flags: block.flags & FACTORY_BAD, place: block.place, ..Block::default() };
        self.kept[number as usize] = Kept { is_empty_on_disk: true, ..Kept::default() };
        let whole = pair.iter().filter_map(|stored| Record::decode(stored, number));
        let pages = self.places.pages_per_erase_block;
        let Some(found) = whole.max_by_key(|record| record.generation) else {
            if pair.iter().all(|stored| stored.as_bytes().iter().all(|byte| *byte == 0)) {
                return Ok(());
            }
            // Damage, not a cut: one of two is whole after any of these. Nothing of the block can be told any more.
            block.flags |= ERASE_CUT | HAS_MARKS;
            block.programmed_page = pages;
            (0..pages).for_each(|page| mark_page(number, page, PageMark::Garbage));
            self.kept[number as usize].is_empty_on_disk = false;
            return Ok(());
        };
        let programmed_page = found.programmed_page.min(pages);
        let confirmed_page = found.confirmed_page.min(programmed_page);
        (block.erase_count, block.programmed_page) = (found.erase_count, programmed_page);
        block.flags |= found.flags as u8;
        block.programmed_at_s = found.programmed_at_s;
        self.kept[number as usize] = Kept {
            generation: found.generation,
            erase_count: found.erase_count,
            confirmed_page,
            is_listed: false,
            is_empty_on_disk: programmed_page == 0,
        };
        if block.has(HAS_MARKS) {
            // Programs failed in it: their pages have no seals, wherever they are.
            for page in 0..programmed_page {
                if !self.is_sealed(number, page, &found, page >= confirmed_page)? {
                    mark_page(number, page, PageMark::Garbage);
                    if page >= confirmed_page {
                        block.flags |= ERASE_CUT;
                    }
                }
            }
        } else if confirmed_page < programmed_page && !mutant!("emulator: record trusted without its content")
        {
            for page in confirmed_page..programmed_page {
                if !self.is_sealed(number, page, &found, true)? {
                    mark!("emulator: a cut left a record without its content");
                    block.programmed_page = page - page % unit_pages;
                    block.flags |= ERASE_CUT;
                    break;
                }
            }
        }
        let kept = &mut self.kept[number as usize];
        kept.is_empty_on_disk = block.programmed_page == 0;
        if confirmed_page < programmed_page {
            // What holds is durable: recovery synced before it looked.
            kept.confirmed_page = block.programmed_page;
            self.list(number);
        }
        Ok(())
    }

    /// Whether a page is what the record tells of: programmed since the block's last erase, and, where that is asked for, in the same life as
    /// the record.
    fn is_sealed(&self, block: u64, page: u32, record: &Record, same_life: bool) -> io::Result<bool> {
        let mut area = vec![0; self.places.area_size_bytes()];
        self.disk.read(self.places.area(block, page), &mut area)?;
        let (oob, stored) = area.split_at(self.places.oob_size_bytes);
        let stored = StoredSeal::ref_from_bytes(stored).expect("as long as a seal");
        let (life, wanted) = (stored.life.get(), stored.seal.get());
        if life == 0 || (same_life && life != record.life) {
            return Ok(false);
        }
        let mut content = vec![0; self.places.page_size_bytes as usize];
        self.disk.read(self.places.page(block, page), &mut content)?;
        Ok(SyncedStore::seal(block, page, record.erase_count, life, checksum(&content), oob) == wanted)
    }

    /// Allocates what a block's pages and OOB areas take.
    pub(crate) fn make_room(&mut self, block: u64, is_empty: bool, now: Time) -> bool {
        let parts = self.places.parts(&(block..block + 1));
        let Disk::File(disk) = &mut self.disk else { return true };
        let taken = disk.allocator.take(disk.sync_file.file(), &parts, now);
        if !taken && is_empty {
            // What it got before the file system was full is of no use.
            self.give_back(block..block + 1);
        }
        taken
    }

    /// See [`super::Store::room_queue`].
    pub(crate) fn room_queue(&self) -> Option<RoomQueue> {
        let Disk::File(disk) = &self.disk else { return None };
        // Who replays changes must see each hole.
        if disk.sync_file.notes_changes() {
            return None;
        }
        Some(RoomQueue::new(disk.sync_file.shared_file(), disk.allocator.clone(), None))
    }

    /// See [`super::Store::ample_room`].
    pub(crate) fn ample_room(&self, block: u64, taken_bytes: u64, now: Time) -> Option<[Range<u64>; 2]> {
        let Disk::File(disk) = &self.disk else { return None };
        let parts = self.room_parts(block);
        let wanted_bytes = taken_bytes + parts.iter().map(|part| part.end - part.start).sum::<u64>();
        disk.allocator.is_ample(disk.sync_file.file(), wanted_bytes, now).then_some(parts)
    }

    /// See [`super::Store::room_parts`].
    pub(crate) fn room_parts(&self, block: u64) -> [Range<u64>; 2] {
        self.places.parts(&(block..block + 1))
    }

    /// See [`super::Store::had_no_room`].
    pub(crate) fn had_no_room(&mut self, now: Time) {
        if let Disk::File(disk) = &mut self.disk {
            disk.allocator.had_none(now);
        }
    }

    pub(crate) fn ask_again(&mut self) {
        if let Disk::File(disk) = &mut self.disk {
            disk.allocator.ask_again();
        }
    }

    /// Makes the pages of blocks that hold nothing a hole, as far as a sync covers that they do not.
    pub(crate) fn give_back(&mut self, blocks: Range<u64>) {
        let mut from = blocks.start;
        for number in blocks.clone() {
            if !self.kept[number as usize].is_empty_on_disk {
                self.punch(from..number);
                from = number + 1;
            }
        }
        self.punch(from..blocks.end);
    }

    fn punch(&mut self, blocks: Range<u64>) {
        // A disk in memory has no room to give back, and holes of all of it would fill the memory.
        if blocks.start < blocks.end && matches!(self.disk, Disk::File(_)) {
            let [_, data] = self.places.parts(&blocks);
            self.disk.give_back(data);
        }
    }

    /// See [`super::Store::give_back_piece`].
    pub(crate) fn give_back_piece(&mut self, block: u64, from: u64) -> u64 {
        let [_, data] = self.places.parts(&(block..block + 1));
        let (start, end) = (data.start + from, data.end.min(data.start + from + PIECE_BYTES));
        self.disk.give_back(start..end);
        if end == data.end { 0 } else { from + PIECE_BYTES }
    }

    pub(crate) fn kept_blocks(&self) -> usize {
        match self.disk {
            Disk::File(_) => {
                let size = self.places.file_size - self.places.data;
                (size / 8).min(KEPT_BYTES).div_euclid(self.places.block_size_bytes) as usize
            }
            // Its room goes at once: the next tenant of the block finds zeros.
            Disk::Model(_) => 0,
        }
    }
}

#[cfg(test)]
mod test {
    use super::*;

    /// Goal: what a seal covers is pinned. Method: bytes written by hand.
    #[test]
    fn the_bytes_of_a_seal() {
        let number = 0x0807_0605_0403_0201;
        let golden = [
            &[1, 2, 3, 4, 5, 6, 7, 8, 9, 0, 0, 0, 10, 0, 0, 0, 11, 0, 0, 0, 12, 0, 0, 0][..],
            b"the OOB area",
        ];
        let seal = SyncedStore::seal(number, 9, 10, 11, 12, b"the OOB area");
        assert_eq!(seal, checksum(&golden.concat()));
    }
}
