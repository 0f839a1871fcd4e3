//! Heads of victims: read ahead, and looked at one after the other.

use super::Cleaner;
use super::copies::CopyEntry;
use super::victim::NextHead;
use crate::chunk::nonce_of;
use crate::format::FlushNote;
use crate::head::{self, Head};
use crate::segments::NO_BLOCK;
use crate::token::head_token;
use crate::writer::Writer;
use crate::{Check, Owner};
use diecut_units::{BufferMut, IU_SIZE_BYTES, mutant};
use diecut_vssd::space::{BlockRun, EraseBlockSpace, IoClass, SpaceCompletion};

/// Heads of a victim that are read at a time.
const HEADS_AHEAD: u32 = 32;
/// Reads of copies on each member of a segment that are under way before the next head is looked at.
const COPY_READS_PER_MEMBER: u32 = 24;
/// Most of them in all.
const COPY_READS_MAX: u32 = 256;

impl Cleaner {
    /// Looks at the heads of victims that were not walked through, and reads more of them.
    pub(super) fn walk(
        &mut self,
        writer: &mut Writer,
        space: &mut dyn EraseBlockSpace,
        owner: &mut impl Owner,
    ) {
        for at in 0..self.victims.len() {
            if !self.victims[at].is_walked && self.look_at_heads(at, writer, space, owner) {
                self.read_heads(at, writer, space);
            }
        }
    }

    /// Looks at heads that are here. Whether more of them are needed.
    fn look_at_heads(
        &mut self,
        at: usize,
        writer: &mut Writer,
        space: &dyn EraseBlockSpace,
        owner: &mut impl Owner,
    ) -> bool {
        let limit = (COPY_READS_PER_MEMBER * writer.segments.layout.width).min(COPY_READS_MAX);
        loop {
            let victim = &mut self.victims[at];
            victim.forget_passed_heads();
            if victim.is_walked || victim.reads >= limit || self.copies.ready.len() >= limit as usize {
                return false;
            }
            let NextHead::Arrived(bytes) = victim.take_next_head() else { return true };
            let head = self.head_of(at, bytes.as_deref(), writer, space);
            self.look_at(at, head, bytes, writer, owner);
        }
    }

    /// Reads the next head, and those that follow if chunks are full.
    fn read_heads(&mut self, at: usize, writer: &mut Writer, space: &mut dyn EraseBlockSpace) {
        let victim = &mut self.victims[at];
        let (segment, layout) = (&writer.segments[victim.segment], &writer.segments.layout);
        let end = segment.next_unit * layout.unit_ius;
        let ahead = if victim.is_regular { HEADS_AHEAD } else { 1 };
        let next = victim.offset;
        for offset in (0..ahead).map(|step| next + step * layout.chunk_ius()) {
            let is_next = offset == next;
            if (offset >= end && !is_next) || victim.has_head(offset) {
                continue;
            }
            let (member, iu) = layout.place(offset);
            let block = segment.blocks[member];
            if block == NO_BLOCK {
                // Nothing was programmed on this member before a cut: no chunk reaches here.
                victim.is_walked |= is_next;
                break;
            }
            if victim.head_count() >= HEADS_AHEAD as usize && !is_next {
                break;
            }
            victim.expect_head(offset);
            let token = head_token(self.group, victim.number, offset);
            let buffer = writer.pool.take(IU_SIZE_BYTES);
            space.read(token, BlockRun { block, first_iu: iu, iu_count: 1 }, buffer, None, IoClass::Cleaner);
        }
    }

    /// A head was read, or cannot be.
    pub fn head_arrived(&mut self, completion: SpaceCompletion) {
        let (number, offset) = ((completion.token.0 >> 32) as u8, completion.token.0 as u32);
        let victim = self.victims.iter_mut().find(|victim| victim.number == number);
        let victim = victim.expect("I-L21: a victim waits for its heads");
        victim.head_arrived(offset, completion.destination.filter(|_| completion.result.is_ok()));
    }

