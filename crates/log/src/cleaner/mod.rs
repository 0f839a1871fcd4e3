//! The cleaner of a reclaim group: which segments are victims, and when they are done.
//!
//! A victim is walked head by head ([`walk`]); what lives in it is read and appended again ([`copy`]).

mod copies;
mod copy;
mod patience;
mod victim;
mod walk;

use crate::purge::Purge;
use crate::reserve::{self, BURST_SEGMENTS, DISPLACED_LEAVE, SMALL_SEGMENTS};
use crate::segments::Segments;
use crate::writer::Writer;
use crate::{LogAddress, Owner, ReclaimGroup, Stream};
use copies::Copies;
use diecut_units::{Time, mutant};
use diecut_vssd::space::EraseBlockSpace;
use patience::Patience;
use smallvec::SmallVec;
use std::collections::VecDeque;
use victim::Victim;

/// With no more free segments than these, only what frees most counts.
const RESERVE_LEAST: u32 = 3;

/// What the cleaner is at.
#[derive(Default)]
pub(crate) struct Cleaner {
    /// Where it cleans.
    group: ReclaimGroup,
    /// What it works on, two for each group that it cleans at most: while the last copies of one are read it walks
    /// through the next one.
    victims: VecDeque<Victim>,
    copies: Copies,
    patience: Patience,
    /// Notes of victims that are to be written again, with the victim's segment.
    renewed: Vec<(u32, [u64; 3])>,
    /// There is more to do without an event.
    is_unfinished: bool,
    still: Vec<[u64; 3]>,
    live: Vec<bool>,
    entries: Vec<(u64, LogAddress)>,
}

impl Cleaner {
    /// The cleaner of a group.
    pub fn new(group: ReclaimGroup) -> Cleaner {
        Cleaner { group, ..Cleaner::default() }
    }

    /// Free segments of the group.
    fn free_segments(&self, writer: &Writer) -> u32 {
        writer.supplies[self.group].free_segments()
    }

    /// Whether there is more to do without an event.
    pub fn is_unfinished(&self) -> bool {
        self.is_unfinished
    }

    /// Whether there is room enough, or no more to be had, and nothing is being cleaned.
    pub fn is_at_rest(&self, writer: &Writer) -> bool {
        !self.is_unfinished
            && self.victims.is_empty()
            && self.renewed.is_empty()
            && self.copies.is_empty()
            && self.free_segments(writer) > reserve::reserve_segments(&writer.segments.layout)
            && (self.patience.is_over() || self.room_ius(writer) >= enough_ius(&writer.segments))
    }

    /// Lets the cleaner go on.
    pub fn work(
        &mut self,
        now: Time,
        writer: &mut Writer,
        purge: &mut Purge,
        space: &mut dyn EraseBlockSpace,
        owner: &mut impl Owner,
    ) {
        self.is_unfinished = false;
        writer.recount_free(self.group, space);
        if self.free_segments(writer) < 2 {
            // Copies, moves and leaves may all wait for a segment, and those being freed for what was copied.
            writer.urge();
        }
        let mut goes_on = true;
        for _ in 0..4 {
            self.read_copies(writer, space);
            self.place_copies(writer, space, owner);
            goes_on = self.finish_victims(writer);
            self.begin_victim(writer, purge);
            let renewed = self.renewed.len();
            self.walk(writer, space, owner);
            self.read_copies(writer, space);
            // Notes that were found now are written at once: of a victim with nothing else no event comes.
            goes_on |= self.renewed.len() > renewed;
            goes_on |= self.victims.iter().any(Victim::is_copied);
            if !goes_on {
                break;
            }
        }
        // The next step needs no event: whoever drives the log must come again.
        self.is_unfinished |= goes_on;
        self.pace(now, writer);
    }

    /// Room in IUs: in free segments and those being freed, in what writers, cleaner and map have open, and, as far as they are
    /// copied, in victims. Copies take as much as they give until the victim is done, so it rises evenly with each. Anchors count as
    /// one segment, whether one is written or none.
    fn room_ius(&self, writer: &Writer) -> u64 {
        let segments = &writer.segments;
        let free_segments = if mutant!("log: room comes and goes with anchors") {
            self.free_segments(writer)
        } else {
            writer.supplies[self.group].free_without_anchors().saturating_sub(1)
        };
        let mut room =
            segments.ius(free_segments) + segments.ius(segments.freeing_count_in(self.group) as u32);
        for stream in segments.layout.streams.all_in_group(self.group) {
            if stream == Stream::Map && segments.group_count() < SMALL_SEGMENTS {
                continue;
            }
            let Some(open) = segments.open_of(stream) else { continue };
            let left = segments.units_left(open) * segments.layout.unit_ius;
            room += u64::from(left.saturating_sub(writer.staging.open_ius(stream)));
        }
        let whole = segments.layout.segment_ius;
        let copied = self.victims.iter().map(|one| one.copied_share(segments.valid(one.segment), whole));
        room + copied.map(u64::from).sum::<u64>()
    }

