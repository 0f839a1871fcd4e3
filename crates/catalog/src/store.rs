//! The catalog on its media: what changes is appended to both copies; where a block is full, the whole state goes to the next one.

use crate::State;
use crate::copy::{CATALOG_TOKEN_BIT, Copy, Shape, token};
use crate::error::CatalogError;
use crate::frame::{Part, checksum_of, encode_frame, encode_oob};
use crate::opening::{Opened, Opening};
use crate::record::{Changes, Content};
use diecut_media::{Command, Completion, Media, MediaError, MediaToken, Operation};
use diecut_units::{Buffer, ContentMode, EraseBlockAddress, IU_SIZE_BYTES, Payload, Time, mutant};

enum Phase {
    Opening(Box<Opening>),
    Idle,
    /// Copy at work: erasing its other block, or programming a frame.
    Erasing(usize),
    Programming(usize),
    /// What was programmed on the copy at work is being made durable.
    Flushing(usize),
    Failed(CatalogError),
}

/// Records on their way to one copy, a frame at a time.
struct Batch {
    follows: u64,
    records: Vec<u8>,
    next_part: u32,
}

/// A change on its way to both copies.
struct Write {
    sequence: u64,
    follows: u64,
    changes: Vec<u8>,
    /// What the copy at work is given: the changes, or the whole state.
    batch: Batch,
}

/// See the crate's documentation.
pub struct Catalog {
    shape: Shape,
    copies: [Copy; 2],
    phase: Phase,
    found: Option<State>,
    /// The records of the newest state that was or is being written.
    content: Content,
    /// The last number given.
    sequence: u64,
    wanted: Changes,
    writing: Option<Write>,
    durable: u64,
    programmed_ius: u64,
    erases: u64,
}

impl Catalog {
    /// An empty catalog over blocks whose content does not matter. `device` is the UUID of the device, which counts where pages have no
    /// OOB areas.
    pub fn create<M: Media + ?Sized>(
        media: &M,
        device: [u8; 16],
        copies: [[EraseBlockAddress; 2]; 2],
    ) -> Catalog {
        Catalog {
            shape: Shape::of(media, device),
            copies: copies.map(Copy::new),
            phase: Phase::Idle,
            found: None,
            content: State::default().content(),
            sequence: 1,
            wanted: Changes::default(),
            writing: None,
            durable: 0,
            programmed_ius: 0,
            erases: 0,
        }
    }

    /// Chooses the erase blocks of both copies among the system area's, given die by die: two blocks of the first die
    /// that has them, and two of a die on another channel, or else of another die. Of a device with one die, four blocks of that.
    pub fn choose_blocks(dies: &[Vec<EraseBlockAddress>]) -> Option<[[EraseBlockAddress; 2]; 2]> {
        let pairs: Vec<[EraseBlockAddress; 2]> =
            dies.iter().filter(|blocks| blocks.len() >= 2).map(|blocks| [blocks[0], blocks[1]]).collect();
        if let [only] = dies
            && let [first, second, third, fourth, ..] = only[..]
        {
            return Some([[first, second], [third, fourth]]);
        }
        let first = *pairs.first()?;
        let elsewhere = pairs.iter().find(|pair| pair[0].channel != first[0].channel);
        Some([first, *elsewhere.or(pairs.get(1))?])
    }

    /// Looks for what a catalog left. [`Catalog::complete`] goes on until [`Catalog::is_open`]. `device` as in [`Catalog::create`].
    ///
    /// Where pages have no OOB areas, nothing can be told from damage: a catalog is created there, and [`Catalog::put`] makes it one.
    pub fn open<M: Media + ?Sized>(
        media: &mut M,
        device: [u8; 16],
        copies: [[EraseBlockAddress; 2]; 2],
        now: Time,
    ) -> Catalog {
        let mut catalog = Catalog::create(media, device, copies);
        catalog.phase = Phase::Opening(Box::new(Opening::begin(catalog.shape, copies, media, now)));
        catalog
    }

