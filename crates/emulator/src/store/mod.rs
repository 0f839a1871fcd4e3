//! Where content lies: in memory, in a sparse file that is mapped or synced, or nowhere (tags). Stores know content by the place of its erase
//! block ([`Block::place`]) and keep no rules; what may be read is decided before they are asked.

pub(crate) mod disk;
pub(crate) mod file;
pub(crate) mod image;
mod memory;
mod oob;
pub(crate) mod places;
mod record;
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
use places::FreePlaces;
use room_queue::RoomQueue;
use std::io;
use std::ops::Range;

/// A page of an erase block, by the block's number in the store.
#[derive(Clone, Copy)]
pub(crate) struct PageAt {
    pub block: u64,
    pub page: u32,
}

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

    /// Stores consecutive IUs of the block that has a place.
    #[inline]
    pub(crate) fn program(&mut self, place: u64, first_iu: u32, payload: &Payload) -> io::Result<()> {
        match self {
            Store::Memory(store) => store.program(place, first_iu, payload.bytes()),
            Store::File(store) => store.content.program(place, first_iu, payload.bytes()),
            Store::Tags(store) => store.program(place, first_iu, payload),
            Store::Synced(store) => return store.program(place, first_iu, payload.bytes()),
        }
        Ok(())
    }

    /// Stores the OOB areas of consecutive pages.
    #[inline]
    pub(crate) fn program_oob(&mut self, place: u64, first_page: u32, oob: &[u8]) -> io::Result<()> {
        match self {
            Store::Memory(store) => store.program_oob(place, first_page, oob),
            Store::File(store) => store.content.program_oob(place, first_page, oob),
            Store::Tags(store) => store.program_oob(place, first_page, oob),
            Store::Synced(store) => return store.program_oob(place, first_page, oob),
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
        place: u64,
        first_iu: u32,
        iu_count: u32,
        destination: &mut [u8],
    ) -> Result<(), ReadFault> {
        match self {
            Store::Memory(store) => {
                store.read(place, first_iu, destination);
                Ok(())
            }
            Store::File(store) => {
                store.content.read(place, first_iu, destination);
                Ok(())
            }
            Store::Tags(store) => store.read(place, first_iu, iu_count, destination),
            Store::Synced(store) => store.read(place, first_iu, destination),
        }
    }

    /// Tells the processor that IUs and the OOB of their first page will be read.
    #[inline]
    pub(crate) fn prefetch(&self, place: u64, first_iu: u32, iu_count: u32, first_page: u32) {
        match self {
            Store::Memory(store) => store.prefetch(place, first_iu, iu_count, first_page),
            Store::File(store) => store.content.prefetch(place, first_iu, iu_count, first_page),
            Store::Tags(_) | Store::Synced(_) => {}
        }
    }

    /// Fills `oob` with the OOB area of one page.
    #[inline]
    pub(crate) fn read_oob(&self, place: u64, page: u32, oob: &mut [u8]) -> Result<(), ReadFault> {
        match self {
            Store::Memory(store) => store.read_oob(place, page, oob),
            Store::File(store) => store.content.read_oob(place, page, oob),
            Store::Tags(store) => store.read_oob(place, page, oob),
            Store::Synced(store) => return store.read_oob(place, page, oob),
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

    /// Copies one page, content and OOB, to the next page of the block at another place. `scratch` has the size of an OOB area.
    pub(crate) fn copy_page(
        &mut self,
        geometry: &Geometry,
        source: PageAt,
        destination: PageAt,
        oob: Option<&[u8]>,
        scratch: &mut [u8],
    ) -> io::Result<()> {
        let ius = geometry.ius_per_page();
        match self {
            Store::Memory(store) => store.copy_page(source, destination),
            Store::File(store) => store.content.copy_page(source, destination),
            Store::Tags(store) => {
                let (from, to) = (source.page * ius, destination.page * ius);
                store.copy_ius(source.block, from, destination.block, to, ius);
            }
            Store::Synced(store) => store.copy_page(source, destination)?,
        }
        match oob {
            Some(oob) => self.program_oob(destination.block, destination.page, oob),
            None => {
                let read = self.read_oob(source.block, source.page, scratch);
                read.map_err(|_| io::Error::other("what is copied cannot be read"))?;
                self.program_oob(destination.block, destination.page, scratch)
            }
        }
    }

    /// Places for blocks that are opened, where content has no fixed ones.
    #[inline]
    pub(crate) fn free_places(&self) -> Option<&FreePlaces> {
        match self {
            Store::Memory(store) => store.free_places(),
            Store::File(store) => store.free_places(),
            Store::Tags(_) | Store::Synced(_) => None,
        }
    }

    /// Whether blocks take room from somebody, and give it back.
    #[inline]
    pub(crate) fn takes_room(&self) -> bool {
        !matches!(self, Store::Tags(_))
    }

    /// Whether there is room for a block's content at a place, which is kept for it from now on. `is_empty`: it holds nothing yet.
    pub(crate) fn make_room(&mut self, place: u64, is_empty: bool, now: Time) -> bool {
        match self {
            Store::Memory(_) | Store::Tags(_) => true,
            Store::File(store) => store.make_room(place, is_empty, now),
            Store::Synced(store) => store.make_room(place, is_empty, now),
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

    /// Where OOB areas and pages of a place lie in the file, if it surely has room for them besides `taken_bytes` that are asked for
    /// already. `None`: that is to be found out by taking it.
    pub(crate) fn ample_room(&self, place: u64, taken_bytes: u64, now: Time) -> Option<[Range<u64>; 2]> {
        match self {
            Store::Memory(_) | Store::Tags(_) => None,
            Store::File(store) => store.ample_room(place, taken_bytes, now),
            Store::Synced(store) => store.ample_room(place, taken_bytes, now),
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

    /// Where OOB areas and pages of a place lie in the file.
    pub(crate) fn room_parts(&self, place: u64) -> Option<[Range<u64>; 2]> {
        match self {
            Store::Memory(_) | Store::Tags(_) => None,
            Store::File(store) => Some(store.parts(place..place + 1)),
            Store::Synced(store) => Some(store.room_parts(place)),
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

    /// Gives back the room of places of which no block has content.
    pub(crate) fn give_back(&mut self, places: Range<u64>) {
        match self {
            Store::Memory(_) | Store::Tags(_) => {}
            Store::File(store) => store.give_back(places),
            Store::Synced(store) => store.give_back(places),
        }
    }

    /// Gives back the piece of a place's room that starts at `from` bytes; returns where the next one starts, 0 after the last.
    pub(crate) fn give_back_piece(&mut self, place: u64, from: u64) -> u64 {
        match self {
            Store::Memory(_) | Store::Tags(_) => 0,
            Store::File(store) => store.give_back_piece(place, from),
            Store::Synced(store) => store.give_back_piece(place, from),
        }
    }

    /// Discarded blocks whose room is worth keeping.
    pub(crate) fn kept_blocks(&self) -> usize {
        match self {
            // There is nobody to give it back to.
            Store::Memory(_) => usize::MAX,
            Store::Tags(_) => unreachable!("tags take no room"),
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
