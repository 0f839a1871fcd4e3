//! Entries come in: chunks open in staging slots, on segments opened for them.

use super::*;
use crate::walk;

impl Log {
    /// Asks that all entries before `sequence` become durable without waiting for chunks to fill.
    pub fn want_durable(&mut self, sequence: u64) {
        self.wanted = self.wanted.max(sequence);
    }

    /// Counts free segments again where they may have changed. What others do to blocks (one that failed, a die that went) matters to whoever
    /// opens a segment, and that counts for itself; while writers may, and nothing is written, nothing here depends on the exact number.
    pub(super) fn recount_free(&mut self, space: &dyn EraseBlockSpace) {
        let is_settled = self.counted_at == self.next_sequence && self.free_segments > RESERVE_SEGMENTS + 1;
        if !is_settled || space.is_read_only() {
            self.count_free(space);
        }
    }

    pub(super) fn count_free(&mut self, space: &dyn EraseBlockSpace) {
        self.counted_at = self.next_sequence;
        if space.is_read_only() {
            self.read_only.get_or_insert(NO_GOOD_BLOCKS);
        }
        let (mut free, mut free_without_anchors) = (0, 0);
        for group in 0..self.layout.groups {
            let of_member = |m| space.free_blocks(self.layout.unit(group, m));
            // Members that were prepared have more.
            let prepared = self.prepared.0.iter().flatten().filter(|prepared| prepared.group == group);
            let prepared: SmallVec<[u32; Stream::COUNT]> =
                prepared.map(|prepared| prepared.blocks.len() as u32).collect();
            let more = |m: u32| prepared.iter().filter(|members| m < **members).count() as u32;
            let of_anchors = |m| self.anchor.blocks_on(self.layout.unit(group, m));
            let (mut least, mut least_without_anchors) = (u32::MAX, u32::MAX);
            for m in 0..self.layout.width {
                let members = of_member(m) + more(m);
                least = least.min(members);
                least_without_anchors = least_without_anchors.min(members + of_anchors(m));
            }
            free += least;
            free_without_anchors += least_without_anchors;
        }
        self.free_segments = free;
        self.free_segments_without_anchors = free_without_anchors;
    }

    /// Free segments that are not for this stream. Whoever makes room comes before those who use it up.
    fn keep_of(&self, stream: Stream) -> u32 {
        match stream.policy().keep_free {
            Some(keep) if self.copying.is_none() => {
                if self.needs_anchor() {
                    keep.while_anchor_is_needed
                } else {
                    keep.usually
                }
            }
            // Copies of one victim fit into one segment, and free the victim. The last one is for chunks whose place
            // fails, unless nothing else can make room.
            _ if self.freeing.is_empty()
                && !self.staged_chunks().any(|(_, c)| c.state == ChunkState::Displaced) =>
            {
                0
            }
            _ => DISPLACED_LEAVE,
        }
    }

