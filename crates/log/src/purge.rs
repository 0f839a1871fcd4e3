//! Purges: what was appended before one began, and does not live, leaves flash and protected memory.
//!
//! A purge is bounded by a sequence: segments of data in which something older lies are cleaned, whatever of them lives, or freed when they
//! are dead. Streams that have such a segment open end it first, one at a time, so that no more than one segment stands half empty for it.
//! Victims of a purge take turns with those of the cleaner, which go on to make the room that copies need; so it ends on a full vSSD, and
//! writers are paced as ever. Slots of staging are cleared when their chunks are gone. Last, the space erases what was freed.
//!
//! Segments of leaves and anchors stay: they hold places and numbers of volumes, no content of hosts. Those of them that are freed are erased
//! with the others.
//!
//! Not known here: who asked, what a volume is.

use crate::condition::{NO_GOOD_BLOCKS, NO_ROOM};
use crate::segments::{Segment, SegmentState, Segments};
use crate::token::TOKEN_PURGE;
use crate::writer::Writer;
use crate::{ReclaimGroup, Stream, StreamKind};
use diecut_units::{mark, mutant};
use diecut_vssd::space::{EraseBlockSpace, SpaceError, SpaceToken};

/// Why a purge did not do what it was to do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PurgeError {
    /// The log takes no more writes, so nothing can move.
    ReadOnly(&'static str),
    /// The medium has no room for what would have to move.
    NoRoom(&'static str),
    /// Something that lives cannot be read, and what lies beside it stays with it.
    Unreadable,
    /// Erase blocks that went bad could not be erased.
    NotErased {
        /// How many.
        blocks: u32,
    },
    /// The power is gone.
    Gone,
}

/// How far a purge is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Stage {
    /// What is older than this sequence goes.
    Moving {
        before: u64,
    },
    Erasing,
    Over(Result<(), PurgeError>),
}

/// See the module.
#[derive(Default)]
pub(crate) struct Purge {
    stage: Option<Stage>,
    is_new: bool,
    /// The space was asked to erase and did not answer yet, perhaps for a purge that ended otherwise.
    is_asked: bool,
    /// An anchor was asked for, which lets segments go that only notes keep.
    wants_anchor: bool,
    /// What could be seen of it after the last step: while that changes it goes on without an event.
    seen: (u32, usize, bool),
    goes_on: bool,
    /// Only slots of staging are waited for that somebody below still reads.
    waits_for_slots: bool,
    /// The next victim is the cleaner's.
    is_cleaners_turn: bool,
}

impl Purge {
    /// Whether one is under way.
    pub fn is_under_way(&self) -> bool {
        self.stage.is_some()
    }

    /// Begins one.
    pub fn begin(&mut self, writer: &mut Writer) {
        assert!(self.stage.is_none(), "I-L40: one purge at a time");
        let before = writer.next_sequence;
        writer.pass_over_fresh(before);
        writer.staging.wipe_when_free();
        self.stage = Some(Stage::Moving { before });
        self.is_new = true;
    }

    /// Whether whoever asked has something to do.
    pub fn is_due(&self) -> bool {
        self.is_new || matches!(self.stage, Some(Stage::Over(_)))
    }

    /// What became of it, once.
    pub fn take_result(&mut self) -> Option<Result<(), PurgeError>> {
        let Some(Stage::Over(result)) = self.stage else { return None };
        self.stage = None;
        Some(result)
    }

    /// Ends it if the log does not go on.
    pub fn end_if_stopped(&mut self, writer: &mut Writer) {
        if matches!(self.stage, Some(Stage::Moving { .. } | Stage::Erasing))
            && let Some(error) = ended(writer)
        {
            self.end(Err(error), writer);
        }
    }

    /// Lets it go on; after the cleaner.
    pub fn work(&mut self, writer: &mut Writer, space: &mut dyn EraseBlockSpace) {
        self.is_new = false;
        if let Some(Stage::Moving { before }) = self.stage {
            self.move_on(before, writer, space);
        }
    }

    fn move_on(&mut self, before: u64, writer: &mut Writer, space: &mut dyn EraseBlockSpace) {
        let is_wiped = mutant!("log: a purge leaves staging as it is") || writer.staging.wipe_free();
        if !writer.placing.is_ending()
            && let Some(stream) = writer.segments.open_before(before)
        {
            writer.end_unit(stream, space);
        }
        let Older { all, unreadable, noted } = writer.segments.older_than(before, writer.anchors.held());
        if noted > 0 && !self.wants_anchor {
            self.wants_anchor = true;
            writer.anchors.want(true);
        }
        self.waits_for_slots = all == unreadable && !is_wiped;
        if all > unreadable || !is_wiped || self.is_asked {
            if writer.segments.freeing_count() > 0 {
                writer.urge();
            }
            return;
        }
        if unreadable > 0 {
            mark!("log: a purge meets what cannot be read");
            return self.end(Err(PurgeError::Unreadable), writer);
        }
        mark!("log: all that is old was moved");
        self.stage = Some(Stage::Erasing);
        self.is_asked = true;
        space.erase_freed(SpaceToken(TOKEN_PURGE));
    }

