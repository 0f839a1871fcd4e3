//! Chunks that lost their place get another one, and what is staged and nobody needs any more is taken back before it is programmed.

use super::Writer;
use crate::format::HeadShape;
use crate::reserve::{DISPLACED_LEAVE, FOUND_LEAVE};
use crate::staging::{Chunk, ChunkState, Place};
use crate::stream::PerStream;
use crate::{LogAddress, Owner, Stream, StreamKind};
use diecut_vssd::space::EraseBlockSpace;
use smallvec::SmallVec;

/// What becomes of a chunk that was taken back.
enum Fate {
    /// Something in it lives: it moves up.
    Stays,
    /// Nothing in it lives, but it has notes: their sequences and words.
    Notes(Vec<(u64, [u64; 3])>),
    /// Nobody needs it.
    Goes,
}

impl Writer {
    /// Gives displaced chunks another place.
    pub fn place_displaced(&mut self, space: &mut dyn EraseBlockSpace, owner: &mut impl Owner) {
        // Chunks of one stream that wait for room must not hold up those whose copies make it.
        let mut stuck = PerStream::<bool>::default();
        let mut next = 0;
        while let Some(index) = self.staging.displaced_from(next) {
            next = index + 1;
            let chunk = self.staging.slot(index).chunk();
            let (stream, units) = (chunk.stream, chunk.units);
            if stuck[stream] {
                continue;
            }
            self.seal(stream);
            match self.place(stream, units, space).or_else(|| self.place_in_reserve(stream, space)) {
                Some(place) => self.settle(index, place, owner),
                None => stuck[stream] = true,
            }
        }
    }

    /// A chunk that moves may use the reserve: its data was accepted.
    fn place_in_reserve(&mut self, stream: Stream, space: &mut dyn EraseBlockSpace) -> Option<Place> {
        if self.segments.open_of(stream).is_some() {
            return None;
        }
        let keep = match stream {
            // Durable in their slots: a cut could cost a segment for each of them.
            Stream::User(_) if self.staging.is_protected() => FOUND_LEAVE,
            Stream::User(_) if self.segments.freeing_count_in(self.group_of(stream)) == 0 => {
                1 + DISPLACED_LEAVE
            }
            // Frees may wait for just these chunks to be durable.
            _ => 0,
        };
        let segment = self.open_segment(stream, keep, space)?;
        Some(Place { segment, first_unit: 0, room_units: 0 })
    }

    fn settle(&mut self, index: usize, place: Place, owner: &mut impl Owner) {
        if self.staging.slot(index).chunk().stream == Stream::Map {
            self.anchors.leaves_moved();
        }
        self.staging.settle(index, place, &mut self.segments, owner);
    }

    /// Tags and places of all IUs of host data that are in staging.
    pub fn staged_ius(&self) -> Vec<(u64, LogAddress)> {
        let is_user = |chunk: &Chunk| chunk.stream.kind() == StreamKind::User;
        let mut ius = Vec::new();
        for (slot, chunk) in self.staging.chunks().filter(|(_, chunk)| is_user(chunk)) {
            let place = |data| chunk.address(data, &self.segments.layout);
            ius.extend((0..chunk.data_count).map(|at| (self.staging.slot(slot).record(at), place(at))));
        }
        ius
    }

    /// Takes back chunks of open segments in which nothing lives: see [`crate::Log::withdraw_dead`].
    pub fn withdraw_dead(&mut self, space: &mut dyn EraseBlockSpace, owner: &mut impl Owner) {
        if !self.staging.is_protected() || self.condition.is_gone() || self.condition.keeps_all() {
            return;
        }
        for stream in self.segments.layout.streams.of(StreamKind::User) {
            if let Some(segment) = self.segments.open_of(stream) {
                self.withdraw_dead_of(stream, segment, space, owner);
            }
        }
    }

    fn withdraw_dead_of(
        &mut self,
        stream: Stream,
        segment: u32,
        space: &mut dyn EraseBlockSpace,
        owner: &mut impl Owner,
    ) {
        let is_gone = |(_, fate): &(usize, Fate)| !matches!(fate, Fate::Stays);
        let chunks = self.waiting_chunks(segment, space);
        let fates = chunks.into_iter().map(|slot| (slot, self.fate(slot, owner)));
        let mut fates: Vec<(usize, Fate)> = fates.skip_while(|one| !is_gone(one)).collect();
        let has_data = |slot: usize| self.staging.slot(slot).held().is_some_and(|chunk| chunk.data_count > 0);
        if !fates.iter().any(|one| is_gone(one) && has_data(one.0)) {
            return;
        }
        diecut_units::mark!("log: staged chunks taken back");
        self.seal(stream);
        self.take_back(segment, &fates, space);
        fates.retain(|(slot, fate)| {
            let goes = matches!(fate, Fate::Goes);
            if goes {
                self.staging.drop_chunk(*slot, &mut self.segments);
            }
            !goes
        });
        // Notes are durable in a new chunk before the old ones go. It comes first: so nothing moves beyond where it was.
        let has_new = self.copy_notes(stream, &fates, segment, space);
        for (slot, fate) in fates {
            if has_new && matches!(fate, Fate::Notes(_)) {
                self.staging.drop_chunk(slot, &mut self.segments);
                continue;
            }
            self.seal(stream);
            let first_unit = self.segments[segment].next_unit;
            self.settle(slot, Place { segment, first_unit, room_units: 0 }, owner);
        }
    }

