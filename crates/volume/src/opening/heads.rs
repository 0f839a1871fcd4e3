//! Segments that the anchor does not cover are walked from head to head.
//!
//! With OOB areas the data of a chunk is looked at, where a cut may have torn it, before the next head is read. Without them nothing but a flush
//! note tells what must be there, and it stands in a later head: all heads come first, and then the data that no flush covered, as notes say.

use super::leaves::LeafReads;
use super::undo::undo_copies;
use super::written::Written;
use super::{AGAIN, DATA, Found, is_again, numbers, token};
use crate::lent::Lent;
use crate::loss::Missing;
use diecut_log::chunk::nonce_of;
use diecut_log::head::Head;
use diecut_log::{Check, FlushNote, NO_BLOCK, RecoveredChunk, SegmentIndex, Stream};
use diecut_units::{IU_SIZE_BYTES, mutant};
use diecut_vssd::space::{BlockRun, IoClass, SpaceCompletion, SpaceError};
use std::collections::{BTreeMap, VecDeque};

/// A chunk whose data is being checked.
struct Checking {
    chunk: RecoveredChunk,
    /// Reads under way.
    pending: u32,
    /// All so far was right.
    is_right: bool,
}

pub(super) struct HeadWalk {
    written: Written,
    /// By segment.
    checking: BTreeMap<u32, Checking>,
    chunks: Vec<RecoveredChunk>,
    /// Segments in which a head was lost: the next one is looked for.
    searching: Vec<u32>,
    unflushed: Unflushed,
}

/// What is known of segments on media without OOB areas, by segment.
#[derive(Default)]
struct Unflushed {
    /// Chunks whose heads are right, in their order.
    heads: BTreeMap<u32, VecDeque<RecoveredChunk>>,
    /// Units where no head was found.
    ends: BTreeMap<u32, u32>,
    /// Units from the start that a flush covered.
    durable_units: BTreeMap<u32, u32>,
    /// Data is looked at.
    are_heads_known: bool,
}

impl Unflushed {
    fn durable_units(&self, segment: u32) -> u32 {
        self.durable_units.get(&segment).copied().unwrap_or(0)
    }
}

impl HeadWalk {
    /// Reads the first heads of segments of these generations, but for those that the anchor covers.
    pub fn start(
        segments: Vec<(u32, u32)>,
        written: Written,
        found: &mut Found,
        lent: &mut Lent,
    ) -> HeadWalk {
        let mut walk = HeadWalk {
            written,
            checking: BTreeMap::new(),
            chunks: Vec::new(),
            searching: Vec::new(),
            unflushed: Unflushed::default(),
        };
        for (segment, generation) in segments {
            match found.anchor.segments.get(&SegmentIndex(segment)) {
                Some((covered, units)) if *covered == generation => {
                    diecut_units::mark!("volume: segment not walked");
                    lent.log.adopt_closed(segment, *units);
                }
                _ => walk.read_head(segment, 0, 0, found, lent),
            }
        }
        walk
    }

    /// Reads the head at an offset of a segment, if anything was written there.
    fn read_head(&mut self, segment: u32, offset: u32, flags: u64, found: &mut Found, lent: &mut Lent) {
        let layout = lent.log.layout();
        let unit = offset / layout.unit_ius;
        // What lies behind the end that an earlier opening found never counts.
        let end = lent.log.end_of(segment).filter(|_| !mutant!("volume: chunks behind the end count"));
        if offset >= layout.segment_ius || end.is_some_and(|end| unit >= end) {
            return;
        }
        let (block, iu) = lent.log.block_of(layout.address(SegmentIndex(segment), offset));
        if block == NO_BLOCK {
            // A block that is not held was given back, or never came to the medium: of one that a flush covered only the first can be. So the whole
            // segment was, and a cut brought a part of it back.
            return;
        }
        let buffer = lent.log.pool().take(IU_SIZE_BYTES);
        found.outstanding += 1;
        let run = BlockRun { block, first_iu: iu, iu_count: 1 };
        lent.space.read(token(flags, unit, segment), run, buffer, None, IoClass::Metadata);
    }