    /// Whether a media completion belongs to a catalog.
    pub fn owns(token: MediaToken) -> bool {
        token.0 & CATALOG_TOKEN_BIT != 0
    }

    /// Whether opening is over; [`Catalog::error`] says if it failed.
    pub fn is_open(&self) -> bool {
        !matches!(self.phase, Phase::Opening(_))
    }

    /// Why it cannot be used, if so.
    pub fn error(&self) -> Option<&CatalogError> {
        match &self.phase {
            Phase::Failed(error) => Some(error),
            _ => None,
        }
    }

    /// The state that opening found; `None` on a medium without a catalog. Only once.
    pub fn take_state(&mut self) -> Option<State> {
        self.found.take()
    }

    /// The number of the state that opening found, and the highest number that is on the media; zeros where nothing is.
    pub fn found_numbers(&self) -> (u64, u64) {
        (self.durable, self.sequence)
    }

    /// Goes on from a state that another catalog of the same pool found: this one missed changes, or has what nobody else has. Its copies hold
    /// none of it, so the next change writes the whole state. `highest`: no number up to it is given again.
    ///
    /// # Panics
    /// While something is written, or before the end of opening.
    pub fn go_on_from(&mut self, number: u64, highest: u64, state: &State) {
        assert!(
            matches!(self.phase, Phase::Idle | Phase::Failed(_)),
            "I-C3: a catalog that is open and idle goes on"
        );
        assert!(number <= highest, "I-C3: the newest state is among what was seen");
        self.content = state.content();
        (self.durable, self.sequence) = (number, highest.max(self.sequence));
        self.found = None;
    }

    /// Bytes of records that a state may have which is still to grow: a quarter of a block is left for changes, so that the whole
    /// state is not written anew for each of them.
    fn room_bytes(&self) -> u64 {
        let frames = (self.shape.frames_per_block() * 3 / 4).max(1);
        frames * self.shape.records_of_a_frame() as u64
    }

    /// Whether there is room for the changes in so many permille of it; always, if they take away more than they add.
    ///
    /// # Errors
    /// [`CatalogError::Full`].
    pub fn fits(&self, changes: &Changes, permille: u64) -> Result<(), CatalogError> {
        assert!(permille <= 1000, "I-C6: no change has more than all room");
        let wanted_bytes = self.content.size_bytes_with(changes);
        let room_bytes = self.room_bytes() * permille / 1000;
        if wanted_bytes > room_bytes && wanted_bytes > self.content.size_bytes() {
            return Err(CatalogError::Full { wanted_bytes, room_bytes });
        }
        Ok(())
    }

    /// Makes changes. The state with them is durable when [`Catalog::durable`] reaches the number returned. What is put while
    /// something else is written is written together.
    ///
    /// # Errors
    /// [`CatalogError::Full`] if the state would be larger than a block: nothing is changed. [`Catalog::fits`] says it earlier.
    ///
    /// # Panics
    /// Before the end of opening.
    pub fn put<M: Media + ?Sized>(
        &mut self,
        changes: Changes,
        media: &mut M,
        now: Time,
    ) -> Result<u64, CatalogError> {
        assert!(self.is_open(), "I-C3: nothing is put before the newest state is known");
        self.wanted = self.with(&changes)?;
        self.sequence += 1;
        self.begin_write(media, now);
        Ok(self.sequence)
    }

    /// Whether [`Catalog::put`] would take changes.
    ///
    /// # Errors
    /// [`CatalogError::Full`].
    pub fn takes(&self, changes: &Changes) -> Result<(), CatalogError> {
        self.with(changes).map(|_| ())
    }

