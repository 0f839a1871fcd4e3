//! What is staged and nobody needs any more is taken back before it is programmed.

use super::*;

/// What becomes of a chunk that was taken back.
enum Fate {
    /// Something in it lives: it moves up.
    Stays,
    /// Nothing in it lives, but it has notes: their sequences and words.
    Notes(Vec<(u64, [u64; 3])>),
    /// Nobody needs it.
    Goes,
}

impl Log {
    /// Tags and places of all IUs of the user stream that are in staging.
    pub fn staged_ius(&self) -> Vec<(u64, LogAddress)> {
        let mut ius = Vec::new();
        for (slot, chunk) in self.staged_chunks().filter(|(_, chunk)| chunk.stream == Stream::User) {
            let first = chunk.first_unit * self.layout.unit_ius + 1;
            let place = |record| self.layout.address(SegmentIndex(chunk.segment), first + record);
            let bytes = self.slots[slot].bytes();
            ius.extend((0..chunk.data_count).map(|at| (head::record(bytes, at as usize), place(at))));
        }
        ius
    }

    /// Takes back chunks of the open segment in which nothing lives. Their slots are free at once, and what waits behind them moves up.
    /// A chunk stays if a program of it, or of one behind it, has begun.
    ///
    /// Only in protected memory: there the note that makes them dead, published before, is durable. Elsewhere a cut could bring back the
    /// time before it, when they were needed.
    pub fn withdraw_dead(&mut self, space: &mut dyn EraseBlockSpace, owner: &mut impl Owner) {
        if !self.protected || self.gone || self.keeps_all {
            return;
        }
        let Some(segment) = self.open_segment[Stream::User] else { return };
        let mut chunks = self.waiting_chunks(segment, space);
        let is_gone = |(_, fate): &(usize, Fate)| !matches!(fate, Fate::Stays);
        let mut fates: Vec<(usize, Fate)> = chunks
            .drain(..)
            .map(|slot| (slot, self.fate(slot, owner)))
            .skip_while(|one| !is_gone(one))
            .collect();
        let has_data =
            |slot: usize| self.slots[slot].chunk.as_ref().is_some_and(|chunk| chunk.data_count > 0);
        if !fates.iter().any(|one| is_gone(one) && has_data(one.0)) {
            return;
        }
        diecut_units::mark!("log: staged chunks taken back");
        self.seal(Stream::User);
        let first_unit = self.slots[fates[0].0].chunk.as_ref().expect("staged").first_unit;
        let width = self.layout.width;
        for member in 0..width {
            let rows = (first_unit + width - 1 - member) / width;
            let block = self.segments[segment as usize].blocks[member as usize];
            space.withdraw(block, rows * self.layout.shape.program_unit_pages);
        }
        self.sealed.retain(|sealed| fates.iter().all(|(slot, _)| slot != sealed));
        let place = &mut self.segments[segment as usize];
        (place.state, place.next_unit) = (SegmentState::Open, first_unit);
        self.open_segment[Stream::User] = Some(segment);
        fates.iter().for_each(|(slot, _)| self.undo_program(*slot));
        fates.retain(|(slot, fate)| {
            let goes = matches!(fate, Fate::Goes);
            if goes {
                self.drop_chunk(*slot);
            }
            !goes
        });
        // Notes are durable in a new chunk before the old ones go. It comes first: so nothing moves beyond where it was.
        let has_new = self.copy_notes(&fates, segment, space);
        for (slot, fate) in fates {
            if has_new && matches!(fate, Fate::Notes(_)) {
                self.drop_chunk(slot);
                continue;
            }
            self.seal(Stream::User);
            let first_unit = self.segments[segment as usize].next_unit;
            self.settle(slot, segment, first_unit, owner);
        }
    }

    /// Chunks at the end of a segment, in their order, that no program has begun for.
    fn waiting_chunks(&self, segment: u32, space: &dyn EraseBlockSpace) -> Vec<usize> {
        let chunk_of = |slot: usize| self.slots[slot].chunk.as_ref().expect("staged");
        let staged = self.staged_chunks().filter(|(_, chunk)| chunk.segment == segment);
        let mut chunks: Vec<usize> = staged.map(|(slot, _)| slot).collect();
        chunks.sort_unstable_by_key(|slot| chunk_of(*slot).first_unit);
        let pages = self.layout.shape.program_unit_pages;
        let blocks = self.segments[segment as usize].blocks.iter();
        let begun: SmallVec<[u32; 16]> =
            blocks.map(|block| space.begun_pages(*block).div_ceil(pages)).collect();
        let width = self.layout.width;
        let waits = |slot: &usize| {
            let chunk = chunk_of(*slot);
            let mut units = chunk.first_unit..chunk.first_unit + chunk.units.max(1);
            matches!(chunk.state, ChunkState::Open | ChunkState::Sealed | ChunkState::Programming)
                && (chunk.state != ChunkState::Programming || chunk.pending == chunk.units)
                && units.all(|unit| unit / width >= begun[(unit % width) as usize])
        };
        let first = chunks.iter().rposition(|slot| !waits(slot)).map_or(0, |last| last + 1);
        chunks.split_off(first)
    }

