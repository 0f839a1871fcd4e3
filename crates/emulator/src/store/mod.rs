//! Where content lies: in memory, in a sparse file that is mapped or synced, or nowhere (tags). Stores know erase blocks by number and
//! keep no rules; what may be read is decided before they are asked.

pub(crate) mod disk;
pub(crate) mod file;
mod memory;
mod oob;
pub(crate) mod room;
pub(crate) mod room_queue;
pub(crate) mod synced;
mod tags;

pub(crate) use file::FileStore;
pub(crate) use memory::MemoryStore;
pub(crate) use synced::SyncedStore;
pub(crate) use tags::TagStore;

use crate::block::{Block, PageMark};
use diecut_units::{Geometry, Payload, Time};
use room_queue::RoomQueue;
use std::io;
use std::ops::Range;

/// The content of a device.
pub(crate) enum Store {
    Memory(MemoryStore),
    Tags(TagStore),
    File(Box<FileStore>),
    Synced(Box<SyncedStore>),
}

/// Why a read found nothing to return.
pub(crate) enum ReadFault {
    /// The IU is stored in the other content mode.
    OtherMode { iu: u32 },
    /// The file system cannot read it.
    Failed { iu: u32 },
}

impl Store {
    /// A store for another part of the device, which touches other erase blocks.
    ///
    /// # Safety
    /// From now on, a block is touched through one of the two stores only; through the other one after
    /// [`Store::take_from`] only, or vice versa.
    pub(crate) unsafe fn share(&self) -> Store {
        // SAFETY: by the contract.
        unsafe {
            match self {
                Store::Memory(store) => Store::Memory(store.share()),
                Store::File(store) => Store::File(Box::new(store.share())),
                Store::Tags(store) => Store::Tags(store.empty_like()),
                Store::Synced(_) => panic!("a device whose completions wait for syncs is not divided"),
            }
        }
    }

    /// What some blocks hold is this store's from now on, and no longer the other's.
    pub(crate) fn take_from(&mut self, other: &mut Store, blocks: Range<usize>) {
        if let (Store::Tags(own), Store::Tags(theirs)) = (self, other) {
            own.take_from(theirs, blocks);
        }
    }

    /// Stores consecutive IUs of a block.
    #[inline]
    pub(crate) fn program(&mut self, block: u64, first_iu: u32, payload: &Payload) -> io::Result<()> {
        match self {
            Store::Memory(store) => store.program(block, first_iu, payload.bytes()),
            Store::File(store) => store.content.program(block, first_iu, payload.bytes()),
            Store::Tags(store) => store.program(block, first_iu, payload),
            Store::Synced(store) => return store.program(block, first_iu, payload.bytes()),
        }
        Ok(())
    }

    /// Stores the OOB areas of consecutive pages.
    #[inline]
    pub(crate) fn program_oob(&mut self, block: u64, first_page: u32, oob: &[u8]) -> io::Result<()> {
        match self {
            Store::Memory(store) => store.program_oob(block, first_page, oob),
            Store::File(store) => store.content.program_oob(block, first_page, oob),
            Store::Tags(store) => store.program_oob(block, first_page, oob),
            Store::Synced(store) => return store.program_oob(block, first_page, oob),
        }
        Ok(())
    }

    /// A program failed between its content and its OOB areas.
    #[cold]
    pub(crate) fn forget_unit(&mut self) {
        if let Store::Synced(store) = self {
            store.forget_unit();
        }
    }

    /// Fills `destination` with consecutive IUs.
    #[inline]
    pub(crate) fn read(
        &self,
        block: u64,
        first_iu: u32,
        iu_count: u32,
        destination: &mut [u8],
    ) -> Result<(), ReadFault> {
        match self {
            Store::Memory(store) => {
                store.read(block, first_iu, destination);
                Ok(())
            }
            Store::File(store) => {
                store.content.read(block, first_iu, destination);
                Ok(())
            }
            Store::Tags(store) => store.read(block, first_iu, iu_count, destination),
            Store::Synced(store) => store.read(block, first_iu, destination),
        }
    }

    /// Tells the processor that IUs and the OOB of their first page will be read.
    #[inline]
    pub(crate) fn prefetch(&self, block: u64, first_iu: u32, iu_count: u32, first_page: u32) {
        match self {
            Store::Memory(store) => store.prefetch(block, first_iu, iu_count, first_page),
            Store::File(store) => store.content.prefetch(block, first_iu, iu_count, first_page),
            Store::Tags(_) | Store::Synced(_) => {}
        }
    }

    /// Fills `oob` with the OOB area of one page.
    #[inline]
    pub(crate) fn read_oob(&self, block: u64, page: u32, oob: &mut [u8]) -> Result<(), ReadFault> {
        match self {
            Store::Memory(store) => store.read_oob(block, page, oob),
            Store::File(store) => store.content.read_oob(block, page, oob),
            Store::Tags(store) => store.read_oob(block, page, oob),
            Store::Synced(store) => return store.read_oob(block, page, oob),
        }
        Ok(())
    }

    /// Forgets the content of a block.
    pub(crate) fn erase(&mut self, block: u64) {
        match self {
            Store::Memory(_) | Store::File(_) | Store::Synced(_) => {}
            Store::Tags(store) => store.erase(block),
        }
    }

