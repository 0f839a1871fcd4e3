//! A device in a sparse file, mapped: what a command stored survives the death of the process.
//!
//! Layout, little endian; every region starts at a multiple of 4096:
//!
//! Version 1 is the same without places: they are 0 there. Who opens one makes it a version 3. Version 2 has the same header, without
//! offsets, and another layout: see `synced.rs`. The header's struct is in `image.rs`.
//!
//! | offset | size  | field            | meaning                                                          |
//! |-------:|------:|------------------|------------------------------------------------------------------|
//! |      0 |     8 | magic            | `DIECUTEM`                                                       |
//! |      8 |     4 | version          | 3; or 1, or 2                                                    |
//! |     12 |     4 | checksum         | CRC-32C of the header's 16384 bytes with this field zero         |
//! |     16 |     8 | seed             | factory bad blocks and endurance follow from it and the profile  |
//! |     24 |     8 | table            | offset of the block table: 16 bytes per erase block              |
//! |     32 |     8 | marks            | offset of the page marks: one byte per page                      |
//! |     40 |     8 | protected        | offset of protected memory                                       |
//! |     48 |     8 | protected size   | its bytes                                                        |
//! |     56 |     8 | OOB              | offset of the OOB areas, page after page, place after place      |
//! |     64 |     8 | data             | offset of the pages, in the same order                           |
//! |     72 |     8 | file size        | bytes                                                            |
//! |     80 |     4 | profile length   | bytes of the profile's text                                      |
//! |    128 |   ... | profile          | the profile as TOML; from 12288 to 16384 the header is zeros     |
//!
//! Entry of the block table: pages programmed (4), erase count (4), flags (1: bit 0 factory bad, bit 1 must be erased,
//! bit 2 erase failed, bit 3 has page marks), place (3), seconds of the first program (4). Place: where OOB areas and pages of the block
//! lie, if any page is programmed; 0 stands for the block's own number, 16777215 for none, and everything else for the place with a
//! number lower by one. Page mark: 0 as programmed, 1 garbage, 2 erased. Content is stored before the table entry that says it is there,
//! so a process that dies in between leaves pages that read as not programmed. An entry's place changes while it says that no page is.

use super::image::{
    HEADER_SIZE_BYTES, Image, KEPT_BYTES, Offsets, PIECE_BYTES, VERSION_MAPPED, VERSION_WITHOUT_PLACES,
    ZEROS_OFFSET, set_version,
};
use super::memory::MemoryStore;
use super::places::{FreePlaces, NO_PLACE};
use super::room::{self, Allocator, Room};
use super::room_queue::RoomQueue;
use crate::block::{Block, PageMark};
use crate::mapping::Mapping;
use crate::{DeviceError, Profile};
use diecut_units::{Geometry, ProtectedMemory, Time};
use std::fs::File;
use std::ops::Range;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{Ordering, compiler_fence};
use zerocopy::little_endian::U32;
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

/// Entry of the block table.
#[derive(Clone, Copy, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
struct TableEntry {
    programmed_page: U32,
    erase_count: U32,
    /// Flags, and the place above them.
    flags_and_place: U32,
    programmed_at_s: U32,
}

const ENTRY_SIZE_BYTES: usize = size_of::<TableEntry>();
const _: () = assert!(ENTRY_SIZE_BYTES == 16);
/// Place of a table entry: none.
const STORED_NO_PLACE: u32 = (1 << 24) - 1;

pub(crate) struct FileStore {
    pub(crate) content: MemoryStore,
    table: Mapping,
    marks: Mapping,
    /// Locked while any part of the device is open.
    file: Arc<File>,
    pages_per_erase_block: usize,
    pub(crate) allocator: Allocator,
    /// Where the mappings of OOB areas and pages start in the file.
    oob_offset: u64,
    data_offset: u64,
    file_size: u64,
    /// `None` if there are more erase blocks than a table entry can name.
    free_places: Option<Arc<FreePlaces>>,
}

struct Places {
    table: u64,
    marks: u64,
    protected: u64,
    protected_size: u64,
    oob: u64,
    data: u64,
    file_size: u64,
}

impl Places {
    fn of(profile: &Profile) -> Places {
        let geometry = &profile.geometry;
        let pages = geometry.erase_blocks() * u64::from(geometry.pages_per_erase_block());
        let align = |offset: u64| offset.next_multiple_of(4096);
        let table = HEADER_SIZE_BYTES as u64;
        let marks = align(table + geometry.erase_blocks() * ENTRY_SIZE_BYTES as u64);
        let protected = align(marks + pages);
        let protected_size = profile.protected_memory_bytes;
        let oob = align(protected + protected_size);
        // Huge pages want their alignment.
        let data = (oob + pages * u64::from(geometry.oob_size_bytes)).next_multiple_of(2 << 20);
        let file_size = data + geometry.raw_capacity_bytes();
        Places { table, marks, protected, protected_size, oob, data, file_size }
    }
}

