//! Chunks go to flash, and filler where durability or staging waits for it.

use super::*;

impl Log {
    pub(super) fn program(&mut self, index: usize, space: &mut dyn EraseBlockSpace) {
        let layout = &self.layout;
        let slot = &mut self.slots[index];
        let chunk = slot.chunk.as_mut().expect("sealed");
        let stream = chunk.stream;
        let segment = &self.segments[chunk.segment as usize];
        let head = Head {
            stream: chunk.stream,
            segment: chunk.segment,
            generation: segment.generation,
            offset: chunk.first_unit * layout.unit_ius,
            data_count: chunk.data_count as u16,
            unit_count: chunk.units as u16,
            note_count: chunk.note_count,
            sequence: chunk.sequence,
            origin: chunk.origin,
        };
        chunk.state = ChunkState::Programming;
        chunk.pending = chunk.units;
        let (units, first_unit) = (chunk.units, chunk.first_unit);
        let data = chunk.data_count;
        self.statistics.stream_ius[stream] += u64::from(data);
        self.statistics.summary_ius += 1;
        self.statistics.padding_ius += u64::from(units * layout.unit_ius - 1 - data);
        let head_sum = if let Body::Open(body) = &mut slot.body {
            head.encode(&mut body[..IU_SIZE_BYTES]);
            checksum(&body[..IU_SIZE_BYTES])
        } else {
            panic!("a chunk is programmed once from its slot");
        };
        slot.share();
        let Body::Shared(_, shared) = &slot.body else { unreachable!() };
        let chunk = slot.chunk.as_ref().expect("sealed");
        let mode = if slot.iu_bytes == IU_SIZE_BYTES { ContentMode::Bytes } else { ContentMode::Tags };
        let class = stream.policy().class;
        let (pages, oob_size) = (layout.shape.program_unit_pages, layout.shape.oob_size_bytes as usize);
        let page_ius = layout.shape.ius_per_page();
        let mut sums: SmallVec<[u32; 32]> = SmallVec::new();
        for unit in 0..units {
            let (first, end) = (unit * layout.unit_ius, (unit + 1) * layout.unit_ius);
            let mut parts = PayloadParts::new();
            let at = |iu: u32| IU_SIZE_BYTES + (iu as usize - 1) * slot.iu_bytes;
            if mode == ContentMode::Bytes {
                let start = if first == 0 { 0 } else { at(first) };
                parts.push(Payload::new(mode, shared.slice(start..at(end))));
            } else {
                if first == 0 {
                    parts.push(Payload::new(ContentMode::Bytes, shared.slice(0..IU_SIZE_BYTES)));
                }
                if first.max(1) < end {
                    parts.push(Payload::new(mode, shared.slice(at(first.max(1))..at(end))));
                }
            }
            let place = first_unit + unit;
            let member = (place % layout.width) as usize;
            let first_page = place / layout.width * pages;
            let mark = Mark {
                segment: head.segment,
                generation: segment.generation,
                member: member as u16,
                stream: chunk.stream.number(),
                place: 0,
            };
            let mut oob = self.pool.take_zeroed(layout.shape.program_unit_oob_size_bytes() as usize);
            for page in 0..pages {
                sums.clear();
                for iu in first + page * page_ius..first + (page + 1) * page_ius {
                    sums.push(match iu {
                        0 => head_sum,
                        iu => chunk.checksums.get(iu as usize - 1).copied().unwrap_or(0),
                    });
                }
                let start = page as usize * oob_size + layout.shape.holder_oob_offset as usize;
                let end = (page as usize + 1) * oob_size;
                let mark = Mark { place: mark::place_of(first_page + page), ..mark };
                mark::encode(&mark, &sums, &mut oob[start..end]);
            }
            let token = SpaceToken(TOKEN_APPEND | (member as u64) << 32 | index as u64);
            space.append(token, segment.blocks[member], parts, oob, class);
        }
        if mutant!("log: slot released before programmed") {
            self.slots[index].clear();
        }
    }

