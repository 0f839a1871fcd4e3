//! Programs end: chunks become safe, or find another place; dead segments are freed.

use super::*;

impl Log {
    /// Whether the log waits for this completion itself. If not, it belongs to the log's user.
    pub fn complete(&mut self, completion: SpaceCompletion) -> Option<SpaceCompletion> {
        if completion.result == Err(SpaceError::PowerLost) {
            self.gone = true;
        }
        let token = completion.token.0;
        match token & diecut_units::token::space::KIND_MASK {
            TOKEN_APPEND => {
                let slot = (token & 0xffff_ffff) as usize;
                let member = (token >> 32 & 0xff_ffff) as usize;
                let chunk = self.slots[slot].chunk.as_mut().expect("a chunk waits for its programs");
                chunk.pending -= 1;
                let segment = chunk.segment as usize;
                if completion.result.is_ok() {
                    self.segments[segment].completed_rows[member] += 1;
                } else if !self.gone {
                    if completion.result == Err(SpaceError::ReadOnly) {
                        self.read_only.get_or_insert(NO_GOOD_BLOCKS);
                    }
                    self.fail_segment(segment as u32);
                }
                None
            }
            TOKEN_HEAD => {
                self.head_arrived(completion);
                None
            }
            TOKEN_COPY => {
                let index = (token & 0xffff_ffff) as usize;
                let read = self.copies[index].take().expect("a copy waits for its read");
                self.free_copies.push(index);
                self.copy_arrived(read, completion);
                None
            }
            TOKEN_ANCHOR => {
                self.anchor_programmed(completion.result);
                None
            }
            TOKEN_NOBODY => None,
            _ => Some(completion),
        }
    }

    /// A program of a segment failed: it takes no more, and its chunks need another place.
    pub(super) fn fail_segment(&mut self, index: u32) {
        diecut_units::mark!("log: program failed, chunks move");
        let segment = &mut self.segments[index as usize];
        if segment.state == SegmentState::Open {
            segment.state = SegmentState::Sealed;
        }
        let stream = segment.stream;
        if self.open_segment[stream] == Some(index) {
            self.open_segment[stream] = None;
            self.seal(stream);
        }
        for slot in &mut self.slots {
            if let Some(chunk) = &mut slot.chunk
                && chunk.segment == index
            {
                chunk.state = ChunkState::Displaced;
                // The cleaner must not look for heads that were never programmed.
                let segment = &mut self.segments[index as usize];
                segment.next_unit = segment.next_unit.min(chunk.first_unit);
            }
        }
        let slots = &self.slots;
        self.sealed.retain(|s| slots[*s].chunk.as_ref().is_some_and(|c| c.state == ChunkState::Sealed));
    }

    pub(super) fn place_displaced(&mut self, space: &mut dyn EraseBlockSpace, owner: &mut impl Owner) {
        let is_displaced = |chunk: &Chunk| chunk.state == ChunkState::Displaced && chunk.pending == 0;
        if !self.staged_chunks().any(|(_, chunk)| is_displaced(chunk)) {
            return;
        }
        // Chunks of one stream that wait for room must not hold up those whose copies make it.
        let mut stuck = PerStream([false; Stream::COUNT]);
        for index in 0..self.slots.len() {
            let Some(chunk) = self.slots[index].chunk.as_ref().filter(|chunk| is_displaced(chunk)) else {
                continue;
            };
            if stuck[chunk.stream] {
                continue;
            }
            let (stream, units) = (chunk.stream, chunk.units);
            self.seal(stream);
            // A chunk that moves may use the reserve: its data was accepted.
            let Some((segment, first_unit, _)) = self.place(stream, units, space).or_else(|| {
                if self.open_segment[stream].is_some() {
                    return None;
                }
                let keep = match stream {
                    // Durable in their slots: a cut could cost a segment for each of them.
                    Stream::User if self.protected => FOUND_LEAVE,
                    Stream::User if self.freeing.is_empty() => 1 + DISPLACED_LEAVE,
                    // Frees may wait for just these chunks to be durable.
                    _ => 0,
                };
                Some((self.open_new_segment(stream, keep, space)?, 0, 0))
            }) else {
                stuck[stream] = true;
                continue;
            };
            self.settle(index, segment, first_unit, owner);
        }
    }