    /// Chunks at the end of a segment, in their order, that no program has begun for.
    fn waiting_chunks(&self, segment: u32, space: &dyn EraseBlockSpace) -> Vec<usize> {
        let staged = self.staging.chunks().filter(|(_, chunk)| chunk.segment == segment);
        let mut chunks: Vec<usize> = staged.map(|(slot, _)| slot).collect();
        chunks.sort_unstable_by_key(|slot| self.staging.slot(*slot).chunk().first_unit);
        let pages = self.segments.layout.shape.program_unit_pages;
        let blocks = self.segments[segment].blocks.iter();
        let begun: SmallVec<[u32; 16]> =
            blocks.map(|block| space.begun_pages(*block).div_ceil(pages)).collect();
        let layout = &self.segments.layout;
        let waits = |slot: &usize| {
            let chunk = self.staging.slot(*slot).chunk();
            let mut units = chunk.first_unit..chunk.first_unit + chunk.units.max(1);
            matches!(chunk.state(), ChunkState::Open | ChunkState::Sealed | ChunkState::Programming)
                && (chunk.state() != ChunkState::Programming || chunk.pending == chunk.programs)
                && units.all(|unit| {
                    let (member, own) = layout.unit_place(unit);
                    own >= begun[member as usize]
                })
        };
        let first = chunks.iter().rposition(|slot| !waits(slot)).map_or(0, |last| last + 1);
        chunks.split_off(first)
    }

    fn fate(&self, slot: usize, owner: &mut impl Owner) -> Fate {
        let slot = self.staging.slot(slot);
        let chunk = slot.chunk();
        let is_live = |at: u32| owner.is_live(slot.record(at), chunk.address(at, &self.segments.layout));
        if (0..chunk.data_count).any(is_live) {
            return Fate::Stays;
        }
        let notes = slot.notes();
        if notes.is_empty() { Fate::Goes } else { Fate::Notes(notes) }
    }

    /// These chunks, the last ones of a segment, have no place any more, and the stream goes on where they began.
    fn take_back(&mut self, segment: u32, fates: &[(usize, Fate)], space: &mut dyn EraseBlockSpace) {
        let layout = &self.segments.layout;
        let first_unit = self.staging.slot(fates[0].0).chunk().first_unit;
        for member in 0..layout.width {
            let units = layout.units_before(first_unit, member);
            let block = self.segments[segment].blocks[member as usize];
            space.withdraw(block, units * layout.shape.program_unit_pages);
        }
        let kind = self.segments[segment].stream.kind();
        assert_eq!(kind, StreamKind::User, "I-L4: only what hosts wrote is taken back");
        let unit_ius = layout.unit_ius;
        self.segments.reopen(segment, first_unit);
        for (slot, _) in fates {
            if self.staging.take_back(*slot, &mut self.segments) {
                let chunk = self.staging.slot(*slot).chunk();
                let (stream, room) = (chunk.stream, chunk.units * unit_ius);
                self.statistics.taken_back(stream, chunk.data_count, room);
                self.count_media(stream, room, true);
            }
        }
    }

    /// Whether a new chunk has room for so many notes.
    fn has_room_for_notes(&self, count: u32) -> bool {
        let shape = HeadShape { format: self.staging.form.format, ..HeadShape::default() };
        shape.fits(0, count, count * shape.note_size_bytes(false))
    }

    /// Writes the notes of chunks in which nothing lives into a new chunk, with their sequences. Whether there was room for that.
    fn copy_notes(
        &mut self,
        stream: Stream,
        fates: &[(usize, Fate)],
        segment: u32,
        space: &mut dyn EraseBlockSpace,
    ) -> bool {
        let with_notes = || fates.iter().filter(|(_, fate)| matches!(fate, Fate::Notes(_)));
        // Chunks that found other places before do not lie in the order of their sequences.
        let sequences = with_notes().map(|(slot, _)| self.staging.slot(*slot).chunk().sequence);
        let Some(sequence) = sequences.min() else { return false };
        let notes =
            with_notes().flat_map(|(_, fate)| if let Fate::Notes(notes) = fate { &notes[..] } else { &[] });
        let left = self.segments.units_left(segment);
        if left * self.segments.layout.unit_ius < 2 || !self.has_room_for_notes(notes.clone().count() as u32)
        {
            return false;
        }
        let Some(index) = self.open_chunk(stream, space) else { return false };
        let slot = self.staging.slot_mut(index);
        slot.begin_entry(sequence);
        for (at, words) in notes {
            let has_room = slot.add_note(*at, *words);
            assert!(has_room, "I-L20: all notes fit, or none is copied");
            self.segments[segment].take_note(*at);
        }
        self.staging.publish();
        true
    }
}