    /// Programs sealed chunks, and pads where durability is waited for.
    pub(super) fn push(&mut self, space: &mut dyn EraseBlockSpace) {
        let floor = self.floor(true);
        let mut room = if self.is_quiescing {
            self.quiet_chunks().saturating_sub(self.programming_chunks())
        } else {
            u32::MAX
        };
        for _ in 0..self.sealed.len() {
            let index = self.sealed.pop_front().expect("counted");
            let chunk = self.slots[index].chunk.as_ref().expect("sealed");
            // A later chunk of the same segment waits behind a gated one: programs are in order.
            let gated = chunk.stream.policy().is_gated && floor <= chunk.last_sequence;
            let blocked = self.sealed.iter().any(|other| {
                let other = self.slots[*other].chunk.as_ref().expect("sealed");
                other.segment == chunk.segment && other.first_unit < chunk.first_unit
            });
            if gated || blocked || room == 0 {
                let last = self.slots[index].chunk.as_ref().expect("sealed").last_sequence;
                if gated {
                    self.wanted = self.wanted.max(last);
                }
                self.sealed.push_back(index);
                continue;
            }
            room -= 1;
            self.program(index, space);
        }
        self.fill_when_starved(space);
        // Entries of the user stream that wait in protected memory can still move: an anchor begins before them.
        let settle = self.needs_anchor();
        if self.wanted <= self.floor(false) && !settle {
            return;
        }
        let wanted = if settle { self.next_sequence } else { self.wanted };
        for stream in Stream::ALL {
            if stream == Stream::User && self.protected && !settle {
                continue;
            }
            // What waits in this stream: the open chunk, or programmed units that are not yet safe.
            let mut waits = false;
            let mut busy = false;
            for (_, chunk) in self.staged_chunks() {
                if chunk.stream == stream {
                    let old = chunk.sequence < wanted;
                    match chunk.state {
                        ChunkState::Open => waits |= old && chunk.data_count + chunk.note_count > 0,
                        ChunkState::Unsafe => waits |= old,
                        _ => busy = true,
                    }
                }
            }
            if waits && !busy && self.open_chunk(stream, space).is_some() {
                self.seal(stream);
                let index = self.sealed.pop_back().expect("just sealed");
                let chunk = self.slots[index].chunk.as_ref().expect("sealed");
                if stream.policy().is_gated && chunk.data_count > 0 && self.floor(true) <= chunk.last_sequence
                {
                    self.sealed.push_back(index);
                } else {
                    self.program(index, space);
                }
            }
        }
    }

    /// All slots of a stream may hold chunks that are programmed but not yet safe from a power cut, and nothing can come
    /// any more that would make them so: filler does, from the slot that is kept for it.
    pub(super) fn fill_when_starved(&mut self, space: &mut dyn EraseBlockSpace) {
        if mutant!("log: starved staging waits") {
            return;
        }
        for stream in Stream::ALL {
            if self.open[stream].is_some() || stream == Stream::User && !self.protected {
                continue;
            }
            let range = self.slots_of(stream);
            let first = self.occupied.partition_point(|slot| *slot < range.start);
            if self.occupied.get(first).is_none_or(|slot| *slot >= range.end) {
                continue;
            }
            let slots = &mut self.slots[range];
            let settled = |slot: &Slot| slot.chunk.as_ref().is_none_or(|c| c.state == ChunkState::Unsafe);
            let free = slots.iter_mut().filter_map(|slot| slot.is_free().then_some(())).count();
            if free != 1 || !slots.iter().all(settled) {
                continue;
            }
            diecut_units::mark!("log: filler for starved staging");
            self.filling = true;
            if self.open_chunk(stream, space).is_some() {
                self.seal(stream);
                let index = self.sealed.pop_back().expect("just sealed");
                self.program(index, space);
            }
            self.filling = false;
        }
    }

    pub(super) fn slots_of(&self, stream: Stream) -> std::ops::Range<usize> {
        match stream {
            Stream::User => 0..self.user_slots,
            Stream::Cleaner => self.user_slots..self.map_slots,
            Stream::Map => self.map_slots..self.slots.len(),
        }
    }
}