    /// What is wanted with these changes.
    fn with(&self, changes: &Changes) -> Result<Changes, CatalogError> {
        let mut wanted = self.wanted.clone();
        wanted.0.extend(changes.0.iter().map(|(key, value)| (key.clone(), value.clone())));
        let wanted_bytes = self.content.size_bytes_with(&wanted);
        if self.shape.frames(wanted_bytes) > self.shape.frames_per_block() {
            let room_bytes = self.shape.frames_per_block() * self.shape.records_of_a_frame() as u64;
            return Err(CatalogError::Full { wanted_bytes, room_bytes });
        }
        Ok(wanted)
    }

    /// Number of the newest state that is durable.
    pub fn durable(&self) -> u64 {
        self.durable
    }

    /// Whether no command of it is under way and none will follow before the next [`Catalog::put`].
    pub fn is_idle(&self) -> bool {
        matches!(self.phase, Phase::Idle | Phase::Failed(_))
    }

    /// Copies that cannot be written any more.
    pub fn lost_copies(&self) -> usize {
        self.copies.iter().filter(|copy| copy.is_dead()).count()
    }

    /// IUs programmed and erases asked for since it was opened.
    pub fn work(&self) -> (u64, u64) {
        (self.programmed_ius, self.erases)
    }

    /// Takes a completion of the medium (see [`Catalog::owns`]).
    pub fn complete<M: Media + ?Sized>(&mut self, completion: Completion, media: &mut M, now: Time) {
        let (copy, block) = ((completion.token.0 >> 1 & 1) as usize, (completion.token.0 & 1) as usize);
        if completion.result == Err(MediaError::PowerLost) {
            return;
        }
        let worked = completion.result.is_ok();
        match &mut self.phase {
            Phase::Opening(opening) => match opening.complete((copy, block), &completion, media, now) {
                Some(Ok(opened)) => self.opened(opened),
                Some(Err(error)) => self.phase = Phase::Failed(error),
                None => {}
            },
            Phase::Erasing(at) | Phase::Programming(at) if !worked => {
                let at = *at;
                self.copies[at].fail();
                self.write_copy(at, media, now);
            }
            Phase::Erasing(at) => {
                let at = *at;
                self.program(at, media, now);
            }
            Phase::Programming(at) => {
                let at = *at;
                self.program(at, media, now);
            }
            // A flush that is asked again succeeds without what this one should have covered.
            Phase::Flushing(_) if !worked => self.phase = Phase::Failed(CatalogError::FlushFailed),
            Phase::Flushing(at) => {
                let at = *at;
                self.copy_written(at, media, now);
            }
            Phase::Idle | Phase::Failed(_) => {}
        }
    }

    fn opened(&mut self, opened: Opened) {
        self.phase = Phase::Idle;
        for (copy, block) in self.copies.iter_mut().zip(opened.newest_blocks) {
            copy.keep(block);
        }
        // I-C3: a number that was on the media is not given again, whether its state was complete or not.
        self.sequence = opened.highest.max(self.sequence);
        if let Some((sequence, state)) = opened.state {
            assert!(sequence <= self.sequence, "I-C3: the newest state is among what was seen");
            self.durable = sequence;
            self.content = state.content();
            self.found = Some(state);
        }
    }

    fn begin_write<M: Media + ?Sized>(&mut self, media: &mut M, now: Time) {
        if !matches!(self.phase, Phase::Idle) || self.durable == self.sequence {
            return;
        }
        let changes = std::mem::take(&mut self.wanted);
        let (sequence, follows) = (self.sequence, self.durable);
        assert!(follows < sequence, "I-C3: numbers rise");
        let batch = Batch { follows, records: Vec::new(), next_part: 0 };
        self.writing = Some(Write { sequence, follows, changes: changes.encode(), batch });
        self.content.apply(changes);
        self.write_copy(0, media, now);
    }