    /// Looks whether a step changed something that the next one goes on with.
    pub fn end_step(&mut self, writer: &Writer) {
        let Some(Stage::Moving { before }) = self.stage else {
            self.goes_on = false;
            return;
        };
        let older = writer.segments.older_than(before, writer.anchors.held()).all;
        let seen = (older, writer.segments.freeing_count(), writer.placing.is_ending());
        self.goes_on = seen != self.seen;
        self.seen = seen;
    }

    /// Whether it goes on without an event.
    pub fn is_unfinished(&self) -> bool {
        self.goes_on
    }

    /// Whether it is to be looked at again soon, though nothing will tell.
    pub fn looks_again(&self) -> bool {
        (self.waits_for_slots || self.wants_anchor) && matches!(self.stage, Some(Stage::Moving { .. }))
    }

    /// The space erased what was freed, or could not.
    pub fn erased(&mut self, result: Result<(), SpaceError>, writer: &mut Writer) {
        self.is_asked = false;
        if self.stage != Some(Stage::Erasing) {
            return;
        }
        let result = result.map_err(|error| match error {
            SpaceError::NotErased { blocks } => PurgeError::NotErased { blocks },
            SpaceError::PowerLost => PurgeError::Gone,
            _ => PurgeError::ReadOnly(NO_GOOD_BLOCKS),
        });
        self.end(result, writer);
    }

    fn end(&mut self, result: Result<(), PurgeError>, writer: &mut Writer) {
        if std::mem::take(&mut self.wants_anchor) {
            writer.anchors.want(false);
        }
        self.waits_for_slots = false;
        self.stage = Some(Stage::Over(result));
    }

    /// The next victim in a reclaim group, outside of some groups of units. If room `is_short`, every other one is the cleaner's.
    pub fn choose(
        &mut self,
        group: ReclaimGroup,
        walked: &[u32],
        is_short: bool,
        writer: &Writer,
    ) -> Option<u32> {
        let Some(Stage::Moving { before }) = self.stage else { return None };
        if is_short && std::mem::take(&mut self.is_cleaners_turn) {
            return None;
        }
        let segment = writer.segments.pick_older(before, group, walked)?;
        self.is_cleaners_turn = true;
        Some(segment)
    }
}

impl Writer {
    /// Segments that were opened and hold nothing yet are as good as those that are opened later.
    fn pass_over_fresh(&mut self, sequence: u64) {
        for stream in self.segments.layout.streams.data() {
            if let Some(segment) = self.segments.open_of(stream).filter(|open| self.is_fresh(stream, *open)) {
                self.segments[segment].first_sequence = sequence;
            }
        }
    }
}

/// Segments of data in which something lies that is older than a sequence.
pub(crate) struct Older {
    pub all: u32,
    /// Of them those that stay because something in them cannot be read.
    pub unreadable: u32,
    /// Of them those that only notes keep which cannot be written again.
    pub noted: u32,
}

impl Segments {
    fn is_older(segment: &Segment, sequence: u64) -> bool {
        segment.exists() && segment.stream.kind() != StreamKind::Map && segment.first_sequence < sequence
    }

    /// Counts those that are older.
    fn older_than(&self, sequence: u64, anchored: u64) -> Older {
        let mut older = Older { all: 0, unreadable: 0, noted: 0 };
        for (index, segment) in self.iter().filter(|(_, segment)| Segments::is_older(segment, sequence)) {
            older.all += 1;
            let stays =
                segment.is_unreclaimable && segment.state() == SegmentState::Sealed && segment.chunks == 0;
            older.unreadable += u32::from(stays && self.valid(index) > 0);
            older.noted += u32::from(stays && self.valid(index) == 0 && segment.last_note >= anchored);
        }
        older
    }

    /// A stream of data that has such a segment open.
    fn open_before(&self, sequence: u64) -> Option<Stream> {
        let is_older = |stream: &Stream| {
            self.open_of(*stream).is_some_and(|open| Segments::is_older(&self[open], sequence))
        };
        self.layout.streams.data().find(is_older)
    }

    /// The one of them in a reclaim group with the least to copy that can be cleaned now, outside of some groups of units.
    fn pick_older(&self, sequence: u64, group: ReclaimGroup, walked: &[u32]) -> Option<u32> {
        let may = |(index, segment): &(u32, &Segment)| {
            Segments::is_older(segment, sequence)
                && segment.state() == SegmentState::Sealed
                && segment.chunks == 0
                && !segment.is_unreclaimable
                && *index < self.flash_count()
                && self.reclaim_group_of(*index) == group
                && !walked.contains(&self.group_of(*index))
        };
        let least = self.iter().filter(may).min_by_key(|(index, _)| self.valid(*index));
        least.map(|(index, _)| index)
    }
}

/// Why nothing goes on.
fn ended(writer: &Writer) -> Option<PurgeError> {
    let condition = &writer.condition;
    if condition.is_gone() {
        return Some(PurgeError::Gone);
    }
    if let Some(reason) = condition.read_only() {
        return Some(PurgeError::ReadOnly(reason));
    }
    writer.has_no_room().then_some(PurgeError::NoRoom(NO_ROOM))
}

impl std::fmt::Display for Purge {
    fn fmt(&self, f: &mut std::fmt::Formatter) -> std::fmt::Result {
        match self.stage {
            None => Ok(()),
            Some(stage) => writeln!(f, "purge {stage:?} asked {} saw {:?}", self.is_asked, self.seen),
        }
    }
}
