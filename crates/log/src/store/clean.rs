//! The cleaner: victims, their heads, copies of what is live.

use super::*;

/// A leaf that is copied counts as much as so many IUs of data.
const LEAF_COST: u32 = 4;
/// With no more free segments than these, only what frees most counts.
const RESERVE_LEAST: u32 = 3;

/// Notes that cost as much as a copy when a victim is chosen. Beside data they go along for nothing, alone they take a
/// program unit, and a deallocation can come apart into many.
const NOTES_PER_IU: u32 = 8;

impl Log {
    /// Checks what was read for a copy, and keeps the checksums for the copies.
    fn check_copies(&self, read: &mut CopyRead, data: &[u8], oob: &[u8]) -> bool {
        let size = data.len() / read.count as usize;
        let mut pages = self.page_check(read.first, oob);
        for entry in &mut read.entries {
            let at = (entry.place.0 - read.first.0) as usize * size;
            entry.checksum = checksum(&data[at..at + size]);
            if !pages.is_as_written(self.layout.offset_of(entry.place), entry.checksum) {
                return false;
            }
        }
        true
    }

    pub(super) fn copy_arrived(&mut self, mut read: CopyRead, completion: SpaceCompletion) {
        let victim = self.victim.as_mut().expect("copies belong to a victim");
        victim.reads -= 1;
        if let (Ok(()), Some(buffer), Some(oob)) = (completion.result, completion.destination, completion.oob)
            && self.check_copies(&mut read, &buffer, &oob)
        {
            self.ready.push_back((read, buffer));
            return;
        }
        if self.gone {
            return;
        }
        if read.entries.len() == 1 && read.again {
            self.statistics.lost_ius += 1;
            self.segments[self.layout.segment_of(read.first).0 as usize].poisoned = true;
            return;
        }
        // One IU that cannot be read must not cost its neighbours, nor a read that fails once an IU.
        let again = read.entries.len() == 1;
        for entry in read.entries {
            let single = CopyRead { first: entry.place, count: 1, entries: vec![entry], again };
            self.want_copy(single);
        }
    }

    fn want_copy(&mut self, read: CopyRead) {
        self.victim.as_mut().expect("copies belong to a victim").reads += 1;
        let slot = self.free_copies.pop().unwrap_or_else(|| {
            self.copies.push(None);
            self.copies.len() - 1
        });
        self.copies[slot] = Some(read);
        self.unread.push_back(slot);
    }

    /// The segment with the least to copy. Leaves of the map die in the order in which they were written, and soon: what
    /// is copied of a segment of theirs is mostly wasted, unless there is little of it, or hardly any segment left.
    pub(super) fn pick_victim(&mut self) -> Option<u32> {
        let patient = self.free_segments > RESERVE_LEAST;
        let full = self.layout.segment_ius - self.layout.chunks_per_segment() * 2;
        let mut best: Option<(u32, u32)> = None;
        for (index, (segment, valid)) in self.segments.iter().zip(&self.valid).enumerate() {
            // Notes that no anchor covers are moved too: cleaning what only they fill would gain nothing, again and again.
            let notes = if segment.last_note >= self.anchored { segment.notes } else { 0 };
            let moved = *valid + notes.div_ceil(NOTES_PER_IU);
            let cost = if patient && segment.stream == STREAM_MAP { moved * LEAF_COST } else { moved };
            if moved >= full
                || best.is_some_and(|(least, _)| cost >= least)
                || segment.state != SegmentState::Sealed
                || segment.chunks > 0
                || segment.poisoned
            {
                continue;
            }
            best = Some((cost, index as u32));
        }
        best.map(|(_, index)| index)
    }

    /// Segments in which nothing is left need no cleaning.
    pub(super) fn free_dead_segments(&mut self) {
        if !std::mem::take(&mut self.some_died) {
            return;
        }
        for index in 0..self.segments.len() {
            if self.valid[index] > 0 {
                continue;
            }
            let segment = &mut self.segments[index];
            if segment.state != SegmentState::Sealed || segment.last_note >= self.anchored {
                continue;
            }
            if segment.chunks > 0 {
                self.some_died = true;
                continue;
            }
            segment.state = SegmentState::Freeing;
            segment.free_after = self.next_sequence;
            self.freeing.push(index as u32);
        }
    }