    /// Copies one page, content and OOB, to the next page of another block. `scratch` has the size of an OOB area.
    pub(crate) fn copy_page(
        &mut self,
        geometry: &Geometry,
        source: u64,
        source_page: u32,
        destination: u64,
        destination_page: u32,
        oob: Option<&[u8]>,
        scratch: &mut [u8],
    ) -> io::Result<()> {
        let ius = geometry.ius_per_page();
        match self {
            Store::Memory(store) => store.copy_page(source, source_page, destination, destination_page),
            Store::File(store) => {
                store.content.copy_page(source, source_page, destination, destination_page);
            }
            Store::Tags(store) => {
                store.copy_ius(source, source_page * ius, destination, destination_page * ius, ius);
            }
            Store::Synced(store) => store.copy_page(source, source_page, destination, destination_page)?,
        }
        match oob {
            Some(oob) => self.program_oob(destination, destination_page, oob),
            None => {
                let read = self.read_oob(source, source_page, scratch);
                read.map_err(|_| io::Error::other("what is copied cannot be read"))?;
                self.program_oob(destination, destination_page, scratch)
            }
        }
    }

    /// Whether there is room for a block's content, which is kept for it from now on. `is_empty`: it holds nothing yet.
    pub(crate) fn make_room(&mut self, block: u64, is_empty: bool, now: Time) -> bool {
        match self {
            Store::Memory(_) | Store::Tags(_) => true,
            Store::File(store) => store.make_room(block, is_empty, now),
            Store::Synced(store) => store.make_room(block, is_empty, now),
        }
    }

    /// A queue for a thread that takes the room of this store and gives it back; `None` if no file system is asked.
    pub(crate) fn room_queue(&self) -> Option<RoomQueue> {
        match self {
            Store::Memory(_) | Store::Tags(_) => None,
            Store::File(store) => Some(store.room_queue()),
            Store::Synced(store) => store.room_queue(),
        }
    }

    /// Where a block's OOB areas and pages lie in the file, if it surely has room for them besides `taken_bytes` that are asked for
    /// already. `None`: that is to be found out by taking it.
    pub(crate) fn ample_room(&self, block: u64, taken_bytes: u64, now: Time) -> Option<[Range<u64>; 2]> {
        match self {
            Store::Memory(_) | Store::Tags(_) => None,
            Store::File(store) => store.ample_room(block, taken_bytes, now),
            Store::Synced(store) => store.ample_room(block, taken_bytes, now),
        }
    }

    /// The file system had no room after all.
    pub(crate) fn had_no_room(&mut self, now: Time) {
        match self {
            Store::Memory(_) | Store::Tags(_) => {}
            Store::File(store) => store.allocator.had_none(now),
            Store::Synced(store) => store.had_no_room(now),
        }
    }

    /// Where a block's OOB areas and pages lie in the file.
    pub(crate) fn room_parts(&self, block: u64) -> Option<[Range<u64>; 2]> {
        match self {
            Store::Memory(_) | Store::Tags(_) => None,
            Store::File(store) => Some(store.parts(block..block + 1)),
            Store::Synced(store) => Some(store.room_parts(block)),
        }
    }

    /// See [`room::Allocator::ask_again`].
    pub(crate) fn ask_again(&mut self) {
        match self {
            Store::Memory(_) | Store::Tags(_) => {}
            Store::File(store) => store.allocator.ask_again(),
            Store::Synced(store) => store.ask_again(),
        }
    }

    /// Gives back the room of blocks that hold nothing.
    pub(crate) fn give_back(&mut self, blocks: Range<u64>) {
        match self {
            Store::Memory(_) | Store::Tags(_) => {}
            Store::File(store) => store.give_back(blocks),
            Store::Synced(store) => store.give_back(blocks),
        }
    }

    /// Gives back the piece of a block's room that starts at `from` bytes; returns where the next one starts, 0 after the last.
    pub(crate) fn give_back_piece(&mut self, block: u64, from: u64) -> u64 {
        match self {
            Store::Memory(_) | Store::Tags(_) => 0,
            Store::File(store) => store.give_back_piece(block, from),
            Store::Synced(store) => store.give_back_piece(block, from),
        }
    }

    /// Discarded blocks whose room is worth keeping.
    pub(crate) fn kept_blocks(&self) -> usize {
        match self {
            Store::Memory(_) | Store::Tags(_) => 0,
            Store::File(store) => store.kept_blocks(),
            Store::Synced(store) => store.kept_blocks(),
        }
    }

    /// A block's state changed after its content did.
    #[inline]
    pub(crate) fn set_programmed(&mut self, number: u64, block: &Block) {
        match self {
            Store::Memory(_) | Store::Tags(_) => {}
            Store::File(store) => store.set_block(number, block),
            Store::Synced(store) => store.set_block(number, block),
        }
    }

    /// A block was erased.
    pub(crate) fn set_erased(&mut self, number: u64, block: &Block) {
        self.set_programmed(number, block);
    }

    pub(crate) fn set_mark(&mut self, block: u64, page: u32, mark: PageMark) {
        if let Store::File(store) = self {
            store.set_mark(block, page, mark);
        }
    }

    pub(crate) fn clear_marks(&mut self, block: u64) {
        if let Store::File(store) = self {
            store.clear_marks(block);
        }
    }
}
