//! Room for content where a file system gives it: blocks are promised room, get it, keep it while they are free, give it back.

use crate::block::{Block, ERASE_CUT};
use crate::failures::Failures;
use crate::store::Store;
use crate::store::places::NO_PLACE;
use crate::store::room_queue::{RoomQueue, RoomUser, RoomWorker};
use diecut_units::Time;
use std::collections::VecDeque;
use std::ops::Range;
use std::sync::Arc;

/// What the cells lend while room is taken.
pub(crate) struct Lent<'a> {
    pub(crate) blocks: &'a mut [Block],
    pub(crate) store: &'a mut Store,
    pub(crate) failures: &'a Failures,
    pub(crate) block_bytes: u64,
}

/// Room that is on its way to blocks, or back.
#[derive(Default)]
pub(crate) struct Rooms {
    /// Where places are fixed: discarded blocks whose room is kept for those that are opened next, oldest first. To give room back and to
    /// ask for it again costs the file system twice, and the processor a page fault for each page.
    kept: VecDeque<u64>,
    /// Places whose room is on its way back, a piece at a time, and how many bytes of the first one are.
    leaving: VecDeque<u64>,
    left_bytes: u64,
    /// Where a thread of its own takes room and gives it back.
    user: Option<RoomUser>,
    /// Blocks that were promised room, which is being taken.
    awaited: Vec<u64>,
    /// [`RoomQueue::ended`] at the last look.
    seen_ended: u64,
}

impl Rooms {
    /// Of a part that holds no channel yet.
    pub(crate) fn empty_part(&self) -> Rooms {
        Rooms { user: self.user.clone(), ..Rooms::default() }
    }

    /// Takes over what concerns some blocks of another part; what that part was giving back is given back at once.
    pub(crate) fn take_from(&mut self, other: &mut Rooms, numbers: Range<u64>, store: &mut Store) {
        let (own, theirs): (VecDeque<u64>, VecDeque<u64>) =
            other.kept.drain(..).partition(|block| numbers.contains(block));
        other.kept = theirs;
        self.kept.extend(own);
        let (own, theirs): (Vec<u64>, Vec<u64>) =
            other.awaited.drain(..).partition(|block| numbers.contains(block));
        other.awaited = theirs;
        // What ended may have been for a block that came now.
        (self.awaited, self.seen_ended) = ([std::mem::take(&mut self.awaited), own].concat(), u64::MAX);
        while other.gives_back() {
            other.give_back_piece(store);
        }
    }

    /// The process or the power is gone, and with it what was known of blocks that hold nothing.
    pub(crate) fn forget(&mut self) {
        self.left_bytes = 0;
        self.kept.clear();
        self.leaving.clear();
    }

    /// Discarded blocks: their room is kept as long as it is worth it.
    pub(crate) fn keep(
        &mut self,
        discarded: impl IntoIterator<Item = u64>,
        blocks: &mut [Block],
        store: &Store,
    ) {
        self.kept.extend(discarded);
        self.release_kept(store.kept_blocks(), blocks, store);
    }

    /// See [`diecut_media::Media::make_room`].
    pub(crate) fn make_room(&mut self, block: u64, cells: Lent<'_>, now: Time) -> bool {
        let Lent { blocks, store, failures, block_bytes } = cells;
        if blocks[block as usize].has_room || self.awaited.contains(&block) {
            return true;
        }
        if failures.lacks_room(now) || !self.has_place_now(block, blocks, store) {
            return false;
        }
        let Block { place, has_room, .. } = blocks[block as usize];
        if has_room {
            return true;
        }
        if let Some(rooms) = &self.user {
            let taken_bytes = rooms.asked_places() * block_bytes;
            if let Some(parts) = store.ample_room(place.into(), taken_bytes, now) {
                rooms.take(place.into(), parts);
                self.awaited.push(block);
                return true;
            }
        }
        self.take_room(block, Lent { blocks, store, failures, block_bytes }, now)
    }