/// What is found in a file besides its content.
pub(crate) struct Opened {
    pub(crate) profile: Profile,
    pub(crate) seed: u64,
    pub(crate) store: FileStore,
    pub(crate) protected: Option<ProtectedMemory>,
}

impl FileStore {
    /// Makes a new file; its blocks are written by whoever made them up.
    pub(crate) fn create(path: &Path, profile: &Profile, seed: u64) -> Result<Opened, DeviceError> {
        let places = Places::of(profile);
        let offsets = Offsets {
            table: places.table.into(),
            marks: places.marks.into(),
            protected: places.protected.into(),
            protected_size: places.protected_size.into(),
            oob: places.oob.into(),
            data: places.data.into(),
            file_size: places.file_size.into(),
        };
        let file = Image::create(path, VERSION_MAPPED, profile, seed, offsets, places.file_size)?;
        let made = FileStore::map(path, file, profile.clone(), seed, &places);
        if made.is_err() {
            // Made just now, and nothing is in it: the next try finds the place as this one did.
            let _ = std::fs::remove_file(path);
        }
        made
    }

    /// Opens a file made by [`FileStore::create`].
    pub(crate) fn open(path: &Path, image: Image) -> Result<Opened, DeviceError> {
        let places = Places::of(&image.profile);
        image.check_size(path, places.file_size)?;
        if image.version == VERSION_WITHOUT_PLACES {
            // From here on older programs would look for content in the wrong places.
            let become_newer = set_version(&image.file, VERSION_MAPPED);
            become_newer.map_err(|source| DeviceError::File {
                path: path.to_owned(),
                what: "its version cannot be written",
                source,
            })?;
        }
        FileStore::map(path, image.file, image.profile, image.seed, &places)
    }

    fn map(
        path: &Path,
        file: File,
        profile: Profile,
        seed: u64,
        places: &Places,
    ) -> Result<Opened, DeviceError> {
        let refused = |source| DeviceError::File {
            path: path.to_owned(),
            what: "no room can be taken for its block states and protected memory",
            source,
        };
        // The end of the header, which is zeros unless the profile's text is that long; it is not written again.
        let probed = ZEROS_OFFSET..HEADER_SIZE_BYTES as u64;
        let allocator = Allocator::probe(&file, probed).map_err(refused)?;
        if allocator.support.reserves {
            room::allocate(&file, places.table..places.oob).map_err(|source| {
                match room::is_full(&source) {
                    true => DeviceError::NoRoom {
                        path: path.to_owned(),
                        wanted_bytes: places.oob - places.table,
                        free_bytes: Room::of(path).map_or(0, |room| room.free_bytes),
                    },
                    false => refused(source),
                }
            })?;
        }
        let failed = |source| DeviceError::File { path: path.to_owned(), what: "cannot be mapped", source };
        // SAFETY: the file is as long as its layout, locked against a second process, and each part is mapped once.
        let map = |from: u64, to: u64| unsafe { Mapping::shared(&file, from, (to - from) as usize) };
        let table = map(places.table, places.marks).map_err(failed)?;
        let marks = map(places.marks, places.protected).map_err(failed)?;
        let oob = map(places.oob, places.data).map_err(failed)?;
        let data = map(places.data, places.file_size).map_err(failed)?;
        let protected = if places.protected_size > 0 {
            let mapping = map(places.protected, places.oob).map_err(failed)?;
            let (start, size_bytes) = (mapping.start(), places.protected_size as usize);
            // SAFETY: the mapping is that large, moves into the handle as its owner, and is touched through it only.
            Some(unsafe { ProtectedMemory::from_raw(start, size_bytes, Box::new(mapping)) })
        } else {
            None
        };
        let content = MemoryStore::over(&profile.geometry, data, oob);
        let pages_per_erase_block = profile.geometry.pages_per_erase_block() as usize;
        let count = profile.geometry.erase_blocks();
        let free_places = (count < u64::from(STORED_NO_PLACE) - 1)
            .then(|| Arc::new(FreePlaces::new(count, std::iter::empty())));
        let store = FileStore {
            content,
            table,
            marks,
            file: Arc::new(file),
            pages_per_erase_block,
            allocator,
            oob_offset: places.oob,
            data_offset: places.data,
            file_size: places.file_size,
            free_places,
        };
        Ok(Opened { profile, seed, store, protected })
    }