    pub(super) fn clean(&mut self, space: &mut dyn EraseBlockSpace, owner: &mut impl Owner) {
        self.unfinished = false;
        self.free_dead_segments();
        self.count_free(space);
        if self.free_segments < 2 {
            // Copies, moves and leaves may all wait for a segment, and those being freed for what was copied.
            self.urge();
        }
        for _ in 0..4 {
            self.flush_copy_reads(space);
            self.copying = self.victim.as_ref().map(|victim| {
                let segment = &self.segments[victim.segment as usize];
                Origin { segment: victim.segment, generation: segment.generation, units: segment.next_unit }
            });
            self.place_copies(space, owner);
            self.copying = None;
            if self.victim.is_none() {
                let freeing = self.freeing.len() as u32;
                if self.free_segments + freeing >= clean_below_segments(self.real_segments) {
                    if freeing > 0 && self.free_segments < clean_below_segments(self.real_segments) {
                        self.urge();
                    }
                    return;
                }
                if self.free_segments <= 1 + HOMELESS_LEAVE && freeing > 0 {
                    // They become free before the last segments are used.
                    self.urge();
                    return;
                }
                let Some(segment) = self.pick_victim() else {
                    self.urge();
                    return;
                };
                self.segments[segment as usize].state = SegmentState::Cleaning;
                let walked = self.valid[segment as usize] == 0
                    && self.segments[segment as usize].last_note < self.anchored;
                self.victim = Some(Victim {
                    segment,
                    offset: 0,
                    walked,
                    head_reading: false,
                    head_again: false,
                    reads: 0,
                });
            }
            let limit = if self.free_segments <= reserve_segments(self.real_segments) + 1 { 64 } else { 16 };
            let victim = self.victim.as_mut().expect("chosen");
            if victim.walked {
                if victim.reads == 0 && self.ready.is_empty() && self.renewed.is_empty() {
                    let segment = &mut self.segments[victim.segment as usize];
                    segment.free_after = self.next_sequence;
                    if self.valid[victim.segment as usize] > 0 || segment.poisoned {
                        // Something in it cannot be read: it stays, so that reads of it say so.
                        segment.poisoned = true;
                        segment.state = SegmentState::Sealed;
                    } else {
                        segment.state = SegmentState::Freeing;
                        self.freeing.push(victim.segment);
                    }
                    self.unfinished = true;
                    self.victim = None;
                    continue;
                }
                return;
            }
            if !victim.head_reading && victim.reads < limit && self.ready.len() < 64 {
                let (member, iu) = self.layout.place(victim.offset);
                let block = self.segments[victim.segment as usize].blocks[member];
                if block == NO_BLOCK {
                    // Nothing was programmed on this member before a cut: no chunk reaches here.
                    victim.walked = true;
                    continue;
                }
                victim.head_reading = true;
                let buffer = self.pool.take(IU_SIZE_BYTES);
                space.read(SpaceToken(TOKEN_HEAD), block, iu, 1, buffer, None, IoClass::Cleaner);
            }
            self.flush_copy_reads(space);
            return;
        }
        // The next step needs no event: whoever drives the log must come again.
        self.unfinished = true;
    }

    /// Frees wait for durability of what was copied.
    pub(super) fn urge(&mut self) {
        let after = self.freeing.iter().map(|index| self.segments[*index as usize].free_after).max();
        if let Some(after) = after {
            self.wanted = self.wanted.max(after);
        }
    }