    pub(super) fn open_new_segment(
        &mut self,
        stream: Stream,
        keep: u32,
        space: &mut dyn EraseBlockSpace,
    ) -> Option<u32> {
        self.count_free(space);
        if self.next_generation == u32::MAX {
            self.read_only.get_or_insert(COUNTERS_USED_UP);
            return None;
        }
        if self.free_segments <= keep || self.is_blind_to_room() {
            return None;
        }
        // Blocks of a segment can be free before its number is: greater numbers are not known at recovery.
        let real = &self.segments[..self.real_segments as usize];
        let index = real.iter().position(|s| s.state == SegmentState::Absent)?;
        let first_group = self.group_to_open(stream);
        for step in 0..self.layout.groups {
            let group = (first_group + step) % self.layout.groups;
            let prepared = self.best_prepared(stream, group, space).and_then(|set| self.prepared[set].take());
            let mut blocks = prepared.map_or_else(SmallVec::new, |prepared| prepared.blocks);
            let members = blocks.len() as u32..self.layout.width;
            // Asked before any is allocated: each allocation costs an erase.
            if !members.clone().all(|member| space.make_room(self.layout.unit(group, member))) {
                diecut_units::mark!("log: no room for a segment");
                self.no_room = true;
                if !blocks.is_empty() {
                    let place = self.prepared.0.iter_mut().find(|prepared| prepared.is_none());
                    *place.expect("it was taken from one") = Some(Prepared { group, blocks });
                }
                return None;
            }
            for member in members {
                match space.allocate(self.layout.unit(group, member), PURPOSE_SEGMENT) {
                    Ok(block) => blocks.push(block),
                    Err(SpaceError::ReadOnly) => {
                        self.read_only.get_or_insert(NO_GOOD_BLOCKS);
                        break;
                    }
                    Err(SpaceError::NoRoom) => {
                        self.no_room = true;
                        break;
                    }
                    Err(_) => break,
                }
            }
            if blocks.len() < self.layout.width as usize {
                for block in blocks {
                    space.free(block).expect("just allocated");
                }
                continue;
            }
            self.no_room = false;
            self.opened[group as usize] += 1;
            let width = self.layout.width as usize;
            self.segments[index] = Segment {
                state: SegmentState::Open,
                blocks,
                generation: self.next_generation,
                stream,
                completed_rows: SmallVec::from_elem(0, width),
                ..absent()
            };
            self.next_generation += 1;
            self.open_segment[stream] = Some(index as u32);
            if stream == Stream::User {
                self.cleaned_entries = 0;
            }
            self.count_free(space);
            return Some(index as u32);
        }
        None
    }

    /// The group in which a stream is to open its next segment: one in which no other stream programs, so that all dies have
    /// something to do, as long as all groups are worn alike.
    pub(super) fn calm_group(&self, stream: Stream) -> u32 {
        (0..self.layout.groups).min_by_key(|group| self.calmness(stream, *group)).expect("there is a group")
    }

    /// Segments opened in a group, and those that will be because they are prepared.
    fn opened_or_prepared(&self, group: u32) -> u64 {
        let sets = Stream::DATA.iter().filter_map(|set| self.prepared[*set].as_ref());
        let sets = sets.filter(|set| set.group == group);
        self.opened[group as usize] + sets.count() as u64
    }

    /// The less, the better for this stream's next segment.
    fn calmness(&self, stream: Stream, group: u32) -> (bool, usize, u64) {
        let others = Stream::DATA.into_iter().filter(|other| *other != stream);
        let groups = 0..self.layout.groups;
        let opened_least =
            groups.map(|group| self.opened_or_prepared(group)).min().expect("there is a group");
        let opened = self.opened_or_prepared(group);
        let is_ahead = opened - opened_least > GROUPS_APART;
        let is_of = |other: Stream| self.open_segment[other].is_some_and(|s| self.group_of(s) == group);
        (is_ahead, others.filter(|other| is_of(*other)).count(), opened)
    }

    /// The group in which a stream opens a segment now: whoever erases all members at once waits for them.
    fn group_to_open(&self, stream: Stream) -> u32 {
        let is_whole = |group: u32| {
            let whole = |set: &Prepared| set.group == group && set.blocks.len() as u32 == self.layout.width;
            stream
                .policy()
                .shares_blocks_with
                .iter()
                .any(|set| self.prepared[*set].as_ref().is_some_and(whole))
        };
        let key = |group: &u32| (!is_whole(*group), self.calmness(stream, *group));
        (0..self.layout.groups).min_by_key(key).expect("there is a group")
    }