    /// Gives a sealed chunk the place that is next in a segment.
    pub(super) fn settle(&mut self, index: usize, segment: u32, first_unit: u32, owner: &mut impl Owner) {
        let chunk = self.slots[index].chunk.as_ref().expect("it gets another place");
        let (stream, old, units) = (chunk.stream, chunk.segment, chunk.units);
        let (data, old_first, sequence, notes) =
            (chunk.data_count, chunk.first_unit, chunk.sequence, chunk.note_count);
        let last = chunk.last_sequence;
        self.map_moves += u64::from(stream == Stream::Map);
        self.segments[old as usize].chunks -= 1;
        let target = &mut self.segments[segment as usize];
        target.chunks += 1;
        target.next_unit += units;
        target.last_sequence = target.last_sequence.max(last);
        if notes > 0 {
            target.last_note = target.last_note.max(last);
            target.notes += notes;
        }
        if target.next_unit == self.layout.segment_units {
            target.state = SegmentState::Sealed;
            self.open_segment[stream] = None;
        }
        let generation = target.generation;
        let offset = first_unit * self.layout.unit_ius;
        for record in 0..data {
            let tag = head::record(self.slots[index].bytes(), record as usize);
            let from = self.layout.address(SegmentIndex(old), old_first * self.layout.unit_ius + 1 + record);
            let to = self.layout.address(SegmentIndex(segment), offset + 1 + record);
            if owner.moved(tag, from, to, sequence) {
                self.invalidate(from);
                self.validate(to);
            }
        }
        let slot = &mut self.slots[index];
        slot.name(sequence, segment, generation, offset);
        slot.body = match std::mem::replace(&mut slot.body, Body::Moving) {
            Body::Shared(loan, buffer) => {
                drop(buffer);
                Body::Open(loan.reclaim())
            }
            body => body,
        };
        let chunk = slot.chunk.as_mut().expect("it gets another place");
        (chunk.segment, chunk.first_unit, chunk.state) = (segment, first_unit, ChunkState::Sealed);
        self.sealed.push_back(index);
    }

    pub(super) fn release(&mut self, space: &mut dyn EraseBlockSpace) {
        let rows = self.layout.shape.program_units();
        let unsafe_units = self.layout.shape.unsafe_units;
        // A chunk may wait for one in a later slot: again until nothing changes.
        let mut again = true;
        while std::mem::take(&mut again) {
            let mut next = 0;
            while let Some(index) = self.occupied.get(next).copied() {
                next += 1;
                let chunk = self.slots[index].chunk.as_mut().expect("it holds a chunk");
                if chunk.state == ChunkState::Programming && chunk.pending == 0 {
                    chunk.state = ChunkState::Unsafe;
                }
                if chunk.state != ChunkState::Unsafe {
                    continue;
                }
                let (number, first_unit) = (chunk.segment, chunk.first_unit);
                // Recovery walks a segment from its start: what lies behind a torn chunk is not found.
                let behind =
                    self.staged_chunks().any(|(_, c)| c.segment == number && c.first_unit < first_unit);
                let empty = |c: &Chunk| c.data_count + c.note_count == 0;
                let chunk = self.slots[index].chunk.as_ref().filter(|c| !behind || empty(c));
                let Some(chunk) = chunk else { continue };
                let segment = &self.segments[number as usize];
                // Filler holds nothing that could be lost, and is released at once. But what lies behind it is found only
                // through its head: the newest unit on every member up to this chunk's end must be safe.
                let end = chunk.first_unit + chunk.units;
                let first = chunk.first_unit.min(end.saturating_sub(self.layout.width));
                let safe = chunk.data_count + chunk.note_count == 0
                    || (first..end).all(|unit| {
                        let done = segment.completed_rows[(unit % self.layout.width) as usize];
                        done == rows || done >= unit / self.layout.width + 1 + unsafe_units
                    });
                if safe {
                    let segment = chunk.segment as usize;
                    self.slots[index].release();
                    next -= 1;
                    self.occupied.remove(next);
                    self.segments[segment].chunks -= 1;
                    again = true;
                }
            }
        }
        let freed_anchor = self.anchor.free_superseded(space);
        // What a segment of data held is dead by entries of writers and cleaner; leaves are dead by leaves.
        let floors = [self.floor_of(0..self.map_slots, false), self.floor(false)];
        let before = self.freeing.len();
        let (segments, valid, statistics) = (&mut self.segments, &self.valid, &mut self.statistics);
        self.freeing.retain(|index| {
            let segment = &mut segments[*index as usize];
            if segment.reads > 0
                || segment.chunks > 0
                || floors[usize::from(segment.stream == Stream::Map)] < segment.free_after
                    && !mutant!("log: segment freed before copies durable")
            {
                return true;
            }
            assert_eq!(valid[*index as usize], 0, "only dead segments are freed");
            for block in std::mem::take(&mut segment.blocks) {
                if block != NO_BLOCK {
                    space.free(block).expect("held by this segment");
                }
            }
            *segment = absent();
            statistics.segments_freed += 1;
            false
        });
        if self.freeing.len() < before || freed_anchor {
            space.sync(SpaceToken(TOKEN_NOBODY));
            self.count_free(space);
        }
    }
}