    /// Fills `blocks` with what the table says and calls back with every page mark.
    ///
    /// # Errors
    /// What is wrong with the table.
    pub(crate) fn load(
        &mut self,
        geometry: &Geometry,
        blocks: &mut [Block],
        mut mark: impl FnMut(u64, u32, PageMark),
    ) -> Result<(), String> {
        let mut owners = vec![None; if self.free_places.is_some() { blocks.len() } else { 0 }];
        for (number, block) in blocks.iter_mut().enumerate() {
            let entry = self.table.bytes(number * ENTRY_SIZE_BYTES, ENTRY_SIZE_BYTES);
            let entry = TableEntry::ref_from_bytes(entry).expect("as long as an entry");
            block.programmed_page = entry.programmed_page.get().min(geometry.pages_per_erase_block());
            block.erase_count = entry.erase_count.get();
            let flags_and_place = entry.flags_and_place.get();
            // Factory bad blocks follow from the seed too: a process may die before it has written them all.
            block.flags = block.flags & crate::block::FACTORY_BAD | flags_and_place as u8;
            block.programmed_at_s = entry.programmed_at_s.get();
            if self.free_places.is_some() {
                let stored = flags_and_place >> 8;
                (block.place, block.has_room) = match stored {
                    _ if block.programmed_page == 0 => (NO_PLACE, false),
                    STORED_NO_PLACE => (NO_PLACE, false),
                    // Versions without places may not have allocated all of it.
                    0 => (number as u32, false),
                    _ => (stored - 1, self.allocator.support.reserves),
                };
                if block.place != NO_PLACE {
                    let owner = owners.get_mut(block.place as usize).ok_or_else(|| {
                        format!("erase block {number} lies at {}, which is not there", block.place)
                    })?;
                    if let Some(other) = owner.replace(number) {
                        return Err(format!("erase blocks {other} and {number} lie at the same place"));
                    }
                }
            }
            let first = number * self.pages_per_erase_block;
            let marks = self.marks.bytes(first, self.pages_per_erase_block);
            if block.place == NO_PLACE && block.programmed_page > 0 {
                // Programs that found no room leave such pages, and no others do.
                let programmed = &marks[..block.programmed_page as usize];
                if !block.has(crate::block::HAS_MARKS) || programmed.iter().any(|byte| ![1, 2].contains(byte))
                {
                    return Err(format!("erase block {number} holds pages, but has no place"));
                }
            }
            if block.has(crate::block::HAS_MARKS) {
                for (page, byte) in marks.iter().enumerate() {
                    match byte {
                        1 => mark(number as u64, page as u32, PageMark::Garbage),
                        2 => mark(number as u64, page as u32, PageMark::Erased),
                        _ => {}
                    }
                }
            }
        }
        if self.free_places.is_some() {
            let used = blocks.iter().map(|block| block.place).filter(|place| *place != NO_PLACE);
            self.free_places = Some(Arc::new(FreePlaces::new(blocks.len() as u64, used)));
        }
        Ok(())
    }

    /// The same file for another part of the device.
    ///
    /// # Safety
    /// Parts touch different erase blocks.
    pub(crate) unsafe fn share(&self) -> FileStore {
        // SAFETY: what a file holds of different erase blocks lies apart.
        let (content, table, marks) =
            unsafe { (self.content.share(), self.table.share(), self.marks.share()) };
        let file = Arc::clone(&self.file);
        let (allocator, free_places) = (self.allocator.clone(), self.free_places.clone());
        FileStore { content, table, marks, file, allocator, free_places, ..*self }
    }

    pub(crate) fn free_places(&self) -> Option<&FreePlaces> {
        self.free_places.as_deref()
    }

    pub(crate) fn parts(&self, places: Range<u64>) -> [Range<u64>; 2] {
        let [oob, data] = self.content.ranges(&places);
        let at = |offset: u64, range: Range<usize>| offset + range.start as u64..offset + range.end as u64;
        [at(self.oob_offset, oob), at(self.data_offset, data)]
    }

    /// See [`super::Store::room_queue`].
    pub(crate) fn room_queue(&self) -> RoomQueue {
        // SAFETY: what has the queue stores nothing; it has the kernel map pages.
        let [oob, pages] = unsafe { self.content.share_mappings() };
        let mapped = [(oob, self.oob_offset), (pages, self.data_offset)];
        RoomQueue::new(Arc::clone(&self.file), self.allocator.clone(), Some(mapped))
    }

    /// See [`super::Store::ample_room`].
    pub(crate) fn ample_room(&self, place: u64, taken_bytes: u64, now: Time) -> Option<[Range<u64>; 2]> {
        let parts = self.parts(place..place + 1);
        let wanted_bytes = taken_bytes + parts.iter().map(|part| part.end - part.start).sum::<u64>();
        self.allocator.is_ample(&self.file, wanted_bytes, now).then_some(parts)
    }

    /// Allocates what pages and OOB areas of a place take.
    pub(crate) fn make_room(&mut self, place: u64, is_empty: bool, now: Time) -> bool {
        let parts = self.parts(place..place + 1);
        let taken = self.allocator.take(&self.file, &parts, now);
        if !taken && is_empty {
            // What it got before the file system was full is of no use.
            self.give_back(place..place + 1);
        }
        taken
    }