    /// Sets the pace of writers while the cleaner works.
    fn pace(&self, now: Time, writer: &mut Writer) {
        let segments = &writer.segments;
        let room = self.room_ius(writer);
        let least = segments.ius(segments.paced_segments());
        let freeing = segments.freeing_count_in(self.group);
        if self.victims.is_empty() && (freeing == 0 || room >= enough_ius(segments)) {
            // Nothing gives room, or nothing needs to.
            writer.paces[self.group].lift();
        } else {
            writer.paces[self.group].keep(now, room, least);
        }
    }

    /// Victims that are copied are to be freed. `true` if there was one.
    fn finish_victims(&mut self, writer: &mut Writer) -> bool {
        let mut finished = false;
        for at in (0..self.victims.len()).rev() {
            if self.victims[at].is_copied() {
                let segment = self.victims[at].segment;
                let waits = self.renewed.iter().any(|(of, _)| *of == segment);
                assert!(!waits, "I-L24: notes of a victim are written before it ends");
                writer.segments.end_cleaning(self.victims[at].segment, writer.next_sequence);
                self.victims.remove(at);
                finished = true;
            }
        }
        finished
    }

    /// Chooses a victim if room is short, in a group of units in which nothing is left to walk through: dies of all groups have
    /// something to read.
    fn begin_victim(&mut self, writer: &mut Writer, purge: &mut Purge) {
        let free_segments = self.free_segments(writer);
        let count = self.victims.len();
        let walks = writer.segments.walks();
        let reserve = reserve::reserve_segments(&writer.segments.layout);
        // While the last copies of one are read the next one in its group is walked through. Each may need a segment for what
        // is left of it before it gives one.
        if count as u32 >= 2 * walks || count > 0 && free_segments < reserve + count as u32 {
            return;
        }
        let unwalked = self.victims.iter().filter(|victim| !victim.is_walked);
        let walked: SmallVec<[u32; 4]> =
            unwalked.map(|victim| writer.segments.group_of(victim.segment)).collect();
        if walked.len() as u32 >= walks {
            return;
        }
        let is_idle = self.victims.is_empty();
        let is_short = self.room_ius(writer) < enough_ius(&writer.segments);
        if !is_short && !purge.is_under_way() {
            if is_idle && free_segments <= reserve {
                writer.urge();
            }
            return;
        }
        if free_segments <= 1 + DISPLACED_LEAVE && writer.segments.freeing_count_in(self.group) > 0 {
            // They become free before the last segments are used.
            writer.urge();
            return;
        }
        let may_purge = free_segments >= reserve;
        let group = self.group;
        let of_purge = |purge: &mut Purge, is_short: bool| {
            if may_purge { purge.choose(group, &walked, is_short, writer) } else { None }
        };
        let mut segment = of_purge(purge, is_short);
        if segment.is_none() && is_short {
            segment = self.choose(&walked, writer);
            if segment.is_some() {
                self.patience.count();
            } else {
                segment = of_purge(purge, false);
            }
        }
        let Some(segment) = segment else {
            if is_idle {
                writer.urge();
            }
            return;
        };
        let anchored = writer.anchors.held();
        let is_victim = self.victims.iter().any(|other| other.segment == segment);
        assert!(!is_victim, "I-L23: a segment is one victim");
        let live_at_start = writer.segments.begin_cleaning(segment);
        let is_walked = live_at_start == 0 && writer.segments[segment].last_note < anchored;
        let is_taken = |number: u8| self.victims.iter().any(|other| other.number == number);
        let number = (0..).find(|number| !is_taken(*number)).expect("I-L23: victims are few");
        self.victims.push_back(Victim::new(segment, number, live_at_start, is_walked));
    }

    /// The next victim, outside of some groups of units.
    fn choose(&mut self, walked: &[u32], writer: &Writer) -> Option<u32> {
        let (segments, free_segments) = (&writer.segments, self.free_segments(writer));
        let may_try = self.patience.tries(writer.statistics.user_ius(), segments.layout.segment_ius)
            || mutant!("log: cleaning without an end");
        if !may_try && free_segments > reserve::reserve_segments(&segments.layout) {
            return None;
        }
        segments.pick_victim(self.group, walked, free_segments > RESERVE_LEAST, writer.anchors.held())
    }

    fn victim_of(&mut self, segment: u32) -> &mut Victim {
        let victim = self.victims.iter_mut().find(|victim| victim.segment == segment);
        victim.expect("I-L24: copies belong to a victim")
    }
}

/// Room with which nothing needs to be cleaned, in IUs.
fn enough_ius(segments: &Segments) -> u64 {
    segments.ius(segments.paced_segments() + BURST_SEGMENTS)
}

impl std::fmt::Display for Cleaner {
    fn fmt(&self, f: &mut std::fmt::Formatter) -> std::fmt::Result {
        for victim in &self.victims {
            writeln!(
                f,
                "victim {}: offset {} walked {} heads {} reads {} waiting {}",
                victim.segment,
                victim.offset,
                victim.is_walked,
                victim.head_count(),
                victim.reads,
                victim.waiting
            )?;
        }
        writeln!(f, "ready {} renewed {}", self.copies.ready.len(), self.renewed.len())
    }
}