    /// The head of the next chunk of a victim, if these bytes are it.
    fn head_of(
        &self,
        at: usize,
        bytes: Option<&[u8]>,
        writer: &Writer,
        space: &dyn EraseBlockSpace,
    ) -> Option<Head> {
        let victim = &self.victims[at];
        let layout = &writer.segments.layout;
        let (block, _) = writer.segments.block_of(writer.segments.address(victim.segment, victim.offset));
        let head = Head::decode(nonce_of(block, space), bytes?)?;
        let end = u64::from(head.offset) + u64::from(head.unit_count) * u64::from(layout.unit_ius);
        (head.segment == victim.segment
            && head.generation == writer.segments[victim.segment].generation
            && head.offset == victim.offset
            && end <= u64::from(layout.segment_ius)
            && u32::from(head.data_count) < u32::from(head.unit_count) * layout.unit_ius)
            .then_some(head)
    }

    /// Wants copies of what lives in the chunk whose head was read.
    fn look_at(
        &mut self,
        at: usize,
        head: Option<Head>,
        bytes: Option<BufferMut>,
        writer: &mut Writer,
        owner: &mut impl Owner,
    ) {
        let Some(head) = head else {
            let victim = &mut self.victims[at];
            if !victim.is_second_look {
                // A read that fails once must not cost what the rest of the segment records.
                victim.is_second_look = true;
                return;
            }
            victim.is_walked = true;
            // Notes behind a head that is lost cannot be renewed: their segment stays.
            let segment = &mut writer.segments[victim.segment];
            segment.is_unreclaimable |= segment.last_note >= writer.anchors.held();
            return;
        };
        let bytes = bytes.expect("a head was read");
        self.want_live(&head, &bytes, writer, owner);
        let notes = self.want_notes(&head, &bytes, writer);
        let layout = &writer.segments.layout;
        let end = writer.segments[head.segment].next_unit * layout.unit_ius;
        let victim = &mut self.victims[at];
        victim.is_second_look = false;
        victim.waiting += notes;
        victim.is_regular = u32::from(head.unit_count) == layout.chunk_units;
        victim.offset += u32::from(head.unit_count) * layout.unit_ius;
        victim.is_walked |= victim.offset >= end;
    }

    /// Wants copies of the data of a chunk that lives.
    fn want_live(&mut self, head: &Head, bytes: &[u8], writer: &Writer, owner: &mut impl Owner) {
        self.entries.clear();
        let first = writer.segments.address(head.segment, head.offset + 1);
        let (shape, tags) = (head.shape(), writer.staging.form.tags);
        let records = (0..shape.data_count).map(|record| (record, shape.tag(bytes, record, tags)));
        self.entries.extend(records.map(|(record, tag)| (tag, first.plus(record))));
        owner.live(&self.entries, &mut self.live);
        let (entries, lives) = (std::mem::take(&mut self.entries), std::mem::take(&mut self.live));
        let mut collector = self.copies.collect();
        let records = (0..).zip(entries.iter().zip(&lives));
        for (record, ((tag, place), _)) in records.filter(|(_, (_, live))| **live) {
            let told = shape.checksum(bytes, record).map_or(Check::UNKNOWN, Check::whole);
            let entry = CopyEntry { tag: *tag, place: *place, told, checksum: 0 };
            if let Some(done) = self.copies.add(&mut collector, entry, &writer.segments) {
                self.want_copy(done, writer);
            }
        }
        if let Some(done) = collector.end() {
            self.want_copy(done, writer);
        }
        (self.entries, self.live) = (entries, lives);
    }

    /// Wants the notes of a chunk to be written again that no anchor covers: what one covers is in the owner's leaves. How many there are.
    fn want_notes(&mut self, head: &Head, bytes: &[u8], writer: &Writer) -> u32 {
        let mut count = 0;
        for (sequence, words) in head.shape().notes(bytes) {
            let is_covered = writer.anchors.covers(sequence)
                || sequence == writer.anchors.held()
                    && mutant!("log: note at the anchor's sequence not renewed");
            let is_for_recovery = words[0] == head::SKIP || FlushNote::of(words).is_some();
            if !is_for_recovery && !is_covered {
                count += 1;
                self.renewed.push((head.segment, words));
            }
        }
        count
    }
}