    /// What was prepared in a group and can be made whole: meant for this stream, the longest first, or for another one, because
    /// there may be nothing else.
    fn best_prepared(&self, stream: Stream, group: u32, space: &dyn EraseBlockSpace) -> Option<Stream> {
        let can_be_whole = |set: &Prepared| {
            let missing = set.blocks.len() as u32..self.layout.width;
            set.group == group
                && missing.into_iter().all(|m| space.free_blocks(self.layout.unit(group, m)) > 0)
        };
        let sets =
            Stream::ALL.into_iter().filter(|set| self.prepared[*set].as_ref().is_some_and(can_be_whole));
        sets.max_by_key(|set| {
            let blocks = self.prepared[*set].as_ref().map_or(0, |set| set.blocks.len());
            (stream.policy().shares_blocks_with.contains(set), blocks)
        })
    }

    /// The group of a segment that has blocks.
    pub(super) fn group_of(&self, segment: u32) -> u32 {
        let block = self.segments[segment as usize].blocks.iter().find(|block| **block != NO_BLOCK);
        block.map_or(0, |block| self.layout.member_of(*block).0)
    }

    /// Takes the next block of the segments that are opened next, when it is time for it: all of them, one after the other, while the
    /// ones before are filled. One die erases one of them at a time: programs behind several erases would wait longer than
    /// staging lasts.
    pub(super) fn prepare(&mut self, space: &mut dyn EraseBlockSpace) {
        if self.read_only.is_some() || self.free_segments <= RESERVE_SEGMENTS + 1 {
            return;
        }
        self.prepare_next(Stream::Map, Stream::Map, space);
        let is_whole = |set: Stream| {
            self.prepared[set].as_ref().is_some_and(|set| set.blocks.len() as u32 == self.layout.width)
        };
        let filled = Stream::DATA
            .map(|stream| self.open_segment[stream].map_or(0, |at| self.segments[at as usize].next_unit));
        if filled[0].max(filled[1]) < self.due(0) || is_whole(Stream::User) && is_whole(Stream::Cleaner) {
            return;
        }
        // Whoever needs one first gets what is ready, so the set that has most, where that one would open, is made for it.
        let mut streams = Stream::DATA;
        if filled[1] > filled[0] {
            streams.reverse();
        }
        let group = self.calm_group(streams[0]);
        let mut sets = Stream::DATA;
        sets.sort_by_key(|set| {
            std::cmp::Reverse(self.prepared[*set].as_ref().map(|set| (set.group == group, set.blocks.len())))
        });
        for (stream, set) in streams.into_iter().zip(sets) {
            self.prepare_next(stream, set, space);
        }
    }

    /// Units of a segment that are programmed when this member of the next one is taken: all are a little before it is full.
    fn due(&self, member: u32) -> u32 {
        (member + 2) * (self.layout.segment_units / (self.layout.width + 2)).max(1)
    }

    /// Takes the next block of a set, if it is time for a stream that fills its segment.
    fn prepare_next(&mut self, stream: Stream, set: Stream, space: &mut dyn EraseBlockSpace) {
        let Some(open) = self.open_segment[stream] else { return };
        let member = self.prepared[set].as_ref().map_or(0, |prepared| prepared.blocks.len() as u32);
        if member == self.layout.width || self.segments[open as usize].next_unit < self.due(member) {
            return;
        }
        let group = self.prepared[set].as_ref().map(|prepared| prepared.group);
        let group = group.unwrap_or_else(|| self.calm_group(stream));
        let unit = self.layout.unit(group, member);
        if !self.is_erasing(unit, space)
            && space.make_room(unit)
            && let Ok(block) = space.allocate(unit, PURPOSE_SEGMENT)
        {
            let blocks = SmallVec::new();
            self.prepared[set].get_or_insert_with(|| Prepared { group, blocks }).blocks.push(block);
        }
    }

    /// Whether a block on this unit that some stream has, or will program next, is still to be erased.
    fn is_erasing(&self, unit: UnitIndex, space: &dyn EraseBlockSpace) -> bool {
        let open =
            self.open_segment.0.iter().flatten().map(|segment| &self.segments[*segment as usize].blocks);
        let blocks = self.prepared.0.iter().flatten().map(|prepared| &prepared.blocks).chain(open).flatten();
        blocks.into_iter().any(|block| *block != NO_BLOCK && block.unit == unit && !space.is_erased(*block))
    }

