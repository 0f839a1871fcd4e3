//! What stores answered, and which operation on flash each answer waited for, where that took long.

use super::{Flash, slot_of};
use crate::at_work::For;
use crate::devices::SlowOn;
use crate::kept::KeptAnswers;
use diecut_media::Media;
use diecut_namespace::StoreIndex;
use diecut_openchannel::contract::ChunkCompletion;
use diecut_units::{Time, mark, mutant};
use diecut_volume::contract::VolumeCompletion;
use diecut_vssd::DieTimesView;
use diecut_zoned::contract::ZoneCompletion;
use std::ops::Range;

/// Answers of stores, in order.
#[derive(Default)]
pub(crate) struct StoreAnswers {
    pub(super) answers: Vec<VolumeCompletion>,
    /// Whose they are: of each store up to where, from where those of the one before end.
    ends: Vec<(StoreIndex, usize)>,
    slow: SlowOperations,
    /// Those of zones, in order.
    pub zones: Vec<ZoneCompletion>,
    pub slow_of_zones: SlowOperations,
    /// Those of chunks, in order.
    pub chunks: Vec<ChunkCompletion>,
    pub slow_of_chunks: SlowOperations,
}

/// The last operation on flash that answers waited for, by their place; few have one.
#[derive(Default)]
pub(crate) struct SlowOperations(Vec<(usize, SlowOn)>);

impl SlowOperations {
    fn note(&mut self, answers: Range<usize>, slow: SlowOn) {
        let last = self.0.last().map_or(0, |(at, _)| at + 1);
        assert!(last <= answers.start, "I-S30: an answer waited for one operation last");
        self.0.extend(answers.map(|at| (at, slow)));
    }

    /// That of an answer.
    pub fn of(&self, at: usize) -> Option<SlowOn> {
        let at = self.0.binary_search_by_key(&at, |(at, _)| *at).ok()?;
        Some(self.0[at].1)
    }

    /// Those answers were taken.
    pub fn clear(&mut self) {
        self.0.clear();
    }
}

/// How many answers of each kind there are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Counts {
    volumes: usize,
    zones: usize,
    chunks: usize,
}

impl StoreAnswers {
    /// Where answers of any store go.
    pub(super) fn of_all(&mut self) -> KeptAnswers<'_> {
        KeptAnswers { of_volumes: &mut self.answers, of_zones: &mut self.zones, of_chunks: &mut self.chunks }
    }

    /// What came since the last call is of this store.
    #[inline]
    pub fn are_of(&mut self, store: StoreIndex) {
        let end = self.answers.len();
        match self.ends.last_mut() {
            Some((last, before)) if *last == store => *before = end,
            Some((_, before)) if *before == end => {}
            None if end == 0 => {}
            _ => self.ends.push((store, end)),
        }
    }

    /// How many there are now.
    pub(super) fn counts(&self) -> Counts {
        Counts { volumes: self.answers.len(), zones: self.zones.len(), chunks: self.chunks.len() }
    }

    /// What came after so many waited for an operation that took long.
    pub(super) fn waited_for(&mut self, before: Counts, slow: SlowOn) {
        self.slow.note(before.volumes..self.answers.len(), slow);
        self.slow_of_zones.note(before.zones..self.zones.len(), slow);
        self.slow_of_chunks.note(before.chunks..self.chunks.len(), slow);
    }

    /// Takes them out; each with a way to ask whose it is.
    #[inline]
    pub fn take_all(&mut self, mut take: impl FnMut(VolumeCompletion, Whose<'_>)) {
        for (at, answer) in self.answers.drain(..).enumerate() {
            take(answer, Whose { ends: &self.ends, slow: &self.slow, at });
        }
        self.ends.clear();
        self.slow.clear();
    }
}

/// Whose an answer of a store is.
#[derive(Clone, Copy)]
pub(crate) struct Whose<'a> {
    ends: &'a [(StoreIndex, usize)],
    slow: &'a SlowOperations,
    at: usize,
}

impl Whose<'_> {
    /// The store.
    pub fn store(self) -> StoreIndex {
        self.ends[self.ends.partition_point(|(_, end)| *end <= self.at)].0
    }

    /// The operation on flash that it waited for last, if that took long.
    pub fn slow(self) -> Option<SlowOn> {
        self.slow.of(self.at)
    }
}

/// As `Flash::deliver`, where operations that took long are among what came back: answers are told what they waited for. What a read
/// waited for is told exactly. A write or a flush is answered when its store goes on, so that is told of all it answers then.
#[cold]
pub(super) fn deliver_with_notes<M: Media>(flash: &mut Flash<M>, now: Time) {
    let mut batch = std::mem::take(&mut flash.space_completions);
    for (vssd, completion) in batch.drain(..) {
        let slow = flash.devices.take_slow(vssd, completion.token);
        let Some(index) = flash.store_of(vssd) else {
            flash.block_completions.push((vssd, completion));
            continue;
        };
        let slot = slot_of(&mut flash.stores, index);
        slot.mark_busy(index, &mut flash.busy);
        let before = flash.answers.counts();
        match &mut slot.held {
            None => {
                flash.at_work.now_for = For::Vssd(vssd);
                let mut space = flash.devices.space_on(slot.lies_on, vssd, now);
                slot.store.complete(completion, space.as_mut(), &mut flash.answers.of_all());
            }
            Some(unseen) => unseen.push(completion),
        }
        let is_answered = flash.answers.counts() != before;
        if let Some(slow) = slow.filter(|_| !mutant!("shard: what a command waited for is not noted")) {
            match is_answered {
                true => flash.answers.waited_for(before, slow),
                false => {
                    mark!("shard: a store goes on after an operation that took long");
                    slot.released_by = Some(slow);
                }
            }
        }
        flash.answers.are_of(index);
    }
    flash.space_completions = batch;
    flash.at_work.now_for = For::All;
    flash.devices.iter_mut().for_each(|own| DieTimesView::of(&mut own.pool).forget_slow());
}
