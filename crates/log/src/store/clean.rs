//! The cleaner: victims, their heads, copies of what is live.

use super::*;

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
        self.victim_of(read.first).reads -= 1;
        if let (Ok(()), Some(buffer), Some(oob)) = (completion.result, completion.destination, completion.oob)
            && self.check_copies(&mut read, &buffer, &oob)
        {
            self.victim_of(read.first).waiting += 1;
            self.ready.push_back((read, buffer));
            return;
        }
        if self.gone {
            return;
        }
        if read.entries.len() == 1 && read.again {
            self.statistics.lost_ius += 1;
            self.segments[self.layout.segment_of(read.first).0 as usize].is_unreclaimable = true;
            return;
        }
        // One IU that cannot be read must not cost its neighbours, nor a read that fails once an IU.
        let again = read.entries.len() == 1;
        for entry in read.entries {
            let single = CopyRead { first: entry.place, count: 1, entries: vec![entry], placed: 0, again };
            self.want_copy(single);
        }
    }

    fn victim_of(&mut self, place: LogAddress) -> &mut Victim {
        self.victim_in(self.layout.segment_of(place).0)
    }

    fn victim_in(&mut self, segment: u32) -> &mut Victim {
        self.victims.iter_mut().find(|victim| victim.segment == segment).expect("copies belong to a victim")
    }

    fn want_copy(&mut self, read: CopyRead) {
        self.victim_of(read.first).reads += 1;
        let slot = self.free_copies.pop().unwrap_or_else(|| {
            self.copies.push(None);
            self.copies.len() - 1
        });
        self.copies[slot] = Some(read);
        self.unread.push_back(slot);
    }

    /// The segment with the least to copy, outside of some groups. Leaves of the map die in the order in which they were written, and soon: what
    /// is copied of a segment of theirs is mostly wasted, unless there is little of it, or hardly any segment left.
    pub(super) fn pick_victim(&mut self, walked: &[u32]) -> Option<u32> {
        let patient = self.free_segments > RESERVE_LEAST;
        let full = self.layout.segment_ius - self.layout.chunks_per_segment() * 2;
        let mut best: Option<(u32, u32)> = None;
        for (index, (segment, valid)) in self.segments.iter().zip(&self.valid).enumerate() {
            // Notes that no anchor covers are moved too: cleaning what only they fill would gain nothing, again and again.
            let notes = if segment.last_note >= self.anchored { segment.notes } else { 0 };
            let moved = *valid + notes.div_ceil(NOTES_PER_IU);
            let cost = if patient { moved * segment.stream.policy().copy_cost } else { moved };
            if moved >= full
                || best.is_some_and(|(least, _)| cost >= least)
                || segment.state != SegmentState::Sealed
                || segment.chunks > 0
                || segment.is_unreclaimable
                || !walked.is_empty() && walked.contains(&self.group_of(index as u32))
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

    pub(super) fn clean(&mut self, now: Time, space: &mut dyn EraseBlockSpace, owner: &mut impl Owner) {
        self.unfinished = false;
        self.free_dead_segments();
        self.recount_free(space);
        if self.free_segments < 2 {
            // Copies, moves and leaves may all wait for a segment, and those being freed for what was copied.
            self.urge();
        }
        let mut goes_on = true;
        for _ in 0..4 {
            self.flush_copy_reads(space);
            self.place_copies(space, owner);
            goes_on = self.finish_victims();
            self.begin_victim();
            let renewed = self.renewed.len();
            self.walk(space, owner);
            self.flush_copy_reads(space);
            // Notes that were found now are written at once: of a victim with nothing else no event comes.
            goes_on |= self.renewed.len() > renewed;
            goes_on |= self.victims.iter().any(Self::is_copied);
            if !goes_on {
                break;
            }
        }
        // The next step needs no event: whoever drives the log must come again.
        self.unfinished |= goes_on;
        self.pace(now);
    }

    /// Room in IUs: in free segments and those being freed, in what writers, cleaner and map have open, and, as far as they are
    /// copied, in victims. Copies take as much as they give until the victim is done, so it rises evenly with each. Anchors count as
    /// one segment, whether one is written or none.
    fn room_ius(&self) -> u64 {
        let segment_ius = u64::from(self.layout.segment_ius);
        let free_segments = if mutant!("log: room comes and goes with anchors") {
            self.free_segments
        } else {
            self.free_segments_without_anchors.saturating_sub(1)
        };
        let mut room = (u64::from(free_segments) + self.freeing.len() as u64) * segment_ius;
        for stream in Stream::ALL {
            if stream == Stream::Map && self.real_segments < SMALL_SEGMENTS {
                continue;
            }
            let Some(segment) = self.open_segment[stream] else { continue };
            let left = self.layout.segment_units - self.segments[segment as usize].next_unit;
            let chunk = self.open[stream].and_then(|slot| self.slots[slot].chunk.as_ref());
            let begun = chunk.map_or(0, |chunk| chunk.data_count + 1);
            room += u64::from((left * self.layout.unit_ius).saturating_sub(begun));
        }
        let copied = |victim: &Victim| self.copied_share(victim, self.layout.segment_ius);
        room + self.victims.iter().map(|victim| u64::from(copied(victim))).sum::<u64>()
    }

    /// As much of `whole` as was copied of a victim, or died since it was chosen.
    fn copied_share(&self, victim: &Victim, whole: u32) -> u32 {
        let left = self.valid[victim.segment as usize].min(victim.live_at_start);
        let done = u64::from(victim.live_at_start - left) * u64::from(whole);
        // One in which nothing lived holds notes at most.
        done.checked_div(u64::from(victim.live_at_start)).map_or(whole, |done| done as u32)
    }

    fn segments_ius(&self, segments: u32) -> u64 {
        u64::from(segments) * u64::from(self.layout.segment_ius)
    }

    /// Sets the pace of writers while the cleaner works.
    fn pace(&mut self, now: Time) {
        let room = self.room_ius();
        let least = self.segments_ius(paced_segments(&self.layout, self.real_segments));
        let burst = self.segments_ius(BURST_SEGMENTS);
        if self.victims.is_empty() && (self.freeing.is_empty() || room >= least + burst) {
            // Nothing gives room, or nothing needs to.
            self.pace.lift();
        } else {
            self.pace.keep(now, room, least);
        }
    }

    /// Whether all copies of a victim are in chunks of the cleaner.
    fn is_copied(victim: &Victim) -> bool {
        victim.walked
            && victim.reads == 0
            && victim.waiting == 0
            && !victim.heads.iter().any(|head| head.is_under_way)
    }

    /// Victims that are copied are to be freed. `true` if there was one.
    fn finish_victims(&mut self) -> bool {
        let mut finished = false;
        for at in (0..self.victims.len()).rev() {
            if !Self::is_copied(&self.victims[at]) {
                continue;
            }
            let number = self.victims[at].segment as usize;
            let segment = &mut self.segments[number];
            segment.free_after = self.next_sequence;
            if self.valid[number] > 0 || segment.is_unreclaimable {
                // Something in it cannot be read: it stays, so that reads of it say so.
                segment.is_unreclaimable = true;
                segment.state = SegmentState::Sealed;
            } else {
                segment.state = SegmentState::Freeing;
                self.freeing.push(number as u32);
            }
            self.victims.remove(at);
            finished = true;
        }
        finished
    }

    /// Chooses a victim if room is short, in a group in which nothing is left to walk through: dies of all groups have
    /// something to read.
    fn begin_victim(&mut self) {
        let are_scarce = self.free_segments <= RESERVE_SEGMENTS;
        let count = self.victims.len();
        let walks = walks(&self.layout, self.real_segments);
        // While the last copies of one are read the next one in its group is walked through. Each may need a segment for what
        // is left of it before it gives one.
        if count as u32 >= 2 * walks || count > 0 && self.free_segments < RESERVE_SEGMENTS + count as u32 {
            return;
        }
        let unwalked = self.victims.iter().filter(|victim| !victim.walked);
        let walked: SmallVec<[u32; 4]> = unwalked.map(|victim| self.group_of(victim.segment)).collect();
        if walked.len() as u32 >= walks {
            return;
        }
        let is_idle = self.victims.is_empty();
        if self.room_ius()
            >= self.segments_ius(paced_segments(&self.layout, self.real_segments) + BURST_SEGMENTS)
        {
            if is_idle && are_scarce {
                self.urge();
            }
            return;
        }
        if self.free_segments <= 1 + DISPLACED_LEAVE && !self.freeing.is_empty() {
            // They become free before the last segments are used.
            self.urge();
            return;
        }
        let Some(segment) = self.pick_victim(&walked) else {
            if is_idle {
                self.urge();
            }
            return;
        };
        self.segments[segment as usize].state = SegmentState::Cleaning;
        let live_at_start = self.valid[segment as usize];
        self.victims.push_back(Victim {
            segment,
            offset: 0,
            walked: live_at_start == 0 && self.segments[segment as usize].last_note < self.anchored,
            heads: Vec::new(),
            head_again: false,
            is_regular: true,
            reads: 0,
            waiting: 0,
            live_at_start,
            number: (0..).find(|n| self.victims.iter().all(|other| other.number != *n)).expect("few"),
        });
    }

    /// Looks at the heads of victims that were not walked through, and reads more of them.
    fn walk(&mut self, space: &mut dyn EraseBlockSpace, owner: &mut impl Owner) {
        for at in 0..self.victims.len() {
            if !self.victims[at].walked {
                self.walk_through(at, space, owner);
            }
        }
    }

    fn walk_through(&mut self, at: usize, space: &mut dyn EraseBlockSpace, owner: &mut impl Owner) {
        let limit = (COPY_READS_PER_MEMBER * self.layout.width).min(COPY_READS_MAX);
        loop {
            let victim = &mut self.victims[at];
            let offset = victim.offset;
            // What was asked for in vain, or already looked at.
            victim.heads.retain(|head| head.is_under_way || head.offset >= offset);
            if victim.walked || victim.reads >= limit || self.ready.len() >= limit as usize {
                return;
            }
            let Some(arrived) = victim.heads.iter().position(|head| head.offset == offset) else {
                break;
            };
            if victim.heads[arrived].is_under_way {
                break;
            }
            let head = victim.heads.remove(arrived);
            self.look_at(at, head.bytes, owner);
        }
        let victim = &mut self.victims[at];
        let end = self.segments[victim.segment as usize].next_unit * self.layout.unit_ius;
        let chunk_ius = self.layout.chunk_ius();
        let ahead = if victim.is_regular { HEADS_AHEAD } else { 1 };
        for offset in (0..ahead).map(|step| victim.offset + step * chunk_ius) {
            let is_next = offset == victim.offset;
            if (offset >= end && !is_next) || victim.heads.iter().any(|head| head.offset == offset) {
                continue;
            }
            let (member, iu) = self.layout.place(offset);
            let block = self.segments[victim.segment as usize].blocks[member];
            if block == NO_BLOCK {
                // Nothing was programmed on this member before a cut: no chunk reaches here.
                victim.walked |= is_next;
                break;
            }
            if victim.heads.len() >= HEADS_AHEAD as usize && !is_next {
                break;
            }
            victim.heads.push(HeadRead { offset, is_under_way: true, bytes: None });
            let token = SpaceToken(TOKEN_HEAD | u64::from(victim.number) << 32 | u64::from(offset));
            let buffer = self.pool.take(IU_SIZE_BYTES);
            space.read(token, block, iu, 1, buffer, None, IoClass::Cleaner);
        }
    }

    /// Frees wait for durability of what was copied.
    pub(super) fn urge(&mut self) {
        let after = self.freeing.iter().map(|index| self.segments[*index as usize].free_after).max();
        if let Some(after) = after {
            self.wanted = self.wanted.max(after);
        }
    }

    pub(super) fn head_arrived(&mut self, completion: SpaceCompletion) {
        let (number, offset) = ((completion.token.0 >> 32) as u8, completion.token.0 as u32);
        let victim = self.victims.iter_mut().find(|victim| victim.number == number);
        let victim = victim.expect("a victim waits for its heads");
        let mut heads = victim.heads.iter_mut();
        let head = heads.find(|head| head.offset == offset && head.is_under_way).expect("it was asked for");
        head.is_under_way = false;
        head.bytes = completion.destination.filter(|_| completion.result.is_ok());
    }

    /// Wants copies of what lives in the chunk whose head was read.
    fn look_at(&mut self, at: usize, bytes: Option<BufferMut>, owner: &mut impl Owner) {
        let victim = &mut self.victims[at];
        let index = victim.segment;
        let head = bytes.as_ref().and_then(|bytes| Head::decode(bytes));
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
            segment.is_unreclaimable |= segment.last_note >= self.anchored;
            return;
        };
        victim.head_again = false;
        let bytes = bytes.expect("read");
        self.entries.clear();
        let first = self.layout.address(SegmentIndex(index), head.offset + 1).0;
        let records = head::records(&bytes, head.data_count.into()).enumerate();
        self.entries.extend(records.map(|(record, tag)| (tag, LogAddress(first + record as u32))));
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
            // In one program unit, without a page of only dead IUs between them: each read costs work of the processor.
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
                    let fresh = CopyRead { first: *place, count: 1, entries: fresh, placed: 0, again: false };
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
        let victim = &mut self.victims[at];
        for note in 0..head.note_count as usize {
            let (sequence, words) = head::note(&bytes, note);
            // What an anchor covers is in the owner's leaves.
            let is_covered = sequence < self.anchored
                || sequence == self.anchored && mutant!("log: note at the anchor's sequence not renewed");
            if words[0] != head::SKIP && !is_covered {
                victim.waiting += 1;
                self.renewed.push((index, words));
            }
        }
        victim.is_regular = u32::from(head.unit_count) == self.layout.chunk_units;
        victim.offset += u32::from(head.unit_count) * self.layout.unit_ius;
        let end = self.segments[index as usize].next_unit * self.layout.unit_ius;
        victim.walked |= victim.offset >= end;
    }

    pub(super) fn flush_copy_reads(&mut self, space: &mut dyn EraseBlockSpace) {
        while let Some(slot) = self.unread.pop_front() {
            let read = self.copies[slot].as_ref().expect("wanted");
            let segment = &self.segments[self.layout.segment_of(read.first).0 as usize];
            let (first, count) = (read.first, read.count);
            let bytes = if segment.stream.policy().is_always_bytes {
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

    /// What stands in chunks whose entries were all copied from a segment.
    fn origin_of(&self, index: u32) -> Origin {
        let segment = &self.segments[index as usize];
        Origin { segment: index, generation: segment.generation, units: segment.next_unit }
    }

    pub(super) fn place_copies(&mut self, space: &mut dyn EraseBlockSpace, owner: &mut impl Owner) {
        while let Some((of, words)) = self.renewed.pop() {
            self.copying = Some(self.origin_of(of));
            // What of it still holds is asked at the moment it gets its new sequence, as with copies.
            let mut still = std::mem::take(&mut self.still);
            still.clear();
            owner.renew(words, &mut still);
            let placed = still.iter().all(|words| self.note_to(Stream::Cleaner, *words, space).is_some());
            self.cleaned_entries += still.len() as u64;
            self.still = still;
            if !placed {
                self.renewed.push((of, words));
                break;
            }
            self.victim_in(of).waiting -= 1;
        }
        while let Some((mut read, buffer)) = self.ready.pop_front() {
            let of = self.layout.segment_of(read.first).0;
            self.copying = Some(self.origin_of(of));
            let stream = self.segments[of as usize].stream.policy().copies_go_to;
            let size = buffer.len() / read.count as usize;
            let mut stuck = false;
            for entry in &read.entries[read.placed as usize..] {
                // Asked at the moment the copy gets its sequence: what was written since is newer.
                if !owner.is_live(entry.tag, entry.place)
                    && !mutant!("log: cleaner copy with a fresh sequence")
                {
                    read.placed += 1;
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
                read.placed += 1;
            }
            if stuck {
                diecut_units::mark!("log: cleaner waited for room");
                self.ready.push_front((read, buffer));
                break;
            }
            self.victim_in(of).waiting -= 1;
            read.entries.clear();
            self.spare_entries.push(read.entries);
        }
        self.copying = None;
    }
}