    /// A head, or data that is checked, was read, or cannot be.
    pub fn arrived(&mut self, completion: SpaceCompletion, found: &mut Found, lent: &mut Lent) {
        if completion.token.0 & DATA != 0 {
            return self.data_arrived(&completion, found, lent);
        }
        let (unit, segment) = numbers(completion.token);
        let is_again = is_again(completion.token);
        if let Err(error) = &completion.result {
            let is_end = matches!(error, SpaceError::Erased { .. }) && lent.log.layout().shape.has_oob();
            if !is_end {
                self.head_lost(segment, unit, is_again, found, lent);
            }
            return;
        }
        let bytes = completion.destination.expect("read");
        let generation = lent.log.generation(segment);
        let unit_ius = lent.log.layout().unit_ius;
        let (block, _) = lent.log.block_of(lent.log.layout().address(SegmentIndex(segment), unit * unit_ius));
        let nonce = nonce_of(block, lent.space);
        let head = Head::decode(nonce, &bytes)
            .filter(|head| head.segment == segment && Some(head.generation) == generation)
            .filter(|head| head.offset / unit_ius == unit);
        match head {
            Some(head) if nonce.is_some() => {
                self.take_head(lent.log.recovered(head, &bytes), found, lent);
            }
            Some(head) => self.check_chunk(lent.log.recovered(head, &bytes), found, lent),
            // Behind a head that was lost, every unit may begin a chunk.
            None if self.searching.contains(&segment) && nonce.is_none() => {
                self.read_head(segment, (unit + 1) * unit_ius, 0, found, lent);
            }
            None if Head::is_other_version(nonce, &bytes) => {
                found.findings.miss(Missing::OtherVersion { segment });
            }
            None => self.head_lost(segment, unit, is_again, found, lent),
        }
    }

    /// The head at a unit cannot be read, or is none: it is looked at once more. Then, at the end of what was written, a
    /// cut tore it, and nothing of it was acknowledged that is not staged; anywhere else the medium lost it, the walk
    /// goes on behind it, and what it recorded is not known any more.
    fn head_lost(&mut self, segment: u32, unit: u32, is_again: bool, found: &mut Found, lent: &mut Lent) {
        let layout = lent.log.layout();
        let unit_ius = layout.unit_ius;
        let shape = layout.shape;
        if !is_again {
            diecut_units::mark!("volume: head read again");
            return self.read_head(segment, unit * unit_ius, AGAIN, found, lent);
        }
        let (block, _) = lent.log.block_of(layout.address(SegmentIndex(segment), unit * unit_ius));
        if !shape.has_oob() {
            // Whether it is an end or loss is known when all heads are.
            self.unflushed.ends.insert(segment, unit);
            return;
        }
        let written = self.written.pages(block) / shape.program_unit_pages;
        if !shape.is_settled(layout.unit_place(unit).1, written) {
            return;
        }
        if !self.searching.contains(&segment) {
            diecut_units::mark!("volume: head lost");
            self.searching.push(segment);
            found.findings.miss(Missing::Head { segment, unit });
        }
        self.read_head(segment, (unit + 1) * unit_ius, 0, found, lent);
    }

    /// A head on a medium without OOB areas. What it says is true, also if a cut took its data: it was there when the head was written.
    fn take_head(&mut self, chunk: RecoveredChunk, found: &mut Found, lent: &mut Lent) {
        let head = chunk.head;
        let mut generation = head.origin.map_or(0, |origin| origin.generation);
        let _consistent = chunk.runs(
            |_, _, words| {
                let Some(note) = FlushNote::of(words) else { return };
                generation = generation.max(note.generation);
                if lent.log.generation(note.segment) == Some(note.generation) {
                    let units = self.unflushed.durable_units.entry(note.segment).or_default();
                    *units = (*units).max(note.units);
                }
            },
            |_| {},
        );
        pass_named(generation, lent);
        self.searching.retain(|searched| *searched != head.segment);
        self.unflushed.heads.entry(head.segment).or_default().push_back(chunk);
        let next = head.offset + u32::from(head.unit_count) * lent.log.layout().unit_ius;
        self.read_head(head.segment, next, 0, found, lent);
    }