    /// A place for a chunk of at least `units_min` units: segment, first unit, and units there are.
    pub(super) fn place(
        &mut self,
        stream: Stream,
        units_min: u32,
        space: &mut dyn EraseBlockSpace,
    ) -> Option<(u32, u32, u32)> {
        if let Some(segment) = self.open_segment[stream] {
            let left = self.layout.segment_units - self.segments[segment as usize].next_unit;
            if left >= units_min && left * self.layout.unit_ius >= 2 {
                let first = self.segments[segment as usize].next_unit;
                return Some((segment, first, left.min(self.layout.chunk_units)));
            }
            // Too short for a chunk that moves: filler ends the segment, or what it holds would never be safe.
            diecut_units::mark!("log: segment ended with filler");
            self.fill_rest(stream, segment)?;
        }
        let segment = self.open_new_segment(stream, self.keep_of(stream), space)?;
        Some((segment, 0, self.layout.chunk_units))
    }

    /// The slot of the stream's open chunk; opens one if there is none.
    #[inline]
    pub(super) fn open_chunk(&mut self, stream: Stream, space: &mut dyn EraseBlockSpace) -> Option<usize> {
        self.open[stream].or_else(|| self.open_new_chunk(stream, space))
    }

    #[inline(never)]
    fn open_new_chunk(&mut self, stream: Stream, space: &mut dyn EraseBlockSpace) -> Option<usize> {
        if self.gone || self.read_only.is_some() {
            return None;
        }
        if self.next_sequence >= walk::SEQUENCE_MAX - u64::from(u32::MAX) {
            self.read_only.get_or_insert(COUNTERS_USED_UP);
            return None;
        }
        let range = self.slots_of(stream);
        let mut free = range.into_iter().filter(|slot| self.slots[*slot].is_free());
        free.next()?;
        if !self.filling && (stream != Stream::User || self.protected) {
            // The last slot is for filler: without it chunks that only wait to become safe would wait for ever.
            free.next()?;
        }
        let (segment, first_unit, room_units) = self.place(stream, 1, space)?;
        // Chosen now: filler that ended a segment may have taken the first one.
        let slot = self.slots_of(stream).find(|slot| self.slots[*slot].is_free())?;
        self.start_chunk(slot, stream, segment, first_unit, room_units);
        Some(slot)
    }

    fn start_chunk(&mut self, slot: usize, stream: Stream, segment: u32, first_unit: u32, room_units: u32) {
        let offset = first_unit * self.layout.unit_ius;
        let generation = self.segments[segment as usize].generation;
        let sequence = self.next_sequence;
        self.segments[segment as usize].chunks += 1;
        if stream.policy().is_paced {
            self.pace.take_head();
        }
        let slot_ref = &mut self.slots[slot];
        slot_ref.clear();
        slot_ref.name(sequence, segment, generation, offset);
        slot_ref.open_bytes()[..IU_SIZE_BYTES].fill(0);
        let checksums = std::mem::take(&mut slot_ref.spare_checksums);
        let chunk = Chunk {
            state: ChunkState::Open,
            stream,
            segment,
            first_unit,
            units: 0,
            room_units,
            sequence,
            expected: sequence,
            last_sequence: 0,
            data_count: 0,
            note_count: 0,
            origin: None,
            pending: 0,
            fills_room: false,
            checksums,
        };
        self.occupy(slot, chunk);
        self.open[stream] = Some(slot);
    }

    /// Ends an open segment with filler. `None` if staging must be waited for.
    fn fill_rest(&mut self, stream: Stream, segment: u32) -> Option<()> {
        while self.open_segment[stream] == Some(segment) {
            let first_unit = self.segments[segment as usize].next_unit;
            let left = self.layout.segment_units - first_unit;
            let slot = self.slots_of(stream).find(|slot| self.slots[*slot].is_free())?;
            self.start_chunk(slot, stream, segment, first_unit, left.min(self.layout.chunk_units));
            self.slots[slot].chunk.as_mut().expect("just started").fills_room = true;
            self.seal(stream);
        }
        Some(())
    }