    fn fate(&self, slot: usize, owner: &mut impl Owner) -> Fate {
        let slot = &self.slots[slot];
        let chunk = slot.chunk.as_ref().expect("staged");
        let bytes = slot.bytes();
        let first = chunk.first_unit * self.layout.unit_ius + 1;
        let is_live = |at: u32| {
            let place = self.layout.address(SegmentIndex(chunk.segment), first + at);
            owner.is_live(head::record(bytes, at as usize), place)
        };
        if (0..chunk.data_count).any(is_live) {
            return Fate::Stays;
        }
        let notes = (0..chunk.note_count as usize).map(|note| head::note(bytes, note));
        let notes: Vec<_> = notes.filter(|(_, words)| words[0] != head::SKIP).collect();
        if notes.is_empty() { Fate::Goes } else { Fate::Notes(notes) }
    }

    /// The chunk has no place any more.
    fn undo_program(&mut self, slot: usize) {
        let chunk = self.slots[slot].chunk.as_mut().expect("taken back");
        let of_segment = &mut self.segments[chunk.segment as usize].notes;
        *of_segment = of_segment.saturating_sub(chunk.note_count);
        if chunk.state == ChunkState::Programming {
            let (data, units) = (chunk.data_count, chunk.units);
            let statistics = &mut self.statistics;
            statistics.stream_ius[chunk.stream] -= u64::from(data);
            statistics.summary_ius -= 1;
            statistics.padding_ius -= u64::from(units * self.layout.unit_ius - 1 - data);
        }
        (chunk.state, chunk.pending) = (ChunkState::Displaced, 0);
    }

    fn drop_chunk(&mut self, slot: usize) {
        let chunk = self.slots[slot].chunk.as_ref().expect("taken back");
        self.segments[chunk.segment as usize].chunks -= 1;
        self.slots[slot].release();
        self.occupied.retain(|occupied| *occupied != slot);
    }

    /// Writes the notes of chunks in which nothing lives into a new chunk, with their sequences. Whether there was room for that.
    fn copy_notes(&mut self, fates: &[(usize, Fate)], segment: u32, space: &mut dyn EraseBlockSpace) -> bool {
        let with_notes = || fates.iter().filter(|(_, fate)| matches!(fate, Fate::Notes(_)));
        // Chunks that found other places before do not lie in the order of their sequences.
        let sequences =
            with_notes().map(|(slot, _)| self.slots[*slot].chunk.as_ref().expect("taken back").sequence);
        let Some(sequence) = sequences.min() else { return false };
        let notes =
            with_notes().flat_map(|(_, fate)| if let Fate::Notes(notes) = fate { &notes[..] } else { &[] });
        let left = self.layout.segment_units - self.segments[segment as usize].next_unit;
        if left * self.layout.unit_ius < 2 || !head::fits(0, notes.clone().count(), 0) {
            return false;
        }
        let Some(index) = self.open_chunk(Stream::User, space) else { return false };
        let slot = &mut self.slots[index];
        if let Some(header) = &mut slot.header {
            header[8..16].copy_from_slice(&sequence.to_le_bytes());
        }
        let chunk = slot.chunk.as_mut().expect("open");
        (chunk.sequence, chunk.expected) = (sequence, sequence);
        let place = &mut self.segments[segment as usize];
        for (at, words) in notes {
            let note = chunk.note_count as usize;
            chunk.note_count += 1;
            chunk.last_sequence = chunk.last_sequence.max(*at);
            place.notes += 1;
            place.last_note = place.last_note.max(*at);
            place.last_sequence = place.last_sequence.max(*at);
            match &mut slot.body {
                Body::Open(body) => head::put_note(body, note, *at, *words),
                _ => panic!("a chunk that is open can be written"),
            }
        }
        self.publish();
        true
    }
}