    /// Begins with one copy: appends the changes where they fit, and puts the whole state into its other block where not.
    fn write_copy<M: Media + ?Sized>(&mut self, at: usize, media: &mut M, now: Time) {
        let write = self.writing.as_mut().expect("a change is written");
        let is_settled = |copy: &Copy| copy.is_dead() || copy.holds(write.sequence);
        assert!(at == 0 || is_settled(&self.copies[0]), "I-C1: the second copy waits for the first");
        let copy = &mut self.copies[at];
        if copy.is_dead() {
            return self.copy_done(at, media, now);
        }
        if copy.takes(write.follows, self.shape.frames(write.changes.len() as u64), &self.shape) {
            write.batch = Batch { follows: write.follows, records: write.changes.clone(), next_part: 0 };
            return self.program(at, media, now);
        }
        let records = self.content.encode();
        let frames = self.shape.frames(records.len() as u64);
        assert!(frames <= self.shape.frames_per_block(), "I-C6: the whole state fits into an erase block");
        write.batch = Batch { follows: 0, records, next_part: 0 };
        copy.turn();
        let operation = Operation::Erase { block: copy.current_block() };
        let token = token(at, copy.current());
        self.erases += 1;
        self.phase = Phase::Erasing(at);
        media.submit(Command { token, operation }, now);
    }

    /// Programs the next frame of the batch into the copy at work, or is done with it.
    fn program<M: Media + ?Sized>(&mut self, at: usize, media: &mut M, now: Time) {
        let shape = self.shape;
        let copy = &mut self.copies[at];
        let Write { sequence, batch, .. } = self.writing.as_mut().expect("a change is written");
        let parts = shape.frames(batch.records.len() as u64) as u32;
        if batch.next_part == parts {
            if shape.flushes && !mutant!("catalog: a copy is not flushed") {
                let token = token(at, copy.current());
                self.phase = Phase::Flushing(at);
                return media.flush(token, now);
            }
            return self.copy_written(at, media, now);
        }
        let begin = batch.next_part as usize * shape.records_of_a_frame();
        let end = batch.records.len().min(begin + shape.records_of_a_frame());
        let records = &batch.records[begin..end];
        let part =
            Part { sequence: *sequence, follows: batch.follows, part: batch.next_part, parts, records };
        batch.next_part += 1;
        let pages = shape.unit_pages;
        let mut content = encode_frame(&part, copy.place(&shape));
        copy.link(checksum_of(&content));
        content.resize((pages * shape.page_size_bytes) as usize, 0);
        let mut oob = vec![0; (pages * shape.oob_size_bytes) as usize];
        if shape.device.is_none() {
            for (page, area) in oob.chunks_exact_mut(shape.oob_size_bytes as usize).enumerate() {
                encode_oob(*sequence, page as u32, pages, area);
            }
        }
        let operation = Operation::Program {
            block: copy.current_block(),
            first_page: copy.append(&shape),
            parts: [Payload::new(ContentMode::Bytes, Buffer::copy_from(&content))].into_iter().collect(),
            oob: Buffer::copy_from(&oob),
        };
        self.programmed_ius += u64::from(pages * shape.page_size_bytes) / IU_SIZE_BYTES as u64;
        let token = token(at, copy.current());
        self.phase = Phase::Programming(at);
        media.submit(Command { token, operation }, now);
    }

    /// All frames of the batch are on the copy at work, and durable.
    fn copy_written<M: Media + ?Sized>(&mut self, at: usize, media: &mut M, now: Time) {
        let sequence = self.writing.as_ref().expect("a change is written").sequence;
        self.copies[at].complete(sequence);
        self.copy_done(at, media, now);
    }

    fn copy_done<M: Media + ?Sized>(&mut self, at: usize, media: &mut M, now: Time) {
        if at == 0 {
            return self.write_copy(1, media, now);
        }
        let Write { sequence, .. } = self.writing.take().expect("a change was written");
        if self.copies.iter().all(Copy::is_dead) {
            self.phase = Phase::Failed(CatalogError::Failed);
            return;
        }
        assert!(self.durable < sequence, "I-C3: states become durable in the order of their numbers");
        self.durable = sequence;
        self.phase = Phase::Idle;
        self.begin_write(media, now);
    }
}