    /// Whether one more IU can be appended to the stream without waiting.
    pub fn has_room(&mut self, stream: Stream, space: &mut dyn EraseBlockSpace) -> bool {
        (!stream.policy().is_paced || self.pace.allows()) && self.open_chunk(stream, space).is_some()
    }

    /// Appends an IU. Gives its place, or `None` if staging, space or the cleaner must be waited for. In staging it is at once
    /// readable; [`Log::publish`] makes it survive the process.
    #[inline]
    pub fn append(
        &mut self,
        stream: Stream,
        tag: u64,
        content: &[u8],
        space: &mut dyn EraseBlockSpace,
    ) -> Option<LogAddress> {
        if !stream.policy().is_paced {
            return self.append_checked(stream, tag, content, checksum(content), space);
        }
        if !self.pace.allows() {
            return None;
        }
        let address = self.append_checked(stream, tag, content, checksum(content), space);
        if address.is_some() {
            self.pace.take();
        }
        address
    }

    /// As [`Log::append`], with the content's checksum: that of a copy is the one it was read with.
    pub(super) fn append_checked(
        &mut self,
        stream: Stream,
        tag: u64,
        content: &[u8],
        content_checksum: u32,
        space: &mut dyn EraseBlockSpace,
    ) -> Option<LogAddress> {
        let slot_index = self.open_chunk(stream, space)?;
        if stream.policy().names_origin && !self.joins(slot_index) {
            self.seal(stream);
            return self.append_checked(stream, tag, content, content_checksum, space);
        }
        let sequence = self.next_sequence;
        let unit_ius = self.layout.unit_ius;
        let slot = &mut self.slots[slot_index];
        let chunk = slot.chunk.as_mut().expect("open");
        if chunk.data_count == 0 && chunk.note_count == 0 {
            // An empty chunk takes its sequence with its first entry.
            (chunk.sequence, chunk.expected) = (sequence, sequence);
            if let Some(header) = &mut slot.header {
                header[8..16].copy_from_slice(&sequence.to_le_bytes());
            }
        }
        let skip = chunk.expected != sequence;
        if !head::fits(chunk.data_count as usize + 1, chunk.note_count as usize + usize::from(skip), 0) {
            self.seal(stream);
            return self.append_checked(stream, tag, content, content_checksum, space);
        }
        let (data, notes) = (chunk.data_count, chunk.note_count);
        chunk.checksums.push(content_checksum);
        chunk.data_count += 1;
        chunk.note_count += u32::from(skip);
        chunk.expected = sequence + 1;
        chunk.last_sequence = sequence;
        let (segment, offset) = (chunk.segment, chunk.first_unit * unit_ius + 1 + data);
        let full = chunk.data_count + 1 == chunk.room_units * unit_ius;
        let at = IU_SIZE_BYTES + data as usize * slot.iu_bytes;
        let iu_bytes = slot.iu_bytes;
        let bytes = slot.open_bytes();
        if skip {
            head::put_note(bytes, notes as usize, sequence, [head::SKIP, data.into(), 0]);
        }
        head::put_record(bytes, data as usize, tag);
        match (<&mut [u8; 8]>::try_from(&mut bytes[at..at + iu_bytes]), <&[u8; 8]>::try_from(content)) {
            // A tag is a word: no call for it.
            (Ok(place), Ok(tag)) => *place = *tag,
            _ => bytes[at..at + iu_bytes].copy_from_slice(content),
        }
        self.next_sequence += 1;
        self.valid[segment as usize] += 1;
        let segment_ref = &mut self.segments[segment as usize];
        segment_ref.last_sequence = sequence;
        if full {
            self.seal(stream);
        }
        Some(self.layout.address(SegmentIndex(segment), offset))
    }

