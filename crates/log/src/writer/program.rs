//! Chunks go to flash, and filler where durability or staging waits for it.

use super::Writer;
use crate::StreamKind;
use crate::flushes::Entries;
use diecut_units::mutant;
use diecut_vssd::space::EraseBlockSpace;

impl Writer {
    /// Chunks that are programmed at once while the store quiesces: as many as keep all units at work.
    pub fn quiet_chunks(&self) -> u32 {
        self.segments.layout.width.div_ceil(self.segments.layout.chunk_units)
    }

    pub(super) fn program(&mut self, index: usize, space: &mut dyn EraseBlockSpace) {
        self.staging.program(index, &self.segments, &mut self.pool, space);
        let chunk = self.staging.slot(index).chunk();
        let room = chunk.units * self.segments.layout.unit_ius;
        let stream = chunk.stream;
        self.statistics.programmed(stream, chunk.data_count, room);
        self.count_media(stream, room, false);
    }

    /// Programs sealed chunks, and pads where durability is waited for.
    pub fn push(&mut self, space: &mut dyn EraseBlockSpace) {
        self.push_sealed(space);
        self.fill_when_starved(space);
        self.end_units(space);
        // Entries of the user stream that wait in protected memory can still move: an anchor begins before them.
        let settle = self.anchors.are_needed();
        let stale = self.stale_before();
        let is_stale = stale > 0 && self.staging.settled_before(self.next_sequence) < stale;
        if self.wanted <= self.durable_before() && !settle && !is_stale {
            return;
        }
        let wanted = if settle { self.next_sequence } else { self.wanted.max(stale) };
        for stream in self.segments.layout.streams.all() {
            let wanted = if self.staging.protects(stream) && !settle { stale } else { wanted };
            if wanted == 0 || !self.staging.waits_for_filler(stream, wanted) {
                continue;
            }
            if self.open_chunk(stream, space).is_some() {
                self.seal(stream);
                let index = self.staging.last_sealed().expect("just sealed");
                if self.staging.slot(index).chunk().data_count > 0 && self.is_gated(index) {
                    self.staging.wait(index);
                } else {
                    self.program(index, space);
                }
            }
        }
    }

    /// Programs what is sealed, as far as it may.
    fn push_sealed(&mut self, space: &mut dyn EraseBlockSpace) {
        let mut room = if self.is_quiescing {
            self.quiet_chunks().saturating_sub(self.staging.programming_count())
        } else {
            u32::MAX
        };
        for _ in 0..self.staging.sealed_count() {
            let index = self.staging.next_sealed().expect("counted");
            let is_gated = self.is_gated(index);
            if is_gated || self.staging.is_blocked(index) || room == 0 {
                if is_gated {
                    let last = self.staging.slot(index).chunk().last_sequence;
                    self.want_durable(last);
                }
                self.staging.wait(index);
                continue;
            }
            room -= 1;
            self.program(index, space);
        }
    }

    /// Whether a chunk waits for entries before it to be durable: a leaf never points to what a cut could take.
    fn is_gated(&self, index: usize) -> bool {
        let chunk = self.staging.slot(index).chunk();
        let waits = chunk.stream.policy().is_gated && self.durable(Entries::Ungated) <= chunk.last_sequence;
        waits && !mutant!("log: a leaf does not wait for what it names")
    }

    /// All slots of a stream may hold chunks that are programmed but not yet safe from a power cut, and nothing can come
    /// any more that would make them so: filler does, from the slot that is kept for it.
    fn fill_when_starved(&mut self, space: &mut dyn EraseBlockSpace) {
        if mutant!("log: starved staging waits") {
            return;
        }
        for kind in StreamKind::ALL {
            let Some(stream) = self.staging.starved(kind) else { continue };
            diecut_units::mark!("log: filler for starved staging");
            // What the stream has open will do as well.
            if self.staging.open_of(stream).is_some() || self.open_new_chunk(stream, true, space).is_some() {
                self.seal(stream);
                let index = self.staging.last_sealed().expect("just sealed");
                self.program(index, space);
            }
        }
    }
}