    pub(super) fn head_arrived(&mut self, completion: SpaceCompletion, owner: &mut impl Owner) {
        let Some(victim) = self.victim.as_mut() else { return };
        victim.head_reading = false;
        let index = victim.segment;
        let head = completion
            .destination
            .as_ref()
            .filter(|_| completion.result.is_ok())
            .and_then(|b| Head::decode(b));
        let segment = &mut self.segments[index as usize];
        let Some(head) = head.filter(|h| {
            let end = u64::from(h.offset) + u64::from(h.unit_count) * u64::from(self.layout.unit_ius);
            h.segment == index
                && h.generation == segment.generation
                && h.offset == victim.offset
                && end <= u64::from(self.layout.segment_ius)
                && u32::from(h.data_count) < u32::from(h.unit_count) * self.layout.unit_ius
        }) else {
            if !victim.head_again {
                // A read that fails once must not cost what the rest of the segment records.
                victim.head_again = true;
                return;
            }
            victim.walked = true;
            // Notes behind a head that is lost cannot be renewed: their segment stays.
            segment.poisoned |= segment.last_note >= self.anchored;
            return;
        };
        victim.head_again = false;
        let bytes = completion.destination.expect("read");
        self.entries.clear();
        for record in 0..u32::from(head.data_count) {
            let place = self.layout.address(SegmentIndex(index), head.offset + 1 + record);
            self.entries.push((head::record(&bytes, record as usize), place));
        }
        owner.live(&self.entries, &mut self.live);
        let entries = std::mem::take(&mut self.entries);
        let mut run: Option<CopyRead> = None;
        // Program unit and page of the run's last IU.
        let mut last = (0, 0);
        let lives = std::mem::take(&mut self.live);
        for ((tag, place), live) in entries.iter().zip(&lives) {
            if !*live {
                continue;
            }
            let entry = CopyEntry { tag: *tag, place: *place, checksum: 0 };
            let offset = self.layout.offset_of(*place);
            let here = (self.layout.program_unit(offset), self.layout.page(offset).0);
            // In one program unit, without a page of only dead IUs between them.
            let joins = here.0 == last.0 && here.1 - last.1 <= 1;
            last = here;
            match &mut run {
                Some(run) if joins => {
                    run.count = place.0 - run.first.0 + 1;
                    run.entries.push(entry);
                }
                _ => {
                    let mut fresh = self.spare_entries.pop().unwrap_or_default();
                    fresh.push(entry);
                    let fresh = CopyRead { first: *place, count: 1, entries: fresh, again: false };
                    if let Some(done) = run.replace(fresh) {
                        self.want_copy(done);
                    }
                }
            }
        }
        if let Some(done) = run {
            self.want_copy(done);
        }
        (self.entries, self.live) = (entries, lives);
        let victim = self.victim.as_mut().expect("cleaning");
        for note in 0..head.note_count as usize {
            let (sequence, words) = head::note(&bytes, note);
            // What an anchor covers is in the owner's leaves.
            if words[0] != head::SKIP && sequence >= self.anchored {
                self.renewed.push(words);
            }
        }
        victim.offset += u32::from(head.unit_count) * self.layout.unit_ius;
        let end = self.segments[index as usize].next_unit * self.layout.unit_ius;
        victim.walked |= victim.offset >= end;
    }

    pub(super) fn flush_copy_reads(&mut self, space: &mut dyn EraseBlockSpace) {
        while let Some(slot) = self.unread.pop_front() {
            let read = self.copies[slot].as_ref().expect("wanted");
            let segment = &self.segments[self.layout.segment_of(read.first).0 as usize];
            let (first, count) = (read.first, read.count);
            let bytes = if segment.stream == STREAM_MAP {
                IU_SIZE_BYTES
            } else {
                self.layout.content_mode().bytes_per_iu()
            };
            self.read_run(
                SpaceToken(TOKEN_COPY | slot as u64),
                first,
                count,
                bytes,
                None,
                IoClass::Cleaner,
                space,
            );
        }
    }

    pub(super) fn place_copies(&mut self, space: &mut dyn EraseBlockSpace, owner: &mut impl Owner) {
        while let Some(words) = self.renewed.pop() {
            // What of it still holds is asked at the moment it gets its new sequence, as with copies.
            let mut still = std::mem::take(&mut self.still);
            still.clear();
            owner.renew(words, &mut still);
            let placed = still.iter().all(|words| self.note_to(STREAM_CLEANER, *words, space).is_some());
            self.cleaned_entries += still.len() as u64;
            self.still = still;
            if !placed {
                self.renewed.push(words);
                break;
            }
        }
        while let Some((mut read, buffer)) = self.ready.pop_front() {
            let stream = if self.segments[self.layout.segment_of(read.first).0 as usize].stream == STREAM_MAP
            {
                STREAM_MAP
            } else {
                STREAM_CLEANER
            };
            let size = buffer.len() / read.count as usize;
            let mut stuck = false;
            for entry in &read.entries {
                // Asked at the moment the copy gets its sequence: what was written since is newer.
                if !owner.is_live(entry.tag, entry.place)
                    && !mutant!("log: cleaner copy with a fresh sequence")
                {
                    continue;
                }
                let at = (entry.place.0 - read.first.0) as usize * size;
                let content = &buffer[at..at + size];
                let Some(new) = self.append_checked(stream, entry.tag, content, entry.checksum, space) else {
                    stuck = true;
                    break;
                };
                if owner.moved(entry.tag, entry.place, new, self.next_sequence - 1) {
                    diecut_units::mark!("log: cleaner moved live data");
                    self.invalidate(entry.place);
                } else {
                    // Only a planted bug gets here.
                    self.invalidate(new);
                }
            }
            if stuck {
                diecut_units::mark!("log: cleaner waited for room");
                // What was moved is no longer live at its old place, so starting over skips it.
                self.ready.push_front((read, buffer));
                return;
            }
            read.entries.clear();
            self.spare_entries.push(read.entries);
        }
    }
}