    /// Makes the pages of places a hole. OOB areas of places share pages of the file, and stay.
    pub(crate) fn give_back(&self, places: Range<u64>) {
        let [_, data] = self.parts(places);
        self.allocator.give_back(&self.file, data);
    }

    /// See [`super::Store::give_back_piece`].
    pub(crate) fn give_back_piece(&self, place: u64, from: u64) -> u64 {
        let [_, data] = self.parts(place..place + 1);
        let (start, end) = (data.start + from, data.end.min(data.start + from + PIECE_BYTES));
        self.allocator.give_back(&self.file, start..end);
        if end == data.end { 0 } else { from + PIECE_BYTES }
    }

    pub(crate) fn kept_blocks(&self) -> usize {
        let block_bytes = self.content.block_size_bytes() as u64;
        ((self.file_size - self.data_offset) / 8).min(KEPT_BYTES).div_euclid(block_bytes) as usize
    }

    pub(crate) fn set_block(&mut self, number: u64, block: &Block) {
        compiler_fence(Ordering::SeqCst);
        let entry = self.table.bytes_mut(number as usize * ENTRY_SIZE_BYTES, ENTRY_SIZE_BYTES);
        let entry = TableEntry::mut_from_bytes(entry).expect("as long as an entry");
        entry.erase_count = block.erase_count.into();
        let place = match block.place {
            _ if self.free_places.is_none() => 0,
            NO_PLACE => STORED_NO_PLACE,
            // Found so, and never allocated as a whole since.
            place if u64::from(place) == number && !block.has_room => 0,
            place => place + 1,
        };
        entry.flags_and_place = (u32::from(block.flags) | place << 8).into();
        entry.programmed_at_s = block.programmed_at_s.into();
        compiler_fence(Ordering::SeqCst);
        entry.programmed_page = block.programmed_page.into();
        compiler_fence(Ordering::SeqCst);
    }

    pub(crate) fn set_mark(&mut self, block: u64, page: u32, mark: PageMark) {
        let place = block as usize * self.pages_per_erase_block + page as usize;
        self.marks.bytes_mut(place, 1)[0] = match mark {
            PageMark::Garbage => 1,
            PageMark::Erased => 2,
        };
    }

    pub(crate) fn clear_marks(&mut self, block: u64) {
        let first = block as usize * self.pages_per_erase_block;
        self.marks.bytes_mut(first, self.pages_per_erase_block).fill(0);
    }

    /// Makes everything stored so far survive the death of the machine, as far as the file system promises.
    pub(crate) fn sync(&self) -> std::io::Result<()> {
        self.file.sync_data()
    }
}

#[cfg(test)]
mod test {
    use super::*;
    use diecut_units::checksum;
    use std::os::unix::fs::FileExt;

    /// Goal: the layout is pinned. Method: bytes written by hand.
    #[test]
    fn the_bytes_of_a_header_and_an_entry() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("image");
        let profile = Profile::named("tiny").expect("a profile");
        let text = profile.to_toml();
        let places = Places::of(&profile);
        let mut opened = FileStore::create(&path, &profile, 0x1817_1615_1413_1211).expect("a file");
        let flags = 0x21;
        let block = Block {
            programmed_page: 3,
            erase_count: 0x0403_0201,
            flags,
            place: 0x0605,
            programmed_at_s: 0x0a09_0807,
            has_room: true,
            ..Block::default()
        };
        opened.store.set_block(1, &block);
        let offsets = [
            places.table,
            places.marks,
            places.protected,
            places.protected_size,
            places.oob,
            places.data,
            places.file_size,
        ];
        let mut golden = b"DIECUTEM\x03\0\0\0\0\0\0\0\x11\x12\x13\x14\x15\x16\x17\x18".to_vec();
        golden.extend(offsets.iter().flat_map(|offset| offset.to_le_bytes()));
        golden.extend((text.len() as u32).to_le_bytes());
        golden.resize(128, 0);
        golden.extend(text.as_bytes());
        golden.resize(HEADER_SIZE_BYTES, 0);
        let check = checksum(&golden).to_le_bytes();
        golden[12..16].copy_from_slice(&check);
        golden.extend([0; 16]);
        golden.extend([3, 0, 0, 0, 1, 2, 3, 4, 0x21, 6, 6, 0, 7, 8, 9, 10]);
        let mut bytes = vec![0; golden.len()];
        opened.store.file.read_exact_at(&mut bytes, 0).expect("it is that long");
        assert!(bytes == golden, "{:?} {:?}", &bytes[..128], &bytes[HEADER_SIZE_BYTES..]);
    }
}