    /// All that was asked for was read. Whether there is more to read.
    pub fn goes_on(&mut self, found: &mut Found, lent: &mut Lent) -> bool {
        if self.unflushed.are_heads_known {
            return false;
        }
        let unit_ius = lent.log.layout().unit_ius;
        for (segment, unit) in std::mem::take(&mut self.unflushed.ends) {
            if unit >= self.unflushed.durable_units(segment)
                || mutant!("volume: a hole before the durable units is an end")
            {
                continue;
            }
            if !self.searching.contains(&segment) {
                diecut_units::mark!("volume: flushed head lost");
                self.searching.push(segment);
                found.findings.miss(Missing::Head { segment, unit });
            }
            self.read_head(segment, (unit + 1) * unit_ius, 0, found, lent);
        }
        if found.outstanding > 0 {
            return true;
        }
        self.unflushed.are_heads_known = true;
        let segments: Vec<u32> = self.unflushed.heads.keys().copied().collect();
        segments.into_iter().for_each(|segment| self.check_next(segment, found, lent));
        found.outstanding > 0
    }

    /// Looks at the data of the next chunk of a segment whose heads are known.
    fn check_next(&mut self, segment: u32, found: &mut Found, lent: &mut Lent) {
        let chunks = self.unflushed.heads.get_mut(&segment);
        if let Some(chunk) = chunks.and_then(VecDeque::pop_front) {
            self.check_chunk(chunk, found, lent);
        }
    }

    /// Only the last program units of an erase block can be torn, and without OOB areas all that no flush covered: what a chunk has in them is
    /// read. What cannot be read elsewhere is lost, and tells nothing of the rest.
    fn check_chunk(&mut self, chunk: RecoveredChunk, found: &mut Found, lent: &mut Lent) {
        let layout = lent.log.layout();
        let head = chunk.head;
        let unit_count = u32::from(head.unit_count);
        if head.offset + unit_count * layout.unit_ius > layout.segment_ius
            || u32::from(head.data_count) >= unit_count * layout.unit_ius
        {
            return;
        }
        let mut torn_units = Vec::new();
        let first_unit = head.offset / layout.unit_ius;
        for unit in first_unit..first_unit + unit_count {
            let place = layout.address(SegmentIndex(head.segment), unit * layout.unit_ius);
            let (block, _) = lent.log.block_of(place);
            if block == NO_BLOCK {
                return;
            }
            let written = self.written.pages(block) / layout.shape.program_unit_pages;
            let skipped = mutant!("volume: the first unit that no flush covered is not looked at");
            let durable_units = self.unflushed.durable_units(head.segment) + u32::from(skipped);
            let may_be_gone = !layout.shape.has_oob()
                && unit >= durable_units
                && !mutant!("volume: what no flush covered is not looked at");
            if may_be_gone
                || layout.shape.has_oob() && !layout.shape.is_settled(layout.unit_place(unit).1, written)
                || mutant!("volume: settled data taken for torn")
            {
                torn_units.push(unit - first_unit);
            }
        }
        let end = 1 + u32::from(head.data_count);
        let mut runs: Vec<(u32, u32)> = Vec::new();
        let mut first = 1;
        while first < end {
            let count = layout.ius_to_strip_end(head.offset + first).min(end - first);
            let units = first / layout.unit_ius..=(first + count - 1) / layout.unit_ius;
            if torn_units.iter().any(|torn| units.contains(torn)) {
                runs.push((first, count));
            }
            first += count;
        }
        if runs.is_empty() {
            return self.accept(chunk, found, lent);
        }
        let checking = Checking { chunk, pending: runs.len() as u32, is_right: true };
        let before = self.checking.insert(head.segment, checking);
        assert!(before.is_none(), "I-M3: one chunk of a segment is looked at after the other");
        for (first, count) in runs {
            read_data(&head, first, count, 0, found, lent);
        }
    }