    /// Whether the next entry may join a chunk. While segments are scarce copies of one victim stay among themselves:
    /// after a restart they can be undone as long as their originals are there, and cost no segment.
    fn joins(&mut self, slot: usize) -> bool {
        let chunk = self.slots[slot].chunk.as_mut().expect("open");
        if chunk.origin == self.copying {
            return true;
        }
        if chunk.data_count + chunk.note_count == 0 {
            chunk.origin = self.copying;
            return true;
        }
        let are_scarce = self.free_segments <= FOUND_LEAVE;
        if !are_scarce {
            chunk.origin = None;
        }
        !are_scarce
    }

    /// Appends a note to the user stream; durable like a write. `None` as for [`Log::append`].
    pub fn note(&mut self, words: [u64; 3], space: &mut dyn EraseBlockSpace) -> Option<u64> {
        self.note_to(Stream::User, words, space)
    }

    pub(super) fn note_to(
        &mut self,
        stream: Stream,
        words: [u64; 3],
        space: &mut dyn EraseBlockSpace,
    ) -> Option<u64> {
        assert_ne!(words[0], head::SKIP, "that word is taken");
        let slot_index = self.open_chunk(stream, space)?;
        if stream.policy().names_origin && !self.joins(slot_index) {
            self.seal(stream);
            return self.note_to(stream, words, space);
        }
        let sequence = self.next_sequence;
        let slot = &mut self.slots[slot_index];
        let chunk = slot.chunk.as_mut().expect("open");
        if chunk.data_count == 0 && chunk.note_count == 0 {
            (chunk.sequence, chunk.expected) = (sequence, sequence);
            if let Some(header) = &mut slot.header {
                header[8..16].copy_from_slice(&sequence.to_le_bytes());
            }
        }
        if !head::fits(chunk.data_count as usize, chunk.note_count as usize + 1, 0) {
            self.seal(stream);
            return self.note_to(stream, words, space);
        }
        let notes = chunk.note_count;
        chunk.note_count += 1;
        chunk.last_sequence = sequence;
        let segment = chunk.segment;
        head::put_note(slot.open_bytes(), notes as usize, sequence, words);
        let segment = &mut self.segments[segment as usize];
        segment.last_note = sequence;
        segment.notes += 1;
        segment.last_sequence = sequence;
        self.next_sequence += 1;
        self.count_notes(sequence, 1);
        Some(sequence)
    }

    /// Makes what was appended to the user stream survive the death of the process, and a power cut where staging
    /// is protected.
    pub fn publish(&mut self) {
        if let Some(slot) = self.open[Stream::User]
            && !mutant!("log: staging not published")
        {
            self.slots[slot].publish();
        }
    }

    /// Ends the open chunk of a stream.
    pub(super) fn seal(&mut self, stream: Stream) {
        let Some(index) = self.open[stream].take() else { return };
        let unit_ius = self.layout.unit_ius;
        let slot = &mut self.slots[index];
        if stream == Stream::User {
            slot.publish();
        }
        let chunk = slot.chunk.as_mut().expect("open");
        chunk.units = (chunk.data_count + 1).div_ceil(unit_ius);
        if chunk.data_count + chunk.note_count == 0 {
            // Filler, which makes earlier units safe.
            let wanted = self.layout.shape.unsafe_units * self.layout.width;
            chunk.units = if chunk.fills_room { chunk.room_units } else { wanted.clamp(1, chunk.room_units) };
        }
        chunk.state = ChunkState::Sealed;
        let segment = chunk.segment;
        let units = chunk.units;
        self.segments[segment as usize].next_unit += units;
        if self.segments[segment as usize].next_unit == self.layout.segment_units {
            self.segments[segment as usize].state = SegmentState::Sealed;
            self.open_segment[stream] = None;
        }
        self.sealed.push_back(index);
    }
}
