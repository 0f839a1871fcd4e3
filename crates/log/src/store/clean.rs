//! The cleaner: victims, their heads, copies of what is live.

use super::*;

impl Log {
    pub(super) fn checked(&self, read: &CopyRead, data: &[u8], oob: &Option<BufferMut>) -> bool {
        let Some(oob) = oob else { return false };
        let size = data.len() / read.tags.len();
        let (_, first) = self.layout.place(self.layout.offset_of(read.first));
        self.verify(first, size, data, oob).is_ok()
    }

    pub(super) fn pick_victim(&mut self) -> Option<u32> {
        let mut best: Option<(u32, u32)> = None;
        for (index, segment) in self.segments.iter().enumerate() {
            if segment.state != SegmentState::Sealed || segment.chunks > 0 || segment.poisoned {
                continue;
            }
            if best.is_none_or(|(valid, _)| segment.valid < valid) {
                best = Some((segment.valid, index as u32));
            }
        }
        let full = self.layout.segment_ius - self.layout.chunks_per_segment() * 2;
        let best = best.filter(|(valid, _)| *valid < full);
        best.map(|(_, index)| index)
    }

    /// Segments in which nothing is left need no cleaning.
    pub(super) fn free_dead_segments(&mut self) {
        for segment in &mut self.segments {
            if segment.state == SegmentState::Sealed
                && segment.valid == 0
                && segment.last_note == 0
                && segment.chunks == 0
                && !segment.poisoned
            {
                segment.state = SegmentState::Freeing;
                segment.free_after = self.next_sequence;
            }
        }
    }

    pub(super) fn clean(&mut self, space: &mut dyn EraseBlockSpace, owner: &mut impl Owner) {
        self.unfinished = false;
        self.free_dead_segments();
        self.count_free(space);
        for _ in 0..4 {
            self.flush_copy_reads(space);
            self.place_copies(space, owner);
            if self.victim.is_none() {
                let freeing =
                    self.segments.iter().filter(|s| s.state == SegmentState::Freeing).count() as u32;
                if self.free_segments + freeing >= CLEAN_BELOW_SEGMENTS {
                    if freeing > 0 && self.free_segments < CLEAN_BELOW_SEGMENTS {
                        self.urge();
                    }
                    return;
                }
                let Some(segment) = self.pick_victim() else {
                    self.urge();
                    return;
                };
                self.segments[segment as usize].state = SegmentState::Cleaning;
                let walked = self.segments[segment as usize].valid == 0
                    && self.segments[segment as usize].last_note == 0;
                self.victim = Some(Victim {
                    segment,
                    offset: 0,
                    walked,
                    head_reading: false,
                    head_again: false,
                    reads: 0,
                });
            }
            let limit = if self.free_segments <= RESERVE_SEGMENTS + 1 { 64 } else { 16 };
            let victim = self.victim.as_mut().expect("chosen");
            if victim.walked {
                if victim.reads == 0 && self.ready.is_empty() && self.renewed.is_empty() {
                    let segment = &mut self.segments[victim.segment as usize];
                    segment.free_after = self.next_sequence;
                    if segment.valid > 0 || segment.poisoned {
                        // Something in it cannot be read: it stays, so that reads of it say so.
                        segment.poisoned = true;
                        segment.state = SegmentState::Sealed;
                    } else {
                        segment.state = SegmentState::Freeing;
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
        let after =
            self.segments.iter().filter(|s| s.state == SegmentState::Freeing).map(|s| s.free_after).max();
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
            h.segment == index && h.generation == segment.generation && h.offset == victim.offset
        }) else {
            if !victim.head_again {
                // A read that fails once must not cost what the rest of the segment records.
                victim.head_again = true;
                return;
            }
            victim.walked = true;
            // Notes behind a head that is lost cannot be renewed: their segment stays.
            segment.poisoned |= segment.last_note > 0;
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
        let mut runs: SmallVec<[CopyRead; 16]> = SmallVec::new();
        for ((tag, place), live) in entries.iter().zip(&self.live) {
            let live = *live || mutant!("log: cleaner copy without liveness check");
            let joins = run.as_ref().is_some_and(|r| {
                r.first.0 + r.tags.len() as u32 == place.0
                    && self.layout.offset_of(r.first) / self.layout.unit_ius
                        == self.layout.offset_of(*place) / self.layout.unit_ius
            });
            if !live || !joins {
                runs.extend(run.take());
            }
            if live {
                run.get_or_insert_with(|| CopyRead { first: *place, tags: SmallVec::new() }).tags.push(*tag);
            }
        }
        runs.extend(run);
        self.entries = entries;
        let victim = self.victim.as_mut().expect("cleaning");
        for run in runs {
            victim.reads += 1;
            let slot = self.free_copies.pop().unwrap_or_else(|| {
                self.copies.push(None);
                self.copies.len() - 1
            });
            self.copies[slot] = Some(run);
            self.unread.push_back(slot);
        }
        for note in 0..head.note_count as usize {
            let (_, words) = head::note(&bytes, note);
            if words[0] != head::SKIP {
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
            let (first, count) = (read.first, read.tags.len() as u32);
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
            self.still = still;
            if !placed {
                self.renewed.push(words);
                break;
            }
        }
        while let Some((read, buffer)) = self.ready.pop_front() {
            let stream = if self.segments[self.layout.segment_of(read.first).0 as usize].stream == STREAM_MAP
            {
                STREAM_MAP
            } else {
                STREAM_CLEANER
            };
            let size = buffer.len() / read.tags.len();
            self.entries.clear();
            self.entries.extend(
                read.tags.iter().enumerate().map(|(i, tag)| (*tag, LogAddress(read.first.0 + i as u32))),
            );
            let entries = std::mem::take(&mut self.entries);
            owner.live(&entries, &mut self.live);
            let mut stuck = false;
            for (index, (tag, old)) in entries.iter().enumerate() {
                let forced = mutant!("log: cleaner copy without liveness check");
                if !self.live[index] && !forced {
                    continue;
                }
                let content = &buffer[index * size..(index + 1) * size];
                let Some(new) = self.append(stream, *tag, content, space) else {
                    stuck = true;
                    break;
                };
                if owner.moved(*tag, *old, new) {
                    diecut_units::mark!("log: cleaner moved live data");
                    self.invalidate(*old);
                } else {
                    // Only a planted bug gets here.
                    self.invalidate(new);
                }
            }
            self.entries = entries;
            if stuck {
                diecut_units::mark!("log: cleaner waited for room");
                // What was moved is no longer live at its old place, so starting over skips it.
                self.ready.push_front((read, buffer));
                return;
            }
        }
    }
}