    /// Data of a chunk that is checked was read, or cannot be.
    fn data_arrived(&mut self, completion: &SpaceCompletion, found: &mut Found, lent: &mut Lent) {
        let (first, segment) = numbers(completion.token);
        let layout = lent.log.layout();
        let checking = self.checking.get_mut(&segment).expect("I-M3: being checked");
        let head = checking.chunk.head;
        let place = layout.address(SegmentIndex(segment), head.offset + first);
        let bytes = stream_bytes(&head, layout.content_mode().bytes_per_iu());
        let is_right = match (&completion.result, &completion.destination) {
            (Ok(()), Some(data)) => {
                let records = first - 1..first - 1 + (data.len() / bytes) as u32;
                let checks: Vec<Check> = records.map(|record| checking.chunk.check(record)).collect();
                lent.log.verify(place, bytes, data, completion.oob.as_deref(), &checks).is_ok()
            }
            _ => false,
        };
        if !is_right && !is_again(completion.token) {
            // Torn, or a read that fails once: the second look tells.
            let end = 1 + u32::from(head.data_count);
            let count = layout.ius_to_strip_end(head.offset + first).min(end - first);
            return read_data(&head, first, count, AGAIN, found, lent);
        }
        checking.pending -= 1;
        checking.is_right &= is_right;
        if checking.pending == 0 {
            let checked = self.checking.remove(&segment).expect("I-M3: being checked");
            if checked.is_right || mutant!("log: torn chunk accepted") {
                self.accept(checked.chunk, found, lent);
            }
        }
    }

    fn accept(&mut self, chunk: RecoveredChunk, found: &mut Found, lent: &mut Lent) {
        let next = chunk.head.offset + u32::from(chunk.head.unit_count) * lent.log.layout().unit_ius;
        let segment = chunk.head.segment;
        pass_named(chunk.head.origin.map_or(0, |origin| origin.generation), lent);
        self.searching.retain(|searched| *searched != segment);
        self.chunks.push(chunk);
        if self.unflushed.are_heads_known {
            return self.check_next(segment, found, lent);
        }
        self.read_head(segment, next, 0, found, lent);
    }

    /// All heads are known.
    pub fn end(mut self, found: &mut Found, lent: &mut Lent) -> LeafReads {
        assert!(self.checking.is_empty(), "I-M3: all chunks are checked");
        undo_copies(&mut self.chunks, found, lent);
        LeafReads::start(self.chunks, found, lent)
    }
}

/// A head names a segment of this generation, which may be gone: what comes must not be taken for it.
fn pass_named(generation: u32, lent: &mut Lent) {
    if !mutant!("volume: a generation that heads name is given again") {
        lent.log.pass_generation(generation);
    }
}

/// Reads data of the chunk with this head; `first` is its first IU within the chunk.
fn read_data(head: &Head, first: u32, count: u32, flags: u64, found: &mut Found, lent: &mut Lent) {
    let layout = lent.log.layout();
    let (block, iu) = lent.log.block_of(layout.address(SegmentIndex(head.segment), head.offset + first));
    let page_ius = layout.shape.ius_per_page();
    let pages = (iu + count - 1) / page_ius - iu / page_ius + 1;
    let oob_size = layout.shape.oob_size_bytes as usize;
    let bytes = stream_bytes(head, layout.content_mode().bytes_per_iu());
    let destination = lent.log.pool().take(count as usize * bytes);
    let oob = (oob_size > 0).then(|| lent.log.pool().take(pages as usize * oob_size));
    found.outstanding += 1;
    let run = BlockRun { block, first_iu: iu, iu_count: count };
    let token = token(DATA | flags, first, head.segment);
    lent.space.read(token, run, destination, oob, IoClass::Metadata);
}

fn stream_bytes(head: &Head, user_bytes: usize) -> usize {
    if head.stream == Stream::Map { IU_SIZE_BYTES } else { user_bytes }
}