    /// Has a block have a place, preferably one with room. `false` if there is none.
    fn has_place_now(&mut self, block: u64, blocks: &mut [Block], store: &mut Store) -> bool {
        let Some(free) = store.free_places() else { return true };
        if blocks[block as usize].place != NO_PLACE {
            return true;
        }
        let mut taken = free.take();
        while taken.is_none() && self.give_back_block(store) {
            taken = store.free_places().and_then(|free| free.take());
        }
        let Some((place, has_room)) = taken else { return false };
        let block = &mut blocks[block as usize];
        (block.place, block.has_room) = (place, has_room);
        true
    }

    /// A block that holds nothing got no room for its place.
    fn leave_place(block: &mut Block, store: &Store) {
        if let Some(free) = store.free_places() {
            free.give_back(block.place);
            block.place = NO_PLACE;
        }
    }

    /// Takes a block's room, and waits for that.
    fn take_room(&mut self, block: u64, cells: Lent<'_>, now: Time) -> bool {
        let Lent { blocks, store, failures, .. } = cells;
        if failures.lacks_room(now) || !self.has_place_now(block, blocks, store) {
            return false;
        }
        let Block { place, has_room, programmed_page, .. } = blocks[block as usize];
        if has_room {
            return true;
        }
        let place = u64::from(place);
        if let Some(rooms) = &self.user {
            rooms.keep(place);
        }
        let is_empty = programmed_page == 0;
        let mut has_room = store.make_room(place, is_empty, now);
        if !has_room {
            self.release_kept(0, blocks, store);
            while !has_room && self.give_back_block(store) {
                store.ask_again();
                has_room = store.make_room(place, is_empty, now);
            }
        }
        blocks[block as usize].has_room = has_room;
        if !has_room && is_empty {
            Rooms::leave_place(&mut blocks[block as usize], store);
        } else if has_room && self.leaving.contains(&place) {
            // It stays after all. The next one begins from its start: no part of this one is touched any more.
            self.left_bytes = if self.leaving[0] == place { 0 } else { self.left_bytes };
            self.leaving.retain(|leaving| *leaving != place);
        }
        has_room
    }

    /// Gives back the room of one place of those that need none, and waits for that. `false` if there is none.
    fn give_back_block(&mut self, store: &mut Store) -> bool {
        let Some(&first) = self.leaving.front() else {
            return self.user.as_ref().is_some_and(|rooms| rooms.give_back_now());
        };
        while self.leaving.front() == Some(&first) {
            self.give_back_piece(store);
        }
        true
    }

    /// See [`crate::Device::room_worker`].
    pub(crate) fn worker(&mut self, store: &Store) -> Option<RoomWorker> {
        assert!(self.user.is_none(), "I-E7: one thread takes the room of a device");
        let queue: Arc<RoomQueue> = Arc::new(store.room_queue()?);
        self.user = Some(RoomUser::new(Arc::clone(&queue)));
        Some(RoomWorker::new(queue))
    }

    /// Whether the room that a block was promised is still being taken.
    #[inline(always)]
    pub(crate) fn awaits(&mut self, block: u64, blocks: &mut [Block], store: &mut Store, now: Time) -> bool {
        !self.awaited.is_empty() && self.still_awaits(block, blocks, store, now)
    }

    #[cold]
    fn still_awaits(&mut self, block: u64, blocks: &mut [Block], store: &mut Store, now: Time) -> bool {
        let Some(rooms) = &self.user else { return false };
        let ended = rooms.ended();
        if std::mem::replace(&mut self.seen_ended, ended) != ended {
            let awaited = std::mem::take(&mut self.awaited);
            let ended: Vec<(u64, Option<bool>)> = awaited
                .into_iter()
                .map(|block| (block, rooms.take_ended(blocks[block as usize].place.into())))
                .collect();
            for (block, has_room) in ended {
                match has_room {
                    Some(has_room) => self.room_taken(&mut blocks[block as usize], has_room, store, now),
                    None => self.awaited.push(block),
                }
            }
        }
        self.awaited.contains(&block)
    }

