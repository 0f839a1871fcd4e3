//! Copies: read from victims, and appended again.

use super::Cleaner;
use super::copies::CopyRead;
use crate::head::Origin;
use crate::token::copy_token;
use crate::writer::Writer;
use crate::{Move, Owner, ReclaimGroup, Stream};
use diecut_units::{BufferMut, IU_SIZE_BYTES, mutant};
use diecut_vssd::space::{EraseBlockSpace, IoClass, SpaceCompletion};

impl Cleaner {
    pub(super) fn want_copy(&mut self, read: CopyRead, writer: &Writer) {
        self.victim_of(writer.segments.index_of(read.run.first)).reads += 1;
        self.copies.want(read);
    }

    /// Reads what is wanted.
    pub(super) fn read_copies(&mut self, writer: &mut Writer, space: &mut dyn EraseBlockSpace) {
        while let Some((slot, run)) = self.copies.next_unread() {
            let segments = &writer.segments;
            let stream = segments[segments.index_of(run.first)].stream;
            let iu_bytes = if stream.policy().is_always_bytes {
                IU_SIZE_BYTES
            } else {
                segments.layout.content_mode().bytes_per_iu()
            };
            let destination = writer.pool.take(run.count as usize * iu_bytes);
            let token = copy_token(self.group, slot);
            writer.segments.read(token, run, destination, IoClass::Cleaner, &mut writer.pool, space);
        }
    }

    /// IUs were read, or cannot be.
    pub fn copy_arrived(&mut self, slot: u32, completion: SpaceCompletion, writer: &mut Writer) {
        let mut read = self.copies.take(slot);
        let segment = writer.segments.index_of(read.run.first);
        self.victim_of(segment).read_one();
        if let (Ok(()), Some(buffer)) = (completion.result, completion.destination)
            && read.check(&buffer, completion.oob.as_deref(), &writer.segments)
        {
            self.victim_of(segment).waiting += 1;
            self.copies.ready.push_back((read, buffer));
            return;
        }
        if writer.condition.is_gone() {
            return;
        }
        if read.entries.len() == 1 && read.is_second_try {
            writer.statistics.lost_ius += 1;
            writer.segments[segment].is_unreclaimable = true;
            return;
        }
        // One IU that cannot be read must not cost its neighbours, nor a read that fails once an IU.
        let is_second_try = read.entries.len() == 1;
        for entry in read.entries {
            self.want_copy(CopyRead::single(entry, is_second_try), writer);
        }
    }

    /// Places what was read and still lives, and notes that were found, as far as there is room.
    pub(super) fn place_copies(
        &mut self,
        writer: &mut Writer,
        space: &mut dyn EraseBlockSpace,
        owner: &mut impl Owner,
    ) {
        while let Some((of, words)) = self.renewed.pop() {
            writer.copying = Some(origin_of(of, writer));
            let stream = copies_of(of, writer);
            // What of it still holds is asked at the moment it gets its new sequence, as with copies.
            let mut still = std::mem::take(&mut self.still);
            still.clear();
            owner.renew(words, &mut still);
            let placed = still.iter().all(|words| writer.note(stream, *words, space).is_some());
            writer.anchors.count_cleaned(still.len() as u64);
            self.still = still;
            if !placed {
                self.renewed.push((of, words));
                break;
            }
            self.victim_of(of).placed_one();
        }
        while let Some((mut read, buffer)) = self.copies.ready.pop_front() {
            let of = writer.segments.index_of(read.run.first);
            writer.copying = Some(origin_of(of, writer));
            if !place(&mut read, &buffer, writer, space, owner) {
                diecut_units::mark!("log: cleaner waited for room");
                self.copies.ready.push_front((read, buffer));
                break;
            }
            self.victim_of(of).placed_one();
            self.copies.recycle(read);
        }
        writer.copying = None;
    }
}

/// Appends what of a read still lives. `false` if there was no room for all of it.
fn place(
    read: &mut CopyRead,
    buffer: &BufferMut,
    writer: &mut Writer,
    space: &mut dyn EraseBlockSpace,
    owner: &mut impl Owner,
) -> bool {
    let from = writer.segments.index_of(read.run.first);
    let stream = copies_of(from, writer);
    while let Some(entry) = read.entries.get(read.placed as usize) {
        // Asked at the moment the copy gets its sequence: what was written since is newer.
        if owner.is_live(entry.tag, entry.place) || mutant!("log: cleaner copy with a fresh sequence") {
            let content = read.content(entry, buffer);
            let copied = writer.append_checked(stream, entry.tag, content, entry.checksum, space);
            let Some(new) = copied else { return false };
            let moved = Move {
                tag: entry.tag,
                from: entry.place,
                to: new,
                checksum: entry.checksum,
                sequence: writer.next_sequence - 1,
            };
            if owner.moved(moved) {
                diecut_units::mark!("log: cleaner moved live data");
                writer.segments.invalidate(entry.place);
                writer.count_moved(from);
            } else {
                // Only a planted bug gets here.
                writer.segments.invalidate(new);
            }
        }
        read.placed += 1;
    }
    true
}

/// The stream that copies of what lies in a segment go to.
fn copies_of(index: u32, writer: &Writer) -> Stream {
    let segments = &writer.segments;
    let stream =
        if mutant!("log: copies of isolated handles mix") { Stream::CLEANER } else { segments[index].stream };
    let group = if mutant!("log: copies leave their reclaim group") {
        ReclaimGroup::FIRST
    } else {
        segments.reclaim_group_of(index)
    };
    segments.layout.streams.copies_of(stream, group)
}

/// What stands in chunks whose entries were all copied from a segment.
fn origin_of(index: u32, writer: &Writer) -> Origin {
    let segment = &writer.segments[index];
    Origin { segment: index, generation: segment.generation, units: segment.next_unit }
}