    /// A block got the room that it was promised, or (others were faster) not.
    fn room_taken(&self, block: &mut Block, has_room: bool, store: &mut Store, now: Time) {
        block.has_room = has_room;
        if !has_room {
            store.had_no_room(now);
            let place = u64::from(block.place);
            if let (0, Some(parts), Some(rooms)) =
                (block.programmed_page, store.room_parts(place), &self.user)
            {
                // What it got is of no use.
                rooms.give_back(place, parts);
                Rooms::leave_place(block, store);
            }
        }
    }

    /// A block is programmed: it has its room now, or there is none.
    #[cold]
    pub(crate) fn has_room_at_last(&mut self, block: u64, cells: Lent<'_>, now: Time) -> bool {
        if let Some(at) = self.awaited.iter().position(|awaited| *awaited == block)
            && let Some(rooms) = &self.user
        {
            let state = &mut cells.blocks[block as usize];
            let has_room = rooms.wait(state.place.into());
            self.awaited.swap_remove(at);
            self.room_taken(state, has_room, cells.store, now);
        }
        cells.blocks[block as usize].has_room || self.take_room(block, cells, now)
    }

    /// A block's place is free: the table does not say any more that something is there.
    pub(crate) fn discard_place(&mut self, number: u64, blocks: &mut [Block], store: &Store) {
        if let Some(at) = self.awaited.iter().position(|awaited| *awaited == number) {
            // One that an older version left, whose room is being taken where it lies.
            if let Some(rooms) = &self.user {
                rooms.wait(blocks[number as usize].place.into());
            }
            self.awaited.swap_remove(at);
        }
        let block = &mut blocks[number as usize];
        let place = std::mem::replace(&mut block.place, NO_PLACE);
        let had_room = std::mem::take(&mut block.has_room);
        match store.free_places() {
            Some(free) if had_room => free.leave(place),
            // One that an older version may not have allocated as a whole.
            _ if place != NO_PLACE => self.let_go(place, store),
            // It held what could not be written for want of room.
            _ => {}
        }
        self.release_kept(store.kept_blocks(), blocks, store);
    }

    /// The room of a place that nobody has is given back.
    fn let_go(&mut self, place: u32, store: &Store) {
        match (&self.user, store.room_parts(place.into())) {
            (Some(rooms), Some(parts)) => {
                // In this order: whoever takes the place has the thread leave it alone.
                rooms.give_back(place.into(), parts);
                store.free_places().expect("places are given out").give_back(place);
            }
            _ => self.leaving.push_back(place.into()),
        }
    }

    /// Lets go of the room of what was discarded first, until no more than so many blocks' is kept.
    fn release_kept(&mut self, most: usize, blocks: &mut [Block], store: &Store) {
        while let Some(place) = store.free_places().and_then(|free| free.surplus(most)) {
            self.let_go(place, store);
        }
        while self.kept.len() > most {
            let number = self.kept.pop_front().expect("there are more");
            let block = &mut blocks[number as usize];
            // Erased since: it is in use again.
            if block.programmed_page == 0 && block.has(ERASE_CUT) && block.pending == 0 && block.has_room {
                block.has_room = false;
                match (&self.user, store.room_parts(number)) {
                    (Some(rooms), Some(parts)) => rooms.give_back(number, parts),
                    _ => self.leaving.push_back(number),
                }
            }
        }
    }

    /// Whether room is on its way back to the file system.
    #[inline(always)]
    pub(crate) fn gives_back(&self) -> bool {
        !self.leaving.is_empty()
    }

    /// Gives back the next piece: to punch a whole erase block would keep the shard for milliseconds.
    #[cold]
    pub(crate) fn give_back_piece(&mut self, store: &mut Store) {
        let number = self.leaving[0];
        self.left_bytes = store.give_back_piece(number, self.left_bytes);
        if self.left_bytes == 0 {
            self.leaving.pop_front();
            if let Some(free) = store.free_places() {
                free.give_back(number as u32);
            }
        }
    }
}
